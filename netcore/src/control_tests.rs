use super::*;
use crate::forks::{ForkAnswer, ForkAsk, ForkFound, ForkLocated, ForkQuestion, StateDigest};
use proptest::prelude::*;

fn bytes_of(message: &Control) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, &mut out);
    out
}

fn entry(name: &str, digest: u64) -> SchemaEntry {
    SchemaEntry { name: name.into(), digest }
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        session: 0x1122_3344_5566_7788,
        epoch: 2,
        peer: 3,
        tick_rate: 60,
        time_us: 1_500_000,
        lease: 1 << 16,
        peers: vec![(0, "host".into()), (1, "mara".into())],
        tables: Some(SessionTables { digest: 7, bytes: vec![1, 2, 3] }),
    }
}

fn samples() -> Vec<Control> {
    vec![
        Control::Hello(Hello::new(&[1, 2], 77, &[entry("position", 1), entry("hat", u64::MAX)], "björn")),
        Control::Welcome(welcome()),
        Control::Joined { peer: 9, name: "iris".into() },
        Control::Left { peer: 9, code: 2, text: "language".into() },
        Control::LeaseRequest,
        Control::Lease { first: 3 << 16 },
        Control::Digest(Digest { round: 4, parts: vec![(0, 5), (63, u64::MAX)] }),
        Control::Verdict(Verdict { round: 4, differing: vec![63] }),
        Control::OwnershipRequest(OwnershipRequest { number: 7, net: (3 << 16) + 5, slot: 1 }),
        Control::OwnershipRelease(OwnershipRelease { net: 9, slot: 0, epoch: 300, to: None }),
        Control::OwnershipRelease(OwnershipRelease { net: u64::MAX, slot: 3, epoch: u16::MAX, to: Some(2) }),
        Control::OwnershipAnswer(OwnershipAnswer { number: 7, verdict: OwnershipVerdict::Granted { epoch: 4 } }),
        Control::OwnershipAnswer(OwnershipAnswer { number: u32::MAX, verdict: OwnershipVerdict::Unanswered }),
    ]
    .into_iter()
    .chain(forks().into_iter().map(Control::Fork))
    .collect()
}

/// One of each word about forks, and of each answer.
fn forks() -> Vec<Fork> {
    let ask = |ask| Fork::Question(ForkQuestion { line: 2, tick: 300, ask });
    vec![
        Fork::Digest(StateDigest { line: 2, tick: 300, digest: 0x0102_0304_0506_0708 }),
        Fork::Found(ForkFound { line: 1, tick: 7, digest: 5, peers: vec![(1, 6), (900, u64::MAX)] }),
        ask(ForkAsk::Sums),
        ask(ForkAsk::Classes { part: 1 }),
        ask(ForkAsk::Rows { part: 1, class: 63 }),
        ask(ForkAsk::Value { part: 1, net: 1 << 63 }),
        Fork::Answer(ForkAnswer::Gone),
        Fork::Answer(ForkAnswer::Sums(vec![1, 2])),
        Fork::Answer(ForkAnswer::Classes(vec![3; 4])),
        Fork::Answer(ForkAnswer::Rows(vec![(9, 1), (10, u64::MAX)])),
        Fork::Answer(ForkAnswer::Value(Some(vec![1, 2, 3]))),
        Fork::Answer(ForkAnswer::Value(None)),
        Fork::Answer(ForkAnswer::TooLong),
        Fork::Located(ForkLocated {
            line: 2,
            tick: 300,
            peer: 3,
            net: 9,
            part: 1,
            field: "x".into(),
            host: "1.5".into(),
            guest: "2.5".into(),
        }),
    ]
}

#[test]
fn every_message_comes_back() {
    for message in samples() {
        assert_eq!(decode(&bytes_of(&message)), Ok(message));
    }
}

#[test]
fn every_prefix_and_every_extension_is_refused() {
    for message in samples() {
        let mut bytes = bytes_of(&message);
        for end in 0..bytes.len() {
            assert!(matches!(decode(&bytes[..end]), Err(PeerError::Malformed { .. })), "{message:?} cut at {end}");
        }
        bytes.push(0);
        assert!(decode(&bytes).is_err(), "{message:?} with a byte more");
    }
}

#[test]
fn another_format_is_refused() {
    let mut bytes = bytes_of(&Control::LeaseRequest);
    bytes[0] = 2;
    assert!(matches!(decode(&bytes), Err(PeerError::Malformed { what: "format of a control message", .. })));
}

#[test]
fn golden_bytes() {
    let hex = |m: Control| bytes_of(&m).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let found = [
        hex(Control::LeaseRequest),
        hex(Control::Lease { first: 0x0102_0304_0506_0708 }),
        hex(Control::Joined { peer: 9, name: "iris".into() }),
        hex(Control::Verdict(Verdict { round: 4, differing: vec![1, 63] })),
        hex(Control::Welcome(welcome())),
        hex(Control::OwnershipRequest(OwnershipRequest { number: 7, net: (3 << 16) + 5, slot: 1 })),
        hex(Control::OwnershipRelease(OwnershipRelease { net: 9, slot: 0, epoch: 300, to: Some(2) })),
        hex(Control::OwnershipAnswer(OwnershipAnswer { number: 7, verdict: OwnershipVerdict::Granted { epoch: 4 } })),
        hex(Control::OwnershipAnswer(OwnershipAnswer { number: 7, verdict: OwnershipVerdict::Taken })),
    ];
    assert_eq!(found, GOLDEN);
}

const GOLDEN: [&str; 9] = [
    "0104",
    "0105000807060504030201",
    "010209000469726973",
    "010704040202013f",
    "0101010000887766554433221104020300043c0260e316000200000100020200010404686f73746d617261010607030639",
    "01080407020500030001",
    "01090609002c01010200",
    "010a0407000400",
    "010a040703",
];

#[test]
fn golden_bytes_of_forks() {
    let hex = |m: Fork| bytes_of(&Control::Fork(m)).iter().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(forks().into_iter().map(hex).collect::<Vec<_>>(), GOLDEN_FORKS);
}

const GOLDEN_FORKS: [&str; 14] = [
    "010b0002042c01000807060504030201",
    "010b010106070605020001008403000600000000000000ffffffffffffffff",
    "010b0202042c0100",
    "010b0202042c010101",
    "010b0202042c0102013f",
    "010b0202042c010301000000000000000080",
    "010b0300",
    "010b030102060102",
    "010b0302040606ff",
    "010b03030206090a000100000000000000ffffffffffffffff",
    "010b030401030639",
    "010b030400",
    "010b0305",
    "010b0402042c010300060901017803312e3503322e35",
];

#[test]
fn words_about_forks_beyond_their_limits_are_refused() {
    let long = "x".repeat(limits::FORK_TEXT_BYTES + 1);
    let Some(Fork::Located(located)) = forks().pop() else { panic!("the last is where it was located") };
    let refused = [
        Fork::Found(ForkFound { line: 1, tick: 7, digest: 5, peers: vec![(1, 6); limits::PEERS + 1] }),
        Fork::Answer(ForkAnswer::Sums(vec![1; limits::COMPONENTS + 2])),
        Fork::Answer(ForkAnswer::Classes(vec![1; limits::FORK_CLASSES + 1])),
        Fork::Answer(ForkAnswer::Rows(vec![(1, 1); limits::FORK_ROWS + 1])),
        Fork::Answer(ForkAnswer::Value(Some(vec![0; limits::FORK_VALUE_BYTES + 1]))),
        Fork::Located(ForkLocated { field: long.clone(), ..located.clone() }),
        Fork::Located(ForkLocated { host: long.clone(), ..located.clone() }),
        Fork::Located(ForkLocated { guest: long, ..located }),
    ];
    for fork in refused {
        let result = decode(&bytes_of(&Control::Fork(fork.clone())));
        assert!(matches!(result, Err(PeerError::OverLimit { .. })), "{fork:?}: {result:?}");
    }
    // the largest of each fits a message
    let most = [
        Fork::Found(ForkFound { line: 1, tick: u64::MAX, digest: u64::MAX, peers: vec![(u16::MAX, u64::MAX); limits::PEERS] }),
        Fork::Answer(ForkAnswer::Rows(vec![(u64::MAX, u64::MAX); limits::FORK_ROWS])),
        Fork::Answer(ForkAnswer::Value(Some(vec![255; limits::FORK_VALUE_BYTES]))),
    ];
    for fork in most {
        assert!(decode(&bytes_of(&Control::Fork(fork))).is_ok());
    }
}

#[test]
fn lists_and_texts_beyond_their_limits_are_refused() {
    let long = "x".repeat(limits::NAME_BYTES + 1);
    let mut hello = Hello::new(&[1], 0, &[], "a");
    hello.versions = vec![1; limits::VERSIONS + 1];
    let mut many = Hello::new(&[1], 0, &[], "a");
    many.schema = vec![entry("a", 0); SCHEMA_ENTRIES + 1];
    let mut named = Hello::new(&[1], 0, &[], "a");
    named.schema = vec![entry(&long, 0)];
    let refused = [
        Control::Hello(hello),
        Control::Hello(many),
        Control::Hello(named),
        Control::Joined { peer: 0, name: long.clone() },
        Control::Left { peer: 0, code: 0, text: "x".repeat(limits::CLOSE_TEXT_BYTES + 1) },
        Control::Welcome(Welcome { peers: vec![(0, String::new()); limits::PEERS + 1], ..welcome() }),
        Control::Welcome(Welcome { peers: vec![(0, long)], ..welcome() }),
        Control::Welcome(Welcome { tick_rate: 0, ..welcome() }),
        Control::Welcome(Welcome { tick_rate: limits::TICK_RATE + 1, ..welcome() }),
        Control::Welcome(Welcome { time_us: limits::SESSION_MICROS, ..welcome() }),
        Control::Welcome(Welcome { tables: Some(tables(limits::TABLES_BYTES + 1)), ..welcome() }),
        Control::Lease { first: u64::MAX },
        Control::Digest(Digest { round: 0, parts: vec![(0, 0); limits::COMPONENTS + 1] }),
        Control::Verdict(Verdict { round: 0, differing: vec![0; limits::COMPONENTS + 1] }),
    ];
    for message in refused {
        assert!(matches!(decode(&bytes_of(&message)), Err(PeerError::OverLimit { .. })), "{message:?}");
    }
}

fn tables(bytes: usize) -> SessionTables {
    SessionTables { digest: u64::MAX, bytes: (0..bytes).map(|i| (i * 37) as u8).collect() }
}

#[test]
fn too_many_bytes_are_refused_before_decoding() {
    let bytes = vec![FORMAT; limits::MESSAGE_BYTES + 1];
    assert_eq!(decode(&bytes), Err(PeerError::OverLimit { what: "the length of a control message" }));
}

#[test]
fn the_largest_greetings_fit_one_message() {
    let name = |i: usize| format!("{i:0width$}", width = limits::NAME_BYTES);
    let digest = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let schema: Vec<_> = (0..SCHEMA_ENTRIES).map(|i| entry(&name(i), digest(i))).collect();
    let hello = Hello::new(&[u16::MAX; limits::VERSIONS], 1, &schema, &name(0));
    assert!(!hello.complete && hello.schema.len() > 200, "{} of {} listed", hello.schema.len(), schema.len());
    let bytes = bytes_of(&Control::Hello(hello.clone()));
    assert!(bytes.len() <= limits::MESSAGE_BYTES, "{} bytes", bytes.len());
    assert_eq!(decode(&bytes), Ok(Control::Hello(hello)));

    for tables in [None, Some(tables(0)), Some(tables(limits::TABLES_BYTES))] {
        let peers = (0..limits::PEERS).map(|i| (i as u16, name(i))).collect();
        let mut welcome = Welcome { peers, tables, ..welcome() };
        let rest = welcome.cut_to_fit();
        assert_eq!(welcome.peers.len() + rest.len(), limits::PEERS);
        assert_eq!(rest[0].0 as usize, welcome.peers.len(), "the rest follows on");
        let bytes = bytes_of(&Control::Welcome(welcome.clone()));
        assert!(bytes.len() <= limits::MESSAGE_BYTES, "{} bytes", bytes.len());
        assert_eq!(decode(&bytes), Ok(Control::Welcome(welcome)));
    }

    let ordinary: Vec<_> = (0..SCHEMA_ENTRIES).map(|i| entry(&format!("message number {i}"), digest(i))).collect();
    assert!(Hello::new(&[1], 1, &ordinary, "a").complete, "names of ordinary length are all listed");
}

#[test]
fn names_are_cleaned_on_the_way_in_and_out() {
    assert_eq!(clean("a\u{1b}[31mb\r\n\u{202e}c", 64), "a[31mbc");
    assert_eq!(clean("ééé", 5), "éé", "cut between characters");
    let rude = Control::Joined { peer: 1, name: "x\u{7}\u{0}y".into() };
    assert_eq!(decode(&bytes_of(&rude)), Ok(Control::Joined { peer: 1, name: "xy".into() }));
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), tagged in any::<bool>()) {
        if tagged && !bytes.is_empty() {
            bytes[0] = FORMAT;
        }
        let _ = decode(&bytes);
    }

    #[test]
    fn damaged_messages_never_panic_and_keep_the_limits(which in 0usize..13, at in any::<prop::sample::Index>(), with in any::<u8>()) {
        let mut bytes = bytes_of(&samples()[which]);
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        if let Ok(mut message) = decode(&bytes) {
            prop_assert!(check(&mut message).is_ok());
        }
    }

    #[test]
    fn any_greeting_comes_back(
        versions in proptest::collection::vec(any::<u16>(), 0..limits::VERSIONS),
        digest in any::<u64>(),
        parts in proptest::collection::vec((".{0,40}", any::<u64>()), 0..40),
        name in ".{0,80}",
    ) {
        let parts: Vec<_> = parts.iter().map(|(n, d)| entry(n, *d)).collect();
        let hello = Control::Hello(Hello::new(&versions, digest, &parts, &name));
        prop_assert_eq!(decode(&bytes_of(&hello)), Ok(hello));
    }
}
