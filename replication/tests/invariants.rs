//! What must hold of the stream of state beside that all ends equal: what a packet promises, what a change costs, and when a row
//! may be taken again.

mod common;

use common::{
    ChildOf, Crate, Health, Player, Position, Rng, assert_clean, assert_settles, config, seeds, table, table_of, weather,
};
use hecs::{Component, Entity};
use std::collections::BTreeMap;
use std::time::Duration;
use tidelock::netcore::emulator::Fate;
use tidelock::testing::{Seat, Table};
use tidelock::{Config, NetId, PeerId, PeerStats};
use tidelock_loopback::{Conditions, Direction, Network};

/// The number that an entity shows: it only ever rises.
fn number(seat: &Seat, net: NetId) -> Option<u32> {
    let position = *seat.world.get::<&Position>(seat.find(net)?).ok()?;
    Some((position.x * 100.0).round() as u32)
}

/// The names of the entities of kind `K` that a seat simulates.
fn own<K: Component>(seat: &Seat) -> Vec<NetId> {
    let all: Vec<Entity> = seat.world.query::<(Entity, &K)>().iter().map(|(e, _)| e).collect();
    let own = all.into_iter().filter(|e| seat.peer.is_owner(&seat.world, *e));
    own.filter_map(|e| seat.peer.name_of(&seat.world, e)).collect()
}

/// What one seat has published, by entity: the ticks at whose end the number was another than before; `None`: it was gone.
#[derive(Default)]
struct Published(BTreeMap<NetId, Vec<(u64, Option<u32>)>>);

impl Published {
    fn note<K: Component>(&mut self, seat: &Seat) {
        let tick = seat.peer.tick().0;
        let here = own::<K>(seat);
        for net in here.iter().chain(self.0.keys()).copied().collect::<Vec<_>>() {
            let now = number(seat, net);
            let past = self.0.entry(net).or_default();
            if past.last().map(|p| p.1) != Some(now) {
                past.push((tick, now));
            }
        }
    }

    /// All that was published up to `complete` is here: whatever is shown is no older than what held then. What has ended since
    /// may lack its last values, for nobody is sent them any more.
    fn check(&self, complete: u64, seat: &Seat) -> Result<(), String> {
        for (net, past) in &self.0 {
            let Some((_, held)) = past.iter().rev().find(|p| p.0 <= complete) else { continue };
            let ended_since = past.iter().any(|p| p.0 > complete && p.1.is_none());
            match (held, number(seat, *net)) {
                (Some(held), Some(shown)) if shown < *held && !ended_since => {
                    return Err(format!("complete to {complete}: {net} shows {shown}, it was {held} then"));
                }
                (Some(held), None) if !ended_since => {
                    return Err(format!("complete to {complete}: {net} is not here, it was {held} then"));
                }
                (None, Some(_)) => return Err(format!("complete to {complete}: {net} is here, and was gone then")),
                _ => {}
            }
        }
        Ok(())
    }
}

fn foul() -> Conditions {
    Conditions {
        latency: Duration::from_millis(40),
        jitter: Duration::from_millis(15),
        loss: 0.15,
        burst: 2.0,
        reorder: 0.2,
        ..Conditions::default()
    }
}

/// A packet says *complete through C*; interpolation and [`Peer::age`](tidelock::Peer::age) rest on it. So at every moment and in
/// both directions, what a receiver has must be what held at C or later, for every entity there is.
#[test]
fn complete_never_runs_ahead_of_what_arrived() {
    for seed in seeds(8) {
        let mut rng = Rng::new(seed);
        let (mut table, _network) = table_of(seed, &common::schema(), 2, foul(), &Config { bandwidth: 500_000, ..config() });
        let mut down = Published::default();
        let mut up = [Published::default(), Published::default()];
        let (mut waits, mut newest) = (0, 0);
        for frame in 0..400 {
            table.run(|seat, world, step| {
                let mine: Vec<Entity> = step.query::<(Entity, &Position)>(world).iter().map(|(e, _)| e).collect();
                for entity in &mine {
                    if rng.chance(20) {
                        world.get::<&mut Position>(*entity).unwrap().x += 0.01;
                    }
                }
                // in bursts that do not fit one send's budget
                let most = if seat == 0 { 200 } else { 40 };
                for _ in mine.len()..if frame % 40 == 5 && frame < 300 { most } else { 0 } {
                    let at = (Position { x: 0.01, y: 0.0 },);
                    if seat == 0 {
                        step.spawn(world, Crate, at).unwrap();
                    } else {
                        step.spawn(world, Player, at).unwrap();
                    }
                }
                for entity in mine {
                    if rng.chance(if frame % 40 == 30 { 60 } else { 1 }) {
                        step.despawn(world, entity).unwrap();
                    }
                }
            });
            down.note::<Crate>(table.seat(0));
            for (guest, up) in (1..).zip(&mut up) {
                let seat = table.seat(guest);
                let (me, tick) = (seat.peer.local(), seat.peer.tick().0);
                let complete = seat.peer.stats(PeerId::HOST).unwrap().complete.0;
                let found = down.check(complete, seat);
                assert!(found.is_ok(), "SEED={seed} frame {frame} seat {guest}: {found:?}");
                waits += u32::from(complete + 12 < tick);
                newest = newest.max(complete);
                up.note::<Player>(seat);
                let host = table.seat(0);
                let complete = host.peer.stats(me).unwrap().complete.0;
                let found = up.check(complete, host);
                assert!(found.is_ok(), "SEED={seed} frame {frame}, the host of seat {guest}: {found:?}");
            }
        }
        assert!(waits > 50, "SEED={seed}: nothing was ever missing, so that nothing was tested");
        let last = table.seat(0).peer.tick().0;
        assert!(newest + 60 > last, "SEED={seed}: complete stands at {newest}, the session at {last}");
        assert_settles(&mut table, 10);
        assert_clean(&mut table);
    }
}

/// The same where nobody comes and goes, so that sends come whole, with too little room and bursts of loss: what waits for room
/// goes along with what has changed since, and may be lost with it.
#[test]
fn complete_does_not_run_ahead_of_what_waits_for_room_either() {
    for seed in seeds(6) {
        let mut rng = Rng::new(seed);
        let config = Config { bandwidth: 120_000, ..config() };
        let (mut table, network) = table_of(seed, &common::schema(), 3, weather(40, 0.03), &config);
        table.run(|seat, world, step| {
            for i in 0..if seat == 0 { 300 } else { 0 } {
                step.spawn(world, Crate, (Position { x: 0.0, y: i as f32 }, Health(1))).unwrap();
            }
        });
        assert_settles(&mut table, 20);
        let (mut down, mut newest, mut waits) = (Published::default(), 0, 0);
        for frame in 0..500u32 {
            // some seconds of little, then more than there is room for
            let percent = if frame / 25 % 3 == 0 { 60 } else { 3 };
            if frame % 40 == 20 {
                for link in network.links() {
                    network.set_conditions(link, Direction::Down, weather(40, 1.0));
                }
            } else if frame % 40 == 26 {
                for link in network.links() {
                    network.set_conditions(link, Direction::Down, weather(40, 0.03));
                }
            }
            table.run(|_, world, step| {
                let mut moved = step.query::<&mut Position>(world);
                moved.iter().filter(|_| rng.chance(percent)).for_each(|p| p.x += 0.01);
            });
            down.note::<Crate>(table.seat(0));
            for guest in 1..=3 {
                let seat = table.seat(guest);
                let (tick, complete) = (seat.peer.tick().0, seat.peer.stats(PeerId::HOST).unwrap().complete.0);
                let found = down.check(complete, seat);
                assert!(found.is_ok(), "SEED={seed} frame {frame} seat {guest}: {found:?}");
                waits += u32::from(complete + 12 < tick);
                newest = newest.max(complete);
            }
        }
        assert!(waits > 50, "SEED={seed}: nothing was ever missing, so that nothing was tested");
        assert!(newest + 120 > table.seat(0).peer.tick().0, "SEED={seed}: complete stands at {newest}");
        assert_settles(&mut table, 20);
        assert_clean(&mut table);
    }
}

/// Who has less room than the others is told the oldest first, though what the others are told is at hand: nothing stands still.
#[test]
fn who_has_little_room_beside_others_lacks_nothing_for_long() {
    for seed in seeds(2) {
        let mut rng = Rng::new(seed);
        let (mut table, _network) = table_of(seed, &common::schema(), 3, weather(40, 0.0), &config());
        table.run(|seat, world, step| {
            for i in 0..if seat == 0 { 2400 } else { 0 } {
                step.spawn(world, Crate, (Position { x: 0.0, y: (i % 400) as f32 }, Health(1))).unwrap();
            }
        });
        assert_settles(&mut table, 20);
        let limited = table.seat(3).peer.local();
        table.seat(0).peer.set_bandwidth(limited, 600_000).unwrap();
        let (mut down, mut oldest) = (Published::default(), 0);
        for frame in 0..250u32 {
            table.run(|_, world, step| {
                step.query::<&mut Position>(world).iter().for_each(|p| p.x += 0.01 * (1 + rng.below(12)) as f32);
            });
            down.note::<Crate>(table.seat(0));
            let tick = table.seat(0).peer.tick().0;
            let late = |ticks: u64, table: &mut Table| down.check(tick.saturating_sub(ticks), table.seat(3)).is_err();
            let age = [5, 10, 20, 40, 60].into_iter().rev().find(|ticks| late(*ticks, &mut table)).unwrap_or(0);
            assert!(frame < 60 || age < 10, "SEED={seed} frame {frame}: something is older than {age} ticks");
            oldest = oldest.max(age);
        }
        assert!(oldest >= 5, "SEED={seed}: there was room enough, so that nothing was tested");
        assert_settles(&mut table, 20);
    }
}

/// 64 crates of which each moves by a step of 0.01 in every tick.
fn moving_crates(seed: u64, guests: usize, weather: Conditions) -> (Table, Network) {
    let (mut table, network) = table(seed, guests, weather);
    table.run(|seat, world, step| {
        for i in 0..if seat == 0 { CRATES } else { 0 } {
            step.spawn(world, Crate, (Position { x: 0.0, y: i as f32 }, Health(1))).unwrap();
        }
    });
    (table, network)
}

const CRATES: u32 = 64;

fn move_on(table: &mut Table, frames: u32) {
    for _ in 0..frames {
        table.run(|_, world, step| step.query::<&mut Position>(world).iter().for_each(|p| p.x += 0.01));
    }
}

fn stats(table: &mut Table, guest: usize) -> PeerStats {
    let guest = table.seat(guest).peer.local();
    table.seat(0).peer.stats(guest).unwrap()
}

/// Bytes and rows that a guest is sent of `frames` frames in which all crates move.
fn cost(table: &mut Table, guest: usize, frames: u32) -> (u64, u64) {
    let before = stats(table, guest).sent;
    move_on(table, frames);
    let after = stats(table, guest).sent;
    (after.state_bytes - before.state_bytes, after.rows - before.rows)
}

/// A position is 34 bits, and one that is told against what the receiver has acknowledged a few: so many crates that move by a step
/// cost less than half of what they would cost whole, each is sent once per tick, and presence is not sent at all.
#[test]
fn what_moves_steadily_costs_differences() {
    const FRAMES: u32 = 120;
    let whole = u64::from(FRAMES * CRATES * 34 / 8);
    for seed in seeds(3) {
        for latency in [0, 50] {
            let (mut table, _network) = moving_crates(seed, 2, weather(latency, 0.0));
            move_on(&mut table, 120);
            for guest in [1, 2] {
                let (bytes, rows) = cost(&mut table, guest, FRAMES);
                let sent = u64::from(FRAMES * CRATES);
                assert!(
                    (sent - u64::from(CRATES)..=sent + u64::from(CRATES)).contains(&rows),
                    "SEED={seed} {latency} ms: {rows} rows"
                );
                assert!(bytes < whole / 2, "SEED={seed} {latency} ms: {bytes} bytes, {whole} if they were whole");
            }
            assert_clean(&mut table);
        }
    }
}

/// Losses leave nothing behind: when they end, differences are taken against the newest that is acknowledged again.
#[test]
fn after_losses_it_costs_what_it_did_before() {
    for seed in seeds(3) {
        let (mut table, network) = moving_crates(seed, 1, weather(50, 0.0));
        move_on(&mut table, 120);
        let before = cost(&mut table, 1, 120);
        let link = network.links()[0];
        for direction in [Direction::Down, Direction::Up] {
            network.set_conditions(link, direction, weather(50, 0.3));
        }
        move_on(&mut table, 120);
        for direction in [Direction::Down, Direction::Up] {
            network.set_conditions(link, direction, weather(50, 0.0));
        }
        move_on(&mut table, 60);
        let after = cost(&mut table, 1, 120);
        assert!(after.0 <= before.0 + before.0 / 10, "SEED={seed}: {before:?} (bytes, rows) before, {after:?} after");
        assert!(after.1 <= before.1 + u64::from(CRATES), "SEED={seed}: {before:?} (bytes, rows) before, {after:?} after");
        assert_clean(&mut table);
    }
}

/// A guest hears nothing for longer than the history remembers. Meanwhile one entity ends and, later, another one begins: it must not
/// take the place of the first, whose end the guest has not heard of.
#[test]
fn a_row_is_not_taken_again_before_its_end_is_known() {
    for seed in seeds(5) {
        let (mut table, network) = table(seed, 2, weather(30, 0.0));
        let at = Position { x: 1.0, y: 1.0 };
        let (mut old, mut new) = (Entity::DANGLING, Entity::DANGLING);
        table.run(|seat, world, step| {
            if seat == 0 {
                // the second keeps the block of rows in use
                old = step.spawn(world, Crate, (at, Health(1))).unwrap();
                step.spawn(world, Crate, (at, Health(2))).unwrap();
            }
        });
        table.rest(60);
        let host = table.seat(0);
        let old_net = host.peer.name_of(&host.world, old).unwrap();
        assert!(table.seat(1).find(old_net).is_some() && table.seat(2).find(old_net).is_some(), "SEED={seed}");
        let link = network.links()[0];
        network.edit(link, Direction::Down, |net| net.set_filter(Some(Box::new(|_, _| Fate::Drop))));
        // something moves all the while, so that there are sends
        let mut frame = |table: &mut Table, what: u32| {
            table.run(|seat, world, step| {
                if seat != 0 {
                    return;
                }
                world.query::<&mut Health>().iter().for_each(|h| h.0 = h.0.wrapping_add(2));
                if what == 1 {
                    step.despawn(world, old).unwrap();
                } else if what == 2 {
                    new = step.spawn(world, Crate, (at, Health(7))).unwrap();
                }
            });
        };
        frame(&mut table, 1);
        (0..120).for_each(|_| frame(&mut table, 0));
        frame(&mut table, 2);
        (0..60).for_each(|_| frame(&mut table, 0));
        let host = table.seat(0);
        let new_net = host.peer.name_of(&host.world, new).unwrap();
        assert!(
            table.seat(2).find(old_net).is_none() && table.seat(2).find(new_net).is_some(),
            "SEED={seed}: the other hears all"
        );
        assert!(table.seat(1).find(old_net).is_some(), "SEED={seed}: it heard of the end, so that nothing was tested");
        network.edit(link, Direction::Down, |net| net.set_filter(None));
        assert_settles(&mut table, 2);
        let deaf = table.seat(1);
        assert!(deaf.find(old_net).is_none() && deaf.find(new_net).is_some(), "SEED={seed}");
        assert_clean(&mut table);
    }
}

/// A turret without its tank is nothing to look at: what has a parent appears with it, or after it, however the packets come.
#[test]
fn a_child_waits_for_its_parent() {
    for seed in seeds(5) {
        let (mut table, network) = table(seed, 1, weather(60, 0.0));
        table.rest(60);
        let link = network.links()[0];
        let mut line: Vec<Entity> = Vec::new();
        // three generations in three packets, of which the first two are late
        network.edit(link, Direction::Down, |net| net.hold_next(2));
        for generation in 0..3 {
            table.run(|seat, world, step| {
                if seat != 0 {
                    return;
                }
                let at = (Position { x: generation as f32, y: 0.0 },);
                let entity = step.spawn(world, Crate, at).unwrap();
                if let Some(parent) = line.last() {
                    world.insert_one(entity, ChildOf { parent: *parent }).unwrap();
                }
                line.push(entity);
            });
        }
        let host = table.seat(0);
        let line: Vec<NetId> = line.iter().map(|e| host.peer.name_of(&host.world, *e).unwrap()).collect();
        table.rest(10);
        let here = |table: &mut Table| line.iter().filter(|net| table.seat(1).find(**net).is_some()).count();
        assert_eq!(here(&mut table), 0, "SEED={seed}: a child is here without its parent");
        let now = table.now;
        let released = network.edit(link, Direction::Down, |net| net.release_held(now));
        assert_eq!(released, Some(2), "SEED={seed}");
        table.rest(1);
        assert_eq!(here(&mut table), 3, "SEED={seed}: all that was waited for is here");
        let guest = table.seat(1);
        for pair in line.windows(2) {
            let child = guest.find(pair[1]).unwrap();
            let parent = guest.world.get::<&ChildOf>(child).unwrap().parent;
            assert_eq!(Some(parent), guest.find(pair[0]), "SEED={seed}");
        }
        assert_settles(&mut table, 2);
        assert_clean(&mut table);
    }
}

/// What a guest writes before it hears that its authority ended counts for nothing, even if it has authority again by the time it
/// arrives: it did not know what the host wrote in between.
#[test]
fn a_write_under_an_old_ownership_counts_for_nothing() {
    for seed in seeds(10) {
        let (mut table, _network) = table(seed, 2, weather(50 + 10 * (seed % 5), 0.0));
        let mut player = Entity::DANGLING;
        table.run(|seat, world, step| {
            if seat == 1 {
                player = step.spawn(world, Player, (Position { x: 0.0, y: 0.0 },)).unwrap();
            }
        });
        move_on(&mut table, 60);
        let guest = table.seat(1);
        let (me, net) = (guest.peer.local(), guest.peer.name_of(&guest.world, player).unwrap());
        for round in 1..=4u32 {
            let least = 10_000 * round;
            let host = table.seat(0);
            let copy = host.find(net).unwrap();
            // taken, moved far away and given back between two ticks
            host.peer.grant(&mut host.world, copy, 0, PeerId::HOST).unwrap();
            host.world.get::<&mut Position>(copy).unwrap().x = least as f32 / 100.0;
            host.peer.grant(&mut host.world, copy, 0, me).unwrap();
            let refused = stats(&mut table, 1).link.refused;
            for frame in 0..60 {
                move_on(&mut table, 1);
                let shown = number(table.seat(0), net).unwrap();
                assert!(shown >= least, "SEED={seed} round {round} frame {frame}: {shown}, it was put at {least}");
            }
            assert!(stats(&mut table, 1).link.refused > refused, "SEED={seed}: nothing came late, so that nothing was tested");
            let shown = number(table.seat(0), net).unwrap();
            assert!(shown > least + 20, "SEED={seed} round {round}: {shown}, the guest does not go on from {least}");
        }
        assert_settles(&mut table, 2);
        assert_clean(&mut table);
    }
}
