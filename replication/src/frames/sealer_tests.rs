use super::*;
use crate::frames::frame::Seat;
use crate::frames::test_rig::{GO, STOP, arrived, go, quiet, schema};

fn numbers(frame: &Frame, peer: u16) -> Vec<u64> {
    frame.orders().filter(|(p, ..)| *p == PeerId(peer)).map(|(_, order, _)| order.number).collect()
}

fn newest(sealer: &Sealer) -> &Frame {
    sealer.recent.back().unwrap()
}

#[test]
fn an_order_takes_the_tick_it_is_meant_for_or_the_next_open_one() {
    let (schema, mut sealer) = (schema(true), Sealer::new(4));
    let present = [quiet(0), quiet(1)];
    sealer.seal(Tick(10), &present, &schema.0);
    sealer.order(PeerId(1), 1, Tick(12), GO, go(7)).unwrap();
    sealer.order(PeerId(1), 2, Tick(3), STOP, vec![]).unwrap();
    sealer.seal(Tick(11), &present, &schema.0);
    assert!(newest(&sealer).orders.is_empty(), "not yet, and the second not before the first");
    sealer.seal(Tick(12), &present, &schema.0);
    let orders: Vec<_> = newest(&sealer).orders().map(|(p, o, w)| (p, o.number, o.entry, o.waited, w.to_vec())).collect();
    assert_eq!(orders, [(PeerId(1), 1, GO, 1, go(7)), (PeerId(1), 2, STOP, 1, vec![])]);
    assert_eq!(newest(&sealer).seats[1].orders, 2);
    sealer.order(PeerId(1), 3, Tick(3), STOP, vec![]).unwrap();
    sealer.seal(Tick(13), &present, &schema.0);
    let late = newest(&sealer).orders[0];
    assert_eq!((late.number, late.waited), (3, 0), "it came too late and did not wait");
}

#[test]
fn what_a_frame_has_no_room_for_waits_in_order() {
    let (schema, mut sealer) = (schema(true), Sealer::new(4));
    let present = [quiet(0), quiet(1), quiet(2)];
    sealer.seal(Tick(1), &present, &schema.0);
    for peer in [1, 2] {
        (1..=20).for_each(|n| sealer.order(PeerId(peer), n, Tick(1), GO, go(n as u16)).unwrap());
    }
    let mut sealed = [Vec::new(), Vec::new()];
    for tick in 2..=4 {
        sealer.seal(Tick(tick), &present, &schema.0);
        for peer in [1, 2] {
            let these = numbers(newest(&sealer), peer);
            assert!(these.len() <= limits::ORDERS_PER_PEER_TICK);
            sealed[usize::from(peer) - 1].extend(these);
        }
    }
    assert!(sealed.iter().all(|s| s.iter().copied().eq(1..=20)), "{sealed:?}");
}

#[test]
fn the_bytes_of_a_frame_are_shared_fairly_and_never_exceeded() {
    let (schema, seats) = (schema(false), 64u16);
    let mut sealer = Sealer::new(usize::from(seats));
    let present: Vec<_> = (0..seats).map(|p| Present { input: None, ..quiet(p) }).collect();
    sealer.seal(Tick(1), &present[..32], &schema.0);
    sealer.seal(Tick(2), &present, &schema.0);
    for n in 1..=8 {
        (0..seats).for_each(|p| sealer.order(PeerId(p), n, Tick(1), GO, go(n as u16)).unwrap());
    }
    let mut done = vec![0; usize::from(seats)];
    for tick in 3..=60 {
        sealer.seal(Tick(tick), &present, &schema.0);
        let frame = newest(&sealer);
        frame.orders.iter().for_each(|order| done[usize::from(order.seat)] += 1);
        let bits = sealer.coded(Tick(tick)).unwrap().len();
        assert!(bits <= (limits::FRAME_BYTES + limits::FRAME_STATE_BYTES) * 8, "{bits}");
    }
    assert!(done.iter().all(|n| *n == 8), "{done:?}");
}

#[test]
fn only_the_order_that_follows_is_taken_and_no_more_than_may_wait() {
    let mut sealer = Sealer::new(4);
    assert_eq!(sealer.order(PeerId(1), 2, Tick(1), STOP, vec![]), Err(Unwanted::OutOfOrder), "a gap");
    sealer.order(PeerId(1), 1, Tick(1), STOP, vec![]).unwrap();
    assert_eq!(sealer.order(PeerId(1), 1, Tick(1), STOP, vec![]), Err(Unwanted::OutOfOrder), "a repeat");
    for n in 2..=limits::ORDERS_PENDING as u64 {
        sealer.order(PeerId(1), n, Tick(1), STOP, vec![]).unwrap();
    }
    let next = limits::ORDERS_PENDING as u64 + 1;
    assert_eq!(sealer.order(PeerId(1), next, Tick(1), STOP, vec![]), Err(Unwanted::TooMany));
    assert_eq!(sealer.order(PeerId(2), 1, Tick(1), STOP, vec![]), Ok(()), "others are not held up");
}

#[test]
fn seats_pass_to_a_cpu_and_back() {
    let (schema, mut sealer) = (schema(true), Sealer::new(3));
    let mut seal = |tick, present: &[Present<'_>]| {
        sealer.seal(Tick(tick), present, &schema.0);
        (0..4).map(|p| newest(&sealer).seat(PeerId(p))).collect::<Vec<_>>()
    };
    let (person, cpu) = (Some(Seat::Person), Some(Seat::Cpu));
    assert_eq!(seal(1, &[quiet(0), arrived(1, &[5, 0])]), [person, person, None, None]);
    let silent = Present { silent: true, ..quiet(1) };
    assert_eq!(seal(2, &[quiet(0), silent]), [person, cpu, None, None]);
    assert_eq!(seal(3, &[quiet(0), quiet(1)]), [person, cpu, None, None], "it is heard of again, but has said nothing yet");
    assert_eq!(seal(4, &[quiet(0), arrived(1, &[6, 0])]), [person, person, None, None]);
    assert_eq!(seal(5, &[quiet(0), quiet(2)]), [person, cpu, person, None], "it has left");
    assert_eq!(seal(6, &[quiet(0), quiet(2), quiet(3)]), [person, None, person, person], "and its place is needed");
    assert!(!sealer.knows(PeerId(1)));
}

#[test]
fn orders_of_who_has_left_are_sealed_before_its_seat_goes() {
    let (schema, mut sealer) = (schema(false), Sealer::new(2));
    let here = |p| Present { input: None, ..quiet(p) };
    sealer.seal(Tick(1), &[here(0), here(1)], &schema.0);
    (1..=10).for_each(|n| sealer.order(PeerId(1), n, Tick(2), GO, go(1)).unwrap());
    let mut sealed = Vec::new();
    for tick in 2..=5 {
        // the newcomer has to wait for the place
        sealer.seal(Tick(tick), &[here(0), here(2)], &schema.0);
        sealed.extend(numbers(newest(&sealer), 1));
    }
    assert!(sealed.iter().copied().eq(1..=10), "{sealed:?}");
    assert_eq!((newest(&sealer).seat(PeerId(1)), newest(&sealer).seat(PeerId(2))), (None, Some(Seat::Person)));
    // one that never had a seat gets one for its orders
    let mut sealer = Sealer::new(2);
    sealer.order(PeerId(1), 1, Tick(1), STOP, vec![]).unwrap();
    sealer.seal(Tick(1), &[here(0)], &schema.0);
    assert_eq!(numbers(newest(&sealer), 1), [1]);
    sealer.seal(Tick(2), &[here(0)], &schema.0);
    assert_eq!(newest(&sealer).seat(PeerId(1)), Some(Seat::Cpu));
}

#[test]
fn a_press_counts_from_the_input_that_arrived_before_whatever_came_between() {
    let (schema, mut sealer) = (schema(true), Sealer::new(2));
    sealer.seal(Tick(1), &[quiet(0), arrived(1, &[5, 3])], &schema.0);
    assert_eq!((newest(&sealer).last(1), newest(&sealer).before(1)), (&[5, 3][..], &[0, 0][..]));
    let repeated = Present { input: Some((Origin::Repeated, &[])), ..quiet(1) };
    for age in 1..=3 {
        sealer.seal(Tick(1 + u64::from(age)), &[quiet(0), repeated], &schema.0);
        let frame = newest(&sealer);
        assert_eq!((frame.input_words(PeerId(1)), frame.seats[1].age), (Some(&[5, 3][..]), age));
        assert_eq!(frame.before(1), [5, 3]);
    }
    sealer.seal(Tick(5), &[quiet(0), quiet(1)], &schema.0);
    assert_eq!(newest(&sealer).input_words(PeerId(1)), None, "absent");
    sealer.seal(Tick(6), &[quiet(0), arrived(1, &[0, 4])], &schema.0);
    assert_eq!((newest(&sealer).last(1), newest(&sealer).before(1)), (&[0, 4][..], &[5, 3][..]));
}

#[test]
fn ticks_that_the_host_left_out_are_told_as_such() {
    let (schema, mut sealer) = (schema(false), Sealer::new(2));
    let here = [Present { input: None, ..quiet(0) }];
    sealer.seal(Tick(5), &here, &schema.0);
    sealer.seal(Tick(8), &here, &schema.0);
    let run: Vec<_> = (5..=8).map(|t| sealer.sealed(Tick(t)).unwrap().run).collect();
    assert_eq!(run, [Some(1), None, None, Some(1)]);
    assert_eq!((sealer.sealed(Tick(4)), sealer.sealed(Tick(9))), (None, None));
    // after hours, nobody can follow any more
    let far = Tick(8 + limits::FRAMES as u64 * 3);
    sealer.seal(far, &here, &schema.0);
    assert_eq!((sealer.newest(), sealer.oldest()), (Some(far), Some(far)));
    assert_eq!(sealer.sealed(Tick(8)), None);
}

#[test]
fn what_is_kept_is_bounded() {
    let (schema, mut sealer) = (schema(true), Sealer::new(2));
    for tick in 1..=limits::FRAMES as u64 + 500 {
        sealer.seal(Tick(tick), &[quiet(0)], &schema.0);
    }
    let newest = sealer.newest().unwrap();
    assert_eq!(sealer.oldest(), Some(newest.plus(1).minus(limits::FRAMES as u64)));
    sealer.drop_before(newest.minus(1000));
    assert_eq!(sealer.oldest(), Some(newest.minus(1000)));
    sealer.drop_before(newest);
    assert_eq!(sealer.oldest(), Some(newest.plus(1).minus(RECENT as u64)), "who joins at a recent one needs what follows");
    assert_eq!(sealer.recent.len(), RECENT);
    let counted: usize = sealer.coded.iter().map(cost).sum();
    assert_eq!(sealer.bytes, counted);
}

#[test]
fn inputs_that_find_no_room_are_as_good_as_late_and_others_go_first_next_time() {
    use crate::{Replicate, Schema};
    #[derive(Clone, Default, Debug, PartialEq, Replicate)]
    struct Long {
        #[net(max = 200)]
        text: String,
    }
    let schema = Schema::builder("long").input::<Long>("long").order::<crate::frames::test_rig::Stop>("stop").build().unwrap();
    let mut sealer = Sealer::new(8);
    let text = |tick: u32| {
        let mut words = vec![tick + 0x4141_4100; 51];
        words[0] = 200;
        words
    };
    let mut arrived_in = [0; 8];
    for tick in 1..=40 {
        let words = text(tick % 20 + 1);
        let present: Vec<_> = (0..8).map(|p| arrived(p, &words)).collect();
        sealer.seal(Tick(u64::from(tick)), &present, &schema.0);
        let frame = newest(&sealer);
        let bits = sealer.coded(Tick(u64::from(tick))).map_or(0, BitWriter::len);
        assert!(bits <= limits::FRAME_STATE_BYTES * 8, "{bits}");
        for (i, seat) in frame.seats.iter().enumerate() {
            arrived_in[i] += u32::from(seat.origin == Origin::Arrived);
        }
    }
    assert!(arrived_in.iter().all(|n| (3..20).contains(n)), "{arrived_in:?}");
}
