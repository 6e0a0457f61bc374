//! Ownership on request: each rule of a kind, one outcome for each request whatever happens meanwhile, giving up and taking back, and
//! case 6 of the faults for what changes hands.

mod audience_game;
mod common;

use audience_game::{Veil, admit, ruled, table};
use common::{Banner, Position, Rng, assert_clean, assert_settles, config, seeds, weather};
use hecs::Entity;
use std::collections::BTreeMap;
use tidelock::policy::{Absent, Owner};
use tidelock::testing::{Seat, Table};
use tidelock::{Denial, KindOptions, NetId, News, PeerId, Relevance, Requests, Schema, UsageError};

#[derive(Clone, Copy, Default)]
struct Closed;
#[derive(Clone, Copy, Default)]
struct Hat;
#[derive(Clone, Copy, Default)]
struct Ball;
#[derive(Clone, Copy, Default)]
struct Car;

fn schema() -> Schema {
    let kind = |requests| {
        move |k: KindOptions| k.authority::<Banner>(Owner::co(1)).when_owner_leaves(Absent::HostTakesOver).requests(requests)
    };
    Schema::builder("ownership")
        .component::<Position>("position", |c| c.interpolate())
        .component::<Banner>("banner", |c| c)
        .kind_with::<Closed>("closed", Owner::default(), kind(Requests::Refuse))
        .kind_with::<Hat>("hat", Owner::default(), kind(Requests::WhenFree))
        .kind_with::<Ball>("ball", Owner::default(), kind(Requests::Always))
        .kind_with::<Car>("car", Owner::default(), kind(Requests::Ask))
        .build()
        .unwrap()
}

fn at(x: f32) -> (Position, Banner) {
    (Position { x, y: 0.0 }, Banner { colour: 1 })
}

struct Game {
    table: Table,
    _network: tidelock_loopback::Network,
}

impl Game {
    fn new(seed: u64, guests: usize, latency_ms: u64, loss: f64) -> Self {
        let conditions = weather(latency_ms, loss);
        let (mut table, network) = table(seed, &schema(), ruled(Relevance::everything()), 0, conditions, &config());
        for guest in 1..=guests {
            // one after the other, so that each has the number of its seat
            table.join(config(), network.join(conditions, conditions)).unwrap();
            admit(&mut table);
            assert_eq!(table.seat(guest).peer.local(), PeerId(guest as u16));
        }
        Self { table, _network: network }
    }

    /// An entity of the host's.
    fn spawn<K: hecs::Component>(&mut self, kind: K) -> NetId {
        let Seat { peer, world, .. } = self.table.seat(0);
        let entity = peer.spawn(world, kind, at(1.0)).unwrap();
        peer.name_of(world, entity).unwrap()
    }

    /// Long enough for messages to be repeated several times.
    fn calm(&mut self) {
        self.table.rest(300);
        for _ in 0..600 {
            if self.owners_agree() {
                return assert_settles(&mut self.table, 20);
            }
            self.table.rest(1);
        }
        panic!("SEED={}: peers do not agree on who owns what", self.table.seed);
    }

    fn owners_agree(&mut self) -> bool {
        let mut owners: Vec<BTreeMap<NetId, [Option<PeerId>; 2]>> = Vec::new();
        for seat in self.table.taken() {
            let s = self.table.seat(seat);
            let named =
                s.world.query::<(Entity, &tidelock::Networked)>().iter().map(|(e, n)| (n.id(), e)).collect::<BTreeMap<_, _>>();
            owners.push(named.into_iter().map(|(n, e)| (n, [0, 1].map(|slot| s.peer.owner(&s.world, e, slot)))).collect());
        }
        let host = owners.remove(0);
        owners.iter().all(|guest| guest.iter().all(|(net, owners)| host.get(net).is_none_or(|host| host == owners)))
    }

    fn ask(&mut self, seat: usize, net: NetId, slot: usize) -> Result<(), UsageError> {
        let s = self.table.seat(seat);
        let entity = s.find(net).expect("it sees it");
        s.peer.request_ownership(&s.world, entity, slot)
    }

    fn give_up(&mut self, seat: usize, net: NetId, to: Option<PeerId>) {
        let s = self.table.seat(seat);
        let entity = s.find(net).expect("it sees it");
        s.peer.release_ownership(&s.world, entity, 0, to).unwrap();
    }

    fn grant(&mut self, net: NetId, slot: usize, to: PeerId) {
        let Seat { peer, world, .. } = self.table.seat(0);
        let entity = peer.entity_of(net).unwrap();
        peer.grant(world, entity, slot, to).unwrap();
    }

    fn owner(&mut self, seat: usize, net: NetId, slot: usize) -> PeerId {
        let seed = self.table.seed;
        let s = self.table.seat(seat);
        let entity = s.find(net).unwrap_or_else(|| panic!("SEED={seed}: {net} is not at seat {seat}"));
        s.peer.owner(&s.world, entity, slot).unwrap()
    }

    /// What the news since the last call say of ownership.
    fn heard(&mut self, seat: usize) -> Vec<News> {
        let is = |n: &News| {
            use News::{Owned, OwnershipOffered, OwnershipRefused, OwnershipRequested};
            matches!(n, Owned { .. } | OwnershipOffered { .. } | OwnershipRefused { .. } | OwnershipRequested { .. })
        };
        self.table.seat(seat).take_news().into_iter().filter(is).collect()
    }

    fn refusal(&mut self, seat: usize) -> Denial {
        let heard = self.heard(seat);
        let [News::OwnershipRefused { why, .. }] = heard[..] else { panic!("{heard:?}") };
        why
    }
}

const ONE: PeerId = PeerId(1);
const TWO: PeerId = PeerId(2);

#[test]
fn the_kinds_rule_answers() {
    for seed in seeds(3) {
        let mut game = Game::new(seed, 2, 50, 0.1);
        let (closed, hat, ball) = (game.spawn(Closed), game.spawn(Hat), game.spawn(Ball));
        game.calm();
        for seat in 0..3 {
            game.heard(seat);
        }
        game.ask(1, closed, 0).unwrap();
        game.calm();
        assert_eq!(game.refusal(1), Denial::Closed, "SEED={seed}");
        game.ask(1, hat, 0).unwrap();
        game.ask(1, hat, 0).unwrap(); // twice is once
        game.calm();
        let heard = game.heard(1);
        assert!(matches!(heard[..], [News::Owned { slot: 0, owner: ONE, .. }]), "SEED={seed}: {heard:?}");
        assert_eq!(game.ask(1, hat, 0), Err(UsageError::AlreadyOwner), "SEED={seed}");
        game.ask(2, hat, 0).unwrap();
        game.calm();
        let heard = game.heard(2);
        assert!(
            matches!(heard[..], [News::Owned { owner: ONE, .. }, News::OwnershipRefused { why: Denial::Taken, .. }]),
            "SEED={seed}: {heard:?}"
        );
        game.ask(1, ball, 0).unwrap();
        game.calm();
        game.ask(2, ball, 0).unwrap();
        game.ask(2, ball, 1).unwrap();
        game.calm();
        assert_eq!((game.owner(0, ball, 0), game.owner(0, ball, 1)), (TWO, TWO), "SEED={seed}");
        game.give_up(2, ball, None);
        game.give_up(1, hat, Some(TWO));
        game.calm();
        assert_eq!((game.owner(2, ball, 0), game.owner(2, ball, 1)), (PeerId::HOST, TWO), "SEED={seed}");
        assert_eq!(game.owner(1, hat, 0), TWO, "SEED={seed}");
        assert_eq!(game.ask(1, ball, 2), Err(UsageError::NoSuchSlot(2)), "SEED={seed}");
        assert_clean(&mut game.table);
    }
}

#[test]
fn the_game_answers() {
    for seed in seeds(3) {
        let mut game = Game::new(seed, 2, 50, 0.1);
        let cars: Vec<NetId> = (0..4).map(|_| game.spawn(Car)).collect();
        game.calm();
        for seat in 0..3 {
            game.heard(seat);
        }
        cars.iter().for_each(|car| game.ask(1, *car, 0).unwrap());
        game.ask(2, cars[0], 0).unwrap();
        game.table.rest(60);
        let asked = game.heard(0);
        assert_eq!(asked.len(), 5, "SEED={seed}: {asked:?}");
        assert!(asked.iter().all(|n| matches!(n, News::OwnershipRequested { slot: 0, .. })), "SEED={seed}: {asked:?}");
        assert_eq!(game.heard(1), [], "SEED={seed}: nothing is decided");
        game.grant(cars[0], 0, ONE);
        let Seat { peer, world, .. } = game.table.seat(0);
        let refused = peer.entity_of(cars[1]).unwrap();
        peer.refuse_ownership(world, refused, 0, ONE).unwrap();
        assert_eq!(peer.refuse_ownership(world, refused, 0, ONE), Err(UsageError::NoSuchRequest));
        let ended = peer.entity_of(cars[2]).unwrap();
        peer.despawn(world, ended).unwrap();
        game.calm();
        let mut outcomes = game.heard(1);
        outcomes.sort_by_key(|n| matches!(n, News::Owned { .. }));
        let why = |n: &News| if let News::OwnershipRefused { why, .. } = n { Some(*why) } else { None };
        let mut whys: Vec<_> = outcomes.iter().filter_map(why).collect();
        whys.sort_by_key(|w| *w as u8);
        assert_eq!(whys, [Denial::Unknown, Denial::Declined], "SEED={seed}: {outcomes:?}");
        assert!(matches!(outcomes[2..], [News::Owned { owner: ONE, .. }]), "SEED={seed}: {outcomes:?}");
        // the other's request is still open; nobody ever answers it, nor the last one of the first guest
        game.table.rest(60 * 11);
        assert_eq!(game.refusal(1), Denial::Unanswered, "SEED={seed}");
        let heard = game.heard(2);
        assert!(
            matches!(heard[..], [News::Owned { owner: ONE, .. }, News::OwnershipRefused { why: Denial::Unanswered, .. }]),
            "SEED={seed}: {heard:?}"
        );
        game.give_up(1, cars[0], Some(TWO));
        game.table.rest(60);
        let heard = game.heard(0);
        let offered = heard.iter().any(|n| matches!(n, News::OwnershipOffered { slot: 0, by: ONE, to: TWO, .. }));
        assert!(offered && game.owner(0, cars[0], 0) == PeerId::HOST, "SEED={seed}: {heard:?}");
        assert_clean(&mut game.table);
    }
}

/// What a guest spawned and gives up before the host knows of it.
#[test]
fn what_is_given_up_at_birth() {
    for seed in seeds(5) {
        let mut game = Game::new(seed, 1, 80, 0.3);
        let s = game.table.seat(1);
        let entity = s.peer.spawn(&mut s.world, Ball, at(7.0)).unwrap();
        let net = s.peer.name_of(&s.world, entity).unwrap();
        s.peer.release_ownership(&s.world, entity, 0, None).unwrap();
        game.table.rest(240);
        game.calm();
        assert_eq!((game.owner(0, net, 0), game.owner(1, net, 0)), (PeerId::HOST, PeerId::HOST), "SEED={seed}");
        let host = game.table.seat(0);
        assert_eq!(host.world.get::<&Position>(host.find(net).unwrap()).unwrap().x, 7.0, "SEED={seed}");
        assert_clean(&mut game.table);
    }
}

/// The host takes back what its owner is writing at that moment.
#[test]
fn taken_back_with_writes_on_their_way() {
    for seed in seeds(5) {
        let mut game = Game::new(seed, 2, 80, 0.1);
        let ball = game.spawn(Ball);
        game.calm();
        game.ask(1, ball, 0).unwrap();
        game.calm();
        let mut taken = false;
        for frame in 0..240 {
            if frame == 90 {
                game.grant(ball, 0, PeerId::HOST);
                let host = game.table.seat(0);
                host.world.get::<&mut Position>(host.find(ball).unwrap()).unwrap().x = -50.0;
                taken = true;
            }
            game.table.run(|seat, world, step| {
                for p in step.query::<&mut Position>(world).iter() {
                    assert!(!taken || seat != 0 || p.x <= -50.0, "SEED={seed}: a late write got in: {}", p.x);
                    p.x += if seat == 1 { 0.1 } else { 0.0 };
                }
            });
        }
        game.calm();
        let host = game.table.seat(0);
        let counters = host.peer.stats(ONE).unwrap().link;
        assert!(counters.refused > 0, "SEED={seed}: writes were on their way");
        assert!(!host.news.iter().any(|n| matches!(n, News::Refused { .. })), "SEED={seed}: a race is nobody's fault");
        assert_eq!(host.world.get::<&Position>(host.find(ball).unwrap()).unwrap().x, -50.0, "SEED={seed}");
        assert_clean(&mut game.table);
    }
}

/// Lifetime goes with the owner, whoever has a part of it beside.
#[test]
fn a_co_owner_does_not_end_an_entity() {
    for seed in seeds(3) {
        let mut game = Game::new(seed, 2, 40, 0.1);
        let (hat, other) = (game.spawn(Hat), game.spawn(Hat));
        game.calm();
        for net in [hat, other] {
            game.ask(1, net, 0).unwrap();
            game.ask(2, net, 1).unwrap();
        }
        game.calm();
        let s = game.table.seat(2);
        let entity = s.find(hat).unwrap();
        assert!(s.peer.has_authority::<Banner>(&s.world, entity) && !s.peer.has_authority::<Position>(&s.world, entity));
        let refused = s.peer.despawn(&mut s.world, entity);
        assert_eq!(refused, Err(UsageError::NotAllowed("despawn it")), "SEED={seed}");
        // behind the library's back it goes from this world alone
        let behind = s.find(other).unwrap();
        s.world.despawn(behind).unwrap();
        game.table.rest(120);
        assert!(game.table.seat(0).find(other).is_some() && game.table.seat(1).find(other).is_some(), "SEED={seed}");
        // who is granted the owner's slot may, and who had it may not any more
        game.grant(hat, 0, TWO);
        game.table.rest(60);
        let s = game.table.seat(1);
        let entity = s.find(hat).unwrap();
        assert_eq!(s.peer.despawn(&mut s.world, entity), Err(UsageError::NotAllowed("despawn it")), "SEED={seed}");
        let s = game.table.seat(2);
        let entity = s.find(hat).unwrap();
        s.peer.despawn(&mut s.world, entity).unwrap();
        game.table.rest(120);
        assert!((0..3).all(|seat| game.table.seat(seat).find(hat).is_none()), "SEED={seed}: its owner has ended it");
    }
}

/// Case 6, for what changes hands: guest 1 asks for it and gives it up while it is hidden from it and shown, through loss.
fn flap(seed: u64, frames: u64, loss: f64, ends_visible: bool, ends_owned: bool) {
    let mut rng = Rng::new(seed);
    let mut game = Game::new(seed, 2, 60, loss);
    let net = game.spawn(Ball);
    game.calm();
    let veil = |game: &mut Game, visible: bool| {
        let Seat { peer, world, .. } = game.table.seat(0);
        let entity = peer.entity_of(net).unwrap();
        world.insert_one(entity, Veil(if visible { !0 } else { !2 })).unwrap();
    };
    for _ in 0..frames {
        if rng.chance(50) {
            veil(&mut game, rng.chance(50));
        }
        let s = game.table.seat(1);
        if let Some(entity) = s.find(net).filter(|_| rng.chance(20)) {
            let _ = if s.peer.is_owner(&s.world, entity) {
                s.peer.release_ownership(&s.world, entity, 0, None)
            } else {
                s.peer.request_ownership(&s.world, entity, 0)
            };
        }
        game.table.rest(1);
    }
    veil(&mut game, true);
    game.table.rest(60);
    game.calm();
    for _ in 0..5 {
        // a release may still be on its way
        let _ = game.ask(1, net, 0);
        game.calm();
    }
    veil(&mut game, ends_visible);
    game.calm();
    if !ends_owned {
        game.give_up(1, net, None);
        game.calm();
    }
    let owner = if ends_owned { ONE } else { PeerId::HOST };
    assert_eq!((game.owner(0, net, 0), game.owner(2, net, 0)), (owner, owner), "SEED={seed}");
    let writer = usize::from(ends_owned);
    let s = game.table.seat(writer);
    let entity = s.find(net).unwrap();
    assert!(s.peer.has_authority::<Position>(&s.world, entity), "SEED={seed}");
    s.world.get::<&mut Position>(entity).unwrap().x = 77.0;
    game.table.rest(90);
    game.calm();
    let sees = ends_owned || ends_visible;
    for seat in 0..3 {
        let copies: Vec<f32> = game.table.seat(seat).world.query::<&Position>().iter().map(|p| p.x).collect();
        assert_eq!(copies, if seat == 1 && !sees { vec![] } else { vec![77.0] }, "SEED={seed} seat {seat}");
    }
    let held = (0..3).filter(|seat| {
        let s = game.table.seat(*seat);
        s.find(net).is_some_and(|e| s.peer.has_authority::<Position>(&s.world, e))
    });
    assert_eq!(held.collect::<Vec<_>>(), [writer], "SEED={seed}: one has authority");
    assert_clean(&mut game.table);
}

#[test]
fn what_changes_hands_comes_and_goes() {
    for seed in seeds(4) {
        for (visible, owned) in [(true, true), (true, false), (false, true), (false, false)] {
            flap(seed, 500, 0.1, visible, owned);
            flap(seed, 20, 0.3, visible, owned);
        }
    }
}

/// Requests without an outcome, and of each what its entity's local handle was.
type Open = BTreeMap<(NetId, usize), Entity>;

fn all(seat: &mut Seat) -> Vec<Entity> {
    seat.world.query::<(Entity, &tidelock::Networked)>().iter().map(|(e, _)| e).collect()
}

/// The host spawns, takes back, hides, ends.
fn stir(host: &mut Seat, rng: &mut Rng) {
    let all = all(host);
    let Seat { peer, world, .. } = host;
    if all.len() < 12 && rng.chance(20) {
        let _ = match rng.below(3) {
            0 => peer.spawn(world, Hat, at(1.0)),
            1 => peer.spawn(world, Ball, at(2.0)),
            _ => peer.spawn(world, Car, at(3.0)),
        };
    }
    if all.is_empty() {
        return;
    }
    let entity = all[rng.below(all.len() as u64) as usize];
    match rng.below(40) {
        0..3 => peer.grant(world, entity, rng.below(2) as usize, PeerId::HOST).unwrap(),
        3..6 => world.insert_one(entity, Veil(rng.below(16) as u32 | 1)).unwrap(),
        6 if rng.chance(50) => peer.despawn(world, entity).unwrap(),
        _ => {}
    }
}

/// A guest asks for what it does not own, and gives up what it does.
fn reach_out(guest: &mut Seat, rng: &mut Rng, open: &mut Open) {
    let seen = all(guest);
    if seen.is_empty() || !rng.chance(20) {
        return;
    }
    let Seat { peer, world, .. } = guest;
    let (entity, slot) = (seen[rng.below(seen.len() as u64) as usize], rng.below(2) as usize);
    let net = peer.name_of(world, entity).unwrap();
    if peer.owner(world, entity, slot) == Some(peer.local()) {
        let _ = peer.release_ownership(world, entity, slot, None);
    } else if peer.request_ownership(world, entity, slot).is_ok() {
        open.insert((net, slot), entity);
    }
}

/// Closes the requests that a guest hears of; `outcomes`: granted, refused.
fn listen(game: &mut Game, guest: usize, open: &mut Open, outcomes: &mut [usize; 2]) {
    let seed = game.table.seed;
    for news in game.heard(guest) {
        let s = game.table.seat(guest);
        match news {
            News::Owned { entity, slot, owner } if owner == s.peer.local() => {
                outcomes[0] += 1;
                let named = || open.iter().find(|((_, of), e)| *of == slot && **e == entity).map(|((net, _), _)| *net);
                let net = s.peer.name_of(&s.world, entity).or_else(named);
                let asked = net.and_then(|net| open.remove(&(net, slot)));
                assert!(asked.is_some(), "SEED={seed} guest {guest}: it had not asked");
            }
            News::OwnershipRefused { net, slot, .. } => {
                outcomes[1] += 1;
                assert!(open.remove(&(net, slot)).is_some(), "SEED={seed} guest {guest}: refused without a request");
            }
            _ => {}
        }
    }
}

/// Guests ask for everything all the time, twice, while it ends, is hidden, is taken back and is taken by the others: each request
/// has one outcome.
fn storm(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut game = Game::new(seed, 3, 10 + rng.below(100), [0.0, 0.1, 0.3][rng.below(3) as usize]);
    let mut open: Vec<Open> = vec![BTreeMap::new(); 4];
    let mut outcomes = [0usize; 2];
    for frame in 0..1600 {
        stir(game.table.seat(0), &mut rng);
        // what was lost at once is given up after ten seconds
        for guest in (1..4).filter(|_| frame <= 800) {
            reach_out(game.table.seat(guest), &mut rng, &mut open[guest]);
        }
        game.table.rest(1);
        for asked in game.heard(0) {
            let News::OwnershipRequested { entity, slot, by } = asked else { continue };
            let Seat { peer, world, .. } = game.table.seat(0);
            let _ =
                if rng.chance(50) { peer.grant(world, entity, slot, by) } else { peer.refuse_ownership(world, entity, slot, by) };
        }
        for (guest, open) in open.iter_mut().enumerate().skip(1) {
            listen(&mut game, guest, open, &mut outcomes);
        }
    }
    for (guest, open) in open.iter().enumerate() {
        assert!(open.is_empty(), "SEED={seed} guest {guest}: {} requests without an outcome: {open:?}", open.len());
    }
    assert!(outcomes.iter().all(|n| *n > 20), "SEED={seed}: {outcomes:?}");
    game.calm();
    assert_clean(&mut game.table);
}

#[test]
fn each_request_has_one_outcome() {
    for seed in seeds(10) {
        storm(seed);
    }
}
