//! Entities come and go without end: what is kept for them does not grow with time.

use crate::history::BLOCK;
use crate::policy::Host;
use crate::testing::Table;
use crate::{Config, Replicate, Schema};
use hecs::Entity;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};
use std::collections::BTreeSet;
use std::time::Duration;
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Count(u16);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Place([u16; 3]);

#[derive(Clone, Copy, Default)]
struct Thing;

const THINGS: usize = 1500;
const REPLACED: usize = 15;

struct Churn {
    table: Table,
    all: Vec<Entity>,
    rng: Pcg64Mcg,
}

impl Churn {
    fn new(seed: u64) -> Self {
        let schema = Schema::builder("churn").component::<Count>("count", |c| c).component::<Place>("place", |c| c);
        let schema = schema.kind::<Thing>("thing", Host::default()).build().unwrap();
        let (network, config) = (Network::new(seed), Config { bandwidth: 1 << 30, ..Config::default() });
        let weather = Conditions { latency: Duration::from_millis(50), loss: 0.05, ..Conditions::default() };
        let mut table = Table::new(seed, &schema, config.clone(), network.host()).unwrap();
        (0..3).for_each(|_| _ = table.join(config.clone(), network.join(weather, weather)).unwrap());
        table.rest(120);
        let mut churn = Self { table, all: Vec::new(), rng: Pcg64Mcg::seed_from_u64(seed) };
        churn.all = (0..THINGS).map(|_| churn.spawn()).collect();
        churn.table.rest(120);
        churn
    }

    fn below(&mut self, n: usize) -> usize {
        (self.rng.next_u64() % n as u64) as usize
    }

    fn spawn(&mut self) -> Entity {
        let host = self.table.seat(0);
        host.peer.spawn(&mut host.world, Thing, (Count(1), Place([1, 2, 3]))).unwrap()
    }

    /// Some are replaced and some move; in how many blocks the new ones are.
    fn tick(&mut self) -> usize {
        let mut born = Vec::new();
        for _ in 0..REPLACED {
            let (i, new) = (self.below(THINGS), self.spawn());
            let old = std::mem::replace(&mut self.all[i], new);
            born.push(new);
            let host = self.table.seat(0);
            host.peer.despawn(&mut host.world, old).unwrap();
        }
        for _ in 0..THINGS / 10 {
            let i = self.below(THINGS);
            let entity = self.all[i];
            self.table.seat(0).world.get::<&mut Place>(entity).unwrap().0[0] += 1;
        }
        self.table.rest(1);
        let host = self.table.seat(0);
        let slots = born.iter().filter_map(|entity| host.peer.entities.slot_at(&host.world, *entity));
        slots.map(|slot| host.peer.entities.get(slot).unwrap().out_row as usize / BLOCK).collect::<BTreeSet<_>>().len()
    }

    /// What grows by the number of those who come and go, if anything does.
    fn kept(&mut self) -> Vec<(&'static str, usize)> {
        let host = &self.table.seat(0).peer;
        let most =
            |of: &dyn Fn(&crate::subscriber::Subscriber) -> usize| host.links.iter().map(|l| of(&l.subscriber)).max().unwrap();
        let mut kept = vec![
            ("rows", host.publisher.row_count()),
            ("rows of the dead", host.publisher.dying.len()),
            ("words of history", host.publisher.history.logged_words()),
            ("slots", host.entities.slots() as usize),
            ("forces", most(&|s| s.open_forces())),
            ("lists", host.lists.len()),
        ];
        let guest = &self.table.seat(1).peer;
        kept.push(("words of a guest's history", guest.links[0].incoming.mirror.logged_words()));
        kept.push(("a guest's slots", guest.entities.slots() as usize));
        kept
    }
}

#[test]
fn what_is_kept_does_not_grow_while_entities_come_and_go() {
    for seed in 0..3 {
        let mut churn = Churn::new(seed);
        let mut windows: Vec<Vec<(&str, usize)>> = Vec::new();
        for window in 0..4 {
            let (mut most, mut blocks) = (churn.kept(), 0);
            for _ in 0..150 {
                blocks += churn.tick();
                churn.kept().into_iter().zip(&mut most).for_each(|(now, most)| most.1 = most.1.max(now.1));
            }
            // one block is filled up and the next begun; when the first rows are used again, these are the emptiest of all
            assert!(
                blocks <= 150 * 3,
                "SEED={seed} window {window}: births are spread over {} blocks a tick",
                blocks as f64 / 150.0
            );
            windows.push(most);
        }
        // the first is for warming up
        for (early, late) in windows[1].iter().zip(&windows[3]) {
            assert!(late.1 <= early.1 + early.1 / 8 + 16, "SEED={seed}: {}: {} and later {}", early.0, early.1, late.1);
        }
        assert!(churn.table.settle(Duration::from_secs(20)), "SEED={seed}: {:?}", churn.table.all_equal());
    }
}
