use super::*;
use proptest::prelude::*;

const REPEAT: u64 = 15;

/// Tick n's input is n.
fn packet(oldest: u64, newest: u64) -> (InputHead, Vec<u32>) {
    let head = InputHead { newest: Tick(newest), before: newest - oldest };
    (head, (oldest..=newest).map(|n| n as u32).collect())
}

/// `ran` ticks were run and the next one is due in half a tick.
fn at(ran: u64) -> Moment {
    Moment { ran: Tick(ran), time: Duration::from_micros(ran * 10_000 + 5_000), rate: 100 }
}

fn take(buffer: &mut InputBuffer, oldest: u64, newest: u64, ran: u64) {
    let (head, inputs) = packet(oldest, newest);
    buffer.take(head, &inputs, &[], at(ran));
}

fn fold(buffer: &mut InputBuffer, tick: u64) -> (Source, u32) {
    buffer.fold(Tick(tick), REPEAT);
    let (value, _, source) = buffer.current();
    (source, value.map_or(0, |words| words[0]))
}

#[test]
fn each_tick_gets_its_own_a_repeat_or_nothing() {
    let mut buffer = InputBuffer::new(&[0]);
    assert_eq!(fold(&mut buffer, 9), (Source::Absent, 0));
    assert_eq!(buffer.report().missed, 0, "nobody waits for a guest that has not begun");
    take(&mut buffer, 8, 12, 9);
    assert_eq!(buffer.report().late, 2);
    for tick in 10..=12 {
        assert_eq!(fold(&mut buffer, tick), (Source::Arrived, tick as u32));
    }
    for tick in 13..=12 + REPEAT {
        assert_eq!(fold(&mut buffer, tick), (Source::Repeated(tick as u32 - 12), 12));
        assert_eq!(buffer.current().1, [12], "nothing lies between a repeat and what is repeated");
    }
    assert_eq!(fold(&mut buffer, 13 + REPEAT), (Source::Absent, 0));
    take(&mut buffer, 13, 40, 13 + REPEAT);
    assert_eq!(buffer.report().late, 2 + 1 + REPEAT, "late ones are counted, and used for no other tick");
    assert_eq!(fold(&mut buffer, 14 + REPEAT), (Source::Arrived, 29));
    assert_eq!(buffer.current().1, [12], "the last that had arrived, over the absence");
    let report = buffer.report();
    assert_eq!((report.folded, report.missed, report.repeated), (Some(Tick(29)), REPEAT + 1, REPEAT));
}

#[test]
fn earliness_is_that_of_the_latest_within_the_size_of_a_hole() {
    let mut buffer = InputBuffer::new(&[0]);
    take(&mut buffer, 20, 23, 18);
    // tick 20 is due at 200 ms, now is 185
    assert_eq!(buffer.feedback(), Some(Feedback { newest: Tick(23), earliness: Some(60), missed: 0 }));
    assert_eq!(buffer.feedback(), None, "nothing new");
    take(&mut buffer, 20, 24, 18);
    assert_eq!(buffer.feedback().and_then(|f| f.earliness), Some(220), "only what is new counts");
    take(&mut buffer, 25, 60, 50);
    assert_eq!(buffer.feedback().and_then(|f| f.earliness), Some(-20), "60 was 95 ms early, and a hole is at most 100 ms");
    assert_eq!(buffer.report().earliness, Some(-5_000));
    // frames longer than ticks: tick 51 is due since 40 ms, and has not been run
    let (head, inputs) = packet(51, 61);
    buffer.take(head, &inputs, &[], Moment { time: Duration::from_millis(550), ..at(60) });
    assert_eq!(buffer.feedback().and_then(|f| f.earliness), Some(240), "61 is due at 610 ms: 60 ms early, and the first after");
}

#[test]
fn what_lies_too_far_ahead_is_useless_and_costs_nothing() {
    let mut buffer = InputBuffer::new(&[0]);
    take(&mut buffer, 200, 229, 100);
    assert_eq!((buffer.report().useless, buffer.ticks.capacity(), buffer.ring.capacity()), (1, 0, 0));
    take(&mut buffer, 199, 228, 100);
    assert_eq!((buffer.report().useless, buffer.ticks.len(), buffer.ring.len()), (1, SLOTS, SLOTS));
    assert_eq!(fold(&mut buffer, 228), (Source::Arrived, 228));
}

#[test]
fn a_host_that_stood_still_does_not_call_anything_late_or_early() {
    let mut buffer = InputBuffer::new(&[0]);
    take(&mut buffer, 1, 12, 10);
    let _ = buffer.feedback();
    // three seconds in which packets came and nothing was run
    let stood = Moment { time: Duration::from_millis(3_105), ..at(10) };
    for newest in 13..=320 {
        let (head, inputs) = packet(newest.max(30) - 20, newest);
        buffer.take(head, &inputs, &[], stood);
    }
    assert_eq!(buffer.feedback(), None, "no word on earliness");
    assert_eq!(fold(&mut buffer, 303), (Source::Arrived, 303), "what may still be run was kept");
}

proptest! {
    /// Against a plain model: a map of all that has ever come in time.
    #[test]
    fn it_is_a_map_with_a_window(events in prop::collection::vec((0u64..40, 0u64..64, 0u64..4), 1..200), start in prop::sample::select(vec![100u64, 65_500, 1 << 33])) {
        let mut buffer = InputBuffer::new(&[0]);
        let mut came = std::collections::BTreeMap::new();
        let (mut ran, mut last) = (start, None::<u64>);
        for (ahead, before, steps) in events {
            let newest = ran + ahead;
            let oldest = newest - before;
            let head = InputHead { newest: Tick(newest), before };
            // whatever a packet says of a tick, the first word counts
            let inputs: Vec<u32> = (oldest..=newest).map(|n| (n * 7 + before) as u32).collect();
            buffer.take(head, &inputs, &[], at(ran));
            for (i, tick) in (oldest..=newest).enumerate() {
                if tick > ran { came.entry(tick).or_insert(inputs[i]); }
            }
            for _ in 0..steps {
                ran += 1;
                let (source, value) = fold(&mut buffer, ran);
                match (came.get(&ran), last) {
                    (Some(input), _) => {
                        prop_assert_eq!((source, value), (Source::Arrived, *input));
                        prop_assert_eq!(buffer.current().1[0], last.map_or(0, |last| came[&last]));
                        last = Some(ran);
                    }
                    (None, Some(last)) if ran - last <= REPEAT => prop_assert_eq!((source, value), (Source::Repeated((ran - last) as u32), came[&last])),
                    (None, _) => prop_assert_eq!((source, value), (Source::Absent, 0)),
                }
            }
            prop_assert!(buffer.ring.len() <= SLOTS && buffer.ticks.len() <= SLOTS);
        }
    }
}
