//! The examples of `docs/WIRE.md`, read by the reader that was written from that page alone.

mod second_decoder;

use second_decoder::bits::{Bits, widen};
use second_decoder::codings::read_codings;
use second_decoder::messages::{Event, GameMessage, read_any, read_control, read_events, read_reliable, read_unreliable};
use second_decoder::packet::{Context, Known, Packet, Stamp, read_front, read_head, read_rest};
use second_decoder::stream::{Mirror, Stream};
use second_decoder::values::{Base, read_value};
use second_decoder::{Code, Fault, Schema, Sort, fields};

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")).collect()
}

fn number() -> Code {
    Code::Number { max: 100_000, order: 4 }
}

fn two_components() -> Schema {
    let flag = fields(&[("value", Code::Choice { count: 2 })]);
    let at = fields(&[("x", number()), ("y", number())]);
    Schema::new(&[("a", flag.clone()), ("b", at)], 1, 1, &[("hit", true, flag.clone()), ("wave", false, flag)])
}

fn known<'a>(schema: &'a Schema, mirror: &'a Mirror) -> Known<'a> {
    Known {
        schema,
        mirror,
        blocks: 4096,
        greatest_number: 4,
        greatest_send_tick: 4,
        session_tick: 299,
        greatest_sent_back: 110,
        events: (true, 1),
    }
}

fn read(hex: &str) -> Result<Packet, Fault> {
    let (schema, mirror, bytes) = (two_components(), Mirror::default(), bytes(hex));
    let mut bits = Bits::new(&bytes);
    let front = read_front(&mut bits, 4, 4)?;
    read_rest(bits, front, known(&schema, &mirror))
}

fn empty() -> Packet {
    Packet {
        number: 5,
        send_tick: 5,
        session_tick: 300,
        base: Some(3),
        complete: 300,
        floor: 4,
        ack: None,
        stamp: None,
        codings: None,
        entries: Vec::new(),
        list: None,
        events: Vec::new(),
    }
}

#[test]
fn numbers() {
    let bytes = bytes("6d 34 12");
    let mut bits = Bits::new(&bytes);
    assert_eq!((bits.number(3), bits.exp_golomb(2), bits.number(16)), (Ok(5), Ok(9), Ok(0x1234)));
    bits.ended().expect("nothing follows");
    assert_eq!(widen(0xffff, 0x1_0001), 0xffff);
    assert_eq!(widen(0x8000, 0x1_0000), 0x1_8000, "at equal distance the greater one");
    assert_eq!(widen(0xffff, 3), 0xffff, "never below zero");
}

#[test]
fn headers() {
    assert_eq!(read("14 00 14 00 b0 04 08 05"), Ok(empty()));
    let acknowledging = Packet { ack: Some(vec![(100, 107), (95, 95), (90, 93)]), ..empty() };
    assert_eq!(read("14 00 14 00 b0 04 08 75 0d c0 1b c2 00"), Ok(acknowledging));
    let stamp = Some(Stamp { clock: 8000, echo: Some((0x400, 30)) });
    assert_eq!(read("14 00 14 00 b0 04 08 4c 02 7d 04 20 e0 01"), Ok(Packet { complete: 297, stamp, ..empty() }));
}

#[test]
fn every_shorter_packet_is_malformed() {
    let whole = bytes("14 00 14 00 b0 04 08 4c 02 7d 04 20 e0 01");
    for length in 0..whole.len() {
        let mut stream = Stream::new(two_components(), 262_144);
        let read = stream.read(&whole[..length], 299, 0);
        assert!(matches!(read, Err(Fault::Malformed(_))), "{length} bytes: {read:?}");
    }
}

#[test]
fn an_entry_and_its_values() {
    let schema = two_components();
    let mirror = Mirror::default();
    let bytes = bytes("c4 6b 35 50 82 1d b6 74 ff 3e 0d 07");
    let mut bits = Bits::new(&bytes);
    let codings = read_codings(&mut bits, &schema).expect("codings");
    assert_eq!((codings.components.keys().copied().collect::<Vec<_>>(), bits.position()), (vec![2], 7));
    let packet = Packet { codings: Some(codings), ..empty() };
    let entry = read_head(&mut bits, &packet, &Context::default(), known(&schema, &mirror)).expect("a head").expect("no end");
    assert_eq!(entry.masks, [(2, 1 << 3 | 1 << 4 | 1 << 10, Some(0))]);
    assert_eq!((entry.rested, bits.position()), (Some(1 << 10), 34));
    let mut value = || read_value(&mut bits, schema.fields(2), Some(Base { words: &[50_000, 50_000], age: 2 }));
    assert_eq!([value(), value(), value()], [Ok(vec![50_010, 50_000]), Ok(vec![49_990, 50_003]), Ok(vec![50_000, 99_999])]);
    let end = read_head(&mut bits, &packet, &Context::after(&entry), known(&schema, &mirror));
    assert_eq!((end, bits.position()), (Ok(None), 92));
    bits.ended().expect("the packet has ended");
}

#[test]
fn two_heads_in_context() {
    let schema = two_components();
    let mirror = Mirror::default();
    let bytes = bytes("43 8f 93 79 20 09 00");
    let mut bits = Bits::new(&bytes);
    let packet = Packet { codings: Some(read_codings(&mut bits, &schema).expect("codings")), ..empty() };
    assert_eq!(bits.position(), 10);
    let mut context = Context::default();
    let mut heads = Vec::new();
    for _ in 0..2 {
        let head = read_head(&mut bits, &packet, &context, known(&schema, &mirror)).expect("a head").expect("no end");
        context = Context::after(&head);
        heads.push((head, bits.position()));
    }
    assert_eq!((heads[0].0.block, heads[0].0.base, heads[0].0.sample_age, heads[0].1), (7, Some(3), 0, 27));
    assert_eq!(heads[0].0.masks, [(0, u64::MAX, Some(1)), (1, u64::MAX, None)]);
    assert_eq!((heads[1].0.block, heads[1].0.base, heads[1].0.sample_age, heads[1].1), (8, None, 2, 53));
    assert_eq!(heads[1].0.masks, [(0, 1, Some(0)), (1, 1, None)]);
}

/// Code, words at the baseline and its age, words, bits, bytes.
type Case = (Code, Option<(&'static [u32], u64)>, &'static [u32], u32, &'static str);

#[test]
fn single_values() {
    let cases: &[Case] = &[
        (number(), None, &[50_123], 17, "cb c3 00"),
        (number(), Some((&[50_000], 1)), &[50_123], 13, "3f 1b"),
        (number(), Some((&[50_000], 9)), &[50_123], 9, "b6 01"),
        (number(), Some((&[5], 1)), &[99_999], 26, "ff 3e 0d 03"),
        (Code::Wrapping { bits: 10 }, Some((&[1020], 1)), &[2], 6, "17"),
        (Code::Choice { count: 3 }, Some((&[1], 1)), &[2], 3, "04"),
        (Code::Choice { count: 2 }, Some((&[1], 1)), &[1], 1, "01"),
        (Code::Float, None, &[0x3fc0_0000], 32, "00 00 c0 3f"),
        (Code::Quat { bits: 8 }, Some((&[3, 127, 101, 127], 1)), &[3, 127, 100, 127], 12, "c4 04"),
        (Code::Quat { bits: 8 }, Some((&[3, 127, 127, 127], 1)), &[0, 127, 127, 127], 35, "ff f8 fb fb 03"),
        (Code::Text { cap: 12 }, None, &[3, 0x0074_6168, 0, 0], 28, "83 16 46 07"),
        (Code::Entity, None, &[65_537, 0], 25, "ff 02 02 00"),
    ];
    for (code, base, words, length, hex) in cases {
        let bytes = bytes(hex);
        let mut bits = Bits::new(&bytes);
        let base = base.map(|(words, age)| Base { words, age });
        let read = read_value(&mut bits, &fields(&[("value", *code)]), base);
        assert_eq!(read.as_deref(), Ok(*words), "{code:?} {hex}");
        assert_eq!(bits.position(), *length as usize, "{code:?} {hex}");
        bits.ended().expect("nothing follows");
    }
}

#[test]
fn messages() {
    let schema = two_components();
    assert_eq!(read_control(&bytes("01 04")), Ok(("LeaseRequest", &[][..])));
    assert_eq!(read_control(&bytes("01 05 00 08 07 06 05 04 03 02 01")).map(|(name, _)| name), Ok("Lease"));
    assert_eq!(read_control(&bytes("01 02 09 00 04 69 72 69 73")).map(|(name, _)| name), Ok("Joined"));
    assert_eq!(read_control(&bytes("01 07 04 04 02 02 01 3f")).map(|(name, _)| name), Ok("Verdict"));
    assert!(read_control(&bytes("02 04")).is_err());
    assert_eq!(read_reliable(&schema, &bytes("00 01")).map(|message| message.words), Ok(vec![1]));
    assert_eq!(read_unreliable(&schema, &bytes("05 04")).map(|message| message.words), Ok(vec![1]));
    assert!(read_reliable(&schema, &bytes("01 01")).is_err(), "a message that goes in datagrams");
    assert!(read_reliable(&schema, &bytes("02 01")).is_err(), "a number that the schema does not have");
}

/// The messages of the page's examples: each a text of at most 40 bytes and an optional u16.
fn every_message() -> Schema {
    let both = fields(&[
        ("_text", Code::Text { cap: 40 }),
        ("_number", Code::Maybe { fields: 1 }),
        ("_number.some", Code::Number { max: 65_535, order: 2 }),
    ]);
    let sorts = [
        ("bang", Sort::Event),
        ("chat", Sort::Ordered),
        ("cheer", Sort::SharedEvent),
        ("hint", Sort::Request),
        ("hint.reply", Sort::Reply),
        ("spot", Sort::Sequenced),
        ("wink", Sort::Unreliable),
    ];
    let schema = Schema::new(&[], 1, 1, &[]).and_message("nothing", Sort::Unordered, Vec::new());
    sorts.into_iter().fold(schema, |schema, (name, sort)| schema.and_message(name, sort, both.clone()))
}

/// `hi` and 7.
fn hi_and_seven() -> Vec<u32> {
    let mut words = vec![0; 13];
    (words[0], words[1], words[11], words[12]) = (2, 0x6968, 1, 7);
    words
}

#[test]
fn messages_of_every_promise() {
    let schema = every_message();
    let read = |lane, hex: &str| read_any(&schema, lane, &bytes(hex));
    let message = |index| GameMessage { index, words: hi_and_seven() };
    assert_eq!(read(Some(1), "01 02 5a da 03 00"), Ok((None, message(1))));
    assert_eq!(read(None, "1d 08 68 69 0f 00 00"), Ok((None, message(7))));
    assert_eq!(read(None, "19 10 0c 08 04 08 68 69 0f 00 00"), Ok((Some(0x0102_0304), message(6))));
    assert_eq!(read(Some(1), "03 05 00 00 00 02 5a da 03 00"), Ok((Some(5), message(3))));
    assert_eq!(read(Some(1), "04 05 00 00 00 05 b4 b4 07 00"), Ok((Some(5), message(4))));
    assert_eq!(read(Some(1), "04 05 00 00 00 00"), Ok((Some(5), GameMessage { index: 4, words: Vec::new() })), "refused");
    assert_eq!(read(Some(3), "05"), Ok((None, GameMessage { index: 5, words: Vec::new() })));
    assert!(read(Some(3), "01 02 5a da 03 00").is_err(), "on another lane");
    assert!(read(Some(1), "00 02 5a da 03 00").is_err(), "an event is in packets alone");
}

#[test]
fn events_in_a_packet() {
    let (schema, bytes) = (every_message(), bytes("06 00 00 1c 2c a0 a5 3d 00 20 30 01 02 5a da 03 00"));
    let mut bits = Bits::new(&bytes);
    let events = read_events(&mut bits, &schema, true, 65_530, 300);
    bits.ended().expect("nothing follows");
    let first = Event { number: 65_537, index: 0, shared: None, at: Some(330), words: hi_and_seven() };
    let second = Event { number: 65_538, index: 2, shared: Some(9), at: None, words: hi_and_seven() };
    assert_eq!(events, Ok(vec![first, second]));
    assert!(read_events(&mut Bits::new(&bytes), &schema, true, 64_000, 300).is_err(), "so far ahead it cannot be");
}
