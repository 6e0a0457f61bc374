//! Messages of the control lane: whatever is accepted keeps every limit and comes back the same, and whatever the input,
//! decoding it allocates no more than [`ALLOCATION_LIMIT`].

use crate::ALLOCATED;
use crate::attack::tables;
use tidelock::trained::{Recording, Tables};
use tidelock_netcore::control::{
    self, Control, Digest, Hello, OwnershipAnswer, OwnershipRelease, OwnershipRequest, OwnershipVerdict, SchemaEntry,
    SessionTables, Verdict, Welcome,
};
use tidelock_netcore::forks::{Fork, ForkAnswer, ForkAsk, ForkFound, ForkLocated, ForkQuestion, StateDigest};
use tidelock_netcore::limits;

/// Bytes that decoding one message may allocate at its peak. An element takes at least one bit of the at most 16 kB, and the
/// largest element (a text and a number) has 32 bytes in memory: 16 384 · 8 · 32 bytes are 4.2 MB; the rest is for what else
/// the decoder keeps.
pub const ALLOCATION_LIMIT: usize = 5_000_000;

/// The whole input is one message.
pub fn run(data: &[u8]) {
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.current_usage();
    let decoded = control::decode(data);
    let peak = ALLOCATED.peak_usage().saturating_sub(before);
    assert!(peak <= ALLOCATION_LIMIT, "{} bytes of input made the decoder allocate {peak}", data.len());
    tables_and_recordings(data);
    let Ok(message) = decoded else { return };
    assert!(data.len() <= limits::MESSAGE_BYTES);
    let mut again = Vec::new();
    control::encode(&message, &mut again);
    assert_eq!(control::decode(&again), Ok(message));
}

/// The whole input is trained tables, or a recording to train them from. Both begin like a message.
fn tables_and_recordings(data: &[u8]) {
    if let Ok(tables) = Tables::from_bytes(data) {
        assert_eq!(tables.to_bytes(), data);
    }
    if let Ok(recording) = Recording::from_bytes(data) {
        assert_eq!(Recording::from_bytes(&recording.to_bytes()), Ok(recording));
    }
}

/// One of each message.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let part = |name: &str, digest| SchemaEntry { name: name.into(), digest };
    let parts = [part("component position", 1), part("kind player", u64::MAX), part("message chat", 77)];
    let messages = [
        Control::Hello(Hello::new(&[1, 2], 77, &parts, "ana")),
        Control::Welcome(Welcome {
            version: 1,
            session: 0x1122_3344_5566_7788,
            epoch: 2,
            peer: 3,
            tick_rate: 60,
            time_us: 1_500_000,
            lease: 1 << 16,
            peers: vec![(0, "host".into()), (1, "ana".into())],
            tables: Some(SessionTables { digest: tables().digest(), bytes: tables().to_bytes() }),
        }),
        Control::Joined { peer: 9, name: "ana".into() },
        Control::Left { peer: 9, code: 2, text: "language".into() },
        Control::LeaseRequest,
        Control::Lease { first: 3 << 16 },
        Control::Digest(Digest { round: 4, parts: vec![(0, 5), (63, u64::MAX)] }),
        Control::Verdict(Verdict { round: 4, differing: vec![63] }),
        Control::OwnershipRequest(OwnershipRequest { number: 7, net: (3 << 16) + 5, slot: 1 }),
        Control::OwnershipRelease(OwnershipRelease { net: 9, slot: 0, epoch: 300, to: Some(2) }),
        Control::OwnershipAnswer(OwnershipAnswer { number: 7, verdict: OwnershipVerdict::Granted { epoch: 4 } }),
        Control::Fork(Fork::Digest(StateDigest { line: 2, tick: 300, digest: 0x0102_0304_0506_0708 })),
        Control::Fork(Fork::Found(ForkFound { line: 1, tick: 7, digest: 5, peers: vec![(1, 6), (900, u64::MAX)] })),
        Control::Fork(Fork::Question(ForkQuestion { line: 2, tick: 300, ask: ForkAsk::Rows { part: 1, class: 63 } })),
        Control::Fork(Fork::Answer(ForkAnswer::Sums(vec![1, 2]))),
        Control::Fork(Fork::Answer(ForkAnswer::Rows(vec![(9, 1), (10, u64::MAX)]))),
        Control::Fork(Fork::Answer(ForkAnswer::Value(Some(vec![1, 2, 3])))),
        Control::Fork(Fork::Located(ForkLocated {
            line: 2,
            tick: 300,
            peer: 3,
            net: 9,
            part: 1,
            field: "x".into(),
            host: "1.5".into(),
            guest: "2.5".into(),
        })),
    ];
    messages
        .iter()
        .map(|message| {
            let mut out = Vec::new();
            control::encode(message, &mut out);
            out
        })
        // and a recording in which nothing was counted
        .chain([tables().to_bytes(), vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0]])
        .collect()
}
