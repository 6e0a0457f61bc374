//! What came and was not fetched yet: bounded per sender, and held back until the entities that it names are here.

use super::Peer;
use crate::entities::Entities;
use crate::error::UsageError;
use crate::netid::NetId;
use crate::news::News;
use crate::peer_id::PeerId;
use crate::replicate::{Replicate, Restorer};
use crate::schema::{Inner, Promise};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// News of dropped messages of one sender and frame.
const TOLD: u32 = 64;
/// Bytes that become free when a sender has too much here.
const ROOM: usize = limits::MAILBOX_BYTES / 16;

pub(crate) struct Waiting {
    pub(super) from: PeerId,
    pub(super) at: Duration,
    pub(super) words: Vec<u32>,
    /// The tick at which it goes off.
    pub(super) due: Option<Tick>,
    /// Of a request or a reply.
    pub(super) number: u32,
    /// Whom it is counted for: its sender, or, once that has left, [`PeerId::NOBODY`].
    pub(super) payer: PeerId,
}

impl Waiting {
    pub(super) fn new(from: PeerId, at: Duration, words: Vec<u32>) -> Self {
        Self { from, at, words, due: None, number: 0, payer: from }
    }

    /// The bytes that it counts for.
    fn cost(&self) -> usize {
        size_of::<Self>() + self.words.len() * size_of::<u32>()
    }
}

/// What came and was not fetched yet.
pub(crate) struct Mailbox {
    /// By message: in the order of arrival.
    waiting: Vec<VecDeque<Waiting>>,
    /// By sender: the bytes of what it sent and was not fetched.
    held: FxHashMap<PeerId, usize>,
    /// Names that were here and are gone, the latest ones.
    dead: VecDeque<NetId>,
    /// By sender: how many were dropped since the last look.
    dropped: FxHashMap<PeerId, u32>,
    /// How many messages were looked at or moved to take others out.
    #[cfg(test)]
    pub(super) moved: usize,
}

impl Mailbox {
    pub(crate) fn new(schema: &Inner) -> Self {
        let waiting = schema.messages.iter().map(|_| VecDeque::new()).collect();
        Self {
            waiting,
            held: FxHashMap::default(),
            dead: VecDeque::new(),
            dropped: FxHashMap::default(),
            #[cfg(test)]
            moved: 0,
        }
    }

    pub(crate) fn note_dead(&mut self, net: NetId) {
        if self.dead.len() == limits::WAITING_MESSAGES {
            self.dead.pop_front();
        }
        self.dead.push_back(net);
    }

    /// Is it known that the name was somebody's and will be nobody's?
    pub(crate) fn is_dead(&self, net: NetId) -> bool {
        self.dead.contains(&net)
    }

    /// A peer has left: what it said and was not fetched goes with it, but for its replies, and its events: others may have them, and
    /// they go off everywhere. What stays is still counted for it: see [`Peer::keep_events_of`].
    pub(crate) fn forget(&mut self, peer: PeerId, schema: &Inner) {
        let stays = |promise: Promise| promise.is_event() || promise == Promise::Reply;
        let said = self.waiting.iter_mut().zip(&schema.messages).filter(|(_, entry)| !stays(entry.promise));
        for (queue, _) in said {
            queue.retain(|w| {
                let stays = w.from != peer;
                if !stays {
                    let_go(&mut self.held, w);
                }
                stays
            });
        }
    }

    /// A peer has left: what stays of it is counted with what stays of all who have.
    fn disown(&mut self, peer: PeerId) {
        let mut left = 0;
        for w in self.waiting.iter_mut().flatten().filter(|w| w.payer == peer) {
            w.payer = PeerId::NOBODY;
            left += w.cost();
        }
        self.held.remove(&peer);
        if left > 0 {
            *self.held.entry(PeerId::NOBODY).or_default() += left;
        }
    }

    fn push(&mut self, message: usize, waiting: Waiting) {
        *self.held.entry(waiting.payer).or_default() += waiting.cost();
        self.waiting[message].push_back(waiting);
    }

    /// The oldest of who pays that count for so many bytes together, as message and place.
    fn oldest_of(&mut self, payer: PeerId, bytes: usize) -> Vec<(usize, usize)> {
        #[cfg(test)]
        {
            self.moved += self.waiting.iter().map(VecDeque::len).sum::<usize>();
        }
        let all = self
            .waiting
            .iter()
            .enumerate()
            .flat_map(|(message, queue)| queue.iter().enumerate().map(move |(place, waiting)| (waiting, message, place)));
        let of_payer = all.filter(|(waiting, ..)| waiting.payer == payer);
        let mut oldest: Vec<_> = of_payer.map(|(waiting, message, place)| (waiting.at, message, place, waiting.cost())).collect();
        oldest.sort_unstable();
        let mut left = bytes;
        let go = oldest.into_iter().take_while(|(.., cost)| {
            let goes = left > 0;
            left = left.saturating_sub(*cost);
            goes
        });
        go.map(|(_, message, place, _)| (message, place)).collect()
    }

    /// Takes out those at these places, which are in descending order.
    fn remove_all(&mut self, message: usize, places: &[usize]) -> Vec<Waiting> {
        if places.is_empty() {
            return Vec::new();
        }
        let mut places = places.iter().rev().copied().peekable();
        #[cfg(test)]
        {
            self.moved += self.waiting[message].len();
        }
        let mut out = Vec::new();
        let mut left = VecDeque::new();
        for (i, w) in std::mem::take(&mut self.waiting[message]).into_iter().enumerate() {
            if places.next_if_eq(&i).is_some() {
                let_go(&mut self.held, &w);
                out.push(w);
            } else {
                left.push_back(w);
            }
        }
        self.waiting[message] = left;
        out
    }

    pub(super) fn held(&self, peer: PeerId) -> usize {
        self.held.get(&peer).copied().unwrap_or(0)
    }

    /// The words of what is here of a sender.
    #[cfg(test)]
    pub(super) fn of(&self, from: PeerId) -> impl Iterator<Item = &[u32]> {
        self.waiting.iter().flatten().filter(move |w| w.from == from).map(|w| &w.words[..])
    }

    /// What all that is here counts for.
    #[cfg(test)]
    pub(super) fn total(&self) -> usize {
        self.waiting.iter().flatten().map(Waiting::cost).sum()
    }

    /// Takes out the messages of one type that can be read now, in order. One that names an entity which is not here holds back
    /// those that came after it from the same sender, if they are `ordered`. Those that go off after the tick `now` stay.
    pub(super) fn fetch<M: Replicate>(
        &mut self,
        message: usize,
        ordered: bool,
        now: Tick,
        entities: &Entities,
    ) -> Vec<(Waiting, M)> {
        let mut out = Vec::new();
        let mut blocked: Vec<PeerId> = Vec::new();
        let mut left = VecDeque::new();
        for w in std::mem::take(&mut self.waiting[message]) {
            if w.due.is_some_and(|due| due > now) {
                left.push_back(w);
                continue;
            }
            let read = if blocked.contains(&w.from) {
                None
            } else {
                M::restore(&mut Restorer::new(&w.words, &|net| entities.entity_of(net))).ok()
            };
            match read {
                Some(value) => {
                    let_go(&mut self.held, &w);
                    out.push((w, value));
                }
                None => {
                    if ordered {
                        blocked.push(w.from);
                    }
                    left.push_back(w);
                }
            }
        }
        self.waiting[message] = left;
        out
    }
}

fn let_go(held: &mut FxHashMap<PeerId, usize>, waiting: &Waiting) {
    if let Some(bytes) = held.get_mut(&waiting.payer) {
        *bytes -= waiting.cost();
        if *bytes == 0 {
            held.remove(&waiting.payer);
        }
    }
}

impl Peer {
    /// The messages of one type that have come, oldest first, with who sent them. Those that name an entity which is not here
    /// yet wait, and hold back later ones of the same type and sender, unless they are unordered.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`]; [`UsageError::NotAllowed`] for requests.
    pub fn messages<M: Replicate>(&mut self) -> Result<Vec<(PeerId, M)>, UsageError> {
        let index = self.message_index::<M>()?;
        if self.schema.messages[index].promise == Promise::Request {
            return Err(UsageError::NotAllowed("fetch requests as messages: use `requests`"));
        }
        let ordered = self.schema.messages[index].promise != Promise::Unordered;
        let taken = self.mailbox.fetch::<M>(index, ordered, self.time.tick, &self.entities);
        Ok(taken.into_iter().map(|(waiting, message)| (waiting.from, message)).collect())
    }

    /// Puts a message into the box, and drops the oldest of its sender's if there are too many.
    pub(super) fn put_in_box(&mut self, message: usize, waiting: Waiting) {
        let from = waiting.from;
        if !(self.schema.messages[message].is_complete)(&waiting.words) {
            // no arrival could ever complete it, and it would hold up all that follow
            return self.note_dropped(message, &waiting);
        }
        self.make_room(from, waiting.cost());
        self.mailbox.push(message, waiting);
    }

    /// Drops messages whose entities did not come in time, or are known to be gone, and the oldest of those that wait if a sender
    /// has too many.
    pub(crate) fn resolve_messages(&mut self) {
        let (now, tick) = (self.time.now, self.time.tick);
        for index in 0..self.mailbox.waiting.len() {
            let layout = &self.schema.messages[index].layout;
            if !layout.has_entities() {
                continue;
            }
            let (entities, dead) = (&self.entities, &self.mailbox.dead);
            let missing = |n: &NetId| n.0 != 0 && entities.entity_of(*n).is_none();
            let mut waiting: FxHashMap<PeerId, usize> = FxHashMap::default();
            let mut dropped = Vec::new();
            // the newest first: those beyond the limit are the oldest
            for (i, w) in self.mailbox.waiting[index].iter().enumerate().rev() {
                let mut names = layout.entities(&w.words).filter(missing).peekable();
                if names.peek().is_none() {
                    continue;
                }
                let count = waiting.entry(w.from).or_default();
                *count += 1;
                let early = w.due.is_some_and(|due| due > tick);
                let hopeless = !early && now > w.at + limits::WAITING_TIME || names.any(|n| dead.contains(&n));
                if hopeless || *count > limits::WAITING_MESSAGES {
                    dropped.push(i);
                }
            }
            for waiting in self.mailbox.remove_all(index, &dropped) {
                self.note_dropped(index, &waiting);
            }
        }
        self.mailbox.dropped.clear();
    }

    /// A peer has left: of what it sent that goes off everywhere, all who have left may leave as much as one may send.
    pub(crate) fn keep_events_of(&mut self, peer: PeerId) {
        self.mailbox.disown(peer);
        self.make_room(PeerId::NOBODY, 0);
    }

    /// Drops the oldest of who pays, until there is room for so many bytes. Some more go than must, because what is looked through
    /// to find them is everybody's: who floods would make that a look for each message.
    fn make_room(&mut self, payer: PeerId, cost: usize) {
        let held = self.mailbox.held(payer);
        if held + cost <= limits::MAILBOX_BYTES {
            return;
        }
        let enough = held + cost - (limits::MAILBOX_BYTES - ROOM);
        let mut places = self.mailbox.oldest_of(payer, enough);
        // by message, the last place first
        places.sort_unstable_by(|a, b| b.cmp(a));
        for of_message in places.chunk_by(|a, b| a.0 == b.0) {
            let index = of_message[0].0;
            let places: Vec<usize> = of_message.iter().map(|place| place.1).collect();
            for waiting in self.mailbox.remove_all(index, &places) {
                self.note_dropped(index, &waiting);
            }
        }
    }

    fn note_dropped(&mut self, index: usize, waiting: &Waiting) {
        let (from, promise) = (waiting.from, self.schema.messages[index].promise);
        if matches!(promise, Promise::Request | Promise::Reply) {
            self.dropped_unanswered(index, waiting);
        }
        if let Some(link) = self.links.iter_mut().find(|l| l.peer == from) {
            link.counters.dropped_messages += 1;
        }
        self.tell_dropped(from, &self.schema.messages[index].name.clone());
    }

    /// News of others must not be lost for one who sends too much: of its dropped messages the first of a frame are told. The rest
    /// is in the counter.
    pub(super) fn tell_dropped(&mut self, from: PeerId, message: &str) {
        let told = self.mailbox.dropped.entry(from).or_default();
        *told += 1;
        if *told <= TOLD {
            self.news.push(News::MessageDropped { from, message: message.to_owned() });
        }
    }
}
