//! Peers that keep to the protocol badly, or only slowly: what they do costs them, and nobody else.

mod common;

use common::weather;
use hecs::{Entity, World};
use std::time::Duration;
use tidelock::policy::Owner;
use tidelock::{Config, News, Peer, PeerId, Replicate, Schema, To, UsageError};
use tidelock_loopback::Network;

#[derive(Clone, Copy, Default)]
struct Thing;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Weight(u16);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Order {
    target: Entity,
    number: u32,
}

/// The same on the wire, in a build of the game that does not mind whether there is a target.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Careless {
    target: Option<Entity>,
    number: u32,
}

fn orders<M: Replicate>() -> Schema {
    let weighed = Schema::builder("orders").component::<Weight>("weight", |c| c);
    weighed.kind::<Thing>("thing", Owner::default()).message::<M>("order").build().unwrap()
}

/// A host and guests, each with a schema of its own.
struct Room {
    nodes: Vec<(Peer, World, Vec<News>)>,
    now: Duration,
    seed: u64,
}

impl Room {
    fn new(seed: u64, host: &Schema, guests: &[&Schema]) -> Self {
        let network = Network::new(seed);
        let mut peers = vec![Peer::host(host.clone(), network.host(), Config::default()).unwrap()];
        for &schema in guests {
            let calm = weather(20, 0.0);
            peers.push(Peer::join(schema.clone(), network.join(calm, calm), Config::default()).unwrap());
        }
        let nodes = peers.into_iter().map(|peer| (peer, World::new(), Vec::new())).collect();
        let mut room = Self { nodes, now: Duration::ZERO, seed };
        while !room.nodes.iter().all(|n| n.0.is_in_session()) {
            room.run(1);
            assert!(room.now < Duration::from_secs(10), "SEED={seed}: not admitted");
        }
        room
    }

    fn run(&mut self, frames: u32) {
        for _ in 0..frames {
            self.now += Duration::from_micros(16_667);
            for (peer, world, news) in &mut self.nodes {
                peer.receive(self.now, world).unwrap();
                while peer.next_step(world).is_some() {}
                peer.send(self.now, world).unwrap();
                news.extend(std::iter::from_fn(|| peer.poll_news()));
            }
        }
    }
}

/// An entity without a name cannot be named: the sender is told, and later messages arrive.
#[test]
fn a_message_that_names_nobody_is_refused_at_the_call() {
    let mut room = Room::new(1, &orders::<Order>(), &[&orders::<Order>()]);
    let seed = room.seed;
    let (guest, world, _) = &mut room.nodes[1];
    let local = world.spawn((Thing,));
    let gone = guest.spawn(world, Thing, (Weight(1),)).unwrap();
    guest.despawn(world, gone).unwrap();
    let target = guest.spawn(world, Thing, (Weight(1),)).unwrap();
    for nobody in [local, gone] {
        let told = guest.send_message(world, To::Host, &Order { target: nobody, number: 1 });
        assert!(matches!(told, Err(UsageError::NamesNobody(_))), "SEED={seed}: {told:?}");
    }
    guest.send_message(world, To::Host, &Order { target, number: 2 }).unwrap();
    room.run(60);
    let numbers: Vec<u32> = room.nodes[0].0.messages::<Order>().unwrap().iter().map(|m| m.1.number).collect();
    assert_eq!(numbers, [2], "SEED={seed}");
}

/// The same from a build that sends it all the same: it is dropped when it comes, and holds up nothing.
#[test]
fn a_message_that_names_nobody_is_dropped_when_it_comes() {
    let (strict, careless) = (orders::<Order>(), orders::<Careless>());
    let mut room = Room::new(2, &strict, &[&careless]);
    let seed = room.seed;
    let (guest, world, _) = &mut room.nodes[1];
    let target = Some(guest.spawn(world, Thing, (Weight(1),)).unwrap());
    for (target, number) in [(None, 1), (target, 2), (None, 3), (target, 4)] {
        guest.send_message(world, To::Host, &Careless { target, number }).unwrap();
    }
    room.run(60);
    let (host, _, news) = &mut room.nodes[0];
    let numbers: Vec<u32> = host.messages::<Order>().unwrap().iter().map(|m| m.1.number).collect();
    assert_eq!(numbers, [2, 4], "SEED={seed}");
    let told = news.iter().filter(|n| matches!(n, News::MessageDropped { from: PeerId(1), message } if message == "order"));
    assert_eq!(told.count(), 2, "SEED={seed}");
    assert_eq!(host.stats(PeerId(1)).unwrap().link.dropped_messages, 2, "SEED={seed}");
}
