//! What the quantised form of a component looks like: a table of fields, each a fixed number of 32-bit words, and the bits in
//! which values travel.
//!
//! # The bits
//!
//! A value is the concatenation of its fields, in the order of the table, without padding between them. A number of n bits is
//! written from its lowest bit up, and bits fill each byte from the lowest up. Both sides know the layout; whether there is a
//! **base** (the value the receiver had) and its **age** (in ticks) are known from around the value.
//!
//! `B(m)` is the number of bits of m: 0 for m = 0, else ⌊log₂ m⌋ + 1. A field without a base is **absolute**, one with a base is
//! a **difference** to the base, or to a guess that was made from it:
//!
//! | field | words | absolute | difference |
//! |---|---|---|---|
//! | `Number { max, order }` | x in `0..=max` | x in B(max) bits | `S(x − base)` |
//! | `Wide` | low, high | 64 bits | changed? |
//! | `Wrapping { bits }` | x in `0..2^bits` | x in `bits` bits | `S(d)`, where d ≡ x − base (mod 2^bits) and −2^(bits−1) ≤ d < 2^(bits−1) |
//! | `Choice { count }`, count ≤ 2 | x in `0..count` | x in B(count − 1) bits | absolute |
//! | `Choice { count }`, count > 2 | x in `0..count` | x in B(count − 1) bits | changed? |
//! | `Float` | the bits of the `f32` | 32 bits | changed? |
//! | `Quat { bits }` | l in `0..4`; a, b, c in `0..=2h` | l in 2 bits, then a, b, c in `bits` bits each | if l is that of the base: `S(a − base)`, the same for b and c; else, or if one of these has no token: the token 72, then absolute |
//! | `Text { cap }` | length, bytes | length in B(cap) bits, then 8 bits a byte | changed? |
//! | `Bytes { cap }` | length, bytes | length in B(cap) bits, then 8 bits a byte | changed? |
//! | `Entity` | low, high | `G(name, 8)` | changed? |
//! | `Maybe { fields }` | 0 or 1 | 1 bit | 1 bit |
//!
//! **changed?** is 1 and nothing else if all words are those of the base, else 0 and then the absolute form. (Mind the sense:
//! 1 means *the same*.)
//!
//! **`Maybe`**: if the bit is 0, the next `fields` entries are not written at all and all their words are zero; this includes
//! options among them and what belongs to those. If it is 1 and there is a base in which it was 0, these entries are absolute;
//! if it was 1, or if there is no base, they are coded as they would be otherwise.
//!
//! **`G(v, k)`**, Exp-Golomb of order k: let q = ⌊v / 2^k⌋ + 1 and n = ⌊log₂ q⌋. Then n ones, a zero, q − 2^n in n bits,
//! v mod 2^k in k bits. In `Entity`, n is at most 55: names from 2^64 − 256 on have no code.
//!
//! **`S(d)`**, a signed difference: with z = 2d for d ≥ 0 or −2d − 1 for d < 0, the token of z and its bits, in one of the
//! tables of `docs/codes.txt`; where z has no token, the token 72 and then x itself in its absolute form. Which table, is said around
//! the value, or follows from the field: with o = `order` for a `Number`, 4 for a `Wrapping`, 3 for a `Quat`, and
//! m = 1.5 · 2^(o + min(⌊log₂ max(age, 1)⌋, 4)), the exponential table i with the largest i for which m > 0.15 · 1.6^(i − ½), or 0.
//!
//! # What a reader refuses
//!
//! Input that ends early, and:
//!
//! * a `Number` outside `0..=max` or a `Choice` outside `0..count`, absolute or after adding the difference
//!   (a `Wrapping` wraps instead);
//! * a `Float` that is NaN, infinite or −0.0 (the word 0x8000_0000);
//! * a `Text` or `Bytes` longer than `cap`, or a `Text` that is not UTF-8;
//! * an `Entity` with a name of more than 64 bits or without a code (55 ones are the most);
//! * a `Quat` that is not canonical: with h = 2^(bits−1) − 1, p = a − h and so on for the three, and L = 2h² − Σp²: every part is
//!   in `0..=2h`, and L ≥ p² for those of the three that stand after the largest, L ≥ p² + |p| for those before it (the first l
//!   of the three).
//!
//! A token 72 within a `Quat`, after its first part, is refused. A longer code than needed (the token 72 for a small difference,
//! "changed" to the same) is accepted: it means the same.
//!
//! # What the words mean
//!
//! * Steps: word = round((value − min) / step), max = round((range end − min) / step), value = min + word · step in `f64`, then
//!   rounded to the type of the field. Integers: value − min.
//! * `Wide`: the integer, signed ones in two's complement.
//! * Angles: round(radians · 2^bits / 2π) mod 2^bits; back to −π ≤ radians < π.
//! * Rotations: l is the index in x, y, z, w of the part with the largest magnitude (the first of equals), the others follow in
//!   order. The sign is such that the largest is positive. Part i is p / (√2 · h), the largest √L / (√2 · h).
//! * Text and bytes: they stand four to a word, the lowest byte first; unused bytes are zero.

//! * Directions: two numbers, see [`normal_words`](crate::field::normal_words). Not all pairs are one: who restores refuses others.
//! * A list of at most n items is n options in each other: `Maybe` of the first item and of the option of the rest, and so on. A
//!   map is the list of its keys and values, in the order of the keys.

use crate::field::{ANGLE_BITS, MAX_ORDER, NORMAL_BITS, QUAT_BITS, STEP_ORDER, Step, text_words};
use crate::netid::NetId;
use crate::replicate::Replicate;
use crate::rows::Pattern;
use thiserror::Error;
use tidelock_netcore::limits;
use xxhash_rust::xxh3::Xxh3;

/// How one field of a component is kept and coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldCode {
    /// One word in `0..=max`: the index of a step, or an integer less its minimum.
    Number {
        /// The largest word.
        max: u32,
        /// Order of the code for differences: about the bits of a usual one. At most [`MAX_ORDER`].
        order: u32,
    },
    /// Two words, low and high: an integer of 64 bits.
    Wide,
    /// One word in `0..2^bits` that wraps: an angle.
    Wrapping {
        /// Bits of the word, within [`ANGLE_BITS`].
        bits: u32,
    },
    /// One word in `0..count`: `bool` and enums without fields.
    Choice {
        /// How many there are to choose from, at least 1.
        count: u32,
    },
    /// One word: the bits of a finite `f32` that is not −0.0.
    Float,
    /// Four words: a rotation, see [`quat_words`](crate::field::quat_words).
    Quat {
        /// Bits of each of the three parts, within [`QUAT_BITS`].
        bits: u32,
    },
    /// One word of length, then the bytes of UTF-8, four to a word from the lowest up; unused ones are zero.
    Text {
        /// The largest length in bytes, 1 to [`limits::STRING_BYTES`].
        cap: u32,
    },
    /// Like [`Text`](Self::Text), of any bytes.
    Bytes {
        /// The largest length in bytes, 1 to [`limits::STRING_BYTES`].
        cap: u32,
    },
    /// Two words, low and high, of a [`NetId`]; 0 is none.
    Entity,
    /// One word, 0 or 1: are the next `fields` entries of the table there? If not, all their words are zero.
    Maybe {
        /// Entries that follow and belong to it, nested ones counted.
        fields: u32,
    },
}

impl FieldCode {
    /// Words of the field, for [`Maybe`](Self::Maybe) without what belongs to it.
    #[inline]
    #[must_use]
    pub const fn words(self) -> usize {
        match self {
            Self::Number { .. } | Self::Wrapping { .. } | Self::Choice { .. } | Self::Float | Self::Maybe { .. } => 1,
            Self::Wide | Self::Entity => 2,
            Self::Quat { .. } => 4,
            Self::Text { cap } | Self::Bytes { cap } => text_words(cap),
        }
    }

    fn hash_into(self, hasher: &mut Xxh3) {
        let (tag, a, b) = match self {
            Self::Number { max, order } => (0u8, max, order),
            Self::Wide => (1, 0, 0),
            Self::Wrapping { bits } => (2, bits, 0),
            Self::Choice { count } => (3, count, 0),
            Self::Float => (4, 0, 0),
            Self::Quat { bits } => (5, bits, 0),
            Self::Text { cap } => (6, cap, 0),
            Self::Entity => (7, 0, 0),
            Self::Maybe { fields } => (8, fields, 0),
            Self::Bytes { cap } => (9, cap, 0),
        };
        hasher.update(&[tag]);
        hasher.update(&a.to_le_bytes());
        hasher.update(&b.to_le_bytes());
    }
}

/// What the words of a field stand for, so that tools can show them and builds that differ in it do not meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning {
    /// The word speaks for itself.
    Plain,
    /// The value is `min + word · step`.
    Grid {
        /// The value of word 0.
        min: f64,
        /// The distance between two words.
        step: f64,
    },
    /// The names of the choices, in order.
    Names(&'static [&'static str]),
}

impl Meaning {
    fn hash_into(self, hasher: &mut Xxh3) {
        match self {
            Self::Plain => hasher.update(&[0]),
            Self::Grid { min, step } => {
                hasher.update(&[1]);
                hasher.update(&min.to_bits().to_le_bytes());
                hasher.update(&step.to_bits().to_le_bytes());
            }
            Self::Names(names) => {
                hasher.update(&[2]);
                hasher.update(&(names.len() as u32).to_le_bytes());
                names.iter().for_each(|name| hash_name(name, hasher));
            }
        }
    }
}

/// One entry of a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Where it stands: `x`, `owner.id` for a nested one, `corners.2` in an array.
    pub name: String,
    /// How it is kept and coded.
    pub code: FieldCode,
    /// What its words stand for.
    pub meaning: Meaning,
}

/// A component whose fields cannot travel as they are described.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// More than [`limits::FIELDS`] fields.
    #[error("{0} fields, at most {max} are allowed; split the component", max = limits::FIELDS)]
    TooManyFields(usize),
    /// The largest value is more than [`limits::COMPONENT_BITS`].
    #[error("up to {0} bits, at most {max} are allowed; split the component or shorten its texts", max = limits::COMPONENT_BITS)]
    TooLarge(usize),
    /// A name of more than [`limits::NAME_BYTES`], or one that occurs twice.
    #[error("the field name `{0}` is too long or occurs twice")]
    Name(String),
    /// Bits, order, length or count outside what the code allows.
    #[error("field `{name}`: {code:?} has a number outside what is allowed")]
    Code {
        /// The field.
        name: String,
        /// Its code.
        code: FieldCode,
    },
    /// `Replicate::WORDS` is not what `Replicate::layout` describes: an implementation by hand is wrong.
    #[error("WORDS says {stated} words, the layout describes {described}")]
    Words {
        /// `Replicate::WORDS`.
        stated: usize,
        /// The sum over the fields.
        described: usize,
    },
}

/// The table of a component's fields. Coding values with it: [`write`](Self::write) and [`read`](Self::read).
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    fields: Vec<Field>,
    pub(crate) codes: Vec<FieldCode>,
    /// By powers of two of a base's age: the usual table of each field that has one.
    pub(crate) tables: [Vec<u8>; AGE_ORDERS],
    pub(crate) pattern: Pattern,
    words: usize,
    worst_bits: usize,
    entities: bool,
}

/// The age of a baseline is taken to make differences larger by at most so many powers of two, less one.
pub(crate) const AGE_ORDERS: usize = 5;

impl Layout {
    /// The layout of a component type.
    ///
    /// # Errors
    /// [`LayoutError`] if it is larger than anything that may travel, or implemented wrongly by hand.
    pub fn of<T: Replicate>() -> Result<Self, LayoutError> {
        let mut builder = LayoutBuilder::new();
        T::layout(&mut builder);
        let layout = builder.build()?;
        if layout.words != T::WORDS {
            return Err(LayoutError::Words { stated: T::WORDS, described: layout.words });
        }
        Ok(layout)
    }

    /// The fields in order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Words of one value.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words
    }

    /// No value takes more bits than this, with or without a baseline, at any age.
    #[must_use]
    pub fn worst_bits(&self) -> usize {
        self.worst_bits
    }

    /// Does any field name an entity?
    #[must_use]
    pub fn has_entities(&self) -> bool {
        self.entities
    }

    /// The names of entities in a value's words, without "none".
    pub(crate) fn entities(&self, words: &[u32]) -> impl Iterator<Item = NetId> {
        let mut at = 0;
        self.codes.iter().filter_map(move |code| {
            let here = at;
            at += code.words();
            let name = match code {
                FieldCode::Entity => u64::from(words[here]) | u64::from(words[here + 1]) << 32,
                _ => 0,
            };
            (name != 0).then_some(NetId(name))
        })
    }

    /// Makes every entity none that `keep` does not keep.
    pub(crate) fn mask_entities(&self, words: &mut [u32], keep: impl Fn(NetId) -> bool) {
        let mut at = 0;
        for code in &self.codes {
            if let FieldCode::Entity = code {
                let name = u64::from(words[at]) | u64::from(words[at + 1]) << 32;
                if name != 0 && !keep(NetId(name)) {
                    words[at..at + 2].fill(0);
                }
            }
            at += code.words();
        }
    }

    /// Hashes names, codes and meanings: equal hashes mean that two builds understand each other's values.
    pub fn hash_into(&self, hasher: &mut Xxh3) {
        hasher.update(&(self.fields.len() as u32).to_le_bytes());
        for field in &self.fields {
            hash_name(&field.name, hasher);
            field.code.hash_into(hasher);
            field.meaning.hash_into(hasher);
        }
    }

    /// The hash of a component of this name with this layout.
    #[must_use]
    pub fn digest(&self, name: &str) -> u64 {
        let mut hasher = Xxh3::new();
        hash_name(name, &mut hasher);
        self.hash_into(&mut hasher);
        hasher.digest()
    }
}

fn hash_name(name: &str, hasher: &mut Xxh3) {
    hasher.update(&(name.len() as u32).to_le_bytes());
    hasher.update(name.as_bytes());
}

/// Collects the fields of a component; handed to [`Replicate::layout`].
#[derive(Debug, Default)]
pub struct LayoutBuilder {
    fields: Vec<Field>,
    prefix: String,
    fine: bool,
}

impl LayoutBuilder {
    /// Without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A field by its code. An empty name stands for the enclosing field itself.
    pub fn field(&mut self, name: &str, code: FieldCode, meaning: Meaning) {
        let name = match (self.prefix.as_str(), name) {
            ("", "") => "value".to_owned(),
            ("", name) => name.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}.{name}"),
        };
        self.fields.push(Field { name, code, meaning });
    }

    /// The same on the simulation grid: see [`Quantiser::on_grid`](crate::replicate::Quantiser).
    pub(crate) fn on_grid() -> Self {
        Self { fine: true, ..Self::default() }
    }

    /// A float in steps.
    pub fn number(&mut self, name: &str, step: &Step, order: u32) {
        let (step, order) = if self.fine {
            // as many bits more for a usual difference as the grid is finer
            let grid = step.on_grid();
            let finer = (step.step() / grid.step()).log2().ceil() as u32;
            (grid, (order + finer).min(MAX_ORDER))
        } else {
            (*step, order)
        };
        let code = FieldCode::Number { max: step.last(), order };
        self.field(name, code, Meaning::Grid { min: step.min(), step: step.step() });
    }

    /// An integer in `min..=max`, which differ by less than 2³².
    pub fn integer(&mut self, name: &str, min: i64, max: i64, order: u32) {
        // A range that is too wide wraps to order u32::MAX, which `build` refuses.
        let (max, order) = u32::try_from(max.wrapping_sub(min)).map_or((u32::MAX, u32::MAX), |max| (max, order));
        self.field(name, FieldCode::Number { max, order }, Meaning::Grid { min: min as f64, step: 1.0 });
    }

    /// An integer of 64 bits.
    pub fn wide(&mut self, name: &str) {
        self.field(name, FieldCode::Wide, Meaning::Plain);
    }

    /// An angle.
    pub fn angle(&mut self, name: &str, bits: u32) {
        let bits = if self.fine { *ANGLE_BITS.end() } else { bits };
        self.field(name, FieldCode::Wrapping { bits }, Meaning::Plain);
    }

    /// One of the named choices.
    pub fn choice(&mut self, name: &str, choices: &'static [&'static str]) {
        self.field(name, FieldCode::Choice { count: choices.len() as u32 }, Meaning::Names(choices));
    }

    /// An exact `f32`.
    pub fn float(&mut self, name: &str) {
        self.field(name, FieldCode::Float, Meaning::Plain);
    }

    /// A rotation.
    pub fn quat(&mut self, name: &str, bits: u32) {
        let bits = if self.fine { *QUAT_BITS.end() } else { bits };
        self.field(name, FieldCode::Quat { bits }, Meaning::Plain);
    }

    /// Text of at most `cap` bytes.
    pub fn text(&mut self, name: &str, cap: u32) {
        self.field(name, FieldCode::Text { cap }, Meaning::Plain);
    }

    /// At most `cap` bytes.
    pub fn bytes(&mut self, name: &str, cap: u32) {
        self.field(name, FieldCode::Bytes { cap }, Meaning::Plain);
    }

    /// A direction.
    pub fn normal(&mut self, name: &str, bits: u32) {
        let bits = if self.fine { *NORMAL_BITS.end() } else { bits };
        // bits outside what is allowed become a code that `build` refuses
        let (max, order) = if NORMAL_BITS.contains(&bits) { ((1 << bits) - 2, STEP_ORDER) } else { (bits, u32::MAX) };
        let meaning = Meaning::Grid { min: -1.0, step: 2.0 / f64::from(max.max(1)) };
        self.within(name, |l| ["u", "v"].iter().for_each(|part| l.field(part, FieldCode::Number { max, order }, meaning)));
    }

    /// An entity, or none.
    pub fn entity(&mut self, name: &str) {
        self.field(name, FieldCode::Entity, Meaning::Plain);
    }

    /// Something that may be absent; `inner` describes it.
    pub fn maybe(&mut self, name: &str, inner: impl FnOnce(&mut Self)) {
        let at = self.fields.len();
        self.field(name, FieldCode::Maybe { fields: 0 }, Meaning::Plain);
        self.within(name, |l| l.within("some", inner));
        let fields = (self.fields.len() - at - 1) as u32;
        self.fields[at].code = FieldCode::Maybe { fields };
    }

    /// At most `max` items, each described by `inner`.
    pub fn list(&mut self, name: &str, max: u32, mut inner: impl FnMut(&mut Self)) {
        let mut flags = Vec::new();
        self.within(name, |l| {
            for i in 0..max {
                // `build` refuses what is longer; nobody has to wait for all of it
                if l.fields.len() > limits::FIELDS {
                    return;
                }
                flags.push(l.fields.len());
                l.field(&i.to_string(), FieldCode::Maybe { fields: 0 }, Meaning::Plain);
                l.within(&i.to_string(), |l| l.within("some", &mut inner));
            }
        });
        for at in flags {
            self.fields[at].code = FieldCode::Maybe { fields: (self.fields.len() - at - 1) as u32 };
        }
    }

    /// A nested value.
    pub fn part<T: Replicate>(&mut self, name: &str) {
        self.within(name, T::layout);
    }

    /// An array of `len` elements, each described by `inner`.
    pub fn array(&mut self, name: &str, len: usize, mut inner: impl FnMut(&mut Self)) {
        self.within(name, |l| {
            for i in 0..len {
                l.within(&i.to_string(), &mut inner);
                if l.fields.len() > limits::FIELDS {
                    return;
                }
            }
        });
    }

    /// Fields that stand within another.
    pub fn within(&mut self, name: &str, inner: impl FnOnce(&mut Self)) {
        let len = self.prefix.len();
        if !name.is_empty() {
            if len > 0 {
                self.prefix.push('.');
            }
            self.prefix.push_str(name);
        }
        inner(self);
        self.prefix.truncate(len);
    }

    /// The finished table.
    ///
    /// # Errors
    /// [`LayoutError`], the first that is found.
    pub fn build(self) -> Result<Layout, LayoutError> {
        let fields = self.fields;
        if fields.len() > limits::FIELDS {
            return Err(LayoutError::TooManyFields(fields.len()));
        }
        for (i, field) in fields.iter().enumerate() {
            if field.name.len() > limits::NAME_BYTES || fields[..i].iter().any(|f| f.name == field.name) {
                return Err(LayoutError::Name(field.name.clone()));
            }
            if !allowed(field.code, fields.len() - i - 1) {
                return Err(LayoutError::Code { name: field.name.clone(), code: field.code });
            }
        }
        let codes: Vec<_> = fields.iter().map(|f| f.code).collect();
        let worst_bits = codes.iter().map(|c| c.worst_bits()).sum();
        if worst_bits > limits::COMPONENT_BITS {
            return Err(LayoutError::TooLarge(worst_bits));
        }
        let words = codes.iter().map(|c| c.words()).sum();
        let entities = codes.contains(&FieldCode::Entity);
        let coded = || codes.iter().filter(|c| c.has_table());
        let tables = std::array::from_fn(|grow| coded().map(|c| c.usual_table(grow as u32)).collect());
        let pattern = Pattern::of(&codes);
        Ok(Layout { fields, tables, codes, pattern, words, worst_bits, entities })
    }
}

fn allowed(code: FieldCode, after: usize) -> bool {
    match code {
        FieldCode::Number { order, .. } => order <= MAX_ORDER,
        FieldCode::Wrapping { bits } => ANGLE_BITS.contains(&bits),
        FieldCode::Quat { bits } => QUAT_BITS.contains(&bits),
        FieldCode::Choice { count } => count >= 1,
        FieldCode::Text { cap } | FieldCode::Bytes { cap } => cap >= 1 && cap as usize <= limits::STRING_BYTES,
        FieldCode::Maybe { fields } => fields as usize <= after,
        FieldCode::Wide | FieldCode::Float | FieldCode::Entity => true,
    }
}
