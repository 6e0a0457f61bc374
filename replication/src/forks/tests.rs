//! Guests that say of their states what is not so, and what it costs whom. And what is spread, and kept.

use crate::news::News;
use crate::policy::{Lockstep, Timeline};
use crate::testing::Table;
use crate::{Checkpoint, Config, PeerId, Schema};
use std::time::Duration;
use tidelock_loopback::{Conditions, Network};
use tidelock_netcore::control::Control;
use tidelock_netcore::error::DisconnectReason;
use tidelock_netcore::forks::{Fork, ForkAnswer, ForkAsk, ForkFound, ForkQuestion, StateDigest};
use tidelock_netcore::limits;

#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
struct Count(u32);

#[derive(Clone, Copy, Default)]
struct Pawn;

/// A host that asks every so many ticks, and two guests that take part.
fn table(digest_every: u64) -> Table {
    let schema = Schema::builder("forged").checkpoint::<Count>("count").kind::<Pawn>("pawn", Lockstep::sealed());
    let network = Network::new(7);
    let config = Config { digest_every, ..Config::default() };
    let mut table = Table::new(7, &schema.build().unwrap(), config, network.host()).unwrap();
    let host = table.seat(0);
    for i in 0..10 {
        host.peer.spawn(&mut host.world, Pawn, (Count(i),)).unwrap();
    }
    let weather = Conditions { latency: Duration::from_millis(20), ..Conditions::default() };
    for _ in 0..2 {
        table.join(Config::default(), network.join(weather, weather)).unwrap();
    }
    table.rest(120);
    for seat in 1..3 {
        assert!(table.seat(seat).peer.confirmed(Timeline::Lockstep).is_some());
    }
    table
}

fn say(table: &mut Table, fork: Fork) {
    assert!(table.seat(1).peer.links[0].post_control(&Control::Fork(fork)));
}

fn digest(table: &mut Table, tick: u64, digest: u64) {
    say(table, Fork::Digest(StateDigest { line: Timeline::Lockstep as u8, tick, digest }));
}

/// A bit of a guest's state is turned over.
fn flip(table: &mut Table, seat: usize) {
    let world = &mut table.seat(seat).world;
    let count = world.query_mut::<&mut Count>().into_iter().next();
    count.expect("there are pawns").0 ^= 1 << seat;
}

fn forks(table: &mut Table, seat: usize) -> usize {
    table.seat(seat).news.iter().filter(|n| matches!(n, News::Forked { .. })).count()
}

/// The first guest is removed for it, and nobody else loses anything.
fn assert_removed(table: &mut Table) {
    table.rest(30);
    assert_eq!(table.seat(1).peer.ended(), Some(&DisconnectReason::Malformed));
    let news = &table.seat(0).news;
    assert!(news.iter().any(|n| matches!(n, News::Misbehaved { peer: PeerId(1), .. })), "{news:?}");
    assert!(table.seat(2).peer.is_in_session());
    assert!(table.seat(0).peer.forks.host.descents.is_empty());
}

#[test]
fn what_no_guest_may_say_ends_it() {
    let newest = |table: &mut Table| table.seat(0).peer.confirmed(Timeline::Lockstep).unwrap().0;
    let words: [fn(u64) -> Fork; 6] = [
        |tick| Fork::Digest(StateDigest { line: 0, tick, digest: 1 }),
        |tick| Fork::Digest(StateDigest { line: 200, tick, digest: 1 }),
        |_| Fork::Digest(StateDigest { line: Timeline::Lockstep as u8, tick: 1, digest: 1 }),
        |_| Fork::Answer(ForkAnswer::Gone),
        |tick| Fork::Question(ForkQuestion { line: 2, tick, ask: ForkAsk::Sums }),
        |tick| Fork::Found(ForkFound { line: 2, tick, digest: 1, peers: Vec::new() }),
    ];
    for word in words {
        let mut table = table(5);
        let tick = newest(&mut table);
        say(&mut table, word(tick));
        assert_removed(&mut table);
        assert_eq!(forks(&mut table, 2), 0);
    }
}

#[test]
fn digests_that_nobody_asked_for_are_counted() {
    let mut table = table(0);
    for tick in 0..limits::DIGESTS as u64 {
        digest(&mut table, 1_000_000 + tick, 1);
    }
    table.rest(60);
    assert!(table.seat(1).peer.is_in_session(), "late ones are no offence");
    digest(&mut table, 2_000_000, 1);
    assert_removed(&mut table);
}

/// A guest that has its digests right and wrong in turns makes news once per cool-down, and no more.
#[test]
fn a_forged_flood_makes_news_once_in_a_while() {
    let mut table = table(1);
    table.seat(1).peer.forks.guest.lies.forges = true;
    table.rest(1200);
    // 20 seconds: at 0, 10 and perhaps 20
    for seat in 0..3 {
        let told = forks(&mut table, seat);
        assert!((2..=3).contains(&told), "seat {seat} was told of {told} forks");
    }
    assert!(table.seat(2).peer.is_in_session());
}

/// A guest whose digest is wrong is asked; whatever it answers, only it pays for it.
#[test]
fn nonsense_as_an_answer_costs_nobody_else() {
    let nonsense: [fn() -> ForkAnswer; 6] = [
        || ForkAnswer::Sums(vec![1]),
        || ForkAnswer::Classes(vec![1; 64]),
        || ForkAnswer::Rows(vec![(2, 1), (1, 1)]),
        || ForkAnswer::Value(Some(vec![1; 3])),
        || ForkAnswer::TooLong,
        || ForkAnswer::Value(None),
    ];
    for answer in nonsense {
        let mut table = table(30);
        table.seat(1).peer.forks.guest.lies.answer = Some(answer());
        flip(&mut table, 1);
        table.rest(90);
        assert_removed(&mut table);
        assert_eq!(forks(&mut table, 2), 1, "the fork itself was told");
    }
}

/// One that does not answer at all is waited for, and not longer; the next one's turn comes.
#[test]
fn silence_as_an_answer_ends() {
    let mut table = table(30);
    table.seat(1).peer.forks.guest.lies.silent = true;
    flip(&mut table, 1);
    flip(&mut table, 2);
    table.rest(60 + 30);
    assert_eq!(table.seat(0).peer.forks.host.descents.len(), 2, "the silent one is being asked, the other waits");
    table.rest(limits::FORK_ANSWER_TIME.as_secs() as u32 * 60 + 60);
    assert!(table.seat(0).peer.forks.host.descents.is_empty());
    let located = |n: &News| matches!(n, News::ForkLocated { peer: PeerId(2), .. });
    for seat in 0..3 {
        assert_eq!(table.seat(seat).news.iter().filter(|n| located(n)).count(), 1, "seat {seat}");
    }
    assert!(table.seat(1).peer.is_in_session(), "silence is no offence");
}

/// What is kept of states is bounded, in number and in bytes, and its memory is used again.
#[test]
fn states_are_kept_within_bounds() {
    let mut table = table(1);
    table.rest(600);
    for seat in 0..3 {
        let line = table.seat(seat).peer.forks.line(Timeline::Lockstep);
        assert_eq!(line.states.len(), limits::DIGEST_STATES, "seat {seat}");
        let bytes: usize = line.states.iter().map(|s| s.cost()).sum();
        assert!(bytes == line.bytes && bytes <= limits::DIGEST_BYTES, "seat {seat}: {bytes} of {}", line.bytes);
        assert!(line.spare.is_some(), "seat {seat}: the memory of the oldest is used again");
    }
}
