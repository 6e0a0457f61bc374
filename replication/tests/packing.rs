//! Every way of packing, alone and with others, on and off: receivers understand them all.

#![allow(missing_docs)]

mod common;

use common::{Rng, assert_clean, assert_settles, config, seeds, table_of, weather};
use hecs::World;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidelock::netcore::control::{self, Control, SessionTables};
use tidelock::netcore::error::{DisconnectReason, TransportError};
use tidelock::netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};
use tidelock::policy::{Host, Owner};
use tidelock::trained::{Recording, Tables};
use tidelock::{Config, Packing, Peer, PeerId, Replicate, Schema, Step};
use tidelock_loopback::{Loopback, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Spot {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
    #[net(step = 0.01, range = -500.0..=500.0)]
    y: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Speed {
    #[net(step = 0.01, range = -100.0..=100.0)]
    x: f32,
    #[net(step = 0.01, range = -100.0..=100.0)]
    y: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Heading(#[net(quat, bits = 10)] [f32; 4]);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Health(u16);

#[derive(Clone, Copy, Debug, Default)]
struct Body;

/// A guest's own.
#[derive(Clone, Copy, Debug, Default)]
struct Own;

/// More than a block of rows.
const BODIES: usize = 150;

fn schema() -> Schema {
    Schema::builder("packing")
        .component::<Spot>("spot", |c| c.velocity::<Speed>())
        .component::<Speed>("speed", |c| c)
        .component::<Heading>("heading", |c| c)
        .component::<Health>("health", |c| c)
        .kind::<Body>("body", Host::default())
        .kind::<Own>("own", Owner::default())
        .build()
        .unwrap()
}

fn live(world: &mut World, step: &mut Step<'_>, rng: &mut Rng) {
    let here = world.query_mut::<&Spot>().into_iter().count();
    let missing = if here == 0 { BODIES } else { usize::from(rng.below(20) == 0) };
    for _ in 0..missing {
        let mut unit = |most: f32| (rng.below(2001) as f32 / 1000.0 - 1.0) * most;
        let parts = (Spot { x: unit(400.0), y: unit(400.0) }, Speed { x: unit(5.0), y: unit(5.0) });
        let angle: f32 = unit(3.0);
        let _ = step.spawn(world, Body, (parts.0, parts.1, Heading([0.0, 0.0, angle.sin(), angle.cos()]), Health(100)));
    }
    let time = step.tick().0 as f32;
    let (mut dead, mut turn) = (None, rng.below(BODIES as u64) as usize);
    for (entity, spot, speed, heading, health) in
        step.query::<(hecs::Entity, &mut Spot, &mut Speed, &mut Heading, &mut Health)>(world).iter()
    {
        turn = turn.wrapping_sub(1);
        if entity.id() % 3 == 0 {
            continue; // at rest
        }
        spot.x = (spot.x + speed.x / 60.0).clamp(-500.0, 500.0);
        spot.y = (spot.y + speed.y / 60.0).clamp(-500.0, 500.0);
        let angle = time * 0.02 + entity.id() as f32;
        heading.0 = [0.0, 0.0, (angle / 2.0).sin(), (angle / 2.0).cos()];
        if turn == 0 {
            (speed.x, speed.y) = (-speed.y, speed.x);
            health.0 = health.0.wrapping_sub(1);
            dead = (health.0 % 5 == 0).then_some(entity);
        }
    }
    if let Some(entity) = dead {
        let _ = step.despawn(world, entity);
    }
}

/// A guest's bodies go round in circles, with some chance in it.
fn live_as_guest(world: &mut World, step: &mut Step<'_>, rng: &mut Rng) {
    let here = step.query::<&Own>(world).iter().count();
    for _ in here..40 {
        let parts = (Spot { x: rng.below(100) as f32, y: rng.below(100) as f32 }, Speed { x: 0.0, y: 0.0 });
        let _ = step.spawn(world, Own, (parts.0, parts.1, Heading([0.0, 0.0, 0.0, 1.0]), Health(100)));
    }
    let time = step.tick().0 as f32;
    for (_, spot, heading) in step.query::<(&Own, &mut Spot, &mut Heading)>(world).iter() {
        let off = rng.below(16) as f32 / 100.0;
        spot.x = (spot.x + (time / 20.0).cos() + off).clamp(-500.0, 500.0);
        spot.y = (spot.y + (time / 20.0).sin() - off).clamp(-500.0, 500.0);
        heading.0 = [0.0, 0.0, (time / 60.0).sin(), (time / 60.0).cos()];
    }
}

/// 240 ticks with loss and delay, a guest that joins in the middle; gives the bytes of state that the first guest was sent.
fn session(seed: u64, packing: Packing) -> u64 {
    let (mut rng, config) = (Rng::new(seed), Config { packing, bandwidth: 8_000_000, ..config() });
    let bad = weather(50, 0.05);
    let (mut table, network) = table_of(seed, &schema(), 3, bad, &config);
    for frame in 0..240 {
        if frame == 100 {
            table.join(config.clone(), network.join(bad, bad)).unwrap();
        }
        table.run(|seat, world, step| {
            if seat == 0 {
                live(world, step, &mut rng);
            }
        });
    }
    assert_settles(&mut table, 20);
    assert_clean(&mut table);
    let first = table.seat(1).peer.local();
    assert_ne!(first, PeerId::HOST);
    table.seat(0).peer.stats(first).unwrap().sent.state_bytes
}

#[test]
fn every_way_of_packing_is_understood() {
    for seed in seeds(2) {
        let all = session(seed, Packing::ALL);
        let none = session(seed, Packing::NONE);
        assert!(all * 10 < none * 8, "SEED={seed}: {all} bytes with everything on, {none} with nothing");
        for name in ["packets", "blocks", "values", "forecasts", "masks", "tables", "bases"] {
            println!("SEED={seed} without {name}");
            let bytes = session(seed, Packing::without(name).unwrap());
            assert!(bytes <= none * 11 / 10, "SEED={seed} without {name}: {bytes} bytes, {none} with nothing on");
        }
        let mut rng = Rng::new(seed);
        for _ in 0..4 {
            let mut on = || rng.below(2) == 0;
            let packing =
                Packing { packets: on(), blocks: on(), values: on(), forecasts: on(), masks: on(), tables: on(), bases: on() };
            println!("SEED={seed} {packing:?}");
            session(seed, packing);
        }
    }
}

/// Whose tables are which, and what is to be counted.
#[derive(Clone, Default)]
struct Trained {
    host: Option<Tables>,
    guests: Option<Tables>,
    packing: Option<Packing>,
}

/// What a session came to: bytes of state down to the second guest and up from the first, and what the two senders counted.
struct Outcome {
    down: u64,
    up: u64,
    recording: Recording,
}

fn state_bytes(peer: &Peer, to: PeerId) -> u64 {
    peer.stats(to).unwrap().sent.state_bytes
}

/// 300 ticks with loss and delay; a guest that joins in the middle, one that leaves and comes again. Everybody has the host's tables
/// in the end.
fn trained_session(seed: u64, trained: &Trained, record: bool) -> Outcome {
    let mut rng = Rng::new(seed);
    let config = Config { bandwidth: 8_000_000, packing: trained.packing.unwrap_or_default(), ..config() };
    let (host, guest) =
        (Config { tables: trained.host.clone(), ..config.clone() }, Config { tables: trained.guests.clone(), ..config });
    let (bad, network) = (weather(50, 0.05), Network::new(seed));
    let mut table = tidelock::testing::Table::new(seed, &schema(), host, network.host()).unwrap();
    for _ in 0..2 {
        table.join(guest.clone(), network.join(bad, bad)).unwrap();
    }
    if record {
        (0..2).for_each(|seat| table.seat(seat).peer.start_recording());
    }
    let mut third = 0;
    for frame in 0..300 {
        if frame == 100 || frame == 200 {
            third = table.join(guest.clone(), network.join(bad, bad)).unwrap();
        }
        if frame == 150 {
            table.leave(third);
        }
        table.run(|seat, world, step| match seat {
            0 => live(world, step, &mut rng),
            1 => live_as_guest(world, step, &mut rng),
            _ => {}
        });
    }
    assert_settles(&mut table, 20);
    assert_clean(&mut table);
    for seat in table.taken() {
        assert_eq!(table.seat(seat).peer.tables(), trained.host.as_ref(), "SEED={seed} seat {seat}");
    }
    // the second guest is told of what the first one owns, too
    let second = table.seat(2).peer.local();
    let (down, up) = (state_bytes(&table.seat(0).peer, second), state_bytes(&table.seat(1).peer, PeerId::HOST));
    let mut recording = Recording::from_bytes(&take(&mut table.seat(0).peer, record)).unwrap();
    recording.merge(&Recording::from_bytes(&take(&mut table.seat(1).peer, record)).unwrap()).unwrap();
    Outcome { down, up, recording }
}

/// What a peer has counted, as bytes; if it was not asked to, there is nothing.
fn take(peer: &mut Peer, recorded: bool) -> Vec<u8> {
    let taken = peer.take_recording();
    assert_eq!(taken.is_some(), recorded);
    assert!(peer.take_recording().is_none(), "it has ended");
    let recording = taken.unwrap_or_else(|| {
        peer.start_recording();
        peer.take_recording().unwrap()
    });
    assert_eq!(recording.total() > 0, recorded, "{} numbers", recording.total());
    recording.to_bytes()
}

/// Tables of a session of another seed, and others that are as good as any.
fn trained_tables(seed: u64) -> (Tables, Tables) {
    let recording = trained_session(seed + 1000, &Trained::default(), true).recording;
    let tables = Tables::train(&recording, 16).unwrap();
    assert_eq!(Tables::train(&recording, 16).unwrap().to_bytes(), tables.to_bytes(), "SEED={seed}");
    let other = Tables::train(&recording, 1).unwrap();
    assert_ne!(other.digest(), tables.digest());
    (tables, other)
}

/// Do two sessions take as many bytes? What is sent besides decides how much there is room for, so not to the byte.
fn is_like(a: &Outcome, b: &Outcome) -> bool {
    a.down.abs_diff(b.down) * 50 < b.down && a.up.abs_diff(b.up) * 50 < b.up
}

/// Whatever host and guests have: the host's tables are the session's, everything arrives, and it takes fewer bytes.
#[test]
fn trained_tables_are_understood_whoever_has_them() {
    for seed in seeds(2) {
        let (tables, other) = trained_tables(seed);
        let both = |host: Option<&Tables>, guests: Option<&Tables>| Trained {
            host: host.cloned(),
            guests: guests.cloned(),
            packing: None,
        };
        let plain = trained_session(seed, &both(None, None), false);
        let same = trained_session(seed, &both(Some(&tables), Some(&tables)), false);
        for (name, trained) in [
            ("none at the guests", both(Some(&tables), None)),
            ("others at the guests", both(Some(&tables), Some(&other))),
            ("none at the host", both(None, Some(&tables))),
        ] {
            println!("SEED={seed} {name}");
            let like = if trained.host.is_some() { &same } else { &plain };
            let found = trained_session(seed, &trained, false);
            assert!(
                is_like(&found, like),
                "SEED={seed} {name}: {} and {}, not {} and {}",
                found.down,
                found.up,
                like.down,
                like.up
            );
        }
        println!("SEED={seed}: {} down and {} up, trained {} and {}", plain.down, plain.up, same.down, same.up);
        assert!(same.down * 100 < plain.down * 97 && same.up < plain.up, "SEED={seed}");
        // a peer that is not to choose tables uses none, and understands them
        let packing = Some(Packing { tables: false, ..Packing::ALL });
        let without = |host| trained_session(seed, &Trained { host, guests: None, packing }, false);
        let (none, some) = (without(None), without(Some(tables)));
        assert!(some.down.abs_diff(none.down) * 10 < none.down, "SEED={seed}: {} bytes, not {}", some.down, none.down);
    }
}

#[test]
fn tables_travel_only_to_who_has_others_and_are_not_used_while_a_peer_records() {
    let seed = 5;
    let (tables, other) = trained_tables(seed);
    for (guests, travels) in [(Some(tables.clone()), false), (Some(other), true), (None, true)] {
        let network = Network::new(seed);
        let host = Config { tables: Some(tables.clone()), ..config() };
        let mut table = tidelock::testing::Table::new(seed, &schema(), host, network.host()).unwrap();
        let came = Arc::new(Mutex::new(Vec::new()));
        let inner = network.join(weather(20, 0.0), weather(20, 0.0));
        let watch = Tamper { inner, said: None, came: came.clone() };
        table.join(Config { tables: guests.clone(), ..config() }, watch).unwrap();
        table.rest(60);
        assert_eq!(table.seat(1).peer.tables(), Some(&tables), "SEED={seed}: {guests:?}");
        let came = came.lock().unwrap();
        assert_eq!(*came, [if travels { tables.to_bytes().len() } else { 0 }], "SEED={seed}: {guests:?}");
    }
    let trained = Trained { host: Some(tables), ..Trained::default() };
    let (plain, records) = (trained_session(seed, &Trained::default(), false), trained_session(seed, &trained, true));
    assert!(is_like(&records, &plain), "SEED={seed}: {} and {} bytes", records.down, plain.down);
}

/// Notes how many bytes of tables come with a guest's welcome, or gives it another one than its host sent: with these tables.
struct Tamper {
    inner: Loopback,
    said: Option<SessionTables>,
    came: Arc<Mutex<Vec<usize>>>,
}

impl Transport for Tamper {
    fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        let arrival = self.inner.poll(now, payload)?;
        if let (Arrival::Message { lane: Lane::CONTROL, .. }, Ok(Control::Welcome(mut welcome))) =
            (&arrival, control::decode(payload))
        {
            self.came.lock().unwrap().push(welcome.tables.as_ref().map_or(0, |tables| tables.bytes.len()));
            if let Some(said) = &self.said {
                welcome.tables = Some(said.clone());
                payload.clear();
                control::encode(&Control::Welcome(welcome), payload);
            }
        }
        Some(arrival)
    }

    fn facts(&self, link: LinkId) -> Option<Facts> {
        self.inner.facts(link)
    }

    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        self.inner.send_datagram(now, link, bytes)
    }

    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        self.inner.send_message(now, link, lane, bytes)
    }

    fn close(&mut self, now: Duration, link: LinkId, code: u32, text: &str) {
        self.inner.close(now, link, code, text);
    }

    fn flush(&mut self, now: Duration) {
        self.inner.flush(now);
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        self.inner.stats(link)
    }
}

/// A guest that uses tables which the session does not have is removed, and the others go on; so is it where the host has tables,
/// but fewer.
#[test]
fn a_guest_with_tables_of_its_own_invention_is_alone_with_them() {
    for seed in seeds(2) {
        let (tables, fewer) = trained_tables(seed);
        let said = SessionTables { digest: tables.digest(), bytes: tables.to_bytes() };
        for host in [None, Some(fewer)] {
            let mut rng = Rng::new(seed);
            let network = Network::new(seed);
            let own = Config { tables: host.clone(), ..config() };
            let mut table = tidelock::testing::Table::new(seed, &schema(), own, network.host()).unwrap();
            let bad = weather(30, 0.05);
            table.join(config(), network.join(bad, bad)).unwrap();
            table
                .join(config(), Tamper { inner: network.join(bad, bad), said: Some(said.clone()), came: Arc::default() })
                .unwrap();
            for _ in 0..400 {
                table.run(|seat, world, step| match seat {
                    0 => live(world, step, &mut rng),
                    _ => live_as_guest(world, step, &mut rng),
                });
            }
            let liar = table.seats[2].take().unwrap();
            assert_eq!(liar.peer.ended(), Some(&DisconnectReason::Malformed), "SEED={seed} {host:?}");
            let honest = table.seat(1).peer.local();
            assert_settles(&mut table, 20);
            assert!(table.seat(1).peer.ended().is_none(), "SEED={seed}");
            let stats = table.seat(0).peer.stats(honest).unwrap();
            assert_eq!(stats.link.malformed, 0, "SEED={seed}: {:?}", stats.link);
        }
    }
}

/// A guest whose host says what are no tables, or not those of the digest that it says, does not begin.
#[test]
fn a_welcome_with_what_are_no_tables_is_malformed() {
    for seed in seeds(1) {
        let (tables, other) = trained_tables(seed);
        let (digest, bytes) = (tables.digest(), tables.to_bytes());
        let mut wrong = bytes.clone();
        wrong[2] ^= 1;
        for (digest, bytes) in [
            (digest, Vec::new()),
            (other.digest(), Vec::new()),
            (other.digest(), bytes.clone()),
            (digest, bytes[..bytes.len() - 1].to_vec()),
            (digest, wrong),
        ] {
            let network = Network::new(seed);
            let mut table = tidelock::testing::Table::new(seed, &schema(), config(), network.host()).unwrap();
            let good = weather(10, 0.0);
            table.join(config(), network.join(good, good)).unwrap();
            // it has the other ones, which it has said; of the first it knows nothing
            let own = Config { tables: (digest != other.digest()).then(|| other.clone()), ..config() };
            let said = SessionTables { digest, bytes };
            table.join(own, Tamper { inner: network.join(good, good), said: Some(said.clone()), came: Arc::default() }).unwrap();
            table.rest(60);
            let guest = table.seats[2].take().unwrap();
            assert_eq!(guest.peer.ended(), Some(&DisconnectReason::Malformed), "SEED={seed} {said:?}");
            assert_settles(&mut table, 5);
        }
    }
}
