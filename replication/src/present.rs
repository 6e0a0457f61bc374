//! What to draw: interpolated between two samples, a little behind the session's clock; past the newest one, held or carried on
//! for a moment. The world's own values are never touched.

use crate::column::Reader;
use crate::entities::Record;
use crate::error::UsageError;
use crate::history::{History, Sample};
use crate::incoming::Incoming;
use crate::input::drawn::{UNITS, UNTOLD};
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::Apply;
use crate::predict::shift;
use crate::presence::Presence;
use crate::replicate::Restorer;
use hecs::{Component, Entity, World};
use std::time::Duration;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// The tick at a time of the session, and how much of the next one has passed (0 to 1).
pub(crate) fn session_ticks(time: Duration, rate: u32) -> (Tick, f32) {
    let scaled = time.as_nanos() * u128::from(rate);
    let tick = scaled / 1_000_000_000;
    let part = (scaled % 1_000_000_000) as f32 / 1e9;
    (Tick(tick as u64), part)
}

/// How far behind the session's clock to draw, learned from how late samples come.
#[derive(Default)]
pub(crate) struct Pace {
    /// Seconds.
    mean: f32,
    deviation: f32,
    delay: f32,
    samples: u32,
    at: Option<Duration>,
}

/// Part of a second by which the delay may change in a second: faster, and motion would visibly race or crawl.
const DELAY_SLEW: f32 = 0.1;
/// Weight of a new sample of lateness.
const GAIN: f32 = 1.0 / 32.0;
/// Samples until the delay is believed and changes gradually.
const WARM_UP: u32 = 16;

impl Pace {
    /// A sample of `tick` came at session time `now`.
    pub(crate) fn note(&mut self, now: Duration, tick: Tick, rate: u32) {
        let late = (now.as_secs_f64() - tick.0 as f64 / f64::from(rate)).clamp(-1.0, 5.0) as f32;
        if self.samples == 0 {
            self.mean = late;
        }
        self.samples = self.samples.saturating_add(1);
        let gain = GAIN.max(1.0 / self.samples as f32);
        let off = late - self.mean;
        self.mean += off * gain;
        self.deviation += (off.abs() - self.deviation) * gain;
    }

    /// Moves the delay towards what the samples ask for. `interval`: between two sends.
    pub(crate) fn settle(&mut self, now: Duration, interval: Duration, least: Duration, most: Duration) {
        let want = (self.mean + 4.0 * self.deviation + interval.as_secs_f32()).clamp(least.as_secs_f32(), most.as_secs_f32());
        let passed = self.at.map_or(0.0, |at| now.saturating_sub(at).as_secs_f32());
        self.at = Some(now);
        if self.samples < WARM_UP {
            self.delay = want;
        } else {
            let step = passed * DELAY_SLEW;
            self.delay += (want - self.delay).clamp(-step, step);
        }
    }

    pub(crate) fn delay(&self) -> Duration {
        Duration::from_secs_f32(self.delay.max(0.0))
    }
}

/// The moment that is drawn.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) tick: Tick,
    pub(crate) part: f32,
}

impl Moment {
    /// So many ticks before.
    pub(crate) fn earlier(self, ticks: u64) -> Self {
        Self { tick: self.tick.minus(ticks), ..self }
    }

    /// Ticks from `tick` to this moment.
    pub(crate) fn since(self, tick: Tick) -> f32 {
        // whole numbers first: after some days a tick is more than an f32 can hold exactly
        self.tick.0.wrapping_sub(tick.0) as i64 as f32 + self.part
    }
}

impl Peer {
    /// How far behind the session's clock this peer draws what others simulate.
    #[must_use]
    pub fn interpolation_delay(&self) -> Duration {
        self.pace.delay()
    }

    /// What to draw of component `C` at this very moment: for each networked entity that has it, its value there. What this peer
    /// simulates itself is drawn as it is in the world.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], [`UsageError::NotInterpolated`].
    pub fn present<'a, C: Component + Clone>(
        &'a self,
        world: &'a World,
        now: Duration,
    ) -> Result<impl Iterator<Item = (Entity, C)> + 'a, UsageError> {
        let c = self.schema.component_of::<C>().ok_or(UsageError::NotInSchema(std::any::type_name::<C>()))?;
        let reader = self.schema.component(c).column.reader().downcast_ref::<Reader<C>>();
        let reader = reader.ok_or(UsageError::NotInSchema(std::any::type_name::<C>()))?;
        if reader.blend.is_none() {
            return Err(UsageError::NotInterpolated);
        }
        let time = self.session_at(now).unwrap_or_default().saturating_sub(self.pace.delay());
        self.drawn.set(Some(time));
        let (tick, part) = session_ticks(time, self.config.tick_rate);
        let reckoned = self.schema.component(c).reckoned.then(|| (self.reckoned_moment(now), now));
        let moment = Moment { tick, part };
        Ok(self.entities.iter().filter_map(move |(_, record)| {
            let simulated = world.get::<&C>(record.entity).ok()?;
            let told = match reckoned {
                Some(at) => self.reckoned(record, c, reader, at),
                None => self.drawn(record, c, reader, moment),
            };
            if let Some(value) = told {
                return Some((record.entity, value));
            }
            let fades = self.fades::<C>(record, c, now);
            let slides = self.slides.of::<C>(record.net, c, now);
            let ahead = self.preview.value::<C>(record.net, c);
            let value = ahead.unwrap_or(&*simulated).clone();
            Some((
                record.entity,
                match &reader.blend {
                    Some(blend) => shift(value, fades.chain(slides), &**blend),
                    None => value,
                },
            ))
        }))
    }

    /// How far behind a tick that is run what was drawn last is, in the units of the inputs' packets.
    pub(crate) fn behind(&self, step: Tick) -> u32 {
        let Some(drawn) = self.drawn.get() else { return UNTOLD };
        let units = (drawn.as_nanos() * u128::from(self.config.tick_rate * UNITS) + 500_000_000) / 1_000_000_000;
        let behind = (u128::from(step.0) * u128::from(UNITS)).saturating_sub(units);
        u32::try_from(behind).map_or(limits::BEHIND_UNITS, |behind| behind.min(limits::BEHIND_UNITS))
    }

    /// How long ago this peer last knew everything about an entity, on the session's clock. Zero for what it simulates itself.
    /// An entity at rest is as fresh as the last sign that nothing has changed.
    #[must_use]
    pub fn age(&self, world: &World, entity: Entity) -> Option<Duration> {
        let record = self.entities.get(self.entities.slot_at(world, entity)?)?;
        let session = self.time.session?;
        let mut oldest = Duration::ZERO;
        for (peer, row) in record.in_rows.iter() {
            let incoming = &self.link_to(*peer)?.incoming;
            let known = incoming.complete().max(incoming.last_sample(*row as usize));
            let at = Duration::from_secs_f64(known.0 as f64 / f64::from(self.config.tick_rate));
            oldest = oldest.max(session.saturating_sub(at));
        }
        Some(oldest)
    }

    /// Are news of the entity overdue by more than [`Interpolation::stale`](crate::Interpolation::stale)? Then fade it.
    #[must_use]
    pub fn is_stale(&self, world: &World, entity: Entity) -> bool {
        let limit = self.pace.delay() + self.config.interpolation.stale;
        self.age(world, entity).is_some_and(|age| age > limit)
    }

    /// Learns the delay, and notes what has arrived; once per frame.
    pub(crate) fn settle_pace(&mut self) {
        self.note_arrivals();
        let sends = self.links.iter().map(|l| l.incoming.interval()).max().unwrap_or(1) as u32;
        let (least, most) = (self.config.interpolation.least, self.config.interpolation.most);
        self.pace.settle(self.time.now, self.tick_length() * sends, least, most);
    }

    /// The stream and row that a component's samples come from, if another peer has authority over it.
    pub(crate) fn source(&self, record: &Record, c: usize) -> Option<(&Incoming, usize)> {
        if record.mine >> c & 1 != 0 {
            return None;
        }
        let policy = self.schema.policy(record.kind, c);
        let owner = record.owners[policy.slot()].peer;
        if policy.apply(self.facts(owner)) != Apply::Interpolate {
            return None;
        }
        let publisher = if self.is_host() { owner } else { PeerId::HOST };
        Some((&self.link_to(publisher)?.incoming, record.in_row(publisher)?))
    }

    /// The value to draw, unless it is the world's own.
    fn drawn<C>(&self, record: &Record, c: usize, reader: &Reader<C>, moment: Moment) -> Option<C> {
        let (incoming, row) = self.source(record, c)?;
        // what is told less often is drawn so much later that there is a sample after the moment
        let most = self.config.interpolation.most.as_secs_f64() * f64::from(self.config.tick_rate);
        let lag = incoming.lag(c, row).min(most as u64);
        let moment = moment.earlier(lag);
        let mirror = &incoming.mirror;
        let value = |words: &[u32]| {
            let entities = |net| self.entities.entity_of(net);
            (reader.restore)(&mut Restorer::new(words, &entities)).ok()
        };
        let blend = reader.blend.as_ref()?;
        match mirror.bracket(c, row, moment.tick) {
            (Some(before), Some(after)) => {
                let end = after.tick?;
                let start = start_of(before, after, incoming.interval());
                if self.jumps(mirror, row, start, end) || moment.since(start) <= 0.0 {
                    return value(before.words);
                }
                let t = moment.since(start) / end.since(start).max(1) as f32;
                Some(blend(&value(before.words)?, &value(after.words)?, t.min(1.0)))
            }
            (Some(last), None) => self.carried_on(incoming, row, c, last, moment, reader),
            (None, Some(first)) => value(first.words),
            (None, None) => None,
        }
    }

    /// Past the newest sample: at rest if nothing is overdue or a send after it brought no change, else carried on for a moment.
    fn carried_on<C>(
        &self,
        incoming: &Incoming,
        row: usize,
        c: usize,
        last: Sample<'_>,
        moment: Moment,
        reader: &Reader<C>,
    ) -> Option<C> {
        let value = |words: &[u32]| {
            let entities = |net| self.entities.entity_of(net);
            (reader.restore)(&mut Restorer::new(words, &entities)).ok()
        };
        let now = value(last.words);
        let overdue = moment.since(incoming.complete());
        let Some(end) = last.tick.filter(|end| overdue > 0.0 && incoming.complete().since(*end) < incoming.interval()) else {
            return now;
        };
        let mirror = &incoming.mirror;
        let (before, _) = mirror.bracket(c, row, end.minus(1));
        let Some(before) = before else { return now };
        let start = start_of(before, last, incoming.interval());
        if self.jumps(mirror, row, start, end) {
            return now;
        }
        let most = self.config.interpolation.extrapolate.as_secs_f32() * self.config.tick_rate as f32;
        let ahead = moment.since(end).min(most);
        let t = 1.0 + ahead / end.since(start).max(1) as f32;
        Some((reader.blend.as_ref()?)(&value(before.words)?, &now?, t))
    }

    /// Did the entity teleport after `start` and up to `end`?
    pub(crate) fn jumps(&self, mirror: &History, row: usize, start: Tick, end: Tick) -> bool {
        if mirror.newest_change(0, row).is_none() {
            return false;
        }
        let cut = |at: Tick| {
            let (before, after) = mirror.bracket(0, row, at);
            let words = before.or(after).map(|s| s.words)?;
            Some(Presence::read(words, self.schema.components.len(), self.schema.slots).cut)
        };
        cut(start) != cut(end)
    }
}

/// When the motion to `after` began: at the sample before, or, if the row had been at rest, one send before `after`.
fn start_of(before: Sample<'_>, after: Sample<'_>, interval: u64) -> Tick {
    let end = after.tick.unwrap_or_default();
    let rest = end.minus(interval);
    match before.tick {
        Some(tick) if !after.rested => tick,
        Some(tick) => tick.max(rest),
        None => rest,
    }
}
