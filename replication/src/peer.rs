//! [`Peer`]: one participant, host or guest or alone, and what a game asks of it.

use crate::audience::Audience;
use crate::authority::Names;
use crate::capture::Capture;
use crate::computed::Computed;
use crate::config::Config;
use crate::definitions::Definitions;
use crate::entities::{Entities, NO_ROW};
use crate::error::UsageError;
use crate::forks::Forks;
use crate::frames::Frames;
use crate::growing::Growing;
use crate::input::Inputs;
use crate::lag::Captures;
use crate::link::{Backlog, Link, LinkCounters};
use crate::messages::{Asking, LargeBox, Mailbox};
use crate::netid::NetId;
use crate::news::{News, Newsstand};
use crate::outgoing::{BitCache, Draft, Scratch};
use crate::peer_id::PeerId;
use crate::pick::PickScratch;
use crate::policy::OWNER_SLOTS;
use crate::predict::{Predictions, Slides};
use crate::present::Pace;
use crate::preview::Preview;
use crate::publisher::Publisher;
use crate::receipts::Receipts;
use crate::requests::Claims;
use crate::rewind::Shelf;
use crate::rewind::births::Births;
use crate::schema::{Inner, Schema};
use crate::strays::Strays;
use crate::subscriber::{Lists, StreamStats};
use crate::ticks::Ticks;
use crate::trained::Tables;
use crate::tuner::Tuner;
use crate::values::ValueCache;
use crate::why::Refused;
use hecs::{Component, Entity, World};
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tidelock_netcore::clock::SessionClock;
use tidelock_netcore::error::DisconnectReason;
use tidelock_netcore::session::{Generation, Guest, HostGreeting, Terms};
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::{Lane, LinkId, LinkStats, Transport};
use tracing::Span;

/// One participant of a session. See the crate's front page for the loop that drives it.
pub struct Peer {
    pub(crate) schema: Arc<Inner>,
    pub(crate) terms: Terms,
    pub(crate) config: Config,
    pub(crate) role: Role,
    pub(crate) transport: Option<Box<dyn Transport>>,
    pub(crate) local: PeerId,
    pub(crate) links: Vec<Link>,
    /// Where in `links` a link was when last looked for.
    pub(crate) seats: FxHashMap<LinkId, usize>,
    pub(crate) roster: BTreeMap<PeerId, String>,
    pub(crate) entities: Entities,
    pub(crate) names: Names,
    pub(crate) publisher: Publisher,
    pub(crate) capture: Capture,
    pub(crate) cache: BitCache,
    pub(crate) tuner: Tuner,
    pub(crate) scratch: Scratch,
    pub(crate) lists: Lists,
    pub(crate) values: ValueCache,
    pub(crate) picks: PickScratch,
    pub(crate) draft: Draft,
    /// Links by baseline, while packets are sent.
    pub(crate) order: Vec<((Tick, bool, u64), u32)>,
    pub(crate) news: Newsstand,
    pub(crate) mailbox: Mailbox,
    pub(crate) asking: Asking,
    pub(crate) large: LargeBox,
    pub(crate) pace: Pace,
    pub(crate) time: Ticks,
    pub(crate) inputs: Option<Box<Inputs>>,
    pub(crate) frames: Option<Box<Frames>>,
    /// Where this peer is on the timelines that it computes.
    pub(crate) computed: Computed,
    /// Comparing what is computed.
    pub(crate) forks: Forks,
    pub(crate) payload: Vec<u8>,
    pub(crate) round: u32,
    /// Something may have changed since the last capture.
    pub(crate) dirty: bool,
    /// Something came from a guest that goes on to the others at once.
    pub(crate) forwards: bool,
    /// By kind: may its time run? As of the last step.
    pub(crate) running: Vec<bool>,
    pub(crate) apply: crate::waiting::Buffers,
    /// Who gets what, on a host that does not show everything to everybody.
    pub(crate) audience: Option<Box<Audience>>,
    pub(crate) receipts: Receipts,
    pub(crate) refused: Refused,
    pub(crate) claims: Claims,
    pub(crate) captures: Captures,
    /// The moment of the session that was drawn last.
    pub(crate) drawn: Cell<Option<Duration>>,
    /// What this peer can go back to, by timeline.
    pub(crate) saves: Shelf,
    /// What this peer predicts, as a guest.
    pub(crate) predictions: Predictions,
    /// Spawns in the step that is run.
    pub(crate) births: Births,
    /// What is left to be seen of corrections of what is computed.
    pub(crate) slides: Slides,
    /// What is drawn ahead of lockstep.
    pub(crate) preview: Preview,
    /// Large values that rarely change.
    pub(crate) definitions: Definitions,
    /// Lists and maps.
    pub(crate) growing: Growing,
    /// Writes to what this peer does not simulate.
    pub(crate) strays: Strays,
    /// The step is one that was run before.
    pub(crate) rerunning: bool,
    /// Of the step that is run, for `tracing`.
    pub(crate) span: Span,
}

/// What a peer is in its session.
#[expect(clippy::large_enum_variant, reason = "there is one per peer")]
pub(crate) enum Role {
    /// The host; alone, it has no transport.
    Host(HostSide),
    /// A guest on its way in, or in.
    Guest(GuestSide),
    /// A guest whose session is over.
    Ended(DisconnectReason),
}

impl Role {
    fn host(config: &Config) -> Self {
        let session = config.session.unwrap_or_else(made_up_id);
        Self::Host(HostSide { session, next_peer: 1, left: VecDeque::new(), greeting: Vec::new(), rejections: 0 })
    }

    fn guest(terms: &Terms, config: &Config) -> Self {
        let machine = Guest::new(terms.clone(), &config.name, Duration::ZERO);
        let (generation, early) = (machine.generation(), Default::default());
        Self::Guest(GuestSide { machine, generation, link: None, clock: None, session: 0, lease_requested: false, early })
    }
}

pub(crate) struct HostSide {
    pub(crate) session: u64,
    /// The lowest number that was never given to a guest.
    pub(crate) next_peer: u16,
    /// Numbers of guests that left, the oldest first.
    pub(crate) left: VecDeque<u16>,
    pub(crate) greeting: Vec<Knock>,
    /// Refused greetings told since the last deadlines passed.
    pub(crate) rejections: usize,
}

/// A link that has not said yet who it is.
pub(crate) struct Knock {
    pub(crate) link: LinkId,
    /// Where it comes from, as its transport names it.
    pub(crate) address: String,
    pub(crate) greeting: HostGreeting,
}

pub(crate) struct GuestSide {
    pub(crate) machine: Guest,
    pub(crate) generation: Generation,
    pub(crate) link: Option<LinkId>,
    pub(crate) clock: Option<SessionClock>,
    pub(crate) session: u64,
    pub(crate) lease_requested: bool,
    /// Messages of other lanes that have overtaken the welcome, and their bytes.
    pub(crate) early: (Vec<(Lane, Vec<u8>)>, usize),
}

/// A participant, for lists of people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Who.
    pub peer: PeerId,
    /// What it calls itself.
    pub name: String,
    /// The round trip to it, where there is a link to it and it has been measured.
    pub rtt: Option<Duration>,
}

/// Everything that is counted about the link to one peer, as values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerStats {
    /// The stream towards it.
    pub sent: StreamStats,
    /// The link in both directions.
    pub link: LinkCounters,
    /// The transport's own figures.
    pub transport: LinkStats,
    /// The round trip as Tidelock measures it.
    pub rtt: Duration,
    /// How much single round trips differ from that, on average.
    pub jitter: Duration,
    /// Everything that it changed up to this session tick has arrived.
    pub complete: Tick,
}

impl Peer {
    /// A host that takes guests over `transport`.
    ///
    /// # Errors
    /// [`UsageError::Config`].
    pub fn host(schema: Schema, transport: impl Transport + 'static, config: Config) -> Result<Self, UsageError> {
        Self::new(schema, Some(Box::new(transport)), config, true)
    }

    /// A session without others. The same program as a host's, at next to no cost.
    ///
    /// # Errors
    /// [`UsageError::Config`].
    pub fn alone(schema: Schema, config: Config) -> Result<Self, UsageError> {
        Self::new(schema, None, config, true)
    }

    /// A guest that joins the host at the other end of `transport`. It is in when [`News::Admitted`] comes.
    ///
    /// # Errors
    /// [`UsageError::Config`].
    pub fn join(schema: Schema, transport: impl Transport + 'static, config: Config) -> Result<Self, UsageError> {
        Self::new(schema, Some(Box::new(transport)), config, false)
    }

    fn new(schema: Schema, transport: Option<Box<dyn Transport>>, config: Config, host: bool) -> Result<Self, UsageError> {
        config.check()?;
        let terms = Terms::new(tidelock_netcore::control::PROTOCOL_VERSIONS, schema.digest(), &schema.entries())
            .with_tables(config.tables.as_ref().map(Tables::digest));
        let role = if host { Role::host(&config) } else { Role::guest(&terms, &config) };
        let schema = schema.0;
        let mut roster = BTreeMap::new();
        if host {
            roster.insert(PeerId::HOST, config.name.clone());
        }
        let running = vec![true; schema.kinds.len()];
        let start = Tick(config.counters_from - 1);
        Ok(Self {
            terms,
            role,
            transport,
            local: if host { PeerId::HOST } else { PeerId::NOBODY },
            links: Vec::new(),
            seats: FxHashMap::default(),
            roster,
            entities: Entities::default(),
            names: Names::new(host),
            publisher: Publisher::new(&schema, Tick(config.counters_from), host),
            capture: Capture::default(),
            cache: BitCache::default(),
            tuner: Tuner::new(config.packing, config.tables.clone().filter(|_| host)),
            scratch: Scratch::default(),
            lists: Lists::default(),
            values: ValueCache::default(),
            picks: PickScratch::default(),
            draft: Draft::default(),
            order: Vec::new(),
            news: Newsstand::default(),
            mailbox: Mailbox::new(&schema),
            definitions: Definitions::default(),
            growing: Growing::default(),
            asking: Asking::default(),
            large: LargeBox::new(&schema),
            pace: Pace::default(),
            inputs: Inputs::new(&schema),
            frames: Frames::new(&schema, &config, host)?,
            computed: Computed::new(start, host),
            time: Ticks::begin(start),
            forks: Forks::new(start),
            payload: Vec::new(),
            round: 0,
            dirty: true,
            forwards: false,
            running,
            apply: crate::waiting::Buffers::default(),
            audience: None,
            receipts: Receipts::default(),
            refused: Refused::default(),
            claims: Claims::default(),
            captures: Captures::default(),
            drawn: Cell::new(None),
            saves: Shelf::default(),
            births: Births::default(),
            predictions: Predictions::default(),
            slides: Slides::default(),
            preview: Preview::default(),
            strays: Strays::default(),
            rerunning: false,
            span: Span::none(),
            schema,
            config,
        })
    }

    /// Who this peer is; [`PeerId::NOBODY`] for a guest that is not in yet.
    #[must_use]
    pub fn local(&self) -> PeerId {
        self.local
    }

    /// Does this peer decide?
    #[must_use]
    pub fn is_host(&self) -> bool {
        matches!(self.role, Role::Host(_))
    }

    /// Is this peer in a session?
    #[must_use]
    pub fn is_in_session(&self) -> bool {
        match &self.role {
            Role::Host(_) => true,
            Role::Guest(guest) => guest.clock.is_some(),
            Role::Ended(_) => false,
        }
    }

    /// Why a guest's session ended, if it did.
    #[must_use]
    pub fn ended(&self) -> Option<&DisconnectReason> {
        match &self.role {
            Role::Ended(reason) => Some(reason),
            _ => None,
        }
    }

    /// The session's id: the same on all its peers, never that of another session. Zero before admission.
    #[must_use]
    pub fn session(&self) -> u64 {
        match &self.role {
            Role::Host(host) => host.session,
            Role::Guest(guest) => guest.session,
            Role::Ended(_) => 0,
        }
    }

    /// The last tick that this peer ran. A guest whose schema has an input runs ahead of the session, see [`lead`](Self::lead).
    #[must_use]
    #[expect(clippy::misnamed_getters, reason = "to the game a tick is a step; inside, `tick` is the session's")]
    pub fn tick(&self) -> Tick {
        self.time.step
    }

    /// The length of a tick.
    #[must_use]
    pub fn tick_length(&self) -> Duration {
        Duration::from_nanos(1_000_000_000 / u64::from(self.config.tick_rate))
    }

    /// The time between two scheduled sends.
    pub(crate) fn send_interval(&self) -> Duration {
        self.tick_length() * self.config.send_every
    }

    /// The session's time at the last call of [`receive`](Self::receive) or [`send`](Self::send), the same on all peers within
    /// the accuracy of their clocks.
    #[must_use]
    pub fn session_time(&self) -> Option<Duration> {
        self.time.session
    }

    /// Ticks that were left out because the program stalled.
    #[must_use]
    pub fn skipped_ticks(&self) -> u64 {
        self.time.skipped
    }

    /// Everybody in the session, this peer included.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerInfo> {
        let rtt = |peer: PeerId| self.link_to(peer).map(|l| l.rtt.smoothed()).filter(|r| !r.is_zero());
        self.roster.iter().map(|(peer, name)| PeerInfo { peer: *peer, name: name.clone(), rtt: rtt(*peer) }).collect()
    }

    /// What is counted about the link to a peer.
    #[must_use]
    pub fn stats(&self, peer: PeerId) -> Option<PeerStats> {
        let link = self.link_to(peer)?;
        Some(PeerStats {
            sent: link.subscriber.stats,
            link: link.counters,
            transport: self.transport.as_ref().map(|t| t.stats(link.id)).unwrap_or_default(),
            rtt: link.rtt.smoothed(),
            jitter: link.rtt.variation(),
            complete: link.incoming.complete(),
        })
    }

    /// The game's ordered messages to a peer that wait to be handed over, and how many may. `None` if there is no link to it.
    #[must_use]
    pub fn backlog(&self, peer: PeerId) -> Option<Backlog> {
        self.link_to(peer).map(Link::backlog)
    }

    /// Sets how much goes to one peer, in bits per second, the transport's overhead counted, in place of [`Config::bandwidth`].
    /// Takes effect with the next send, and holds until the peer leaves.
    ///
    /// # Errors
    /// [`UsageError::NoSuchPeer`] if there is no link to it; [`UsageError::Config`] below
    /// [`limits::BANDWIDTH_LEAST`](tidelock_netcore::limits::BANDWIDTH_LEAST).
    pub fn set_bandwidth(&mut self, peer: PeerId, bits_per_second: u64) -> Result<(), UsageError> {
        let link = self.links.iter_mut().find(|l| l.peer == peer).ok_or(UsageError::NoSuchPeer)?;
        if bits_per_second < tidelock_netcore::limits::BANDWIDTH_LEAST {
            return Err(UsageError::Config(crate::config::BANDWIDTH));
        }
        link.bandwidth = bits_per_second;
        Ok(())
    }

    /// The next piece of news, oldest first.
    pub fn poll_news(&mut self) -> Option<News> {
        self.news.pop()
    }

    /// Networked entities that this peer knows.
    #[must_use]
    pub fn entity_count(&self) -> usize {
        self.entities.len()
    }

    /// An entity's name in the session.
    #[must_use]
    pub fn name_of(&self, world: &World, entity: Entity) -> Option<NetId> {
        self.entities.slot_at(world, entity).and_then(|slot| self.entities.get(slot)).map(|r| r.net)
    }

    /// The local entity behind a name.
    #[must_use]
    pub fn entity_of(&self, net: NetId) -> Option<Entity> {
        self.entities.entity_of(net)
    }

    /// Who owns an entity; slot 0, or a co-owner's.
    #[must_use]
    pub fn owner(&self, world: &World, entity: Entity, slot: usize) -> Option<PeerId> {
        let record = self.entities.get(self.entities.slot_at(world, entity)?)?;
        (slot < OWNER_SLOTS).then(|| record.owners[slot].peer)
    }

    /// Does this peer own the entity?
    #[must_use]
    pub fn is_owner(&self, world: &World, entity: Entity) -> bool {
        self.owner(world, entity, 0) == Some(self.local)
    }

    /// Does this peer have authority over component `C` of the entity?
    #[must_use]
    pub fn has_authority<C: Component>(&self, world: &World, entity: Entity) -> bool {
        let record = self.entities.slot_at(world, entity).and_then(|slot| self.entities.get(slot));
        let component = self.schema.component_of::<C>();
        matches!((record, component), (Some(record), Some(c)) if record.mine >> c & 1 != 0)
    }

    /// Marks that an entity has jumped: what is drawn jumps with it instead of sliding there. Call it when the pose is set.
    ///
    /// # Errors
    /// [`UsageError::NotNetworked`]; [`UsageError::NotAllowed`] for who neither owns the entity nor is the host.
    pub fn teleport(&mut self, world: &World, entity: Entity) -> Result<(), UsageError> {
        let slot = self.entities.slot_at(world, entity).ok_or(UsageError::NotNetworked)?;
        let (local, host) = (self.local, self.is_host());
        let record = self.entities.get_mut(slot).ok_or(UsageError::NotNetworked)?;
        if record.owners[0].peer != local && !host {
            return Err(UsageError::NotAllowed("teleport it"));
        }
        record.cut = (record.cut + 1) % (1 << crate::presence::CUT_BITS);
        self.capture.refresh(slot);
        self.dirty = true;
        Ok(())
    }

    /// Hands an entity (slot 0), or what a co-owner has of it, over to `to` (host only): a guest, [`PeerId::HOST`] to take it back,
    /// or [`PeerId::NOBODY`]. Takes effect with the next send, under a new epoch: what the owner before has written and has not
    /// arrived by now is refused as [`Refusal::StaleEpoch`](crate::policy::Refusal::StaleEpoch), which is not counted against
    /// it, and it is sent what holds. If `to` has asked for it, that is the answer.
    ///
    /// # Errors
    /// [`UsageError::NotNetworked`], [`UsageError::NotAllowed`] on a guest, [`UsageError::NoSuchPeer`],
    /// [`UsageError::NoSuchSlot`].
    pub fn grant(&mut self, world: &mut World, entity: Entity, slot: usize, to: PeerId) -> Result<(), UsageError> {
        if !self.is_host() {
            return Err(UsageError::NotAllowed("grant ownership"));
        }
        if !self.roster.contains_key(&to) && to != PeerId::NOBODY {
            return Err(UsageError::NoSuchPeer);
        }
        if slot >= self.schema.slots {
            return Err(UsageError::NoSuchSlot(slot));
        }
        let index = self.entities.slot_at(world, entity).ok_or(UsageError::NotNetworked)?;
        self.set_owner(world, index, slot, to);
        Ok(())
    }

    /// Removes a guest (host only); it is told `words`.
    ///
    /// # Errors
    /// [`UsageError::NotAllowed`] on a guest, [`UsageError::NoSuchPeer`].
    pub fn kick(&mut self, world: &mut World, peer: PeerId, words: &str) -> Result<(), UsageError> {
        if !self.is_host() {
            return Err(UsageError::NotAllowed("kick"));
        }
        let index = self.links.iter().position(|l| l.peer == peer).ok_or(UsageError::NoSuchPeer)?;
        let words = tidelock_netcore::control::clean(words, tidelock_netcore::limits::CLOSE_TEXT_BYTES);
        self.remove_guest(world, index, DisconnectReason::Kicked(words), true);
        Ok(())
    }

    /// Leaves the session, or ends it for all if this is the host. The others are told `reason`: usually
    /// [`DisconnectReason::Left`] by a guest, [`DisconnectReason::HostLeft`] by a host. Copies of others' entities leave the
    /// world; own entities stay as local ones.
    pub fn disconnect(&mut self, world: &mut World, reason: DisconnectReason) {
        self.end_saves(world);
        self.end_session(world, reason, true);
    }

    pub(crate) fn link_to(&self, peer: PeerId) -> Option<&Link> {
        self.links.iter().find(|l| l.peer == peer)
    }

    pub(crate) fn is_published(&self, slot: u32) -> Option<usize> {
        self.entities.get(slot).filter(|r| r.out_row != NO_ROW).map(|r| r.out_row as usize)
    }
}

/// An id that no other session has: 64 bits of the operating system's randomness, as the standard library's hash maps get it.
fn made_up_id() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Host;

    #[derive(crate::Replicate)]
    struct Health(u16);
    #[derive(Clone, Copy, Default)]
    struct Body;

    #[test]
    fn alone_nothing_is_captured() {
        let schema = Schema::builder("alone").component::<Health>("health", |c| c).kind::<Body>("body", Host::default());
        let mut peer = Peer::alone(schema.build().unwrap(), Config::default()).unwrap();
        let mut world = World::new();
        let entity = peer.spawn(&mut world, Body, (Health(1),)).unwrap();
        let mut steps = 0;
        for frame in 0..100 {
            let now = Duration::from_millis(17) * frame;
            peer.receive(now, &mut world).unwrap();
            while peer.next_step(&mut world).is_some() {
                world.get::<&mut Health>(entity).unwrap().0 += 1;
                steps += 1;
            }
            peer.send(now, &mut world).unwrap();
        }
        assert!(steps > 90, "time runs alone too: {steps} steps");
        assert_eq!(peer.publisher.row_count(), 0, "no row was given out, so no value was looked at");
    }
}
