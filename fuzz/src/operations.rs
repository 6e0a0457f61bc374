//! What the programs of a host and two guests do, in any order and any weather: whatever it is, no peer panics, every value that
//! is shown is one that was held (the oracle of [`tidelock::testing::Table`]), and when nothing changes any more all worlds are
//! equal within [`SETTLING`].
//!
//! Input: two bytes of seed, two of weather; then operations, a byte with which seat and how many frames until the next one,
//! and three of what: see [`Play::operate`].

use crate::forge::Source;
use crate::game::{Actor, Position, schema};
use std::time::Duration;
use tidelock::Config;
use tidelock::testing::Table;
use tidelock_loopback::{Conditions, Direction, Network};

/// Within that the worlds are equal, from when the weather is fair and nothing changes.
pub const SETTLING: Duration = Duration::from_secs(10);
/// Operations of one input; what comes after them is not looked at.
const OPERATIONS: usize = 96;
/// The longest that an operation stalls a program: less than the time after which it counts as gone.
const STALL_MILLIS: u64 = 15;

/// A session that goes on.
struct Play {
    table: Table,
    network: Network,
    /// The seats of the two guests; who joins again sits down on a new one.
    guests: [usize; 2],
    /// Which guests' games despawned copies of what lives on elsewhere. Such a world is not equal again before the next session.
    forsook: [bool; 2],
}

/// The whole input is one session.
pub fn run(data: &[u8]) {
    let mut from = Source::new(data);
    let seed = from.short().into();
    let network = Network::new(seed);
    let mut table = Table::new(seed, &schema(), config(), network.host()).expect("a good configuration");
    let weather = weather(from.byte(), from.byte());
    let guests = [(); 2].map(|()| table.join(config(), network.join(weather, weather)).expect("a good configuration"));
    let mut play = Play { table, network, guests, forsook: [false; 2] };
    play.frames(12);
    for _ in 0..OPERATIONS {
        if from.is_empty() {
            break;
        }
        let first = from.byte();
        play.operate(usize::from(first) % 3, [from.byte(), from.byte(), from.byte()]);
        play.frames(u32::from(first / 3 % 8));
    }
    play.settle();
}

fn config() -> Config {
    Config { refusals: 1_000_000, name: "x".into(), ..Config::default() }
}

fn weather(how: u8, more: u8) -> Conditions {
    Conditions {
        latency: Duration::from_millis(u64::from(how % 16) * 8),
        jitter: Duration::from_millis(u64::from(how / 16) * 3),
        loss: f64::from(more % 8) * 0.06,
        duplicate: f64::from(more / 8 % 4) * 0.1,
        reorder: f64::from(more / 32 % 4) * 0.1,
        rate: (more >= 128).then_some(40_000),
        ..Conditions::default()
    }
}

impl Play {
    /// `what` below 16 is something that a game does (see [`Actor::act`]); then come those of people and of the network.
    fn operate(&mut self, who: usize, [what, which, how]: [u8; 3]) {
        let seat = if who == 0 { 0 } else { self.guests[who - 1] };
        match what % 22 {
            acted @ 0..=15 => self.with(seat, |mut actor| actor.act(acted, which, how)),
            16 if who != 0 => self.rejoin(who - 1, weather(which, how)),
            17 if who != 0 => self.kick(seat),
            18 => self.table.stall(seat, Duration::from_millis(u64::from(how) * STALL_MILLIS)),
            19 | 20 => {
                let links = self.network.links();
                let direction = if which & 1 == 0 { Direction::Up } else { Direction::Down };
                if let Some(link) = links.get(usize::from(which / 2) % links.len().max(1)) {
                    self.network.set_conditions(*link, direction, weather(how, which));
                }
            }
            21 if who != 0 => {
                self.forsook[who - 1] = true;
                self.with(seat, |actor| drop(actor.pick(which).map(|entity| actor.world.despawn(entity))));
            }
            _ => self.with(0, |mut actor| actor.act(12, which, how)),
        }
    }

    /// Lends a seat's peer and world to its game.
    fn with(&mut self, seat: usize, act: impl FnOnce(Actor<'_>)) {
        let seat = self.table.seat(seat);
        act(Actor { peer: &mut seat.peer, world: &mut seat.world });
    }

    /// A guest leaves, if it is in, and comes again with an empty world.
    fn rejoin(&mut self, guest: usize, weather: Conditions) {
        self.table.leave(self.guests[guest]);
        let transport = self.network.join(weather, weather);
        self.guests[guest] = self.table.join(config(), transport).expect("a good configuration");
        self.forsook[guest] = false;
    }

    fn kick(&mut self, seat: usize) {
        let peer = self.table.seat(seat).peer.local();
        self.with(0, |actor| drop(actor.peer.kick(actor.world, peer, "out")));
    }

    /// Frames in which everybody simulates what it has.
    fn frames(&mut self, count: u32) {
        for _ in 0..count {
            self.table.run(|_, world, step| {
                for position in step.query::<&mut Position>(world).iter() {
                    position.x = if position.x >= 400.0 { 0.0 } else { position.x + 0.25 };
                }
            });
        }
    }

    /// Fair weather, everybody awake and in, and nothing that changes: then all worlds become equal.
    fn settle(&mut self) {
        let fair = Conditions { latency: Duration::from_millis(10), ..Conditions::default() };
        for link in self.network.links() {
            for direction in [Direction::Up, Direction::Down] {
                self.network.set_conditions(link, direction, fair);
            }
        }
        let awake = self.table.seats.iter().flatten().map(|s| s.stalled_until).max().unwrap_or_default();
        while self.table.now <= awake {
            self.frames(1);
        }
        self.frames(30); // farewells arrive
        for guest in 0..2 {
            if self.forsook[guest] || self.table.seat(self.guests[guest]).peer.ended().is_some() {
                self.rejoin(guest, fair);
            }
        }
        let mut until = self.table.now + SETTLING;
        let mut again = [false; 2];
        while self.table.now < until {
            for guest in 0..2 {
                // what the weather did to an admission shows late: its messages are still on their way
                if self.table.seat(self.guests[guest]).peer.ended().is_some() && !again[guest] {
                    again[guest] = true;
                    self.rejoin(guest, fair);
                    until = self.table.now + SETTLING;
                }
            }
            for seat in [0, self.guests[0], self.guests[1]] {
                self.with(seat, |mut actor| actor.mend());
            }
            self.table.rest(1);
            let all_in = self.guests.iter().all(|g| self.table.seats[*g].as_ref().is_some_and(|s| s.peer.is_in_session()));
            if all_in && self.table.all_equal().is_ok() && self.are_lists_equal() {
                return;
            }
        }
        let ends: Vec<_> = self.guests.map(|g| self.table.seat(g).peer.ended().cloned()).into();
        let differences: Vec<_> = self.guests.iter().flat_map(|g| self.table.differences(*g)).take(12).collect();
        panic!(
            "not equal after {SETTLING:?} of rest: {:?}; over for the guests: {ends:?}\n{}",
            self.table.all_equal(),
            differences.join("\n")
        );
    }
}

impl Play {
    /// Do all have the same lists and maps?
    fn are_lists_equal(&mut self) -> bool {
        let mut lists = [0, self.guests[0], self.guests[1]].map(|seat| {
            let peer = &self.table.seat(seat).peer;
            let feed = peer.list::<Vec<u8>>().expect("it is in the schema");
            (feed.items().clone(), peer.map::<u8, u16>().expect("it is in the schema").items().clone())
        });
        let host = std::mem::take(&mut lists[0]);
        lists[1..].iter().all(|list| *list == host)
    }
}

/// Each operation by each peer; people that come and go; bad weather.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let script = |weather: [u8; 2], operations: &[[u8; 4]]| [&[1, 0][..], &weather, operations.as_flattened()].concat();
    let games: Vec<[u8; 4]> = (0..96u8)
        .map(|i| [i.wrapping_mul(5), [0, 1, 2, 15, 5, 7, 10, 9, 14, 11, 13, 6, 8, 3, 12, 4][usize::from(i % 16)], i, i])
        .collect();
    let people: Vec<[u8; 4]> = (0..60u8)
        .map(|i| [i.wrapping_mul(7), [0, 1, 16, 2, 7, 17, 18, 16, 21][usize::from(i % 9)], i, i.wrapping_mul(3)])
        .collect();
    let network: Vec<[u8; 4]> = (0..60u8)
        .map(|i| [i.wrapping_mul(7), [0, 1, 19, 15, 3, 20, 12][usize::from(i % 7)], i.wrapping_mul(11), i.wrapping_mul(5)])
        .collect();
    vec![
        script([0, 0], &games),
        script([0x25, 0x6b], &games),
        script([4, 1], &people),
        script([2, 0x82], &network),
        GHOST.to_vec(),
    ]
}

/// An entity that went before its first capture.
const GHOST: &[u8] =
    &[40, 83, 128, 0, 0, 0, 251, 0, 0, 114, 122, 0, 10, 25, 16, 40, 83, 128, 0, 0, 40, 83, 128, 0, 0, 122, 0, 10, 37];
