//! A game of which each guest sees a part, and what of it each may see, worked out anew from the rules' own words: whoever hides
//! something in [`Relevance`] is compared with this.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "every test uses another part")]

use crate::common::{Banner, ChildOf, Link, Position, Rng};
use hecs::{Entity, World};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tidelock::testing::Table;
use tidelock::{Config, NetId, Networked, Peer, PeerId, Relevance, Room, Schema};
use tidelock_loopback::{Conditions, Network};

/// On the host: bit p: peer p may see the entity. Without it all may.
#[derive(Clone, Copy, Debug)]
pub struct Veil(pub u32);

/// On the host: bit p: peer p may see the entity's banner. Without it all may.
#[derive(Clone, Copy, Debug)]
pub struct Furled(pub u32);

fn has(mask: u32, peer: PeerId) -> bool {
    mask >> peer.0 & 1 != 0
}

/// Veils, furled banners, and places.
pub fn ruled(relevance: Relevance) -> Relevance {
    relevance
        .place::<Position>(|p| [p.x, p.y, 0.0])
        .rule(|sight| sight.get::<Veil>().is_none_or(|veil| has(veil.0, sight.peer())))
        .show_only::<Banner>(|sight| sight.get::<Furled>().is_none_or(|furled| has(furled.0, sight.peer())))
}

/// A table whose host decides who sees what, and `guests` guests in that weather, admitted.
pub fn table(
    seed: u64,
    schema: &Schema,
    relevance: Relevance,
    guests: usize,
    weather: Conditions,
    config: &Config,
) -> (Table, Network) {
    let network = Network::new(seed);
    let mut table = Table::new(seed, schema, config.clone(), network.host()).unwrap();
    table.seat(0).peer.set_relevance(relevance).unwrap();
    for _ in 0..guests {
        table.join(Config { local_news: false, ..config.clone() }, network.join(weather, weather)).unwrap();
    }
    admit(&mut table);
    (table, network)
}

/// Rests until all are in.
pub fn admit(table: &mut Table) {
    for _ in 0..600 {
        if table.seats.iter().flatten().all(|s| s.peer.is_in_session()) {
            return;
        }
        table.rest(1);
    }
    panic!("SEED={}: the guests did not get in", table.seed);
}

/// Weather in which nothing comes as it was sent.
pub fn foul(rng: &mut Rng, loss: f64) -> Conditions {
    Conditions {
        latency: Duration::from_millis(10 + rng.below(90)),
        jitter: Duration::from_millis(rng.below(25)),
        loss,
        burst: 1.0 + rng.below(3) as f64,
        duplicate: 0.05,
        reorder: 0.1,
        ..Conditions::default()
    }
}

/// The rooms that everything is in, counted, as the game told the host.
#[derive(Default)]
pub struct Rooms {
    guests: BTreeMap<(PeerId, u64), u32>,
    entities: BTreeMap<(NetId, u64), u32>,
}

impl Rooms {
    pub fn enter(&mut self, host: &mut Peer, guest: PeerId, room: u64) {
        host.enter_room(guest, Room(room)).unwrap();
        *self.guests.entry((guest, room)).or_default() += 1;
    }

    pub fn leave(&mut self, host: &mut Peer, guest: PeerId, room: u64) {
        let was_in = host.leave_room(guest, Room(room)).unwrap();
        assert_eq!(was_in, drop_one(&mut self.guests, (guest, room)));
    }

    pub fn put(&mut self, host: &mut Peer, world: &World, entity: Entity, room: u64) {
        let Some(net) = host.name_of(world, entity) else { return };
        host.put_in_room(world, entity, Room(room)).unwrap();
        *self.entities.entry((net, room)).or_default() += 1;
    }

    pub fn take(&mut self, host: &mut Peer, world: &World, entity: Entity, room: u64) {
        let Some(net) = host.name_of(world, entity) else { return };
        let was_in = host.take_from_room(world, entity, Room(room)).unwrap();
        assert_eq!(was_in, drop_one(&mut self.entities, (net, room)));
    }

    fn lets(&self, guest: PeerId, net: NetId) -> bool {
        let mut rooms = self.entities.range((net, 0)..=(net, u64::MAX)).map(|(key, _)| key.1).peekable();
        rooms.peek().is_none() || rooms.any(|room| self.guests.contains_key(&(guest, room)))
    }
}

fn drop_one<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) -> bool {
    let Some(count) = counts.get_mut(&key) else { return false };
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
    true
}

/// What one guest may see.
#[derive(Default)]
pub struct Permitted {
    pub entities: BTreeSet<NetId>,
    pub banners: BTreeSet<NetId>,
    /// They hang, at some remove, on a circle of parents, which has no first one: whether they are seen is not promised.
    pub unsure: BTreeSet<NetId>,
}

/// What a guest may see of the host's world: what it owns; and what is in one of its rooms or in none, not behind a veil, and
/// hangs on nothing that is not so.
pub fn permitted(rooms: &Rooms, host: &Peer, world: &World, guest: PeerId) -> Permitted {
    let mut parents: BTreeMap<Entity, Option<Entity>> = BTreeMap::new();
    let mut plain: BTreeMap<Entity, (NetId, bool, bool)> = BTreeMap::new();
    for (entity, networked, veil, child) in world.query::<(Entity, &Networked, Option<&Veil>, Option<&ChildOf>)>().iter() {
        let net = networked.id();
        if host.entity_of(net) != Some(entity) {
            continue;
        }
        let owns = (0..4).any(|slot| host.owner(world, entity, slot) == Some(guest));
        let open = rooms.lets(guest, net) && veil.is_none_or(|veil| has(veil.0, guest));
        plain.insert(entity, (net, owns, open));
        parents.insert(entity, child.map(|c| c.parent));
    }
    let mut out = Permitted::default();
    for (&entity, &(net, owns, _)) in &plain {
        let (mut at, mut sees) = (Some(entity), true);
        let mut line = BTreeSet::new();
        while let Some((_, owns, open)) = at.and_then(|at| plain.get(&at)) {
            sees &= owns | open;
            if !line.insert(at) {
                out.unsure.insert(net);
                break;
            }
            at = at.and_then(|at| parents[&at]);
        }
        if owns || sees {
            out.entities.insert(net);
            let furled = world.get::<&Furled>(entity).map(|f| f.0).ok();
            if owns || furled.is_none_or(|f| has(f, guest)) {
                out.banners.insert(net);
            }
        }
    }
    out
}

/// One of some, if there are any.
pub fn pick<T: Copy>(from: &[T], rng: &mut Rng) -> Option<T> {
    from.get(rng.below(from.len().max(1) as u64) as usize).copied()
}

/// Would hanging `child` on `parent` close a circle?
pub fn closes_circle(world: &World, child: Entity, parent: Entity) -> bool {
    let mut at = Some(parent);
    for _ in 0..1000 {
        let Some(entity) = at else { return false };
        if entity == child {
            return true;
        }
        at = world.get::<&ChildOf>(entity).ok().map(|c| c.parent);
    }
    true
}

/// A reference that is shown resolves, and a child's parent is there; those that a guest mends itself are its own.
pub fn assert_resolved(table: &mut Table) {
    let seed = table.seed;
    for seat in table.taken().into_iter().skip(1) {
        let place = table.seat(seat);
        for (entity, link, child) in place.world.query::<(Entity, Option<&Link>, Option<&ChildOf>)>().iter() {
            if place.peer.owner(&place.world, entity, 0) == Some(place.peer.local()) {
                continue;
            }
            for target in [link.map(|l| l.target), child.map(|c| c.parent)].into_iter().flatten() {
                assert!(place.world.contains(target), "SEED={seed} seat {seat}: {entity:?} names {target:?}, which is gone");
            }
        }
    }
}
