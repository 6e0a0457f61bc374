//! The determinism check finds each kind of leak, and nothing where there is none.

use super::*;
use crate::testing::determinism::{Check, Leak, Way};
use std::collections::HashMap;

/// Not registered.
struct Fuel(f32);

fn build(peer: &mut Peer, world: &mut World) {
    for i in 0..40u16 {
        let components = (Position { x: f32::from(i) * 1.7 + 0.1, y: 0.0 }, Velocity { x: 1.0 }, Fuel(1.0));
        peer.spawn(world, Unit, components).unwrap();
    }
    peer.spawn(world, Hat, (Position::default(),)).unwrap();
}

/// Runs a simulation through all ways, or through one.
fn check<S: FnMut(&mut World, &mut Step<'_>, &u64)>(only: Option<Way>, make: impl Fn() -> S) -> Result<(), Box<Leak>> {
    let schema = schema();
    let check = Check::new(&schema, build, |tick| crate::rng::mix(tick.0, 4)).ticks(60).seed(11);
    match only {
        Some(way) => check.only(way).run(make),
        None => check.run(make),
    }
}

fn found(leak: &Leak) -> (Way, Option<&str>, &str) {
    (leak.way, leak.component.as_deref(), leak.field.as_str())
}

#[test]
fn a_clean_simulation_with_births_and_deaths_passes() {
    let clean = || {
        |world: &mut World, step: &mut Step<'_>, input: &u64| {
            let mut rng = step.rng(NetId(0), *input);
            if rng.chance(0.5) {
                let components = (Position { x: rng.unit(), y: 0.0 }, Velocity::default());
                let shot = step.spawn(world, Unit, components).unwrap();
                world.insert_one(shot, Stunned(1)).unwrap();
            }
            let (mut sum, mut oldest) = (0.0, None);
            let mut all = step.ordered::<(Entity, &Position, &mut Velocity)>(world);
            while let Some((net, (entity, p, v))) = all.next() {
                sum += p.x * 1.3;
                v.x = sum * 0.01 + step.rng(net, 2).unit();
                oldest.get_or_insert(entity);
            }
            if rng.chance(0.4) {
                step.despawn(world, oldest.unwrap()).unwrap();
            }
            step.query::<(&mut Position, &Velocity)>(world).iter().for_each(|(p, v)| p.x += v.x);
            step.resource::<Score>(world).unwrap().sum += sum;
        }
    };
    assert_eq!(check(None, clean), Ok(()));
}

#[test]
fn a_sum_of_floats_in_the_order_of_the_query_is_found() {
    let leak = check(None, || {
        |world: &mut World, step: &mut Step<'_>, _: &u64| {
            let sum: f32 = step.query::<&Position>(world).iter().map(|p| p.x * 1.1).sum();
            step.resource::<Score>(world).unwrap().sum += sum;
        }
    });
    let leak = leak.unwrap_err();
    assert_eq!(found(&leak), (Way::Shuffled, Some("score"), "sum"));
    assert_eq!(leak.entity, None);
    assert!(leak.to_string().starts_with("tick 1: resource score sum is "), "{leak}");
}

#[test]
fn first_come_first_served_by_rows_is_found() {
    let leak = check(None, || {
        |world: &mut World, step: &mut Step<'_>, _: &u64| {
            // the first row gets it
            if let Some(v) = step.query::<&mut Velocity>(world).iter().next() {
                v.x += 1.0;
            }
        }
    });
    let leak = leak.unwrap_err();
    assert_eq!(found(&leak), (Way::Shuffled, Some("velocity"), "x"));
    assert_eq!((leak.tick, leak.straight.as_str(), leak.other.as_str()), (Tick(1), "2.0", "1.0"));
    assert_eq!(leak.entity, Some(NetId(1)));
}

#[test]
fn the_order_of_handles_is_found() {
    let leak = check(Some(Way::Shuffled), || {
        |world: &mut World, step: &mut Step<'_>, _: &u64| {
            step.query::<(Entity, &mut Velocity)>(world).iter().for_each(|(e, v)| v.x = (e.id() % 7) as f32);
        }
    });
    assert_eq!(found(&leak.unwrap_err()), (Way::Shuffled, Some("velocity"), "x"));
}

#[test]
fn a_generator_outside_of_the_world_is_found() {
    let make = || {
        let mut generator = 1u64;
        move |world: &mut World, step: &mut Step<'_>, _: &u64| {
            let mut all = step.ordered::<&mut Velocity>(world);
            while let Some((_, v)) = all.next() {
                generator = crate::rng::mix(generator, 7);
                v.x = (generator >> 50) as f32;
            }
        }
    };
    let leak = check(None, make).unwrap_err();
    // in the first tick a fresh generator draws the same
    assert_eq!((found(&leak), leak.tick), ((Way::Loaded, Some("velocity"), "x"), Tick(2)));
    let leak = check(Some(Way::RolledBack), make).unwrap_err();
    assert_eq!((found(&leak), leak.tick), ((Way::RolledBack, Some("velocity"), "x"), Tick(1)));
    assert_eq!(leak.entity, Some(NetId(1)));
}

#[test]
fn a_component_that_is_read_and_not_registered_is_found() {
    let make = || {
        |world: &mut World, step: &mut Step<'_>, _: &u64| {
            step.query::<(&mut Fuel, &mut Position)>(world).iter().for_each(|(fuel, p)| {
                p.y += fuel.0;
                fuel.0 *= 0.5;
            });
        }
    };
    let leak = check(None, make).unwrap_err();
    assert_eq!((found(&leak), leak.tick), ((Way::Loaded, Some("position"), "y"), Tick(1)));
    assert_eq!((leak.straight.as_str(), leak.other.as_str()), ("1.0", "0.0"));
    let leak = check(Some(Way::RolledBack), make).unwrap_err();
    assert_eq!(found(&leak), (Way::RolledBack, Some("position"), "y"));
}

#[test]
fn the_order_of_a_hash_map_is_found() {
    let leak = check(None, || {
        |world: &mut World, step: &mut Step<'_>, _: &u64| {
            let mut by_name = HashMap::new();
            for (mark, p) in step.query::<(&crate::Networked, &Position)>(world).iter() {
                by_name.insert(mark.id().0, p.x);
            }
            // the keys of the maps are really random: two sums of floats would now and then come out the same
            let order = by_name.values().fold(0u32, |all, x| all.wrapping_mul(31).wrapping_add(x.to_bits()));
            step.resource::<Score>(world).unwrap().log.push(order);
        }
    });
    assert_eq!(found(&leak.unwrap_err()), (Way::Again, Some("score"), "log[0]"));
}

#[test]
fn a_despawn_without_the_step_is_no_leak_of_values() {
    let result = check(Some(Way::RolledBack), || {
        |world: &mut World, step: &mut Step<'_>, input: &u64| {
            let mut last = None;
            let mut all = step.ordered::<Entity>(world);
            while let Some((_, entity)) = all.next() {
                last = Some(entity);
            }
            if let Some(last) = last.filter(|_| input.is_multiple_of(3)) {
                world.despawn(last).unwrap();
            }
        }
    });
    assert_eq!(result, Ok(()));
}
