//! A refused value that its owner arrives at again, right after the correction, is refused and corrected again: nobody is left
//! with what the host does not hold.

mod common;

use common::{Player, Position, assert_settles, table, weather};

#[test]
fn the_same_value_refused_twice_is_corrected_twice() {
    for seed in common::seeds(10) {
        for latency in [10, 40, 90] {
            let (mut table, _network) = table(seed, 1, weather(latency, 0.0));
            let mut grant = None;
            for frame in 0..200u64 {
                table.run(|seat, world, step| {
                    if seat == 0 && grant.is_none() {
                        // the host may stand where a guest may not write
                        grant = step.spawn(world, Player, (Position { x: 0.0, y: 333.0 },)).ok();
                    }
                    // the guest walks on from wherever it is put back to
                    if seat == 1 && frame < 100 + seed {
                        step.query::<&mut Position>(world).iter().for_each(|p| p.x = (p.x + 0.25) % 400.0);
                    }
                });
                if frame == 20 {
                    let guest = table.seat(1).peer.local();
                    let host = table.seat(0);
                    host.peer.grant(&mut host.world, grant.unwrap(), 0, guest).unwrap();
                }
            }
            assert_settles(&mut table, 5);
            let host = table.seat(0);
            assert_eq!(host.world.get::<&Position>(grant.unwrap()).unwrap().x, 0.0, "SEED={seed}: a refused value was taken");
        }
    }
}
