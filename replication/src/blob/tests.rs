use crate::policy::Host;
use crate::testing::Table;
use crate::{Config, News, PeerId, Replicate, Schema, UsageError};
use hecs::Entity;
use std::time::Duration;
use tidelock_loopback::{Conditions, Network};
use tidelock_netcore::bulk::{Announce, Bulk, Progress};
use tidelock_netcore::error::DisconnectReason;
use tidelock_netcore::limits;
use tidelock_netcore::transport::Lane;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Count(u16);

#[derive(Clone, Copy, Default)]
struct Pawn;

const GUEST: PeerId = PeerId(1);

fn table(seed: u64, bandwidth: u64, weather: Conditions) -> Table {
    let schema = Schema::builder("blobs").component::<Count>("count", |c| c).kind::<Pawn>("pawn", Host::default());
    let schema = schema.build().unwrap();
    let network = Network::new(seed);
    let config = Config { bandwidth, ..Config::default() };
    let mut table = Table::new(seed, &schema, config.clone(), network.host()).unwrap();
    table.join(config, network.join(weather, weather)).unwrap();
    table.rest(120);
    assert!(table.seat(1).peer.is_in_session(), "SEED={seed}");
    table
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u32).wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect()
}

fn narrow(backpressure: bool) -> Conditions {
    let (latency, jitter) = (Duration::from_millis(40), Duration::from_millis(10));
    Conditions { rate: Some(125_000), latency, jitter, loss: 0.05, backpressure, ..Conditions::default() }
}

/// A frame in which everybody counts; how old what the guest shows is, in ticks, on the mean.
fn count(table: &mut Table, pawns: &[Entity]) -> f64 {
    table.run(|seat, world, step| {
        let tick = step.tick().0 as u16;
        if seat == 0 {
            pawns.iter().for_each(|e| world.get::<&mut Count>(*e).unwrap().0 = tick);
        }
    });
    let now = table.seat(0).peer.tick().0 as u16;
    let guest = table.seat(1);
    let ages: Vec<f64> = guest.world.query::<&Count>().iter().map(|c| f64::from(now.wrapping_sub(c.0))).collect();
    assert_eq!(ages.len(), pawns.len());
    ages.iter().sum::<f64>() / ages.len() as f64
}

/// The mean of many ages, and the one that only one in a hundred is above.
fn summary(mut ages: Vec<f64>) -> (f64, f64) {
    ages.sort_by(f64::total_cmp);
    (ages.iter().sum::<f64>() / ages.len() as f64, ages[ages.len() * 99 / 100])
}

#[test]
fn state_keeps_its_age_while_megabytes_move() {
    // the rate that was set is what the path carries, or far more than that
    for (seed, bandwidth, backpressure, slower) in
        [(1, 1_000_000, true, 1.0), (2, 1_000_000, false, 1.0), (3, 16_000_000, false, 12.0)]
    {
        let mut table = table(seed, bandwidth, narrow(backpressure));
        let host = table.seat(0);
        let pawns: Vec<Entity> = (0..30).map(|_| host.peer.spawn(&mut host.world, Pawn, (Count(0),)).unwrap()).collect();
        table.rest(60);
        let before = summary((0..600).map(|_| count(&mut table, &pawns)).collect());
        let blob = content(4 << 20);
        table.seat(0).peer.send_blob(GUEST, 1, blob.clone()).unwrap();
        let (mut ages, mut last) = (Vec::new(), 0);
        while table.seat(0).peer.blob_progress(GUEST, 1).is_some() {
            ages.push(count(&mut table, &pawns));
            if let Some(Progress { bytes, total }) = table.seat(1).peer.blob_progress(PeerId::HOST, 1) {
                assert!(bytes >= last && total == 4 << 20, "SEED={seed}");
                last = bytes;
            }
            assert!(ages.len() < 6000, "SEED={seed}: {last} bytes in 100 seconds");
        }
        let frames = ages.len();
        let during = summary(ages);
        println!("SEED={seed}: {before:?} before, {during:?} during {frames} frames");
        assert!(during.0 < before.0 + slower && during.1 < before.1 + 3.0 * slower, "SEED={seed}: {before:?} became {during:?}");
        assert!(table.seat(1).peer.take_blob(1) == Some((PeerId::HOST, blob)), "SEED={seed}");
        assert_eq!(table.seat(1).peer.take_blob(1), None);
    }
}

#[test]
fn a_slow_link_gets_small_things_too() {
    let weather = Conditions { latency: Duration::from_millis(20), ..Conditions::default() };
    let mut table = table(4, limits::BANDWIDTH_LEAST, weather);
    table.seat(0).peer.send_blob(GUEST, 0, content(5000)).unwrap();
    table.rest(60 * 12);
    assert!(table.seat(1).peer.take_blob(0).is_some_and(|(_, blob)| blob == content(5000)));
    let sent = table.seat(0).peer.stats(GUEST).unwrap().link.message_bytes_out;
    assert!(sent < 7000, "{sent} bytes in all");
}

#[test]
fn messages_and_blobs_share_a_link() {
    let mut table = table(5, 1_000_000, narrow(true));
    for topic in 0..limits::BLOB_TOPICS as u8 {
        table.seat(0).peer.send_blob(GUEST, topic, content(20_000 + usize::from(topic))).unwrap();
    }
    // a newer one in the middle of the first
    table.rest(10);
    table.seat(0).peer.send_blob(GUEST, 0, content(7)).unwrap();
    table.rest(240);
    for topic in 0..limits::BLOB_TOPICS as u8 {
        let length = if topic == 0 { 7 } else { 20_000 + usize::from(topic) };
        assert_eq!(table.seat(1).peer.take_blob(topic).map(|(_, b)| b), Some(content(length)), "topic {topic}");
    }
}

#[test]
fn of_a_link_that_ends_in_the_middle_nothing_is_kept() {
    let mut table = table(6, 1_000_000, narrow(true));
    table.seat(0).peer.send_blob(GUEST, 0, content(1 << 20)).unwrap();
    table.rest(60);
    let half = table.seat(1).peer.blob_progress(PeerId::HOST, 0).unwrap();
    assert!((10_000..1 << 20).contains(&half.bytes));
    let guest = table.seat(1);
    guest.peer.disconnect(&mut guest.world, DisconnectReason::Left);
    assert_eq!((guest.peer.take_blob(0), guest.peer.blob_progress(PeerId::HOST, 0)), (None, None));
    table.rest(60);
    assert_eq!(table.seat(0).peer.blob_progress(GUEST, 0), None);
    assert!(matches!(table.seat(0).peer.send_blob(GUEST, 0, content(1)), Err(UsageError::NoSuchPeer)));
    assert!(matches!(table.seat(1).peer.send_blob(PeerId::HOST, 0, content(1)), Err(UsageError::NotAllowed(_))));
}

#[test]
fn what_is_too_large_or_of_no_topic_is_refused_at_the_call() {
    let mut table = table(7, 1_000_000, Conditions::default());
    let host = &mut table.seat(0).peer;
    assert!(matches!(host.send_blob(GUEST, 0, vec![0; limits::BLOB_BYTES + 1]), Err(UsageError::Config(_))));
    assert!(matches!(host.send_blob(GUEST, limits::BLOB_TOPICS as u8, content(1)), Err(UsageError::Config(_))));
    assert_eq!(host.blob_progress(GUEST, 0), None);
}

#[test]
fn who_sends_what_does_not_follow_is_out() {
    let content = content(30);
    let digest = xxhash_rust::xxh3::xxh3_64(&content);
    let announce = Bulk::Announce(Announce { topic: 0, id: 3, length: 30, digest });
    let piece = |id, offset, bytes| Bulk::Piece { topic: 0, id, offset, bytes };
    let whole = [announce, piece(3, 0, &content)];
    // a host's, and what becomes of its guest
    let cases: [(&str, &[Bulk<'_>], bool); 7] = [
        ("as it should be", &whole, true),
        ("not announced", &[piece(3, 0, &content)], false),
        ("overlap", &[announce, piece(3, 0, &content[..9]), piece(3, 8, &content[8..])], false),
        ("too long", &[announce, piece(3, 0, &[1; 31])], false),
        ("wrong digest", &[announce, piece(3, 0, &[1; 30])], false),
        ("no newer", &[announce, announce], false),
        ("a guest's word", &[announce, Bulk::Word { topic: 0, id: 3, bytes: 0 }], false),
    ];
    for (what, messages, stays) in cases {
        let mut table = table(8, 1_000_000, Conditions::default());
        for message in messages {
            post(&mut table, 0, *message);
        }
        // the honest side of the host knows of no blob, so it takes the guest's word for a lie: hold that back
        table.rest(1);
        let guest = &mut table.seat(1).peer;
        assert_eq!(guest.ended().is_none(), stays, "{what}");
        assert_eq!(guest.take_blob(0).is_some(), stays, "{what}");
        if !stays {
            assert_eq!(guest.ended(), Some(&DisconnectReason::Malformed), "{what}");
        }
    }
    for (what, message) in [("a blob of a guest's", announce), ("a word on nothing", Bulk::Word { topic: 0, id: 1, bytes: 0 })] {
        let mut table = table(9, 1_000_000, Conditions::default());
        post(&mut table, 1, message);
        table.rest(3);
        assert_eq!(table.seat(1).peer.ended(), Some(&DisconnectReason::Malformed), "{what}");
        assert!(table.seat(0).take_news().iter().any(|n| matches!(n, News::Misbehaved { peer: GUEST, .. })), "{what}");
    }
}

/// Something that no honest build would send.
fn post(table: &mut Table, from: usize, message: Bulk<'_>) {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    assert!(table.seat(from).peer.links[0].post(Lane::BULK, &bytes));
}
