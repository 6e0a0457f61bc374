//! The scenes whose bytes are golden: short, without chance, each for some of the shapes.

mod events;
mod guesses;

use crate::common::record::{Log, Passed, Recorder, Way};
use crate::second_decoder::messages::{read_control, read_reliable, read_unreliable};
use crate::second_decoder::packet::Packet;
use crate::second_decoder::stream::Stream;
use crate::second_decoder::tables::trained;
use crate::second_decoder::{Code, Schema, Sort, fields};
use hecs::Entity;
use std::time::Duration;
use tidelock::policy::{Host, Owner};
use tidelock::testing::{Seat, Table};
use tidelock::trained::Tables;
use tidelock::{Config, Detail, Interpolate, PeerId, Relevance, Replicate, Room, To, Viewpoint};
use tidelock_loopback::{Conditions, Direction, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Spot {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
    #[net(step = 0.01, range = -500.0..=500.0)]
    y: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Paint {
    #[net(range = 0..=1000)]
    colour: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
enum Mood {
    Calm,
    Angry,
    Asleep,
}

/// By how much a spot moves in a second.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Stride {
    #[net(step = 0.5, range = -50.0..=50.0)]
    x: f32,
    #[net(step = 0.5, range = -50.0..=50.0)]
    y: f32,
}

/// A field of every code.
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Odd {
    #[net(angle, bits = 10)]
    heading: f32,
    #[net(exact)]
    charge: f32,
    #[net(quat, bits = 10)]
    turn: [f32; 4],
    wide: u64,
    awake: bool,
    mood: Mood,
    #[net(max = 12)]
    name: String,
    friend: Option<Entity>,
    ammo: Option<u16>,
    pair: Option<[u8; 2]>,
}

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Chat {
    #[net(max = 16)]
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Ping(u16);

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Shot(u16);

/// An event that goes to all.
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Tell {
    #[net(max = 8)]
    text: String,
}

#[derive(Clone, Copy, Default)]
struct Crate;
#[derive(Clone, Copy, Default)]
struct Player;

fn schema() -> tidelock::Schema {
    tidelock::Schema::builder("golden")
        .component::<Spot>("spot", |c| c.interpolate().velocity::<Stride>())
        .component::<Stride>("stride", |c| c)
        .component::<Paint>("paint", |c| c)
        .component::<Odd>("odd", |c| c)
        .kind::<Crate>("crate", Host::default())
        .kind_with::<Player>("player", Owner::default(), |k| k.authority::<Paint>(Owner::co(1)))
        .message::<Chat>("chat")
        .unreliable_message::<Ping>("ping")
        .event::<Shot>("shot")
        .shared_event::<Tell>("tell")
        .build()
        .expect("a schema without mistakes")
}

/// Trained tables, made by hand: one for what is off by little, and one for what is right or off by much.
pub(crate) fn plain_tables() -> Tables {
    let (mut little, mut much) = ([0; 74], [0; 74]);
    (little[0], little[1], little[2], little[72]) = (2, 2, 2, 2);
    (much[0], much[72]) = (1, 5);
    much[14..29].fill(5);
    let mut bytes = vec![1, 2];
    for halves in [little, much] {
        bytes.extend(halves.chunks(2).map(|two| two[0] | two[1] << 4));
    }
    Tables::from_bytes(&bytes).expect("complete codes")
}

/// The same as the page describes it.
pub(crate) fn described() -> Schema {
    let metres = Code::Number { max: 100_000, order: 4 };
    let byte = Code::Number { max: 255, order: 2 };
    let odd = fields(&[
        ("heading", Code::Wrapping { bits: 10 }),
        ("charge", Code::Float),
        ("turn", Code::Quat { bits: 10 }),
        ("wide", Code::Wide),
        ("awake", Code::Choice { count: 2 }),
        ("mood", Code::Choice { count: 3 }),
        ("name", Code::Text { cap: 12 }),
        ("friend", Code::Entity),
        ("ammo", Code::Maybe { fields: 1 }),
        ("ammo.some", Code::Number { max: 65_535, order: 2 }),
        ("pair", Code::Maybe { fields: 2 }),
        ("pair.some.0", byte),
        ("pair.some.1", byte),
    ]);
    Schema::new(
        &[
            ("spot", fields(&[("x", metres), ("y", metres)])),
            ("paint", fields(&[("colour", Code::Number { max: 1000, order: 2 })])),
            ("odd", odd),
            ("stride", fields(&[("x", Code::Number { max: 200, order: 4 }), ("y", Code::Number { max: 200, order: 4 })])),
        ],
        2,
        2,
        &[
            ("chat", true, fields(&[("text", Code::Text { cap: 16 })])),
            ("ping", false, fields(&[("value", Code::Number { max: 65_535, order: 2 })])),
        ],
    )
    .and_message("shot", Sort::Event, fields(&[("value", Code::Number { max: 65_535, order: 2 })]))
    .and_message("tell", Sort::SharedEvent, fields(&[("text", Code::Text { cap: 8 })]))
    .moved("spot", &[0.01, 0.01], "stride", &[(-50.0, 0.5), (-50.0, 0.5)])
}

/// What arrived, and what the second reader makes of it.
pub(crate) struct Seen {
    pub(crate) comment: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) packet: Option<Packet>,
}

/// What arrived in a scene, in order.
pub(crate) struct Scene {
    pub(crate) about: &'static str,
    pub(crate) seen: Vec<Seen>,
}

/// A host with guests, and the second reader at every end.
struct Stage {
    table: Table,
    network: Network,
    log: Log,
    schema: Schema,
    /// By guest: the streams down and up, and the greatest number sent on each.
    links: Vec<[(Stream, u64); 2]>,
    /// By end: before its welcome a guest does not listen to datagrams.
    welcome: Vec<bool>,
    seen: Vec<Seen>,
}

impl Stage {
    /// Plays until all are in.
    fn new(guests: usize, bandwidth: u64) -> Self {
        Self::seeing(guests, bandwidth, None)
    }

    /// The same, with a host that decides who sees what.
    fn seeing(guests: usize, bandwidth: u64, relevance: Option<Relevance>) -> Self {
        Self::with(guests, bandwidth, relevance, None)
    }

    /// The same, with trained tables that the host has and guests get.
    fn with(guests: usize, bandwidth: u64, relevance: Option<Relevance>, tables: Option<Tables>) -> Self {
        let (network, log) = (Network::new(1), Log::default());
        let config = |name: &str| Config { name: name.into(), session: Some(7), bandwidth, ..Config::default() };
        let host = Config { tables: tables.clone(), ..config("host") };
        let described = || described().with_tables(tables.iter().flat_map(|t| trained(&t.to_bytes())).collect());
        let mut table = Table::new(1, &schema(), host, Recorder::new(network.host(), &log, 0)).expect("a good config");
        if let Some(relevance) = relevance {
            table.seat(0).peer.set_relevance(relevance).expect("nobody is in yet");
        }
        let mut stage =
            Self { table, network, log, schema: described(), links: Vec::new(), welcome: vec![true], seen: Vec::new() };
        let weather = Conditions { latency: Duration::from_millis(20), ..Conditions::default() };
        for guest in 1..=guests {
            let recorder = Recorder::new(stage.network.join(weather, weather), &stage.log, guest);
            stage.table.join(config(&format!("guest {guest}")), recorder).expect("a good config");
            let streams = [262_144, 16_384].map(|rows| (Stream::new(described(), rows), 1));
            stage.links.push(streams);
            stage.welcome.push(false);
            stage.rest(12);
            assert!(stage.table.seat(guest).peer.is_in_session());
        }
        stage
    }

    fn rest(&mut self, frames: u32) {
        for _ in 0..frames {
            self.table.rest(1);
            self.log.take().iter().for_each(|passed| self.follow(passed));
        }
    }

    fn follow(&mut self, passed: &Passed) {
        let tick = self.table.seat(0).peer.tick().0;
        let who = if passed.end == 0 { "host".into() } else { format!("guest {}", passed.end) };
        // links are named from 0 in the order in which guests joined
        let [down, up] = &mut self.links[passed.link.0 as usize];
        let (into, back) = if passed.end == 0 { (up, down) } else { (down, up) };
        let is_state = passed.lane.is_none() && passed.bytes[0] & 3 != 1;
        if passed.way == Way::Sent {
            // what an end sends counts up by one
            back.1 += u64::from(is_state);
            return;
        }
        let mut packet = None;
        let what = match passed.lane.map(|lane| lane.0) {
            Some(0) => {
                let (name, _) = read_control(&passed.bytes).expect("control");
                self.welcome[passed.end] |= name == "Welcome";
                format!("takes control {name}")
            }
            Some(_) => format!("takes {:?}", read_reliable(&self.schema, &passed.bytes).expect("a message")),
            None if !self.welcome[passed.end] => "ignores a datagram before its welcome".into(),
            None if !is_state => format!("takes {:?}", read_unreliable(&self.schema, &passed.bytes).expect("a message")),
            None => {
                let read = into.0.read(&passed.bytes, tick, back.1).expect("a packet of use");
                let dump = format!("takes {read}");
                packet = Some(read);
                dump
            }
        };
        let comment = format!("{:.4} {who} {what}", passed.at.as_secs_f64());
        self.seen.push(Seen { comment, bytes: passed.bytes.clone(), packet });
    }

    fn spawn_crates(&mut self, count: usize) -> Vec<Entity> {
        let Seat { peer, world, .. } = self.table.seat(0);
        (0..count).map(|i| peer.spawn(world, Crate, (Spot { x: i as f32, y: 0.0 },)).expect("a host may spawn")).collect()
    }

    fn shift(&mut self, seat: usize, entity: Entity, x: f32, y: f32) {
        let mut spot = self.table.seat(seat).world.get::<&Spot>(entity).map(|spot| *spot).expect("it has a spot");
        (spot.x, spot.y) = (spot.x + x, spot.y + y);
        self.table.seat(seat).world.insert_one(entity, spot).expect("it lives");
    }

    fn lose_next_down(&mut self, count: u64) {
        let link = self.network.links()[0];
        self.network.edit(link, Direction::Down, |net| net.drop_next(count)).expect("the link is open");
    }

    fn end(mut self, about: &'static str) -> Scene {
        self.rest(15);
        assert!(self.table.all_equal().is_ok(), "{about}: {:?}", self.table.all_equal());
        Scene { about, seen: self.seen }
    }
}

/// The names of the files, and the scenes.
pub(crate) fn all_scenes() -> Vec<(&'static str, Scene)> {
    vec![
        ("masks", masks()),
        ("budget", budget()),
        ("loss", loss()),
        ("life", life()),
        ("fields", every_field()),
        ("sight", sight()),
        ("rows", rows()),
        ("strides", guesses::strides()),
        ("trained", guesses::trained()),
        ("spins", guesses::spins()),
        ("pairs", guesses::pairs()),
        ("events", events::events()),
    ]
}

fn masks() -> Scene {
    let mut stage = Stage::new(1, 16_000_000);
    let crates = stage.spawn_crates(64);
    stage.rest(12);
    for step in [1, 1, 2, 7] {
        for entity in crates.iter().step_by(step) {
            stage.shift(0, *entity, 0.03, -0.1);
        }
        stage.rest(6);
    }
    for entity in &crates[..50] {
        stage.shift(0, *entity, 0.5, 0.0);
    }
    stage.rest(1);
    for entity in &crates[40..] {
        stage.shift(0, *entity, 0.0, 2.0);
    }
    stage.end("64 crates: all of a block, every second, every seventh, the first 50, the last 24")
}

fn budget() -> Scene {
    let mut stage = Stage::new(1, 500_000);
    stage.spawn_crates(130);
    stage.end("130 crates through a bandwidth of about one packet for each send")
}

fn loss() -> Scene {
    let mut stage = Stage::new(1, 16_000_000);
    let crates = stage.spawn_crates(4);
    let player = {
        let Seat { peer, world, .. } = stage.table.seat(0);
        peer.spawn(world, Player, (Spot { x: 1.0, y: 1.0 }, Paint { colour: 3 })).expect("a host may spawn")
    };
    stage.rest(12);
    for frame in 0..24 {
        stage.shift(0, crates[0], 0.1, 0.0);
        if frame % 5 == 2 {
            stage.shift(0, crates[1], 0.0, 1.0);
            stage.shift(0, player, 0.0, 1.0);
            stage.lose_next_down(1);
        }
        stage.rest(1);
    }
    stage.shift(0, crates[0], 0.1, 0.0);
    stage.shift(0, crates[2], 300.0, 0.0);
    stage.end("one crate moves all the time, another now and then, and packets are lost")
}

fn life() -> Scene {
    let mut stage = Stage::new(2, 16_000_000);
    let crates = stage.spawn_crates(2);
    let player = {
        let Seat { peer, world, .. } = stage.table.seat(1);
        peer.spawn(world, Player, (Spot { x: 5.0, y: 5.0 },)).expect("a guest may spawn a player")
    };
    stage.rest(8);
    for _ in 0..3 {
        stage.shift(1, player, 0.25, 0.0);
        stage.rest(1);
    }
    let Seat { peer, world, .. } = stage.table.seat(1);
    let net = peer.name_of(world, player).expect("it is networked");
    let second = stage.table.seat(2).peer.local();
    let Seat { peer, world, .. } = stage.table.seat(0);
    let at_host = peer.entity_of(net).expect("it has arrived");
    peer.grant(world, at_host, 0, second).expect("the host may grant");
    world.insert_one(crates[0], Paint { colour: 900 }).expect("it lives");
    peer.teleport(world, crates[1]).expect("the host may");
    stage.shift(0, crates[1], 100.0, 0.0);
    stage.rest(8);
    let Seat { peer, world, .. } = stage.table.seat(0);
    world.remove_one::<Paint>(crates[0]).expect("it has one");
    peer.despawn(world, crates[1]).expect("the host may");
    peer.send_message(world, To::All, &Chat { text: "hello".into() }).expect("there is room");
    peer.send_message(world, To::Peer(second), &Ping(513)).expect("there is room");
    let Seat { peer, world, .. } = stage.table.seat(1);
    peer.send_message(world, To::Host, &Chat { text: "caf\u{e9}".into() }).expect("there is room");
    peer.send_message(world, To::Host, &Ping(7)).expect("there is room");
    stage.rest(15);
    let Seat { peer, world, .. } = stage.table.seat(0);
    peer.compare(world).expect("a host may compare");
    stage.rest(6);
    let Seat { peer, world, .. } = stage.table.seat(0);
    peer.grant(world, at_host, 0, PeerId::HOST).expect("the host may grant");
    stage.end("a guest's player is handed on and taken back, a crate is painted and jumps, another ends; messages; a comparison")
}

fn odd(friend: Option<Entity>) -> Odd {
    Odd {
        heading: 3.1,
        charge: 1.5,
        turn: [0.0, 0.0, 0.0, 1.0],
        wide: 0x0102_0304_0506_0708,
        awake: false,
        mood: Mood::Calm,
        name: "hat".into(),
        friend,
        ammo: None,
        pair: Some([1, 2]),
    }
}

fn every_field() -> Scene {
    let mut stage = Stage::new(1, 16_000_000);
    let crates = stage.spawn_crates(2);
    let mut values = vec![odd(None)];
    let mut change = |f: &dyn Fn(&mut Odd)| {
        let mut next = values.last().expect("there is a first").clone();
        f(&mut next);
        values.push(next);
    };
    change(&|odd| odd.heading = -3.1);
    change(&|odd| (odd.charge, odd.wide) = (-0.25, 1));
    change(&|odd| odd.turn = [0.0, 0.1, 0.0, 0.994_987_4]);
    change(&|odd| odd.turn = [1.0, 0.0, 0.0, 0.0]);
    change(&|odd| (odd.awake, odd.mood) = (true, Mood::Asleep));
    change(&|odd| (odd.name, odd.friend) = ("caf\u{e9}".into(), Some(crates[1])));
    change(&|odd| (odd.ammo, odd.pair) = (Some(300), None));
    change(&|odd| (odd.ammo, odd.pair) = (Some(302), Some([200, 7])));
    change(&|odd| (odd.ammo, odd.mood, odd.name) = (Some(65_535), Mood::Angry, String::new()));
    for value in values {
        stage.table.seat(0).world.insert_one(crates[0], value).expect("it lives");
        stage.rest(5);
    }
    for x in [0.01, -0.01, 400.0] {
        stage.shift(0, crates[1], x, 0.0);
        stage.rest(5);
    }
    stage.end("a component with a field of every code, changed field by field")
}

/// What the host keeps the paint of crates for itself by.
struct Secret;

fn sight() -> Scene {
    let relevance = Relevance::everything().show_only::<Paint>(|sight| sight.get::<Secret>().is_none());
    let mut stage = Stage::seeing(2, 16_000_000, Some(relevance));
    let crates = stage.spawn_crates(4);
    let guests = [1, 2].map(|seat| stage.table.seat(seat).peer.local());
    let Seat { peer, world, .. } = stage.table.seat(0);
    world.insert(crates[0], (Paint { colour: 7 }, Secret)).expect("it lives");
    world.insert_one(crates[1], odd(Some(crates[2]))).expect("it lives");
    peer.put_in_room(world, crates[2], Room(1)).expect("it is networked");
    peer.enter_room(guests[0], Room(1)).expect("it is a guest");
    stage.rest(12);
    // hidden from one and shown to the other; its paint is no secret any more
    let Seat { peer, world, .. } = stage.table.seat(0);
    peer.leave_room(guests[0], Room(1)).expect("it is a guest");
    peer.enter_room(guests[1], Room(1)).expect("it is a guest");
    world.remove_one::<Secret>(crates[0]).expect("it was one");
    stage.rest(12);
    stage.shift(0, crates[2], 1.0, 1.0);
    stage.rest(6);
    // it comes back in another row, ends while one sees it, and the paint is gone again
    let Seat { peer, world, .. } = stage.table.seat(0);
    peer.enter_room(guests[0], Room(1)).expect("it is a guest");
    peer.leave_room(guests[1], Room(1)).expect("it is a guest");
    world.insert_one(crates[0], Secret).expect("it lives");
    stage.rest(12);
    let Seat { peer, world, .. } = stage.table.seat(0);
    peer.despawn(world, crates[2]).expect("the host may");
    let player = {
        let Seat { peer, world, .. } = stage.table.seat(1);
        peer.spawn(world, Player, (Spot { x: 5.0, y: 5.0 },)).expect("a guest may spawn a player")
    };
    stage.rest(8);
    for _ in 0..3 {
        stage.shift(1, player, 0.25, 0.0);
        stage.rest(1);
    }
    stage.end("crates in a room, and one with secret paint, seen by one guest and then by the other; a guest's own; an end")
}

fn rows() -> Scene {
    let relevance = Relevance::everything().place::<Spot>(|s| [s.x, s.y, 0.0]).detail(Detail { full: 20.0, slowest: 4 });
    let mut stage = Stage::seeing(1, 500_000, Some(relevance));
    let guest = stage.table.seat(1).peer.local();
    let host = &mut stage.table.seat(0).peer;
    host.look_from(guest, Viewpoint::Point([0.0; 3])).expect("it is a guest");
    let crates = stage.spawn_crates(130);
    stage.rest(40);
    for frame in 0..24 {
        stage.shift(0, crates[0], 0.1, 0.0);
        for crate_ in crates.iter().skip(frame).step_by(40) {
            stage.shift(0, *crate_, 0.0, 0.5);
        }
        if frame % 5 == 2 {
            stage.lose_next_down(1);
        }
        stage.rest(1);
    }
    stage.end("130 crates through a small budget, of which the far ones are told less often; some move, and packets are lost")
}
