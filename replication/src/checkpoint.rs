//! [`Checkpoint`]: the exact state of what can be rewound, and its digest.

use crate::column::NameOf;
use crate::netid::NetId;
use hecs::Entity;
use std::fmt::{self, Write as _};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A component whose exact state is saved, restored and compared.
///
/// The derive goes field by field, so that saving a component that owns memory reuses the memory of the save before
/// (a derived `Clone` would allocate each time). Enums may have fields. The type itself derives `Clone`.
///
/// ```
/// use tidelock::Checkpoint;
/// use tidelock::checkpoint::DigestWriter;
///
/// #[derive(Clone, Default, PartialEq, Debug, Checkpoint)]
/// struct Satchel { gold: u32, notes: Vec<String> }
///
/// let now = Satchel { gold: 3, notes: vec!["north".into()] };
/// let mut saved = Satchel::default();
/// now.save_into(&mut saved);
/// assert_eq!(saved, now);
///
/// let mut digest = DigestWriter::new(&|_| None);
/// now.digest(&mut digest);
/// let mine = digest.finish(7);
/// saved.digest(&mut digest);
/// assert_eq!(digest.finish(7), mine);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be saved and compared exactly",
    label = "derive `Checkpoint` for it",
    note = "hash maps have no `Checkpoint`, because their order differs between peers; use a `Vec`"
)]
pub trait Checkpoint: Clone + Send + Sync + 'static {
    /// A value owns no memory, so that a clone costs no more than [`save_into`](Self::save_into): whole columns are then copied at
    /// once. The derive knows. Leave it `false` when in doubt; that is slower and never wrong.
    const PLAIN: bool = false;

    /// Makes `into` equal to `self`, reusing what memory it has.
    fn save_into(&self, into: &mut Self);

    /// Feeds everything that decides how the value behaves. Equal values must feed the same bytes on every machine: no padding,
    /// no handles, no memory order, no `usize` as it is.
    fn digest(&self, digest: &mut DigestWriter<'_>);

    /// Finds the first part in which two values differ, and says whether there is one. Values that feed the same bytes to
    /// [`digest`](Self::digest) do not differ. The derive goes field by field; without it, only that the whole differs is told.
    fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
        let mut writer = DigestWriter::new(at.names.0);
        self.digest(&mut writer);
        let mine = writer.finish(0);
        let mut writer = DigestWriter::new(at.names.1);
        other.digest(&mut writer);
        let others = writer.finish(0);
        mine != others && at.found(format_args!("digest {mine:016x}"), format_args!("digest {others:016x}"))
    }
}

/// Where two values differ, as it is being found: see [`Checkpoint::differ`].
pub struct Differ<'a> {
    path: String,
    values: (String, String),
    names: (NameOf<'a>, NameOf<'a>),
}

impl fmt::Debug for Differ<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Differ").field("path", &self.path).field("values", &self.values).finish_non_exhaustive()
    }
}

impl<'a> Differ<'a> {
    /// An empty one, with what knows the names of entities on the one side and on the other.
    #[must_use]
    pub fn new(names: &'a dyn Fn(Entity) -> Option<NetId>, others_names: &'a dyn Fn(Entity) -> Option<NetId>) -> Self {
        Self { path: String::new(), values: (String::new(), String::new()), names: (names, others_names) }
    }

    /// Looks into a field, with its own [`Checkpoint::differ`].
    pub fn field(&mut self, name: &str, differ: impl FnOnce(&mut Self) -> bool) -> bool {
        let before = self.path.len();
        if before > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        differ(self) || self.leave(before)
    }

    /// Looks into an element of a list.
    pub fn element(&mut self, index: usize, differ: impl FnOnce(&mut Self) -> bool) -> bool {
        let before = self.path.len();
        let _ = write!(self.path, "[{index}]"); // a string takes everything
        differ(self) || self.leave(before)
    }

    fn leave(&mut self, length: usize) -> bool {
        self.path.truncate(length);
        false
    }

    /// The values differ here. Always `true`.
    pub fn found(&mut self, mine: impl fmt::Display, others: impl fmt::Display) -> bool {
        self.values = (mine.to_string(), others.to_string());
        true
    }

    /// The path of the field and both values, as text. An empty path: the whole value.
    #[must_use]
    pub fn into_parts(self) -> (String, String, String) {
        (self.path, self.values.0, self.values.1)
    }
}

/// Collects a value's bytes and hashes them. One is used for many rows, so that its memory is allocated once.
pub struct DigestWriter<'a> {
    bytes: Vec<u8>,
    names: &'a dyn Fn(Entity) -> Option<NetId>,
}

impl fmt::Debug for DigestWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestWriter").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl<'a> DigestWriter<'a> {
    /// An empty one; `names` knows the names of entities, because handles differ between peers.
    #[must_use]
    pub fn new(names: &'a dyn Fn(Entity) -> Option<NetId>) -> Self {
        Self { bytes: Vec::new(), names }
    }

    /// Bytes, as they are. What has no fixed length puts its length first.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A length, the same on machines of any word size.
    #[inline]
    pub fn length(&mut self, length: usize) {
        self.bytes(&(length as u64).to_le_bytes());
    }

    /// Which variant of an enum, or whether an option is there.
    #[inline]
    pub fn variant(&mut self, index: u32) {
        self.bytes(&index.to_le_bytes());
    }

    /// An entity, by its name. Those without one are all the same: only local code can tell them apart.
    #[inline]
    pub fn entity(&mut self, entity: Entity) {
        let name = (self.names)(entity).unwrap_or_default();
        self.bytes(&name.0.to_le_bytes());
    }

    /// The xxh3 of what was written, keyed with `key`; the writer is empty afterwards.
    #[must_use]
    pub fn finish(&mut self, key: u64) -> u64 {
        let digest = xxh3_64_with_seed(&self.bytes, key);
        self.bytes.clear();
        digest
    }
}

macro_rules! plain {
    ($($ty:ty => |$self:ident| $bytes:expr;)*) => {$(
        impl Checkpoint for $ty {
            const PLAIN: bool = true;

            #[inline]
            fn save_into(&self, into: &mut Self) {
                *into = *self;
            }
            #[inline]
            fn digest(&self, digest: &mut DigestWriter<'_>) {
                let $self = *self;
                digest.bytes(&$bytes);
            }
            fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
                let bytes = |$self: $ty| $bytes;
                bytes(*self) != bytes(*other) && at.found(format_args!("{self:?}"), format_args!("{other:?}"))
            }
        }
    )*};
}

plain! {
    u8 => |v| v.to_le_bytes();
    u16 => |v| v.to_le_bytes();
    u32 => |v| v.to_le_bytes();
    u64 => |v| v.to_le_bytes();
    u128 => |v| v.to_le_bytes();
    i8 => |v| v.to_le_bytes();
    i16 => |v| v.to_le_bytes();
    i32 => |v| v.to_le_bytes();
    i64 => |v| v.to_le_bytes();
    i128 => |v| v.to_le_bytes();
    usize => |v| (v as u64).to_le_bytes();
    isize => |v| (v as i64).to_le_bytes();
    bool => |v| [u8::from(v)];
    char => |v| (v as u32).to_le_bytes();
    // −0.0 and 0.0 behave differently and count as different; NaNs do not, and machines make different ones.
    f32 => |v| (if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() }).to_le_bytes();
    f64 => |v| (if v.is_nan() { 0x7ff8_0000_0000_0000 } else { v.to_bits() }).to_le_bytes();
    () => |_v| [0u8; 0];
    NetId => |v| v.0.to_le_bytes();
}

impl Checkpoint for Entity {
    const PLAIN: bool = true;

    #[inline]
    fn save_into(&self, into: &mut Self) {
        *into = *self;
    }

    #[inline]
    fn digest(&self, digest: &mut DigestWriter<'_>) {
        digest.entity(*self);
    }

    fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
        let names = ((at.names.0)(*self).unwrap_or_default(), (at.names.1)(*other).unwrap_or_default());
        names.0 != names.1 && at.found(names.0, names.1)
    }
}

impl Checkpoint for String {
    fn save_into(&self, into: &mut Self) {
        into.clone_from(self);
    }

    fn digest(&self, digest: &mut DigestWriter<'_>) {
        digest.length(self.len());
        digest.bytes(self.as_bytes());
    }

    fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
        self != other && at.found(format_args!("{self:?}"), format_args!("{other:?}"))
    }
}

impl<T: Checkpoint> Checkpoint for Vec<T> {
    fn save_into(&self, into: &mut Self) {
        into.truncate(self.len());
        let (saved, new) = self.split_at(into.len());
        for (from, into) in saved.iter().zip(into.iter_mut()) {
            from.save_into(into);
        }
        into.extend_from_slice(new);
    }

    fn digest(&self, digest: &mut DigestWriter<'_>) {
        digest.length(self.len());
        self.iter().for_each(|value| value.digest(digest));
    }

    fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
        let mut pairs = self.iter().zip(other).enumerate();
        pairs.any(|(i, (mine, others))| at.element(i, |at| mine.differ(others, at)))
            || self.len() != other.len() && at.field("len()", |at| at.found(self.len(), other.len()))
    }
}

impl<T: Checkpoint, const N: usize> Checkpoint for [T; N] {
    const PLAIN: bool = T::PLAIN;

    #[inline]
    fn save_into(&self, into: &mut Self) {
        for (from, into) in self.iter().zip(into) {
            from.save_into(into);
        }
    }

    #[inline]
    fn digest(&self, digest: &mut DigestWriter<'_>) {
        self.iter().for_each(|value| value.digest(digest));
    }

    fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
        let mut pairs = self.iter().zip(other).enumerate();
        pairs.any(|(i, (mine, others))| at.element(i, |at| mine.differ(others, at)))
    }
}

impl<T: Checkpoint> Checkpoint for Option<T> {
    const PLAIN: bool = T::PLAIN;

    fn save_into(&self, into: &mut Self) {
        match (self, into) {
            (Some(from), Some(into)) => from.save_into(into),
            (from, into) => into.clone_from(from),
        }
    }

    fn digest(&self, digest: &mut DigestWriter<'_>) {
        digest.variant(self.is_some().into());
        if let Some(value) = self {
            value.digest(digest);
        }
    }

    fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
        match (self, other) {
            (Some(mine), Some(others)) => mine.differ(others, at),
            (None, None) => false,
            (Some(_), None) => at.found("Some", "None"),
            (None, Some(_)) => at.found("None", "Some"),
        }
    }
}
