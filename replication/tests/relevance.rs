//! Guests that see a part of the world: the nearest, rooms, hidden components, through loss and small budgets.

use hecs::Entity;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};
use std::time::Duration;
use tidelock::policy::{Host, Owner};
use tidelock::testing::Table;
use tidelock::{Config, Interpolate, PeerId, Relevance, Replicate, Schema};
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
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Hand(u32);
#[derive(Clone, Copy, Default)]
struct Walker;
#[derive(Clone, Copy, Default)]
struct Avatar;

fn schema() -> Schema {
    Schema::builder("relevance")
        .component::<Position>("position", |c| c.interpolate())
        .component::<Health>("health", |c| c.authority(Host::default()))
        .component::<Hand>("hand", |c| c.authority(Host::default()))
        .kind::<Walker>("walker", Host::default())
        .kind::<Avatar>("avatar", Owner::default())
        .build()
        .unwrap()
}

struct Dice(Pcg64Mcg);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }
    fn place(&mut self) -> Position {
        Position { x: self.below(1000) as f32 - 500.0, y: self.below(1000) as f32 - 500.0 }
    }
}

#[test]
fn walkers_come_and_go_with_the_nearest() {
    for seed in 0..10u64 {
        let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
        let network = Network::new(seed);
        let mut table = Table::new(seed, &schema(), Config::default(), network.host()).unwrap();
        let relevance = Relevance::nearest(32).place::<Position>(|p| [p.x, p.y, 0.0]).cell(50.0).show_only::<Hand>(|s| s.owns());
        table.seat(0).peer.set_relevance(relevance).unwrap();
        table.rest(1);
        for i in 0..300 {
            let host = table.seat(0);
            host.peer.spawn(&mut host.world, Walker, (dice.place(), Health(i), Hand(i as u32))).unwrap();
        }
        for _ in 0..3 {
            let weather = Conditions { latency: Duration::from_millis(20 + dice.below(60)), loss: 0.1, ..Conditions::default() };
            table.join(Config::default(), network.join(weather, weather)).unwrap();
        }
        table.rest(60);
        for seat in 1..=3 {
            let place = dice.place();
            let guest = table.seat(seat);
            guest.peer.spawn(&mut guest.world, Avatar, (place,)).unwrap();
        }
        let mut births = 0;
        for n in 0..600u64 {
            table.run(|_, world, step| {
                for p in step.query::<&mut Position>(world).iter() {
                    p.x = (p.x + 1.5).clamp(-500.0, 500.0);
                    p.y = if p.y > 499.0 { -499.0 } else { p.y + 1.0 };
                }
            });
            if n.is_multiple_of(7) {
                let host = table.seat(0);
                let all: Vec<Entity> = host.world.query::<(Entity, &Walker)>().iter().map(|e| e.0).collect();
                host.peer.despawn(&mut host.world, all[dice.below(all.len() as u64) as usize]).unwrap();
                host.peer.spawn(&mut host.world, Walker, (dice.place(), Health(births), Hand(7))).unwrap();
                births += 1;
            }
        }
        let equal = table.settle(Duration::from_secs(10));
        assert!(equal, "SEED={seed}: {:?}", table.all_equal());
        for seat in 1..=3 {
            let guest = table.seat(seat);
            let count = guest.peer.entity_count();
            assert_eq!(count, 32 + 1, "SEED={seed}: the nearest, and its own");
            let me = guest.peer.local();
            assert_eq!(table.seat(0).peer.seen_count(me), Some(count), "SEED={seed}");
            let world = &table.seat(seat).world;
            assert_eq!(world.query::<&Hand>().iter().count(), 0, "SEED={seed}: hands are hidden");
        }
        let stats = table.seat(0).peer.stats(PeerId(1)).unwrap();
        assert!(stats.sent.rows > 1000, "SEED={seed}");
    }
}
