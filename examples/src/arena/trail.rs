//! What a peer computed, tick by tick, to be compared with what the host computed: rollback and lockstep promise that it is the same
//! in every tick that is certain.

use crate::game::{Agreed, PART, TrailPart};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tidelock::policy::Timeline;
use tidelock::{Cause, Peer, PeerId, Step};

/// Ticks that are kept of each timeline: half a minute at 60 a second.
const KEPT: usize = 1800;
/// For so long a correction's cause may still be told more exactly.
const HINDSIGHT: Duration = Duration::from_millis(200);

/// Hashes by tick.
type Hashes = BTreeMap<u64, u32>;

/// What a peer has computed, and the orders that took effect in it.
#[derive(Default)]
pub(crate) struct Trail {
    rollback: Hashes,
    lockstep: Hashes,
    /// Ticks that were run again, of all timelines.
    pub(crate) reruns: u64,
    /// By guest: orders that took effect.
    orders: BTreeMap<PeerId, u32>,
    /// Orders that took effect twice or out of turn.
    pub(crate) disorder: u32,
}

impl Trail {
    /// A tick was run, perhaps again.
    pub(crate) fn note(&mut self, step: &Step<'_>, state: u64) {
        let hashes = if step.timeline() == Timeline::Lockstep { &mut self.lockstep } else { &mut self.rollback };
        hashes.insert(step.tick().0, (state ^ state >> 32) as u32);
        if hashes.len() > KEPT {
            hashes.pop_first();
        }
    }

    /// An order has taken effect. A guest that has come later has not seen the first ones of others.
    pub(crate) fn sealed(&mut self, peer: PeerId, number: u32) {
        let next = self.orders.entry(peer).or_insert(number);
        self.disorder += u32::from(*next != number);
        *next = number + 1;
    }

    /// Orders of that guest that took effect; all of them were seen by the host, and by the guest itself.
    pub(crate) fn orders_of(&self, peer: PeerId) -> u32 {
        self.orders.get(&peer).copied().unwrap_or(0)
    }

    /// Host: everything up to now, in pieces that fit a message. After them nothing is kept for the comparison.
    pub(crate) fn parts(&self) -> VecDeque<TrailPart> {
        let mut parts = VecDeque::new();
        for (lockstep, hashes) in [(false, &self.rollback), (true, &self.lockstep)] {
            let empty = TrailPart { lockstep, last: false, first: 0, count: 0, hashes: [0; PART] };
            let mut part = empty.clone();
            for (tick, hash) in hashes {
                // ticks that the host left out are missing
                if part.count > 0 && (usize::from(part.count) == PART || part.first + u64::from(part.count) != *tick) {
                    parts.push_back(std::mem::replace(&mut part, empty.clone()));
                }
                if part.count == 0 {
                    part.first = *tick;
                }
                part.hashes[usize::from(part.count)] = *hash;
                part.count += 1;
            }
            parts.push_back(TrailPart { last: true, ..part });
        }
        parts
    }
}

/// A guest's comparison of its trail with the host's.
#[derive(Default)]
pub(crate) struct Comparison {
    rollback: Hashes,
    lockstep: Hashes,
    complete: [bool; 2],
    /// What came of it.
    pub(crate) result: Option<Agreed>,
}

impl Comparison {
    /// A piece of the host's trail has come.
    pub(crate) fn hear(&mut self, part: &TrailPart) {
        let hashes = if part.lockstep { &mut self.lockstep } else { &mut self.rollback };
        let known = part.hashes.iter().take(part.count.into());
        hashes.extend(known.enumerate().map(|(i, hash)| (part.first.saturating_add(i as u64), *hash)));
        self.complete[usize::from(part.lockstep)] |= part.last;
    }

    /// Compares, once everything has come and this peer is certain of all those ticks. `orders`: how many it gave.
    pub(crate) fn compare(&mut self, peer: &Peer, trail: &Trail, orders: u32) -> Option<Agreed> {
        let certain = |line, hashes: &Hashes| {
            let last = hashes.last_key_value().map_or(0, |(tick, _)| *tick);
            peer.confirmed(line).is_some_and(|tick| tick.0 >= last)
        };
        let all = self.complete == [true; 2]
            && certain(Timeline::Rollback, &self.rollback)
            && certain(Timeline::Lockstep, &self.lockstep);
        if !all || self.result.is_some() {
            return None;
        }
        let mut agreed = Agreed { orders, differing: trail.disorder, ..Agreed::default() };
        let lines =
            [(&self.rollback, &trail.rollback, &mut agreed.rollback), (&self.lockstep, &trail.lockstep, &mut agreed.lockstep)];
        for (theirs, ours, compared) in lines {
            // from its first tick on, a guest has run all that the host has
            let first = ours.keys().next().copied().unwrap_or(u64::MAX);
            for (tick, hash) in theirs.range(first..) {
                *compared += 1;
                agreed.differing += u32::from(ours.get(tick) != Some(hash));
            }
        }
        self.result = Some(agreed);
        Some(agreed)
    }
}

/// Corrections of what a guest predicted, counted by cause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Corrected {
    counted: u64,
    /// The host ran the tick without the guest's input.
    pub(crate) late_input: u64,
    /// Somebody else had a part in it.
    pub(crate) other: u64,
    /// A spawn or despawn that the host did not follow.
    pub(crate) refused: u64,
    /// On the rollback timeline: another input than was guessed.
    pub(crate) rollbacks: u64,
    /// The most ticks that one of them ran again.
    pub(crate) deepest: u64,
}

impl Corrected {
    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            counted: self.counted + other.counted,
            late_input: self.late_input + other.late_input,
            other: self.other + other.other,
            refused: self.refused + other.refused,
            rollbacks: self.rollbacks + other.rollbacks,
            deepest: self.deepest.max(other.deepest),
        }
    }

    /// Counts those that are new, and old enough that their cause is known.
    pub(crate) fn look(&mut self, peer: &Peer, now: Duration) {
        let fresh = peer.correction_count() - self.counted;
        let remembered = peer.corrections().count() as u64;
        self.counted += fresh.saturating_sub(remembered); // more than are remembered came in one frame
        for correction in peer.corrections().skip(remembered.saturating_sub(fresh) as usize) {
            if correction.at + HINDSIGHT > now {
                break;
            }
            self.counted += 1;
            self.deepest = self.deepest.max(correction.depth);
            *match correction.cause {
                Cause::LateInput => &mut self.late_input,
                Cause::Input(_) => &mut self.rollbacks,
                Cause::Refused | Cause::Revived => &mut self.refused,
                _ => &mut self.other,
            } += 1;
        }
    }
}
