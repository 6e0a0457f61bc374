use super::*;
use crate::PeerId;
use crate::frames::feed::FrameFeed;
use crate::frames::frame::Origin;
use crate::frames::sealer::{Present, Sealer};
use crate::frames::test_rig::{GO, PACE, STOP, at, begin, go, packet, quiet, schema, take};
use proptest::prelude::*;
use tidelock_netcore::bits::BitWriter;

/// What a seat does in a tick.
#[derive(Clone, Debug)]
enum Deed {
    Gone,
    Silent,
    Absent,
    Repeats,
    Input(u32, u32),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        1 => Just(Deed::Gone),
        1 => Just(Deed::Silent),
        1 => Just(Deed::Absent),
        2 => Just(Deed::Repeats),
        5 => (0u32..=200, 0u32..256).prop_map(|(x, jump)| Deed::Input(x, jump)),
    ]
}

/// A tick: what each of four seats does, the orders that it gives, whether it is one that the host left out before, and the pace.
type Act = (Vec<Deed>, Vec<(usize, u16)>, u64, u8);

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let orders = prop::collection::vec((0usize..4, any::<u16>()), 0..6);
    let quiet = Just((vec![Deed::Repeats; 4], Vec::new(), 0, 9u8));
    let busy = (prop::collection::vec(deed(), 4), orders, prop_oneof![5 => Just(0u64), 1 => 1u64..4], 0u8..10);
    prop::collection::vec(prop_oneof![2 => quiet, 1 => busy], 1..40)
}

/// Seals what the acts say.
fn play(sealer: &mut Sealer, acts: &[Act], input: bool, mut after: impl FnMut(&Sealer)) {
    let schema = schema(input);
    let (mut tick, mut given) = (sealer.newest().unwrap_or_default(), [0; 4]);
    for (deeds, orders, left_out, pace) in acts {
        tick = tick.plus(1 + left_out);
        let words: Vec<[u32; 2]> = deeds.iter().map(|d| if let Deed::Input(x, j) = d { [*x, *j] } else { [0; 2] }).collect();
        let there = (0..4).filter(|i| *i == 0 || !matches!(deeds[*i], Deed::Gone));
        let present: Vec<_> = there
            .map(|i| {
                let kind = match deeds[i] {
                    Deed::Input(..) => (Origin::Arrived, &words[i][..]),
                    Deed::Repeats => (Origin::Repeated, &[][..]),
                    _ => (Origin::Absent, &[][..]),
                };
                let silent = matches!(deeds[i], Deed::Silent);
                Present { peer: PeerId(i as u16 * 3), silent, input: input.then_some(kind) }
            })
            .collect();
        for (seat, x) in orders {
            given[*seat] += 1;
            let (entry, words) = if x % 5 == 0 { (STOP, Vec::new()) } else { (GO, go(*x)) };
            let _ = sealer.order(PeerId(*seat as u16 * 3), given[*seat], tick.plus(u64::from(x % 4)), entry, words);
        }
        match pace {
            0 => sealer.control().pause(),
            1 => sealer.control().resume(),
            2 => sealer.control().step(2),
            3 => assert!(sealer.control().set_speed(3, 2)),
            4 => sealer.ask_digest(),
            _ => {}
        }
        sealer.seal(tick, &present, &schema.0);
        after(sealer);
    }
}

proptest! {
    #[test]
    fn a_guest_makes_the_same_frames_of_what_the_host_has_sealed(acts in acts(), input: bool, start in 0usize..20, lost in any::<u64>()) {
        let schema = schema(input);
        let mut sealer = Sealer::new(4);
        let (mut feed, mut intake) = (None, FrameIntake::default());
        let mut count = 0usize;
        play(&mut sealer, &acts, input, |sealer| {
            count += 1;
            if count <= start {
                return;
            }
            let feed = feed.get_or_insert_with(|| FrameFeed::from(sealer.newest().unwrap()));
            begin(feed, sealer, &schema, &mut intake);
            let Some(bytes) = packet(feed, sealer, at(count as u64 * 17), 8000) else { return };
            if lost >> (count % 64) & 1 == 0 {
                take(&mut intake, &schema, &bytes).unwrap();
                for cut in 0..bytes.len() {
                    let before = intake.newest();
                    assert!(take(&mut intake, &schema, &bytes[..cut]).is_err(), "cut to {cut}");
                    assert_eq!(intake.newest(), before);
                }
                feed.confirm(intake.newest().unwrap(), sealer.newest()).unwrap();
            }
            let known = (1..=intake.newest().unwrap().0).rev().map(Tick);
            for tick in known.take_while(|tick| intake.sealed(*tick).is_some()) {
                assert_eq!(intake.sealed(tick), sealer.sealed(tick), "tick {tick}");
            }
        });
        if let Some(mut feed) = feed {
            // once more, without loss
            while let Some(bytes) = packet(&mut feed, &sealer, at(100_000), 8000) {
                take(&mut intake, &schema, &bytes).unwrap();
                feed.confirm(intake.newest().unwrap(), sealer.newest()).unwrap();
            }
            prop_assert_eq!(intake.newest(), sealer.newest());
        }
    }

    #[test]
    fn random_bytes_never_panic_and_change_nothing_but_by_whole_frames(
        acts in acts(), input: bool, bytes in prop::collection::vec(any::<u8>(), 0..80), flips in prop::collection::vec((any::<usize>(), 0u8..8), 0..4),
    ) {
        let schema = schema(input);
        let mut sealer = Sealer::new(4);
        play(&mut sealer, &acts, input, |_| {});
        let newest = sealer.newest().unwrap();
        let (mut feed, mut intake) = (FrameFeed::from(newest), FrameIntake::default());
        begin(&mut feed, &sealer, &schema, &mut intake);
        let _ = FrameIntake::default().begin(Tick(9), &schema.0, &mut BitReader::new(&bytes));
        let head = FramesHead { first: newest.plus(1), count: 9 };
        let _ = intake.take(head, &schema.0, &mut BitReader::new(&bytes));
        play(&mut sealer, &acts, input, |_| {});
        if let Some(mut bytes) = packet(&mut feed, &sealer, PACE, 8000) {
            for (at, bit) in flips {
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
            }
            let before = intake.newest();
            if take(&mut intake, &schema, &bytes).is_err() {
                prop_assert_eq!(intake.newest(), before);
            }
        }
        let whole = intake.sealed(intake.newest().unwrap()).unwrap().clone();
        let mut w = BitWriter::new();
        whole.write_whole(&schema.0, &mut w);
        let mut again = FrameIntake::default();
        again.begin(whole.tick, &schema.0, &mut BitReader::new(&w.to_bytes())).unwrap();
        prop_assert_eq!(again.sealed(whole.tick), Some(&whole), "what was taken can be told again");
    }
}

#[test]
fn a_packet_before_its_time_is_useless_and_a_later_one_makes_it_good() {
    let (schema, mut sealer) = (schema(true), Sealer::new(2));
    sealer.seal(Tick(1), &[quiet(0)], &schema.0);
    let mut feed = FrameFeed::from(Tick(1));
    let mut intake = FrameIntake::default();
    assert!(feed.begin(&sealer).unwrap().is_some()); // and it is on its way
    sealer.seal(Tick(2), &[quiet(0)], &schema.0);
    let early = packet(&mut feed, &sealer, PACE, 8000).unwrap();
    assert_eq!(take(&mut intake, &schema, &early), Ok(Taken::Useless));
    begin(&mut FrameFeed::from(Tick(1)), &sealer, &schema, &mut intake);
    assert_eq!(take(&mut intake, &schema, &early), Ok(Taken::New(1)));
    assert_eq!(take(&mut intake, &schema, &early), Ok(Taken::New(0)), "each once");
}

#[test]
fn what_nobody_needs_goes_but_not_what_packets_still_speak_of() {
    let (schema, mut sealer) = (schema(true), Sealer::new(2));
    sealer.seal(Tick(1), &[quiet(0)], &schema.0);
    let (mut feed, mut intake) = (FrameFeed::from(Tick(1)), FrameIntake::default());
    begin(&mut feed, &sealer, &schema, &mut intake);
    for tick in 2..=1000 {
        sealer.seal(Tick(tick), &[quiet(0)], &schema.0);
        let bytes = packet(&mut feed, &sealer, at(tick), 8000).unwrap();
        take(&mut intake, &schema, &bytes).unwrap();
        feed.confirm(Tick(tick), sealer.newest()).unwrap();
    }
    intake.drop_before(Tick(600));
    assert_eq!((intake.sealed(Tick(599)), intake.sealed(Tick(600)).is_some()), (None, true));
    intake.drop_before(Tick(990));
    assert_eq!((intake.sealed(Tick(744)), intake.sealed(Tick(745)).is_some()), (None, true));
    let held: usize = intake.ring.iter().map(Frame::cost).sum();
    assert_eq!(intake.held, held);
}

#[test]
fn who_does_not_run_its_frames_takes_no_more_than_it_may_hold() {
    let (schema, mut sealer) = (schema(true), Sealer::new(2));
    sealer.seal(Tick(1), &[quiet(0)], &schema.0);
    let (mut feed, mut intake) = (FrameFeed::from(Tick(1)), FrameIntake::default());
    begin(&mut feed, &sealer, &schema, &mut intake);
    let mut taken = Taken::New(0);
    for tick in 2..=limits::FRAMES as u64 + 300 {
        sealer.seal(Tick(tick), &[quiet(0)], &schema.0);
        let bytes = packet(&mut feed, &sealer, at(tick), 8000).unwrap();
        taken = take(&mut intake, &schema, &bytes).unwrap();
        feed.confirm(intake.newest().unwrap(), sealer.newest()).unwrap();
    }
    assert_eq!((taken, intake.ring.len()), (Taken::Useless, limits::FRAMES));
    intake.drop_before(Tick(2000));
    sealer.seal(Tick(limits::FRAMES as u64 + 301), &[quiet(0)], &schema.0);
    let bytes = packet(&mut feed, &sealer, at(1_000_000), 8000).unwrap();
    assert!(matches!(take(&mut intake, &schema, &bytes), Ok(Taken::New(1..))), "as soon as there is room, it goes on");
}
