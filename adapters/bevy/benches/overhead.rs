//! What the adapter costs a host: one frame (a tick, with the packets for one guest) of 10 000 entities, a tenth of which move in
//! each tick, in Bevy and on the bare core. Prints medians over 400 frames, in microseconds.

use bevy_app::App;
use bevy_ecs::prelude::*;
use bevy_time::{TimePlugin, TimeUpdateStrategy};
use std::time::{Duration, Instant};
use tidelock::policy::Host;
use tidelock::{Config, Peer, Replicate, Schema};
use tidelock_bevy::{CurrentStep, MirrorBuilder, NetUpdate, Simulated, Spawn, install};
use tidelock_loopback::{Conditions, Network};

const ENTITIES: usize = 10_000;
const FRAMES: usize = 400;
const FRAME: Duration = Duration::from_micros(16_667);

#[derive(Component, Clone, Copy, Replicate)]
struct Position(#[net(step = 0.01, range = -500.0..=500.0)] [f32; 2]);
#[derive(Component, Clone, Copy, Replicate)]
struct Health(u16);
#[derive(Component, Clone, Copy, Default)]
struct Crate;
/// Which tenth of the ticks it moves in.
#[derive(Component, Clone, Copy)]
struct Turn(u64);

fn schema() -> Schema {
    let schema = Schema::builder("overhead").component::<Position>("position", |c| c).component::<Health>("health", |c| c);
    schema.kind::<Crate>("crate", Host::default()).build().expect("a schema without mistakes")
}

fn config() -> Config {
    Config { bandwidth: 1_000_000_000, ..Config::default() }
}

/// A guest that takes in what comes, outside of what is measured.
struct Guest(Peer, hecs::World);

impl Guest {
    fn join(network: &Network) -> Self {
        let way = Conditions::default();
        Self(Peer::join(schema(), network.join(way, way), config()).expect("a guest"), hecs::World::new())
    }

    fn frame(&mut self, now: Duration) {
        self.0.receive(now, &mut self.1).expect("receive");
        while self.0.next_step(&mut self.1).is_some() {}
        self.0.send(now, &mut self.1).expect("send");
    }
}

/// Runs frames of a host and a guest, and tells the median time of the host's.
fn measure(network: &Network, mut host: impl FnMut(Duration)) -> Duration {
    let mut guest = Guest::join(network);
    let mut times = Vec::new();
    for frame in 0..FRAMES + 200 {
        let now = FRAME * frame as u32;
        let start = Instant::now();
        host(now);
        times.push(start.elapsed());
        guest.frame(now);
    }
    assert_eq!(guest.0.entity_count(), ENTITIES, "the guest has them all");
    let times = &mut times[200..];
    times.sort_unstable();
    times[times.len() / 2]
}

fn bare() -> Duration {
    let network = Network::new(1);
    let mut peer = Peer::host(schema(), network.host(), config()).expect("a host");
    let mut world = hecs::World::new();
    for i in 0..ENTITIES {
        let what = (Position([i as f32 / 100.0, 0.0]), Health(100), Turn(i as u64 % 10));
        peer.spawn(&mut world, Crate, what).expect("a crate");
    }
    measure(&network, |now| {
        peer.receive(now, &mut world).expect("receive");
        while let Some(step) = peer.next_step(&mut world) {
            let turn = step.tick().0 % 10;
            for (at, whose) in step.query::<(&mut Position, &Turn)>(&world).iter().filter(|(_, t)| t.0 == turn) {
                let _ = whose;
                at.0[1] = (at.0[1] + 0.25) % 100.0;
            }
        }
        peer.send(now, &mut world).expect("send");
    })
}

fn in_bevy() -> Duration {
    let network = Network::new(1);
    let mirror = MirrorBuilder::new("overhead").component::<Position>("position", |c| c).component::<Health>("health", |c| c);
    let mirror = mirror.kind::<Crate>("crate", Host::default()).build().expect("a schema without mistakes");
    let peer = Peer::host(mirror.schema(), network.host(), config()).expect("a host");
    let mut app = App::new();
    app.add_plugins(TimePlugin).insert_resource(TimeUpdateStrategy::ManualDuration(FRAME));
    install(&mut app, mirror, peer);
    app.add_systems(NetUpdate, |mut all: Query<(&mut Position, &Turn), With<Simulated>>, step: Res<CurrentStep>| {
        let turn = step.tick.0 % 10;
        for (mut at, _) in all.iter_mut().filter(|(_, t)| t.0 == turn) {
            at.0[1] = (at.0[1] + 0.25) % 100.0;
        }
    });
    for i in 0..ENTITIES {
        let what = (Position([i as f32 / 100.0, 0.0]), Health(100), Turn(i as u64 % 10));
        app.world_mut().spawn((Spawn::default(), Crate, what));
    }
    measure(&network, |_| app.update())
}

fn main() {
    let (bare, bevy) = (bare(), in_bevy());
    println!("{ENTITIES} entities, a tenth moves in each tick; a host's frame with one guest, median of {FRAMES}");
    println!("bare core  {:6} us", bare.as_micros());
    println!("in Bevy    {:6} us", bevy.as_micros());
    println!("overhead   {:6} us", bevy.saturating_sub(bare).as_micros());
}
