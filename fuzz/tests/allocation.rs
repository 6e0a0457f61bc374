//! The worst that one control message can make the decoder allocate, built by hand: lists of empty texts, as long as 16 kB hold.
//! The only test of its binary, because the count is of the whole process.

#![forbid(unsafe_code)]

use tidelock_fuzz::ALLOCATED;
use tidelock_fuzz::control::ALLOCATION_LIMIT;
use tidelock_netcore::control::{self, Control, Hello, SchemaEntry, Welcome};
use tidelock_netcore::error::PeerError;
use tidelock_netcore::limits;

fn hello(n: usize) -> Control {
    let schema = vec![SchemaEntry { name: String::new(), digest: 0 }; n];
    Control::Hello(Hello { schema, ..Hello::new(&[1], 0, &[], "a") })
}

fn welcome(n: usize) -> Control {
    let peers = vec![(0, String::new()); n];
    let (version, session, epoch, peer, tick_rate, time_us, lease) = (1, 1, 0, 1, 60, 0, 0);
    Control::Welcome(Welcome { version, session, epoch, peer, tick_rate, time_us, lease, peers, tables: None })
}

/// As many elements as fit one message; bitcode spends two bits on each.
const ELEMENTS: usize = 63_000;

#[test]
fn hostile_lists_stay_within_the_bound() {
    for (name, message) in [("hello", hello(ELEMENTS)), ("welcome", welcome(ELEMENTS))] {
        let mut bytes = Vec::new();
        control::encode(&message, &mut bytes);
        let len = bytes.len();
        assert!((limits::MESSAGE_BYTES * 3 / 4..=limits::MESSAGE_BYTES).contains(&len), "{name}: {len} bytes are no worst case");
        ALLOCATED.reset_peak_usage();
        let before = ALLOCATED.current_usage();
        let refused = control::decode(&bytes);
        let peak = ALLOCATED.peak_usage() - before;
        assert!(matches!(refused, Err(PeerError::OverLimit { .. })), "{name}: {refused:?}");
        assert!(peak > ELEMENTS * size_of::<SchemaEntry>(), "{name}: {peak} bytes: what was counted?");
        assert!(peak <= ALLOCATION_LIMIT, "{name}: {peak} bytes");
    }
}
