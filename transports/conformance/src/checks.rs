//! The promises, one function each.

use crate::Bed;
use crate::ends::{At, Ends};
use std::time::Duration;
use tidelock_netcore::error::{LinkError, TransportError};
use tidelock_netcore::limits;
use tidelock_netcore::transport::{Arrival, Delivery, Lane, LinkId, LinkStats};

/// Bytes that belong to message number `i`, and to no other of this size.
fn body(i: usize, size: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..size).map(|k| (k.wrapping_mul(31) ^ (k >> 8) ^ i.wrapping_mul(7)) as u8).collect();
    let head = (i as u32).to_le_bytes();
    let n = size.min(head.len());
    bytes[..n].copy_from_slice(&head[..n]);
    bytes
}

fn number(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|head| u32::from_le_bytes(*head) as usize)
}

const LANES: [Lane; 3] = [Lane::CONTROL, Lane::RELIABLE, Lane::BULK];
const BOTH: [(At, At); 2] = [(At::Guest(0), At::Host), (At::Host, At::Guest(0))];
/// Long enough for what is doubled or late to show itself.
const MOMENT: Duration = Duration::from_millis(100);

pub(crate) fn opens(bed: &mut dyn Bed) {
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    for (at, _) in BOTH {
        let link = ends.link(at, guest);
        assert!(matches!(ends.log(at)[0].arrival, Arrival::Opened { .. }), "{at:?}: the opening comes first");
        let facts = ends.facts(at, link).expect("an open link has facts");
        let limits = limits::DATAGRAM_MIN_BYTES..=usize::from(u16::MAX);
        assert!(limits.contains(&facts.datagram_limit), "{at:?}: {facts:?}");
        assert!(facts.free > 0, "{at:?}: a new link has room: {facts:?}");
        assert_ne!(facts.rate, Some(0), "{at:?}: a path that carries nothing is not open: {facts:?}");
    }
}

pub(crate) fn unknown_links(bed: &mut dyn Bed) {
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    for (at, _) in BOTH {
        let link = LinkId(4_000_000_000);
        assert_eq!(ends.facts(at, link), None, "{at:?}");
        assert_eq!(ends.try_datagram(at, link, b"x"), Err(TransportError::NotOpen), "{at:?}");
        assert_eq!(ends.try_message(at, link, Lane::CONTROL, b"x"), Err(TransportError::NotOpen), "{at:?}");
        assert_eq!(ends.transport(at).stats(link), LinkStats::default(), "{at:?}");
        ends.close(at, link, 1, "nobody");
    }
    ends.idle(MOMENT);
    assert!(ends.facts(At::Host, ends.link(At::Host, guest)).is_some(), "and closing them ends no other link");
}

pub(crate) fn in_order(bed: &mut dyn Bed) {
    const COUNT: usize = 2100;
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    for i in 0..COUNT {
        for (from, _) in BOTH {
            let link = ends.link(from, guest);
            ends.message(from, link, LANES[i % LANES.len()], &body(i, 4 + i % 50));
        }
    }
    expect_messages(&mut ends, guest, COUNT / LANES.len(), |lane, i| {
        let n = i * LANES.len() + lane;
        body(n, 4 + n % 50)
    });
}

pub(crate) fn unordered(bed: &mut dyn Bed) {
    const COUNT: usize = 500;
    const SIZES: [usize; 4] = [limits::MESSAGE_BYTES, 4, limits::MESSAGE_BYTES - 1, 1200];
    let lane = Lane::UNORDERED;
    let size = |i: usize| if i < SIZES.len() { SIZES[i] } else { 4 + i % 50 };
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    for (from, _) in BOTH {
        let link = ends.link(from, guest);
        let refused = Err(TransportError::TooLarge { size: limits::MESSAGE_BYTES + 1, limit: limits::MESSAGE_BYTES });
        assert_eq!(ends.try_message(from, link, lane, &vec![1; limits::MESSAGE_BYTES + 1]), refused, "{from:?}");
        ends.message(from, link, lane, &[]);
        (0..COUNT).for_each(|i| ends.message(from, link, lane, &body(i, size(i))));
    }
    ends.until("all messages without order", |ends| {
        BOTH.iter().all(|&(_, to)| ends.messages(to, ends.link(to, guest), lane).len() > COUNT)
    });
    ends.idle(MOMENT);
    for (_, to) in BOTH {
        let mut got = ends.messages(to, ends.link(to, guest), lane);
        got.sort_by_key(|bytes| number(bytes));
        assert_eq!(got.len(), COUNT + 1, "{to:?}: each exactly once");
        assert!(got[0].is_empty(), "{to:?}: the empty one");
        let whole = got[1..].iter().enumerate().all(|(i, bytes)| **bytes == body(i, size(i)));
        assert!(whole, "{to:?}: a message is another one, or came twice");
    }
}

/// Waits until `count` messages have come on each lane in both directions, and compares each.
fn expect_messages(ends: &mut Ends<'_>, guest: usize, count: usize, expected: impl Fn(usize, usize) -> Vec<u8>) {
    ends.until("all messages to arrive", |ends| {
        BOTH.iter().all(|&(_, to)| {
            let link = ends.link(to, guest);
            LANES.iter().all(|&lane| ends.messages(to, link, lane).len() >= count)
        })
    });
    ends.idle(MOMENT);
    for (_, to) in BOTH {
        for (l, &lane) in LANES.iter().enumerate() {
            let got = ends.messages(to, ends.link(to, guest), lane);
            assert_eq!(got.len(), count, "{to:?}, {lane:?}: each exactly once");
            for (i, bytes) in got.into_iter().enumerate() {
                assert!(bytes == expected(l, i), "{to:?}, {lane:?}: message {i} is another one or out of order");
            }
        }
    }
}

pub(crate) fn message_sizes(bed: &mut dyn Bed) {
    const SIZES: [usize; 9] = [0, 1, 2, 255, 256, 1200, 8192, limits::MESSAGE_BYTES - 1, limits::MESSAGE_BYTES];
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    for (i, &size) in SIZES.iter().enumerate() {
        for (from, _) in BOTH {
            for lane in LANES {
                let link = ends.link(from, guest);
                ends.message(from, link, lane, &body(i, size));
            }
        }
    }
    expect_messages(&mut ends, guest, SIZES.len(), |_, i| body(i, SIZES[i]));
}

pub(crate) fn message_too_large(bed: &mut dyn Bed) {
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    let size = limits::MESSAGE_BYTES + 1;
    let refused = Err(TransportError::TooLarge { size, limit: limits::MESSAGE_BYTES });
    for (from, _) in BOTH {
        let link = ends.link(from, guest);
        for lane in LANES {
            assert_eq!(ends.try_message(from, link, lane, &vec![1; size]), refused, "{from:?}");
            (0..100).for_each(|i| ends.message(from, link, lane, &body(i, 20)));
        }
    }
    expect_messages(&mut ends, guest, 100, |_, i| body(i, 20));
}

pub(crate) fn no_such_lane(bed: &mut dyn Bed) {
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    for (from, _) in BOTH {
        let link = ends.link(from, guest);
        for lane in [Lane::COUNT, Lane::COUNT + 1, u8::MAX] {
            assert_eq!(ends.try_message(from, link, Lane(lane), b"x"), Err(TransportError::NoSuchLane(lane)), "{from:?}");
        }
    }
    ends.idle(MOMENT);
    assert_eq!(ends.log(At::Host).len(), 1, "the host heard nothing but the opening");
}

pub(crate) fn datagram_sizes(bed: &mut dyn Bed) {
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    for (from, to) in BOTH {
        let (link, back) = (ends.link(from, guest), ends.link(to, guest));
        let limit = |ends: &mut Ends<'_>| ends.facts(from, link).expect("the link is open").datagram_limit;
        for size in [0, 1, 2, 500, limits::DATAGRAM_MIN_BYTES] {
            ends.until(&format!("a datagram of {size} bytes"), |ends| {
                // Sent again and again, since each may be lost.
                let answer = ends.try_datagram(from, link, &body(size, size));
                assert!(answer.is_ok(), "{size} bytes: {answer:?}");
                ends.datagrams(to, back).contains(&body(size, size).as_slice())
            });
        }
        ends.until("a datagram at the limit", |ends| {
            let size = limit(ends);
            // The limit may have changed in between; then this one does not count.
            let answer = ends.try_datagram(from, link, &body(size, size));
            assert!(answer.is_ok() || limit(ends) != size, "{size} bytes at the limit: {answer:?}");
            ends.datagrams(to, back).contains(&body(size, size).as_slice())
        });
        let size = limit(&mut ends) + 1;
        let answer = ends.try_datagram(from, link, &body(size, size));
        assert!(matches!(answer, Err(TransportError::TooLarge { size: s, .. }) if s == size), "{from:?}: {answer:?}");
    }
}

pub(crate) fn datagram_flood(bed: &mut dyn Bed) {
    const COUNT: usize = 5000;
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    let size = |i: usize| 4 + i * 37 % (limits::DATAGRAM_MIN_BYTES - 4);
    for i in 0..COUNT {
        for (from, _) in BOTH {
            let link = ends.link(from, guest);
            let answer = ends.try_datagram(from, link, &body(i, size(i)));
            assert!(answer.is_ok(), "{from:?}: {answer:?}");
            if answer == Ok(Delivery::Full) || i % 50 == 0 {
                ends.receive();
            }
        }
    }
    for (from, to) in BOTH {
        let (link, back) = (ends.link(from, guest), ends.link(to, guest));
        ends.until("a datagram after the flood", |ends| {
            let answer = ends.try_datagram(from, link, &body(COUNT, 100));
            assert!(answer.is_ok(), "{from:?}: {answer:?}");
            ends.datagrams(to, back).contains(&body(COUNT, 100).as_slice())
        });
        for bytes in ends.datagrams(to, back) {
            let i = number(bytes).expect("all were longer");
            let whole = if i == COUNT { 100 } else { size(i) };
            assert!(bytes == body(i, whole), "{to:?}: datagram {i} of {} bytes instead of {whole}", bytes.len());
        }
    }
}

pub(crate) fn message_flood(bed: &mut dyn Bed) {
    const SIZE: usize = 8192;
    /// Nobody may keep more than this for a peer that does not take it.
    const MOST: usize = 64 * limits::LANE_QUEUE_BYTES / SIZE;
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    for (from, to) in BOTH {
        let (link, back) = (ends.link(from, guest), ends.link(to, guest));
        let mut taken = 0;
        // Nobody polls meanwhile, so that it must fill up at some time.
        while ends.try_message(from, link, Lane::RELIABLE, &body(taken, SIZE)).expect("the link is open") == Delivery::Taken {
            taken += 1;
            ends.flush(from);
            assert!(taken < MOST, "{from:?}: {taken} messages taken and never Full");
        }
        if ends.facts(from, link).is_some_and(|f| f.independent_lanes) {
            for lane in [Lane::CONTROL, Lane::BULK] {
                let other = ends.try_message(from, link, lane, b"by the way");
                assert_eq!(other, Ok(Delivery::Taken), "{from:?}: a full lane leaves room on the others");
            }
        }
        ends.message(from, link, Lane::RELIABLE, &body(taken, SIZE));
        taken += 1;
        ends.until("all messages of the flood", |ends| ends.messages(to, back, Lane::RELIABLE).len() >= taken);
        ends.idle(MOMENT);
        let got = ends.messages(to, back, Lane::RELIABLE);
        assert_eq!(got.len(), taken, "{to:?}: each exactly once");
        assert!(got.iter().enumerate().all(|(i, bytes)| **bytes == body(i, SIZE)), "{to:?}: whole and in order");
    }
}

pub(crate) fn many_guests(bed: &mut dyn Bed) {
    const GUESTS: usize = 8;
    let mut ends = Ends::new(bed);
    let guests: Vec<usize> = (0..GUESTS).map(|_| ends.join()).collect();
    for i in 0..50 {
        for &guest in &guests {
            let (up, down) = (ends.link(At::Guest(guest), guest), ends.link(At::Host, guest));
            ends.message(At::Guest(guest), up, Lane::RELIABLE, &body(guest * 100 + i, 30));
            ends.message(At::Host, down, Lane::RELIABLE, &body(guest * 100 + 50 + i, 30));
        }
    }
    for &guest in &guests {
        for (to, first) in [(At::Host, guest * 100), (At::Guest(guest), guest * 100 + 50)] {
            let link = ends.link(to, guest);
            ends.until("the messages of every guest", |ends| ends.messages(to, link, Lane::RELIABLE).len() >= 50);
            let got = ends.messages(to, link, Lane::RELIABLE);
            assert!(got.iter().enumerate().all(|(i, bytes)| **bytes == body(first + i, 30)), "{to:?}: those of guest {guest}");
        }
    }
}

pub(crate) fn guest_closes(bed: &mut dyn Bed) {
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    closes(&mut ends, At::Guest(guest), At::Host, guest);
}

pub(crate) fn host_closes(bed: &mut dyn Bed) {
    let mut ends = Ends::new(bed);
    let (guest, other) = (ends.join(), ends.join());
    closes(&mut ends, At::Host, At::Guest(guest), guest);
    let (up, down) = (ends.link(At::Guest(other), other), ends.link(At::Host, other));
    ends.message(At::Guest(other), up, Lane::RELIABLE, b"still here");
    ends.until("a message of the other guest", |ends| ends.messages(At::Host, down, Lane::RELIABLE).len() == 1);
    assert_eq!(ends.closed(At::Guest(other), up), None);
}

/// `from` says a lot and closes; `to` must hear all of it, on every lane, then the code and the text.
fn closes(ends: &mut Ends<'_>, from: At, to: At, guest: usize) {
    const COUNT: usize = 42;
    let (link, back) = (ends.link(from, guest), ends.link(to, guest));
    let text = "é".repeat(limits::CLOSE_TEXT_BYTES / 2);
    for i in 0..COUNT {
        ends.message(from, link, LANES[i % LANES.len()], &body(i, 1000));
        ends.message(from, link, Lane::UNORDERED, &body(i, 1000));
    }
    ends.close(from, link, 77, &text);
    assert_not_open(ends, from, link);
    ends.close(from, link, 78, "twice is nothing more");
    ends.until("the link to close", |ends| ends.closed(to, back).is_some());
    let (place, reason) = ends.closed(to, back).expect("it was waited for");
    assert_eq!(*reason, LinkError::ClosedByPeer { code: 77, text }, "{to:?}");
    for (l, lane) in LANES.into_iter().enumerate() {
        let got = ends.messages(to, back, lane);
        let whole = got.iter().enumerate().all(|(i, bytes)| **bytes == body(i * LANES.len() + l, 1000));
        assert!(
            got.len() == COUNT / LANES.len() && whole,
            "{to:?}, {lane:?}: what was taken comes before the end, {} did",
            got.len()
        );
    }
    assert_eq!(ends.messages(to, back, Lane::UNORDERED).len(), COUNT, "{to:?}: those without order too");
    assert_not_open(ends, to, back);
    ends.idle(MOMENT);
    let later = ends.log(to)[place + 1..].iter().filter(|e| concerns(&e.arrival, back)).count();
    assert_eq!(later, 0, "{to:?}: nothing comes from a link after its end");
    assert_eq!(ends.closed(from, link), None, "{from:?}: who closes is not told of it");
}

fn assert_not_open(ends: &mut Ends<'_>, at: At, link: LinkId) {
    assert_eq!(ends.facts(at, link), None, "{at:?}: no facts after the end");
    assert_eq!(ends.try_datagram(at, link, b"x"), Err(TransportError::NotOpen), "{at:?}");
    assert_eq!(ends.try_message(at, link, Lane::CONTROL, b"x"), Err(TransportError::NotOpen), "{at:?}");
}

fn concerns(arrival: &Arrival, of: LinkId) -> bool {
    match arrival {
        Arrival::Opened { link, .. }
        | Arrival::Datagram { link }
        | Arrival::Message { link, .. }
        | Arrival::Closed { link, .. } => *link == of,
    }
}

pub(crate) fn host_stops(bed: &mut dyn Bed) {
    let mut ends = Ends::new(bed);
    let guests: Vec<usize> = (0..3).map(|_| ends.join()).collect();
    ends.stop_host();
    for &guest in &guests {
        let link = ends.link(At::Guest(guest), guest);
        ends.until("every guest to hear of the end", |ends| ends.closed(At::Guest(guest), link).is_some());
        assert_not_open(&mut ends, At::Guest(guest), link);
    }
}

pub(crate) fn guest_stops(bed: &mut dyn Bed) {
    let mut ends = Ends::new(bed);
    let guest = ends.join();
    let link = ends.link(At::Host, guest);
    ends.drop_guest(guest);
    ends.until("the host to hear of the guest's end", |ends| ends.closed(At::Host, link).is_some());
    assert_not_open(&mut ends, At::Host, link);
}

pub(crate) fn reconnects(bed: &mut dyn Bed) {
    let mut ends = Ends::new(bed);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let guest = ends.join();
        let link = ends.link(At::Host, guest);
        assert!(!seen.contains(&link), "{link:?} was used before: {seen:?}");
        seen.push(link);
        let up = ends.link(At::Guest(guest), guest);
        ends.close(At::Guest(guest), up, 1, "");
        ends.until("the host to hear of the end", |ends| ends.closed(At::Host, link).is_some());
    }
    for link in seen {
        assert_not_open(&mut ends, At::Host, link);
    }
}
