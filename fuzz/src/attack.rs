//! One peer under attack: what lies between it and the other end of one of its links is in the hands of the input.
//!
//! The other end is a real peer, the *puppet*, all of whose packets can be let through, changed, repeated or dropped; or nobody,
//! and every packet is forged. Either way the victim was told a true greeting first.
//!
//! Input: a byte whose lowest bit says whether there is a puppet; then operations, see [`Attack::operate`].

use crate::ALLOCATED;
use crate::forge::{self, Place, Source};
use crate::game::{Banner, FRAME, Program, Tag, Title, schema};
use crate::wire::{Cable, Parcel, Side};
use cpu_time::ThreadTime;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidelock::trained::Tables;
use tidelock::{Config, PeerId, Relevance};
use tidelock_netcore::bulk::{Announce, Bulk};
use tidelock_netcore::control::{self, Control, Digest, SessionTables, Verdict, Welcome};
use tidelock_netcore::limits;
use tidelock_netcore::session::Terms;
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::Lane;

/// Operations of one input; what comes after them is not looked at.
const OPERATIONS: usize = 200;
/// The longest that one datagram or message may keep its receiver, in time of the processor, sanitizers and assertions aside.
pub const TIME_LIMIT: Duration = Duration::from_millis(50);
/// How much slower the sanitizer and debug assertions are, on the safe side.
const SLOWNESS: u32 = if cfg!(debug_assertions) { 8 } else { 1 };
/// Bytes that a row of a stream may cost its receiver at the peak, whatever was said about it. In this game's schema: 100 for the
/// newest values; 96 for the marks of what changed in the 64 ticks of the ring; 44 for the row's own state; and four times as
/// much, because tables grow by doubling and the old one is there while the new one is filled.
pub const ROW_BYTES: usize = 1024;
/// Bytes that one byte on the wire may make a receiver keep: a bit can be a value that is as it was, and its log entry takes at
/// most 84 bytes, at doubled capacity, with as much again for decoding it and for what the world and the host's own stream keep.
pub const BYTE_COST: usize = 8 * 84 * 4;
/// Bytes of everything else: three peers at rest.
pub const REST_BYTES: usize = 8 << 20;

/// The peer under attack, and what is done to it.
pub struct Attack {
    /// Under attack.
    pub victim: Program,
    side: Side,
    cable: Cable,
    puppet: Option<(Program, Cable)>,
    /// What the puppet has sent and the victim has not got.
    pending: VecDeque<Parcel>,
    /// What the victim got lately.
    old: VecDeque<Parcel>,
    /// Virtual time.
    pub now: Duration,
    place: Place,
    /// Parcels of the attacker since the victim last looked.
    unseen: u32,
    delivered: usize,
    longest: Duration,
    held_before: usize,
}

/// The configuration of everybody.
#[must_use]
pub fn config() -> Config {
    Config { session: Some(7), name: "x".into(), tables: Some(tables()), ..Config::default() }
}

/// Trained tables: two, in which most tokens have no code.
#[must_use]
pub fn tables() -> Tables {
    let mut bytes = vec![1, 2];
    for lengths in [[(0, 1), (1, 3), (20, 3), (72, 2)], [(0, 2), (1, 2), (2, 2), (72, 2)]] {
        let mut halves = [0; 74];
        lengths.into_iter().for_each(|(token, length)| halves[token] = length);
        bytes.extend(halves.chunks(2).map(|two| two[0] | two[1] << 4));
    }
    Tables::from_bytes(&bytes).expect("complete codes")
}

impl Attack {
    /// `side` is the victim's; `cables` those of a host beside the one that is attacked, which is the last. The puppet, if there
    /// is one, is made here.
    #[must_use]
    pub fn new(side: Side, others: &[Cable], puppet: bool) -> Self {
        let (cable, behind) = (Cable::default(), Cable::default());
        let cables: Vec<Cable> = others.iter().cloned().chain([cable.clone()]).collect();
        let (victim, make_puppet): (_, fn(&Cable) -> Program) = match side {
            Side::Host => (Program::host(&cables, config()), |cable| Program::guest(cable, config())),
            Side::Guest => (Program::guest(&cable, config()), |cable| Program::host(std::slice::from_ref(cable), config())),
        };
        let puppet = puppet.then(|| (make_puppet(&behind), behind));
        let place = Place { number: 1, send_tick: Tick(1), tick: Tick(0), lease: limits::LEASE * 2, peer: PeerId(2) };
        let (pending, old) = (VecDeque::new(), VecDeque::new());
        let (now, longest) = (Duration::ZERO, Duration::ZERO);
        Self { victim, side, cable, puppet, pending, old, now, place, unseen: 0, delivered: 0, longest, held_before: 0 }
    }

    /// A puppet that is a host shows its guest only a part: not what has a tag, and no titles of what has a banner. Before it gets in.
    pub fn hide_some(&mut self) {
        let Some((puppet, _)) = self.puppet.as_mut().filter(|_| self.side == Side::Guest) else { return };
        let untagged = Relevance::everything().rule(|sight| sight.get::<Tag>().is_none());
        let relevance = untagged.show_only::<Title>(|sight| sight.get::<Banner>().is_none());
        puppet.peer.set_relevance(relevance).expect("nobody is in yet");
    }

    /// Gets the attacker in. Call it when the others are.
    pub fn admit(&mut self, mut frame: impl FnMut(Duration)) {
        if self.puppet.is_none() {
            let mut bytes = Vec::new();
            let terms = Terms::new(control::PROTOCOL_VERSIONS, schema().digest(), &schema().entries());
            let message = match self.side {
                Side::Host => Control::Hello(terms.hello("raw")),
                Side::Guest => Control::Welcome(welcome()),
            };
            control::encode(&message, &mut bytes);
            self.cable.push(self.side, Parcel::Message(Lane::CONTROL, bytes));
        }
        for _ in 0..4 {
            self.frame();
            frame(self.now);
            while self.deliver_next() {}
        }
        match &self.puppet {
            Some((puppet, _)) => assert!(puppet.peer.is_in_session() && self.victim.peer.is_in_session()),
            None => assert!(self.victim.peer.peers().len() >= 2, "the forger is not in"),
        }
        ALLOCATED.reset_peak_usage();
        self.held_before = ALLOCATED.current_usage();
    }

    /// One frame of the victim and the puppet.
    pub fn frame(&mut self) {
        self.now += FRAME;
        self.look();
        self.victim.step();
        self.victim.send(self.now);
        self.run_puppet();
        self.place.tick = Tick(self.now.as_micros() as u64 * 60 / 1_000_000);
    }

    /// The victim looks at what has come.
    fn look(&mut self) {
        // either clock errs upwards: one counts what others did with the processor, one may count in steps of milliseconds
        let (busy, began) = (ThreadTime::now(), Instant::now());
        self.victim.receive(self.now);
        let each = busy.elapsed().min(began.elapsed()) / self.unseen.max(1);
        self.unseen = 0;
        self.longest = self.longest.max(each);
    }

    fn run_puppet(&mut self) {
        let (here, there) = (self.side, other(self.side));
        let Some((puppet, behind)) = &mut self.puppet else {
            while self.cable.pop(there).is_some() {}
            return;
        };
        while let Some(parcel) = self.cable.pop(there) {
            behind.push(there, parcel);
        }
        puppet.receive(self.now);
        puppet.step();
        puppet.send(self.now);
        while let Some(parcel) = behind.pop(here) {
            self.pending.push_back(parcel);
        }
        // what nobody lets through is lost
        while self.pending.len() > 64 {
            self.pending.pop_front();
        }
    }

    fn deliver(&mut self, parcel: Parcel) {
        if self.old.len() == 8 {
            self.old.pop_front();
        }
        self.old.push_back(parcel.clone());
        self.unseen += 1;
        let mut counted = parcel;
        self.delivered += counted.bytes_mut().len();
        self.cable.push(self.side, counted);
    }

    fn deliver_next(&mut self) -> bool {
        let Some(parcel) = self.pending.pop_front() else { return false };
        self.deliver(parcel);
        true
    }

    /// One operation. The low bits of its first byte say which; the highest one, whether the victim looks at once.
    fn operate(&mut self, from: &mut Source<'_>, mut frame: impl FnMut(Duration)) {
        let code = from.byte();
        match code & 0x7f {
            0..=15 => {
                self.frame();
                frame(self.now);
            }
            16..=23 => drop(self.deliver_next()),
            24..=39 => {
                if let Some(parcel) = self.pending.pop_front() {
                    self.deliver(changed(parcel, from));
                }
            }
            40..=47 => {
                let which = usize::from(from.byte()) % self.old.len().max(1);
                if let Some(parcel) = self.old.get(which).cloned() {
                    self.deliver(changed(parcel, from));
                }
            }
            48..=63 => self.deliver(Parcel::Datagram(from.bytes().iter().copied().take(limits::DATAGRAM_MAX_BYTES).collect())),
            67 => {
                let mut bytes = Vec::new();
                forged_bulk(from, &mut bytes);
                self.deliver(Parcel::Message(Lane::BULK, bytes));
            }
            64..=66 => {
                let lane = Lane(from.byte() % Lane::COUNT);
                self.deliver(Parcel::Message(lane, from.bytes().to_vec()));
            }
            code @ 68..=87 => {
                let make = if code < 80 { forge::packet } else { forge::list };
                let mut bytes = make(from, &mut self.place);
                bytes.truncate(limits::DATAGRAM_MAX_BYTES);
                self.deliver(Parcel::Datagram(bytes));
            }
            88..=91 => {
                let mut bytes = Vec::new();
                control::encode(&forged_control(from), &mut bytes);
                self.deliver(Parcel::Message(Lane::CONTROL, bytes));
            }
            92..=103 => {
                let (what, which, how) = (from.byte(), from.byte(), from.byte());
                if let Some((puppet, _)) = &mut self.puppet {
                    puppet.act(what, which, how);
                }
            }
            104..=115 => self.victim.act(from.byte(), from.byte(), from.byte()),
            116..=121 => while self.deliver_next() {},
            _ => drop(self.pending.pop_front()),
        }
        if code & 0x80 != 0 {
            self.look();
        }
    }

    /// Everything that the input says. `act` is told each third sort of byte that is for the others; `frame`, every frame.
    pub fn run(&mut self, from: &mut Source<'_>, mut frame: impl FnMut(Duration)) {
        for _ in 0..OPERATIONS {
            if from.is_empty() {
                break;
            }
            self.operate(from, &mut frame);
        }
        self.look();
    }

    /// Compares what the attack cost with what it may cost. `rows` is how many the attacker's stream may have.
    pub fn check_memory(&self, rows: usize) {
        let peak = ALLOCATED.peak_usage().saturating_sub(self.held_before);
        let limit = rows * ROW_BYTES + self.delivered * BYTE_COST + REST_BYTES;
        assert!(peak <= limit, "{} bytes made the victim hold {peak}, at most {limit} were promised", self.delivered);
        figure("most memory, in kB", &MEMORY, (peak / 1000) as u64);
    }

    /// Compares the time that one parcel took at most with what it may take.
    pub fn check_time(&self) {
        assert!(self.longest < TIME_LIMIT * SLOWNESS, "one parcel kept its receiver for {:?}", self.longest);
        figure("longest per datagram, in µs", &LONGEST, self.longest.as_micros() as u64);
    }
}

static LONGEST: AtomicU64 = AtomicU64::new(0);
static MEMORY: AtomicU64 = AtomicU64::new(0);
static FIGURES: AtomicUsize = AtomicUsize::new(0);

/// With `FIGURES` in the environment, new maxima are printed.
fn figure(name: &str, of: &AtomicU64, value: u64) {
    if of.fetch_max(value, Ordering::Relaxed) >= value {
        return;
    }
    if FIGURES.load(Ordering::Relaxed) == 0 {
        FIGURES.store(if std::env::var_os("FIGURES").is_some() { 2 } else { 1 }, Ordering::Relaxed);
    }
    if FIGURES.load(Ordering::Relaxed) == 2 {
        eprintln!("{name}: {value}");
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Host => Side::Guest,
        Side::Guest => Side::Host,
    }
}

/// A parcel with some bytes changed, and cut or made longer.
fn changed(mut parcel: Parcel, from: &mut Source<'_>) -> Parcel {
    let how = from.byte();
    let bytes = parcel.bytes_mut();
    for _ in 0..how % 8 {
        let (at, with) = (usize::from(from.short()), from.byte());
        if let Some(at) = at.checked_rem(bytes.len()) {
            bytes[at] ^= with;
        }
    }
    match how >> 6 {
        1 => bytes.truncate(usize::from(from.short())),
        2 => bytes.extend_from_slice(from.bytes()),
        _ => {}
    }
    bytes.truncate(limits::DATAGRAM_MAX_BYTES);
    parcel
}

fn welcome() -> Welcome {
    let (version, session, epoch, peer) = (control::PROTOCOL_VERSIONS[0], 7, 0, 2);
    Welcome {
        version,
        session,
        epoch,
        peer,
        tick_rate: 60,
        time_us: 0,
        lease: limits::LEASE * 2,
        peers: vec![(0, "host".into())],
        tables: Some(SessionTables { digest: tables().digest(), bytes: tables().to_bytes() }),
    }
}

/// A message of the lane of large things, of numbers so small that some follow each other.
fn forged_bulk(from: &mut Source<'_>, out: &mut Vec<u8>) {
    let (what, topic, id) = (from.byte(), from.byte() % 5, u32::from(from.byte() % 8));
    let number = u32::from(from.byte()) << (what >> 4);
    match what % 4 {
        0 => Bulk::Announce(Announce { topic, id, length: number, digest: u64::from(from.short()) }).write(out),
        1 => Bulk::Announce(Announce { topic, id, length: 16 << 20, digest: 0 }).write(out),
        2 => Bulk::Piece { topic, id, offset: number, bytes: from.bytes() }.write(out),
        _ if what & 8 != 0 && topic == 4 => Bulk::Gone { topic, id }.write(out),
        _ => Bulk::Word { topic, id, bytes: number }.write(out),
    }
}

fn forged_control(from: &mut Source<'_>) -> Control {
    let (round, peer) = (from.byte().into(), from.byte().into());
    match from.byte() % 8 {
        0 => Control::LeaseRequest,
        1 => Control::Digest(Digest {
            round,
            parts: from.bytes().iter().take(limits::COMPONENTS).map(|b| ((*b).into(), 5)).collect(),
        }),
        2 => Control::Verdict(Verdict {
            round,
            differing: from.bytes().iter().take(limits::COMPONENTS).map(|b| (*b).into()).collect(),
        }),
        3 => Control::Joined { peer, name: "new".into() },
        4 => Control::Left { peer, code: round, text: "gone".into() },
        5 => Control::Lease { first: u64::from(from.short()) << 16 },
        6 => Control::Welcome(welcome()),
        _ => Control::Hello(Terms::new(&[1], schema().digest(), &[]).hello("again")),
    }
}

/// Inputs that lead deep into an attack: with and without a puppet, let through, changed and repeated; forged packets of each
/// sort; and what a real peer sends, as bytes.
#[must_use]
pub fn seeds(recorded: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let acts: Vec<u8> = (0..16u8).flat_map(|what| [92, what, what * 3, 40 + what, 0, 116]).collect();
    let others: Vec<u8> = (0..16u8).flat_map(|what| [104, what, what * 3, 40 + what, 0, 116]).collect();
    let through = [&[1][..], &acts, &others, &acts].concat();
    let flips: Vec<u8> = (0..40u8).flat_map(|i| [92, i % 3, i, i, 0, 24, 1, i.wrapping_mul(7), 0, 1 << (i % 8), 0]).collect();
    let repeats: Vec<u8> = (0..30u8).flat_map(|i| [92, 0, i, i, 0, 16, 40, i, 0, 0x80 | 40, i, 2, 9, 0, 255, 20, 0, 3]).collect();
    let spawn = |life: u8, kind: u8| [68, 0x40 | 8, 1, 0, 2, 0, 3, 0, 16, 4, 9, 0, life, kind, 0];
    let spawns =
        [&[0][..], &[spawn(1, 1), spawn(1, 2), spawn(2, 1), spawn(1, 0x81), spawn(0, 1), spawn(1, 0x41)].concat()].concat();
    let raws: Vec<u8> =
        (0..24u8).flat_map(|i| [68, 0x40 | i, 1, 0, 2, 0, 3, 0, i % 16, 255, i, 0, 7, 0, 4, 0, i, 255, 0, 1, 0]).collect();
    let controls: Vec<u8> = (0..8u8).flat_map(|i| [88, 1, 2, i, 2, 0, 0, 1, 0]).collect();
    let mut seeds = vec![through, [&[1][..], &flips].concat(), [&[1][..], &repeats].concat(), spawns];
    seeds.push([&[0][..], &raws].concat());
    // lists of rows: spawns and their ends, of which some have a tag; and raw values
    let named = |life: u8| [&[80, 0, 0x40, 12, 0, 3, 0][..], &[life << 6 | 4, 8 | life << 6, 8 | life << 6].repeat(4)].concat();
    let raw_rows =
        |i: u8| [80, i & 1, i & 0x1f, 2, i, 0, 0, i & 0xf7, 1, 1 << (i % 8), 4, 0, i, 255, 0, 9, 0, 0x80, 1, 2, 0, 7, 7];
    let lists: Vec<u8> = [named(1), named(1), named(2), named(0)].concat();
    seeds.push([&[0][..], &lists, &(0..24).flat_map(raw_rows).collect::<Vec<u8>>()].concat());
    seeds.extend((0..4).map(|i| [&[0][..], &controls[i * 18..]].concat()));
    let record = recorded.iter().flat_map(|bytes| [&[0x80 | 48][..], &(bytes.len() as u16).to_le_bytes(), bytes, &[0]].concat());
    seeds.push([0].into_iter().chain(record).collect());
    seeds
}

/// The datagrams of a puppet that acts, for seeds. `hides`: see [`Attack::hide_some`].
#[must_use]
pub fn record(side: Side, others: &[Cable], hides: bool, mut frame: impl FnMut(Duration)) -> Vec<Vec<u8>> {
    let mut attack = Attack::new(side, others, true);
    if hides {
        attack.hide_some();
    }
    attack.admit(&mut frame);
    let mut out = Vec::new();
    for i in 0..24u8 {
        if let Some((puppet, _)) = &mut attack.puppet {
            puppet.act([0, 1, 5, 7, 15, 10, 3, 2][usize::from(i % 8)], i, i);
        }
        attack.frame();
        frame(attack.now);
        out.extend(attack.pending.iter().filter_map(|p| match p {
            Parcel::Datagram(bytes) => Some(bytes.clone()),
            Parcel::Message(..) => None,
        }));
        while attack.deliver_next() {}
    }
    out
}
