use super::*;
use crate::frames::intake::{FrameIntake, Taken};
use crate::frames::test_rig::{GO, PACE, at, begin, go, head, packet, quiet, schema, take};
use crate::{PeerId, Schema};

const ROOM: usize = 8000;

struct Ends {
    schema: Schema,
    sealer: Sealer,
    feed: FrameFeed,
    intake: FrameIntake,
    orders: u64,
}

impl Ends {
    /// A guest that has the frame of tick 1.
    fn new() -> Self {
        let schema = schema(true);
        let mut sealer = Sealer::new(4);
        sealer.seal(Tick(1), &[quiet(0), quiet(1)], &schema.0);
        let (mut feed, mut intake) = (FrameFeed::from(Tick(1)), FrameIntake::default());
        begin(&mut feed, &sealer, &schema, &mut intake);
        Self { schema, sealer, feed, intake, orders: 0 }
    }

    /// Seals the next frame, with so many orders.
    fn seal(&mut self, orders: u64) {
        for _ in 0..orders {
            self.orders += 1;
            self.sealer.order(PeerId(1), self.orders, Tick::ZERO, GO, go(self.orders as u16)).unwrap();
        }
        let tick = self.sealer.newest().unwrap().plus(1);
        self.sealer.seal(tick, &[quiet(0), quiet(1)], &self.schema.0);
    }

    fn packet(&mut self, pace: Pace) -> Option<Vec<u8>> {
        packet(&mut self.feed, &self.sealer, pace, ROOM)
    }
}

#[test]
fn the_first_frame_is_given_once_and_only_when_there_is_one() {
    let (schema, mut sealer) = (schema(true), Sealer::new(4));
    let mut feed = FrameFeed::from(Tick(3));
    sealer.seal(Tick(2), &[quiet(0)], &schema.0);
    assert_eq!(feed.begin(&sealer), Ok(None));
    assert_eq!(packet(&mut feed, &sealer, PACE, ROOM), None, "nothing goes before it");
    sealer.seal(Tick(3), &[quiet(0)], &schema.0);
    assert_eq!(feed.begin(&sealer).map(|frame| frame.map(|f| f.tick)), Ok(Some(Tick(3))));
    assert_eq!(feed.begin(&sealer), Ok(None));
    assert_eq!(packet(&mut feed, &sealer, PACE, ROOM), None, "it is no difference");
    sealer.seal(Tick(4), &[quiet(0)], &schema.0);
    assert_eq!(head(&packet(&mut feed, &sealer, PACE, ROOM).unwrap(), Tick(4)), FramesHead { first: Tick(4), count: 1 });
}

#[test]
fn an_empty_frame_takes_next_to_nothing_and_a_hundred_of_them_too() {
    let mut ends = Ends::new();
    (0..100).for_each(|_| ends.seal(0));
    let bytes = ends.packet(PACE).unwrap();
    assert_eq!(bytes.len(), 6, "a hundred empty frames");
    assert_eq!(take(&mut ends.intake, &ends.schema, &bytes), Ok(Taken::New(100)));
    assert_eq!(ends.intake.newest(), Some(Tick(101)));
}

#[test]
fn a_frame_is_repeated_until_it_is_confirmed_but_no_more_than_it_is_worth() {
    let mut ends = Ends::new();
    let mut firsts = Vec::new();
    for frame in 0..24 {
        ends.seal(8); // eight orders of some 20 bits each
        let bytes = ends.packet(at(frame * 4)).unwrap();
        firsts.push(head(&bytes, Tick(2)).first.0);
    }
    let repeats = u64::from(limits::FRAME_REPEATS);
    let cheap = firsts.iter().take_while(|first| **first == 2).count() as u64;
    assert!(cheap > 2 && cheap < 8, "{firsts:?}");
    let later = &firsts[8..];
    let sweeps = later.iter().filter(|first| **first == 2).count();
    assert!((3..=4).contains(&sweeps), "every 16.7 of 64 ms: {firsts:?}");
    let repeated = |(i, first): (usize, &u64)| *first == 2 || *first == 10 + i as u64 - repeats;
    assert!(later.iter().enumerate().all(repeated), "{firsts:?}");
    // after a round trip, all again
    ends.seal(0);
    assert_eq!(head(&ends.packet(at(110)).unwrap(), Tick(2)).first, Tick(2));
    ends.feed.confirm(Tick(9), ends.sealer.newest()).unwrap();
    ends.seal(0);
    assert_eq!(head(&ends.packet(at(130)).unwrap(), Tick(2)).first, Tick(10));
}

#[test]
fn without_anything_new_a_packet_goes_only_when_what_was_sent_counts_as_lost() {
    let mut ends = Ends::new();
    ends.seal(1);
    assert!(ends.packet(at(0)).is_some());
    assert!(ends.packet(at(0)).is_none() && ends.packet(at(99)).is_none());
    assert!(ends.packet(at(100)).is_some());
    assert!(ends.packet(at(150)).is_none());
    ends.feed.confirm(Tick(2), ends.sealer.newest()).unwrap();
    assert!(ends.packet(at(500)).is_none(), "it is there");
}

#[test]
fn what_does_not_fit_follows_and_too_little_room_is_told() {
    let mut ends = Ends::new();
    (0..10).for_each(|_| ends.seal(8));
    let (Ends { schema, sealer, feed, intake, .. }, mut packets) = (&mut ends, 0);
    while intake.newest() < sealer.newest() {
        packets += 1;
        assert!(packets < 100);
        // each is sent again until the guest has said that it has it
        let Some(bytes) = packet(feed, sealer, at(packets), 900) else { continue };
        let _ = take(intake, schema, &bytes).unwrap();
        feed.confirm(intake.newest().unwrap(), sealer.newest()).unwrap();
    }
    assert!(packets >= 4, "{packets}");
    ends.seal(8);
    assert_eq!(packet(&mut ends.feed, &ends.sealer, at(900), 100), None);
    assert!(ends.feed.need() > 100 / 8 && ends.feed.need() < 100, "{}", ends.feed.need());
    let need = ends.feed.need() * 8 + 8;
    assert!(packet(&mut ends.feed, &ends.sealer, at(900), need).is_some());
    assert_eq!(ends.feed.need(), 0);
}

#[test]
fn packets_of_one_send_follow_each_other() {
    let mut ends = Ends::new();
    (0..12).for_each(|_| ends.seal(8));
    let (mut next, mut packets) = (2, 0);
    while let Some(bytes) = packet(&mut ends.feed, &ends.sealer, at(5), 900) {
        let head = head(&bytes, Tick(next));
        assert_eq!(head.first, Tick(next));
        assert!(matches!(take(&mut ends.intake, &ends.schema, &bytes), Ok(Taken::New(n)) if n == head.count));
        (next, packets) = (next + head.count, packets + 1);
    }
    assert_eq!(ends.intake.newest(), ends.sealer.newest());
    assert!(packets > 2);
}

#[test]
fn a_guest_can_confirm_only_what_it_was_sent() {
    let mut ends = Ends::new();
    ends.seal(0);
    ends.seal(0);
    let newest = ends.sealer.newest();
    assert_eq!(ends.feed.confirm(Tick(2), newest), Err(BitError::OutOfRange), "not sent yet");
    ends.packet(PACE).unwrap();
    assert_eq!(ends.feed.confirm(Tick(4), newest), Err(BitError::OutOfRange), "not sealed yet");
    assert_eq!(ends.feed.confirm(Tick(3), newest), Ok(()));
    assert_eq!(ends.feed.confirm(Tick(2), newest), Ok(()), "overtaken");
    assert_eq!(ends.feed.confirm(Tick(1), newest), Ok(()), "the whole one");
    assert_eq!(ends.feed.next(), Tick(4));
}

#[test]
fn who_needs_what_is_no_longer_kept_is_behind() {
    let mut ends = Ends::new();
    ends.seal(0);
    ends.packet(PACE).unwrap();
    (0..limits::FRAMES).for_each(|_| ends.seal(0));
    assert_eq!(ends.feed.write(&ends.sealer, PACE, ROOM, &mut BitWriter::new()), Err(Behind));
    assert_eq!(FrameFeed::from(Tick(2)).begin(&ends.sealer), Err(Behind), "nor can one begin there");
    let newest = ends.sealer.newest().unwrap();
    let mut late = FrameFeed::from(newest.minus(50));
    assert!(matches!(late.begin(&ends.sealer), Ok(Some(_))));
    let bytes = packet(&mut late, &ends.sealer, PACE, ROOM).unwrap();
    assert_eq!(head(&bytes, newest), FramesHead { first: newest.minus(49), count: 50 });
}
