//! A scene of events: alone and beside state, plain and timed, handed on, lost and sent again.

use super::{Scene, Shot, Stage, Tell};
use tidelock::To;
use tidelock::testing::Seat;

fn tell(stage: &mut Stage, seat: usize, text: &str, ahead: Option<u64>) {
    let Seat { peer, world, .. } = stage.table.seat(seat);
    let event = Tell { text: text.into() };
    let sent = match ahead {
        Some(ahead) => peer.send_event_at(world, To::All, peer.event_tick().plus(ahead), &event),
        None => peer.send_message(world, To::All, &event),
    };
    sent.expect("there is room");
}

fn shoot(stage: &mut Stage, power: u16) {
    let Seat { peer, world, .. } = stage.table.seat(0);
    peer.send_message(world, To::All, &Shot(power)).expect("there is room");
}

pub(super) fn events() -> Scene {
    let mut stage = Stage::new(2, 16_000_000);
    let crates = stage.spawn_crates(1);
    stage.rest(12);
    // two without state, of which the second goes off later
    shoot(&mut stage, 1);
    let Seat { peer, world, .. } = stage.table.seat(0);
    let at = peer.event_tick().plus(30);
    peer.send_event_at(world, To::All, at, &Shot(300)).expect("there is room");
    stage.rest(8);
    // from a guest: to the host and on to the other guest, now and at a tick that is too near for it
    tell(&mut stage, 1, "hi", None);
    tell(&mut stage, 1, "caf\u{e9}", Some(2));
    stage.rest(8);
    tell(&mut stage, 0, "all", None);
    // one with every packet of state, and one of those packets is lost
    for frame in 0..14 {
        stage.shift(0, crates[0], 0.1, 0.0);
        shoot(&mut stage, 10 + frame);
        if frame == 3 {
            stage.lose_next_down(1);
        }
        stage.rest(1);
    }
    let scene =
        stage.end("events of a host and of a guest: without state and beside it, some at a tick, one lost and sent again");
    assert!(scene.seen.iter().any(|seen| seen.packet.as_ref().is_some_and(|packet| !packet.events.is_empty())));
    scene
}
