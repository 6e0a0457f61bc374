//! The two roles, each driven frame by frame: the same in one process and across processes.

use crate::bots::{Bot, Pilot, Side};
use crate::failure::Failure;
use crate::game::{Agreed, Finish, Pose, Rally, TrailPart, referee, schema};
use crate::gauge::{Raw, View};
use crate::rules;
use crate::trail::{Comparison, Corrected, Trail};
use hecs::{Entity, World};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use tidelock::netcore::error::DisconnectReason;
use tidelock::netcore::transport::Transport;
use tidelock::policy::Timeline;
use tidelock::{Config, News, Peer, PeerId, PeerStats, To, UsageError};

/// Between two comparisons, at least.
const COMPARE: Duration = Duration::from_millis(250);
/// A verdict that has not come after this is asked for again.
const COMPARE_AGAIN: Duration = Duration::from_secs(2);
/// How long the worlds may take to become equal when changes have stopped.
pub(crate) const SETTLE: Duration = Duration::from_secs(30);

/// Ticks after which the relic goes from hand to hand.
const PASS_ON: u64 = 120;

/// What a role is made from.
#[derive(Clone)]
pub(crate) struct Setup {
    /// Entities that this peer keeps.
    pub(crate) share: usize,
    /// Units of the crowd, if this peer is the host.
    pub(crate) units: u32,
    /// The bots' choices come from it.
    pub(crate) seed: u64,
    /// See [`Config::send_every`].
    pub(crate) send_every: u32,
    /// How long nothing may be heard of the other side.
    pub(crate) time_out: Duration,
}

impl Setup {
    fn config(&self, name: &str) -> Config {
        // bots cheat more often than people would be allowed to
        let refusals = 1_000_000;
        let (send_every, time_out) = (self.send_every, self.time_out);
        Config { name: name.into(), guests: 255, refusals, send_every, time_out, ..Config::default() }
    }
}

/// How far a host's game is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not enough guests are in.
    Gathering,
    /// The game runs.
    Playing {
        /// When it began.
        since: Duration,
    },
    /// Changes have stopped, the worlds are compared.
    Settling {
        /// When they stopped.
        since: Duration,
        /// When the guests were last asked.
        asked: Option<Duration>,
    },
    /// It is over.
    Over,
}

/// A link as it was when last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// What was counted.
    pub(crate) stats: PeerStats,
    /// For how long.
    pub(crate) time: Duration,
    since: Duration,
}

impl Seen {
    /// Looks again, or for the first time.
    fn look(&mut self, stats: PeerStats, now: Duration) {
        if self.stats == PeerStats::default() {
            self.since = now;
        }
        self.stats = stats;
        self.time = now - self.since;
    }
}

/// Seconds that are never over.
pub(crate) const FOREVER: u32 = u32::MAX;

/// The host: it runs the game for some seconds once enough guests are in, then has the worlds compared.
pub(crate) struct Host {
    /// Its end of the session.
    pub(crate) peer: Peer,
    pub(crate) world: World,
    bot: Bot,
    /// How far it is.
    pub(crate) phase: Phase,
    wanted: usize,
    seconds: u32,
    /// Ticks played.
    pub(crate) ticks: u64,
    /// The changes, as plain structs.
    pub(crate) raw: Raw,
    send_every: u32,
    /// By guest: does it hold the same world?
    pub(crate) verdicts: BTreeMap<PeerId, Vec<String>>,
    /// By guest, those that have left too: its link while the game was on.
    pub(crate) links: BTreeMap<PeerId, Seen>,
    equal: bool,
    played: Duration,
    /// Things to be told to a person.
    pub(crate) remarks: Vec<String>,
    pilot: Pilot,
    /// How often the relic was passed on.
    turn: u64,
    /// What the computed timelines were, tick by tick.
    pub(crate) trail: Trail,
    /// What of it has not been sent to all yet.
    parts: VecDeque<TrailPart>,
    /// By guest: how its own trail compares.
    pub(crate) agreed: BTreeMap<PeerId, Agreed>,
}

impl Host {
    /// A host that plays for `seconds` from when `wanted` guests are in.
    ///
    /// # Errors
    /// None in a correct program.
    pub(crate) fn new(transport: impl Transport + 'static, setup: &Setup, wanted: usize, seconds: u32) -> Result<Self, Failure> {
        let (mut peer, mut world) = (Peer::host(schema()?, transport, setup.config("host"))?, World::new());
        rules::set_up(&mut peer, &mut world, setup.units)?;
        Ok(Self {
            peer,
            world,
            pilot: Pilot::new(setup.seed),
            turn: 0,
            trail: Trail::default(),
            parts: VecDeque::new(),
            agreed: BTreeMap::new(),
            bot: Bot::new(Side::Host, setup.share, setup.seed),
            phase: Phase::Gathering,
            wanted,
            seconds,
            ticks: 0,
            raw: Raw::default(),
            send_every: setup.send_every,
            verdicts: BTreeMap::new(),
            links: BTreeMap::new(),
            equal: false,
            played: Duration::ZERO,
            remarks: Vec::new(),
        })
    }

    /// One frame.
    ///
    /// # Errors
    /// None in a correct program.
    pub(crate) fn frame(&mut self, now: Duration) -> Result<(), Failure> {
        self.peer.receive(now, &mut self.world)?;
        self.hear_news()?;
        let playing = matches!(self.phase, Phase::Gathering | Phase::Playing { .. });
        self.pilot.frame(&mut self.peer, &self.world, playing)?;
        while let Some(mut step) = self.peer.next_step(&mut self.world) {
            rules::run(&mut self.world, &mut step, &mut self.trail)?;
            if playing && step.timeline() == Timeline::Session {
                let tick = step.tick().0;
                self.bot.step(&mut self.world, &mut step)?;
                rules::carry(&self.world, &step);
                referee(step.peer(), &mut self.world, tick)?;
                if let Phase::Playing { .. } = self.phase {
                    self.ticks += 1;
                    if tick.is_multiple_of(self.send_every.into()) {
                        self.raw.note(&self.world);
                    }
                }
            }
        }
        if playing {
            self.pass_on()?;
            self.look_at_links(now);
        }
        self.tell_trail()?;
        self.go_on(now)?;
        Ok(self.peer.send(now, &mut self.world)?)
    }

    /// The relic goes on from guest to guest.
    fn pass_on(&mut self) -> Result<(), Failure> {
        let turn = self.peer.tick().0 / PASS_ON;
        if turn != self.turn {
            self.turn = turn;
            let guests = self.guests();
            rules::pass_on(&mut self.peer, &mut self.world, &guests, turn)?;
        }
        Ok(())
    }

    /// After the game: the next pieces of what was computed go out, and guests tell how they compare.
    fn tell_trail(&mut self) -> Result<(), Failure> {
        while let Some(part) = self.parts.front() {
            match self.peer.send_message(&self.world, To::All, part) {
                Ok(()) => drop(self.parts.pop_front()),
                // again in a later frame; who has got it does not mind
                Err(UsageError::Backlog) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.agreed.extend(self.peer.messages::<Agreed>()?);
        Ok(())
    }

    fn hear_news(&mut self) -> Result<(), Failure> {
        while let Some(news) = self.peer.poll_news() {
            match news {
                News::Compared { peer, differing } => drop(self.verdicts.insert(peer, differing)),
                News::Joined { peer, name } => {
                    rules::welcome(&mut self.peer, &mut self.world, peer)?;
                    self.remarks.push(format!("{peer} ({name}) has joined"));
                }
                News::Left { peer, reason } => self.remarks.push(format!("{peer} has left: {reason}")),
                News::Misbehaved { peer, error } => self.remarks.push(format!("{peer} broke the protocol: {error}")),
                _ => {}
            }
        }
        Ok(())
    }

    /// From phase to phase.
    fn go_on(&mut self, now: Duration) -> Result<(), Failure> {
        let guests = self.guests().len();
        match self.phase {
            Phase::Gathering if guests >= self.wanted => self.phase = Phase::Playing { since: now },
            Phase::Playing { since } if now >= since + Duration::from_secs(self.seconds.into()) && guests > 0 => {
                self.played = now - since;
                self.peer.send_message(&self.world, To::All, &Finish { seconds: self.seconds })?;
                self.parts = self.trail.parts();
                self.phase = Phase::Settling { since: now, asked: None };
            }
            Phase::Settling { since, asked } => {
                let all = self.guests().iter().all(|guest| self.verdicts.contains_key(guest));
                let due = asked.is_none_or(|at| now >= at + if all { COMPARE } else { COMPARE_AGAIN });
                if (asked.is_some() && self.is_equal()) || now >= since + SETTLE {
                    self.equal = self.is_equal();
                    self.phase = Phase::Over;
                } else if due {
                    self.verdicts.clear();
                    self.peer.compare(&self.world)?;
                    self.phase = Phase::Settling { since, asked: Some(now) };
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The guests that are in.
    pub(crate) fn guests(&self) -> Vec<PeerId> {
        self.peer.peers().iter().map(|p| p.peer).filter(|p| *p != PeerId::HOST).collect()
    }

    /// Did every guest that is in find its world equal to the host's, when last asked?
    pub(crate) fn is_equal(&self) -> bool {
        let guests = self.guests();
        let agrees = |guest| self.agreed.get(guest).is_some_and(|agreed| agreed.differing == 0) && self.lost_orders() == 0;
        let equal = |guest| self.verdicts.get(guest).is_some_and(Vec::is_empty);
        !guests.is_empty() && guests.iter().all(|guest| equal(guest) && agrees(guest))
    }

    /// Orders that guests gave and that never took effect, of guests that have told how many they gave.
    pub(crate) fn lost_orders(&self) -> u64 {
        let lost = |(guest, agreed): (&PeerId, &Agreed)| u64::from(agreed.orders.saturating_sub(self.trail.orders_of(*guest)));
        self.agreed.iter().map(lost).sum()
    }

    /// Keeps what is counted of each link, since a link that has ended has no figures.
    fn look_at_links(&mut self, now: Duration) {
        for guest in self.guests() {
            if let Some(stats) = self.peer.stats(guest) {
                self.links.entry(guest).or_default().look(stats, now);
            }
        }
    }

    /// Crates and drones that there are now.
    pub(crate) fn entities(&self) -> usize {
        self.peer.entity_count()
    }

    /// How long the game was, once it is over.
    pub(crate) fn played(&self) -> Duration {
        self.played
    }

    /// The host's own judgement of a run that is over.
    ///
    /// # Errors
    /// [`Failure::NotEqual`].
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        if self.equal {
            return Ok(());
        }
        let differing = |v: &(&PeerId, &Vec<String>)| !v.1.is_empty();
        let mut told: Vec<String> =
            self.verdicts.iter().filter(differing).map(|(p, d)| format!("{p}: {}", d.join(", "))).collect();
        told.extend(self.agreed.iter().filter(|a| a.1.differing > 0).map(|(p, a)| format!("{p}: {} ticks", a.differing)));
        if self.lost_orders() > 0 {
            told.push(format!("{} orders were lost", self.lost_orders()));
        }
        Err(Failure::NotEqual(if told.is_empty() { "not every guest has answered".into() } else { told.join("; ") }))
    }

    /// How long the game still is; `None` while it does not run, or if nobody has said.
    pub(crate) fn left(&self, now: Duration) -> Option<Duration> {
        let Phase::Playing { since } = self.phase else { return None };
        (self.seconds != FOREVER).then(|| (since + Duration::from_secs(self.seconds.into())).saturating_sub(now))
    }

    /// Ends the game that runs, if one does: in the next frame the comparison begins.
    pub(crate) fn end_game(&mut self, now: Duration) {
        if let Phase::Playing { since } = self.phase {
            self.seconds = self.seconds.min((now - since).as_secs() as u32);
        }
    }

    /// Ends the session for all.
    pub(crate) fn end(&mut self) {
        self.peer.disconnect(&mut self.world, DisconnectReason::HostLeft);
    }
}

/// A guest: it plays until the host says that the game is over.
pub(crate) struct Guest {
    /// What it is called.
    pub(crate) name: String,
    /// Its end of the session.
    pub(crate) peer: Peer,
    pub(crate) world: World,
    bot: Bot,
    /// The host has ended the game.
    pub(crate) finished: bool,
    /// What differed from the host's world when last compared.
    verdict: Option<Vec<String>>,
    ended: Option<DisconnectReason>,
    /// What it has seen.
    pub(crate) view: View,
    /// Its link, when last looked at while the game was on.
    pub(crate) link: Seen,
    /// How far in the past it draws others, when last looked at.
    pub(crate) delay: Duration,
    /// Ticks played.
    pub(crate) ticks: u64,
    written: HashMap<Entity, Pose>,
    /// Steers, and gives orders.
    pub(crate) pilot: Pilot,
    /// What the computed timelines were, tick by tick.
    pub(crate) trail: Trail,
    /// How that compares with the host's.
    pub(crate) comparison: Comparison,
    /// What was predicted and did not come true.
    pub(crate) corrected: Corrected,
}

impl Guest {
    /// A guest that joins over `transport`.
    ///
    /// # Errors
    /// None in a correct program.
    pub(crate) fn new(transport: impl Transport + 'static, setup: &Setup, name: &str) -> Result<Self, Failure> {
        Ok(Self {
            name: name.into(),
            peer: Peer::join(schema()?, transport, setup.config(name))?,
            world: World::new(),
            bot: Bot::new(Side::Guest, setup.share, setup.seed),
            finished: false,
            verdict: None,
            ended: None,
            view: View::default(),
            link: Seen::default(),
            delay: Duration::ZERO,
            ticks: 0,
            written: HashMap::new(),
            pilot: Pilot::new(setup.seed),
            trail: Trail::default(),
            comparison: Comparison::default(),
            corrected: Corrected::default(),
        })
    }

    /// One frame.
    ///
    /// # Errors
    /// None in a correct program.
    pub(crate) fn frame(&mut self, now: Duration) -> Result<(), Failure> {
        if self.ended.is_some() {
            return Ok(());
        }
        self.peer.receive(now, &mut self.world)?;
        self.count_corrections();
        self.hear_news();
        if self.ended.is_some() {
            return Ok(());
        }
        self.finished |= !self.peer.messages::<Finish>()?.is_empty();
        self.pilot.frame(&mut self.peer, &self.world, !self.finished)?;
        while let Some(mut step) = self.peer.next_step(&mut self.world) {
            rules::run(&mut self.world, &mut step, &mut self.trail)?;
            // a bot's decision is not taken again when the tick is run again
            if !self.finished && step.timeline() == Timeline::Session && !step.rerun() {
                self.ticks += 1;
                self.bot.step(&mut self.world, &mut step)?;
                rules::carry(&self.world, &step);
            }
        }
        self.note_written();
        self.compare_trails()?;
        if !self.finished {
            self.corrected.look(&self.peer, now);
            self.view.draw(&self.peer, &self.world, now)?;
            self.look_at_link(now);
        }
        Ok(self.peer.send(now, &mut self.world)?)
    }

    fn hear_news(&mut self) {
        while let Some(news) = self.peer.poll_news() {
            match news {
                News::Compared { differing, .. } => self.verdict = Some(differing),
                News::Disconnected { reason } => self.ended = Some(reason),
                _ => {}
            }
        }
    }

    /// Compares what this guest computed with what the host did, and tells it.
    fn compare_trails(&mut self) -> Result<(), Failure> {
        for (_, part) in self.peer.messages::<TrailPart>()? {
            self.comparison.hear(&part);
        }
        // orders that are on their way will be sealed, or are lost: it is for the host to say when they are not there then
        if !self.finished || !self.peer.is_in_session() || self.peer.pending_orders::<Rally>()?.next().is_some() {
            return Ok(());
        }
        if let Some(agreed) = self.comparison.compare(&self.peer, &self.trail, self.pilot.orders) {
            self.peer.send_message(&self.world, To::Host, &agreed)?;
        }
        Ok(())
    }

    /// What this guest wrote and finds changed, the host has put back, unless it has given it to another.
    fn count_corrections(&mut self) {
        for (entity, before) in &self.written {
            let changed = self.world.get::<&Pose>(*entity).is_ok_and(|now| *now != *before);
            self.view.corrections += u64::from(changed && self.peer.has_authority::<Pose>(&self.world, *entity));
        }
    }

    fn note_written(&mut self) {
        self.written.clear();
        for (entity, pose) in self.world.query::<(Entity, &Pose)>().iter() {
            if self.peer.has_authority::<Pose>(&self.world, entity) {
                self.written.insert(entity, *pose);
            }
        }
    }

    fn look_at_link(&mut self, now: Duration) {
        if let Some(link) = self.peer.stats(PeerId::HOST) {
            self.link.look(link, now);
            self.delay = self.peer.interpolation_delay();
        }
    }

    /// Goes away, and says so.
    pub(crate) fn leave(&mut self) {
        self.peer.disconnect(&mut self.world, DisconnectReason::Left);
    }

    /// Is it in the session, or was it?
    pub(crate) fn was_in(&self) -> bool {
        self.view.since.is_some()
    }

    /// What this guest found when its world was compared with the host's after the game.
    ///
    /// # Errors
    /// [`Failure::Differs`]; [`Failure::NotCompared`].
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        let Some(agreed) = &self.comparison.result else { return Err(Failure::NotCompared) };
        if agreed.differing > 0 {
            return Err(Failure::Diverged(agreed.differing));
        }
        match &self.verdict {
            Some(differing) if self.finished && differing.is_empty() => Ok(()),
            Some(differing) if self.finished => Err(Failure::Differs(differing.join(", "))),
            _ => Err(Failure::NotCompared),
        }
    }

    /// Once the session is over: how did it end for this guest?
    pub(crate) fn outcome(&self) -> Option<Result<(), Failure>> {
        let reason = self.ended.clone()?;
        Some(match self.verdict() {
            // once the worlds were compared, it does not matter any more how the session ended
            Err(Failure::NotCompared) if self.was_in() => Err(Failure::Lost(reason)),
            Err(Failure::NotCompared) => Err(Failure::NotAdmitted(reason)),
            verdict => verdict,
        })
    }
}

#[cfg(test)]
mod tests;
