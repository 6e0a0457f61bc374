//! Headers of state packets, and the acknowledgements in them: whatever is accepted comes back the same, and a receiver that
//! follows the headers never acknowledges what it did not take, nor more ranges than it may.
//!
//! Input: packets, each a byte of length and its bytes.

use std::collections::BTreeSet;
use std::time::Duration;
use tidelock_netcore::ack::{AckRanges, Receipt, Received};
use tidelock_netcore::bits::{BitReader, BitWriter};
use tidelock_netcore::limits;
use tidelock_netcore::packet::{Echo, Header, PacketKind, References, Stamp, WireTime};
use tidelock_netcore::tick::Tick;

/// Feeds the packets to one receiver, in order.
pub fn run(data: &[u8]) {
    let mut received = Received::new(1);
    let mut taken = BTreeSet::new();
    let mut newest_send = Tick(1);
    let mut rest = data;
    while let Some((&len, after)) = rest.split_first() {
        let (packet, after) = after.split_at(usize::from(len).min(after.len()));
        rest = after;
        let mut r = BitReader::new(packet);
        if PacketKind::read(&mut r) != Ok(PacketKind::State) {
            continue;
        }
        let near = References { number: received.reference(), send_tick: newest_send, tick: Tick(300), sent: 110 };
        let Ok(header) = Header::read(&mut r, near) else { continue };
        check(&header, near);
        take(&header, &mut received, &mut taken);
        newest_send = newest_send.max(header.send_tick);
    }
}

fn check(header: &Header, near: References) {
    assert!(header.floor <= header.number && header.complete <= header.tick);
    assert!(header.base.is_none_or(|b| b < header.send_tick && header.send_tick.since(b) <= limits::BASE_AGE));
    let mut w = BitWriter::new();
    header.write(PacketKind::State, None, &mut w);
    let bytes = w.to_bytes();
    let mut r = BitReader::new(&bytes);
    assert_eq!(PacketKind::read(&mut r), Ok(PacketKind::State));
    let again = Header::read(&mut r, near).expect("what was read can be written and read again");
    assert!(r.finish().is_ok());
    assert_eq!(again, Header { ack: None, ..header.clone() });
    if let Some(ack) = &header.ack {
        let newest = ack.newest().expect("an acknowledgement names at least one packet");
        assert!(ack.contains(newest) && !ack.contains(newest + 1));
    }
}

fn take(header: &Header, received: &mut Received, taken: &mut BTreeSet<u64>) {
    let new = received.is_new(header.number);
    assert_eq!(received.insert(header.number) == Receipt::New, new);
    if !new {
        return;
    }
    assert!(taken.insert(header.number), "{} was taken twice", header.number);
    received.forget_below(header.floor.min(header.number));
    assert!(!received.is_empty() && !received.is_new(header.number));
    let mut w = BitWriter::new();
    received.write(&mut w);
    let bytes = w.to_bytes();
    let ack = AckRanges::read(&mut BitReader::new(&bytes), received.reference()).expect("an own acknowledgement can be read");
    assert_eq!(ack.newest(), received.newest());
    let newest = received.newest().expect("a packet was taken");
    for number in newest.saturating_sub(200)..=newest {
        assert!(!ack.contains(number) || taken.contains(&number), "{number} was acknowledged and never taken");
    }
}

/// Packets with and without a baseline, an acknowledgement, a stamp; and one series with gaps.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let header = |number: u64| Header {
        number,
        send_tick: Tick(number),
        tick: Tick(300),
        base: (number > 3).then(|| Tick(number - 2)),
        events: number % 3 == 0,
        complete: Tick(300 - number % 3),
        floor: number.saturating_sub(4).max(1),
        ack: None,
        stamp: None,
    };
    let mut acked = Received::new(90);
    for number in (90..=93).chain(95..=95).chain(100..=107) {
        acked.insert(number);
    }
    let echo = Echo { time: WireTime(0x0400), held: Duration::from_micros(7500) };
    let stamps = [Stamp { sent: WireTime(8000), echo: None }, Stamp { sent: WireTime(8001), echo: Some(echo) }];
    let packet = |header: &Header, acked: Option<&Received>| {
        let mut w = BitWriter::new();
        header.write(PacketKind::State, acked, &mut w);
        w.flag(false);
        let bytes = w.to_bytes();
        [&[bytes.len() as u8][..], &bytes].concat()
    };
    vec![
        packet(&header(1), None),
        packet(&header(5), Some(&acked)),
        packet(&Header { stamp: Some(stamps[0]), ..header(5) }, None),
        packet(&Header { stamp: Some(stamps[1]), ..header(6) }, Some(&acked)),
        [1, 2, 4, 3, 9, 7, 30, 8].iter().flat_map(|&number| packet(&header(number), Some(&acked))).collect(),
    ]
}
