//! A whole session in one process on virtual time, for tests of this library and of games.
//!
//! A [`Table`] holds a host and guests with their worlds and drives them frame by frame. The weather between them is the
//! transports' own (the loopback's network, for one), so every fault that a transport can be told to have can be tested. All
//! along, an **oracle** compares what each peer shows with what the value's publisher held: every value shown must be one that
//! was held, and its version must never go back. Nothing here reads a clock or sleeps, and a seed replays a run exactly.
//!
//! ```
//! # use std::time::Duration;
//! # use tidelock::{Checkpoint, Config, News, Replicate, Schema, policy::Host, testing::Table};
//! # use tidelock_loopback::{Conditions, Network};
//! # #[derive(Clone, Copy, Replicate, Checkpoint)] struct At(i32);
//! # #[derive(Clone, Copy, Default, Replicate)] struct Pad(i8);
//! # #[derive(Clone, Copy, Default)] struct Runner;
//! # let schema = Schema::builder("game").component::<At>("at", |c| c.checkpoint()).kind::<Runner>("runner", Host::predicted());
//! # let schema = schema.input::<Pad>("pad").build()?;
//! let network = Network::new(7);
//! let far = Conditions { latency: Duration::from_millis(60), loss: 0.03, ..Conditions::default() };
//! let mut table = Table::new(7, &schema, Config::default(), network.host())?;
//! let guest = table.join(Config::default(), network.join(far, far))?;
//! for _ in 0..200 {
//!     table.seat(guest).peer.set_input(&Pad(1))?;
//!     let host = table.seat(0);
//!     for news in host.take_news() {
//!         if let News::Joined { peer, .. } = news {
//!             let runner = host.peer.spawn(&mut host.world, Runner, (At(0),))?;
//!             host.peer.grant(&mut host.world, runner, 0, peer)?;
//!         }
//!     }
//!     table.run(|_seat, world, step| {
//!         for (runner, at) in step.query::<(hecs::Entity, &mut At)>(world).iter() {
//!             let owner = step.owner(world, runner).unwrap();
//!             at.0 += step.input::<Pad>(owner).map_or(0, |pad| i32::from(pad.value.0));
//!         }
//!     });
//! }
//! assert!(table.settle(Duration::from_secs(5)), "{:?}", table.all_equal());
//! # assert!(table.seat(guest).world.query::<&At>().iter().all(|at| at.0 > 100));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::block::bits;
use crate::config::Config;
use crate::entities::{Record, name_in};
use crate::error::UsageError;
use crate::layout::Layout;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use crate::schema::Schema;
use crate::step::Step;
use hecs::World;
use rustc_hash::FxHashMap;
use std::time::Duration;
use tidelock_netcore::error::DisconnectReason;
use tidelock_netcore::transport::Transport;

pub mod determinism;

/// A peer and its world.
pub struct Seat {
    /// The peer.
    pub peer: Peer,
    /// Its world.
    pub world: World,
    /// All news that came and were not taken yet.
    pub news: Vec<News>,
    /// Until then the program does nothing: it loads a level, or its laptop sleeps.
    pub stalled_until: Duration,
    sight: Sight,
}

impl Seat {
    /// Takes the news that came.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// What its peer still keeps for the sake of something that is not certain yet.
    #[must_use]
    pub fn leftovers(&self) -> Leftovers {
        let saves = Timeline::ALL.iter().filter_map(|line| self.peer.saves[*line].as_ref());
        Leftovers {
            parked: self.peer.entities.iter().filter(|(_, record)| record.parked).count(),
            in_limbo: saves.map(|saves| saves.limbo.len()).sum(),
            tracks: self.peer.stray_tracks(),
        }
    }

    /// The local copy of the entity with that name.
    #[must_use]
    pub fn find(&self, net: NetId) -> Option<hecs::Entity> {
        self.peer.entity_of(net).filter(|e| self.world.contains(*e))
    }
}

/// What a peer keeps for the sake of something that is not certain yet: all of it goes when changes stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Entities whose despawn may be taken back.
    pub parked: usize,
    /// The same, as the store counts them that keeps their components.
    pub in_limbo: usize,
    /// Predictions of entities that are gone, or that this peer does not predict.
    pub tracks: usize,
}

/// A session around one table. The host sits on seat 0.
pub struct Table {
    /// Printed with every failure, so that it can be run again.
    pub seed: u64,
    /// Virtual time.
    pub now: Duration,
    /// Virtual time from one frame to the next: a sixtieth of a second, unless it is set.
    pub frame: Duration,
    /// The host first, then guests in the order of joining. Seats are never taken away; one that was vacated is `None`.
    pub seats: Vec<Option<Seat>>,
    schema: Schema,
    oracle: Oracle,
    frames: u64,
}

impl Table {
    /// A host alone at the table.
    ///
    /// # Errors
    /// [`UsageError::Config`].
    pub fn new(seed: u64, schema: &Schema, config: Config, host: impl Transport + 'static) -> Result<Self, UsageError> {
        let config = Config { session: Some(config.session.unwrap_or(seed)), ..config };
        let peer = Peer::host(schema.clone(), host, config)?;
        let mut table = Self {
            seed,
            now: Duration::ZERO,
            frame: Duration::from_nanos(1_000_000_000 / 60 + 1),
            seats: Vec::new(),
            schema: schema.clone(),
            oracle: Oracle::default(),
            frames: 0,
        };
        table.sit(peer);
        Ok(table)
    }

    fn sit(&mut self, peer: Peer) -> usize {
        let (news, stalled_until) = (Vec::new(), Duration::ZERO);
        self.seats.push(Some(Seat { peer, world: World::new(), news, stalled_until, sight: Sight::default() }));
        self.seats.len() - 1
    }

    /// A guest sits down; its seat's number. Which [`PeerId`] it gets, the host says when it is in: [`Peer::local`].
    ///
    /// # Errors
    /// [`UsageError::Config`].
    pub fn join(&mut self, config: Config, transport: impl Transport + 'static) -> Result<usize, UsageError> {
        let peer = Peer::join(self.schema.clone(), transport, config)?;
        Ok(self.sit(peer))
    }

    /// A guest says goodbye and goes.
    pub fn leave(&mut self, seat: usize) {
        if let Some(mut seat) = self.seats[seat].take() {
            seat.peer.disconnect(&mut seat.world, DisconnectReason::Left);
        }
    }

    /// A guest's program ends without a word, or its cable is cut: take care that its transport does not say goodbye for it.
    pub fn vanish(&mut self, seat: usize) -> Option<Seat> {
        self.seats[seat].take()
    }

    /// The program in a seat does nothing for a while.
    pub fn stall(&mut self, seat: usize, time: Duration) {
        let until = self.now + time;
        if let Some(seat) = &mut self.seats[seat] {
            seat.stalled_until = until;
        }
    }

    /// A seat that is taken.
    ///
    /// # Panics
    /// If nobody sits there.
    pub fn seat(&mut self, seat: usize) -> &mut Seat {
        self.seats[seat].as_mut().expect("nobody sits there")
    }

    /// The seats that are taken.
    #[must_use]
    pub fn taken(&self) -> Vec<usize> {
        (0..self.seats.len()).filter(|i| self.seats[*i].is_some()).collect()
    }

    /// One frame of everybody, host first: receive, the steps that are due, send; then the oracle looks around.
    ///
    /// # Panics
    /// If the oracle finds a value that its publisher never held, or an older one than was shown before.
    pub fn run(&mut self, mut simulate: impl FnMut(usize, &mut World, &mut Step<'_>)) {
        self.now += self.frame;
        self.frames += 1;
        for (i, seat) in self.seats.iter_mut().enumerate() {
            let Some(seat) = seat else { continue };
            if self.now < seat.stalled_until {
                continue;
            }
            let Seat { peer, world, news, .. } = seat;
            peer.receive(self.now, world).expect("virtual time goes on");
            while let Some(mut step) = peer.next_step(world) {
                simulate(i, world, &mut step);
            }
            peer.send(self.now, world).expect("virtual time goes on");
            while let Some(n) = peer.poll_news() {
                news.push(n);
            }
        }
        self.look();
    }

    /// Frames in which nothing is simulated.
    pub fn rest(&mut self, frames: u32) {
        for _ in 0..frames {
            self.run(|_, _, _| {});
        }
    }

    fn look(&mut self) {
        let host = self.seats[0].as_mut().filter(|h| self.now >= h.stalled_until);
        if let Some(host) = host {
            self.oracle.note_held(host);
        }
        for i in 1..self.seats.len() {
            let Some(seat) = self.seats[i].as_mut().filter(|s| self.now >= s.stalled_until && s.peer.is_in_session()) else {
                continue;
            };
            if let Err(found) = self.oracle.look_at(seat) {
                panic!("SEED={} frame {} seat {i}: {found}", self.seed, self.frames);
            }
        }
    }

    /// Rests until every guest's world equals the host's, for at most `limit`; says whether that came about.
    pub fn settle(&mut self, limit: Duration) -> bool {
        let until = self.now + limit;
        loop {
            if self.all_equal().is_ok() {
                return true;
            }
            if self.now >= until {
                return false;
            }
            self.rest(1);
        }
    }

    /// Do all guests hold what the host holds, as far as they are to see it? Those whose session has ended are not asked.
    ///
    /// # Errors
    /// The seat, and the names of the components that differ.
    pub fn all_equal(&self) -> Result<(), String> {
        let host = self.seats[0].as_ref().ok_or("there is no host")?;
        for (i, seat) in self.seats.iter().enumerate().skip(1) {
            let Some(seat) = seat.as_ref().filter(|s| s.peer.ended().is_none()) else { continue };
            let truth = host.peer.digests_for(&host.world, seat.peer.local());
            let truth = truth.map_err(|e| format!("seat {i} is not in: {e}"))?;
            let own = seat.peer.digests(&seat.world);
            let differing: Vec<_> = (0..truth.len()).filter(|c| truth[*c] != own[*c]).map(|c| self.component_name(c)).collect();
            if !differing.is_empty() {
                let all = host.peer.seen_count(seat.peer.local()).unwrap_or(0);
                let here = seat.peer.entity_count();
                return Err(format!("seat {i} differs in {}; it should see {all} entities and has {here}", differing.join(", ")));
            }
        }
        Ok(())
    }

    /// All differences between a guest's world and the host's as that guest is to see it, for a person to read.
    #[must_use]
    pub fn differences(&self, seat: usize) -> Vec<String> {
        let (Some(host), Some(seat)) = (&self.seats[0], &self.seats[seat]) else { return Vec::new() };
        let (mut truth, own) = (all_values(host), all_values(seat));
        leave_hidden_out(host, seat.peer.local(), &mut truth);
        let mut out = Vec::new();
        for (key, words) in &truth {
            if own.get(key) != Some(words) {
                out.push(format!("{} {}: host {words:?}, here {:?}", key.0, self.component_name(key.1), own.get(key)));
            }
        }
        let extra = own.keys().filter(|k| !truth.contains_key(k));
        out.extend(extra.map(|k| format!("{} {}: only here", k.0, self.component_name(k.1))));
        out.sort();
        out
    }

    fn component_name(&self, c: usize) -> String {
        if c == 0 { "presence".into() } else { self.schema.0.component(c).name.clone() }
    }
}

type Key = (NetId, usize);
type Words = Vec<u32>;

/// The entities whose values travel: not those that every peer computes, of which two peers need not be at the same step.
fn published(seat: &Seat) -> impl Iterator<Item = (u32, &Record)> {
    seat.peer.entities.iter().filter(|(_, record)| !seat.peer.schema.kinds[record.kind].is_computed())
}

fn all_values(seat: &Seat) -> FxHashMap<Key, Words> {
    let mut out = FxHashMap::default();
    for (_, record) in published(seat) {
        for c in (1..seat.peer.schema.columns()).filter(|c| seat.peer.schema.fine >> c & 1 == 0) {
            if let Some(words) = shown(seat, record, c) {
                out.insert((record.net, c), words);
            }
        }
    }
    out
}

/// Leaves of a host's values what a guest is to see.
fn leave_hidden_out(host: &Seat, guest: PeerId, values: &mut FxHashMap<Key, Words>) {
    let Some(view) = host.peer.link_to(guest).and_then(|link| link.subscriber.view()) else { return };
    values.retain(|(net, c), words| {
        let Some(ghost) = view.ghost_named(*net) else { return false };
        let column = &host.peer.schema.component(*c).column;
        column.layout().mask_entities(words, |net| view.sees(net));
        view.ghost(ghost).sighting.hidden >> *c & 1 == 0 && column.is_complete(words)
    });
}

/// The value of a component in a world, quantised.
fn shown(seat: &Seat, record: &Record, c: usize) -> Option<Words> {
    let column = &seat.peer.schema.component(c).column;
    let mut words = vec![0; column.layout().words()];
    let names = name_in(&seat.world);
    let quantised = column.quantise_one(&seat.world, record.entity, &names, &mut words)?;
    (quantised.is_ok() && column.is_complete(&words)).then_some(words)
}

/// What one seat has shown so far.
#[derive(Default)]
struct Sight {
    /// The version of each value that was shown last.
    versions: FxHashMap<Key, usize>,
    /// The last value under this seat's own authority: shown until the host's comes.
    own: FxHashMap<Key, Words>,
}

/// What the host has held, in order.
#[derive(Default)]
struct Oracle {
    held: FxHashMap<Key, Vec<Words>>,
}

impl Oracle {
    fn note_held(&mut self, host: &Seat) {
        // what a guest has said of an entity that has not come yet goes on to the others, who may know it before the host does
        let waiting = host.peer.apply.withheld().map(|(key, words)| (*key, words.clone()));
        for (key, words) in all_values(host).into_iter().chain(waiting) {
            let held = self.held.entry(key).or_default();
            if held.last() != Some(&words) {
                held.push(words);
            }
        }
    }

    fn look_at(&self, seat: &mut Seat) -> Result<(), String> {
        let mut sight = std::mem::take(&mut seat.sight);
        let result = self.compare(seat, &mut sight);
        seat.sight = sight;
        result
    }

    fn compare(&self, seat: &Seat, sight: &mut Sight) -> Result<(), String> {
        for (_, record) in published(seat) {
            let schema = &seat.peer.schema;
            let present = (1..schema.columns()).fold(0u64, |m, c| m | 1 << c) & !schema.fine;
            let predicts = schema.predicts(seat.peer.local, record.kind, record.owners[0].peer);
            let mine = record.mine | if predicts { schema.predicted[record.kind] } else { 0 };
            for c in bits(present) {
                let c = c as usize;
                let Some(words) = shown(seat, record, c) else { continue };
                let key = (record.net, c);
                if mine >> c & 1 != 0 {
                    sight.own.insert(key, words);
                    continue;
                }
                if sight.own.get(&key) == Some(&words) {
                    continue; // its own last word, until the host's arrives
                }
                sight.own.remove(&key);
                self.check(&key, &words, sight, seat.peer.schema.layout(c))
                    .map_err(|e| format!("{} {}: {e}", record.net, seat.peer.schema.component(c).name))?;
            }
        }
        Ok(())
    }

    /// The value must be one that was held, and not older than the one shown last.
    fn check(&self, key: &Key, words: &Words, sight: &mut Sight, layout: &Layout) -> Result<(), String> {
        let held = self.held.get(key).map_or(&[][..], |h| &h[..]);
        let last = sight.versions.entry(*key).or_insert(0);
        match held[(*last).min(held.len())..].iter().position(|h| is_shown(h, words, layout)) {
            Some(ahead) => {
                *last += ahead;
                Ok(())
            }
            None if held.iter().any(|h| is_shown(h, words, layout)) => {
                Err(format!("shows {words:?}, an older version than it showed before"))
            }
            None => Err(format!("shows {words:?}, which its publisher never held")),
        }
    }
}

/// Is `words` what somebody may be shown of `held`: the same, or the same without entities that are hidden from it?
fn is_shown(held: &[u32], words: &[u32], layout: &Layout) -> bool {
    if held == words || !layout.has_entities() {
        return held == words;
    }
    let named: Vec<NetId> = layout.entities(words).collect();
    let mut masked = held.to_vec();
    layout.mask_entities(&mut masked, |net| named.contains(&net));
    masked == words
}
