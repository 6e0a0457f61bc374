//! Values of the session that travel: resources.

#![allow(missing_docs)]

mod common;

use common::{Crate, Position, assert_clean, assert_settles, config, seeds, table_of, weather};
use hecs::World;
use tidelock::policy::Host;
use tidelock::{News, Relevance, Replicate, Schema, SharedResources, UsageError};

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Score {
    red: u16,
    #[net(max = 4)]
    rounds: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Secret(u8);

fn schema() -> Schema {
    Schema::builder("test")
        .component::<Position>("position", |c| c)
        .kind::<Crate>("crate", Host::default())
        .shared_resource::<Score>("score", |c| c.notify_changes())
        .shared_resource::<Secret>("secret", |c| c)
        .build()
        .unwrap()
}

fn red(peer: &tidelock::Peer, world: &World) -> Option<u16> {
    peer.resource::<Score>(world).ok().map(|score| score.red)
}

#[test]
fn they_arrive_change_and_are_there_for_who_joins_late() {
    for seed in seeds(5) {
        let (mut table, network) = table_of(seed, &schema(), 2, weather(60, 0.2), &config());
        for round in 1..=100u16 {
            table.run(|seat, world, step| {
                if seat == 0 {
                    let score = step.resource::<Score>(world).unwrap();
                    score.red = round;
                    score.rounds = vec![round as u8; usize::from(round % 5)];
                } else {
                    assert!(matches!(step.resource::<Score>(world), Err(UsageError::NotAllowed(_))), "SEED={seed}");
                }
            });
        }
        let late = table.join(config(), network.join(weather(60, 0.2), weather(60, 0.2))).unwrap();
        assert_settles(&mut table, 20);
        for seat in [0, 1, 2, late] {
            let place = table.seat(seat);
            let score = Score::clone(&*place.peer.resource::<Score>(&place.world).unwrap());
            assert_eq!(score, Score { red: 100, rounds: Vec::new() }, "SEED={seed} seat {seat}");
            assert_eq!(place.world.query_mut::<&SharedResources>().into_iter().count(), 1, "SEED={seed} seat {seat}");
        }
        let is_change = |n: &News| matches!(n, News::Changed { component, .. } if component == "score");
        assert!(table.seat(1).news.iter().any(is_change), "SEED={seed} {:?}", table.seat(1).news);
        assert!(!table.seat(late).news.iter().any(is_change), "SEED={seed}: the first value is no change");
        assert_clean(&mut table);
    }
}

#[test]
fn nothing_hides_them_but_a_rule_of_their_own() {
    for seed in seeds(3) {
        let (mut table, network) = table_of(seed, &schema(), 0, weather(30, 0.0), &config());
        let relevance = Relevance::nearest(1)
            .place(|p: &Position| [p.x, p.y, 0.0])
            .rule(|_| false)
            .show_only::<Secret>(|sight| sight.peer() == tidelock::PeerId(1));
        table.seat(0).peer.set_relevance(relevance).unwrap();
        let host = table.seat(0);
        host.peer.spawn(&mut host.world, Crate, (Position { x: 1.0, y: 0.0 },)).unwrap();
        host.peer.resource_mut::<Score>(&mut host.world).unwrap().red = 7;
        host.peer.resource_mut::<Secret>(&mut host.world).unwrap().0 = 9;
        for _ in 0..2 {
            table.join(config(), network.join(weather(30, 0.0), weather(30, 0.0))).unwrap();
            table.rest(120);
        }
        for seat in [1, 2] {
            let place = table.seat(seat);
            assert_eq!(red(&place.peer, &place.world), Some(7), "SEED={seed} seat {seat}");
            assert_eq!(place.world.query_mut::<&Crate>().into_iter().count(), 0, "SEED={seed}: the rule hides all else");
            let secret = place.peer.resource::<Secret>(&place.world).ok().map(|secret| secret.0);
            assert_eq!(secret, (place.peer.local() == tidelock::PeerId(1)).then_some(9), "SEED={seed} seat {seat}");
        }
    }
}

#[test]
fn a_value_at_rest_sends_nothing() {
    let (mut table, _network) = table_of(1, &schema(), 1, weather(20, 0.0), &config());
    assert_settles(&mut table, 10);
    let bytes = |table: &mut tidelock::testing::Table| {
        let place = table.seat(0);
        let guest = place.peer.peers().into_iter().map(|p| p.peer).find(|p| *p != place.peer.local()).unwrap();
        place.peer.stats(guest).unwrap().sent.rows
    };
    let before = bytes(&mut table);
    table.rest(120);
    assert_eq!(bytes(&mut table), before);
}

#[test]
fn the_schema_knows_them() {
    #[derive(Default, Replicate)]
    struct Other;
    let twice = Schema::builder("test").shared_resource::<Score>("score", |c| c).component::<Other>("score", |c| c).build();
    assert!(twice.is_err());
    assert!(schema().explain().contains("tidelock.resources"));
    let without = Schema::builder("test").build().unwrap();
    let mut world = World::new();
    let mut peer = tidelock::Peer::alone(without, config()).unwrap();
    assert!(matches!(peer.resource::<Score>(&world), Err(UsageError::NotInSchema(_))));
    assert!(matches!(peer.resource_mut::<Score>(&mut world), Err(UsageError::NotInSchema(_))));
    let mut peer = tidelock::Peer::alone(schema(), config()).unwrap();
    assert!(matches!(peer.resource::<Score>(&world), Err(UsageError::NotNetworked)));
    // what the game took off begins anew
    peer.resource_mut::<Score>(&mut world).unwrap().red = 3;
    let carrier = world.query_mut::<(hecs::Entity, &SharedResources)>().into_iter().next().unwrap().0;
    world.remove_one::<Score>(carrier).unwrap();
    assert_eq!(peer.resource_mut::<Score>(&mut world).unwrap().red, 0);
    world.clear();
    assert_eq!(peer.resource_mut::<Score>(&mut world).unwrap().red, 0);
}
