//! The two scenes of rigid bodies. Everything in them follows from the seed: the engine runs with its enhanced determinism.

use crate::crowd::Generator;
use crate::recording::{Pose, Recording};
use rapier3d::prelude::*;

/// Moments per second of the cubes.
pub const CUBES_RATE: u32 = 60;
/// Moments per second of the asteroids.
pub const ASTEROIDS_RATE: u32 = 30;
/// Asteroids.
pub const ASTEROIDS: usize = 250;

/// Small cubes on a square with so many in a row.
const ROW: usize = 30;
/// The player's top speed, m/s.
const TOP_SPEED: f32 = 4.0;
/// How far the player pulls cubes, m.
const REACH: f32 = 4.0;
/// How strongly, m/s².
const PULL: f32 = 14.0;
/// Damping of pulled cubes against the player, 1/s, close to it; farther away, a part of it.
const STICK: f32 = 3.0;
const STICK_FAR: f32 = 0.3;
/// What counts as close, m.
const CLOSE: f32 = 1.9;
/// Squeezed cubes must not leave the volume that can be told: m/s at most, and upwards.
const SPEED_LIMIT: f32 = 9.0;
const RISE_LIMIT: f32 = 5.0;
/// Highest place of a cube that can be told, in metres.
const CEILING: f32 = 31.998_047;

fn pose(body: &RigidBody, touched: bool) -> Pose {
    let (p, r) = (body.translation(), body.rotation());
    Pose { position: [p.x, p.y, p.z], rotation: [r.x, r.y, r.z, r.w], touched }
}

/// What the player does at a moment: it walks a Lissajous figure over the field, and pulls, only pushes, or stands.
struct Script {
    phases: [f32; 2],
    speeds: [f32; 2],
    /// Seconds that it has walked.
    walked: f32,
}

impl Script {
    fn new(chance: &mut Generator) -> Self {
        let turn = std::f32::consts::TAU;
        let phases = [chance.unit() * turn, chance.unit() * turn];
        Self { phases, speeds: [0.21 + 0.08 * chance.unit(), 0.33 + 0.08 * chance.unit()], walked: 0.0 }
    }

    /// Where to, or `None`: stand; and: pull?
    fn next(&mut self, seconds: f32) -> (Option<[f32; 2]>, bool) {
        let phase = (seconds / 8.0).fract();
        if phase > 0.85 {
            return (None, false);
        }
        self.walked += 1.0 / CUBES_RATE as f32;
        let at = |i: usize| 11.0 * (2.0 * self.speeds[i] * self.walked + self.phases[i]).sin();
        (Some([at(0), at(1)]), phase < 0.6)
    }
}

struct Cubes {
    world: PhysicsWorld,
    bodies: Vec<(RigidBodyHandle, ColliderHandle)>,
    touched: Vec<bool>,
}

impl Cubes {
    fn new(chance: &mut Generator) -> Self {
        let mut world = PhysicsWorld { gravity: Vector::new(0.0, 0.0, -9.81), ..PhysicsWorld::default() };
        world.integration_parameters.dt = 1.0 / CUBES_RATE as f32;
        let ground = RigidBodyBuilder::fixed().translation(Vector::new(0.0, 0.0, -0.5));
        world.insert(ground, ColliderBuilder::cuboid(128.0, 128.0, 0.5));
        let player = RigidBodyBuilder::dynamic().translation(Vector::new(-8.0, -8.0, 1.0)).can_sleep(false);
        let mut bodies = vec![world.insert(player, ColliderBuilder::cuboid(0.75, 0.75, 0.75).density(1.0))];
        for i in 0..ROW * ROW {
            let middle = (ROW - 1) as f32 / 2.0;
            let (x, y) = ((i % ROW) as f32 - middle, (i / ROW) as f32 - middle);
            let at = Vector::new(x + chance.signed() * 0.15, y + chance.signed() * 0.15, 0.21);
            let body = RigidBodyBuilder::dynamic().translation(at).angular_damping(0.2);
            bodies.push(world.insert(body, ColliderBuilder::cuboid(0.2, 0.2, 0.2).density(0.5).restitution(0.1)));
        }
        (0..60).for_each(|_| world.step());
        let touched = bodies.iter().map(|_| false).collect();
        Self { world, bodies, touched }
    }

    /// Pushes the player above its centre, so that it rolls; gives where it is and how fast.
    fn steer(&mut self, to: Option<[f32; 2]>) -> (Vector, Vector) {
        let body = &mut self.world.bodies[self.bodies[0].0];
        let (at, speed, mass) = (body.translation(), body.linvel(), body.mass());
        body.reset_forces(true);
        let [x, y] = to.map_or([0.0, 0.0], |[x, y]| [x - at.x, y - at.y]);
        let distance = (x * x + y * y).sqrt().max(0.001);
        let wanted = if to.is_some() { (distance * 3.0).min(TOP_SPEED) } else { 0.0 };
        let push = |part: f32, now: f32| (part / distance * wanted - now) * mass * 6.0;
        let force = Vector::new(push(x, speed.x), push(y, speed.y), 0.0);
        body.add_force_at_point(force, Vector::new(at.x, at.y, at.z + 0.5), true);
        (at, speed)
    }

    /// Pulls or lets go of a small cube.
    fn pull(&mut self, i: usize, player: (Vector, Vector), pulls: bool) {
        let body = &mut self.world.bodies[self.bodies[i].0];
        let (at, speed) = (body.translation(), body.linvel());
        let way = player.0 - at;
        let distance = (way.x * way.x + way.y * way.y + way.z * way.z).sqrt();
        let held = pulls && distance < REACH;
        body.reset_forces(held);
        if held {
            let damping = if distance < CLOSE { STICK } else { STICK * STICK_FAR };
            let force = |way: f32, player: f32, own: f32| way / distance * PULL + damping * (player - own);
            let x = force(way.x, player.1.x, speed.x);
            let y = force(way.y, player.1.y, speed.y);
            let z = force(way.z, player.1.z, speed.z) + 2.0;
            body.add_force(Vector::new(x, y, z) * body.mass(), true);
        }
        self.touched[i] = held || (self.touched[i] && !body.is_sleeping());
        let pace = (speed.x * speed.x + speed.y * speed.y + speed.z * speed.z).sqrt();
        if pace > SPEED_LIMIT {
            let cut = |part: f32| part * SPEED_LIMIT / pace;
            body.set_linvel(Vector::new(cut(speed.x), cut(speed.y), cut(speed.z).min(RISE_LIMIT)), false);
        }
    }

    /// The player's touch counts as well.
    fn feel(&mut self) {
        let player = self.bodies[0].1;
        for (touched, (_, collider)) in self.touched.iter_mut().zip(&self.bodies).skip(1) {
            let pair = || self.world.narrow_phase.contact_pair(player, *collider);
            *touched = *touched || pair().is_some_and(|p| p.has_any_active_contact());
        }
    }
}

/// 900 cubes that one player cube pushes and pulls about.
#[must_use]
pub fn cubes(seed: u64, moments: usize) -> Recording {
    let chance = &mut Generator::new(seed);
    let mut scene = Cubes::new(chance);
    let mut script = Script::new(chance);
    let mut recording = Recording::new(scene.bodies.len(), CUBES_RATE, moments);
    for n in 0..moments {
        let (to, pulls) = script.next(n as f32 / CUBES_RATE as f32);
        let player = scene.steer(to);
        (1..scene.bodies.len()).for_each(|i| scene.pull(i, player, pulls));
        scene.world.step();
        scene.feel();
        for (i, (body, _)) in scene.bodies.iter().enumerate() {
            let mut pose = pose(&scene.world.bodies[*body], i == 0 || scene.touched[i]);
            pose.position[2] = pose.position[2].clamp(0.0, CEILING);
            recording.push(pose);
        }
    }
    recording
}

/// 250 boxes with unequal axes that tumble in a box of 80 m without gravity.
#[must_use]
pub fn asteroids(seed: u64, moments: usize) -> Recording {
    const HALF: f32 = 40.0;
    let chance = &mut Generator::new(seed);
    let mut world = PhysicsWorld { gravity: Vector::new(0.0, 0.0, 0.0), ..PhysicsWorld::default() };
    world.integration_parameters.dt = 1.0 / ASTEROIDS_RATE as f32;
    for (axis, side) in [(0, -1.0), (0, 1.0), (1, -1.0), (1, 1.0), (2, -1.0), (2, 1.0)] {
        let (mut at, mut size) = ([0.0f32; 3], [HALF + 2.0; 3]);
        (at[axis], size[axis]) = (side * (HALF + 1.0), 1.0);
        let wall = ColliderBuilder::cuboid(size[0], size[1], size[2]).restitution(0.9).friction(0.3);
        world.insert(RigidBodyBuilder::fixed().translation(Vector::new(at[0], at[1], at[2])), wall);
    }
    let vector = |chance: &mut Generator, by: f32| Vector::new(chance.signed() * by, chance.signed() * by, chance.signed() * by);
    let mut bodies = Vec::new();
    for _ in 0..ASTEROIDS {
        let (at, speed, spin) = (vector(chance, 37.0), vector(chance, 4.0), vector(chance, 1.5));
        let size = 0.5 + chance.unit() * 1.5;
        let (second, third) = (size * (0.6 + 0.4 * chance.unit()), size * (0.6 + 0.4 * chance.unit()));
        let body = RigidBodyBuilder::dynamic().translation(at).linvel(speed).angvel(spin).can_sleep(false);
        let shape = ColliderBuilder::cuboid(size, second, third).restitution(0.9).friction(0.3);
        bodies.push(world.insert(body.gyroscopic_forces_enabled(true), shape).0);
    }
    (0..ASTEROIDS_RATE).for_each(|_| world.step());
    let mut recording = Recording::new(ASTEROIDS, ASTEROIDS_RATE, moments);
    for _ in 0..moments {
        world.step();
        bodies.iter().for_each(|body| recording.push(pose(&world.bodies[*body], false)));
    }
    recording
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_scene() {
        for scene in [cubes, asteroids] {
            let (a, b, other) = (scene(3, 20), scene(3, 20), scene(4, 20));
            assert_eq!(a.moments(), 20);
            assert!((0..20).all(|n| a.moment(n) == b.moment(n)));
            assert!(a.moment(19) != other.moment(19));
        }
    }

    #[test]
    fn cubes_are_moved_and_stay_in_the_volume() {
        let scene = cubes(1, 120);
        let (first, last) = (scene.moment(0), scene.moment(119));
        let moved = first.iter().zip(last).filter(|(a, b)| a.position != b.position).count();
        assert!(moved > 1, "nobody but the player moved");
        assert!(last.iter().all(|p| p.position[2] >= 0.0 && p.position[2] <= CEILING));
    }
}
