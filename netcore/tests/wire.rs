//! The worked examples of `docs/WIRE.md`: headers, acknowledgements and codes, byte for byte.

use std::time::Duration;
use tidelock_netcore::ack::{AckRanges, Received};
use tidelock_netcore::bits::{BitReader, BitWriter};
use tidelock_netcore::packet::{Echo, Header, PacketKind, References, Stamp, WireTime};
use tidelock_netcore::tick::Tick;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}

/// Packet 5 of send 5, at session tick 300, against the values of send 3; everything sent, packets from 4 on undecided.
fn header() -> Header {
    Header {
        number: 5,
        send_tick: Tick(5),
        tick: Tick(300),
        base: Some(Tick(3)),
        events: false,
        complete: Tick(300),
        floor: 4,
        ack: None,
        stamp: None,
    }
}

fn read(bytes: &[u8]) -> Header {
    let mut r = BitReader::new(bytes);
    assert_eq!(PacketKind::read(&mut r), Ok(PacketKind::State));
    let near = References { number: 4, send_tick: Tick(4), tick: Tick(302), sent: 110 };
    let header = Header::read(&mut r, near).unwrap();
    assert_eq!(r.flag(), Ok(false), "no entry");
    r.finish().unwrap();
    header
}

#[test]
fn golden_codes() {
    let mut w = BitWriter::new();
    w.put(0b101, 3);
    w.golomb(9, 2);
    w.put(0x1234, 16);
    assert_eq!(hex(&w.to_bytes()), "6d 34 12");
}

#[test]
fn an_empty_state_packet() {
    let mut w = BitWriter::new();
    header().write(PacketKind::State, None, &mut w);
    w.flag(false);
    let bytes = w.to_bytes();
    assert_eq!(hex(&bytes), "14 00 14 00 b0 04 08 05");
    assert_eq!(read(&bytes), header());
}

#[test]
fn an_acknowledgement_of_three_ranges() {
    let mut received = Received::new(90);
    for n in (90..=93).chain(95..=95).chain(100..=107) {
        received.insert(n);
    }
    let mut w = BitWriter::new();
    header().write(PacketKind::State, Some(&received), &mut w);
    w.flag(false);
    let bytes = w.to_bytes();
    assert_eq!(hex(&bytes), "14 00 14 00 b0 04 08 75 0d c0 1b c2 00");
    let ack = read(&bytes).ack.unwrap();
    let acked: Vec<u64> = (0..120).filter(|n| ack.contains(*n)).collect();
    assert_eq!(acked, (90..=93).chain(95..=95).chain(100..=107).collect::<Vec<_>>());

    let mut w = BitWriter::new();
    received.write(&mut w);
    let bytes = w.to_bytes();
    assert_eq!(hex(&bytes), "6b 00 de 10 06");
    assert_eq!(AckRanges::read(&mut BitReader::new(&bytes), 110), Ok(ack));
}

#[test]
fn a_stamp_with_an_echo() {
    let echo = Echo { time: WireTime(0x0400), held: Duration::from_micros(7500) };
    let stamp = Some(Stamp { sent: WireTime::of(Duration::from_secs(2)), echo: Some(echo) });
    let header = Header { stamp, complete: Tick(297), ..header() };
    let mut w = BitWriter::new();
    header.write(PacketKind::State, None, &mut w);
    w.flag(false);
    let bytes = w.to_bytes();
    assert_eq!(hex(&bytes), "14 00 14 00 b0 04 08 4c 02 7d 04 20 e0 01");
    assert_eq!(read(&bytes), header);
}
