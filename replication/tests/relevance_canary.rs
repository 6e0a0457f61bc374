//! What a guest may not see never reaches it in any form. Whatever is hidden from a guest has values that nobody ever had before:
//! no packet and no message that the host sends to it may have their bits, at any offset; whatever the packets say, read by a second
//! reader, is of what the guest may see, by name and by reference; and no guest's world or mailbox ever holds one.

mod audience_game;
mod common;
mod second_decoder;

use audience_game::{Furled, Permitted, Rooms, Veil, admit, closes_circle, foul, permitted, pick};
use common::record::{Log, Passed, Recorder, Way};
use common::{ChildOf, Link, Rng, assert_clean, config, seeds};
use hecs::{Entity, World};
use second_decoder::messages::read_reliable;
use second_decoder::packet::Packet;
use second_decoder::stream::Stream;
use second_decoder::{Code, Fault, Presence, fields};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidelock::policy::{Host, Owner};
use tidelock::testing::{Seat, Table};
use tidelock::{Config, NetId, Networked, PeerId, Relevance, Replicate, Schema, Step, To};
use tidelock_loopback::Network;

/// Seen by whoever sees its entity.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Body {
    left: u32,
    right: u32,
}

/// Seen by whoever its [`Furled`] lets.
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Hand {
    cards: u64,
    #[net(max = 8)]
    name: String,
}

/// Told to those who see an entity.
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Whisper {
    about: Entity,
    word: u64,
}

/// Told to all, whoever it is about.
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Rumour {
    about: Option<Entity>,
}

#[derive(Clone, Copy, Default)]
struct Thing;
#[derive(Clone, Copy, Default)]
struct Pawn;

fn schema() -> Schema {
    Schema::builder("canary")
        .component::<Body>("body", |c| c)
        .component::<Hand>("hand", |c| c)
        .component::<Link>("link", |c| c)
        .component::<ChildOf>("child_of", |c| c.parent())
        .kind::<Thing>("thing", Host::default())
        .kind::<Pawn>("pawn", Owner::default())
        .message::<Whisper>("whisper")
        .message::<Rumour>("rumour")
        .build()
        .unwrap()
}

fn described() -> second_decoder::Schema {
    let word = Code::Number { max: u32::MAX, order: 2 };
    let name = || fields(&[("value", Code::Entity)]);
    second_decoder::Schema::new(
        &[
            ("body", fields(&[("left", word), ("right", word)])),
            ("hand", fields(&[("cards", Code::Wide), ("name", Code::Text { cap: 8 })])),
            ("link", name()),
            ("child_of", name()),
        ],
        2,
        1,
        &[
            ("whisper", true, fields(&[("about", Code::Entity), ("word", Code::Wide)])),
            ("rumour", true, fields(&[("about", Code::Entity)])),
        ],
    )
}

/// 64 bits that nobody had before.
fn fresh(rng: &mut Rng) -> u64 {
    rng.below(1 << 32) << 32 | rng.below(1 << 32)
}

fn body(rng: &mut Rng) -> Body {
    let bits = fresh(rng);
    Body { left: bits as u32, right: (bits >> 32) as u32 }
}

fn hand(rng: &mut Rng) -> Hand {
    let letters = (0..8).map(|_| char::from(b'!' + rng.below(90) as u8)).collect();
    Hand { cards: fresh(rng), name: letters }
}

/// The bits of a body's and a hand's values as they travel: in one piece each.
fn body_bits(body: &Body) -> u64 {
    u64::from(body.left) | u64::from(body.right) << 32
}

fn hand_bits(hand: &Hand) -> [u64; 2] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(hand.name.as_bytes());
    [hand.cards, u64::from_le_bytes(bytes)]
}

/// What is known of one guest.
struct Guarded {
    peer: PeerId,
    /// What was there while the guest could not see it, and where.
    canaries: BTreeMap<u64, String>,
    /// Reads everything that the host sends to it.
    reader: Stream,
    sent: u64,
    /// Names that it was told, or gave.
    told: BTreeSet<u64>,
    /// What was there while it could see it: no secret.
    open: BTreeSet<u64>,
    /// What was in the world in the last frames, by place. What a guest comes to see is shown as it was at the last capture.
    recent: BTreeMap<(NetId, &'static str), VecDeque<u64>>,
    /// What it could see in the last frames, the newest last: as many as there are between two sends, and the one before, in
    /// which a message may have been written.
    may: VecDeque<Permitted>,
    frames: usize,
    searched: u64,
}

impl Guarded {
    fn new(peer: PeerId, send_every: u32) -> Self {
        let reader = Stream::new(described(), 262_144);
        let (canaries, told, open, may) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new(), VecDeque::new());
        Self {
            peer,
            canaries,
            reader,
            sent: 1,
            told,
            open,
            recent: BTreeMap::new(),
            may,
            frames: send_every as usize,
            searched: 0,
        }
    }

    fn may(&self, back: usize, is: impl Fn(&Permitted) -> bool) -> bool {
        self.may.iter().rev().take(back).any(is)
    }

    /// Looks at every 64 bits in a row of what is on its way to the guest.
    fn search(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut window = 0u64;
        for (at, bit) in bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> i & 1)).enumerate() {
            window = window >> 1 | u64::from(bit) << 63;
            if at >= 63
                && let Some(what) = self.canaries.get(&window)
            {
                return Err(format!("bit {} begins {what}", at - 63));
            }
        }
        self.searched += bytes.len() as u64;
        Ok(())
    }

    /// Reads what is on its way to the guest: it is of what the guest may see.
    fn read(&mut self, passed: &Passed, tick: u64) -> Result<(), String> {
        if let Some(lane) = passed.lane {
            if lane.0 == 1 {
                let message = read_reliable(&described(), &passed.bytes).map_err(|e| format!("{e:?}"))?;
                let net = u64::from(message.words[0]) | u64::from(message.words[1]) << 32;
                return self.check_name(net, self.frames + 1, "a message");
            }
            return Ok(());
        }
        match self.reader.read(&passed.bytes, tick, self.sent) {
            Ok(packet) => self.check(&packet),
            Err(Fault::Useless(_)) => Ok(()),
            Err(fault) => Err(format!("{fault:?}")),
        }
    }

    fn check_name(&self, net: u64, back: usize, place: &str) -> Result<(), String> {
        let known = net == 0 || self.may(back, |may| may.entities.contains(&NetId(net)));
        if known { Ok(()) } else { Err(format!("{place} names #{net}, which {} may not see", self.peer)) }
    }

    fn check(&mut self, packet: &Packet) -> Result<(), String> {
        let schema = described();
        for value in packet.values() {
            if value.component == 0 {
                let presence = Presence::of_words(&schema, &value.words);
                if presence.life != 1 {
                    let told = self.told.contains(&presence.net);
                    if !told {
                        return Err(format!("the end of #{}, of which {} was never told", presence.net, self.peer));
                    }
                    continue;
                }
                self.check_name(presence.net, self.frames, "presence")?;
                self.told.insert(presence.net);
                let hand = schema.column("hand");
                if presence.has(hand) && !self.may(self.frames, |may| may.banners.contains(&NetId(presence.net))) {
                    return Err(format!("#{} is said to have a hand", presence.net));
                }
            } else if schema.names_entities(value.component) {
                let net = u64::from(value.words[0]) | u64::from(value.words[1]) << 32;
                self.check_name(net, self.frames, "a reference")?;
            }
            let numbers: Vec<u64> = value.words.windows(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect();
            if let Some(what) = numbers.iter().find_map(|n| self.canaries.get(n)) {
                return Err(format!("a value of row {} is {what}", value.row));
            }
        }
        Ok(())
    }

    /// Notes what the guest may see now, and what it must never learn.
    fn note(&mut self, host: &Seat, rooms: &Rooms) {
        let Seat { peer, world, .. } = host;
        let mut may = permitted(rooms, peer, world, self.peer);
        // what hangs on a circle of parents is nobody's secret
        may.entities.extend(&may.unsure);
        may.banners.extend(&may.unsure);
        for (networked, body, hand) in world.query::<(&Networked, Option<&Body>, Option<&Hand>)>().iter() {
            let net = networked.id();
            let (sees, sees_hand) = (may.entities.contains(&net), may.banners.contains(&net));
            let mut note = |bits: u64, sees: bool, what: &'static str| {
                let recent = self.recent.entry((net, what)).or_default();
                recent.push_back(bits);
                if recent.len() > self.frames {
                    recent.pop_front();
                }
                if sees {
                    self.open.extend(recent.iter());
                    self.canaries.retain(|bits, _| !recent.contains(bits));
                } else if !self.open.contains(&bits) {
                    self.canaries.entry(bits).or_insert_with(|| format!("the {what} of {net}"));
                }
            };
            body.iter().for_each(|body| note(body_bits(body), sees, "body"));
            hand.iter().for_each(|hand| {
                hand_bits(hand).into_iter().zip(["cards", "name"]).for_each(|(bits, what)| note(bits, sees_hand, what))
            });
        }
        self.may.push_back(may);
        if self.may.len() > self.frames + 1 {
            self.may.pop_front();
        }
    }

    /// What the guest has may not be among it.
    fn look_at(&mut self, guest: &mut Seat) -> Result<(), String> {
        self.told.extend(guest.world.query::<&Networked>().iter().map(|n| n.id().0));
        for (entity, body, hand) in guest.world.query::<(Entity, Option<&Body>, Option<&Hand>)>().iter() {
            let bits = body.map(body_bits).into_iter().chain(hand.into_iter().flat_map(hand_bits));
            if let Some(what) = bits.into_iter().find_map(|bits| self.canaries.get(&bits)) {
                return Err(format!("{entity:?} shows {what}"));
            }
        }
        for (_, whisper) in guest.peer.messages::<Whisper>().unwrap() {
            if let Some(what) = self.canaries.get(&whisper.word) {
                return Err(format!("it heard {what}"));
            }
        }
        guest.peer.messages::<Rumour>().unwrap();
        Ok(())
    }
}

/// What the host does: everything has a new value in every tick, and who sees what changes all the time.
fn host_tick(world: &mut World, step: &mut Step<'_>, rooms: &mut Rooms, rng: &mut Rng) {
    redraw(world, step, rng);
    let mine = step.query::<(Entity, &Body)>(world).iter().count();
    if mine < 12 {
        let _ = step.spawn(world, Thing, (body(rng), hand(rng)));
    }
    let peer = step.peer();
    let all: Vec<Entity> = world.query::<(Entity, &Networked)>().iter().map(|(e, _)| e).collect();
    let guests: Vec<PeerId> = peer.peers().iter().map(|p| p.peer).filter(|p| *p != PeerId::HOST).collect();
    for _ in 0..rng.below(4) {
        let (Some(guest), Some(entity), Some(other)) = (pick(&guests, rng), pick(&all, rng), pick(&all, rng)) else { return };
        let (mask, room) = (rng.below(16) as u32, rng.below(3));
        let its_own = peer.has_authority::<Link>(world, entity);
        match rng.below(13) {
            0 => rooms.enter(peer, guest, room),
            1 => rooms.leave(peer, guest, room),
            2 => rooms.put(peer, world, entity, room),
            3 => rooms.take(peer, world, entity, room),
            4 => drop(world.insert_one(entity, Veil(mask))),
            5 => drop(world.remove_one::<Veil>(entity)),
            6 => drop(world.insert_one(entity, Furled(mask))),
            7 => drop(world.remove_one::<Furled>(entity)),
            8 if its_own => drop(world.insert_one(entity, Link { target: other })),
            9 if its_own && !closes_circle(world, entity, other) => drop(world.insert_one(entity, ChildOf { parent: other })),
            10 if its_own => drop(world.remove_one::<ChildOf>(entity)),
            11 => {
                let to = pick(&[PeerId::HOST, guest], rng).unwrap_or(guest);
                let _ = peer.grant(world, entity, 0, to);
            }
            _ if rng.chance(20) && its_own => drop(peer.despawn(world, entity)),
            _ => {}
        }
    }
}

/// Everything that this peer simulates has another value.
fn redraw(world: &mut World, step: &mut Step<'_>, rng: &mut Rng) {
    for (body_of, hand_of) in step.query::<(&mut Body, Option<&mut Hand>)>(world).iter() {
        *body_of = body(rng);
        if let Some(hand_of) = hand_of {
            *hand_of = hand(rng);
        }
    }
}

fn guest_tick(world: &mut World, step: &mut Step<'_>, rng: &mut Rng) {
    redraw(world, step, rng);
    let mine: Vec<Entity> = step.query::<(Entity, &Body)>(world).iter().map(|(e, _)| e).collect();
    if mine.len() < 4 {
        let _ = step.spawn(world, Pawn, (body(rng), hand(rng)));
    }
    let all: Vec<Entity> = world.query::<(Entity, &Networked)>().iter().map(|(e, _)| e).collect();
    let (Some(entity), Some(other)) = (pick(&mine, rng), pick(&all, rng)) else { return };
    match rng.below(20) {
        0 => drop(world.insert_one(entity, Link { target: other })),
        1 if !closes_circle(world, entity, other) => drop(world.insert_one(entity, ChildOf { parent: other })),
        2 => drop(world.remove_one::<ChildOf>(entity)),
        3 if rng.chance(30) => drop(step.despawn(world, entity)),
        _ => {}
    }
}

/// A secret for those who see an entity, and a rumour for all.
fn talk(table: &mut Table, rooms: &Rooms, guarded: &mut [Guarded], rng: &mut Rng) {
    let Seat { peer, world, .. } = table.seat(0);
    let all: Vec<Entity> = world.query::<(Entity, &Networked)>().iter().map(|(e, _)| e).collect();
    let Some(about) = pick(&all, rng) else { return };
    let word = fresh(rng);
    let net = peer.name_of(world, about);
    peer.send_message(world, To::Seeing(about), &Whisper { about, word }).unwrap();
    peer.send_message(world, To::All, &Rumour { about: Some(about) }).unwrap();
    for guest in guarded {
        let may = permitted(rooms, peer, world, guest.peer);
        let could = |net| may.entities.contains(&net) || guest.may(guest.frames, |may| may.entities.contains(&net));
        if net.is_some_and(|net| !could(net)) {
            guest.canaries.insert(word, format!("the word about {net:?}"));
        }
    }
}

fn play(seed: u64) {
    let mut rng = Rng::new(seed);
    let (log, network) = (Log::default(), Network::new(seed));
    let weather = foul(&mut rng, 0.1);
    let bandwidth = if rng.chance(30) { 480_000 } else { config().bandwidth };
    let config = Config { bandwidth, send_every: 1 + rng.below(3) as u32, ..config() };
    let mut table = Table::new(seed, &schema(), config.clone(), Recorder::new(network.host(), &log, 0)).unwrap();
    let relevance = Relevance::everything()
        .rule(|sight| sight.get::<Veil>().is_none_or(|veil| veil.0 >> sight.peer().0 & 1 != 0))
        .show_only::<Hand>(|sight| sight.get::<Furled>().is_none_or(|furled| furled.0 >> sight.peer().0 & 1 != 0));
    table.seat(0).peer.set_relevance(relevance).unwrap();
    for _ in 0..3 {
        table.join(config.clone(), network.join(weather, weather)).unwrap();
    }
    admit(&mut table);
    let mut guarded: Vec<Guarded> = (1..=3).map(|seat| Guarded::new(table.seat(seat).peer.local(), config.send_every)).collect();
    let mut rooms = Rooms::default();
    for frame in 0..200 {
        table.run(|seat, world, step| match seat {
            0 => host_tick(world, step, &mut rooms, &mut rng),
            _ => guest_tick(world, step, &mut rng),
        });
        let passed = log.take();
        let tick = table.seat(0).peer.tick().0;
        for (i, guest) in guarded.iter_mut().enumerate() {
            guest.note(table.seat(0), &rooms);
            // links are named in the order of joining
            for passed in passed.iter().filter(|p| p.link.0 as usize == i) {
                let found = match passed.way {
                    Way::Sent => guest.search(&passed.bytes).and_then(|()| guest.read(passed, tick)),
                    Way::Received => Ok(()),
                };
                found.unwrap_or_else(|found| panic!("SEED={seed} frame {frame} to {}: {found}", guest.peer));
            }
            let found = guest.look_at(table.seat(i + 1));
            found.unwrap_or_else(|found| panic!("SEED={seed} frame {frame} {}: {found}", guest.peer));
        }
        talk(&mut table, &rooms, &mut guarded, &mut rng);
    }
    for guest in &guarded {
        let (canaries, searched) = (guest.canaries.len(), guest.searched);
        assert!(canaries > 200 && searched > 8_000, "SEED={seed}: {canaries} canaries in {searched} bytes test nothing");
    }
    assert_clean(&mut table);
}

#[test]
fn what_is_hidden_never_reaches_a_guest() {
    for seed in seeds(200) {
        play(seed);
    }
}
