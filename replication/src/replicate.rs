//! [`Replicate`]: how a component becomes words that travel, and comes back.

use crate::field::{self, Problem, Step};
use crate::layout::LayoutBuilder;
use crate::netid::NetId;
use hecs::Entity;
use std::borrow::Cow;
use thiserror::Error;

mod raw;

pub use raw::RawWords;

/// A component that travels.
///
/// Its quantised form is a fixed number of 32-bit words, described by a [`Layout`](crate::layout::Layout). Derive it:
///
/// ```
/// use tidelock::Replicate;
///
/// #[derive(Replicate)]
/// struct Player {
///     #[net(step = 0.01, range = -500.0..=500.0)]
///     position: [f32; 2],
///     #[net(angle, bits = 10)]
///     heading: f32,
///     #[net(range = 0..=100)]
///     health: u8,
///     #[net(max = 32)]
///     name: String,
///     carries: Option<hecs::Entity>,
///     stance: Stance,
/// }
///
/// #[derive(Replicate)]
/// enum Stance { Stands, Crouches, Lies }
///
/// let layout = tidelock::layout::Layout::of::<Player>().unwrap();
/// assert_eq!(layout.fields()[1].name, "position.1");
/// ```
///
/// | on | attribute | how it travels |
/// |---|---|---|
/// | `f32`, `f64` | `step = 0.01, range = -500.0..=500.0` | as the nearest step; up to half a step outside the range is still inside |
/// | `f32`, `f64` | `angle, bits = 10` | radians, as one of 2^bits directions (2 to 20 bits) |
/// | `f32` | `exact` | all 32 bits; −0.0 becomes 0.0, NaN and infinities are errors |
/// | `[f32; 4]` | `quat, bits = 10` | a rotation x, y, z, w; 4 to 16 bits for each of three parts |
/// | `u8` … `u64`, `i8` … `i64` | none, or `range = 0..=100` | whole; a range has at most 2^32 values |
/// | `String` | `max = 32` | at most so many bytes of UTF-8, up to 512 |
/// | `f32`, `f64` | `mm`, or `mm, range = -50.0..=50.0` | metres, as whole millimetres; without a range ±8 km (`f32`) or ±2000 km (`f64`) |
/// | `f32`, `f64` | `fixed = 8`, or `fixed = 8, range = …` | fixed point with 8 bits after the point (0 to 30), its multiples exact; without a range ±2^22 steps (`f32`) or ±2^30 |
/// | `f32`, `f64` | `unit = 8`, `unit = 8, signed` | a fraction in 0..=1, or in −1..=1, of so many bits (to 22); 0 and the ends are exact |
/// | `[f32; 3]` | `octahedral, bits = 10` | a direction; 4 to 16 bits for each of two words; off by at most 2.2 / (2^(bits−1) − 1) radians |
/// | `Vec<u8>` | `max = 64` | at most so many bytes, up to 512 |
/// | `Vec`, `VecDeque`, `SmallVec`, `BTreeSet` | `max = 8` | at most so many items, up to 64; see [`collections`](crate::collections). What else stands there goes for the items |
/// | `BTreeMap` | `max = 8` | the same, of keys and values. What else stands there goes for the values |
/// | any other | `list, max = 8` | a type of your own with [`List`](crate::collections::List), of its first type parameter |
/// | any | `opaque, max = 200` | what `bitcode` makes of it, in at most so many bytes, up to 512; see [`collections`](crate::collections#opaque-values) |
/// | steps, fixed point, fractions, integers with at most 32 bits or a range | `order = 3` | tunes the code for differences: about the bits of a usual one, 0 to 24 |
/// | any | `hold` | nothing here; for [`Interpolate`](crate::Interpolate) |
/// | the type | `crate = path` | where this crate is, if not at `::tidelock` |
///
/// `bool`, `hecs::Entity`, enums and structs that implement `Replicate`, unit and tuple structs need no attribute. An attribute
/// on an array or an `Option` goes for what is inside. A bare `Entity` that is not here withholds its component until it comes;
/// an `Option<Entity>` that names nobody, or somebody who has no name on the network, is `None`.
///
/// By hand it is one line per field and function:
///
/// ```
/// use tidelock::field::{INTEGER_ORDER, STEP_ORDER, Step};
/// use tidelock::layout::{Layout, LayoutBuilder};
/// use tidelock::replicate::{FieldError, Quantiser, Replicate, RestoreError, Restorer};
///
/// struct Door { open: f32, locks: u8 }
/// const OPEN: Step = Step::f32(0.01, 0.0, 1.0);
///
/// impl Replicate for Door {
///     type Raw = [u32; 2];
///     const WORDS: usize = 2;
///     fn layout(l: &mut LayoutBuilder) {
///         l.number("open", &OPEN, STEP_ORDER);
///         l.integer("locks", 0, 3, INTEGER_ORDER);
///     }
///     fn raw(&self) -> Self::Raw {
///         [self.open.to_bits(), self.locks.into()]
///     }
///     fn quantise(&self, out: &mut Quantiser<'_>) -> Result<(), FieldError> {
///         out.number("open", &OPEN, self.open.into())?;
///         out.integer("locks", self.locks.into(), 0, 3)
///     }
///     fn restore(from: &mut Restorer<'_>) -> Result<Self, RestoreError> {
///         Ok(Self { open: from.number("open", &OPEN)? as f32, locks: from.integer("locks", 0, 3)? as u8 })
///     }
/// }
///
/// let layout = Layout::of::<Door>().unwrap();
/// let mut words = vec![0; layout.words()];
/// Door { open: 0.5, locks: 1 }.quantise(&mut Quantiser::new(&mut words, &|_| None)).unwrap();
/// assert_eq!(words, [50, 1]);
/// assert_eq!(Door::restore(&mut Restorer::new(&words, &|_| None)).unwrap().open, 0.5);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how it travels",
    label = "needs an attribute or `Replicate`",
    note = "derive `Replicate` for your own types; floats need `#[net(step = …, range = …)]`, `#[net(angle, bits = …)]` or `#[net(exact)]`",
    note = "collections and texts need a bound: `#[net(max = …)]`"
)]
pub trait Replicate: Send + Sync + Sized + 'static {
    /// The component's own bits, to tell cheaply whether the game touched it.
    type Raw: Copy + PartialEq + Send + Sync + 'static;

    /// Words of the quantised form; the layout must describe as many.
    const WORDS: usize;

    /// Describes the fields, in the order in which the other functions handle them.
    fn layout(l: &mut LayoutBuilder);

    /// The component's own bits. Equal bits quantise equally.
    fn raw(&self) -> Self::Raw;

    /// Writes exactly the words that the layout describes.
    ///
    /// # Errors
    /// [`FieldError`] if a value lies outside what its field allows; the words are unspecified then.
    fn quantise(&self, out: &mut Quantiser<'_>) -> Result<(), FieldError>;

    /// Makes a value from words that [`quantise`](Self::quantise) wrote or a [`Layout`](crate::layout::Layout) read.
    ///
    /// # Errors
    /// [`RestoreError`]; the component is then withheld.
    fn restore(from: &mut Restorer<'_>) -> Result<Self, RestoreError>;
}

/// A field whose value cannot travel.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("field `{field}`: {problem}")]
pub struct FieldError {
    /// The field, with those around it: `owner.id`.
    pub field: Cow<'static, str>,
    /// What is wrong with it.
    pub problem: Problem,
}

impl FieldError {
    /// The same error, seen from the field around it.
    #[cold]
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        if self.field.is_empty() {
            self.field = Cow::Owned(outer.to_owned());
        } else if !outer.is_empty() {
            self.field = Cow::Owned(format!("{outer}.{}", self.field));
        }
        self
    }
}

/// Words that cannot be made into a component, or not yet.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreError {
    /// An entity is named that is not here (yet); `NetId(0)` if none is named and the field needs one.
    #[error("entity {0} is not here")]
    Unresolved(NetId),
    /// Words that no value has.
    #[error("field `{field}` holds words that no value has")]
    Invalid {
        /// The field.
        field: &'static str,
    },
}

/// Takes the fields of a component as words; handed to [`Replicate::quantise`].
pub struct Quantiser<'a> {
    pub(crate) words: &'a mut [u32],
    pub(crate) at: usize,
    names: &'a dyn Fn(Entity) -> Option<NetId>,
    pub(crate) fine: bool,
}

pub(crate) type Quantised = Result<(), FieldError>;

impl<'a> Quantiser<'a> {
    /// Writes to the front of `words`; `names` knows the names of entities.
    #[must_use]
    pub fn new(words: &'a mut [u32], names: &'a dyn Fn(Entity) -> Option<NetId>) -> Self {
        Self { words, at: 0, names, fine: false }
    }

    /// On the simulation grid instead of the steps that the fields state, where it is the finer one.
    pub(crate) fn on_grid(self, fine: bool) -> Self {
        Self { fine, ..self }
    }

    /// Words written so far.
    #[must_use]
    pub fn written(&self) -> usize {
        self.at
    }

    #[inline]
    pub(crate) fn word(&mut self, word: u32) {
        self.words[self.at] = word;
        self.at += 1;
    }

    #[inline]
    pub(crate) fn checked(&mut self, field: &'static str, word: Result<u32, Problem>) -> Quantised {
        match word {
            Ok(word) => {
                self.word(word);
                Ok(())
            }
            Err(problem) => Err(FieldError { field: Cow::Borrowed(field), problem }),
        }
    }

    /// A float in steps.
    ///
    /// # Errors
    /// Outside the range, or not finite.
    #[inline]
    pub fn number(&mut self, field: &'static str, step: &Step, value: f64) -> Quantised {
        if self.fine {
            return self.checked(field, step.on_grid().index(value));
        }
        self.checked(field, step.index(value))
    }

    /// An integer in `min..=max`.
    ///
    /// # Errors
    /// Outside the range.
    #[inline]
    pub fn integer(&mut self, field: &'static str, value: i64, min: i64, max: i64) -> Quantised {
        let word = if value >= min && value <= max {
            Ok(value.wrapping_sub(min) as u32)
        } else {
            Err(field::out_of_range(value as f64, min as f64, max as f64))
        };
        self.checked(field, word)
    }

    /// An integer of 64 bits; signed ones as their two's complement.
    #[inline]
    pub fn wide(&mut self, value: u64) {
        self.word(value as u32);
        self.word((value >> 32) as u32);
    }

    /// An angle in radians.
    ///
    /// # Errors
    /// Not finite.
    #[inline]
    pub fn angle(&mut self, field: &'static str, bits: u32, radians: f64) -> Quantised {
        let bits = if self.fine { *field::ANGLE_BITS.end() } else { bits };
        self.checked(field, field::angle_index(radians, bits))
    }

    /// One of several choices, by its number.
    #[inline]
    pub fn choice(&mut self, index: u32) {
        self.word(index);
    }

    /// An exact float.
    ///
    /// # Errors
    /// Not finite.
    #[inline]
    pub fn float(&mut self, field: &'static str, value: f32) -> Quantised {
        self.checked(field, field::float_word(value))
    }

    /// A rotation: x, y, z, w.
    ///
    /// # Errors
    /// Not finite, or of length zero.
    #[inline]
    pub fn quat(&mut self, field: &'static str, bits: u32, value: [f32; 4]) -> Quantised {
        let bits = if self.fine { *field::QUAT_BITS.end() } else { bits };
        match field::quat_words(value, bits) {
            Ok(words) => {
                words.into_iter().for_each(|word| self.word(word));
                Ok(())
            }
            Err(problem) => Err(FieldError { field: Cow::Borrowed(field), problem }),
        }
    }

    /// Text of at most `cap` bytes.
    ///
    /// # Errors
    /// Too long.
    #[inline]
    pub fn text(&mut self, field: &'static str, cap: u32, value: &str) -> Quantised {
        let end = self.at + field::text_words(cap);
        field::put_text(value, cap, &mut self.words[self.at..end])
            .map_err(|problem| FieldError { field: Cow::Borrowed(field), problem })?;
        self.at = end;
        Ok(())
    }

    /// An entity, or none. One that has no name on the network travels as none.
    #[inline]
    pub fn entity(&mut self, value: Option<Entity>) {
        let name = value.and_then(|entity| (self.names)(entity)).unwrap_or_default();
        self.wide(name.0);
    }

    /// Something that may be absent, `words` words long without the flag.
    ///
    /// # Errors
    /// Those of `inner`, with the name of this field before theirs.
    #[inline]
    pub fn maybe<T>(
        &mut self,
        field: &'static str,
        words: usize,
        value: Option<T>,
        inner: impl FnOnce(&mut Self, T) -> Quantised,
    ) -> Quantised {
        self.word(value.is_some().into());
        if let Some(value) = value {
            return inner(self, value).map_err(|e| e.within(field));
        }
        self.words[self.at..self.at + words].fill(0);
        self.at += words;
        Ok(())
    }

    /// A nested value.
    ///
    /// # Errors
    /// Its own, with the name of this field before theirs.
    #[inline]
    pub fn part<T: Replicate>(&mut self, field: &'static str, value: &T) -> Quantised {
        value.quantise(self).map_err(|e| e.within(field))
    }

    /// The elements of an array.
    ///
    /// # Errors
    /// Those of `inner`, with the name of this field and the index before theirs.
    #[inline]
    pub fn array<T>(
        &mut self,
        field: &'static str,
        values: &[T],
        mut inner: impl FnMut(&mut Self, &T) -> Quantised,
    ) -> Quantised {
        for (i, value) in values.iter().enumerate() {
            inner(self, value).map_err(|e| e.within(&i.to_string()).within(field))?;
        }
        Ok(())
    }
}

/// Gives the words of a component back as fields; handed to [`Replicate::restore`].
pub struct Restorer<'a> {
    pub(crate) words: &'a [u32],
    pub(crate) at: usize,
    entities: &'a dyn Fn(NetId) -> Option<Entity>,
    pub(crate) fine: bool,
}

impl<'a> Restorer<'a> {
    /// Reads from the front of `words`; `entities` knows who bears a name.
    #[must_use]
    pub fn new(words: &'a [u32], entities: &'a dyn Fn(NetId) -> Option<Entity>) -> Self {
        Self { words, at: 0, entities, fine: false }
    }

    /// From words on the simulation grid: see [`Quantiser::on_grid`].
    pub(crate) fn on_grid(self, fine: bool) -> Self {
        Self { fine, ..self }
    }

    #[inline]
    pub(crate) fn word(&mut self, field: &'static str) -> Result<u32, RestoreError> {
        let word = self.words.get(self.at).copied().ok_or(RestoreError::Invalid { field })?;
        self.at += 1;
        Ok(word)
    }

    #[inline]
    pub(crate) fn up_to(&mut self, field: &'static str, max: u32) -> Result<u32, RestoreError> {
        self.word(field).and_then(|word| if word <= max { Ok(word) } else { Err(RestoreError::Invalid { field }) })
    }

    /// A float in steps.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] beyond the last step.
    #[inline]
    pub fn number(&mut self, field: &'static str, step: &Step) -> Result<f64, RestoreError> {
        if self.fine {
            let grid = step.on_grid();
            return Ok(grid.value(self.up_to(field, grid.last())?));
        }
        Ok(step.value(self.up_to(field, step.last())?))
    }

    /// An integer in `min..=max`.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] beyond `max`.
    #[inline]
    pub fn integer(&mut self, field: &'static str, min: i64, max: i64) -> Result<i64, RestoreError> {
        Ok(min + i64::from(self.up_to(field, u32::try_from(max.wrapping_sub(min)).unwrap_or(u32::MAX))?))
    }

    /// An integer of 64 bits.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] if the words end.
    #[inline]
    pub fn wide(&mut self, field: &'static str) -> Result<u64, RestoreError> {
        Ok(NetId::from_words(self.word(field)?, self.word(field)?).0)
    }

    /// An angle in radians, from −π up to, not including, π.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] for a word of more bits.
    #[inline]
    pub fn angle(&mut self, field: &'static str, bits: u32) -> Result<f64, RestoreError> {
        let bits = if self.fine { *field::ANGLE_BITS.end() } else { bits };
        Ok(field::angle_value(self.up_to(field, (1 << bits) - 1)?, bits))
    }

    /// The number of one of `count` choices.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] for a higher number.
    #[inline]
    pub fn choice(&mut self, field: &'static str, count: u32) -> Result<u32, RestoreError> {
        self.up_to(field, count - 1)
    }

    /// An exact float.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] if it is not finite.
    #[inline]
    pub fn float(&mut self, field: &'static str) -> Result<f32, RestoreError> {
        let word = self.word(field)?;
        if field::float_is_canonical(word) { Ok(f32::from_bits(word)) } else { Err(RestoreError::Invalid { field }) }
    }

    /// A rotation of length 1: x, y, z, w.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] if no rotation has these words.
    #[inline]
    pub fn quat(&mut self, field: &'static str, bits: u32) -> Result<[f32; 4], RestoreError> {
        let bits = if self.fine { *field::QUAT_BITS.end() } else { bits };
        let words = [self.word(field)?, self.word(field)?, self.word(field)?, self.word(field)?];
        if field::quat_is_canonical(words, bits) {
            Ok(field::quat_value(words, bits))
        } else {
            Err(RestoreError::Invalid { field })
        }
    }

    /// An entity that must be here.
    ///
    /// # Errors
    /// [`RestoreError::Unresolved`] if it is not, or if none is named.
    #[inline]
    pub fn entity(&mut self, field: &'static str) -> Result<Entity, RestoreError> {
        self.entity_or_none(field)?.ok_or(RestoreError::Unresolved(NetId(0)))
    }

    /// An entity, or none.
    ///
    /// # Errors
    /// [`RestoreError::Unresolved`] if one is named that is not here.
    #[inline]
    pub fn entity_or_none(&mut self, field: &'static str) -> Result<Option<Entity>, RestoreError> {
        match NetId(self.wide(field)?) {
            NetId(0) => Ok(None),
            name => (self.entities)(name).map(Some).ok_or(RestoreError::Unresolved(name)),
        }
    }

    /// Something that may be absent, `words` words long without the flag.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] for a flag that is neither 0 nor 1, and those of `inner`.
    #[inline]
    pub fn maybe<T>(
        &mut self,
        field: &'static str,
        words: usize,
        inner: impl FnOnce(&mut Self) -> Result<T, RestoreError>,
    ) -> Result<Option<T>, RestoreError> {
        if self.up_to(field, 1)? == 1 {
            return inner(self).map(Some);
        }
        self.at += words;
        Ok(None)
    }

    /// The elements of an array.
    ///
    /// # Errors
    /// The first of `inner`.
    #[inline]
    pub fn array<T, const N: usize>(
        &mut self,
        mut inner: impl FnMut(&mut Self) -> Result<T, RestoreError>,
    ) -> Result<[T; N], RestoreError> {
        let mut slots = [const { None }; N];
        for slot in &mut slots {
            *slot = Some(inner(self)?);
        }
        Ok(slots.map(|slot| slot.expect("every slot was filled above")))
    }
}
