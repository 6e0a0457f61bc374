//! Writes to what a peer does not simulate are found, and told once with the entity, the component and the field.

mod common;
mod mixed_game;

use common::{config, weather};
use hecs::{Entity, World};
use mixed_game::{Crate, Has, Place, Relic, Runner, Seen, Speed, Unit, simulate};
use tidelock::policy::{Lockstep, Rollback, Timeline};
use tidelock::testing::Table;
use tidelock::testing::determinism::{Check, Way};
use tidelock::{Checkpoint, Config, News, Schema, Step};
use tidelock_loopback::Network;

/// A host and a guest that play for a while; from then on `more` is run after each step of theirs.
fn strays(config: &Config, more: fn(usize, &mut World, &mut Step<'_>)) -> Vec<Vec<News>> {
    let (has, seed) = (Has::all(), 3);
    let network = Network::new(seed);
    let mut table = Table::new(seed, &has.schema(), config.clone(), network.host()).unwrap();
    let host = table.seat(0);
    host.peer.spawn(&mut host.world, Crate, (Place { x: 1.0, y: 1.0 }, mixed_game::Health::default())).unwrap();
    host.peer.spawn(&mut host.world, Relic, (Place::default(), mixed_game::Health::default())).unwrap();
    let body = host.peer.spawn(&mut host.world, Runner, (Place::default(), Speed::default())).unwrap();
    for i in 0..40 {
        let parts = (Place { x: i as f32, y: 0.5 }, Speed::default(), mixed_game::Of(999));
        host.peer.spawn(&mut host.world, Unit, parts).unwrap();
    }
    table.join(config.clone(), network.join(weather(40, 0.02), weather(40, 0.02))).unwrap();
    let mut seen = [Seen::default(), Seen::default()];
    let mut run = |table: &mut Table, frames| {
        (0..frames).for_each(|_| table.run(|seat, world, step| simulate(has, seat, world, step, &mut seen[seat], None)));
    };
    run(&mut table, 60);
    let guest = table.seat(1).peer.local();
    let host = table.seat(0);
    host.peer.grant(&mut host.world, body, 0, guest).unwrap();
    run(&mut table, 60);
    for _ in 0..120 {
        // without the table's oracle, which is there to find what a guest shows and the host never had
        table.now += table.frame;
        for (seat, seen) in seen.iter_mut().enumerate() {
            let now = table.now;
            let tidelock::testing::Seat { peer, world, news, .. } = table.seat(seat);
            peer.receive(now, world).unwrap();
            while let Some(mut step) = peer.next_step(world) {
                simulate(has, seat, world, &mut step, seen, None);
                more(seat, world, &mut step);
            }
            peer.send(now, world).unwrap();
            news.extend(std::iter::from_fn(|| peer.poll_news()));
        }
    }
    let found = |news: Vec<News>| news.into_iter().filter(|n| matches!(n, News::Stray { .. })).collect();
    (0..2).map(|seat| found(table.seat(seat).take_news())).collect()
}

fn checked() -> Config {
    Config { check_writes: true, ..config() }
}

/// What was told of a write: timeline, component, field.
fn places(news: &[News]) -> Vec<(Timeline, &str, &str)> {
    let mut found = Vec::new();
    for news in news {
        if let News::Stray { line, component, field, before, after, .. } = news {
            assert_ne!(before, after);
            found.push((*line, component.as_str(), field.as_str()));
        }
    }
    found
}

fn each_of<K: hecs::Component>(world: &World, mut write: impl FnMut(&mut Place, &mut Speed)) {
    world.query::<(&mut Place, &mut Speed)>().with::<&K>().iter().for_each(|(place, speed)| write(place, speed));
}

#[test]
fn an_honest_game_has_none() {
    assert_eq!(strays(&checked(), |_, _, _| {}), [[], []]);
}

#[test]
fn units_moved_in_a_step_of_the_session_are_found() {
    let news = strays(&checked(), |_, world, step| {
        if step.timeline() == Timeline::Session {
            each_of::<Unit>(world, |_, speed| speed.y += 1.0);
        }
    });
    for (seat, news) in news.iter().enumerate() {
        let places = places(news);
        assert!(places.iter().all(|place| *place == (Timeline::Lockstep, "speed", "y")), "seat {seat}: {places:?}");
        assert!((20..=40).contains(&places.len()), "seat {seat}, once for each unit: {}", places.len());
    }
}

#[test]
fn players_moved_in_a_step_of_lockstep_are_found() {
    let news = strays(&checked(), |seat, world, step| {
        if step.timeline() == Timeline::Lockstep && seat == 0 {
            each_of::<mixed_game::Player>(world, |place, _| place.x += 1.0);
        }
    });
    assert_eq!(places(&news[0]), vec![(Timeline::Rollback, "place", "x"); 2]);
    assert_eq!(news[1], []);
}

#[test]
fn a_resource_written_outside_of_its_timeline_is_found() {
    let news = strays(&checked(), |seat, world, step| {
        if step.timeline() == Timeline::Session && seat == 1 {
            world.query::<&mut mixed_game::Goals>().iter().for_each(mixed_game::Goals::cheat);
        }
    });
    assert_eq!(news[0], []);
    assert_eq!(places(&news[1]), [(Timeline::Rollback, "goals", "by.len()")]);
}

#[test]
fn a_guest_that_moves_what_the_host_has_is_found() {
    let news = strays(&checked(), |_, world, step| {
        if !step.peer().is_host() && step.timeline() == Timeline::Session {
            world.query::<&mut Place>().with::<&Crate>().iter().for_each(|place| place.y += 0.02);
        }
    });
    assert_eq!(news[0], []);
    assert_eq!(places(&news[1]), [(Timeline::Session, "place", "y")]);
}

/// Who owns an entity has not all of it: its health is the host's.
#[test]
fn components_are_told_apart_by_who_has_authority_over_them() {
    let news = strays(&checked(), |_, world, step| {
        if !step.peer().is_host() && step.timeline() == Timeline::Session {
            let all: Vec<Entity> = world.query::<Entity>().with::<&Relic>().iter().collect();
            all.into_iter().for_each(|relic| drop(world.remove_one::<mixed_game::Health>(relic)));
        }
    });
    assert_eq!(places(&news[1]), [(Timeline::Session, "health", "")]);
}

#[test]
fn nothing_is_looked_for_when_it_is_off() {
    let off = Config { check_writes: false, ..config() };
    let news = strays(&off, |_, world, _| each_of::<Unit>(world, |_, speed| speed.y += 1.0));
    assert_eq!(news, [[], []]);
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
struct Count(u32);
#[derive(Clone, Copy, Debug, Default, PartialEq, tidelock::Replicate)]
struct Stick(u8);
#[derive(Clone, Copy, Default)]
struct Ball;
#[derive(Clone, Copy, Default)]
struct Pawn;

/// The check of determinism finds them too, though such a write is the same in every run.
#[test]
fn the_check_of_determinism_finds_writes_across_timelines() {
    let schema = Schema::builder("across")
        .checkpoint::<Count>("count")
        .kind::<Ball>("ball", Rollback)
        .kind::<Pawn>("pawn", Lockstep::sealed())
        .input::<Stick>("stick")
        .build()
        .unwrap();
    let build = |peer: &mut tidelock::Peer, world: &mut World| {
        peer.spawn(world, Ball, (Count(0),)).unwrap();
        peer.spawn(world, Pawn, (Count(0),)).unwrap();
    };
    let check = || Check::new(&schema, build, |_| ()).ticks(20);
    let good = || |world: &mut World, step: &mut Step<'_>, _: &()| step.query::<&mut Count>(world).iter().for_each(|c| c.0 += 1);
    assert_eq!(check().run(good), Ok(()));
    let bad = || {
        |world: &mut World, step: &mut Step<'_>, _: &()| {
            if step.timeline() == Timeline::Rollback && step.tick().0 == 7 {
                world.query::<&mut Count>().iter().for_each(|c| c.0 += 1);
            }
        }
    };
    let leak = check().run(bad).unwrap_err();
    assert_eq!((leak.way, leak.tick.0, leak.component.as_deref()), (Way::Confined, 7, Some("count")));
    assert_eq!((leak.straight.as_str(), leak.other.as_str()), ("0", "1"));
    assert!(leak.to_string().contains("after a step that does not simulate it"), "{leak}");
}
