//! The way down from a digest that differs to a value: the host asks one guest at a time, and each answer narrows it.

use super::state::{State, show_presence};
use crate::checkpoint::{CheckpointError, CheckpointReader, Differ};
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use crate::rewind::digest::class;
use crate::rewind::kept::KeptEntry;
use hecs::Entity;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use tidelock_netcore::bits::BitError;
use tidelock_netcore::control::{Control, clean};
use tidelock_netcore::error::PeerError;
use tidelock_netcore::forks::{Fork, ForkAnswer, ForkAsk, ForkLocated, ForkQuestion};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// One guest's fork that is being looked into.
pub(super) struct Descent {
    peer: PeerId,
    line: Timeline,
    /// The host's.
    state: Arc<State>,
    /// What was asked last, and when.
    asked: Option<(ForkAsk, Duration)>,
}

/// Where an answer leads.
enum Next {
    Ask(ForkAsk),
    Found {
        part: u8,
        net: NetId,
        field: String,
        host: String,
        guest: String,
    },
    /// It cannot be found out.
    Nothing,
}

impl Descent {
    pub(super) fn new(peer: PeerId, line: Timeline, state: Arc<State>) -> Self {
        Self { peer, line, state, asked: None }
    }
}

impl Peer {
    /// Host: begins with the next guest, if nobody is being asked, and gives up one that does not answer or is gone.
    pub(super) fn descend(&mut self) {
        let now = self.time.now;
        while let Some(first) = self.forks.host.descents.front() {
            let is_here = self.link_to(first.peer).is_some();
            let is_late = first.asked.is_some_and(|(_, at)| now > at + limits::FORK_ANSWER_TIME);
            if is_here && !is_late {
                break;
            }
            self.end_descent();
        }
        if self.forks.host.descents.front().is_some_and(|first| first.asked.is_none()) {
            self.ask_fork(ForkAsk::Sums);
        }
    }

    fn end_descent(&mut self) {
        if let Some(ended) = self.forks.host.descents.pop_front() {
            self.fork_is_done(ended.peer);
        }
    }

    fn ask_fork(&mut self, ask: ForkAsk) {
        let Some(descent) = self.forks.host.descents.front_mut() else { return };
        descent.asked = Some((ask, self.time.now));
        let Some(link) = self.links.iter_mut().find(|link| link.peer == descent.peer) else { return };
        link.forks.questions += 1;
        let question = ForkQuestion { line: descent.line as u8, tick: descent.state.tick.0, ask };
        // a peer that cannot take it is found out at the next send
        let _ = link.post_control(&Control::Fork(Fork::Question(question)));
    }

    /// Host: a guest answers.
    pub(super) fn hear_fork_answer(&mut self, at: usize, answer: &ForkAnswer) -> Result<(), PeerError> {
        let link = &mut self.links[at];
        let peer = link.peer;
        link.forks.questions =
            link.forks.questions.checked_sub(1).ok_or(PeerError::OutOfOrder("an answer that nobody asked for"))?;
        let is_newest = link.forks.questions == 0;
        // an answer that came too late is to a question that is not asked any more
        let asked = self.forks.host.descents.front().filter(|d| is_newest && d.peer == peer);
        let Some((descent, (ask, _))) = asked.and_then(|d| Some((d, d.asked?))) else { return Ok(()) };
        let next = narrow(&self.schema.kept, &descent.state, ask, answer, |part, bytes| show_value(part, bytes, &self.schema))?;
        match next {
            Next::Ask(ask) => self.ask_fork(ask),
            Next::Nothing => self.end_descent(),
            Next::Found { part, net, field, host, guest } => {
                let (line, tick) = (descent.line, descent.state.tick.0);
                let clip = |text: String| clean(&text, limits::FORK_TEXT_BYTES);
                let (field, host, guest) = (clip(field), clip(host), clip(guest));
                let word = ForkLocated { line: line as u8, tick, peer: peer.0, net: net.0, part, field, host, guest };
                let news = self.located_news(line, &word);
                self.news.push(news);
                let word = Control::Fork(Fork::Located(word));
                for link in &mut self.links {
                    // a peer that cannot take it is found out at the next send
                    let _ = link.post_control(&word);
                }
                self.end_descent();
            }
        }
        Ok(())
    }

    pub(super) fn located_news(&self, line: Timeline, word: &ForkLocated) -> News {
        let component = usize::from(word.part).checked_sub(1).and_then(|i| self.schema.kept.get(i));
        News::ForkLocated {
            line,
            tick: Tick(word.tick),
            peer: PeerId(word.peer),
            entity: NetId(word.net),
            component: component.map(|entry| entry.name.clone()).unwrap_or_default(),
            field: word.field.clone(),
            host: word.host.clone(),
            guest: word.guest.clone(),
        }
    }
}

/// What an answer says together with the host's own state.
fn narrow(
    kept: &[KeptEntry],
    mine: &State,
    ask: ForkAsk,
    answer: &ForkAnswer,
    show: impl Fn(usize, Option<&[u8]>) -> String,
) -> Result<Next, PeerError> {
    let wrong = Err(PeerError::OutOfOrder("an answer to another question"));
    let first = |mine: &[u64], theirs: &[u64]| mine.iter().zip(theirs).position(|(a, b)| a != b);
    Ok(match (ask, answer) {
        (_, ForkAnswer::Gone) => Next::Nothing,
        (ForkAsk::Sums, ForkAnswer::Sums(theirs)) if theirs.len() == mine.part_count() => {
            let part = first(&mine.sums(), theirs);
            part.map_or(Next::Nothing, |part| Next::Ask(ForkAsk::Classes { part: part as u8 }))
        }
        (ForkAsk::Classes { part }, ForkAnswer::Classes(theirs)) if theirs.len() == limits::FORK_CLASSES => {
            let class = first(&mine.classes(part.into()), theirs);
            class.map_or(Next::Nothing, |class| Next::Ask(ForkAsk::Rows { part, class: class as u8 }))
        }
        (ForkAsk::Rows { part, class: of }, ForkAnswer::Rows(theirs)) => {
            let is_in = |row: &(u64, u64)| class(NetId(row.0)) == usize::from(of);
            if !theirs.is_sorted_by(|a, b| a.0 < b.0) || !theirs.iter().all(is_in) {
                return wrong;
            }
            let net = first_row(&mine.class_rows(part.into(), of.into()), theirs);
            net.map_or(Next::Nothing, |net| Next::Ask(ForkAsk::Value { part, net }))
        }
        (ForkAsk::Value { part, net }, ForkAnswer::Value(theirs)) => {
            let (index, net) = (usize::from(part), NetId(net));
            let own = mine.value(index, net);
            let (host, guest) = (show(index, own.as_deref()), show(index, theirs.as_deref()));
            if own.as_deref() == theirs.as_deref() {
                return Ok(Next::Nothing);
            }
            match (part.checked_sub(1), own, theirs) {
                (Some(component), Some(own), Some(theirs)) => {
                    let found = differ(&kept[usize::from(component)], &own, theirs);
                    let (field, host, guest) =
                        found.map_err(|_| PeerError::Malformed { what: "value of a state", cause: BitError::OutOfRange })?;
                    Next::Found { part, net, field, host, guest }
                }
                _ => Next::Found { part, net, field: String::new(), host, guest },
            }
        }
        (ForkAsk::Value { part, net }, ForkAnswer::TooLong) => {
            let host = show(part.into(), mine.value(part.into(), NetId(net)).as_deref());
            let guest = format!("more than {} bytes", limits::FORK_VALUE_BYTES);
            Next::Found { part, net: NetId(net), field: String::new(), host, guest }
        }
        _ => return wrong,
    })
}

/// The first name that is not in both with one hash.
fn first_row(mine: &[(u64, u64)], theirs: &[(u64, u64)]) -> Option<u64> {
    let common = mine.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    match (mine.get(common), theirs.get(common)) {
        (Some(a), Some(b)) => Some(a.0.min(b.0)),
        (a, b) => a.or(b).map(|row| row.0),
    }
}

/// What is shown of a value that the other side does not have, or that is too long to be compared.
fn show_value(part: usize, bytes: Option<&[u8]>, schema: &crate::schema::Inner) -> String {
    match (part, bytes) {
        (0, bytes) => show_presence(schema, bytes),
        (_, Some(bytes)) => format!("there, {} bytes", bytes.len()),
        (_, None) => "not there".into(),
    }
}

/// The field in which two values differ, and both.
fn differ(entry: &KeptEntry, mine: &[u8], theirs: &[u8]) -> Result<(String, String, String), CheckpointError> {
    // entities that are named need not be here, nor be any more: each name gets a handle of its own
    let named: RefCell<Vec<NetId>> = RefCell::default();
    let entity_of = |net: NetId| {
        let mut named = named.borrow_mut();
        let at = named.iter().position(|known| *known == net).unwrap_or_else(|| {
            named.push(net);
            named.len() - 1
        });
        Entity::from_bits(1 << 32 | at as u64)
    };
    let name_of = |entity: Entity| named.borrow().get(entity.id() as usize).copied();
    let read = |bytes: &[u8]| {
        let mut column = entry.kept.column();
        let mut reader = CheckpointReader::new(bytes, &entity_of);
        column.read(1, &mut reader)?;
        reader.finish()?;
        Ok(column)
    };
    let (mine, theirs) = (read(mine)?, read(theirs)?);
    let mut at = Differ::new(&name_of, &name_of);
    mine.differ(0, &*theirs, 0, &mut at);
    Ok(at.into_parts())
}
