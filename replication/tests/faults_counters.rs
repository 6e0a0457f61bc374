//! Counters that wrap on the wire: the 65 536th message, and sessions whose ticks, sends and packets begin near the end of what
//! the wire shows of them.

mod common;

use common::{Banner, Crate, Health, Player, Position, assert_settles, config, table_with, weather};
use hecs::Entity;
use std::time::Duration;
use tidelock::testing::Table;
use tidelock::{Config, PeerId, Replicate, Schema, To, UsageError};
use tidelock_loopback::{Conditions, Network};

/// Where counters begin: shortly before half of what the wire shows, before all of it, and before 32 bits.
const STARTS: [u64; 3] = [32_700, 65_500, (1 << 32) - 100];

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Numbered {
    number: u32,
    check: u64,
}

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Loose {
    number: u32,
    check: u64,
}

fn check_of(number: u32) -> u64 {
    (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn messages_schema() -> Schema {
    Schema::builder("messages").message::<Numbered>("numbered").unreliable_message::<Loose>("loose").build().unwrap()
}

struct Got {
    next: u32,
    /// By number: how often an unreliable message came.
    loose: Vec<u8>,
    last_progress: u64,
    longest_gap: u64,
}

/// Takes what has come, and checks it: reliable messages are the next ones, unreliable ones are whole.
fn fetch(table: &mut Table, frame: u64, got: &mut Got) {
    let seed = table.seed;
    let host = &mut table.seat(0).peer;
    let numbered = host.messages::<Numbered>().unwrap();
    if !numbered.is_empty() {
        got.longest_gap = got.longest_gap.max(frame - got.last_progress);
        got.last_progress = frame;
    }
    for (_, m) in numbered {
        assert_eq!(m.number, got.next, "SEED={seed}: a reliable message is missing, doubled or out of order");
        assert_eq!(m.check, check_of(m.number), "SEED={seed}");
        got.next += 1;
    }
    for (_, m) in host.messages::<Loose>().unwrap() {
        assert_eq!(m.check, check_of(m.number), "SEED={seed}: an unreliable message came in part");
        got.loose[m.number as usize] += 1;
    }
}

/// Sends `count` messages of both sorts from a guest to the host, at most 200 of each per frame. The mailbox is emptied once per
/// frame, so whatever a repaired loss sets free at once must have room in it.
fn send_numbered(seed: u64, count: u32, weather: Conditions) -> Got {
    let network = Network::new(seed);
    let mut table = Table::new(seed, &messages_schema(), config(), network.host()).unwrap();
    table.join(config(), network.join(weather, weather)).unwrap();
    table.rest(60);
    let mut got = Got { next: 0, loose: vec![0; count as usize], last_progress: 60, longest_gap: 0 };
    let (mut sent, mut loose, mut frame) = (0, 0, 60);
    while got.next < count {
        let guest = table.seat(1);
        assert!(guest.peer.is_in_session(), "SEED={seed} frame {frame}: {:?}", guest.peer.ended());
        for _ in 0..200 {
            let number = sent.min(count);
            let message = Numbered { number, check: check_of(number) };
            match if number < count { guest.peer.send_message(&guest.world, To::Host, &message) } else { Ok(()) } {
                Ok(()) => sent = (sent + 1).min(count),
                Err(UsageError::Backlog) => break,
                Err(error) => panic!("SEED={seed}: {error}"),
            }
            if loose < count {
                let message = Loose { number: loose, check: check_of(loose) };
                guest.peer.send_message(&guest.world, To::Host, &message).unwrap();
                loose += 1;
            }
        }
        table.rest(1);
        frame += 1;
        fetch(&mut table, frame, &mut got);
        assert!(frame < 60 * 600, "SEED={seed}: only {} of {count} came", got.next);
    }
    for _ in 0..60 {
        table.rest(1);
        frame += 1;
        fetch(&mut table, frame, &mut got);
    }
    assert_eq!(got.next, count, "SEED={seed}");
    let dropped = table.seat(0).peer.stats(PeerId(1)).unwrap().link.dropped_messages;
    assert_eq!(dropped, 0, "SEED={seed}");
    got
}

/// Case 13. Unreliable messages are a datagram each, without a number: what holds is that each comes whole or not at all. The
/// network's own doubles and overtakings show. Other lanes, sequenced ones among them: `lanes/numbers.rs`.
#[test]
fn the_65_536th_message_is_like_any_other() {
    let got = send_numbered(1, 200_000, weather(30, 0.0));
    assert!(got.longest_gap <= 6, "SEED=1: nothing came for {} frames although nothing was lost", got.longest_gap);
    assert!(got.loose.iter().all(|n| *n == 1), "SEED=1: an unreliable message was lost or doubled without any weather");

    let rough = Conditions { jitter: Duration::from_millis(10), reorder: 0.1, ..weather(30, 0.05) };
    let got = send_numbered(2, 200_000, rough);
    assert!(got.longest_gap <= 4 * 60, "SEED=2: nothing came for {} frames", got.longest_gap);
    assert!(got.loose.iter().all(|n| *n <= 1), "SEED=2: an unreliable message was doubled, but not by the network");
    let arrived = got.loose.iter().filter(|n| **n == 1).count();
    assert!(arrived >= 180_000, "SEED=2: only {arrived} of 200 000 unreliable messages came at 5 % loss");
    let boundary = got.loose[65_000..66_000].iter().filter(|n| **n == 1).count();
    assert!(boundary >= 900, "SEED=2: only {boundary} of the 1000 around the 65 536th came");

    let doubling = Conditions { duplicate: 0.2, ..rough };
    let got = send_numbered(3, 20_000, doubling);
    assert!(got.loose.iter().all(|n| *n <= 2), "SEED=3: a message came more often than the network sent it");
    assert!(got.loose.contains(&2), "SEED=3: the test's network doubled nothing");
}

/// Counters begin at `start` on all sides.
fn counters(start: u64) -> Config {
    Config { counters_from: start, ..config() }
}

/// Case 13, the hook: packet numbers, send ticks and session ticks begin 50 before their ends, at 0 % and at 5 % loss with
/// packets that overtake each other.
#[test]
fn numbers_wrap_with_everything_in_flight() {
    for start in [(1 << 15) - 50, (1 << 16) - 50, (1u64 << 32) - 50] {
        for (seed, loss) in [(1, 0.0), (2, 0.05), (3, 0.3)] {
            let reorder = if loss > 0.0 { 0.2 } else { 0.0 };
            let rough = Conditions { reorder, duplicate: reorder, ..weather(50, loss) };
            let (mut table, _network) = table_with(seed, 2, rough, &counters(start));
            let mut rng = common::Rng::new(seed);
            for _ in 0..300 {
                table.run(|seat, world, step| common::churn(seat, world, step, &mut rng));
            }
            assert_settles(&mut table, 20);
            for guest in [1, 2] {
                let stats = table.seat(0).peer.stats(PeerId(guest)).unwrap();
                assert_eq!(stats.link.malformed, 0, "SEED={seed} start {start}");
                if loss == 0.0 {
                    assert_eq!(stats.sent.lost, 0, "SEED={seed} start {start}: a packet was taken for lost");
                    assert_eq!(stats.link.useless, 0, "SEED={seed} start {start}: a packet was taken for old");
                }
            }
        }
    }
}

/// How far a mover's copies may lag behind, in ticks beside those between two sends: 50 ms on the way, a frame at each end.
const LAG: f32 = 5.0;
const SPEED: f32 = 0.1;

struct Drawn {
    entity: Entity,
    x: f32,
}

/// What seat 1 draws of a mover goes on evenly.
fn assert_smooth(table: &mut Table, mover: Entity, before: &mut Option<Drawn>, what: &str) {
    let (seed, now) = (table.seed, table.now);
    let net = {
        let host = table.seat(0);
        host.peer.name_of(&host.world, mover).unwrap()
    };
    let seat = table.seat(1);
    let Some(entity) = seat.find(net) else { return };
    let drawn = seat.peer.present::<Position>(&seat.world, now).unwrap().find(|(e, _)| *e == entity).unwrap().1;
    assert!(drawn.x.is_finite() && drawn.y.is_finite(), "SEED={seed} {what}: {drawn:?}");
    if let Some(before) = before.as_ref().filter(|b| b.entity == entity) {
        let step = drawn.x - before.x;
        assert!((-0.02..=0.15).contains(&step), "SEED={seed} {what}: drawn x goes from {} to {}", before.x, drawn.x);
    }
    *before = Some(Drawn { entity, x: drawn.x });
}

/// Case 18, what exists of it: movers of the host and of a guest over the boundary, with interpolation; a second guest joins
/// behind it.
#[test]
fn sessions_go_on_over_every_boundary() {
    // beyond 2^24, an f32 does not hold every tick any more
    let starts = STARTS.into_iter().chain([1 << 25]);
    for (start, send_every) in starts.flat_map(|s| [(s, 1), (s, 3)]) {
        let seed = start;
        let what = format!("start {start}, every {send_every} ticks");
        let config = Config { send_every, ..counters(start) };
        let lag = (LAG + send_every as f32) * SPEED;
        let (mut table, network) = table_with(seed, 1, weather(50, 0.0), &config);
        assert!(table.seat(0).peer.tick().0 >= start, "{what}: the hook does nothing");
        let host = table.seat(0);
        let at = Position { x: -150.0, y: 0.0 };
        let mover = host.peer.spawn(&mut host.world, Crate, (at, Health(1))).unwrap();
        for y in 1..20 {
            host.peer.spawn(&mut host.world, Crate, (Position { y: y as f32, ..at }, Health(1))).unwrap();
        }
        let guest = table.seat(1);
        let player = guest.peer.spawn(&mut guest.world, Player, (at, Banner { colour: 0 })).unwrap();
        let (mut drawn, mut frames) = (None, 0);
        while table.seat(0).peer.tick().0 < start + 3000 {
            table.run(|_, world, step| {
                for p in step.query::<&mut Position>(world).iter() {
                    p.x += SPEED;
                }
            });
            frames += 1;
            if frames < 60 {
                continue;
            }
            assert_smooth(&mut table, mover, &mut drawn, &what);
            for (from, to, entity) in [(0, 1, mover), (1, 0, player)] {
                let (source, net) = {
                    let s = table.seat(from);
                    (s.world.get::<&Position>(entity).unwrap().x, s.peer.name_of(&s.world, entity).unwrap())
                };
                let seat = table.seat(to);
                let copy = seat.find(net).unwrap();
                let shown = seat.world.get::<&Position>(copy).unwrap().x;
                let late = source - shown;
                assert!((0.0..=lag).contains(&late), "SEED={seed} {what}: {source} at seat {from} is {shown} at seat {to}");
            }
        }
        for peer in [0, 1] {
            let other = if peer == 0 { PeerId(1) } else { PeerId::HOST };
            let stats = table.seat(peer).peer.stats(other).unwrap();
            let wrong = (stats.sent.lost, stats.link.useless, stats.link.malformed, stats.link.refused);
            assert_eq!(wrong, (0, 0, 0, 0), "SEED={seed} {what}: lost, old, malformed, refused at seat {peer}");
            assert_eq!(table.seat(peer).peer.skipped_ticks(), 0, "SEED={seed} {what}");
        }
        let c2 = table.join(config, network.join(weather(50, 0.0), weather(50, 0.0))).unwrap();
        table.rest(60);
        assert_settles(&mut table, 5);
        assert_eq!(table.seat(c2).peer.entity_count(), 21, "SEED={seed} {what}");
    }
}

/// Case 18: something changes once, then not for 40 000 and for 70 000 ticks, then again, while others move. Frames are eight
/// ticks long here.
#[test]
fn a_change_after_a_long_rest_arrives() {
    for start in STARTS {
        let seed = start;
        let (mut table, network) = table_with(seed, 1, weather(50, 0.01), &counters(start));
        let host = table.seat(0);
        let resting = host.peer.spawn(&mut host.world, Crate, (Position { x: 1.0, y: 1.0 }, Health(1))).unwrap();
        let net = host.peer.name_of(&host.world, resting).unwrap();
        host.peer.spawn(&mut host.world, Crate, (Position { x: 0.0, y: 0.0 }, Health(1))).unwrap();
        let guest = table.seat(1);
        let own = guest.peer.spawn(&mut guest.world, Player, (Position { x: 5.0, y: 5.0 },)).unwrap();
        let own_net = guest.peer.name_of(&guest.world, own).unwrap();
        table.frame *= 8;
        for (round, pause) in [(1u16, 0u64), (2, 40_000), (3, 70_000)] {
            let until = table.seat(0).peer.tick().0 + pause;
            while table.seat(0).peer.tick().0 < until {
                table.run(|seat, world, _| {
                    let moving = world.query_mut::<(Entity, &mut Position)>().into_iter();
                    moving.filter(|(e, _)| seat == 0 && *e != resting).for_each(|(_, p)| p.x = (p.x + 0.05) % 400.0);
                });
            }
            table.seat(0).world.get::<&mut Health>(resting).unwrap().0 = 100 + round;
            table.seat(1).world.get::<&mut Position>(own).unwrap().x = 5.0 + f32::from(round);
            table.rest(4);
            let seat = table.seat(1);
            let copy = seat.find(net).unwrap();
            assert_eq!(seat.world.get::<&Health>(copy).unwrap().0, 100 + round, "SEED={seed} start {start}: after {pause} ticks");
            let seat = table.seat(0);
            let copy = seat.find(own_net).unwrap();
            assert_eq!(seat.world.get::<&Position>(copy).unwrap().x, 5.0 + f32::from(round), "SEED={seed} start {start}");
            let c2 = table.join(counters(start), network.join(weather(50, 0.0), weather(50, 0.0))).unwrap();
            table.rest(20);
            assert_settles(&mut table, 5);
            table.leave(c2);
        }
    }
}
