//! A whole session, read by the second reader: at every guest and in both directions, whatever the peers take, it takes too, and
//! then holds what they hold.

mod common;
mod second_decoder;

use common::record::{Log, Passed, Recorder, Way};
use common::{Banner, Crate, Health, Player, Position, Relic, Rng, Tag, assert_settles, churn, config, schema_with};
use hecs::{Entity, World};
use second_decoder::bits::Bits;
use second_decoder::messages::{read_control, read_reliable};
use second_decoder::of_common;
use second_decoder::packet::{read_front, read_header};
use second_decoder::stream::Stream;
use second_decoder::tables::{TRAINED, trained};
use second_decoder::{Code, Fault, Schema, Sort, fields};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tidelock::netcore::transport::LinkId;
use tidelock::testing::{Seat, Table};
use tidelock::trained::Tables;
use tidelock::{NetId, PeerId, Replicate, To};
use tidelock_loopback::{Conditions, Network};

/// The host's event.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Bang(u32);
/// An event for all.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Cheer(u32);

fn schema() -> tidelock::Schema {
    schema_with(|schema| schema.event::<Bang>("bang").shared_event::<Cheer>("cheer"))
}

/// Their places among the names of messages.
const BANG: usize = 0;
const CHEER: usize = 2;

fn described() -> Schema {
    let number = || fields(&[("value", Code::Number { max: u32::MAX, order: 2 })]);
    of_common::described().and_message("bang", Sort::Event, number()).and_message("cheer", Sort::SharedEvent, number())
}

/// What one end was told of events: by place among the names and sender, those without a tick in order, those with one by it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told(BTreeMap<(usize, PeerId), Lists>);

/// Those without a tick, and those with one.
type Lists = (Vec<u32>, BTreeSet<(u64, u32)>);

impl Told {
    fn note(&mut self, index: usize, from: PeerId, at: Option<u64>, value: u32) {
        let (plain, timed) = self.0.entry((index, from)).or_default();
        match at {
            Some(at) => assert!(timed.insert((at, value)), "{value} at {at} came twice"),
            None => plain.push(value),
        }
    }

    /// What the second reader has heard on a stream. `from` sends it.
    fn of(stream: &Stream, from: PeerId) -> Self {
        let mut told = Self::default();
        for event in &stream.heard {
            let sender = event.shared.filter(|_| from == PeerId::HOST).map_or(from, |peer| PeerId(peer as u16));
            told.note(event.index, sender, event.at, event.words[0]);
        }
        told
    }

    /// Without what an end was told of its own.
    fn but(mut self, peer: PeerId) -> Self {
        self.0.retain(|(_, from), _| *from != peer);
        self
    }
}

/// The host and the guests send events, plain and timed.
fn send_events(table: &mut Table, frame: u32) {
    for seat in table.taken() {
        let Seat { peer, world, .. } = table.seat(seat);
        if !peer.is_in_session() {
            continue;
        }
        if seat == 0 && frame.is_multiple_of(7) {
            peer.send_message(world, To::All, &Bang(frame)).unwrap();
        }
        if frame % 11 == seat as u32 {
            peer.send_message(world, To::All, &Cheer(frame)).unwrap();
            peer.send_event_at(world, To::All, peer.event_tick().plus(u64::from(frame % 40)), &Cheer(frame * 2)).unwrap();
        }
    }
}

fn hear_events(told: &mut Told, peer: &mut tidelock::Peer) {
    for e in peer.events::<Bang>().unwrap() {
        told.note(BANG, e.from, e.at.map(|at| at.0), e.value.0);
    }
    for e in peer.events::<Cheer>().unwrap() {
        told.note(CHEER, e.from, e.at.map(|at| at.0), e.value.0);
    }
}

const HOST_ROWS: u64 = 262_144;
const GUEST_ROWS: u64 = 16_384;

/// What one direction has sent so far, for the rules that hold for every packet whether it arrives or not.
#[derive(Default)]
struct Sender {
    number: u64,
    send_tick: u64,
    floor: u64,
}

/// One direction of a link.
struct Direction {
    reader: Stream,
    sender: Sender,
    taken: u64,
    useless: u64,
    /// Packets with a trained table.
    trained: u64,
}

impl Direction {
    fn new(schema: Schema, rows: u64) -> Self {
        Self { reader: Stream::new(schema, rows), sender: Sender::default(), taken: 0, useless: 0, trained: 0 }
    }
}

/// The link between the host and one guest.
struct Link {
    schema: Rc<Schema>,
    down: Direction,
    up: Direction,
    /// Before its welcome a guest does not listen to datagrams.
    welcome: bool,
    /// Components that the guest itself spoke for, and the send tick that the host's newest value had then.
    own: BTreeMap<(u64, usize), Option<u64>>,
    /// Entities that the guest may have despawned itself.
    owned: BTreeSet<u64>,
    messages: u64,
    compared: u64,
}

impl Link {
    fn new(tables: Option<&Tables>) -> Self {
        let trained = tables.map_or(Vec::new(), |tables| trained(&tables.to_bytes()));
        let schema = described().with_tables(trained);
        Self {
            schema: Rc::new(schema.clone()),
            down: Direction::new(schema.clone(), HOST_ROWS),
            up: Direction::new(schema, GUEST_ROWS),
            welcome: false,
            own: BTreeMap::new(),
            owned: BTreeSet::new(),
            messages: 0,
            compared: 0,
        }
    }

    /// Takes in what passed at one of the two ends.
    fn pass(&mut self, passed: &Passed, tick: u64) {
        let at_host = passed.end == 0;
        match (passed.lane, passed.way) {
            (Some(lane), Way::Received) => self.take_message(lane.0, &passed.bytes),
            (Some(_), Way::Sent) => {}
            (None, Way::Sent) => {
                let (out, back) = if at_host { (&mut self.down, &self.up) } else { (&mut self.up, &self.down) };
                check_sent(&mut out.sender, &back.reader, back.sender.number, &passed.bytes, tick);
            }
            (None, Way::Received) if !at_host && !self.welcome => {}
            (None, Way::Received) => {
                let (into, back) = if at_host { (&mut self.up, &self.down) } else { (&mut self.down, &self.up) };
                match into.reader.read(&passed.bytes, tick, back.sender.number) {
                    Ok(packet) => {
                        into.taken += 1;
                        let codings = packet.codings.iter().flat_map(|codings| codings.components.values());
                        let named = codings.flat_map(|coding| coding.tables.iter().flatten()).any(|table| *table >= TRAINED);
                        into.trained += u64::from(named);
                    }
                    Err(Fault::Useless(_)) => into.useless += 1,
                    Err(Fault::Malformed(why)) => panic!("malformed: {why}: {:02x?}", passed.bytes),
                }
            }
        }
    }

    fn take_message(&mut self, lane: u8, bytes: &[u8]) {
        if lane == 0 {
            let (name, _) = read_control(bytes).expect("a control message");
            self.welcome |= name == "Welcome";
        } else {
            read_reliable(&self.schema, bytes).expect("a message of the game");
            self.messages += 1;
        }
    }
}

/// The rules for a packet that is being sent. `back` has read the other direction up to now.
fn check_sent(sender: &mut Sender, back: &Stream, greatest_sent_back: u64, bytes: &[u8], tick: u64) {
    let mut bits = Bits::new(bytes);
    let front = read_front(&mut bits, sender.number.max(1), sender.send_tick.max(1)).expect("a state packet");
    let (header, _) = read_header(&mut bits, front, tick, greatest_sent_back).expect("a header");
    assert_eq!(header.number, sender.number + 1, "numbers are counted");
    assert!(header.complete <= header.session_tick, "complete beyond the tick: {header}");
    assert!(header.floor <= header.number, "a floor above the number: {header}");
    assert!(header.floor >= sender.floor, "a floor that went back from {}: {header}", sender.floor);
    assert!(header.session_tick.abs_diff(tick) <= 60, "a session tick far from {tick}: {header}");
    assert_eq!(header.ack.clone().unwrap_or_default(), back.ranges(), "an acknowledgement is all ranges kept: {header}");
    *sender = Sender { number: header.number, send_tick: sender.send_tick.max(header.send_tick), floor: header.floor };
}

/// The words of a component in a world.
fn words(world: &World, entity: Entity, name: &str) -> Option<Vec<u32>> {
    let metres = |v: f32| ((f64::from(v) + 500.0) / 0.01 + 0.5).floor() as u32;
    match name {
        "position" => world.get::<&Position>(entity).ok().map(|p| vec![metres(p.x), metres(p.y)]),
        "health" => world.get::<&Health>(entity).ok().map(|h| vec![u32::from(h.0)]),
        "banner" => world.get::<&Banner>(entity).ok().map(|b| vec![b.colour as u32]),
        "tag" => world.get::<&Tag>(entity).ok().map(|_| Vec::new()),
        _ => None,
    }
}

fn has_authority(seat: &Seat, entity: Entity, name: &str) -> bool {
    match name {
        "position" => seat.peer.has_authority::<Position>(&seat.world, entity),
        "health" => seat.peer.has_authority::<Health>(&seat.world, entity),
        "banner" => seat.peer.has_authority::<Banner>(&seat.world, entity),
        _ => seat.peer.has_authority::<Tag>(&seat.world, entity),
    }
}

const COMPARED: [&str; 4] = ["position", "health", "banner", "tag"];

/// The guest's world must be what the second reader holds of the host's stream.
fn compare_guest(link: &mut Link, seat: &Seat) -> Result<(), String> {
    let schema = link.schema.clone();
    let reader = &link.down.reader;
    for row in reader.rows() {
        let Some(presence) = reader.presence(row).filter(|presence| presence.life == 1) else { continue };
        let own = presence.owners.iter().any(|(owner, _)| *owner == u32::from(seat.peer.local().0));
        if own {
            link.owned.insert(presence.net);
        }
        let named: Vec<_> = (1..=schema.components.len()).filter(|c| presence.has(*c)).collect();
        let whole = named.iter().all(|c| reader.shown(row, *c).is_some());
        let Some(entity) = seat.find(NetId(presence.net)) else {
            if whole && !link.owned.contains(&presence.net) {
                let sent: Vec<_> = named.iter().map(|c| (*c, reader.sent(row, *c))).collect();
                return Err(format!("row {row}: {presence:?} is not in the world; {sent:?}; {}", reader.history(row)));
            }
            continue;
        };
        for name in COMPARED {
            let column = schema.column(name);
            let key = (presence.net, column);
            if has_authority(seat, entity, name) {
                link.own.insert(key, reader.sent(row, column));
                continue;
            }
            // its own last word stays until a word of the host's comes
            let newest = reader.sent(row, column);
            if link.own.get(&key).is_some_and(|then| newest <= *then) {
                continue;
            }
            let (told, here) = (reader.shown(row, column), words(&seat.world, entity, name));
            if told != here.as_deref() {
                return Err(format!("row {row} {name} of {presence:?}: told {told:?} at {newest:?}, here {here:?}"));
            }
            link.compared += 1;
        }
    }
    Ok(())
}

/// At rest, the host's world must be what the second reader holds of a guest's stream, where the guest has the say.
fn compare_host(link: &Link, guest: &Seat, host: &Seat) -> Result<u64, String> {
    let schema = &link.schema;
    let reader = &link.up.reader;
    let mut compared = 0;
    for row in reader.rows() {
        let Some(presence) = reader.presence(row).filter(|presence| presence.life == 1) else { continue };
        let (Some(here), Some(there)) = (guest.find(NetId(presence.net)), host.find(NetId(presence.net))) else {
            return Err(format!("row {row}: {presence:?} is not in both worlds"));
        };
        for name in COMPARED.into_iter().filter(|name| has_authority(guest, here, name)) {
            let (told, there) = (reader.shown(row, schema.column(name)), words(&host.world, there, name));
            if told != there.as_deref() {
                return Err(format!("row {row} {name} of {presence:?}: told {told:?}, at the host {there:?}"));
            }
            compared += 1;
        }
    }
    Ok(compared)
}

/// At rest, the host's stream must tell of just the entities that there are.
fn compare_lives(link: &Link, host: &Seat) {
    let reader = &link.down.reader;
    let told: BTreeSet<u64> =
        reader.rows().into_iter().filter_map(|row| reader.presence(row)).filter(|p| p.life == 1).map(|p| p.net).collect();
    let world = &host.world;
    let all = world.query::<(Entity, hecs::Or<&Crate, hecs::Or<&Player, &Relic>>)>().iter().map(|(e, _)| e).collect::<Vec<_>>();
    let there: BTreeSet<u64> = all.into_iter().filter_map(|e| host.peer.name_of(world, e)).map(|net| net.0).collect();
    assert_eq!(told, there, "who lives");
}

fn weather() -> Conditions {
    Conditions {
        latency: Duration::from_millis(50),
        jitter: Duration::from_millis(20),
        loss: 0.1,
        duplicate: 0.05,
        reorder: 0.1,
        ..Conditions::default()
    }
}

/// The host gives entities away and takes them back.
fn hand_over(table: &mut Table, rng: &mut Rng) {
    let peers: Vec<PeerId> = table.taken().into_iter().map(|seat| table.seat(seat).peer.local()).collect();
    let Seat { peer, world, .. } = table.seat(0);
    let relics: Vec<Entity> = world.query::<(Entity, &Relic)>().iter().map(|(e, _)| e).collect();
    if relics.len() < 12 {
        let at = Position { x: 1.0, y: rng.below(300) as f32 };
        peer.spawn(world, Relic, (at, Banner { colour: 7 }, Health(9))).expect("the host may spawn");
    } else if rng.chance(20) {
        let relic = relics[rng.below(relics.len() as u64) as usize];
        let to = peers[rng.below(peers.len() as u64) as usize];
        if to != PeerId::NOBODY {
            // both slots, since `churn` writes the banner of whatever it simulates
            (0..2).for_each(|slot| peer.grant(world, relic, slot, to).expect("the host may grant"));
        }
    }
}

/// Tables of what peers send in such a session, of another seed.
fn trained_tables(seed: u64) -> Tables {
    let mut rng = Rng::new(seed);
    let mut table = common::table_of(seed, &schema(), 2, weather(), &config()).0;
    (0..3).for_each(|seat| table.seat(seat).peer.start_recording());
    for _ in 0..900 {
        hand_over(&mut table, &mut rng);
        table.run(|seat, world, step| churn(seat, world, step, &mut rng));
    }
    let recordings = [0, 1, 2].map(|seat| table.seat(seat).peer.take_recording().expect("it was begun"));
    let [mut all, others @ ..] = recordings;
    others.iter().for_each(|other| all.merge(other).expect("one schema"));
    Tables::train(&all, 8).unwrap_or_else(|error| panic!("SEED={seed}: {error}"))
}

fn read_session(seed: u64, tables: Option<&Tables>) {
    let (log, network) = (Log::default(), Network::new(seed));
    let mut rng = Rng::new(seed);
    let host = tidelock::Config { tables: tables.cloned(), ..config() };
    let mut table = Table::new(seed, &schema(), host, Recorder::new(network.host(), &log, 0)).unwrap();
    let mut links = Vec::new();
    for end in 1..=2 {
        let transport = network.join(weather(), weather());
        links.push((transport.link().expect("a guest has one link"), Link::new(tables)));
        table.join(config(), Recorder::new(transport, &log, end)).unwrap();
    }
    let mut follow = |table: &mut Table, frame: u32| {
        let tick = table.seat(0).peer.tick().0;
        for passed in log.take() {
            let (_, link) = links.iter_mut().find(|(id, _)| *id == passed.link).expect("a link of this session");
            link.pass(&passed, tick);
        }
        for (end, (_, link)) in links.iter_mut().enumerate() {
            let found = compare_guest(link, table.seats[end + 1].as_ref().expect("nobody leaves"));
            found.unwrap_or_else(|found| panic!("SEED={seed} frame {frame} guest {}: {found}", end + 1));
        }
    };
    let mut told = [Told::default(), Told::default(), Told::default()];
    for frame in 0..3600 {
        hand_over(&mut table, &mut rng);
        send_events(&mut table, frame);
        table.run(|seat, world, step| {
            hear_events(&mut told[seat], step.peer());
            churn(seat, world, step, &mut rng);
        });
        if frame % 100 == 99 && table.seat(1).peer.is_in_session() {
            let Seat { peer, world, .. } = table.seat(1);
            peer.send_message(world, To::Host, &common::Chat { text: format!("frame {frame}") }).unwrap();
        }
        follow(&mut table, frame);
    }
    for frame in 3600..3900 {
        table.run(|seat, _, step| hear_events(&mut told[seat], step.peer()));
        follow(&mut table, frame);
    }
    assert_settles(&mut table, 1);
    check_events(seed, &mut table, &links, told);
    for (end, (_, link)) in links.iter().enumerate() {
        let (host, guest) = (table.seats[0].as_ref().unwrap(), table.seats[end + 1].as_ref().unwrap());
        compare_lives(link, host);
        let at_host = compare_host(link, guest, host).unwrap_or_else(|found| panic!("SEED={seed} host: {found}"));
        for (direction, name) in [(&link.down, "down"), (&link.up, "up")] {
            let (reader, taken) = (&direction.reader, direction.taken);
            assert!(reader.contradictions.is_empty(), "SEED={seed} {name}: {:?}", reader.contradictions);
            assert_eq!(direction.trained > 100, tables.is_some(), "SEED={seed} {name}: {} in trained tables", direction.trained);
            assert!(taken > 1000 && direction.useless > 10, "SEED={seed} {name}: {taken} taken, {} useless", direction.useless);
        }
        let (down, up) = (link.down.reader.has_through(), guest.peer.stats(PeerId::HOST).expect("in session").complete.0);
        assert_eq!(down, up, "SEED={seed}: what the guest knows to be complete");
        assert!(link.compared > 100_000 && at_host > 10, "SEED={seed}: compared {} and {at_host} values", link.compared);
    }
    assert!(links[0].1.messages >= 30, "SEED={seed}: {} messages", links[0].1.messages);
}

/// What every end was told is what the second reader has heard.
fn check_events(seed: u64, table: &mut Table, links: &[(LinkId, Link)], told: [Told; 3]) {
    let [at_host, at_guests @ ..] = told;
    let mut at_host = at_host.but(PeerId::HOST);
    for (end, (_, link)) in links.iter().enumerate() {
        let guest = table.seat(end + 1).peer.local();
        let heard = Told::of(&link.down.reader, PeerId::HOST);
        let senders: BTreeSet<PeerId> = heard.0.keys().map(|(_, from)| *from).collect();
        assert!(senders.len() == 2 && !senders.contains(&guest), "SEED={seed}: {senders:?}");
        assert!(heard.0.values().map(|(plain, timed)| plain.len() + timed.len()).sum::<usize>() > 1000, "SEED={seed}");
        assert_eq!(heard, at_guests[end].clone().but(guest), "SEED={seed}: down to guest {}", end + 1);
        let heard = Told::of(&link.up.reader, guest);
        for (key, of_guest) in heard.0 {
            assert_eq!(Some(of_guest), at_host.0.remove(&key), "SEED={seed}: up from guest {}, {key:?}", end + 1);
        }
    }
    assert_eq!(at_host, Told::default(), "SEED={seed}: the host was told what nobody said");
}

#[test]
fn a_session_is_read_alike() {
    for seed in common::seeds(1) {
        read_session(seed, None);
    }
}

#[test]
fn a_session_with_trained_tables_is_read_alike() {
    for seed in common::seeds(1) {
        read_session(seed, Some(&trained_tables(seed + 1000)));
    }
}
