//! Events: each exactly once and in order, in packets of state; those with a tick at the same moment everywhere.

use crate::{foul, seeds, table};
use std::collections::BTreeMap;
use std::time::Duration;
use tidelock::netcore::limits;
use tidelock::netcore::tick::Tick;
use tidelock::policy::Host;
use tidelock::testing::Table;
use tidelock::{Config, News, PeerId, Replicate, Schema, SchemaMistake, To, UsageError};
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Bang(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Cheer(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct At(i32);
#[derive(Clone, Copy, Default)]
struct Pawn;
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Letter {
    #[net(max = 512)]
    text: String,
    #[net(max = 340)]
    more: String,
}
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Note {
    #[net(max = 60)]
    text: String,
}
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Nothing;

fn schema() -> Schema {
    let schema = Schema::builder("events").kind::<Pawn>("pawn", Host::default()).component::<At>("at", |c| c);
    let schema = schema.event::<Bang>("bang").shared_event::<Cheer>("cheer").event::<Letter>("letter");
    schema.event::<Nothing>("nothing").build().unwrap()
}

/// What one seat was told: by type and sender, each as value, tick at which it goes off, tick at which it was told, lateness.
type Told = BTreeMap<(char, PeerId), Vec<(u32, Option<Tick>, Tick, u64)>>;

#[derive(Default)]
struct Diary {
    told: Told,
    /// By type: the numbers that it sent, and the tick of each then.
    sent: BTreeMap<char, Vec<Tick>>,
}

/// Everybody sends events now and then, and notes what it is told in every step.
fn frame(table: &mut Table, diaries: &mut Vec<Diary>, number: u64, sending: bool) {
    diaries.resize_with(table.seats.len(), Diary::default);
    for at in table.taken() {
        let seat = table.seat(at);
        if !sending || !seat.peer.is_in_session() {
            continue;
        }
        let (tick, sent) = (seat.peer.event_tick(), &mut diaries[at].sent);
        let (bang, cheer) = (sent.get(&'b').map_or(0, Vec::len) as u32, sent.get(&'c').map_or(0, Vec::len) as u32);
        let chance = (number * 7 + at as u64 * 3) % 5;
        if chance < 3 {
            let to = if at == 0 { To::All } else { To::Host };
            seat.peer.send_message(&seat.world, to, &Bang(bang)).unwrap();
            sent.entry('b').or_default().push(tick);
        }
        if chance == 1 || chance == 4 {
            let due = number.is_multiple_of(3);
            match due {
                true => seat.peer.send_event_at(&seat.world, To::All, tick.plus(30), &Cheer(cheer)).unwrap(),
                false => seat.peer.send_message(&seat.world, To::All, &Cheer(cheer)).unwrap(),
            }
            sent.entry('c').or_default().push(tick);
        }
    }
    table.run(|seat, world, step| {
        let tick = step.tick();
        if seat == 0 && number % 200 < 100 {
            world.query::<&mut At>().iter().for_each(|at| at.0 += 1);
        }
        let told = &mut diaries[seat].told;
        for e in step.peer().events::<Bang>().unwrap() {
            told.entry(('b', e.from)).or_default().push((e.value.0, e.at, tick, e.late));
        }
        for e in step.peer().events::<Cheer>().unwrap() {
            told.entry(('c', e.from)).or_default().push((e.value.0, e.at, tick, e.late));
        }
    });
}

/// Those without a tick came in order and each once, without a gap from the first to the last; so did those with one, of each sort.
fn check(list: &[(u32, Option<Tick>, Tick, u64)], own: bool, what: &str) -> (Vec<u32>, Vec<u64>) {
    let mut all: Vec<u32> = list.iter().map(|e| e.0).collect();
    let plain: Vec<u32> = list.iter().filter(|e| e.1.is_none()).map(|e| e.0).collect();
    assert!(plain.windows(2).all(|w| w[0] < w[1]), "{what}: not in order: {plain:?}");
    all.sort_unstable();
    // of its own, one is told those with a tick only
    assert!(all.windows(2).all(|w| w[0] + 1 == w[1] || own && w[0] < w[1]), "{what}: one is missing, or came twice: {all:?}");
    let mut late = Vec::new();
    for (value, at, told, lateness) in list {
        let Some(at) = at else { continue };
        assert!(told >= at, "{what}: {value} went off before its time");
        assert_eq!(told.since(*at), *lateness, "{what}: {value}");
        late.push(*lateness);
    }
    (all, late)
}

struct Outcome {
    /// Of timed events, how many ticks late.
    late: Vec<u64>,
    /// Of plain ones of the host, how many ticks they took.
    took: Vec<u64>,
}

/// A session of 600 frames with events, a guest that joins after 200 and one that leaves after 400.
fn session(seed: u64) -> Outcome {
    let (mut table, network) = table(seed, &schema(), &Config::default(), 3, foul());
    let host = table.seat(0);
    for _ in 0..20 {
        host.peer.spawn(&mut host.world, Pawn, (At(0),)).unwrap();
    }
    let mut diaries = Vec::new();
    let mut names = BTreeMap::new();
    for number in 0..900 {
        if number == 200 {
            table.join(Config::default(), network.join(foul(), foul())).unwrap();
        }
        if number == 400 {
            table.leave(2);
        }
        for at in table.taken() {
            if table.seat(at).peer.is_in_session() {
                names.insert(at, table.seat(at).peer.local());
            }
        }
        frame(&mut table, &mut diaries, number, number < 600);
    }
    assert_eq!(table.taken(), [0, 1, 3, 4], "SEED={seed}: somebody has lost its session");
    let mut outcome = Outcome { late: Vec::new(), took: Vec::new() };
    for (&sender, &name) in &names {
        for receiver in table.taken() {
            for sort in ['b', 'c'] {
                let sent = &diaries[sender].sent[&sort];
                let list = diaries[receiver].told.get(&(sort, name)).cloned().unwrap_or_default();
                let what = format!("SEED={seed}: {sort} of seat {sender} at seat {receiver}");
                let (all, late) = check(&list, sender == receiver, &what);
                outcome.late.extend(late);
                let hears = match (sort, sender == receiver) {
                    ('b', false) => sender == 0 || receiver == 0,
                    ('b', true) => false,
                    (_, own) => !own,
                };
                if sender == receiver || !hears {
                    continue;
                }
                // who left may have lost its last ones, who joined later was not there for the first ones
                let (whole_start, whole_end) = (receiver != 4, sender != 2);
                assert!(!whole_start || all.first() == Some(&0), "{what}: begins with {:?}", all.first());
                assert!(!whole_end || all.last() == Some(&(sent.len() as u32 - 1)), "{what}: ends with {:?}", all.last());
                assert!(all.len() > 20, "{what}: only {}", all.len());
                if sender == 0 {
                    let plain = list.iter().filter(|e| e.1.is_none());
                    outcome.took.extend(plain.map(|e| e.2.since(sent[e.0 as usize])));
                }
            }
        }
    }
    outcome
}

#[test]
fn each_exactly_once_in_order_and_on_time_with_a_join_and_a_leave() {
    let (mut late, mut took) = (Vec::new(), Vec::new());
    for seed in seeds(20) {
        let outcome = session(seed);
        late.extend(outcome.late);
        took.extend(outcome.took);
    }
    late.sort_unstable();
    took.sort_unstable();
    let at = |list: &[u64], of: f64| list[((list.len() - 1) as f64 * of) as usize];
    println!(
        "{} timed: {} on time, 99 % {} late, at most {}",
        late.len(),
        late.iter().filter(|l| **l == 0).count(),
        at(&late, 0.99),
        at(&late, 1.0)
    );
    println!("{} plain: half within {} ticks, 99 % {}, at most {}", took.len(), at(&took, 0.5), at(&took, 0.99), at(&took, 1.0));
    assert_eq!(at(&late, 0.8), 0, "four in five are on time half a second ahead, over two hops for most");
    assert!(at(&late, 1.0) < 150 && at(&took, 0.5) <= 15 && at(&took, 1.0) < 180, "a loss costs a round trip and a bit");
}

#[test]
fn they_cost_no_packet_of_their_own_beside_state() {
    let packets = |events: bool| {
        let (mut table, _network) = table(1, &schema(), &Config::default(), 1, Conditions::default());
        let host = table.seat(0);
        host.peer.spawn(&mut host.world, Pawn, (At(0),)).unwrap();
        table.rest(60);
        let before = table.seat(0).peer.stats(PeerId(1)).unwrap().sent;
        for number in 0..300 {
            let host = table.seat(0);
            if events {
                host.peer.send_message(&host.world, To::All, &Bang(number)).unwrap();
            }
            table.run(|seat, world, _| {
                if seat == 0 {
                    world.query::<&mut At>().iter().for_each(|at| at.0 += 1);
                }
            });
        }
        let after = table.seat(0).peer.stats(PeerId(1)).unwrap().sent;
        assert_eq!(table.seat(1).peer.events::<Bang>().unwrap().len(), if events { 300 } else { 0 });
        (after.packets - before.packets, after.bytes - before.bytes)
    };
    let (without, with) = (packets(false), packets(true));
    assert!(with.0 <= without.0 + 2, "{with:?} packets and bytes, without events {without:?}");
    let each = (with.1 - without.1) as f64 / 300.0;
    assert!(each < 9.0, "an event of 32 bits takes {each} bytes");
}

#[test]
fn sizes_from_nothing_to_the_limit() {
    let (mut table, _network) = table(2, &schema(), &Config::default(), 1, foul());
    let letter = Letter { text: "x".repeat(512), more: "y".repeat(340) };
    for (seat, to) in [(0, To::All), (1, To::Host)] {
        let seat = table.seat(seat);
        for _ in 0..40 {
            seat.peer.send_message(&seat.world, to, &letter).unwrap();
            seat.peer.send_message(&seat.world, to, &Nothing).unwrap();
        }
    }
    table.rest(400);
    for seat in 0..2 {
        let letters = table.seat(seat).peer.events::<Letter>().unwrap();
        assert!(letters.len() == 40 && letters.iter().all(|e| e.value == letter), "seat {seat}: {}", letters.len());
        assert_eq!(table.seat(seat).peer.events::<Nothing>().unwrap().len(), 40, "seat {seat}");
    }
    #[derive(Replicate)]
    struct TooLong {
        #[net(max = 512)]
        _text: String,
        #[net(max = 370)]
        _more: String,
    }
    let mistakes = Schema::builder("long").event::<TooLong>("long").build().map(|_| ()).unwrap_err().0;
    assert!(
        matches!(&mistakes[..], [SchemaMistake::TooLarge { bits, max: limits::EVENT_BITS, .. }] if *bits > 7000),
        "{mistakes:?}"
    );
}

#[test]
fn on_a_narrow_link_neither_state_nor_events_starve() {
    let slow = Config { bandwidth: 32_000, ..Config::default() };
    let (mut table, _network) =
        table(3, &schema(), &slow, 1, Conditions { latency: Duration::from_millis(20), ..Conditions::default() });
    let host = table.seat(0);
    for _ in 0..300 {
        host.peer.spawn(&mut host.world, Pawn, (At(0),)).unwrap();
    }
    let letter = Letter { text: "x".repeat(512), more: "y".repeat(300) };
    let mut told = 0;
    for number in 0..1200u32 {
        if number % 120 == 0 {
            let host = table.seat(0);
            host.peer.send_message(&host.world, To::All, &letter).unwrap();
            host.peer.send_message(&host.world, To::All, &Bang(number)).unwrap();
        }
        table.run(|seat, world, step| {
            if seat == 0 {
                world.query::<&mut At>().iter().for_each(|at| at.0 += 1000);
            } else {
                told += step.peer().events::<Letter>().unwrap().len() + step.peer().events::<Bang>().unwrap().len();
            }
        });
    }
    assert!(told >= 18, "{told} of 20 came");
    let guest = table.seat(1);
    let newest = guest.world.query::<&At>().iter().map(|at| at.0).max();
    assert!(newest > Some(900_000), "{newest:?}");
}

#[test]
fn too_many_on_their_way_are_refused_at_the_call_and_wrong_calls_too() {
    let (mut table, network) = table(4, &schema(), &Config::default(), 2, Conditions::default());
    let tick = table.seat(0).peer.event_tick();
    let host = table.seat(0);
    let far = host.peer.send_event_at(&host.world, To::All, tick.plus(limits::EVENT_AHEAD + 1), &Bang(0));
    assert!(matches!(far, Err(UsageError::NotAllowed(_))), "{far:?}");
    let guest = table.seat(1);
    assert!(
        matches!(guest.peer.send_message(&guest.world, To::All, &Bang(0)), Err(UsageError::NotAllowed(_))),
        "not a shared one"
    );
    network.cut(network.links()[0]);
    let host = table.seat(0);
    let mut taken = 0;
    let refused = loop {
        match host.peer.send_message(&host.world, To::Peer(PeerId(1)), &Bang(taken)) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((taken as usize, refused), (limits::EVENTS_IN_FLIGHT, UsageError::Backlog));
    assert_eq!(host.peer.send_message(&host.world, To::Peer(PeerId(2)), &Bang(0)), Ok(()), "the other is not affected");
    // nor by what goes to both, wherever it stands in the list
    assert_eq!(host.peer.send_message(&host.world, To::All, &Bang(7)), Err(UsageError::Backlog));
    assert_eq!(host.peer.send_event_at(&host.world, To::All, tick.plus(2), &Bang(8)), Err(UsageError::Backlog));
    let (mut others, mut own) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        table.rest(1);
        others.extend(table.seat(2).peer.events::<Bang>().unwrap().into_iter().map(|e| e.value.0));
        own.extend(table.seat(0).peer.events::<Bang>().unwrap().into_iter().map(|e| e.value.0));
    }
    assert_eq!((others, own), (vec![0, 7, 8], vec![8]));
}

/// Two who fill the queues of the others together, with what each alone may, and one who has said nothing yet.
#[test]
fn nobody_goes_for_what_others_have_filled() {
    let (mut table, network) = table(7, &schema(), &Config::default(), 4, Conditions::default());
    let slow = network.links()[3];
    let partition = |on: bool, now| network.edit(slow, tidelock_loopback::Direction::Down, |net| net.partition(now, on));
    partition(true, Duration::ZERO);
    for number in 0..60 {
        for seat in [1, 2] {
            let guest = table.seat(seat);
            for _ in 0..9 {
                let _ = guest.peer.send_message(&guest.world, To::All, &Cheer(number));
            }
        }
        table.rest(1);
    }
    let quiet = table.seat(3);
    quiet.peer.send_message(&quiet.world, To::All, &Cheer(999)).unwrap();
    table.rest(30);
    let now = table.now;
    partition(false, now);
    table.rest(120);
    for seat in [3, 4] {
        assert!(table.seat(seat).peer.is_in_session(), "seat {seat}: {:?}", table.seat(seat).peer.ended());
    }
    let told = table.seat(4).peer.events::<Cheer>().unwrap();
    assert!(told.iter().any(|e| e.value == Cheer(999)), "of {}", told.len());
}

/// A value that needs most of a packet goes though there are events for every packet, of which a few fill what it leaves.
#[test]
fn events_keep_no_large_value_out() {
    let schema = Schema::builder("large").kind::<Pawn>("pawn", Host::default()).component::<Letter>("letter", |c| c);
    let schema = schema.event::<Note>("note").build().unwrap();
    let config = Config { bandwidth: 8_000_000, ..Config::default() };
    let (mut table, _network) = table(8, &schema, &config, 1, Conditions::default());
    let host = table.seat(0);
    // nothing of it is as it was in the one before
    let noise = |n: usize, length: usize| -> String {
        let letter = |i: usize| char::from(b'a' + ((n * 977 + i) as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0] % 26);
        (0..length).map(letter).collect()
    };
    let letter = |n: usize| Letter { text: noise(n, 512), more: noise(n, 340) };
    let entity = host.peer.spawn(&mut host.world, Pawn, (letter(0),)).unwrap();
    let note = Note { text: "n".repeat(60) };
    let (mut came, mut shown) = (0, std::collections::BTreeSet::new());
    for number in 0..400 {
        let host = table.seat(0);
        for _ in 0..20 {
            let _ = host.peer.send_message(&host.world, To::All, &note);
        }
        *host.world.get::<&mut Letter>(entity).unwrap() = letter(number);
        table.rest(1);
        let guest = table.seat(1);
        came += guest.peer.events::<Note>().unwrap().len();
        shown.extend(guest.world.query::<&Letter>().iter().map(|letter| letter.text.clone()));
    }
    assert!(came > 6_000, "{came} events");
    assert!(table.seat(1).peer.is_in_session(), "{:?}", table.seat(1).peer.ended());
    assert!(shown.len() > 300, "of 400 letters {} came", shown.len());
    table.rest(20);
    let guest = table.seat(1);
    assert!(guest.world.query::<&Letter>().iter().all(|l| *l == letter(399)), "and it is the last");
}

#[test]
fn numbers_wrap_and_nothing_is_lost() {
    let config = Config { counters_from: (1 << 16) - 50, ..Config::default() };
    let (mut table, _network): (_, Network) = table(5, &schema(), &config, 1, foul());
    let mut came = Vec::new();
    for number in 0..700u32 {
        let host = table.seat(0);
        if number < 400 {
            host.peer.send_message(&host.world, To::All, &Bang(number)).unwrap();
        }
        table.rest(1);
        came.extend(table.seat(1).peer.events::<Bang>().unwrap().into_iter().map(|e| e.value.0));
    }
    assert_eq!(came, (0..400).collect::<Vec<_>>());
}

/// As much as its calls take, for ten seconds, while one takes nothing for two of them: it is refused, not removed.
#[test]
fn who_sends_all_it_may_stays_and_so_do_those_who_are_told() {
    let (mut table, network) = table(6, &schema(), &Config::default(), 3, Conditions::default());
    let slow = network.links()[1];
    let partition = |on: bool, now| network.edit(slow, tidelock_loopback::Direction::Down, |net| net.partition(now, on)).unwrap();
    let (mut sent, mut refused, mut told) = (0, 0, vec![Vec::new(); 4]);
    for frame in 0..660 {
        let now = table.now;
        match frame {
            120 => partition(true, now),
            240 => partition(false, now),
            _ => {}
        }
        let guest = table.seat(1);
        if frame < 600 {
            let mut send = |number| guest.peer.send_message(&guest.world, To::All, &Cheer(number));
            let error = loop {
                match send(sent) {
                    Ok(()) => sent += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(error, UsageError::Backlog);
            refused += 1;
        }
        if frame == 239 {
            let quiet = table.seat(3);
            quiet.peer.send_message(&quiet.world, To::All, &Cheer(u32::MAX)).unwrap();
        }
        table.rest(1);
        for (seat, told) in told.iter_mut().enumerate().skip(2) {
            told.extend(table.seat(seat).peer.events::<Cheer>().unwrap().into_iter().map(|e| (e.from, e.value.0)));
        }
    }
    assert_eq!(refused, 600, "in every frame there was one too many");
    let most = 10 * limits::SHARED_EVENTS_RATE + limits::EVENTS_IN_FLIGHT as u32;
    assert!((most * 9 / 10..=most).contains(&sent), "{sent} in ten seconds");
    for seat in 1..4 {
        assert!(table.seat(seat).peer.is_in_session(), "seat {seat}: {:?}", table.seat(seat).peer.ended());
    }
    let of = |seat: usize, from| told[seat].iter().filter(move |e| e.0 == PeerId(from)).map(|e| e.1).collect::<Vec<u32>>();
    assert_eq!(of(3, 1), (0..sent).collect::<Vec<_>>(), "who takes them is told all");
    // who did not lacks some, and those are counted; what it is told is in order, each once
    let (there, link) = (of(2, 1), table.seat(0).peer.stats(PeerId(1)).unwrap().link);
    assert!(there.windows(2).all(|w| w[0] < w[1]));
    assert_eq!(there.len() as u64 + link.dropped_messages, u64::from(sent));
    assert!(link.dropped_messages > 1000 && there.last() == Some(&(sent - 1)), "{} dropped", link.dropped_messages);
    assert_eq!(of(2, 3), [u32::MAX], "and takes no room from who says little");
    let news = table.seat(0).take_news();
    let dropped = |n: &News| matches!(n, News::MessageDropped { from: PeerId(1), message } if message == "cheer");
    assert!(news.iter().any(dropped), "the host is told");
}

/// Sixty in a frame over a link that loses one packet in twenty: nobody goes, and what did not come was counted.
#[test]
fn many_events_over_links_that_lose_some_cost_nobody_its_session() {
    for seed in seeds(4) {
        let weather = Conditions { latency: Duration::from_millis(60), loss: 0.05, ..Conditions::default() };
        let (mut table, _network) = table(seed, &schema(), &Config::default(), 3, weather);
        let (mut sent, mut told) = (0, [0u64; 4]);
        for frame in 0..780 {
            let guest = table.seat(1);
            for _ in 0..if frame < 600 { 60 } else { 0 } {
                sent += u64::from(guest.peer.send_message(&guest.world, To::All, &Cheer(frame)).is_ok());
            }
            table.rest(1);
            for seat in [2, 3] {
                told[seat] += table.seat(seat).peer.events::<Cheer>().unwrap().len() as u64;
            }
        }
        for seat in 1..4 {
            let ended = table.seat(seat).peer.ended().cloned();
            assert!(table.seat(seat).peer.is_in_session(), "SEED={seed}: seat {seat}: {ended:?}");
        }
        let dropped = table.seat(0).peer.stats(PeerId(1)).unwrap().link.dropped_messages;
        println!("SEED={seed}: {sent} sent, {told:?} told, {dropped} dropped");
        assert_eq!(told[2] + told[3] + dropped, 2 * sent, "SEED={seed}");
        assert!(sent > 18_000, "SEED={seed}: only {sent} were taken at the call");
    }
}
