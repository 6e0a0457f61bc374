//! Definitions at a guest, whose host is the input: batches of changes, true ones and any bytes, each as one blob. Whatever comes, the
//! guest does not panic, keeps no more than it may, is told of no more than came, and holds what a plain list says as long as it stays.
//! What it allocates meanwhile is a small multiple of what it was sent.
//!
//! Input: operations, each a byte. By it modulo 4: the end of a definition (a byte of key), a new revision (a byte of key, one of the
//! revision, one of length and so many of its text), any bytes (one of length), or the blob so far goes out.

use crate::ALLOCATED;
use crate::forge::Source;
use crate::game::FRAME;
use crate::wire::{Cable, Parcel, Plug, Side};
use hecs::World;
use std::collections::BTreeMap;
use std::time::Duration;
use tidelock::{Config, News, Peer, Schema};
use tidelock_netcore::bulk::{Announce, Bulk};
use tidelock_netcore::control::{self, Control, Welcome};
use tidelock_netcore::limits;
use tidelock_netcore::transport::Lane;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that a byte of a batch may make a guest allocate for a moment: a change of ten bytes is a few times forty in lists and tables
/// that grow by doubling, and as much in news and what is kept.
const BYTE_COST: usize = 256;
/// Bytes of everything else: a peer at rest, and what a frame of it takes.
const REST_BYTES: usize = 2 << 20;
/// Blobs of one input at most.
const BLOBS: u32 = 64;

struct Game {
    cable: Cable,
    guest: Peer,
    world: World,
    now: Duration,
    blobs: u32,
    /// What it must hold, by key: the revision and the text.
    list: BTreeMap<u64, (u32, String)>,
    told: usize,
}

/// What the changes of a batch come to, if it is one.
struct Batch {
    bytes: Vec<u8>,
    /// As the list is after it; `None` once it cannot be one.
    after: Option<BTreeMap<u64, (u32, String)>>,
    /// It has bytes of which only the guest can say what they are.
    is_odd: bool,
    values: usize,
}

impl Game {
    fn new() -> Self {
        let schema = Schema::builder("definitions").definition::<String>("name").definition::<Vec<Option<u64>>>("number");
        let schema = schema.build().expect("a schema without mistakes");
        let cable = Cable::default();
        let guest = Peer::join(schema, Plug::guest(&cable), Config::default()).expect("a good configuration");
        let mut game = Self { cable, guest, world: World::new(), now: Duration::ZERO, blobs: 0, list: BTreeMap::new(), told: 0 };
        let welcome = Welcome {
            version: control::PROTOCOL_VERSIONS[0],
            session: 7,
            epoch: 0,
            peer: 2,
            tick_rate: 60,
            time_us: 0,
            lease: limits::LEASE * 2,
            peers: vec![(0, "host".into())],
            tables: None,
        };
        game.frame();
        let mut bytes = Vec::new();
        control::encode(&Control::Welcome(welcome), &mut bytes);
        game.cable.push(Side::Guest, Parcel::Message(Lane::CONTROL, bytes));
        game.frame();
        assert!(game.guest.is_in_session(), "the guest is not in");
        game
    }

    fn frame(&mut self) {
        self.now += FRAME;
        self.guest.receive(self.now, &mut self.world).expect("time goes on");
        while self.guest.next_step(&mut self.world).is_some() {}
        self.guest.send(self.now, &mut self.world).expect("time goes on");
        while self.cable.pop(Side::Host).is_some() {}
        while let Some(news) = self.guest.poll_news() {
            self.told += usize::from(matches!(news, News::Defined { .. }));
        }
    }

    /// Sends a batch, and compares.
    fn send(&mut self, batch: &Batch) {
        self.blobs += 1;
        let (id, bytes) = (self.blobs, &batch.bytes);
        let (before, held) = (self.told, ALLOCATED.current_usage());
        ALLOCATED.reset_peak_usage();
        let mut message = Vec::new();
        Bulk::Announce(Announce { topic: 0, id, length: bytes.len() as u32, digest: xxh3_64(bytes) }).write(&mut message);
        self.cable.push(Side::Guest, Parcel::Message(Lane::BULK, message));
        for (i, piece) in bytes.chunks(limits::BLOB_PIECE).enumerate() {
            let mut message = Vec::new();
            Bulk::Piece { topic: 0, id, offset: (i * limits::BLOB_PIECE) as u32, bytes: piece }.write(&mut message);
            self.cable.push(Side::Guest, Parcel::Message(Lane::BULK, message));
        }
        self.frame();
        let peak = ALLOCATED.peak_usage().saturating_sub(held);
        let most = bytes.len() * BYTE_COST + REST_BYTES;
        assert!(peak <= most, "a batch of {} bytes made the guest allocate {peak}, at most {most} were promised", bytes.len());
        assert!(self.told - before <= bytes.len() / 18, "{} were told of {} bytes", self.told - before, bytes.len());
        if !batch.is_odd {
            assert_eq!(self.guest.is_in_session(), batch.after.is_some(), "a batch of {} bytes", bytes.len());
            if let Some(after) = &batch.after {
                assert_eq!(self.told - before, batch.values, "each new revision is told");
                self.list.clone_from(after);
            }
        }
        if self.guest.is_in_session() && !batch.is_odd {
            self.compare();
        }
    }

    fn compare(&self) {
        for key in 0..=255 {
            let newest = self.guest.newest_definition::<String>(key).expect("it is in the schema");
            let has = newest.map(|of| {
                let found = self.guest.definition(of).expect("it is in the schema");
                (of.revision, found.value().expect("it is the newest").to_string())
            });
            assert_eq!(has.as_ref(), self.list.get(&key), "key {key}");
        }
    }
}

fn end(key: u64, out: &mut Vec<u8>) {
    out.extend([1, 0]);
    out.extend(key.to_le_bytes());
}

fn value(key: u64, revision: u32, of: &[u8], out: &mut Vec<u8>) {
    out.extend([0, 0]);
    out.extend(key.to_le_bytes());
    out.extend(revision.to_le_bytes());
    out.extend((of.len() as u32).to_le_bytes());
    out.extend(of);
}

/// See the module.
pub fn run(data: &[u8]) {
    let (mut game, mut from) = (Game::new(), Source::new(data));
    let begin = |game: &Game| Batch { bytes: Vec::new(), after: Some(game.list.clone()), is_odd: false, values: 0 };
    let mut batch = begin(&game);
    let mut changes = 0;
    while !from.is_empty() && game.guest.is_in_session() && game.blobs < BLOBS {
        match from.byte() {
            // many at once
            operation @ 252..=255 => {
                let count = 1100 * (usize::from(operation) - 251);
                (0..count as u64).for_each(|key| end(1000 + key, &mut batch.bytes));
                changes += count;
            }
            operation if operation % 4 == 0 => {
                let key = u64::from(from.byte());
                end(key, &mut batch.bytes);
                changes += 1;
                batch.after.as_mut().map(|list| list.remove(&key));
            }
            operation if operation % 4 == 1 => {
                let (key, revision) = (u64::from(from.byte()), u32::from(from.byte()));
                let text: String = from.bytes().iter().map(|byte| char::from(byte % 128)).collect();
                value(key, revision, &bitcode::encode(&text), &mut batch.bytes);
                (changes, batch.values) = (changes + 1, batch.values + 1);
                let is_newer = batch.after.as_ref().is_some_and(|list| list.get(&key).is_none_or(|old| old.0 < revision));
                batch.after = batch.after.take().filter(|_| is_newer);
                batch.after.as_mut().map(|list| list.insert(key, (revision, text)));
            }
            operation if operation % 4 == 2 => {
                batch.bytes.extend(from.bytes());
                batch.is_odd = true;
            }
            _ => {
                if changes > limits::DEFINITION_CHANGES {
                    batch.after = None;
                }
                game.send(&batch);
                if batch.is_odd {
                    return; // what it holds now only the guest can say
                }
                (batch, changes) = (begin(&game), 0);
            }
        }
    }
}

/// Definitions that come, change and end; a revision that is no newer; cut and any bytes; as many ends as go together, and more.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let text = |bytes: &[u8]| [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat();
    let value = |key: u8, revision: u8, of: &[u8]| [vec![1, key, revision], text(of)].concat();
    let any = |of: &[u8]| [vec![2], text(of)].concat();
    let mut cut = Vec::new();
    self::value(7, 9, &bitcode::encode(&vec![Some(5u64), None]), &mut cut);
    cut[1] = 1;
    vec![
        [value(1, 1, b"hat"), vec![3], value(1, 2, b"cap"), value(2, 3, b""), vec![3, 0, 1, 3, 0, 2, 0, 9, 3]].concat(),
        [value(1, 5, b"hat"), vec![3], value(1, 5, b"no newer"), vec![3]].concat(),
        [value(1, 5, b"a"), value(1, 6, b"b"), vec![0, 1], value(1, 4, b"again"), vec![3]].concat(),
        [any(&cut), vec![3]].concat(),
        [any(&cut[..cut.len() - 1]), vec![3]].concat(),
        [any(&[0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255]), vec![3]].concat(),
        [value(1, 1, b"x"), vec![254, 3, 0, 1, 3]].concat(),
        vec![255, 3],
        (0..60u8).flat_map(|n| [value(n % 8, n, &[n; 3]), vec![3]].concat()).collect(),
    ]
}
