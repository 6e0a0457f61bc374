//! Inputs: what the people at the peers do with their sticks and buttons, tick by tick.
//!
//! A guest says what its input is ([`Peer::set_input`](crate::Peer::set_input)); it holds until it says otherwise. Each tick's
//! input goes to the host, which asks for it in that very tick ([`Step::input`](crate::Step::input)). Inputs are states, not
//! events: all that the host has not confirmed goes out with every packet, so a lost packet costs nothing but a little time,
//! and the guest's ticks run ahead of the session by what the way takes ([`Peer::lead`](crate::Peer::lead)).
//!
//! An input that has not come when its tick is run is not neutral: the last one is repeated, for
//! [`limits::INPUT_REPEAT`](crate::netcore::limits::INPUT_REPEAT) at most; then it is absent, and [`Default`]. What comes later
//! is counted and not used. What happens once, and must neither be lost nor repeated, is a [`Press`].

mod buffer;
pub(crate) mod drawn;
mod exchange;
mod own;

pub(crate) use buffer::InputBuffer;
pub(crate) use exchange::Inputs;

use crate::field::{self, Problem};
use crate::layout::{FieldCode, Layout, LayoutError};
use crate::replicate::{FieldError, Quantiser, Replicate, Restorer};
use crate::schema::SchemaMistake;
use hecs::Entity;
use std::any::TypeId;
use std::time::Duration;
use tidelock_netcore::tick::Tick;

/// A button as a field of an input: counts how often it was pressed, so that each press is told exactly once, whatever is lost
/// on the way. Ask with [`Input::pressed`]. Keep the input from frame to frame, press in it, and set it again: in a new one the
/// count would begin anew.
///
/// It counts modulo 256: of more presses than that between two inputs that arrive, 256 are lost. It starts at zero; a program
/// that joins another session starts with a new input, or what it counted before is taken for presses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, tidelock_derive::Replicate)]
pub struct Press(u8);

impl Press {
    /// The button goes down once more.
    pub fn press(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }

    /// Presses since `before`.
    #[must_use]
    pub fn since(self, before: Press) -> u8 {
        self.0.wrapping_sub(before.0)
    }
}

/// The input of one peer in one tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input<I> {
    /// What it is.
    pub value: I,
    /// The one that was folded in before it: of those that are somebody's own or had arrived, the last. [`Default`] if there is none.
    /// While inputs are repeated it is what is repeated.
    pub before: I,
    /// Where it comes from.
    pub source: Source,
}

impl<I> Input<I> {
    /// How often a button was pressed since the input before: each press counts exactly once, in the first tick with an input that
    /// knows of it, and never in one whose input is repeated or absent.
    pub fn pressed(&self, button: impl Fn(&I) -> Press) -> u8 {
        match self.source {
            Source::Own | Source::Arrived => button(&self.value).since(button(&self.before)),
            Source::Repeated(_) | Source::Absent => 0,
        }
    }
}

/// Where an input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is this peer's own.
    Own,
    /// It came in time: it is what that peer had in that tick.
    Arrived,
    /// It did not come in time, and is the last one that did, so many ticks ago.
    Repeated(u32),
    /// Nothing came for longer than it is repeated, or ever: it is [`Default`].
    Absent,
}

/// How a guest's inputs reach its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputReport {
    /// The last tick that was run with an input that had arrived.
    pub folded: Option<Tick>,
    /// Ticks that were run without their input, since the first one arrived.
    pub missed: u64,
    /// Those of them for which the last one was repeated.
    pub repeated: u64,
    /// Inputs that came after their tick was run.
    pub late: u64,
    /// Inputs that came too early to be kept, or so late that nothing is known of their tick.
    pub useless: u64,
    /// By how many microseconds the latest of those that came last was early; below zero, late.
    pub earliness: Option<i64>,
}

/// Changes the words of an input.
pub(crate) type Guess = Box<dyn Fn(&mut [u32]) + Send + Sync>;

/// The schema's input.
pub(crate) struct InputEntry {
    pub(crate) name: String,
    pub(crate) type_id: TypeId,
    pub(crate) layout: Layout,
    /// The words of [`Default`].
    pub(crate) default: Vec<u32>,
    /// Can the words be an input?
    pub(crate) is_valid: fn(&[u32]) -> bool,
    /// Makes of an input what it probably is a tick later, for who runs ahead of it; if nothing is said, the same.
    pub(crate) guess: Option<Guess>,
}

impl InputEntry {
    pub(crate) fn new<I: Replicate + Default>(name: &str) -> Result<Self, SchemaMistake> {
        let layout = |error: LayoutError| SchemaMistake::Layout { sort: "input", name: name.to_owned(), error };
        let layout = Layout::of::<I>().map_err(layout)?;
        if layout.has_entities() {
            return Err(SchemaMistake::InputNamesEntity(name.to_owned()));
        }
        let mut default = vec![0; layout.words()];
        let quantised = quantise(&I::default(), &mut default);
        quantised.map_err(|error| SchemaMistake::InputDefault { name: name.to_owned(), error })?;
        let is_valid = |words: &[u32]| restore::<I>(words).is_some();
        Ok(Self { name: name.to_owned(), type_id: TypeId::of::<I>(), layout, default, is_valid, guess: None })
    }

    /// See [`SchemaBuilder::input_words`](crate::SchemaBuilder::input_words).
    pub(crate) fn of_words(name: &str, layout: Layout, default: Vec<u32>) -> Result<Self, SchemaMistake> {
        if layout.has_entities() {
            return Err(SchemaMistake::InputNamesEntity(name.to_owned()));
        }
        fit(&layout, &default).map_err(|error| SchemaMistake::InputDefault { name: name.to_owned(), error })?;
        let type_id = TypeId::of::<InputWords>();
        // what a layout has read is an input: there is nothing else that it could be made into
        Ok(Self { name: name.to_owned(), type_id, layout, default, is_valid: |_| true, guess: None })
    }

    /// See [`SchemaBuilder::guess_input`](crate::SchemaBuilder::guess_input).
    pub(crate) fn guess_with<I: Replicate + Default>(&mut self, guess: impl Fn(&I) -> I + Send + Sync + 'static) {
        self.guess = Some(Box::new(move |words| {
            let Some(input) = restore::<I>(words) else { return };
            let mut guessed = words.to_vec();
            // a guess that cannot travel is none
            if quantise(&guess(&input), &mut guessed).is_ok() {
                words.copy_from_slice(&guessed);
            }
        }));
    }

    pub(crate) fn digest(&self) -> u64 {
        self.layout.digest(&self.name)
    }
}

/// Stands for the type of an input that has none.
pub(crate) struct InputWords;

/// Are they words that a reader of that layout could have read?
pub(crate) fn fit(layout: &Layout, words: &[u32]) -> Result<(), FieldError> {
    let outside = |value: usize, min: usize, max: usize| field::out_of_range(value as f64, min as f64, max as f64);
    if words.len() != layout.words() {
        let problem = outside(words.len(), layout.words(), layout.words());
        return Err(FieldError { field: "number of words".into(), problem });
    }
    let mut at = 0;
    for field in layout.fields() {
        let here = &words[at..at + field.code.words()];
        at += here.len();
        let up_to = |max: u32| if here[0] <= max { Ok(()) } else { Err(outside(here[0] as usize, 0, max as usize)) };
        let result = match field.code {
            FieldCode::Number { max, .. } => up_to(max),
            FieldCode::Choice { count } => up_to(count - 1),
            FieldCode::Wrapping { bits } => up_to((1 << bits) - 1),
            FieldCode::Maybe { .. } => up_to(1),
            FieldCode::Float if !field::float_is_canonical(here[0]) => Err(Problem::NotFinite),
            FieldCode::Quat { bits } if !field::quat_is_canonical([here[0], here[1], here[2], here[3]], bits) => {
                Err(Problem::ZeroRotation)
            }
            FieldCode::Text { cap } | FieldCode::Bytes { cap } => {
                let bytes: Vec<u8> = here[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
                let text = bytes.split_at_checked(here[0] as usize).filter(|(_, rest)| rest.iter().all(|b| *b == 0));
                let is_text = text.is_some_and(|(text, _)| {
                    let is_utf8 = matches!(field.code, FieldCode::Bytes { .. }) || std::str::from_utf8(text).is_ok();
                    text.len() <= cap as usize && is_utf8
                });
                if is_text { Ok(()) } else { Err(Problem::TooLong { len: here[0] as usize, cap }) }
            }
            _ => Ok(()),
        };
        result.map_err(|problem| FieldError { field: field.name.clone().into(), problem })?;
    }
    Ok(())
}

/// The words of an input, which names no entities.
fn quantise<I: Replicate>(input: &I, words: &mut [u32]) -> Result<(), FieldError> {
    input.quantise(&mut Quantiser::new(words, &|_: Entity| None))
}

pub(crate) fn restore<I: Replicate>(words: &[u32]) -> Option<I> {
    I::restore(&mut Restorer::new(words, &|_| None)).ok()
}

/// A time in ticks, rounded down.
pub(crate) fn ticks_in(time: Duration, rate: u32) -> u64 {
    (time.as_nanos() * u128::from(rate) / 1_000_000_000) as u64
}

/// When a tick is due, in nanoseconds of the session's time: the first moment that belongs to it.
fn due_nanos(tick: Tick, rate: u32) -> i128 {
    (i128::from(tick.0) * 1_000_000_000 + i128::from(rate) - 1) / i128::from(rate)
}
