//! Scenes in which what changes can be guessed, or cannot.

use super::{Crate, Odd, Paint, Scene, Seat, Spot, Stage, Stride, odd, plain_tables};
use hecs::Entity;

/// Numbers that look like chance and never change.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Crates that slide along as their stride says, which changes now and then.
pub(super) fn strides() -> Scene {
    let stage = striding(Stage::new(1, 16_000_000), 40);
    stage.end("24 crates that move by their stride, which changes now and then; packets are lost")
}

/// The same with trained tables.
pub(super) fn trained() -> Scene {
    let stage = striding(Stage::with(1, 16_000_000, None, Some(plain_tables())), 22);
    stage.end("24 crates that move by their stride, in trained tables that the guest gets with its welcome; packets are lost")
}

fn striding(mut stage: Stage, frames: usize) -> Stage {
    let mut dice = Dice(3);
    let Seat { peer, world, .. } = stage.table.seat(0);
    let crates: Vec<Entity> = (0..24u8)
        .map(|i| peer.spawn(world, Crate, (Spot { x: f32::from(i), y: 0.0 }, Stride { x: 6.0, y: 0.0 })).expect("a host may"))
        .collect();
    stage.rest(12);
    for frame in 0..frames {
        for (i, entity) in crates.iter().enumerate() {
            let mut stride = *stage.table.seat(0).world.get::<&Stride>(*entity).expect("it has one");
            stage.shift(0, *entity, stride.x / 60.0, stride.y / 60.0);
            if (frame + i) % 7 == 0 {
                (stride.x, stride.y) = (dice.below(160) as f32 / 2.0 - 40.0, dice.below(160) as f32 / 2.0 - 40.0);
                stage.table.seat(0).world.insert_one(*entity, stride).expect("it lives");
            }
        }
        if frame % 9 == 5 {
            stage.lose_next_down(1);
        }
        stage.rest(1);
    }
    stage
}

/// Crates that spin and turn evenly, whose paint is chance.
pub(super) fn spins() -> Scene {
    let mut stage = Stage::new(1, 16_000_000);
    let mut dice = Dice(5);
    let crates = stage.spawn_crates(16);
    let spun = |frame: usize, i: usize| {
        let turn = frame as f32 * 0.15 + i as f32;
        let (s, c) = even(turn);
        Odd { heading: (turn * 0.5).rem_euclid(6.0) - 3.0, turn: [0.6 * s, -0.8 * s, 0.0, c], ..odd(None) }
    };
    for frame in 0..40 {
        for (i, entity) in crates.iter().enumerate() {
            let paint = Paint { colour: dice.below(1001) as i32 };
            stage.table.seat(0).world.insert(*entity, (spun(frame, i), paint)).expect("it lives");
        }
        if frame % 9 == 5 {
            stage.lose_next_down(1);
        }
        stage.rest(1);
    }
    stage.end("16 crates that spin, in changing colours; packets are lost")
}

/// A point of the circle, without functions that differ by platform.
fn even(turn: f32) -> (f32, f32) {
    // a step of 2 · atan(1/8) is a rotation by exact fractions; as many of them as come nearest
    let steps = (turn / 0.248_71).round() as u32;
    let (mut s, mut c) = (0.0f64, 1.0f64);
    for _ in 0..steps {
        (s, c) = ((63.0 * s + 16.0 * c) / 65.0, (63.0 * c - 16.0 * s) / 65.0);
    }
    (s as f32, c as f32)
}

/// Rows by chance, with two components each.
pub(super) fn pairs() -> Scene {
    let mut stage = Stage::new(1, 16_000_000);
    let mut dice = Dice(7);
    let crates = stage.spawn_crates(64);
    for _ in 0..16 {
        for entity in &crates {
            if dice.below(3) == 0 {
                stage.shift(0, *entity, 0.01, 0.0);
                let stride = Stride { x: dice.below(20) as f32, y: 0.0 };
                stage.table.seat(0).world.insert_one(*entity, stride).expect("it lives");
            }
        }
        stage.rest(1);
    }
    stage.end("of 64 crates a third by chance move and stride anew, in one step")
}
