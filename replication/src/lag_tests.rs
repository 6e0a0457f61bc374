use super::*;
use crate::policy::Host;
use crate::testing::{Seat, Table};
use crate::{Config, Interpolate, Replicate, Schema};
use std::time::Duration;
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Trigger(bool);
#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Place {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
}
#[derive(Clone, Copy, Default)]
struct Target;

fn table(tick_rate: u32) -> (Table, Entity) {
    let schema = Schema::builder("lag")
        .component::<Place>("place", |c| c.interpolate())
        .kind::<Target>("target", Host::default())
        .input::<Trigger>("trigger")
        .build()
        .unwrap();
    let network = Network::new(7);
    let config = Config { tick_rate, ..Config::default() };
    let mut table = Table::new(7, &schema, config.clone(), network.host()).unwrap();
    let weather = Conditions { latency: Duration::from_millis(30), ..Conditions::default() };
    table.join(config, network.join(weather, weather)).unwrap();
    table.rest(60);
    let Seat { peer, world, .. } = table.seat(0);
    let entity = peer.spawn(world, Target, (Place { x: 0.0 },)).unwrap();
    (table, entity)
}

/// A tenth of a unit per tick; the guest says that it drew what it claims. The host's last answer.
fn play(table: &mut Table, frames: u32, entity: Entity, claim: impl Fn(Duration) -> Duration) -> Option<SeenAt> {
    let mut seen = None;
    for _ in 0..frames {
        let guest = &table.seat(1).peer;
        let claimed = claim(guest.session_time().unwrap());
        guest.drawn.set(Some(claimed));
        table.run(|seat, world, step| {
            if seat == 0 {
                world.get::<&mut Place>(entity).unwrap().x = (step.tick().0 % 4000) as f32 * 0.1;
                seen = step.peer().seen_by(PeerId(1));
                if let Some(seen) = seen {
                    let past = step.peer().at_time_of::<Place>(world, entity, seen).unwrap();
                    let then = (seen.tick().0 % 4000) as f32 + seen.part();
                    let past = past.unwrap_or(Place { x: 0.0 });
                    assert!(past.x <= then * 0.1 + 0.02, "nothing of later: {past:?} {seen:?}");
                }
            }
        });
    }
    seen
}

#[test]
fn who_claims_ten_seconds_gets_half_of_one() {
    let (mut table, entity) = table(60);
    let seen = play(&mut table, 200, entity, |now| now.saturating_sub(Duration::from_secs(10))).unwrap();
    assert!(seen.is_clamped());
    assert!((seen.ticks_behind() - 30.0).abs() < 1e-3, "{seen:?}");
    let Seat { peer, world, .. } = table.seat(0);
    let past = peer.at_time_of::<Place>(world, entity, seen).unwrap().unwrap();
    assert!((past.x - (seen.tick().0 as f32) * 0.1).abs() < 0.02, "{past:?} {seen:?}");
    // a claim so far back that it is no number of ticks any more
    let seen = play(&mut table, 60, entity, |_| Duration::ZERO).unwrap();
    assert!(seen.is_clamped() && seen.ticks_behind() <= 30.0);
}

#[test]
fn who_claims_the_future_gets_now() {
    let (mut table, entity) = table(60);
    let seen = play(&mut table, 200, entity, |now| now + Duration::from_secs(10)).unwrap();
    assert_eq!((seen.ticks_behind(), seen.is_clamped()), (0.0, false));
    let Seat { peer, world, .. } = table.seat(0);
    assert_eq!(seen.tick(), peer.tick());
    let past = peer.at_time_of::<Place>(world, entity, seen).unwrap().unwrap();
    let now = world.get::<&Place>(entity).unwrap().x;
    assert!((past.x - now).abs() < 0.11, "{past:?}, and it is at {now}");
}

/// At 480 ticks a second 64 sends are less than half a second.
#[test]
fn no_further_than_the_history_remembers() {
    let (mut table, entity) = table(480);
    table.frame = Duration::from_nanos(1_000_000_000 / 480 + 1);
    let seen = play(&mut table, 1500, entity, |now| now.saturating_sub(Duration::from_secs(10))).unwrap();
    assert!(seen.is_clamped());
    assert!((55.0..=64.0).contains(&seen.ticks_behind()), "{seen:?}");
    // what was asked for long ago is not there any more, and is not made up from later values
    let kept = seen;
    play(&mut table, 300, entity, |now| now);
    let Seat { peer, world, .. } = table.seat(0);
    let _ = peer.at_time_of::<Place>(world, entity, kept).unwrap();
    assert!(peer.at_time::<Place>(kept).unwrap().count() <= 1);
}

#[test]
fn who_draws_nothing_or_is_not_here_has_seen_nothing() {
    let (mut table, entity) = table(60);
    table.rest(120);
    let Seat { peer, world, .. } = table.seat(0);
    assert_eq!(peer.seen_by(PeerId(1)), None, "it never called `present`");
    assert_eq!(peer.seen_by(PeerId(9)), None);
    let now = peer.seen_by(PeerId::HOST).unwrap();
    assert_eq!((now.actor(), now.tick()), (PeerId::HOST, peer.tick()));
    assert_eq!(
        peer.at_time_of::<Target>(world, entity, now).err(),
        Some(UsageError::NotInSchema(std::any::type_name::<Target>()))
    );
    let guest = table.seat(1);
    assert_eq!(guest.peer.seen_by(PeerId::HOST), None);
    assert!(matches!(guest.peer.at_time::<Place>(now).err(), Some(UsageError::NotAllowed(_))));
}

#[test]
fn the_log_of_captures_is_as_long_as_the_ring() {
    let mut captures = Captures::default();
    for send in 1..=200u64 {
        // in every third send nothing changes, and it is captured twice
        captures.note(Tick(send), Tick(send * 3), true);
        if send % 3 == 0 {
            captures.note(Tick(send), Tick(send * 3 + 1), true);
        }
    }
    assert_eq!(captures.log.len(), limits::RING);
    assert_eq!(captures.oldest(), Some(Tick(137 * 3)));
    assert_eq!(captures.send_at(Tick(190 * 3 + 2)), Tick(190));
    assert_eq!(captures.send_at(Tick(5)), Tick(137), "as far back as there is anything");
    assert_eq!(captures.before(Tick(191 * 3)), Some(Tick(190 * 3)));
    assert_eq!(captures.before(Tick(193 * 3)), Some(Tick(192 * 3 + 1)), "the second capture of a send that changed nothing");
    assert_eq!(captures.before(Tick(191 * 3 + 1)), None);
}
