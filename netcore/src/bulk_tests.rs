use super::*;
use proptest::prelude::*;

fn bytes(message: Bulk<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.write(&mut out);
    out
}

fn blob(length: usize, seed: u8) -> Arc<[u8]> {
    (0..length).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

/// Hands over what may go, as a lane would; gives how many messages that was.
fn carry(from: &mut Outgoing, to: &mut Incoming, limit: usize) -> usize {
    let mut count = 0;
    while let Some(message) = from.next(limit) {
        let bytes = bytes(message);
        assert!(bytes.len() <= limit);
        from.taken(limit);
        to.hear(Bulk::read(&bytes).unwrap()).unwrap();
        count += 1;
    }
    count
}

fn answer(from: &mut Incoming, to: &mut Outgoing) {
    while let Some(word) = from.word() {
        from.told(word);
        to.hear(Bulk::read(&bytes(word)).unwrap()).unwrap();
    }
}

#[test]
fn the_layout_is_what_the_page_says() {
    let announce = Announce { topic: 3, id: 0x0102, length: 4, digest: 0x1122_3344_5566_7788 };
    let announce = bytes(Bulk::Announce(announce));
    assert_eq!(announce, [0, 3, 2, 1, 0, 0, 4, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    assert_eq!(bytes(Bulk::Piece { topic: 1, id: 7, offset: 300, bytes: b"ab" }), [1, 1, 7, 0, 0, 0, 0x2c, 1, 0, 0, b'a', b'b']);
    assert_eq!(bytes(Bulk::Word { topic: 0, id: 7, bytes: 2 }), [2, 0, 7, 0, 0, 0, 2, 0, 0, 0]);
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written_and_no_other_bytes_are(random in proptest::collection::vec(0u8..6, 0..40)) {
        if let Ok(message) = Bulk::read(&random) {
            prop_assert_eq!(bytes(message), random);
        }
    }

    #[test]
    fn whatever_comes_panics_nobody_and_keeps_its_bounds(messages in proptest::collection::vec(proptest::collection::vec(0u8..5, 9..20), 0..60)) {
        let (mut from, mut to) = (Outgoing::default(), Incoming::default());
        from.offer(1, blob(100, 1)).unwrap();
        carry(&mut from, &mut to, 50);
        for message in messages.iter().filter_map(|m| Bulk::read(m).ok()) {
            let _ = (from.hear(message), to.hear(message), to.word().map(|word| to.told(word)));
            prop_assert!(to.topics.iter().flat_map(|t| &t.bytes).all(|b| b.len() < 100 || b.capacity() <= 2 * b.len()));
        }
    }
}

#[test]
fn blobs_of_all_sizes_come_whole_by_all_limits() {
    for length in [0, 1, 31, 32, 33, 999, 1000, 1001, 5000, limits::BLOB_FLIGHT + 5, limits::BLOB_BYTES] {
        for limit in [PIECE_HEAD + PIECE_LEAST, 100, PIECE_HEAD + limits::BLOB_PIECE, 16_000] {
            if length > 1 << 20 && limit < 1000 {
                continue;
            }
            let (mut from, mut to) = (Outgoing::default(), Incoming::default());
            from.offer(2, blob(length, 5)).unwrap();
            assert_eq!(from.progress(2), Some(Progress { bytes: 0, total: length }));
            while carry(&mut from, &mut to, limit) > 0 {
                answer(&mut to, &mut from);
            }
            assert!(from.is_empty(), "{length} bytes in messages of {limit}");
            assert_eq!((from.progress(2), to.progress(2)), (None, None));
            assert!(to.take(2).as_deref() == Some(&*blob(length, 5)), "{length} bytes in messages of {limit}");
            assert_eq!((to.take(2), to.take(1), to.take(200)), (None, None, None));
        }
    }
    let mut from = Outgoing::default();
    assert!(from.offer(0, blob(limits::BLOB_BYTES + 1, 0)).is_err());
    assert!(from.offer(limits::BLOB_TOPICS as u8 + 1, blob(1, 0)).is_err());
    assert!(from.is_empty());
}

#[test]
fn no_more_is_on_its_way_than_may_be() {
    let (mut from, mut to) = (Outgoing::default(), Incoming::default());
    from.offer(0, blob(1 << 20, 1)).unwrap();
    from.offer(1, blob(1 << 20, 2)).unwrap();
    let flight = |from: &Outgoing| from.blobs.iter().map(Leaving::in_flight).sum::<usize>();
    carry(&mut from, &mut to, 1010);
    assert!((limits::BLOB_FLIGHT_LEAST - 1000..=limits::BLOB_FLIGHT_LEAST).contains(&flight(&from)), "little to begin with");
    from.window = limits::BLOB_FLIGHT; // as it comes to be: see below
    carry(&mut from, &mut to, 1010);
    assert!((limits::BLOB_FLIGHT - 1000..=limits::BLOB_FLIGHT).contains(&flight(&from)));
    assert_eq!(to.progress(1).map(|p| p.bytes), Some(0), "one after the other");
    // what a newer one replaced is on its way all the same, until a word on the newer one comes
    from.offer(0, blob(1 << 20, 3)).unwrap();
    assert!(flight(&from) > limits::BLOB_FLIGHT - 1000);
    carry(&mut from, &mut to, 1010);
    assert!(flight(&from) <= limits::BLOB_FLIGHT);
    let widest = from.window;
    from.slow_down();
    assert_eq!(from.window, widest / 2);
    (0..20).for_each(|_| from.slow_down());
    assert_eq!(from.window, limits::BLOB_FLIGHT_LEAST);
    let mut rounds = 0;
    while !from.is_empty() && rounds < 100 {
        answer(&mut to, &mut from);
        carry(&mut from, &mut to, 1010);
        assert!(flight(&from) <= from.window && from.window <= limits::BLOB_FLIGHT);
        rounds += 1;
    }
    assert!((10..60).contains(&rounds), "{rounds} round trips");
    assert_eq!(from.window, limits::BLOB_FLIGHT, "what arrives makes room for more");
    assert!(to.take(0).as_deref() == Some(&*blob(1 << 20, 3)) && to.take(1).as_deref() == Some(&*blob(1 << 20, 2)));
}

#[test]
fn a_newer_blob_replaces_one_that_was_not_through_or_not_fetched() {
    let (mut from, mut to) = (Outgoing::default(), Incoming::default());
    from.offer(0, blob(300, 1)).unwrap();
    for _ in 0..3 {
        let limit = 110;
        let message = bytes(from.next(limit).unwrap());
        from.taken(limit);
        to.hear(Bulk::read(&message).unwrap()).unwrap();
    }
    assert_eq!(to.progress(0), Some(Progress { bytes: 200, total: 300 }));
    let late = to.word().unwrap();
    from.offer(0, blob(70, 2)).unwrap();
    from.hear(late).unwrap();
    assert_eq!(from.progress(0), Some(Progress { bytes: 0, total: 70 }), "a word that crossed the newer one");
    carry(&mut from, &mut to, 110);
    answer(&mut to, &mut from);
    from.offer(0, blob(80, 3)).unwrap();
    carry(&mut from, &mut to, 110);
    assert!(to.take(0).as_deref() == Some(&*blob(80, 3)), "the one before was not fetched in time");
}

#[test]
fn what_does_not_follow_is_refused_and_nothing_of_it_kept() {
    let content = blob(20, 0);
    let announce = Announce { topic: 1, id: 5, length: 20, digest: xxh3_64(&content) };
    let piece = |id, offset, bytes| Bulk::Piece { topic: 1, id, offset, bytes };
    let begun = || {
        let mut to = Incoming::default();
        to.hear(Bulk::Announce(announce)).unwrap();
        to.hear(piece(5, 0, &content[..10])).unwrap();
        to
    };
    let hostile: [(&str, Bulk<'_>); 9] = [
        ("unknown id", piece(6, 10, &content[10..])),
        ("an older id", piece(4, 10, &content[10..])),
        ("another topic", Bulk::Piece { topic: 2, id: 5, offset: 10, bytes: &content[10..] }),
        ("overlap", piece(5, 9, &content[9..])),
        ("a gap", piece(5, 11, &content[11..])),
        ("too long", piece(5, 10, &[0; 11])),
        ("another digest", piece(5, 10, &[0; 10])),
        ("announced again", Bulk::Announce(announce)),
        ("a guest's word", Bulk::Word { topic: 1, id: 5, bytes: 10 }),
    ];
    for (what, message) in hostile {
        let mut to = begun();
        assert!(to.hear(message).is_err(), "{what}");
        assert_eq!(to.take(1), None, "{what}");
    }
    let mut to = begun();
    to.hear(piece(5, 10, &content[10..])).unwrap();
    assert!(to.hear(piece(5, 20, &[1])).is_err(), "beyond its end");
    let mut from = Outgoing::default();
    from.offer(1, content).unwrap();
    for (what, message) in [
        ("an announcement from a guest", Bulk::Announce(announce)),
        ("of no blob", Bulk::Word { topic: 1, id: 0, bytes: 0 }),
        ("of a later blob", Bulk::Word { topic: 1, id: 2, bytes: 0 }),
        ("before it was announced", Bulk::Word { topic: 1, id: 1, bytes: 0 }),
    ] {
        assert!(from.hear(message).is_err(), "{what}");
    }
    from.taken(100);
    from.taken(22);
    from.taken(100);
    assert!(from.hear(Bulk::Word { topic: 1, id: 1, bytes: 21 }).is_err(), "more than was sent");
    from.hear(Bulk::Word { topic: 1, id: 1, bytes: 12 }).unwrap();
    assert!(from.hear(Bulk::Word { topic: 1, id: 1, bytes: 11 }).is_err(), "less than before");
    for (what, bytes) in [
        ("topic", [1, limits::BLOB_TOPICS as u8 + 1, 1, 0, 0, 0, 0, 0, 0, 0, 1].as_slice()),
        ("length", &[0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("code", &[3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]),
        ("an empty piece", &[1, 0, 1, 0, 0, 0, 1, 0, 0, 0]),
        ("a long word", &[2, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]),
        ("a short announcement", &[0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        assert!(Bulk::read(bytes).is_err(), "{what}");
    }
    assert!((0..PIECE_HEAD).all(|end| Bulk::read(&[0; PIECE_HEAD][..end]).is_err()));
}

#[test]
fn those_that_follow_one_another_all_come_and_in_order() {
    for limit in [100, PIECE_HEAD + limits::BLOB_PIECE] {
        let (mut from, mut to) = (Outgoing::default(), Incoming::default());
        let lengths = [5000, 0, 1, 70_000, 1001, limits::LARGE_BYTES + 1, 3, 0, 20];
        let ids: Vec<u32> = lengths.iter().map(|l| from.queue(blob(*l, 9)).unwrap()).collect();
        from.offer(0, blob(3000, 1)).unwrap();
        assert!(from.queued().map(|(id, _)| id).eq(ids.iter().copied()));
        let (mut came, mut rounds) = (Vec::new(), 0);
        while !from.is_empty() && rounds < 10_000 {
            // what has come is taken out before the next message is heard, as a peer does
            while let Some(message) = from.next(limit) {
                let bytes = bytes(message);
                from.taken(limit);
                to.hear(Bulk::read(&bytes).unwrap()).unwrap();
                came.extend(to.take(QUEUE));
            }
            assert!(to.queued_memory() <= 2 * (limits::LARGE_BYTES + 1));
            answer(&mut to, &mut from);
            rounds += 1;
        }
        assert!(came.iter().map(|b| &b[..]).eq(lengths.iter().map(|l| blob(*l, 9)).collect::<Vec<_>>().iter().map(|b| &b[..])));
        assert!(to.take(0).as_deref() == Some(&*blob(3000, 1)), "and the other topic is not held up");
    }
    let mut from = Outgoing::default();
    assert!(from.queue(blob(limits::LARGE_BYTES + 2, 0)).is_err() && from.is_empty());
}

#[test]
fn what_comes_no_further_is_let_go_and_its_sender_told() {
    let (mut from, mut to) = (Outgoing::default(), Incoming::default());
    let id = from.queue(blob(5000, 1)).unwrap();
    let next = from.queue(blob(10, 2)).unwrap();
    let mut pieces = Vec::new();
    while let Some(message) = from.next(1010) {
        pieces.push(bytes(message));
        from.taken(1010);
    }
    let hear = |to: &mut Incoming, pieces: &[Vec<u8>]| pieces.iter().for_each(|p| to.hear(Bulk::read(p).unwrap()).unwrap());
    hear(&mut to, &pieces[..3]);
    let half = limits::LARGE_IDLE / 2;
    to.release_idle(half);
    hear(&mut to, &pieces[3..4]);
    to.release_idle(2 * half);
    to.release_idle(3 * half);
    assert!(to.queued_memory() >= 3000, "something came meanwhile");
    to.release_idle(4 * half);
    assert_eq!(to.queued_memory(), 0);
    assert_eq!(to.word(), Some(Bulk::Gone { topic: QUEUE, id }));
    answer(&mut to, &mut from);
    assert_eq!((to.word(), from.take_gone()), (None, vec![id]));
    hear(&mut to, &pieces[4..]);
    assert!(to.take(QUEUE).as_deref() == Some(&*blob(10, 2)), "what was on its way of the other is ignored, and the next comes");
    answer(&mut to, &mut from);
    assert!(from.is_empty() && from.take_gone().is_empty(), "{next}");
    for wrong in [Bulk::Gone { topic: QUEUE, id: next + 1 }, Bulk::Gone { topic: QUEUE, id: 0 }] {
        assert!(from.hear(wrong).is_err());
    }
    from.offer(0, blob(10, 2)).unwrap();
    assert!(from.hear(Bulk::Gone { topic: 0, id: next + 1 }).is_err(), "others are not let go by their receivers");
}

#[test]
fn a_hundred_thousand_beginnings_take_no_more_than_one() {
    let mut to = Incoming::default();
    for id in 1..=100_000 {
        let length = limits::LARGE_BYTES as u32 + 1;
        to.hear(Bulk::Announce(Announce { topic: QUEUE, id, length, digest: 7 })).unwrap();
        to.hear(Bulk::Piece { topic: QUEUE, id, offset: 0, bytes: &[1; 1000] }).unwrap();
        assert!(to.queued_memory() <= 2048);
    }
    to.release_idle(Duration::ZERO);
    to.release_idle(limits::LARGE_IDLE);
    assert_eq!(to.queued_memory(), 0);
}
