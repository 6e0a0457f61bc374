//! The order in which entities are simulated is that of their names, on every peer: whoever rolled back, whatever handles and
//! archetypes they have there, and whatever local entities there are besides.

mod common;

use common::{Rng, config, seeds, weather};
use hecs::{Entity, World};
use std::collections::BTreeMap;
use tidelock::policy::{Lockstep, Rollback, Timeline};
use tidelock::testing::Table;
use tidelock::{Checkpoint, NetId, Press, Replicate, Schema, Step};
use tidelock_loopback::Network;

const TICKS: u32 = 3000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
struct Weight(f32);

/// Some have it and some have not, so that they are in two archetypes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
struct Mark(u32);

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    #[net(step = 0.01, range = -1.0..=1.0)]
    x: f32,
    hit: Press,
}

#[derive(Clone, Copy, Default)]
struct Ball;
#[derive(Clone, Copy, Default)]
struct Unit;

fn schema() -> Schema {
    Schema::builder("order")
        .checkpoint::<Weight>("weight")
        .checkpoint::<Mark>("mark")
        .kind::<Ball>("ball", Rollback)
        .kind::<Unit>("unit", Lockstep::sealed())
        .input::<Stick>("stick")
        .build()
        .unwrap()
}

/// What came of a tick: the sum, who was first, and how many there were.
type Outcome = (u32, Option<NetId>, usize);

/// Sums floats in order, which another order would give another sum; picks the first; draws a number for each.
fn play(seat: usize, world: &mut World, step: &mut Step<'_>) -> Outcome {
    let push: f32 = {
        let seats: Vec<_> = step.seats().collect();
        let input = |peer| step.input::<Stick>(peer).map_or(0.0, |i| i.value.x + i.pressed(|s| s.hit) as f32);
        seats.into_iter().map(|(peer, _)| input(peer)).sum()
    };
    let tick = step.tick();
    let numbers: BTreeMap<NetId, u64> = {
        let mut all = step.ordered::<&Weight>(world);
        let mut nets = Vec::new();
        while let Some((net, _)) = all.next() {
            nets.push(net);
        }
        nets.into_iter().map(|net| (net, step.rng(net, 1).next_u64())).collect()
    };
    let (mut sum, mut first, mut count, mut gone) = (0.0f32, None, 0, Vec::new());
    let mut all = step.ordered::<(Entity, &mut Weight, Option<&mut Mark>)>(world);
    while let Some((net, (entity, weight, mark))) = all.next() {
        let number = numbers[&net];
        sum = (sum * 1.7 + weight.0).sin() + push * 0.1;
        weight.0 += sum * 0.01 + (number >> 40) as f32 * 1e-8;
        if let Some(mark) = mark {
            mark.0 = mark.0.wrapping_mul(31).wrapping_add(sum.to_bits());
        }
        // who is first now and then goes, and others by lot
        if first.is_none() && tick.0.is_multiple_of(11) || number.is_multiple_of(17) {
            gone.push(entity);
        }
        first = first.or(Some(net));
        count += 1;
    }
    for entity in gone {
        step.despawn(world, entity).unwrap();
    }
    spawn(seat, world, step, sum);
    (sum.to_bits(), first, count)
}

/// Two in a tick; the components go in in another order at each peer.
fn spawn(seat: usize, world: &mut World, step: &mut Step<'_>, sum: f32) {
    for i in 0..2u32 {
        let (weight, mark) = (Weight(sum + i as f32), Mark(i));
        let rollback = step.timeline() == Timeline::Rollback;
        let entity = match (rollback, seat) {
            (true, 0) => step.spawn(world, Ball, (weight,)),
            (true, _) if i == 0 => step.spawn(world, Ball, (mark, weight)),
            (true, _) => step.spawn(world, Ball, (weight,)),
            (false, 0) => step.spawn(world, Unit, (weight,)),
            (false, _) if i == 0 => step.spawn(world, Unit, (mark, weight)),
            (false, _) => step.spawn(world, Unit, (weight,)),
        };
        if i == 0 && seat == 0 {
            world.insert_one(entity.unwrap(), mark).unwrap();
        }
    }
}

#[test]
fn order_is_by_name_whoever_rolled_back() {
    for seed in seeds(2) {
        let mut chance = Rng::new(seed);
        let network = Network::new(seed);
        let mut table = Table::new(seed, &schema(), config(), network.host()).unwrap();
        // a guest far away, who has to go back all the time; the host never does
        table.join(config(), network.join(weather(90, 0.05), weather(90, 0.05))).unwrap();
        let mut seen: [[BTreeMap<u64, Outcome>; 2]; 2] = Default::default();
        let mut reruns = 0;
        let mut sticks = [Stick::default(); 2];
        for tick in 0..TICKS {
            for (seat, stick) in sticks.iter_mut().enumerate() {
                if chance.chance(10) {
                    stick.x = chance.below(201) as f32 / 100.0 - 1.0;
                }
                if chance.chance(5) {
                    stick.hit.press();
                }
                if table.seat(seat).peer.is_in_session() {
                    table.seat(seat).peer.set_input(stick).unwrap();
                }
            }
            if tick % 3 == 0 {
                // local entities of the same shape, at the host alone
                let world = &mut table.seat(0).world;
                let local = world.spawn((Weight(1.0), Mark(2)));
                if tick % 2 == 0 {
                    world.despawn(local).unwrap();
                }
            }
            table.run(|seat, world, step| {
                let line = match step.timeline() {
                    Timeline::Session => return,
                    Timeline::Rollback => 0,
                    Timeline::Lockstep => 1,
                };
                reruns += u32::from(step.rerun());
                let outcome = play(seat, world, step);
                seen[seat][line].insert(step.tick().0, outcome);
            });
        }
        assert!(reruns > 1000, "SEED={seed}: {reruns} ticks were run again: it hardly had to go back");
        for (line, name) in [(Timeline::Rollback, "rollback"), (Timeline::Lockstep, "lockstep")] {
            let certain = table.seat(1).peer.confirmed(line).unwrap().0;
            let [host, guest] = [&seen[0][line as usize - 1], &seen[1][line as usize - 1]];
            let first = *guest.keys().next().unwrap();
            let mut compared = 0;
            for (tick, outcome) in host.range(first..=certain) {
                assert_eq!(guest.get(tick), Some(outcome), "SEED={seed}: {name} tick {tick}");
                compared += 1;
            }
            assert!(compared > TICKS * 9 / 10, "SEED={seed}: {compared} ticks of {name} were compared");
            assert!(host.values().any(|o| o.2 > 10), "SEED={seed}: there were never many of {name}");
        }
    }
}
