//! A host and a guest that steers, between whom the input puts datagrams of inputs, or of word on them, of its own: whatever comes,
//! nobody panics, what the host folds in is an input, and the guest's lead and speed keep their bounds.
//!
//! Input: operations, each a byte: 0 to 99 so many frames; 100 to 149 frames whose datagrams are lost; from 150 on a datagram, for
//! the host if the byte is even, else for the guest: a byte of length and its bytes, the kind put right.

use crate::game::FRAME;
use crate::wire::{Cable, Parcel, Plug, Side};
use hecs::World;
use std::time::Duration;
use tidelock::{Config, Peer, PeerId, Press, Replicate, Schema, Source};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Frames of one input at most.
const FRAMES: u32 = 600;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    #[net(step = 0.01, range = -1.0..=1.0)]
    x: f32,
    #[net(range = 0..=5)]
    item: u8,
    jump: Press,
    letter: Letters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
enum Letters {
    #[default]
    A,
    B,
    C,
}

struct Game {
    cables: [Cable; 2],
    peers: [(Peer, World); 2],
    now: Duration,
    frames: u32,
    ran: [Tick; 2],
}

impl Game {
    fn new() -> Self {
        let schema = Schema::builder("inputs").input::<Stick>("stick").build().expect("a schema without mistakes");
        let config = || Config { session: Some(7), ..Config::default() };
        let cables = [Cable::default(), Cable::default()];
        let host = Peer::host(schema.clone(), Plug::host(&cables[..1]), config()).expect("a good configuration");
        let guest = Peer::join(schema, Plug::guest(&cables[1]), config()).expect("a good configuration");
        let peers = [(host, World::new()), (guest, World::new())];
        Self { cables, peers, now: Duration::ZERO, frames: 0, ran: [Tick::ZERO; 2] }
    }

    fn frame(&mut self, lost: bool) {
        if self.frames == FRAMES {
            return;
        }
        self.frames += 1;
        self.now += FRAME;
        for (i, (peer, world)) in self.peers.iter_mut().enumerate() {
            let _ = peer.set_input(&Stick { x: (self.frames % 7) as f32 * 0.1, ..Stick::default() });
            peer.receive(self.now, world).expect("time goes on");
            let local = peer.local();
            while let Some(mut step) = peer.next_step(world) {
                assert!(step.tick() > self.ran[i], "a tick ran twice");
                self.ran[i] = step.tick();
                if let Some(seen) = step.peer().seen_by(PeerId(1)) {
                    let most = limits::LAG_COMPENSATION.as_secs_f32() * 60.0;
                    assert!(i == 0 && (0.0..=most).contains(&seen.ticks_behind()), "{seen:?}");
                }
                if let Ok(input) = step.input::<Stick>(PeerId(1)) {
                    assert!(input.value.x.abs() <= 1.0 && input.value.item <= 5);
                    assert!(i == 0 || (local == PeerId(1) && input.source == Source::Own));
                    let fires = input.pressed(|stick| stick.jump);
                    assert!(fires == 0 || matches!(input.source, Source::Arrived | Source::Own));
                }
            }
            peer.send(self.now, world).expect("time goes on");
            while peer.poll_news().is_some() {}
            // slack: between two samples the estimate of the session may move
            assert!(peer.lead().is_none_or(|lead| lead < limits::LEAD_MAX + Duration::from_secs(1)));
        }
        let [a, b] = &self.cables;
        while let Some(parcel) = a.pop(Side::Guest) {
            relay(b, Side::Guest, parcel, lost);
        }
        while let Some(parcel) = b.pop(Side::Host) {
            relay(a, Side::Host, parcel, lost);
        }
    }
}

fn relay(to: &Cable, side: Side, parcel: Parcel, lost: bool) {
    if !lost || matches!(parcel, Parcel::Message(..)) {
        to.push(side, parcel);
    }
}

/// See the module.
pub fn run(data: &[u8]) {
    let mut game = Game::new();
    let mut rest = data;
    while let Some((&operation, after)) = rest.split_first() {
        rest = after;
        match operation {
            0..=99 => (0..operation).for_each(|_| game.frame(false)),
            100..=149 => (100..operation).for_each(|_| game.frame(true)),
            _ => {
                let Some((&len, after)) = rest.split_first() else { break };
                let (bytes, after) = after.split_at(usize::from(len).min(after.len()));
                rest = after;
                let mut bytes = bytes.to_vec();
                if let Some(first) = bytes.first_mut() {
                    *first = *first & !7 | 3;
                }
                let (cable, side) = if operation % 2 == 0 { (0, Side::Host) } else { (1, Side::Guest) };
                game.cables[cable].push(side, Parcel::Datagram(bytes));
            }
        }
    }
    game.frame(false);
}

/// An honest game, with losses; datagrams of either direction at the right time, cut, and doubled.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    // tick 30 and two before it: at rest
    let inputs = [0xd3, 0x03, 0x40, 0, 0, 0, 0, 0];
    // the same of tick 30 alone, and what was drawn then: far behind
    let drawn = [0xd3, 0x03, 0, 0, 0, 0, 0b1111_0000, 0x1f, 0, 0];
    // all up to tick 28 has come, in time, and nothing was missed
    let feedback = [0xe3, 0, 0x08, 0, 0, 0];
    let told = |operation: u8, bytes: &[u8]| [&[operation, bytes.len() as u8][..], bytes].concat();
    vec![
        [60, 110, 30, 125, 60].to_vec(),
        [vec![25], told(150, &inputs), told(150, &inputs[..3]), told(150, &inputs), vec![30]].concat(),
        [vec![25], told(150, &[&inputs[..], &[0]].concat()), vec![30]].concat(),
        [vec![25], told(150, &drawn), told(150, &drawn[..8]), vec![30]].concat(),
        [vec![40], told(151, &feedback), told(151, &feedback[..2]), vec![10], told(151, &feedback), vec![30]].concat(),
        [vec![25], (0..20u8).flat_map(|n| told(150 + n % 2, &[n, n * 3, 255 - n, n, n, n])).collect(), vec![9]].concat(),
    ]
}
