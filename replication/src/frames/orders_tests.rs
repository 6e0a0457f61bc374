use super::*;
use crate::policy::{Host, Timeline};
use crate::testing::Table;
use crate::{Config, News, Replicate, Schema};
use hecs::Entity;
use std::collections::BTreeMap;
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Move {
    unit: Entity,
    x: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Stop;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Other;

#[derive(Clone, Copy, Default)]
struct Unit;

fn schema() -> Schema {
    let schema = Schema::builder("orders").kind::<Unit>("unit", Host::default());
    schema.order::<Move>("move").order::<Stop>("stop").build().unwrap()
}

/// A host, and guests who are in, at 50 ms.
fn table(guests: usize) -> Table {
    let network = Network::new(1);
    let weather = Conditions { latency: Duration::from_millis(50), ..Conditions::default() };
    let mut table = Table::new(1, &schema(), Config::default(), network.host()).unwrap();
    for _ in 0..guests {
        table.join(Config::default(), network.join(weather, weather)).unwrap();
    }
    table.rest(60);
    assert!(table.seats.iter().flatten().all(|seat| seat.peer.is_in_session()));
    table
}

#[test]
fn without_lockstep_an_order_is_refused_at_the_call() {
    let world = World::new();
    let mut peer = Peer::alone(schema(), Config::default()).unwrap();
    let refused = peer.order(&world, &Stop);
    assert!(matches!(&refused, Err(UsageError::NotAllowed(why)) if why.contains("Lockstep")), "{refused:?}");
    assert_eq!(peer.pending_orders::<Stop>().unwrap().count(), 0);
    assert_eq!(peer.order(&world, &Other), Err(UsageError::NotInSchema(std::any::type_name::<Other>())));
    let lockstep = Schema::builder("orders").kind::<Unit>("unit", crate::policy::Lockstep::sealed()).order::<Stop>("stop");
    let mut peer = Peer::alone(lockstep.build().unwrap(), Config::default()).unwrap();
    assert!(peer.order(&world, &Stop).is_ok());
}

#[test]
fn alone_an_order_takes_the_next_step() {
    let mut world = World::new();
    let mut peer = Peer::alone(schema(), Config::default()).unwrap();
    assert_eq!(peer.give_order(&world, &Other), Err(UsageError::NotInSchema(std::any::type_name::<Other>())));
    let unit = peer.spawn(&mut world, Unit, ()).unwrap();
    let nobody = world.spawn(());
    let refused = peer.give_order(&world, &Move { unit: nobody, x: 1 });
    assert_eq!(refused, Err(UsageError::NamesNobody(std::any::type_name::<Move>())));
    let mut taken = Vec::new();
    for frame in 0..10 {
        let now = Duration::from_millis(17) * frame;
        peer.receive(now, &mut world).unwrap();
        if frame == 3 {
            let id = peer.give_order(&world, &Move { unit, x: 7 }).unwrap();
            assert_eq!(id, OrderId { peer: PeerId::HOST, number: 1 });
            assert_eq!(peer.pending_orders::<Move>().unwrap().collect::<Vec<_>>(), [(id, Move { unit, x: 7 })]);
            assert_eq!(peer.pending_orders::<Stop>().unwrap().count(), 0);
        }
        while let Some(step) = peer.next_step(&mut world) {
            taken.extend(step.orders::<Move>(&world).unwrap().map(|order| (frame, step.timeline(), order)));
            assert_eq!(step.seats().collect::<Vec<_>>(), [(PeerId::HOST, crate::Seat::Person)]);
        }
        peer.send(now, &mut world).unwrap();
    }
    assert_eq!(taken, [(3, Timeline::Session, (PeerId::HOST, Move { unit, x: 7 }))]);
    assert_eq!(peer.pending_orders::<Move>().unwrap().count(), 0);
}

#[test]
fn a_guests_order_names_what_the_host_knows_by_another_handle() {
    let mut table = table(1);
    let host = table.seat(0);
    host.world.spawn_batch((0..10).map(|_| ())).for_each(drop); // handles differ
    let there = host.peer.spawn(&mut host.world, Unit, ()).unwrap();
    let net = host.peer.name_of(&host.world, there).unwrap();
    table.rest(30);
    let guest = table.seat(1);
    let here = guest.find(net).unwrap();
    let id = guest.peer.give_order(&guest.world, &Move { unit: here, x: 9 }).unwrap();
    let mut taken = Vec::new();
    for _ in 0..30 {
        table.run(|seat, world, step| {
            if seat == 0 {
                taken.extend(step.orders::<Move>(world).unwrap());
            }
        });
    }
    assert_eq!(taken, [(id.peer, Move { unit: there, x: 9 })]);
    let guest = table.seat(1);
    let newest = guest.peer.frames.as_ref().unwrap().newest().unwrap();
    let frames = guest.peer.frames.as_ref().unwrap();
    let in_frames = (newest.0 - 60..=newest.0).filter_map(|tick| frames.sealed(Tick(tick)));
    assert_eq!(in_frames.flat_map(|frame| frame.orders()).count(), 1, "the guest has it, too");
}

#[test]
fn a_guest_learns_how_far_ahead_to_order() {
    let mut table = table(1);
    let mut late = BTreeMap::new();
    for n in 0..200u64 {
        let guest = table.seat(1);
        guest.peer.give_order(&guest.world, &Stop).unwrap();
        let Some(Side::Guest(taking)) = guest.peer.frames.as_ref().map(|frames| &frames.side) else { panic!("a guest") };
        late.insert(n + 1, taking.pending.back().unwrap().at);
        table.rest(4);
    }
    table.rest(60);
    let mut worst = Vec::new();
    let Some(Side::Host(sealer)) = table.seat(0).peer.frames.as_ref().map(|frames| &frames.side) else { panic!("a host") };
    let newest = sealer.newest().unwrap();
    for frame in (newest.0 - 100..=newest.0).filter_map(|tick| sealer.sealed(Tick(tick))) {
        worst.extend(frame.orders().map(|(_, order, _)| (frame.tick.since(late[&order.number]), order.waited)));
    }
    assert!(worst.len() > 5 && worst.iter().all(|(late, waited)| *late == 0 && *waited <= 3), "{worst:?}");
}

#[test]
fn more_orders_than_may_wait_are_refused_at_the_call() {
    let mut table = table(1);
    let guest = table.seat(1);
    for _ in 0..limits::ORDERS_PENDING {
        guest.peer.give_order(&guest.world, &Stop).unwrap();
    }
    assert_eq!(guest.peer.give_order(&guest.world, &Stop), Err(UsageError::Backlog));
    let mut taken = 0;
    for _ in 0..120 {
        table.run(|seat, world, step| taken += if seat == 0 { step.orders::<Stop>(world).unwrap().count() } else { 0 });
    }
    assert_eq!(taken, limits::ORDERS_PENDING, "none of them is lost");
    let guest = table.seat(1);
    assert!(guest.peer.give_order(&guest.world, &Stop).is_ok());
}

/// The guest sends what its program would not; what becomes of it.
fn forged(bytes: &[Vec<u8>]) -> Option<PeerError> {
    let mut table = table(2);
    let guest = table.seat(1);
    bytes.iter().for_each(|bytes| assert!(guest.peer.links[0].post(Lane::RELIABLE, bytes)));
    table.rest(30);
    assert_eq!(table.seat(0).peer.peers().iter().filter(|info| info.peer == PeerId(2)).count(), 1, "the other one stays");
    let news = table.seat(0).take_news();
    news.into_iter().find_map(|news| if let News::Misbehaved { error, .. } = news { Some(error) } else { None })
}

#[test]
fn orders_that_no_guest_sends_cost_it_the_session() {
    let order = |number: u64, entry: u8| {
        encode(&schema().0, &Pending { number, at: Tick(70), entry, words: vec![0; 3 * usize::from(entry == 0)] })
    };
    assert_eq!(forged(&[order(1, 1), order(2, 1)]), None);
    let follows = Some(PeerError::OutOfOrder("an order that does not follow the last"));
    assert_eq!(forged(&[order(1, 1), order(1, 1)]), follows, "a repeat");
    assert_eq!(forged(&[order(2, 1)]), follows, "a gap");
    assert_eq!(forged(&[order(1, 0)]), Some(PeerError::OutOfOrder("an order that nobody can read")), "no unit");
    let flood: Vec<_> = (1..=limits::ORDERS_PENDING as u64 + 50).map(|n| order(n, 1)).collect();
    assert_eq!(forged(&flood), Some(PeerError::OutOfOrder("more orders than may wait")));
    let whole = order(1, 1);
    assert!(matches!(forged(&[whole[..4].to_vec()]), Some(PeerError::Malformed { what: "order", .. })));
    assert!(matches!(forged(&[[&whole[..], &[0]].concat()]), Some(PeerError::Malformed { what: "order", .. })));
    let mut unknown = whole;
    unknown[5] = 60;
    assert_eq!(forged(&[unknown]), Some(PeerError::OutOfOrder("an order of an unknown number")));
}

#[test]
fn the_host_alone_sets_the_pace_and_all_learn_it_in_the_same_frames() {
    let mut table = table(1);
    let guest = table.seat(1);
    assert_eq!(guest.peer.pause_lockstep(), Err(UsageError::NotAllowed("change the pace of lockstep")));
    let host = table.seat(0);
    assert!(matches!(host.peer.set_lockstep_speed(9, 1), Err(UsageError::Config(_))));
    host.peer.set_lockstep_speed(1, 2).unwrap();
    table.rest(8);
    table.seat(0).peer.pause_lockstep().unwrap();
    table.rest(2);
    table.seat(0).peer.step_lockstep(1).unwrap();
    table.rest(3);
    table.seat(0).peer.resume_lockstep().unwrap();
    table.rest(30);
    let runs = |table: &mut Table, seat: usize| -> Vec<(u64, Option<u8>)> {
        let frames = table.seat(seat).peer.frames.as_ref().unwrap();
        (60..92).filter_map(|tick| frames.sealed(Tick(tick))).map(|frame| (frame.tick.0, frame.run)).collect()
    };
    let (host, guest) = (runs(&mut table, 0), runs(&mut table, 1));
    assert_eq!(host, guest);
    let paused = host.windows(5).any(|w| w.iter().map(|f| f.1).eq([Some(0), Some(0), Some(1), Some(0), Some(0)]));
    assert!(paused && host.iter().filter(|f| f.1 == Some(1)).count() < 20, "{host:?}");
    let mut alone = Peer::alone(Schema::builder("none").build().unwrap(), Config::default()).unwrap();
    assert!(matches!(alone.pause_lockstep(), Err(UsageError::NotInSession(_))));
}

#[test]
fn what_does_not_fit_a_frame_is_refused_by_the_schema() {
    #[derive(Clone, Default, Replicate)]
    struct Long {
        #[net(max = 500)]
        text: String,
    }
    let refused = |schema: crate::SchemaBuilder| schema.build().unwrap_err().to_string();
    let order = refused(Schema::builder("long").order::<Long>("long"));
    assert!(order.contains("order `long`: up to 4010 bits, at most 3780 fit a frame"), "{order}");
    let input = refused(Schema::builder("long").order::<Stop>("stop").input::<Long>("text"));
    assert!(input.contains("input `text`") && input.contains("1900"), "{input}");
    assert!(Schema::builder("long").input::<Long>("text").build().is_ok(), "without frames it does not matter");
    let twice = refused(Schema::builder("twice").order::<Stop>("stop").order::<Stop>("again"));
    assert!(twice.contains("order"), "{twice}");
    let crowd = Config { guests: 256, ..Config::default() };
    let host = Peer::host(schema(), Network::new(1).host(), crowd);
    assert!(matches!(host.err(), Some(UsageError::Config(words)) if words.contains("256")));
}
