//! Messages and events byte for byte, as `docs/WIRE.md` has them, and what is no message.

use super::events::{Event, EventsIn, EventsOut};
use super::{Read, Request, Way, encode, read};
use crate::PeerId;
use crate::schema::{Inner, Promise, Schema};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tidelock_netcore::ack::{AckRanges, Received};
use tidelock_netcore::bits::{BitReader, BitWriter};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::Lane;

macro_rules! messages {
    ($($name:ident),*) => { $(
        #[derive(crate::Replicate)]
        struct $name {
            #[net(max = 40)]
            _text: String,
            _number: Option<u16>,
        }
    )* };
}
messages!(Bang, Chat, Cheer, Hint, Spot, Wink);

/// Of no field at all.
#[derive(crate::Replicate)]
struct Nothing;

impl Request for Hint {
    type Reply = Chat;
}

const EVERY: [Promise; 8] = [
    Promise::Unreliable,
    Promise::Ordered,
    Promise::Unordered,
    Promise::Sequenced,
    Promise::Event,
    Promise::SharedEvent,
    Promise::Request,
    Promise::Reply,
];

/// In the order of names: bang, chat, cheer, hint, hint.reply, nothing, spot, wink.
fn schema() -> Arc<Inner> {
    let schema = Schema::builder("wire").event::<Bang>("bang").message::<Chat>("chat").shared_event::<Cheer>("cheer");
    let schema = schema.request::<Hint>("hint").unordered_message::<Nothing>("nothing").sequenced_message::<Spot>("spot");
    schema.unreliable_message::<Wink>("wink").build().unwrap().0
}

fn find(schema: &Inner, promise: Promise) -> usize {
    schema.messages.iter().position(|m| m.promise == promise).unwrap()
}

fn way(promise: Promise) -> Way {
    promise.lane().map_or(Way::Datagram, Way::Lane)
}

/// Words of a text and an option of a number.
fn words(schema: &Inner, message: usize, text: &[u8], number: Option<u16>) -> Vec<u32> {
    let mut words = vec![0; schema.messages[message].layout.words()];
    if words.is_empty() {
        return words;
    }
    words[0] = text.len() as u32;
    text.iter().enumerate().for_each(|(i, byte)| words[1 + i / 4] |= u32::from(*byte) << (i % 4 * 8));
    let at = words.len() - 2;
    words[at] = u32::from(number.is_some());
    words[at + 1] = number.unwrap_or(0).into();
    words
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_bytes_are_those_of_the_page() {
    let schema = schema();
    let of = |promise, number, answered: bool| {
        let message = find(&schema, promise);
        let words = words(&schema, message, b"hi", Some(7));
        hex(&encode(&schema.messages[message], message, number, answered.then_some(&words[..])))
    };
    assert_eq!(of(Promise::Ordered, None, true), "01 02 5a da 03 00");
    assert_eq!(of(Promise::Unordered, None, true), "05");
    assert_eq!(of(Promise::Unreliable, None, true), "1d 08 68 69 0f 00 00");
    assert_eq!(of(Promise::Sequenced, Some(0x0102_0304), true), "19 10 0c 08 04 08 68 69 0f 00 00");
    assert_eq!(of(Promise::Request, Some(5), true), "03 05 00 00 00 02 5a da 03 00");
    assert_eq!(of(Promise::Reply, Some(5), true), "04 05 00 00 00 05 b4 b4 07 00");
    assert_eq!(of(Promise::Reply, Some(5), false), "04 05 00 00 00 00");
}

fn event(schema: &Inner, promise: Promise, relay: Option<PeerId>, at: Option<Tick>) -> Event {
    let message = find(schema, promise);
    Event { message, relay, at, words: words(schema, message, b"hi", Some(7)) }
}

/// What a peer sends that has these to send, and from which number on.
fn section(schema: &Inner, from_host: bool, first: u64, events: &[Event], tick: Tick) -> BitWriter {
    let (mut out, mut w) = (EventsOut::new(first), BitWriter::new());
    events.iter().for_each(|e| assert!(out.push(schema, from_host, e.clone(), Duration::ZERO).is_ok()));
    let riders = out.draft(schema, from_host, tick, 8 * 1000, &mut w);
    assert_eq!(riders.len(), events.len());
    w
}

#[test]
fn the_bits_of_events_are_those_of_the_page() {
    let (schema, tick) = (schema(), Tick(300));
    let timed = event(&schema, Promise::Event, None, Some(Tick(330)));
    let shared = event(&schema, Promise::SharedEvent, Some(PeerId(9)), None);
    let w = section(&schema, true, 65_537, &[timed.clone(), shared.clone()], tick);
    assert_eq!(hex(&w.to_bytes()), "06 00 00 1c 2c a0 a5 3d 00 20 30 01 02 5a da 03 00");
    let (mut r, mut came) = (w.to_bytes(), Vec::new());
    r.push(0);
    EventsIn::new(65_530, true).read(&schema, tick, &mut BitReader::new(&r), &mut came).unwrap();
    assert_eq!(came, [(65_537, timed), (65_538, shared)]);
}

#[test]
fn a_tick_far_ahead_of_the_packet_is_not_read() {
    let (schema, tick) = (schema(), Tick(300));
    for (ahead, is_read) in [(2 * limits::EVENT_AHEAD, true), (2 * limits::EVENT_AHEAD + 1, false)] {
        let far = event(&schema, Promise::Event, None, Some(tick.plus(ahead)));
        let bytes = section(&schema, true, 5, &[far], tick).to_bytes();
        let read = EventsIn::new(5, true).read(&schema, tick, &mut BitReader::new(&bytes), &mut Vec::new());
        assert_eq!(read.is_ok(), is_read, "{ahead} ticks ahead");
    }
    // nor one before the first there was
    let early = event(&schema, Promise::Event, None, Some(Tick(0)));
    let bytes = section(&schema, true, 5, &[early], tick).to_bytes();
    let read = |tick| EventsIn::new(5, true).read(&schema, tick, &mut BitReader::new(&bytes), &mut Vec::new());
    assert!(read(tick).is_ok() && read(Tick(299)).is_err());
}

proptest! {
    #[test]
    fn messages_are_read_as_written_and_no_prefix_is_one(
        sort in 0usize..8, text in "[a-z\u{e0}-\u{ff}]{0,20}", number in prop::option::of(any::<u16>()), id in any::<u32>(), answered in any::<bool>(),
    ) {
        let (schema, promise) = (schema(), EVERY[sort]);
        let message = find(&schema, promise);
        let words = words(&schema, message, text.as_bytes(), number);
        if promise.is_event() {
            let bytes = encode(&schema.messages[message], message, None, Some(&words));
            prop_assert!(read(&schema, &bytes, Way::Lane(Lane::RELIABLE)).is_err(), "an event comes in packets of state alone");
            return Ok(());
        }
        let numbered = matches!(promise, Promise::Sequenced | Promise::Request | Promise::Reply);
        let id = numbered.then_some(id);
        let answered = answered || promise != Promise::Reply;
        let bytes = encode(&schema.messages[message], message, id, answered.then_some(&words[..]));
        let expected = Read { message, number: id, words: answered.then_some(words) };
        prop_assert_eq!(read(&schema, &bytes, way(promise)), Ok(expected));
        for end in 0..bytes.len() {
            prop_assert!(read(&schema, &bytes[..end], way(promise)).is_err(), "{} of {} bytes", end, bytes.len());
        }
        prop_assert!(read(&schema, &[&bytes[..], &[0]].concat(), way(promise)).is_err(), "a byte too many");
        let others = [Way::Datagram, Way::Lane(Lane::RELIABLE), Way::Lane(Lane::UNORDERED)];
        for other in others.into_iter().filter(|other| *other != way(promise) && *other != Way::Datagram) {
            prop_assert!(read(&schema, &bytes, other).is_err(), "it came on another lane");
        }
    }

    #[test]
    fn what_is_no_message_panics_nobody(bytes in prop::collection::vec(any::<u8>(), 0..60), index in 0u8..9) {
        let schema = schema();
        let bytes = [&[index][..], &bytes].concat();
        for way in [Way::Datagram, Way::Lane(Lane::RELIABLE), Way::Lane(Lane::UNORDERED)] {
            let _ = read(&schema, &bytes, way);
        }
        for host in [false, true] {
            let mut came = Vec::new();
            let _ = EventsIn::new(5, host).read(&schema, Tick(9), &mut BitReader::new(&bytes[1..]), &mut came);
            prop_assert!(came.iter().map(|(_, e)| e.words.len()).sum::<usize>() <= limits::PACKET_WORDS);
        }
    }

    #[test]
    fn events_are_read_as_written_and_no_prefix_is(
        sorts in prop::collection::vec((any::<bool>(), prop::option::of(0u16..1024), prop::option::of(0u64..20_000)), 1..20),
        host in any::<bool>(), first in 1u64..200_000, tick in 0u64..100_000,
    ) {
        let schema = schema();
        let events: Vec<Event> = sorts.into_iter().map(|(shared, relay, at)| {
            let relay = relay.filter(|_| shared).map(|peer| if host { PeerId(peer) } else { PeerId::HOST });
            event(&schema, if shared { Promise::SharedEvent } else { Promise::Event }, relay, at.map(|at| Tick(tick + at)))
        }).collect();
        let w = section(&schema, host, first, &events, Tick(tick));
        let bytes = w.to_bytes();
        let read = |bytes: &[u8]| {
            let (mut came, mut r) = (Vec::new(), BitReader::new(bytes));
            EventsIn::new(first, host).read(&schema, Tick(tick), &mut r, &mut came).and_then(|()| {
                r.finish().map_err(|cause| tidelock_netcore::error::PeerError::Malformed { what: "end", cause })
            }).map(|()| came)
        };
        let came = read(&bytes).unwrap();
        prop_assert!(came.iter().map(|e| e.0).eq(first..first + events.len() as u64));
        prop_assert!(came.into_iter().map(|e| e.1).eq(events));
        for end in 0..w.len().div_ceil(8) - 1 {
            prop_assert!(read(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn whatever_happens_to_packets_each_comes_once_and_in_order(
        fates in prop::collection::vec((0u8..10, 0u8..4, any::<bool>()), 200..400), first in prop::sample::select(vec![1u64, 65_500, u64::from(u32::MAX) - 20]),
    ) {
        let schema = schema();
        let (mut out, mut to, mut received) = (EventsOut::new(first), EventsIn::new(first, true), Received::new(1));
        let (mut sent, mut came, mut flying) = (0u64, Vec::new(), Vec::new());
        let mut packet = 0;
        let calm = std::iter::repeat_n((8, 0, true), 40);
        for (step, (fate, new, acked)) in fates.into_iter().chain(calm).enumerate() {
            let now = Duration::from_millis(step as u64);
            for _ in 0..new {
                let numbered = Event { at: Some(Tick(sent)), ..event(&schema, Promise::Event, None, None) };
                sent += u64::from(out.push(&schema, true, numbered, now).is_ok());
            }
            packet += 1;
            let mut w = BitWriter::new();
            let riders = out.draft(&schema, true, Tick(0), 1500, &mut w);
            let some = !riders.is_empty();
            out.sent(packet, now, riders);
            if fate >= 3 && some {
                flying.push((packet, w.to_bytes()));
            } else if fate >= 3 {
                received.insert(packet);
            }
            // those in flight come the last first now and then, or not yet
            if fate % 2 == 1 {
                flying.reverse();
            }
            while flying.len() > usize::from(fate % 4) && let Some((number, bytes)) = flying.pop() {
                let mut read = Vec::new();
                to.read(&schema, Tick(0), &mut BitReader::new(&bytes), &mut read).unwrap();
                to.take(&mut read);
                received.insert(number);
                while let Some(event) = to.pop() {
                    came.push(event.at.unwrap().0);
                }
            }
            if acked && !received.is_empty() {
                let mut w = BitWriter::new();
                received.write(&mut w);
                let ranges = AckRanges::read(&mut BitReader::new(&w.to_bytes()), packet).unwrap();
                out.acknowledge(&ranges, now);
            }
            out.time_out(now.saturating_sub(Duration::from_millis(12)), now);
        }
        prop_assert!(came.iter().copied().eq(0..sent), "{:?} of {} came", came, sent);
        prop_assert!(!out.is_waiting() && to.early() == 0, "nothing is kept of what is through");
    }
}
