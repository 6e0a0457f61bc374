//! A host and a guest with orders and frames, between whom the input puts datagrams and messages of its own: frames and first frames
//! for the guest, confirmations and orders for the host. Whatever comes, nobody panics, what steps are given is what the schema allows,
//! and neither side keeps more than it may.
//!
//! Input: operations, each a byte: 0 to 99 so many frames of the game; 100 to 149 such whose datagrams are lost; from 150 on something
//! forged: a byte of length and its bytes. By the byte modulo 4: a packet of frames, a first frame, a packet up, an order.

use crate::game::FRAME;
use crate::wire::{Cable, Parcel, Plug, Side};
use hecs::World;
use std::time::Duration;
use tidelock::policy::Lockstep;
use tidelock::{Config, Peer, PeerId, Press, Replicate, Schema};
use tidelock_netcore::limits;
use tidelock_netcore::transport::Lane;

/// Frames of one input at most.
const FRAMES: u32 = 600;
/// The first byte of a first frame, and of an order.
const MARK: u8 = 255;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    #[net(range = 0..=100)]
    x: u8,
    jump: Press,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Go {
    unit: Option<hecs::Entity>,
    #[net(range = 0..=9)]
    x: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Stop;

/// Without a kind of lockstep nobody may give orders.
#[derive(Clone, Copy, Default)]
struct Unit;

struct Game {
    cables: [Cable; 2],
    peers: [(Peer, World); 2],
    now: Duration,
    frames: u32,
}

impl Game {
    fn new() -> Self {
        let schema = Schema::builder("frames").input::<Stick>("stick").order::<Go>("go").order::<Stop>("stop");
        let schema = schema.kind::<Unit>("unit", Lockstep::sealed());
        let schema = schema.build().expect("a schema without mistakes");
        let config = || Config { session: Some(7), ..Config::default() };
        let cables = [Cable::default(), Cable::default()];
        let host = Peer::host(schema.clone(), Plug::host(&cables[..1]), config()).expect("a good configuration");
        let guest = Peer::join(schema, Plug::guest(&cables[1]), config()).expect("a good configuration");
        Self { cables, peers: [(host, World::new()), (guest, World::new())], now: Duration::ZERO, frames: 0 }
    }

    fn frame(&mut self, lost: bool) {
        if self.frames == FRAMES {
            return;
        }
        self.frames += 1;
        self.now += FRAME;
        for (peer, world) in &mut self.peers {
            let _ = peer.set_input(&Stick { x: (self.frames % 7) as u8, ..Stick::default() });
            peer.receive(self.now, world).expect("time goes on");
            if self.frames % 5 == 0 {
                let _ = peer.order(world, &Go { unit: None, x: (self.frames % 10) as u8 });
                let _ = peer.order(world, &Stop);
            }
            while let Some(step) = peer.next_step(world) {
                let orders = step.orders::<Go>(world).expect("it is in the schema");
                for (from, order) in orders {
                    assert!(order.x <= 9 && usize::from(from.0) < limits::PEERS);
                }
                assert!(step.orders::<Stop>(world).expect("it is in the schema").count() <= limits::FRAME_ORDERS);
                assert!(step.seats().count() <= limits::PEERS);
                let _ = step.seat(PeerId(1));
            }
            peer.send(self.now, world).expect("time goes on");
            while peer.poll_news().is_some() {}
            assert!(peer.pending_orders::<Go>().expect("it is in the schema").count() <= limits::ORDERS_PENDING);
        }
        let [a, b] = &self.cables;
        while let Some(parcel) = a.pop(Side::Guest) {
            relay(b, Side::Guest, parcel, lost);
        }
        while let Some(parcel) = b.pop(Side::Host) {
            relay(a, Side::Host, parcel, lost);
        }
    }

    fn forge(&mut self, what: u8, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        if let Some(first) = bytes.first_mut() {
            *first = match what {
                0 => *first | 7,
                2 => *first & !7 | 3,
                _ => MARK,
            };
        }
        match what {
            0 => self.cables[1].push(Side::Guest, Parcel::Datagram(bytes)),
            1 => self.cables[1].push(Side::Guest, Parcel::Message(Lane::CONTROL, bytes)),
            2 => self.cables[0].push(Side::Host, Parcel::Datagram(bytes)),
            _ => self.cables[0].push(Side::Host, Parcel::Message(Lane::RELIABLE, bytes)),
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
                game.forge(operation % 4, bytes);
            }
        }
    }
    game.frame(false);
}

/// An honest game, with losses; packets of each sort at the right time, cut, and doubled.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let told = |operation: u8, bytes: &[u8]| [&[operation, bytes.len() as u8][..], bytes].concat();
    // from tick 30 on, one frame that differs in nothing; then one with orders
    let same = [0xf7, 0, 0x40, 0];
    let orders = [0xf7, 0, 0x08, 0b0100_0000, 0x55, 0xaa, 0x33, 0xf0];
    // tick 40, no seats, no orders, one step
    let first = [255, 40, 0, 0, 0, 0, 0, 0, 0, 0b0010_0000, 0, 0];
    let confirmed = [0xfb, 0, 0x00];
    let order = [255, 1, 0, 40, 0, 1];
    vec![
        [60, 110, 30, 125, 60].to_vec(),
        [vec![30], told(152, &same), told(152, &same[..2]), told(152, &orders), vec![30]].concat(),
        [vec![30], told(153, &first), vec![10], told(153, &first[..10]), vec![30]].concat(),
        [vec![40], told(150, &confirmed), told(150, &confirmed[..2]), vec![10], told(150, &confirmed), vec![30]].concat(),
        [vec![30], told(151, &order), told(151, &order), vec![30]].concat(),
        [vec![25], (0..20u8).flat_map(|n| told(150 + n % 4, &[n, n * 3, 255 - n, n, n, n])).collect(), vec![9]].concat(),
    ]
}
