//! The game that the targets of whole sessions play: a schema with one of each sort of thing, and what its players do.

use crate::wire::{Cable, Plug};
use hecs::{Component, Entity, World};
use std::sync::OnceLock;
use std::time::Duration;
use tidelock::policy::{Absent, Host, Owner};
use tidelock::{Config, Interpolate, LargeMessage, NetId, Networked, Peer, PeerId, Replicate, Request, Schema, Simulated, To};

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
pub struct Position {
    /// Metres.
    #[net(step = 0.01, range = -500.0..=500.0)]
    pub x: f32,
    /// Metres.
    #[net(step = 0.01, range = -500.0..=500.0)]
    pub y: f32,
}

/// Kept by the host, whoever owns the body.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Health(pub u16);

/// A number with bounds, of a co-owner.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Banner {
    /// Any.
    #[net(range = 0..=1000)]
    pub colour: i32,
}

/// Names an entity.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Link {
    /// Which.
    pub target: Entity,
}

/// Names an entity that must be there first.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct ChildOf {
    /// Which.
    pub parent: Entity,
}

/// Takes no bits but those of its being there.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Tag;

/// Words.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub struct Title {
    /// Any.
    #[net(max = 24)]
    pub text: String,
}

/// The host's.
#[derive(Clone, Copy, Default)]
pub struct Crate;
/// A guest's.
#[derive(Clone, Copy, Default)]
pub struct Player;
/// A guest's, with a co-owner, and the host's once the guest has left.
#[derive(Clone, Copy, Default)]
pub struct Relic;

/// A reliable message that names an entity.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Order {
    /// Which.
    pub target: Entity,
    /// Any.
    pub number: u32,
}

/// An unreliable message.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub struct Shout {
    /// Any.
    #[net(max = 32)]
    pub text: String,
}

/// A message without order.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub struct Mutter {
    /// Any.
    pub number: u16,
}

/// A sequenced message.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub struct Glance {
    /// Any.
    pub number: u16,
}

/// An event that names an entity, perhaps.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub struct Bang {
    /// Which, if any.
    pub target: Option<Entity>,
}

/// A guest's event for all.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub struct Cheer {
    /// Any.
    #[net(max = 32)]
    pub text: String,
}

/// A request that is answered with what it says.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub struct Ask {
    /// Any.
    pub number: u16,
}

impl Request for Ask {
    type Reply = Mutter;
}

/// Something large.
#[derive(Clone, Debug, PartialEq)]
pub struct Scroll(pub Vec<u8>);

impl LargeMessage for Scroll {
    fn to_bytes(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.iter().all(|byte| *byte == 7).then(|| Self(bytes.to_vec()))
    }
}

/// The schema, made once.
#[must_use]
pub fn schema() -> Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(make_schema).clone()
}

fn make_schema() -> Schema {
    Schema::builder("fuzz")
        .component::<Position>("position", |c| {
            c.interpolate().notify_changes().validate(|_, p, _| if p.y == 333.0 { Err("333 is forbidden") } else { Ok(()) })
        })
        .component::<Health>("health", |c| c.authority(Host::default()).notify_changes())
        .component::<Banner>("banner", |c| c)
        .component::<Link>("link", |c| c)
        .component::<ChildOf>("child_of", |c| c.parent())
        .component::<Tag>("tag", |c| c)
        .component::<Title>("title", |c| c)
        .kind::<Crate>("crate", Host::default())
        .kind::<Player>("player", Owner::default())
        .kind_with::<Relic>("relic", Owner::default(), |k| {
            k.authority::<Banner>(Owner::co(1)).when_owner_leaves(Absent::HostTakesOver)
        })
        .message::<Order>("order")
        .unreliable_message::<Shout>("shout")
        .unordered_message::<Mutter>("mutter")
        .sequenced_message::<Glance>("glance")
        .event::<Bang>("bang")
        .shared_event::<Cheer>("cheer")
        .request::<Ask>("ask")
        .large_message::<Scroll>("scroll")
        .list::<Vec<u8>>("feed", |l| l.keep_last(20))
        .map::<u8, u16>("scores", |m| m.max(8))
        .build()
        .expect("a schema without mistakes")
}

/// Sixty frames a second.
pub const FRAME: Duration = Duration::from_nanos(1_000_000_000 / 60 + 1);

/// A peer, its world, and its program.
pub struct Program {
    /// The peer.
    pub peer: Peer,
    /// Its world.
    pub world: World,
}

impl Program {
    /// A host on these cables.
    #[must_use]
    pub fn host(cables: &[Cable], config: Config) -> Self {
        let peer = Peer::host(schema(), Plug::host(cables), config).expect("a good configuration");
        Self { peer, world: World::new() }
    }

    /// A guest on that cable.
    #[must_use]
    pub fn guest(cable: &Cable, config: Config) -> Self {
        let peer = Peer::join(schema(), Plug::guest(cable), config).expect("a good configuration");
        Self { peer, world: World::new() }
    }

    /// Network in.
    pub fn receive(&mut self, now: Duration) {
        self.peer.receive(now, &mut self.world).expect("time goes on");
    }

    /// The steps that are due, in which what this peer simulates moves.
    pub fn step(&mut self) {
        while let Some(step) = self.peer.next_step(&mut self.world) {
            for position in step.query::<&mut Position>(&self.world).iter() {
                position.x = if position.x >= 400.0 { 0.0 } else { position.x + 0.25 };
            }
        }
    }

    /// The steps that are due, in which nothing happens.
    pub fn rest(&mut self) {
        while self.peer.next_step(&mut self.world).is_some() {}
    }

    /// Network out, and everything that there is to fetch.
    pub fn send(&mut self, now: Duration) {
        self.peer.send(now, &mut self.world).expect("time goes on");
        while self.peer.poll_news().is_some() {}
        let _ = self.peer.messages::<Order>().expect("it is in the schema");
        let _ = self.peer.messages::<Shout>().expect("it is in the schema");
        let _ = self.peer.messages::<Mutter>().expect("it is in the schema");
        let _ = self.peer.messages::<Glance>().expect("it is in the schema");
        let _ = self.peer.events::<Bang>().expect("it is in the schema");
        let _ = self.peer.events::<Cheer>().expect("it is in the schema");
        let _ = self.peer.large_messages::<Scroll>().expect("it is in the schema");
        for (_, id, ask) in self.peer.requests::<Ask>().expect("it is in the schema") {
            // its asker may have left
            let _ = self.peer.reply(&self.world, id, &Mutter { number: ask.number });
        }
        let _ = self.peer.replies::<Ask>().expect("it is in the schema");
    }

    /// The same, lent to the game.
    pub fn actor(&mut self) -> Actor<'_> {
        Actor { peer: &mut self.peer, world: &mut self.world }
    }

    /// See [`Actor::act`].
    pub fn act(&mut self, what: u8, which: u8, how: u8) {
        self.actor().act(what, which, how);
    }

    /// See [`Actor::mend`].
    pub fn mend(&mut self) {
        self.actor().mend();
    }
}

/// What a game does with a peer and a world.
pub struct Actor<'a> {
    /// The peer.
    pub peer: &'a mut Peer,
    /// Its world.
    pub world: &'a mut World,
}

impl Actor<'_> {
    /// One of the networked entities, if there are any.
    #[must_use]
    pub fn pick(&self, which: u8) -> Option<Entity> {
        let marked = self.world.query::<Entity>().with::<&Networked>().iter().collect::<Vec<_>>();
        let named = |entity| self.peer.name_of(self.world, entity).map(|net| (net, entity));
        let mut all: Vec<(NetId, Entity)> = marked.into_iter().filter_map(named).collect();
        all.sort_unstable();
        (!all.is_empty()).then(|| all[usize::from(which) % all.len()].1)
    }

    /// Does something that a game may do: it writes only what it has authority over. What is not allowed for another reason is
    /// refused with a typed error, and that is all.
    pub fn act(&mut self, what: u8, which: u8, how: u8) {
        let at = Position { x: f32::from(how), y: f32::from(which) };
        let parent = self.pick(which);
        let Self { peer, world } = &mut *self;
        match (what % 16, parent) {
            (0, _) if peer.is_host() => drop(peer.spawn(world, Crate, (at, Health(how.into())))),
            (0, _) => drop(peer.spawn(world, Player, (at,))),
            (1, _) => drop(peer.spawn(world, Relic, (at, Banner { colour: how.into() }))),
            (2, Some(parent)) if peer.is_host() => drop(peer.spawn(world, Crate, (at, ChildOf { parent }))),
            (2, Some(parent)) => drop(peer.spawn(world, Player, (at, ChildOf { parent }))),
            (what, Some(entity)) => self.act_on(entity, what, which, how),
            (_, None) => {}
        }
    }

    fn act_on(&mut self, entity: Entity, what: u8, which: u8, how: u8) {
        let target = self.pick(how).unwrap_or(entity);
        match what {
            3 => drop(self.peer.despawn(self.world, entity)),
            // what is its own by the kind's policy; a copy of another's would be forsaken, and stay away
            4 if self.world.satisfies::<&Simulated>(entity) => drop(self.world.despawn(entity)),
            5 => self.put(entity, Tag),
            6 => self.take::<Tag>(entity),
            7 => self.put(entity, Link { target }),
            8 => self.take::<Link>(entity),
            9 => self.put(entity, Banner { colour: i32::from(how) * 5 }), // beyond 1000 it cannot travel
            10 => self.put(entity, Title { text: "x".repeat(usize::from(how) % 32) }), // nor beyond 24
            11 => drop(self.peer.teleport(self.world, entity)),
            12 => drop(self.peer.grant(self.world, entity, usize::from(which) % 2, PeerId(u16::from(how) % 4))),
            13 => {
                let to = if self.peer.is_host() { To::All } else { To::Host };
                let _ = self.peer.send_message(self.world, to, &Order { target, number: how.into() });
                let _ = self.peer.send_message(self.world, to, &Shout { text: "hoy".into() });
                self.say(to, target, how);
            }
            14 if how == 0 => self.put(entity, Position { x: f32::NAN, y: 1e9 }),
            14 => self.put(entity, Position { x: 1.0, y: 333.0 }),
            _ => self.put(entity, Position { x: f32::from(which), y: f32::from(how) }),
        }
    }

    /// One more message of some sort. What cannot be sent now is not.
    fn say(&mut self, to: To<'_>, target: Entity, how: u8) {
        let (number, other) = (how.into(), if self.peer.is_host() { PeerId(1) } else { PeerId::HOST });
        match how % 9 {
            0 => drop(self.peer.send_message(self.world, to, &Mutter { number })),
            1 => drop(self.peer.send_message(self.world, to, &Glance { number })),
            2 => drop(self.peer.send_message(self.world, to, &Bang { target: Some(target) })),
            3 => drop(self.peer.send_message(self.world, To::All, &Cheer { text: "hooray".into() })),
            4 => {
                let tick = self.peer.event_tick().plus(number.into());
                drop(self.peer.send_event_at(self.world, to, tick, &Bang { target: None }));
            }
            5 => drop(self.peer.request(self.world, other, &Ask { number })),
            6 => self.write_lists(target, how),
            7 => drop(self.peer.map_mut::<u8, u16>().map(|mut map| {
                let _ = map.update(&(how % 5), |score| *score += 1);
                map.insert(how % 11, number)
            })),
            _ => drop(self.peer.send_large(self.world, to, &Scroll(vec![7; usize::from(how) * 40]))),
        }
    }

    /// The host writes something into its feed, and into that of an entity.
    fn write_lists(&mut self, target: Entity, how: u8) {
        if let Ok(mut list) = self.peer.list_mut::<Vec<u8>>() {
            let _ = list.push(vec![how; usize::from(how)]);
            let _ = list.insert(list.len() / 2, vec![how]);
            list.remove(usize::from(how % 30));
        }
        if let Ok(mut list) = self.peer.list_mut_for::<Vec<u8>>(self.world, target) {
            // now and then more than fits a message
            (0..=how / 16).for_each(|n| drop(list.push(vec![n; 500])));
        }
    }

    fn put<C: Component>(&mut self, entity: Entity, component: C) {
        if self.peer.has_authority::<C>(self.world, entity) {
            // the entity was looked up in this world
            let _ = self.world.insert_one(entity, component);
        }
    }

    fn take<C: Component>(&mut self, entity: Entity) {
        if self.peer.has_authority::<C>(self.world, entity) {
            // it may not have one
            let _ = self.world.remove_one::<C>(entity);
        }
    }

    /// Takes back what cannot travel, of which the others rightly hold an older value.
    pub fn mend(&mut self) {
        let all: Vec<Entity> = self.world.query::<Entity>().with::<&Networked>().iter().collect();
        for entity in all {
            if self.world.get::<&Position>(entity).is_ok_and(|p| !(p.x.abs() <= 500.0 && p.y.abs() <= 500.0)) {
                self.put(entity, Position { x: 0.0, y: 0.0 });
            }
            if self.world.get::<&Banner>(entity).is_ok_and(|b| b.colour > 1000) {
                self.put(entity, Banner { colour: 0 });
            }
            if self.world.get::<&Title>(entity).is_ok_and(|t| t.text.len() > 24) {
                self.put(entity, Title { text: String::new() });
            }
        }
    }
}
