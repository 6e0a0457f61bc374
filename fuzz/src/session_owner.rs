//! A host, an honest guest, and a guest whose packets are the input's (see [`attack`](crate::attack)): whatever comes, the host
//! does not panic, keeps no more and takes no longer than it may, and the honest guest stays in with a world like the host's.

use crate::attack::{self, Attack, config};
use crate::forge::Source;
use crate::game::{Position, Program};
use crate::wire::{Cable, Side};
use hecs::Entity;
use std::cell::RefCell;
use tidelock::{Networked, PeerId};
use tidelock_netcore::limits;

/// Frames within which the worlds must be equal once nothing changes any more: four seconds.
const SETTLING: usize = 240;

/// The whole input is one attack.
pub fn run(data: &[u8]) {
    let mut from = Source::new(data);
    let cable = Cable::default();
    let mut attack = Attack::new(Side::Host, std::slice::from_ref(&cable), from.byte() & 1 != 0);
    let mut honest = join(&mut attack, &cable);
    attack.admit(|now| live(&mut honest, now));
    for _ in 0..3 {
        attack.victim.act(0, 0, 9);
        honest.act(0, 0, 9);
    }
    let mut frames = 0u8;
    attack.run(&mut from, |now| {
        live(&mut honest, now);
        frames = frames.wrapping_add(1);
        honest.act([15, 5, 0, 6, 9, 13, 10, 3][usize::from(frames % 8)], frames, frames.wrapping_mul(37));
    });
    settle(&mut attack, &mut honest);
    attack.check_memory(limits::GUEST_ROWS);
    attack.check_time();
}

fn join(attack: &mut Attack, cable: &Cable) -> Program {
    let mut honest = Program::guest(cable, config());
    while !honest.peer.is_in_session() {
        attack.now += crate::game::FRAME;
        honest.receive(attack.now);
        honest.send(attack.now);
        attack.victim.receive(attack.now);
        attack.victim.send(attack.now);
    }
    honest
}

fn live(honest: &mut Program, now: std::time::Duration) {
    honest.receive(now);
    honest.step();
    honest.send(now);
}

fn settle(attack: &mut Attack, honest: &mut Program) {
    let mut differing = Vec::new();
    for i in 0..SETTLING {
        attack.now += crate::game::FRAME;
        for program in [&mut attack.victim, &mut *honest] {
            program.mend();
            program.receive(attack.now);
            program.rest();
            program.send(attack.now);
        }
        assert!(honest.peer.is_in_session(), "the honest guest is out: {:?}", honest.peer.ended());
        if i % 4 == 3 {
            let (here, there) = (attack.victim.peer.digests(&attack.victim.world), honest.peer.digests(&honest.world));
            differing = (0..here.len()).filter(|c| here[*c] != there[*c]).collect();
            if differing.is_empty() {
                return;
            }
        }
    }
    let (host, guest) = (names(&attack.victim), names(honest));
    panic!(
        "after {SETTLING} frames of rest columns {differing:?} of the honest guest differ; the host has\n{host:?}\nit has\n{guest:?}"
    );
}

/// What there is, by name, for a person to read.
fn names(program: &Program) -> Vec<(u64, PeerId, Option<Position>)> {
    let entities = program.world.query::<Entity>().with::<&Networked>().iter().collect::<Vec<_>>();
    let named = |e: Entity| {
        let net = program.peer.name_of(&program.world, e)?;
        let owner = program.peer.owner(&program.world, e, 0)?;
        Some((net.0, owner, program.world.get::<&Position>(e).ok().map(|p| *p)))
    };
    let mut all: Vec<_> = entities.into_iter().filter_map(named).collect();
    all.sort_by_key(|x| x.0);
    all
}

/// See [`attack::seeds`].
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let cable = Cable::default();
    let honest: RefCell<Option<Program>> = RefCell::new(Some(Program::guest(&cable, config())));
    let recorded = attack::record(Side::Host, &[cable], false, |now| {
        if let Some(honest) = &mut *honest.borrow_mut() {
            live(honest, now);
        }
    });
    attack::seeds(&recorded).into_iter().chain([LOST_END.to_vec()]).collect()
}

/// A guest's entity that the host ended before it had said a word about it.
const LOST_END: &[u8] = &[126, 0, 239, 239, 239, 239, 239, 239, 239, 239, 239, 163, 239, 239, 239, 95, 61, 24];
