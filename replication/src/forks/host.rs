//! The host's part: it compares digests, and tells everybody of a fork.

use super::line_of;
use super::locate::Descent;
use crate::config::OnFork;
use crate::link::Link;
use crate::news::News;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use hecs::World;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::control::Control;
use tidelock_netcore::error::{DisconnectReason, PeerError};
use tidelock_netcore::forks::{Fork, ForkFound, StateDigest};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// The host's own digest of a tick.
#[derive(Clone, Copy)]
struct Sum {
    tick: Tick,
    digest: u64,
    /// It begins a round, and ends it.
    first: bool,
    last: bool,
}

#[derive(Default)]
pub(super) struct HostForks {
    sums: [VecDeque<Sum>; 2],
    /// Forks that are not told yet.
    cases: Vec<Case>,
    /// The first of them is on.
    pub(super) descents: VecDeque<Descent>,
}

/// Some differ after a tick, and others have not said yet whether they do.
struct Case {
    line: Timeline,
    tick: Tick,
    digest: u64,
    peers: Vec<(PeerId, u64)>,
    opened: Duration,
    state: Option<std::sync::Arc<super::State>>,
}

/// What a host knows of one guest's states.
#[derive(Default)]
pub(crate) struct LinkForks {
    lines: [LinkLine; 2],
    /// Digests of ticks that the host knows nothing of.
    unknown: usize,
    /// Questions that were not answered yet.
    pub(super) questions: u32,
    /// It is removed then.
    pub(super) leaves: Option<Duration>,
}

#[derive(Default)]
struct LinkLine {
    /// The last tick of which a digest came.
    heard: Option<Tick>,
    /// It differs, and that was told or is about to be.
    forked: bool,
    /// Nothing has differed in this round so far.
    clean: bool,
    reported: Option<Duration>,
}

fn index(line: Timeline) -> usize {
    usize::from(line == Timeline::Lockstep)
}

impl HostForks {
    pub(super) fn note(&mut self, line: Timeline, tick: Tick, digest: u64, first: bool, last: bool) {
        let sums = &mut self.sums[index(line)];
        if sums.len() == limits::DIGESTS {
            sums.pop_front();
        }
        sums.push_back(Sum { tick, digest, first, last });
    }
}

impl LinkForks {
    /// A digest came; `true`: it is a fork that is to be told.
    fn compare(&mut self, line: Timeline, sum: Sum, digest: u64, now: Duration) -> bool {
        let of = &mut self.lines[index(line)];
        of.clean |= sum.first;
        let may_tell = of.reported.is_none_or(|at| now >= at + limits::FORK_COOLDOWN);
        if digest != sum.digest {
            of.clean = false;
            let tell = !of.forked && may_tell;
            if tell {
                (of.forked, of.reported) = (true, Some(now));
            }
            return tell;
        }
        // all of it is equal again, however that came
        of.forked &= !(sum.last && of.clean && may_tell);
        false
    }

    /// Will its digest of that tick come, as far as is known?
    fn is_awaited(&self, line: Timeline, tick: Tick) -> bool {
        self.lines[index(line)].heard.is_some_and(|heard| heard < tick)
    }
}

impl Peer {
    /// Host: a guest's word about forks.
    pub(crate) fn guest_says_of_fork(&mut self, index: usize, fork: &Fork) -> Result<(), PeerError> {
        match fork {
            Fork::Digest(digest) => self.hear_state_digest(index, *digest),
            Fork::Answer(answer) => self.hear_fork_answer(index, answer),
            Fork::Found(_) | Fork::Question(_) | Fork::Located(_) => Ok(()),
        }
    }

    fn hear_state_digest(&mut self, at: usize, word: StateDigest) -> Result<(), PeerError> {
        let (line, tick, now) = (line_of(word.line)?, Tick(word.tick), self.time.now);
        let link = &mut self.links[at];
        let (peer, of) = (link.peer, &mut link.forks);
        let heard = &mut of.lines[index(line)].heard;
        if heard.is_some_and(|heard| tick <= heard) {
            return Err(PeerError::OutOfOrder("a digest of a tick before the last one"));
        }
        let sums = &self.forks.host.sums[index(line)];
        let Ok(found) = sums.binary_search_by_key(&tick, |sum| sum.tick) else {
            // very late, or ahead of a host whose game has left steps for later; in the long run neither
            of.unknown += 1;
            let most = of.unknown <= limits::DIGESTS;
            return if most { Ok(()) } else { Err(PeerError::OverLimit { what: "digests that nobody asked for" }) };
        };
        *heard = Some(tick);
        let sum = sums[found];
        if !of.compare(line, sum, word.digest, now) {
            return Ok(());
        }
        let cases = &mut self.forks.host.cases;
        match cases.iter_mut().find(|case| case.line == line && case.tick == tick) {
            Some(case) => case.peers.push((peer, word.digest)),
            None => {
                let state = self.forks.lines[index(line)].state(tick).cloned();
                let peers = vec![(peer, word.digest)];
                self.forks.host.cases.push(Case { line, tick, digest: sum.digest, peers, opened: now, state });
            }
        }
        Ok(())
    }

    /// Host: tells forks of which all that takes part has been heard, goes on with finding out what differs, and removes whom it is
    /// to remove.
    pub(crate) fn settle_forks(&mut self, world: &mut World) {
        if !self.is_host() || !self.schema.has_computed() {
            return;
        }
        let now = self.time.now;
        let mut cases = std::mem::take(&mut self.forks.host.cases);
        cases.retain_mut(|case| {
            let awaited = |link: &Link| link.forks.is_awaited(case.line, case.tick);
            let waits = now < case.opened + limits::FORK_WAIT && self.links.iter().any(awaited);
            if !waits {
                self.tell_case(case);
            }
            waits
        });
        self.forks.host.cases = cases;
        self.descend();
        while let Some(at) = self.links.iter().position(|link| link.forks.leaves.is_some_and(|at| now >= at)) {
            let why = DisconnectReason::Kicked("its state is not that of the session".into());
            self.remove_guest(world, at, why, true);
        }
    }

    fn tell_case(&mut self, case: &mut Case) {
        let (line, tick, digest) = (case.line, case.tick, case.digest);
        case.peers.sort_unstable();
        let peers = case.peers.iter().map(|(peer, digest)| (peer.0, *digest)).collect();
        let word = Control::Fork(Fork::Found(ForkFound { line: line as u8, tick: tick.0, digest, peers }));
        for link in &mut self.links {
            // a peer that cannot take it is found out at the next send
            let _ = link.post_control(&word);
        }
        self.news.push(News::Forked { line, tick, peers: case.peers.clone(), host_digest: digest });
        for (peer, _) in &case.peers {
            match &case.state {
                Some(state) if self.forks.host.descents.len() < limits::FORK_DESCENTS => {
                    self.forks.host.descents.push_back(Descent::new(*peer, line, state.clone()));
                }
                _ => self.fork_is_done(*peer),
            }
        }
    }

    /// Nothing more is found out about a guest's fork.
    pub(super) fn fork_is_done(&mut self, peer: PeerId) {
        let (now, removes) = (self.time.now, self.config.on_fork == OnFork::Remove);
        if let Some(link) = self.links.iter_mut().find(|link| link.peer == peer && removes) {
            link.forks.leaves.get_or_insert(now + limits::FORK_FAREWELL);
        }
    }
}
