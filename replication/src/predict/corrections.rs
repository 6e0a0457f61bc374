//! Why a prediction was taken back: an account of each correction.

use crate::netid::NetId;
use crate::peer_id::PeerId;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
use tidelock_netcore::tick::Tick;

/// What made a prediction wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The host ran the tick without this peer's input, which came late or not at all.
    LateInput,
    /// The host came to another value: something that this peer does not simulate had a part in it.
    Other,
    /// The host did not spawn what this peer had spawned for itself.
    Refused,
    /// The host did not despawn what this peer had despawned for itself.
    Revived,
    /// Of what is predicted ([`Host::predicted`](crate::policy::Host::predicted)) only; what every peer computes is compared by digests.
    /// The tick came out otherwise when it was run again from the same saved state with the same input: it depends on something that is
    /// not saved, such as a counter outside of the world, a component without `.checkpoint()`, or what others simulate. Looked for
    /// while [`Config::check_writes`](crate::Config::check_writes) is on; otherwise such a correction is told as another.
    Unsaved,
    /// On the rollback timeline: that peer's input, or who plays in its seat, was not what had been guessed. If it is this peer's own,
    /// it reached the host late.
    Input(PeerId),
}

/// What a prediction was corrected by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// What made it wrong.
    pub cause: Cause,
    /// The tick that the host's value is of.
    pub tick: Tick,
    /// Ticks that were run again; zero if the value was of the last tick, or too old for the ticks since to be run again.
    pub depth: u64,
    /// The host's value was too old to run the ticks since again: it was taken as it is, and is behind by those ticks.
    pub snapped: bool,
    /// The entity; the first one that differs. For [`Cause::Input`] there is none: this is 0, and the names are empty.
    pub net: NetId,
    /// The component that differs first, by name; empty if it is the entity itself.
    pub component: String,
    /// The field that differs first.
    pub field: String,
    /// What was predicted, as the numbers of steps of the grid; for [`Cause::Input`], the words of the guessed input.
    pub predicted: Vec<u32>,
    /// What the host has, or has sealed.
    pub authoritative: Vec<u32>,
    /// For [`Cause::Unsaved`]: what the tick had come to, and what it came to when it was run again.
    pub values: [String; 2],
    /// The program's time when it was found.
    pub at: Duration,
}

/// How many corrections there were, by [`Cause`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CorrectionCounts {
    /// [`Cause::LateInput`].
    pub late_input: u64,
    /// [`Cause::Other`].
    pub other: u64,
    /// [`Cause::Refused`].
    pub refused: u64,
    /// [`Cause::Revived`].
    pub revived: u64,
    /// [`Cause::Unsaved`].
    pub unsaved: u64,
    /// [`Cause::Input`], of whichever peer.
    pub input: u64,
}

impl CorrectionCounts {
    fn of(&mut self, cause: Cause) -> &mut u64 {
        match cause {
            Cause::LateInput => &mut self.late_input,
            Cause::Other => &mut self.other,
            Cause::Refused => &mut self.refused,
            Cause::Revived => &mut self.revived,
            Cause::Unsaved => &mut self.unsaved,
            Cause::Input(_) => &mut self.input,
        }
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_cause().iter().map(|(_, n)| n).sum()
    }

    /// Each count with a short name of its cause, as logs and metrics have it.
    #[must_use]
    pub fn by_cause(&self) -> [(&'static str, u64); 6] {
        [
            ("late_input", self.late_input),
            ("other", self.other),
            ("refused", self.refused),
            ("revived", self.revived),
            ("unsaved", self.unsaved),
            ("input", self.input),
        ]
    }
}

impl fmt::Display for Correction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause {
            Cause::LateInput => "the host ran it without this peer's input",
            Cause::Other => "the host came to another value",
            Cause::Refused => "the host did not spawn it",
            Cause::Revived => "the host did not despawn it",
            Cause::Unsaved => {
                let [was, is] = &self.values;
                let tick = self.tick.0;
                return write!(
                    f,
                    "tick {tick}: entity {} {} {} came to {was}, and to {is} when run again from the same state: it depends on what is not saved",
                    self.net, self.component, self.field
                );
            }
            Cause::Input(peer) => {
                let (guess, is) = (&self.predicted, &self.authoritative);
                return write!(
                    f,
                    "tick {}: the input of {peer} was {guess:?}, is {is:?}; {} ticks run again",
                    self.tick.0, self.depth
                );
            }
        };
        write!(f, "tick {}: entity {}", self.tick.0, self.net)?;
        if !self.component.is_empty() {
            write!(f, " {} {}: predicted {:?}, is {:?}", self.component, self.field, self.predicted, self.authoritative)?;
        }
        write!(f, ": {cause}; {} ticks run again", self.depth)?;
        if self.snapped { f.write_str(", taken as it is") } else { Ok(()) }
    }
}

/// Corrections that are remembered.
const KEPT: usize = 128;
/// Word that inputs were missed comes within this time of the values that show it.
const WORD_OF_MISSES: Duration = Duration::from_millis(150);

/// The last corrections, and how many there were.
#[derive(Default)]
pub(crate) struct Corrections {
    last: VecDeque<Correction>,
    counts: CorrectionCounts,
    missed: u64,
    missed_at: Option<Duration>,
}

impl Corrections {
    pub(crate) fn push(&mut self, mut correction: Correction) {
        let lately = |at: &Duration| correction.at.saturating_sub(*at) <= WORD_OF_MISSES;
        if correction.cause == Cause::Other && self.missed_at.as_ref().is_some_and(lately) {
            correction.cause = Cause::LateInput;
        }
        crate::trace::correction(&correction);
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        *self.counts.of(correction.cause) += 1;
        self.last.push_back(correction);
    }

    /// The host has told how many inputs it missed so far.
    pub(crate) fn note_missed(&mut self, missed: u64, now: Duration) {
        if missed == self.missed {
            return;
        }
        self.missed = missed;
        self.missed_at = Some(now);
        for correction in self.last.iter_mut().rev().take_while(|c| now.saturating_sub(c.at) <= WORD_OF_MISSES) {
            if correction.cause == Cause::Other {
                correction.cause = Cause::LateInput;
                self.counts.other -= 1;
                self.counts.late_input += 1;
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Correction> {
        self.last.iter()
    }

    pub(crate) fn counts(&self) -> CorrectionCounts {
        self.counts
    }
}
