//! Dead reckoning: what one aims at or dodges, drawn where it is by now instead of where it was.
//!
//! What has arrived of a row until some moment makes a **track**: the newest value, carried on with the motion that led to it. Each
//! arrival makes another track. What is drawn is the mean of the tracks of the last stretch of time ([`Interpolation::ease`]), each
//! as long as it was the newest: so a new track comes in bit by bit, and is all there is when that time has passed. Nothing is kept
//! per entity: tracks are read from the samples that are kept anyway.
//!
//! [`Interpolation::ease`]: crate::Interpolation::ease

use crate::column::Reader;
use crate::entities::Record;
use crate::history::{History, Mark};
use crate::incoming::Incoming;
use crate::peer::Peer;
use crate::presence::Presence;
use crate::present::{Moment, session_ticks};
use crate::replicate::Restorer;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::tick::Tick;

/// Arrivals within the time of easing that make a track of their own; more are taken together.
const TRACKS: u32 = 8;
/// What is not all of it: where a blend keeps `from`, it must not reach `to`.
const NEARLY: f32 = 1.0 - 1e-6;

/// What had arrived at some time.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Duration,
    /// The newest send tick.
    send: Tick,
    /// All changes up to this session tick had been sent. What was lost of them cannot be known yet; but what goes on moving is in
    /// every send, so what is not in the last ones has come to rest.
    told: Tick,
}

/// When what had arrived, as far back as it is asked for.
#[derive(Default)]
pub(crate) struct Arrivals {
    log: VecDeque<Heard>,
}

impl Arrivals {
    /// Notes what has arrived by `now`; forgets what is older than `ease`, but for the last of that.
    pub(crate) fn note(&mut self, now: Duration, send: Tick, told: Tick, ease: Duration) {
        let is_new = |last: &Heard| (last.send, last.told) != (send, told) && now >= last.at + ease / TRACKS;
        if self.log.back().is_none_or(is_new) {
            self.log.push_back(Heard { at: now, send, told });
        }
        while self.log.get(1).is_some_and(|second| second.at + ease <= now) {
            self.log.pop_front();
        }
    }

    /// What had arrived, each with how long it was the newest within the last `ease`, and how long it has not been the newest any
    /// more, both in seconds; the oldest first.
    fn weighted(&self, now: Duration, ease: Duration) -> impl Iterator<Item = (Heard, f32, f32)> + '_ {
        let begin = now.saturating_sub(ease);
        self.log.iter().enumerate().map(move |(i, heard)| {
            // before the first there was nothing: it stands for that, too
            let from = if i == 0 { begin } else { heard.at.max(begin) };
            let until = self.log.get(i + 1).map_or(now, |next| next.at);
            (*heard, until.saturating_sub(from).as_secs_f32(), now.saturating_sub(until).as_secs_f32())
        })
    }
}

/// What a row's component is reckoned from.
struct Row<'a, C> {
    peer: &'a Peer,
    incoming: &'a Incoming,
    reader: &'a Reader<C>,
    row: usize,
    c: usize,
    /// What is drawn.
    moment: Moment,
    /// The last teleport that is known.
    cut: Tick,
    /// Ticks from which the motion is taken.
    span: u64,
    /// By how many ticks more than usual it is told less often.
    lag: u64,
}

impl Peer {
    /// The moment at which extrapolated things are drawn: now, or where this peer's ticks run ahead, the time that those are at.
    pub(crate) fn reckoned_moment(&self, now: Duration) -> Moment {
        let time = self.session_at(now).unwrap_or_default() + self.lead().unwrap_or_default();
        let (tick, part) = session_ticks(time, self.config.tick_rate);
        Moment { tick, part }
    }

    /// Notes what has arrived, if it is asked for; once per frame.
    pub(crate) fn note_arrivals(&mut self) {
        if !self.schema.components.iter().any(|c| c.reckoned) {
            return;
        }
        let (now, ease) = (self.time.now, self.config.interpolation.ease);
        for link in &mut self.links {
            let (send, told) = (link.incoming.mirror.now(), link.incoming.sent_up_to());
            link.incoming.arrivals.note(now, send, told, ease);
        }
    }

    /// The value of an extrapolated component to draw at a moment, in our own time as well, unless it is the world's own.
    pub(crate) fn reckoned<C: Clone>(&self, record: &Record, c: usize, reader: &Reader<C>, at: (Moment, Duration)) -> Option<C> {
        let (incoming, row) = self.source(record, c)?;
        let (moment, now) = at;
        let rate = self.config.tick_rate;
        let ease = self.config.interpolation.ease;
        let span = (ease.as_secs_f32() * rate as f32).round() as u64;
        let span = span.max(incoming.interval()).max(1);
        let cut = last_cut(&incoming.mirror, row, self.schema.components.len(), self.schema.slots);
        let lag = incoming.lag(c, row);
        let row = Row { peer: self, incoming, reader, row, c, moment, cut, span, lag };
        if incoming.mirror.newest_change(c, row.row).is_none() {
            return row.value(incoming.mirror.value(c, row.row));
        }
        let mut mean: Option<(C, f32)> = None;
        for (heard, weight, past) in incoming.arrivals.weighted(now, ease) {
            let Some(track) = row.track(heard, past) else { continue };
            mean = Some(match mean.take() {
                None => (track, weight),
                Some((before, sum)) if weight > 0.0 => {
                    let part = (sum / (sum + weight)).min(NEARLY);
                    ((reader.blend.as_ref()?)(&track, &before, part), sum + weight)
                }
                Some(before) => before,
            });
        }
        match mean {
            Some((value, _)) => Some(value),
            // it has just come, or jumped
            None => row.value(incoming.mirror.value(c, row.row)),
        }
    }
}

/// The sample tick of the last teleport in a row that the ring remembers.
fn last_cut(mirror: &History, row: usize, components: usize, slots: usize) -> Tick {
    let cut = |words: &[u32]| Presence::read(words, components, slots).cut;
    let mut samples = mirror.samples(0, row, mirror.now());
    let Some((mut mark, mut later)) = samples.next().map(|s| (s.mark, cut(s.words))) else { return Tick::ZERO };
    for sample in samples {
        let earlier = cut(sample.words);
        if earlier != later {
            return mark.map_or(Tick::ZERO, |m| m.sample);
        }
        (mark, later) = (sample.mark, earlier);
    }
    Tick::ZERO
}

impl<C> Row<'_, C> {
    fn value(&self, words: &[u32]) -> Option<C> {
        let entities = |net| self.peer.entities.entity_of(net);
        (self.reader.restore)(&mut Restorer::new(words, &entities)).ok()
    }

    /// Where it is by what had arrived then, and has not been the newest for `past` seconds. `None` if that was from before a
    /// teleport, or nothing.
    fn track(&self, heard: Heard, past: f32) -> Option<C> {
        let mut samples = self.incoming.mirror.samples(self.c, self.row, heard.send);
        let newest = samples.next()?;
        let newest_mark = newest.mark.unwrap_or(Mark::at(Tick::ZERO));
        let end = newest_mark.sample;
        if end < self.cut {
            return None;
        }
        // it has not changed since, as far as it was told: what comes from further away is told later
        let age = self.incoming.age(newest.send, end) + self.lag;
        let known = heard.told.minus(age).max(end);
        let target = known.minus(self.span).max(self.cut);
        let (mut start, mut from) = (end, newest.words);
        let (mut later, mut gap) = (newest_mark, self.incoming.interval() + self.lag);
        // the sample in whose place motion began, or the value that held at `target`
        while start > target && !later.first {
            let Some(sample) = samples.next() else { break };
            let at = sample.mark.map_or(Tick::ZERO, |m| m.sample);
            if at < self.cut {
                break;
            }
            let held_until = later.sample.minus(self.incoming.interval());
            let rested = later.rested || sample.mark.is_none();
            // while it rested its value held, until one send before the next
            let at = if rested { at.max(target.min(held_until)) } else { at };
            (start, from) = (at, sample.words);
            let Some(mark) = sample.mark else { break };
            gap = gap.max(later.sample.since(mark.sample));
            later = mark;
        }
        // it has come to rest if it has not changed for longer than between changes before; what moves so slowly that it does not
        // change in every send may have changed in one that was lost
        let patience = if gap > self.incoming.interval() + self.lag { 2 * gap } else { gap };
        if start >= known || known.since(end) > patience {
            return self.value(newest.words);
        }
        // the bound is on how long nothing else comes: while it fades, a track goes on
        let most = self.peer.config.interpolation.reckon.as_secs_f32() + past;
        let most = most * self.peer.config.tick_rate as f32;
        let ahead = self.moment.since(known).min(most);
        let t = (1.0 + ahead / known.since(start) as f32).max(0.0);
        Some((self.reader.blend.as_ref()?)(&self.value(from)?, &self.value(newest.words)?, t))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_weighed_by_how_long_they_were_the_newest() {
        let ms = Duration::from_millis;
        let mut arrivals = Arrivals::default();
        for (i, at) in [0, 5, 50, 100, 150, 200].into_iter().enumerate() {
            arrivals.note(ms(at), Tick(i as u64), Tick(0), ms(100));
        }
        // what came 5 ms after another is taken together with what comes next
        let weights: Vec<_> = arrivals
            .weighted(ms(220), ms(100))
            .map(|(h, w, past)| (h.send.0, (w * 1000.0).round(), (past * 1000.0).round()))
            .collect();
        assert_eq!(weights, [(3, 30.0, 70.0), (4, 50.0, 20.0), (5, 20.0, 0.0)]);
        // it stays the newest as long as nothing else comes
        arrivals.note(ms(400), Tick(5), Tick(0), ms(100));
        let weights: Vec<_> = arrivals.weighted(ms(400), ms(100)).map(|(h, w, _)| (h.send.0, (w * 1000.0).round())).collect();
        assert_eq!(weights, [(5, 100.0)]);
        for i in 0..1000 {
            arrivals.note(ms(500 + i), Tick(10 + i), Tick(0), ms(100));
            assert!(arrivals.log.len() <= TRACKS as usize + 2, "{}", arrivals.log.len());
        }
    }
}
