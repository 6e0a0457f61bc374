//! A guest's part: it tells its digests, answers questions about its states, and hears of forks.

use super::line_of;
use super::state::State;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use std::collections::VecDeque;
use std::sync::Arc;
use tidelock_netcore::control::Control;
use tidelock_netcore::error::PeerError;
use tidelock_netcore::forks::{Fork, ForkAnswer, ForkAsk, ForkFound, ForkLocated, ForkQuestion};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

#[derive(Default)]
pub(super) struct GuestForks {
    /// What is told when its tick has been run.
    pending: VecDeque<(Timeline, Tick, News)>,
    /// By timeline: the state in which this guest differs.
    pinned: [Option<Arc<State>>; 2],
    /// What a guest of a test does instead of what it should.
    #[cfg(test)]
    pub(super) lies: Lies,
}

#[cfg(test)]
#[derive(Default)]
pub(super) struct Lies {
    /// Every other three of its digests are wrong.
    pub(super) forges: bool,
    /// What it answers, whatever it is asked.
    pub(super) answer: Option<ForkAnswer>,
    /// It answers nothing.
    pub(super) silent: bool,
}

impl Peer {
    /// Guest: the host's word about forks.
    pub(crate) fn host_says_of_fork(&mut self, fork: &Fork) -> Result<(), PeerError> {
        match fork {
            Fork::Found(found) => self.hear_found(found),
            Fork::Question(question) => self.answer_question(*question),
            Fork::Located(located) => self.hear_located(located),
            Fork::Digest(_) | Fork::Answer(_) => Ok(()),
        }
    }

    fn hear_found(&mut self, found: &ForkFound) -> Result<(), PeerError> {
        let (line, tick) = (line_of(found.line)?, Tick(found.tick));
        let peers: Vec<_> = found.peers.iter().map(|(peer, digest)| (PeerId(*peer), *digest)).collect();
        if peers.iter().any(|(peer, _)| *peer == self.local) {
            let state = self.forks.line(line).state(tick).cloned();
            self.forks.guest.pinned[usize::from(line == Timeline::Lockstep)] = state;
        }
        self.tell_at(line, tick, News::Forked { line, tick, peers, host_digest: found.digest });
        Ok(())
    }

    fn hear_located(&mut self, located: &ForkLocated) -> Result<(), PeerError> {
        let line = line_of(located.line)?;
        let news = self.located_news(line, located);
        if PeerId(located.peer) == self.local {
            self.forks.guest.pinned[usize::from(line == Timeline::Lockstep)] = None;
        }
        self.tell_at(line, Tick(located.tick), news);
        Ok(())
    }

    fn tell_at(&mut self, line: Timeline, tick: Tick, news: News) {
        if self.forks.guest.pending.len() == limits::FORKS_PENDING
            && let Some((_, _, oldest)) = self.forks.guest.pending.pop_front()
        {
            self.news.push(oldest);
        }
        self.forks.guest.pending.push_back((line, tick, news));
    }

    /// Guest: tells of forks whose tick it has run by now, or never will, because it came later.
    pub(crate) fn tell_forks(&mut self) {
        let mut pending = std::mem::take(&mut self.forks.guest.pending);
        for _ in 0..pending.len() {
            let Some((line, tick, news)) = pending.pop_front() else { break };
            if self.confirmed(line).is_none_or(|confirmed| tick <= confirmed) {
                self.news.push(news);
            } else {
                pending.push_back((line, tick, news));
            }
        }
        self.forks.guest.pending = pending;
    }

    fn answer_question(&mut self, question: ForkQuestion) -> Result<(), PeerError> {
        let (line, tick) = (line_of(question.line)?, Tick(question.tick));
        let pinned = self.forks.guest.pinned[usize::from(line == Timeline::Lockstep)].as_ref().filter(|s| s.tick == tick);
        let state = pinned.or_else(|| self.forks.line(line).state(tick));
        let answer = state.map_or(ForkAnswer::Gone, |state| answer(state, question.ask));
        #[cfg(test)]
        let answer = match &self.forks.guest.lies {
            Lies { silent: true, .. } => return Ok(()),
            lies => lies.answer.clone().unwrap_or(answer),
        };
        if let Some(link) = self.links.first_mut() {
            // a host that cannot take it is found out at the next send
            let _ = link.post_control(&Control::Fork(Fork::Answer(answer)));
        }
        Ok(())
    }
}

fn answer(state: &State, ask: ForkAsk) -> ForkAnswer {
    let is_part = |part: u8| usize::from(part) < state.part_count();
    match ask {
        ForkAsk::Sums => ForkAnswer::Sums(state.sums()),
        ForkAsk::Classes { part } if is_part(part) => ForkAnswer::Classes(state.classes(part.into())),
        ForkAsk::Rows { part, class } if is_part(part) && usize::from(class) < limits::FORK_CLASSES => {
            ForkAnswer::Rows(state.class_rows(part.into(), class.into()))
        }
        ForkAsk::Value { part, net } if is_part(part) => match state.value(part.into(), NetId(net)) {
            Some(bytes) if bytes.len() > limits::FORK_VALUE_BYTES => ForkAnswer::TooLong,
            bytes => ForkAnswer::Value(bytes.map(|bytes| bytes.into_owned())),
        },
        _ => ForkAnswer::Gone,
    }
}
