//! A guest whose host's packets are the input's (see [`attack`](crate::attack)): whatever comes, the guest does not panic, keeps no
//! more and takes no longer than it may, and if its session ends it is left with its own entities and no marks.

use crate::attack::{self, Attack};
use crate::forge::Source;
use crate::game::Position;
use crate::wire::Side;
use tidelock::netcore::error::DisconnectReason;
use tidelock::{Networked, Simulated};
use tidelock_netcore::limits;

/// The whole input is one attack. The second bit of its first byte says whether the puppet shows only a part of its world: then
/// its packets are lists of rows.
pub fn run(data: &[u8]) {
    let mut from = Source::new(data);
    let how = from.byte();
    let mut attack = Attack::new(Side::Guest, &[], how & 1 != 0);
    if how & 2 != 0 {
        attack.hide_some();
    }
    attack.admit(|_| {});
    for _ in 0..3 {
        attack.victim.act(0, 0, 9);
    }
    attack.run(&mut from, |_| {});
    attack.frame();
    let (victim, now) = (&mut attack.victim, attack.now);
    victim.mend(); // what its own game wrote is drawn as it is
    if let Ok(drawn) = victim.peer.present::<Position>(&victim.world, now) {
        for (_, position) in drawn {
            // motion goes on past the newest sample, so it may lead out of the range
            assert!(position.x.is_finite() && position.y.is_finite(), "{position:?} is drawn");
        }
    }
    victim.peer.disconnect(&mut victim.world, DisconnectReason::Left);
    assert_eq!(victim.world.query::<&Networked>().iter().count(), 0, "marks of a session that is over");
    assert_eq!(victim.world.query::<&Simulated>().iter().count(), 0, "marks of a session that is over");
    attack.check_memory(limits::ROWS);
    attack.check_time();
}

/// See [`attack::seeds`].
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = attack::seeds(&attack::record(Side::Guest, &[], false, |_| {}));
    let of_lists = attack::seeds(&attack::record(Side::Guest, &[], true, |_| {}));
    // the last one is the record; those with a puppet are played again by one that hides
    seeds.extend(of_lists.last().cloned());
    let with_puppet = of_lists.into_iter().filter(|seed| seed[0] == 1);
    seeds.extend(with_puppet.map(|mut seed| {
        seed[0] = 3;
        seed
    }));
    seeds
}
