//! A host and guests over the loopback: the least that must work.

use hecs::World;
use std::time::Duration;
use tidelock::policy::{Host, Owner};
use tidelock::{Config, Interpolate, News, Peer, Replicate, Schema, To};
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Position {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
    #[net(step = 0.01, range = -500.0..=500.0)]
    y: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Health(u16);

#[derive(Clone, Copy, Default)]
struct Crate;
#[derive(Clone, Copy, Default)]
struct Player;

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Chat {
    #[net(max = 32)]
    text: String,
}

fn schema() -> Schema {
    Schema::builder("first light")
        .component::<Position>("position", |c| c.interpolate())
        .component::<Health>("health", |c| c.authority(Host::default()))
        .kind::<Crate>("crate", Host::default())
        .kind::<Player>("player", Owner::default())
        .message::<Chat>("chat")
        .build()
        .unwrap()
}

struct Node {
    peer: Peer,
    world: World,
}

fn frame(nodes: &mut [Node], now: Duration, mut simulate: impl FnMut(usize, &mut World, &mut tidelock::Step<'_>)) {
    for (i, node) in nodes.iter_mut().enumerate() {
        node.peer.receive(now, &mut node.world).unwrap();
        while let Some(mut step) = node.peer.next_step(&mut node.world) {
            simulate(i, &mut node.world, &mut step);
        }
        node.peer.send(now, &mut node.world).unwrap();
    }
}

#[test]
fn a_host_and_two_guests_hold_one_world() {
    let network = Network::new(7);
    let weather = Conditions { latency: Duration::from_millis(40), loss: 0.05, ..Conditions::default() };
    let mut nodes = vec![Node { peer: Peer::host(schema(), network.host(), Config::default()).unwrap(), world: World::new() }];
    for _ in 0..2 {
        let peer = Peer::join(schema(), network.join(weather, weather), Config::default()).unwrap();
        nodes.push(Node { peer, world: World::new() });
    }
    let host = &mut nodes[0];
    host.peer.receive(Duration::ZERO, &mut host.world).unwrap();
    for i in 0..200 {
        host.peer.spawn(&mut host.world, Crate, (Position { x: i as f32, y: 0.0 }, Health(i as u16))).unwrap();
    }
    let ms = Duration::from_millis(16);
    for n in 0..300u32 {
        frame(&mut nodes, ms * n, |i, world, step| {
            for p in step.query::<&mut Position>(world).iter() {
                p.y += 0.05 + i as f32;
                if p.y > 400.0 {
                    p.y = 0.0;
                }
            }
            if n == 60 && i > 0 {
                step.spawn(world, Player, (Position { x: i as f32, y: 1.0 },)).unwrap();
            }
        });
        if n == 100 {
            let node = &mut nodes[1];
            node.peer.send_message(&node.world, To::Host, &Chat { text: "hello".into() }).unwrap();
        }
    }
    for n in 300..340 {
        frame(&mut nodes, ms * n, |_, _, _| {});
    }
    assert_eq!(nodes[0].peer.entity_count(), 202);
    assert_eq!(nodes[0].peer.messages::<Chat>().unwrap().len(), 1);
    for node in &nodes[1..] {
        assert_eq!(node.peer.entity_count(), 202);
        assert_eq!(node.peer.digests(&node.world), nodes[0].peer.digests(&nodes[0].world));
        eprintln!("{:?}", node.peer.stats(tidelock::PeerId::HOST));
        eprintln!("{:?}", node.peer.interpolation_delay());
    }
    let Node { peer, world } = &mut nodes[0];
    peer.compare(world).unwrap();
    for n in 340..370 {
        frame(&mut nodes, ms * n, |_, _, _| {});
    }
    let mut equal = 0;
    while let Some(news) = nodes[0].peer.poll_news() {
        eprintln!("{news:?}");
        equal += u32::from(matches!(&news, News::Compared { differing, .. } if differing.is_empty()));
    }
    assert_eq!(equal, 2);
}
