//! Orders: what a player wants, taken by everybody in the same tick. Given at any peer, sealed by the host.

use super::delay::OrderDelay;
use super::sealer::Unwanted;
use super::{Frames, Side};
use crate::entities::name_in;
use crate::error::UsageError;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use crate::present::session_ticks;
use crate::replicate::{Quantiser, Replicate, Restorer};
use crate::schema::Inner;
use crate::step::Step;
use hecs::{Entity, World};
use std::any::TypeId;
use std::time::Duration;
use tidelock_netcore::bits::{BitReader, BitWriter};
use tidelock_netcore::error::PeerError;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::Lane;

/// An order's name: who gave it, and which of its orders it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId {
    /// Who gave it.
    pub peer: PeerId,
    /// Counted per peer, from 1.
    pub number: u64,
}

/// An order of this peer's own that is in no frame yet.
pub(super) struct Pending {
    number: u64,
    at: Tick,
    entry: u8,
    words: Vec<u32>,
}

/// What stands where a message's number stands, on the lane of reliable messages: an order. No schema has so many messages.
pub(crate) const MARK: u8 = 255;
const _: () = assert!(limits::MESSAGES <= MARK as usize);
/// Bits of an order's type.
const ENTRY_BITS: u32 = limits::ORDERS.ilog2();

/// An order as it goes up, for a guest's message.
fn encode(schema: &Inner, pending: &Pending) -> Vec<u8> {
    let mut w = BitWriter::new();
    w.put(u64::from(MARK), 8);
    w.put(pending.number & 0xffff, 16);
    w.put(u64::from(pending.at.narrow()), 16);
    w.put(u64::from(pending.entry), ENTRY_BITS);
    schema.orders[usize::from(pending.entry)].layout.write(&pending.words, None, 0, &mut w);
    w.to_bytes()
}

/// The low bits of its number, its tick widened against `near`, and what it is.
fn decode(schema: &Inner, bytes: &[u8], near: Tick) -> Result<(u16, Tick, u8, Vec<u32>), PeerError> {
    let malformed = |cause| PeerError::Malformed { what: "order", cause };
    let mut r = BitReader::new(bytes);
    r.get(8).map_err(malformed)?;
    let number = r.get(16).map_err(malformed)? as u16;
    let at = near.widen(r.get(16).map_err(malformed)? as u16);
    let index = r.get(ENTRY_BITS).map_err(malformed)? as usize;
    let entry = schema.orders.get(index).ok_or(PeerError::OutOfOrder("an order of an unknown number"))?;
    let mut words = vec![0; entry.layout.words()];
    entry.layout.read(None, 0, &mut r, &mut words).map_err(malformed)?;
    r.finish().map_err(malformed)?;
    if !(entry.is_complete)(&words) {
        return Err(PeerError::OutOfOrder("an order that nobody can read"));
    }
    Ok((number, at, index as u8, words))
}

impl Peer {
    /// Gives an order: every peer gets it in the same tick of lockstep with [`Step::orders`], those of one peer in the order in
    /// which they were given, none lost and none twice.
    ///
    /// A guest's goes to the host, which seals it into the next frame that is open from a tick on which the guest chooses: as far ahead as the
    /// way takes, learned from how its orders fared. One that comes later takes the next open frame. What of a guest's orders has come to
    /// the host when the guest leaves is sealed all the same. A host's own take the next frame.
    ///
    /// An order can name networked entities, by their [`NetId`](crate::NetId) on the way: each peer gets its own handle. One that a peer cannot
    /// resolve in the step is none there, and where the field cannot be without, that peer does not get the order: name only
    /// what is the same everywhere, and keep in mind that it may have ended meanwhile.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], [`UsageError::NotInSession`], [`UsageError::NotAllowed`] if no kind of the schema is computed in
    /// [`Lockstep`](crate::policy::Lockstep), [`UsageError::Message`] for values that cannot travel,
    /// [`UsageError::NamesNobody`] if a field needs an entity and names one that is not networked or gone, [`UsageError::Backlog`]
    /// if [`limits::ORDERS_PENDING`](crate::netcore::limits::ORDERS_PENDING) of this peer wait, or the host takes no more messages now.
    pub fn order<O: Replicate>(&mut self, world: &World, order: &O) -> Result<OrderId, UsageError> {
        if self.schema.kinds_of(Timeline::Lockstep) == 0 {
            self.order_index::<O>()?;
            return Err(UsageError::NotAllowed(
                "give orders: no kind of the schema is `Lockstep`, and no other step meets them at every peer; send a message",
            ));
        }
        self.give_order(world, order)
    }

    /// The same whatever the kinds are.
    pub(crate) fn give_order<O: Replicate>(&mut self, world: &World, order: &O) -> Result<OrderId, UsageError> {
        let index = self.order_index::<O>()?;
        if !self.is_in_session() {
            return Err(UsageError::NotInSession(""));
        }
        let schema = self.schema.clone();
        let entry = &schema.orders[index];
        let mut words = vec![0; entry.layout.words()];
        order.quantise(&mut Quantiser::new(&mut words, &name_in(world))).map_err(UsageError::Message)?;
        if !(entry.is_complete)(&words) {
            return Err(UsageError::NamesNobody(std::any::type_name::<O>()));
        }
        let (peer, session) = (self.local, self.session_tick());
        let rtt = self.links.first().map_or(Duration::ZERO, |link| link.rtt.smoothed());
        let rate = self.config.tick_rate;
        let Some(frames) = &mut self.frames else { return Err(UsageError::NotInSession("")) };
        let number = match &mut frames.side {
            Side::Host(sealer) => {
                let number = sealer.given(peer) + 1;
                let taken = sealer.order(peer, number, Tick::ZERO, index as u8, words);
                taken.map(|()| number).map_err(|_| UsageError::Backlog)?
            }
            Side::Guest(taking) => {
                if taking.pending.len() >= limits::ORDERS_PENDING {
                    return Err(UsageError::Backlog);
                }
                let most = crate::input::ticks_in(limits::ORDER_DELAY_MAX, rate);
                let way = crate::input::ticks_in(rtt / 2, rate);
                let delay = taking.delay.get_or_insert_with(|| OrderDelay::new(way, most));
                let number = taking.given + 1;
                let pending = Pending { number, at: session.plus(delay.ticks()), entry: index as u8, words };
                let link = self.links.first_mut().ok_or(UsageError::NotInSession(""))?;
                if !link.post(Lane::RELIABLE, &encode(&schema, &pending)) {
                    return Err(UsageError::Backlog);
                }
                taking.given = number;
                taking.pending.push_back(pending);
                number
            }
        };
        Ok(OrderId { peer, number })
    }

    /// This peer's own orders of one type that were given and are in no frame yet, in order: for drawing what is about to happen.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`].
    pub fn pending_orders<O: Replicate>(&self) -> Result<impl Iterator<Item = (OrderId, O)>, UsageError> {
        let index = self.order_index::<O>()? as u8;
        let (peer, entities) = (self.local, &self.entities);
        let (host, guest) = match self.frames.as_ref().map(|frames| &frames.side) {
            Some(Side::Host(sealer)) => (Some(sealer), None),
            Some(Side::Guest(taking)) => (None, Some(taking)),
            None => (None, None),
        };
        let at_host = host.into_iter().flat_map(move |sealer| sealer.waiting(peer)).map(|(n, o)| (n, o.entry, &o.words));
        let at_guest = guest.into_iter().flat_map(|taking| &taking.pending).map(|o| (o.number, o.entry, &o.words));
        let own = at_host.chain(at_guest).filter(move |(_, entry, _)| *entry == index);
        Ok(own.filter_map(move |(number, _, words)| {
            let order = O::restore(&mut Restorer::new(words, &|net| entities.entity_of(net))).ok()?;
            Some((OrderId { peer, number }, order))
        }))
    }

    fn order_index<O: 'static>(&self) -> Result<usize, UsageError> {
        let found = self.schema.orders.iter().position(|o| o.type_id == TypeId::of::<O>());
        found.ok_or(UsageError::NotInSchema(std::any::type_name::<O>()))
    }

    /// The session's tick now.
    pub(super) fn session_tick(&self) -> Tick {
        self.time.session.map_or(Tick::ZERO, |time| session_ticks(time, self.config.tick_rate).0)
    }

    /// Host: a guest's order has come.
    pub(crate) fn take_order(&mut self, index: usize, bytes: &[u8]) -> Result<(), PeerError> {
        let (now, near, peer) = (self.time.now, self.session_tick(), self.links[index].peer);
        let most = near.plus(crate::input::ticks_in(limits::ORDER_DELAY_MAX, self.config.tick_rate));
        let Some(sealer) = self.frames.as_mut().and_then(|frames| frames.sealer()) else {
            return Err(PeerError::OutOfOrder("an order, and the schema has none"));
        };
        let (low, at, entry, words) = decode(&self.schema, bytes, near)?;
        let number = sealer.given(peer) + 1;
        if low != number as u16 {
            return Err(PeerError::OutOfOrder("an order that does not follow the last"));
        }
        sealer.order(peer, number, at.min(most), entry, words).map_err(|unwanted| match unwanted {
            Unwanted::OutOfOrder => PeerError::OutOfOrder("an order that does not follow the last"),
            Unwanted::TooMany => PeerError::OutOfOrder("more orders than may wait"),
        })?;
        self.links[index].last_heard = now;
        Ok(())
    }
}

impl Frames {
    /// Guest: looks for its own orders in the frames that have come.
    pub(super) fn find_own(&mut self, local: PeerId) {
        let Side::Guest(taking) = &mut self.side else { return };
        let Some(newest) = taking.intake.newest() else { return };
        let mut tick = taking.searched.map_or(Tick::ZERO, |tick| tick.plus(1)).max(newest.minus(limits::FRAMES as u64));
        while tick <= newest {
            let orders = taking.intake.sealed(tick).into_iter().flat_map(|frame| frame.orders());
            for (_, order, _) in orders.filter(|(peer, _, _)| *peer == local) {
                while taking.pending.front().is_some_and(|pending| pending.number <= order.number) {
                    let Some(pending) = taking.pending.pop_front() else { break };
                    if let Some(delay) = taking.delay.as_mut().filter(|_| pending.number == order.number) {
                        delay.sealed(order.number, tick.since(pending.at), u64::from(order.waited), taking.given);
                    }
                }
            }
            tick = tick.plus(1);
        }
        taking.searched = Some(newest);
    }
}

impl Frames {
    /// Adds this peer's pending orders to a guess of the frame that they are meant for; those that are late, to every first one that
    /// is not sealed.
    pub(crate) fn add_pending(&self, local: PeerId, frame: &mut super::Frame) {
        let (Side::Guest(taking), Ok(seat)) = (&self.side, frame.find(local)) else { return };
        let first = taking.intake.newest().is_some_and(|newest| newest.plus(1) == frame.tick);
        let tick = frame.tick;
        for order in taking.pending.iter().filter(|o| o.at == tick || first && o.at < tick) {
            if let Some(words) = frame.add_order(seat, order.entry, 0, order.words.len()) {
                words.copy_from_slice(&order.words);
            }
        }
    }
}

impl Step<'_> {
    /// The orders of one type that take effect in this step, with who gave them, in an order that is the same at every peer.
    ///
    /// Ask in each step of lockstep. Those of rollback have none, at the host neither: what is not sealed yet cannot be guessed.
    /// Those of the session have them at the host, and at a guest if the tick's frame has come by then, which it has not where the
    /// guest's ticks run ahead.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`].
    pub fn orders<O: Replicate>(&self, world: &World) -> Result<impl Iterator<Item = (PeerId, O)>, UsageError> {
        let at = self.at_peer();
        let index = at.order_index::<O>()? as u8;
        let resolve = |net| at.entity_of(net).filter(|entity: &Entity| world.contains(*entity));
        Ok(at
            .orders_of_step()
            .into_iter()
            .flat_map(|frame| frame.orders())
            .filter(move |(_, o, _)| o.entry == index)
            .filter_map(move |(peer, _, words)| Some((peer, O::restore(&mut Restorer::new(words, &resolve)).ok()?))))
    }
}

#[cfg(test)]
#[path = "orders_tests.rs"]
mod tests;
