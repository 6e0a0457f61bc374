//! What each lane promises, and to whom messages go.

use crate::{foul, table};
use std::time::Duration;
use tidelock::layout::LayoutError;
use tidelock::policy::Host;
use tidelock::testing::Table;
use tidelock::{Config, PeerId, Replicate, Schema, SchemaMistake, To, UsageError};
use tidelock_loopback::Conditions;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Ordered(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Unordered(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Loose(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Sequenced(u32);
#[derive(Clone, Copy, Default)]
struct Pawn;

fn schema() -> Schema {
    let schema = Schema::builder("lanes").kind::<Pawn>("pawn", Host::default()).message::<Ordered>("ordered");
    let schema = schema.unordered_message::<Unordered>("unordered").unreliable_message::<Loose>("loose");
    schema.sequenced_message::<Sequenced>("sequenced").build().unwrap()
}

/// Sends what `message` makes of the numbers from 0 to `count`, one a frame and both ways, and gives what came at the host and the guest.
fn exchange<M: Replicate>(table: &mut Table, count: u32, message: fn(u32) -> M, number: fn(M) -> u32) -> [Vec<u32>; 2] {
    let mut came = [Vec::new(), Vec::new()];
    for i in 0..count + 300 {
        for (seat, to) in [(0, To::All), (1, To::Host)] {
            let seat = table.seat(seat);
            if i < count {
                seat.peer.send_message(&seat.world, to, &message(i)).unwrap();
            }
        }
        table.rest(1);
        for (seat, came) in came.iter_mut().enumerate() {
            came.extend(table.seat(seat).peer.messages::<M>().unwrap().into_iter().map(|(_, m)| number(m)));
        }
    }
    came
}

#[test]
fn each_lane_keeps_its_promise() {
    for seed in 1..=10 {
        let (mut table, _network) = table(seed, &schema(), &Config::default(), 1, foul());
        let all: Vec<u32> = (0..400).collect();
        for came in exchange(&mut table, 400, Ordered, |m| m.0) {
            assert_eq!(came, all, "SEED={seed}");
        }
        for mut came in exchange(&mut table, 400, Unordered, |m| m.0) {
            assert!(!came.is_sorted(), "SEED={seed}: nothing was overtaken");
            came.sort_unstable();
            assert_eq!(came, all, "SEED={seed}");
        }
        for came in exchange(&mut table, 400, Loose, |m| m.0) {
            assert!(!came.is_sorted() && came.len() > 250, "SEED={seed}: {} came", came.len());
        }
        for came in exchange(&mut table, 400, Sequenced, |m| m.0) {
            assert!(came.windows(2).all(|w| w[0] < w[1]), "SEED={seed}: not in sequence");
            assert!(came.len() > 180, "SEED={seed}: {} came", came.len());
        }
        let dropped = table.seat(0).peer.stats(PeerId(1)).unwrap().link.overtaken_messages;
        assert!(dropped > 20, "SEED={seed}: {dropped}");
    }
}

#[test]
fn sequences_go_on_where_their_numbers_wrap() {
    let config = Config { counters_from: (1 << 32) - 50, ..Config::default() };
    let light = Conditions { latency: Duration::from_millis(20), loss: 0.05, reorder: 0.05, ..Conditions::default() };
    let (mut table, _network) = table(3, &schema(), &config, 1, light);
    for came in exchange(&mut table, 3000, Sequenced, |m| m.0) {
        assert!(came.windows(2).all(|w| w[0] < w[1]));
        assert!(came.len() > 2700, "nine in ten at a loss of one in twenty: {}", came.len());
        let gap = came.windows(2).map(|w| w[1] - w[0]).max();
        assert!(gap < Some(12), "no gap where they wrap: {gap:?}");
    }
}

#[test]
fn one_some_all_and_all_but_one() {
    let (mut table, _network) = table(4, &schema(), &Config::default(), 4, Conditions::default());
    let guests: Vec<PeerId> = (1..=4).map(|seat| table.seat(seat).peer.local()).collect();
    let some = [guests[2], guests[0], guests[2]];
    let cases: [(To<'_>, &[usize]); 5] = [
        (To::Peer(guests[1]), &[2]),
        (To::Some(&some), &[1, 3]),
        (To::Some(&[]), &[]),
        (To::All, &[1, 2, 3, 4]),
        (To::AllBut(guests[3]), &[1, 2, 3]),
    ];
    for (number, (to, seats)) in cases.into_iter().enumerate() {
        let host = table.seat(0);
        host.peer.send_message(&host.world, to, &Ordered(number as u32)).unwrap();
        table.rest(3);
        for seat in 1..=4 {
            let came = table.seat(seat).peer.messages::<Ordered>().unwrap();
            let expected = if seats.contains(&seat) { vec![(PeerId::HOST, Ordered(number as u32))] } else { vec![] };
            assert_eq!(came, expected, "{to:?}, seat {seat}");
        }
    }
    let host = table.seat(0);
    for to in [To::Some(&[guests[0], PeerId(99)]), To::AllBut(PeerId(99)), To::Peer(PeerId(99))] {
        assert_eq!(host.peer.send_message(&host.world, to, &Ordered(9)), Err(UsageError::NoSuchPeer), "{to:?}");
    }
    let guest = table.seat(1);
    for to in [To::Some(&guests), To::AllBut(guests[1]), To::All, To::Peer(guests[1])] {
        assert!(matches!(guest.peer.send_message(&guest.world, to, &Ordered(9)), Err(UsageError::NotAllowed(_))), "{to:?}");
    }
    table.rest(3);
    assert_eq!(
        table.seat(1).peer.messages::<Ordered>(),
        Ok(vec![]),
        "nothing was sent to those before the one that is not there"
    );
}

macro_rules! of_every_size {
    ($($none:ident $most:ident),*) => { $(
        #[derive(Debug, PartialEq, Replicate)]
        struct $none;
        #[derive(Debug, PartialEq, Replicate)]
        struct $most {
            #[net(max = 512)]
            text: String,
            #[net(max = 385)]
            more: String,
        }
        impl $most {
            fn full() -> Self {
                Self { text: "x".repeat(512), more: "y".repeat(385) }
            }
        }
    )* };
}
of_every_size!(Ordered0 OrderedMost, Unordered0 UnorderedMost, Loose0 LooseMost, Sequenced0 SequencedMost);

#[derive(Debug, Replicate)]
struct TooLong {
    #[net(max = 512)]
    _text: String,
    #[net(max = 400)]
    _more: String,
}

/// Sends one that is empty and one that is as large as can be, again and again if they may be lost, until both have come whole.
fn both_come<N: Replicate, M: Replicate + PartialEq>(table: &mut Table, none: &N, most: &M, again: bool) {
    for (from, to, at) in [(0, To::All, 1), (1, To::Host, 0)] {
        let mut came = (0, 0);
        for frame in 0..300 {
            let seat = table.seat(from);
            if frame == 0 || again {
                seat.peer.send_message(&seat.world, to, none).unwrap();
                seat.peer.send_message(&seat.world, to, most).unwrap();
            }
            table.rest(1);
            let peer = &mut table.seat(at).peer;
            came.0 += peer.messages::<N>().unwrap().len();
            came.1 += peer.messages::<M>().unwrap().iter().filter(|(_, m)| m == most).count();
        }
        let what = std::any::type_name::<M>();
        assert!(if again { came.0 > 50 && came.1 > 50 } else { came == (1, 1) }, "{what} from seat {from}: {came:?}");
    }
}

#[test]
fn nothing_and_the_most_on_every_lane_and_no_more() {
    let schema = Schema::builder("sizes").kind::<Pawn>("pawn", Host::default());
    let schema = schema.message::<Ordered0>("ordered0").message::<OrderedMost>("ordered");
    let schema = schema.unordered_message::<Unordered0>("unordered0").unordered_message::<UnorderedMost>("unordered");
    let schema = schema.unreliable_message::<Loose0>("loose0").unreliable_message::<LooseMost>("loose");
    let schema = schema.sequenced_message::<Sequenced0>("sequenced0").sequenced_message::<SequencedMost>("sequenced");
    let config = Config { bandwidth: 8_000_000, ..Config::default() };
    let (mut table, _network) = table(5, &schema.build().unwrap(), &config, 1, foul());
    both_come(&mut table, &Ordered0, &OrderedMost::full(), false);
    both_come(&mut table, &Unordered0, &UnorderedMost::full(), false);
    both_come(&mut table, &Loose0, &LooseMost::full(), true);
    both_come(&mut table, &Sequenced0, &SequencedMost::full(), true);
    let too_long = Schema::builder("sizes").message::<TooLong>("long").build().map(|_| ()).unwrap_err().0;
    assert!(matches!(&too_long[..], [SchemaMistake::Layout { error: LayoutError::TooLarge(_), .. }]), "{too_long:?}");
    let host = table.seat(0);
    let over = OrderedMost { text: "x".repeat(513), more: String::new() };
    let refused = host.peer.send_message(&host.world, To::All, &over);
    assert!(matches!(refused, Err(UsageError::Message(_))), "{refused:?}");
}
