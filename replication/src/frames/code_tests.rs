use super::*;
use crate::frames::feed::FrameFeed;
use crate::frames::intake::FrameIntake;
use crate::frames::sealer::{Present, Sealer};
use crate::frames::test_rig::{GO, PACE, STOP, arrived, begin, go, packet, quiet, schema, take};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}

/// The example of `docs/WIRE.md`.
#[test]
fn a_first_frame_and_what_follows_byte_for_byte() {
    let schema = schema(true);
    let mut sealer = Sealer::new(4);
    let repeated = Present { input: Some((Origin::Repeated, &[])), ..quiet(9) };
    sealer.seal(Tick(299), &[arrived(0, &[5, 1]), arrived(9, &[200, 0])], &schema.0);
    sealer.order(PeerId(9), 1, Tick(300), GO, go(7)).unwrap();
    sealer.seal(Tick(300), &[arrived(0, &[6, 1]), repeated], &schema.0);
    let mut w = BitWriter::new();
    sealer.sealed(Tick(300)).unwrap().write_whole(&schema.0, &mut w);
    assert_eq!(hex(&w.to_bytes()), "04 00 34 08 50 10 90 00 00 19 40 0a 80 03 00 01");

    let (mut feed, mut intake) = (FrameFeed::from(Tick(300)), FrameIntake::default());
    begin(&mut feed, &sealer, &schema, &mut intake);
    (301..=303).for_each(|t| sealer.seal(Tick(t), &[arrived(0, &[6, 1]), repeated], &schema.0));
    sealer.order(PeerId(0), 1, Tick(304), STOP, vec![]).unwrap();
    assert!(sealer.control().set_speed(2, 1));
    let here = [arrived(0, &[6, 2]), Present { silent: true, ..repeated }, quiet(12)];
    sealer.seal(Tick(304), &here, &schema.0);
    let bytes = packet(&mut feed, &sealer, PACE, 8000).unwrap();
    assert_eq!(hex(&bytes), "6f 09 f0 98 04 64 a0 82 46 04");
    take(&mut intake, &schema, &bytes).unwrap();
    assert_eq!(intake.sealed(Tick(304)), sealer.sealed(Tick(304)));
}

#[test]
fn what_no_host_writes_is_refused() {
    let schema = schema(true);
    let mut before = Frame::default();
    before.clear(Tick(9), 2);
    before.take(0, PeerId(3), &[0, 0]);
    let refused = |write: &dyn Fn(&mut BitWriter)| {
        let mut w = BitWriter::new();
        write(&mut w);
        w.put(0, 64); // enough to read on
        Frame::default().read(&before, &schema.0, &mut BitReader::new(&w.to_bytes())) == Err(BitError::OutOfRange)
    };
    let seat = |changes: &[(u64, u64)]| {
        let changes = changes.to_vec();
        move |w: &mut BitWriter| {
            w.flag(true);
            w.golomb(changes.len() as u64 - 1, 0);
            for (peer, what) in &changes {
                w.put(*peer, 10);
                w.put(*what, 2);
            }
        }
    };
    assert!(!refused(&seat(&[(3, TO_CPU)])) && !refused(&seat(&[(3, VACATED), (4, TAKEN)])), "these are good");
    assert!(refused(&seat(&[(3, TAKEN)])), "somebody has it");
    assert!(refused(&seat(&[(3, TO_PERSON)])), "it has a person");
    assert!(refused(&seat(&[(4, TO_CPU)])) && refused(&seat(&[(4, VACATED)])), "there is none");
    assert!(refused(&seat(&[(5, TAKEN), (4, TAKEN)])) && refused(&seat(&[(4, TAKEN), (4, TO_CPU)])), "not in order");
    let order = |count: u64, entry: u64, waited: u64| {
        move |w: &mut BitWriter| {
            w.put(0, 2);
            w.flag(true);
            w.golomb(count - 1, 0);
            w.put(entry, 1); // one seat takes no bits
            w.golomb(waited, 0);
            w.put(0, 40);
        }
    };
    assert!(!refused(&order(1, 1, 4096)));
    assert!(refused(&order(1, 1, 4097)) && refused(&order(257, 1, 0)));
    let steps = |steps: u64| {
        move |w: &mut BitWriter| {
            w.put(0, 4);
            w.put(steps, 4);
        }
    };
    assert!(!refused(&steps(8)) && !refused(&steps(NOT_RUN)));
    assert!(refused(&steps(9)) && refused(&steps(14)));
}

#[test]
fn an_empty_frame_is_nothing_and_a_change_is_small() {
    let schema = schema(true);
    let mut sealer = Sealer::new(16);
    let words: Vec<[u32; 2]> = (0..16).map(|i| [i * 3, 0]).collect();
    let here = || (0..16u16).map(|i| arrived(i, &words[usize::from(i)])).collect::<Vec<_>>();
    sealer.seal(Tick(1), &here(), &schema.0);
    sealer.seal(Tick(2), &here(), &schema.0);
    assert!(sealer.coded(Tick(2)).unwrap().is_empty());
    sealer.order(PeerId(3), 1, Tick(3), GO, go(300)).unwrap();
    sealer.seal(Tick(3), &here(), &schema.0);
    // flags of seats, inputs, orders; how many; seat, type, waited, no unit, x; steps
    assert_eq!(sealer.coded(Tick(3)).unwrap().len(), 3 + 1 + 4 + 1 + 1 + 9 + 16 + 1);
    let mut moved = here();
    moved[5] = arrived(5, &[16, 0]);
    sealer.seal(Tick(4), &moved, &schema.0);
    // of the one that moved: where from, whether it is new, by how much; of the others a bit
    assert_eq!(sealer.coded(Tick(4)).unwrap().len(), 2 + 15 + 3 + schema_bits(1) + 2);
}

/// Bits of the difference of an input whose x has moved by so much.
fn schema_bits(by: u32) -> usize {
    let (schema, mut w) = (schema(true), BitWriter::new());
    schema.0.input.as_ref().unwrap().layout.write(&[15 + by, 0], Some(&[15, 0]), 1, &mut w);
    w.len()
}
