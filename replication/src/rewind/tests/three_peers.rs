//! Three peers run one game: A straight; B with wrong predictions that it takes back, with sprites and particles that only it has,
//! and with its rows shuffled; C joins late. After every tick that is settled their digests must be equal.

use super::*;
use crate::rng::mix;
use std::collections::BTreeMap;

/// What the game does wrong, for the controls.
#[derive(Clone, Copy, PartialEq)]
enum Game {
    Right,
    /// Sums floats in the order of the query.
    Native,
    /// Has a generator outside of the world.
    Generator,
    /// Despawns without the step.
    Behind,
}

struct Player {
    scene: Scene,
    game: Game,
    generator: u64,
}

struct Particle(u64);

impl Player {
    fn new(game: Game) -> Self {
        Self { scene: Scene::new(10), game, generator: 1 }
    }

    fn step(&mut self, input: impl Fn(Tick) -> u64) {
        let (game, generator) = (self.game, &mut self.generator);
        self.scene.step(|world, step| {
            let input = input(step.tick());
            let mut rng = step.rng(NetId(0), input);
            for i in 0..rng.below(3) {
                spawn(world, step, input, i);
            }
            let all: Vec<(NetId, Entity)> = list(world, step);
            for _ in 0..rng.below(3).min((all.len() as u32).saturating_sub(30)) {
                let victim = all[rng.below(all.len() as u32) as usize].1;
                if step.alive(world, victim) {
                    match game {
                        Game::Behind => world.despawn(victim).unwrap(),
                        _ => step.despawn(world, victim).unwrap(),
                    }
                }
            }
            for _ in 0..rng.below(3) {
                let Some((_, entity)) = rng.pick(&all).copied().filter(|(_, e)| step.alive(world, *e)) else { continue };
                if world.remove_one::<Stunned>(entity).is_err() {
                    world.insert_one(entity, Stunned(input as u8)).unwrap();
                }
                if game != Game::Behind {
                    world.insert_one(entity, Target(rng.pick(&all).unwrap().1)).unwrap();
                }
            }
            advance(world, step, game, generator);
        });
    }
}

fn spawn(world: &mut World, step: &mut Step<'_>, input: u64, i: u32) {
    let mut rng = step.rng(NetId(1), u64::from(i));
    let position = Position { x: rng.range(-100.0, 100.0), y: rng.range(-100.0, 100.0) };
    let velocity = Velocity { x: rng.range(-1.0, 1.0) };
    // in a wrong branch the same name can be of another kind, or of another key
    let spawned = match input % 3 {
        0 => step.spawn(world, Crate, (position, velocity)),
        key => step.spawn_as(world, key, Unit, (position, velocity, Name(format!("born to {input}")))),
    };
    spawned.unwrap();
}

fn list(world: &mut World, step: &Step<'_>) -> Vec<(NetId, Entity)> {
    let (mut list, mut all) = (Vec::new(), step.ordered::<Entity>(world));
    while let Some(one) = all.next() {
        list.push(one);
    }
    list
}

fn advance(world: &mut World, step: &mut Step<'_>, game: Game, generator: &mut u64) {
    step.query::<(&mut Position, &Velocity)>(world).iter().for_each(|(p, v)| p.y += v.x * step.seconds());
    // everybody is pushed by the running sum of those before it
    let mut sum = 0.0f32;
    let mut push = |net: NetId, p: &Position, v: &mut Velocity| {
        sum += p.x * 1.1;
        *generator = mix(*generator, 3);
        let chance = if game == Game::Generator { (*generator >> 40) as f32 / 1e7 } else { step.rng(net, 1).unit() };
        v.x = sum * 0.01 + chance;
    };
    if game == Game::Native {
        for (networked, p, v) in step.query::<(&crate::Networked, &Position, &mut Velocity)>(world).iter() {
            push(networked.id(), p, v);
        }
    } else {
        let mut all = step.ordered::<(&Position, &mut Velocity)>(world);
        while let Some((net, (p, v))) = all.next() {
            push(net, p, v);
        }
    }
    let score = step.resource::<Score>(world).unwrap();
    score.sum += sum;
    score.log.push(sum as i32 as u32);
    if score.log.len() > 5 {
        score.log.clear();
    }
}

/// What only B has: sprites on some networked entities, and particles.
fn noise(world: &mut World, seed: u64, particles: &mut Vec<(Entity, u64)>) {
    let all: Vec<_> = world.query::<(Entity, &Rewound)>().iter().map(|(e, mark)| (e, mark.net.0)).collect();
    for (entity, net) in all {
        match mix(net, seed) % 8 {
            0 => drop(world.insert_one(entity, Sprite(net))),
            1 => drop(world.remove_one::<Sprite>(entity)),
            _ => {}
        }
    }
    for k in 0..mix(seed, 1) % 4 {
        particles.push((world.spawn((Particle(seed ^ k),)), seed ^ k));
    }
    if particles.len() > 50 {
        let (entity, _) = particles.swap_remove(mix(seed, 2) as usize % 50);
        world.despawn(entity).unwrap();
    }
}

fn shuffle(world: &mut World, seed: u64) {
    let mut all: Vec<_> = world.query::<(Entity, &Rewound)>().iter().map(|(e, mark)| (mix(mark.net.0, seed), e)).collect();
    all.sort_unstable();
    all.iter().for_each(|(_, e)| world.insert_one(*e, ()).unwrap());
    all.iter().rev().for_each(|(_, e)| drop(world.remove_one::<()>(*e)));
}

#[derive(Debug, Default)]
struct Outcome {
    first_difference: Option<(Tick, String)>,
    in_place: usize,
    restored: Restored,
    lost_particles: usize,
    rounds: u64,
}

fn handles(scene: &Scene) -> BTreeMap<NetId, Entity> {
    let records = scene.peer.entities.iter().filter(|(_, r)| !r.parked);
    records.map(|(_, r)| (r.net, r.entity)).collect()
}

fn play(seed: u64, rounds: u64, game: Game) -> Outcome {
    let (mut a, mut b) = (Player::new(game), Player::new(game));
    let mut c: Option<Player> = None;
    let (mut tick, mut outcome, mut particles) = (Tick(1), Outcome::default(), Vec::new());
    let truth = |tick: Tick| mix(seed, tick.0);
    for round in 0..rounds {
        let chance = mix(seed ^ 5, round);
        let depth = 1 + chance % 8;
        let alive = handles(&b.scene);
        for attempt in 0..=(chance >> 8) % 2 {
            let off = if (chance >> 16).is_multiple_of(5) { 0 } else { attempt + 1 };
            for i in 0..depth {
                b.step(|tick| truth(tick) ^ off);
                noise(&mut b.scene.world, mix(chance, i + attempt * 1000), &mut particles);
            }
            let restored = b.scene.rewind(tick);
            outcome.in_place += usize::from(restored.is_in_place());
            add(&mut outcome.restored, restored);
            if game != Game::Behind {
                assert_eq!(alive, handles(&b.scene), "SEED={seed} round {round}: everybody has the handle of before");
            }
        }
        for _ in 0..depth {
            for player in [&mut a, &mut b].into_iter().chain(&mut c) {
                player.step(truth);
            }
        }
        tick = tick.plus(depth);
        if chance >> 24 & 1 == 0 {
            b.scene.peer.confirm(&mut b.scene.world, tick.minus(1));
        }
        let is_whole = |(e, v): &(Entity, u64)| b.scene.world.get::<&Particle>(*e).is_ok_and(|p| p.0 == *v);
        outcome.lost_particles += particles.iter().filter(|p| !is_whole(p)).count();
        particles.retain(|p| is_whole(p));
        shuffle(&mut b.scene.world, chance);
        for other in [Some(&mut b), c.as_mut()].into_iter().flatten() {
            assert_eq!(a.scene.digest() == other.scene.digest(), a.scene.difference(&mut other.scene).is_none());
            if let Some(found) = a.scene.difference(&mut other.scene) {
                outcome.first_difference = Some((tick, format!("{found:?}")));
                return outcome;
            }
        }
        if round == rounds / 2 {
            let mut joiner = Player::new(game);
            let mut save = Save::default();
            a.scene.peer.saves[Timeline::Session].as_mut().unwrap().copy(&a.scene.world, &mut save);
            joiner.scene.peer.load_save(&mut joiner.scene.world, &a.scene.peer, &a.scene.world, &save);
            c = Some(joiner);
        }
        outcome.rounds += 1;
    }
    outcome
}

fn add(sum: &mut Restored, more: Restored) {
    sum.parked += more.parked;
    sum.revived += more.revived;
    sum.reshaped += more.reshaped;
    sum.rebuilt += more.rebuilt;
    sum.renamed += more.renamed;
}

#[test]
fn all_three_stay_equal_and_keep_their_handles() {
    for seed in 0..20 {
        let outcome = play(seed, 60, Game::Right);
        assert_eq!(outcome.first_difference, None, "SEED={seed}");
        assert_eq!((outcome.lost_particles, outcome.restored.rebuilt, outcome.restored.renamed), (0, 0, 0), "SEED={seed}");
        let Restored { parked, revived, reshaped, .. } = outcome.restored;
        assert!(parked > 20 && revived > 20 && reshaped > 20, "SEED={seed}: it must exercise what it tests: {outcome:?}");
    }
}

#[test]
fn control_sums_in_the_order_of_queries_diverge() {
    for seed in 0..5 {
        assert!(play(seed, 60, Game::Native).first_difference.is_some(), "SEED={seed}");
    }
}

#[test]
fn control_a_generator_outside_of_the_world_diverges() {
    for seed in 0..5 {
        assert!(play(seed, 60, Game::Generator).first_difference.is_some(), "SEED={seed}");
    }
}

#[test]
fn despawns_behind_our_back_cost_handles_and_never_values() {
    let mut renamed = 0;
    for seed in 0..10 {
        let outcome = play(seed, 60, Game::Behind);
        assert_eq!((outcome.first_difference, outcome.lost_particles), (None, 0), "SEED={seed}");
        assert!(outcome.restored.rebuilt > 10, "SEED={seed}");
        renamed += outcome.restored.renamed;
    }
    assert!(renamed > 0, "a particle took an id, so some handles changed");
}
