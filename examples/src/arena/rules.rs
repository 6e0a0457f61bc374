//! The rules that more than one peer runs: players, whom the host moves and their guest predicts; the relic, which whoever carries
//! it moves; the ball game, by rollback; the crowd, in lockstep. One function for all of them, whatever peer asks.

use crate::game::{
    Aim, BANDS, Ball, Banner, Drift, HALF, Health, Of, Paddle, Player, Pose, Rally, Relic, Score, Speed, Spot, Stick, Unit,
};
use crate::trail::Trail;
use hecs::{Entity, World};
use std::collections::BTreeMap;
use std::f32::consts::PI;
use tidelock::policy::Timeline;
use tidelock::{NetId, Networked, Peer, PeerId, Seat, Step, UsageError};

/// Of a player, in units per second and second.
const PUSH: f32 = 40.0;
/// What is left of a speed after a tick.
const DRAG: f32 = 0.97;
/// The same for who is not pushed.
const BRAKE: f32 = 0.8;
/// What is slower than this, in units per second, and is not pushed stands still.
const STILL: f32 = 0.1;
/// The way that the relic is carried in a second.
const CARRY: f32 = 6.0;
/// It is carried to and fro between so far to the left and to the right of the middle.
const ROUND: f32 = 100.0;
/// Half the length of the ball's pitch, in units; half its width is half of that.
const PITCH: f32 = 40.0;
/// Half the width of a goal.
const GOAL: f32 = 6.0;
/// From how far a paddle kicks.
const REACH: f32 = 4.0;
/// What a kick gives, in units per second.
const KICK: f32 = 30.0;
/// Units walk so fast, in units per second.
const WALK: f32 = 5.0;
/// Units that are nearer to each other step aside.
const ELBOW: f32 = 1.0;

/// Runs a step, whosever it is, and keeps what came of it.
///
/// # Errors
/// None in a correct program.
pub(crate) fn run(world: &mut World, step: &mut Step<'_>, trail: &mut Trail) -> Result<(), UsageError> {
    match step.timeline() {
        Timeline::Session => drive(world, step)?,
        Timeline::Rollback => {
            play(world, step)?;
            let Score { left, right } = *step.resource::<Score>(world)?;
            trail.note(step, state(world, step) ^ u64::from(left) << 32 ^ u64::from(right));
        }
        Timeline::Lockstep => {
            follow(world, step, trail)?;
            trail.note(step, state(world, step));
        }
    }
    trail.reruns += u64::from(step.rerun());
    Ok(())
}

/// What there is when the session begins, beside what bots spawn.
///
/// # Errors
/// None in a correct program.
pub(crate) fn set_up(peer: &mut Peer, world: &mut World, units: u32) -> Result<(), UsageError> {
    for i in 0..units {
        let spot = Spot { x: (i % 20) as f32 * 2.0 - 20.0, y: (i / 20) as f32 * 2.0 - 20.0 };
        peer.spawn(world, Unit, (spot, Aim(spot), Of((i % u32::from(BANDS)) as u16)))?;
    }
    let parts = (Pose { x: 0.0, y: 0.0, turn: 0.0 }, Health::WHOLE, Banner { colour: 0 });
    peer.spawn(world, Relic, parts).map(drop)
}

/// Host: a guest gets a player to steer.
///
/// # Errors
/// None in a correct program.
pub(crate) fn welcome(peer: &mut Peer, world: &mut World, guest: PeerId) -> Result<(), UsageError> {
    let pose = Pose { x: f32::from(guest.0 % 32) * 10.0, y: -50.0, turn: 0.0 };
    let player = peer.spawn(world, Player, (pose, Speed::default()))?;
    peer.grant(world, player, 0, guest)
}

/// Host: the relic goes to one guest, its banner to another.
///
/// # Errors
/// None in a correct program.
pub(crate) fn pass_on(peer: &mut Peer, world: &mut World, guests: &[PeerId], turn: u64) -> Result<(), UsageError> {
    let Some(relic) = world.query::<Entity>().with::<&Relic>().iter().next() else { return Ok(()) };
    let Some(count) = guests.len().checked_sub(1).map(|rest| rest as u64 + 1) else { return Ok(()) };
    for slot in 0..2 {
        peer.grant(world, relic, slot, guests[((turn + slot as u64) % count) as usize])?;
    }
    Ok(())
}

/// Whoever carries the relic walks on with it, and whoever has its banner paints it.
pub(crate) fn carry(world: &World, step: &Step<'_>) {
    let relic = |entity: &Entity| world.satisfies::<&Relic>(*entity);
    for entity in step.with_authority::<Pose>().filter(relic) {
        if let Ok(mut pose) = world.get::<&mut Pose>(entity) {
            if pose.x.abs() > ROUND {
                pose.turn = if pose.x > 0.0 { PI } else { 0.0 }; // back to the middle
            }
            pose.x += CARRY * step.seconds() * if pose.turn.abs() > 1.0 { -1.0 } else { 1.0 };
        }
    }
    for entity in step.with_authority::<Banner>().filter(relic) {
        if let Ok(mut banner) = world.get::<&mut Banner>(entity) {
            banner.colour = (step.tick().0 / 30) as u16;
        }
    }
}

/// Players go where their sticks push them.
fn drive(world: &World, step: &Step<'_>) -> Result<(), UsageError> {
    let seconds = step.seconds();
    for (player, pose, speed) in step.query::<(Entity, &mut Pose, &mut Speed)>(world).iter() {
        let stick = match step.input::<Stick>(step.owner(world, player).unwrap_or(PeerId::NOBODY)) {
            Ok(input) => input.value,
            Err(UsageError::NoSuchPeer) => Stick::default(), // it has left, or is about to come
            Err(error) => return Err(error),
        };
        for (at, speed, push) in [(&mut pose.x, &mut speed.x, stick.x), (&mut pose.y, &mut speed.y, stick.y)] {
            *speed = (*speed + push * PUSH * seconds) * if push == 0.0 { BRAKE } else { DRAG };
            if push == 0.0 && speed.abs() < STILL {
                *speed = 0.0;
            }
            *at = (*at + *speed * seconds).clamp(-HALF, HALF);
        }
    }
    Ok(())
}

/// A tick of the ball game: everybody in a seat has a paddle, there is one ball.
fn play(world: &mut World, step: &mut Step<'_>) -> Result<(), UsageError> {
    let seats: Vec<(PeerId, Seat)> = step.seats().collect();
    let balls: Vec<Entity> = step.query::<Entity>(world).with::<&Ball>().iter().collect();
    let ball = match balls.first() {
        Some(ball) => *ball,
        None => step.spawn(world, Ball, (Spot::default(), Drift { x: 7.0, y: 3.0 }))?,
    };
    let mut query = step.query::<(Entity, &Of)>(world).with::<&Paddle>();
    let mut paddles: BTreeMap<u16, Entity> = query.iter().map(|(paddle, of)| (of.0, paddle)).collect();
    drop(query);
    for (peer, seat) in seats {
        let paddle = match paddles.get(&peer.0) {
            Some(paddle) => *paddle,
            None => {
                let spot = Spot { x: f32::from(peer.0 % 8) * 4.0 - 14.0, y: -8.0 };
                let paddle = step.spawn(world, Paddle, (spot, Drift::default(), Of(peer.0)))?;
                paddles.insert(peer.0, paddle);
                paddle
            }
        };
        let input = step.input::<Stick>(peer)?;
        let at_ball = read(world, ball);
        let spot = push(
            world,
            paddle,
            |spot| match seat {
                Seat::Person => (input.value.x, input.value.y),
                Seat::Cpu => ((at_ball.x - spot.x).clamp(-0.3, 0.3), (at_ball.y - spot.y).clamp(-0.3, 0.3)),
            },
            step.seconds(),
        );
        if input.pressed(|stick| stick.kick) > 0 {
            kick(world, ball, spot);
        }
    }
    roll(world, step, ball)
}

fn read(world: &World, entity: Entity) -> Spot {
    world.get::<&Spot>(entity).map(|spot| *spot).unwrap_or_default()
}

/// Moves a paddle; where it is then.
fn push(world: &mut World, paddle: Entity, stick: impl Fn(Spot) -> (f32, f32), seconds: f32) -> Spot {
    let Ok((spot, drift)) = world.query_one_mut::<(&mut Spot, &mut Drift)>(paddle) else { return Spot::default() };
    let (x, y) = stick(*spot);
    drift.x = (drift.x + x * PUSH * seconds) * DRAG;
    drift.y = (drift.y + y * PUSH * seconds) * DRAG;
    spot.x = (spot.x + drift.x * seconds).clamp(-PITCH, PITCH);
    spot.y = (spot.y + drift.y * seconds).clamp(-PITCH / 2.0, PITCH / 2.0);
    *spot
}

fn kick(world: &mut World, ball: Entity, from: Spot) {
    let Ok((spot, drift)) = world.query_one_mut::<(&Spot, &mut Drift)>(ball) else { return };
    let (x, y) = (spot.x - from.x, spot.y - from.y);
    let far = (x * x + y * y).sqrt();
    if far > 0.01 && far < REACH {
        (drift.x, drift.y) = (x / far * KICK, y / far * KICK);
    }
}

/// The ball rolls, bounces, and falls into goals.
fn roll(world: &mut World, step: &mut Step<'_>, ball: Entity) -> Result<(), UsageError> {
    let seconds = step.seconds();
    let mut rng = step.rng(NetId::default(), 1);
    let Ok((spot, drift)) = world.query_one_mut::<(&mut Spot, &mut Drift)>(ball) else { return Ok(()) };
    (spot.x, spot.y) = (spot.x + drift.x * seconds, spot.y + drift.y * seconds);
    (drift.x, drift.y) = (drift.x * 0.999, drift.y * 0.999);
    if spot.y.abs() > PITCH / 2.0 {
        spot.y = (PITCH / 2.0).copysign(spot.y);
        drift.y = -drift.y;
    }
    let over = (spot.x.abs() > PITCH).then_some(spot.x > 0.0);
    let Some(right) = over else { return Ok(()) };
    let goal = spot.y.abs() < GOAL;
    spot.x = if goal { 0.0 } else { PITCH.copysign(spot.x) };
    drift.x = -drift.x;
    if goal {
        // from the middle, to another side each time
        drift.y = (rng.next_u64() % 21) as f32 - 10.0;
        let score = step.resource::<Score>(world)?;
        *(if right { &mut score.right } else { &mut score.left }) += 1;
    }
    Ok(())
}

/// A tick of the crowd: orders, then everybody walks.
fn follow(world: &mut World, step: &mut Step<'_>, trail: &mut Trail) -> Result<(), UsageError> {
    let orders: Vec<(PeerId, Rally)> = step.orders::<Rally>(world)?.collect();
    for (peer, rally) in orders {
        trail.sealed(peer, rally.number);
        for (aim, of) in step.query::<(&mut Aim, &Of)>(world).iter() {
            if of.0 == peer.0 % BANDS {
                *aim = Aim(Spot { x: rally.x, y: rally.y });
            }
        }
    }
    let seconds = step.seconds();
    let mut before: Option<Spot> = None;
    let mut units = step.ordered::<(&mut Spot, &Aim)>(world);
    while let Some((_, (spot, Aim(aim)))) = units.next() {
        let (x, y) = (aim.x - spot.x, aim.y - spot.y);
        let far = (x * x + y * y).sqrt();
        let way = (WALK * seconds).min(far);
        if far > 0.0 {
            (spot.x, spot.y) = (spot.x + x / far * way, spot.y + y / far * way);
        }
        // nobody stands where the one before it in the line stands: whose turn it is matters
        if let Some(before) = before {
            let (x, y) = (spot.x - before.x, spot.y - before.y);
            let near = ELBOW - (x * x + y * y).sqrt();
            if near > 0.0 {
                (spot.x, spot.y) = (spot.x + near * 0.5, spot.y + near * 0.25);
            }
        }
        before = Some(*spot);
    }
    Ok(())
}

/// A hash of everything that a computed timeline has, in no order.
fn state(world: &World, step: &Step<'_>) -> u64 {
    let mut sum = 0u64;
    type All<'a> = (&'a Networked, &'a Spot, Option<&'a Drift>, Option<&'a Aim>, Option<&'a Of>);
    for (networked, spot, drift, aim, of) in step.query::<All<'_>>(world).iter() {
        let (drift, aim) = (drift.copied().unwrap_or_default(), aim.copied().unwrap_or_default().0);
        let words = [spot.x, spot.y, drift.x, drift.y, aim.x, aim.y].map(f32::to_bits);
        let of = of.map_or(0, |of| u32::from(of.0) + 1);
        let mixed = words.into_iter().chain([of]).fold(networked.id().0, |hash, word| mix(hash ^ u64::from(word)));
        sum = sum.wrapping_add(mixed);
    }
    sum
}

/// A bijection of 64 bits in which every bit of what comes out depends on every bit of what goes in.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}
