//! [`Checkpoint`]: the exact state of what can be rewound, its bytes and their digest.

use crate::column::NameOf;
use crate::netid::NetId;
use hecs::Entity;
use std::fmt::{self, Write as _};

mod bytes;

pub use bytes::{CheckpointError, CheckpointReader, CheckpointWriter};

/// A component whose exact state is saved, restored, written, read and compared.
///
/// The derive goes field by field, so that saving a component that owns memory reuses the memory of the save before
/// (a derived `Clone` would allocate each time). Enums may have fields. The type itself derives `Clone`.
///
/// ```
/// use tidelock::Checkpoint;
/// use tidelock::checkpoint::{CheckpointReader, CheckpointWriter};
///
/// #[derive(Clone, Default, PartialEq, Debug, Checkpoint)]
/// struct Satchel { gold: u32, notes: Vec<String> }
///
/// let now = Satchel { gold: 3, notes: vec!["north".into()] };
/// let mut saved = Satchel::default();
/// now.save_into(&mut saved);
/// assert_eq!(saved, now);
///
/// let mut writer = CheckpointWriter::new(&|_| None);
/// now.write(&mut writer);
/// let mut reader = CheckpointReader::new(writer.as_bytes(), &|_| None);
/// assert_eq!(Satchel::read(&mut reader)?, now);
/// # Ok::<(), tidelock::checkpoint::CheckpointError>(())
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

    /// Writes everything that decides how the value behaves: what is kept and sent, and what digests are of. Equal values must
    /// write the same bytes on every machine: no padding, no handles, no memory order, no `usize` as it is. A value of a type that
    /// takes memory writes a byte or more.
    fn write(&self, w: &mut CheckpointWriter<'_>);

    /// Reads what [`write`](Self::write) wrote, out of bytes from anywhere.
    ///
    /// # Errors
    /// [`CheckpointError`] for whatever is not as `write` writes it. What is allocated is first compared with the bytes left
    /// ([`CheckpointReader::length`]) and counted ([`CheckpointReader::allocate`]).
    fn read(r: &mut CheckpointReader<'_>) -> Result<Self, CheckpointError>;

    /// Finds the first part in which two values differ, and says whether there is one. Values that write the same bytes for a
    /// digest do not differ. The derive goes field by field; without it, only that the whole differs is told.
    fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
        differ_whole(self, other, at, |value| {
            let mut writer = CheckpointWriter::for_digest(&|_| None);
            value.write(&mut writer);
            format!("digest {:016x}", writer.finish(0))
        })
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

macro_rules! plain {
    ($($ty:ty => |$self:ident, $w:ident| $write:expr, |$r:ident| $read:expr;)*) => {$(
        impl Checkpoint for $ty {
            const PLAIN: bool = true;

            #[inline]
            fn save_into(&self, into: &mut Self) {
                *into = *self;
            }
            #[inline]
            fn write(&self, $w: &mut CheckpointWriter<'_>) {
                let $self = *self;
                $write
            }
            #[inline]
            fn read($r: &mut CheckpointReader<'_>) -> Result<Self, CheckpointError> {
                $read
            }
            fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
                differ_whole(self, other, at, |value| format!("{value:?}"))
            }
        }
    )*};
}

macro_rules! numbers {
    ($($ty:ty)*) => {
        plain! {$(
            $ty => |v, w| w.bytes(&v.to_le_bytes()), |r| Ok(<$ty>::from_le_bytes(r.array()?));
        )*}
    };
}

numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

plain! {
    usize => |v, w| w.bytes(&(v as u64).to_le_bytes()), |r| {
        usize::try_from(u64::from_le_bytes(r.array()?)).map_err(|_| CheckpointError::OutOfRange("usize of this machine"))
    };
    isize => |v, w| w.bytes(&(v as i64).to_le_bytes()), |r| {
        isize::try_from(i64::from_le_bytes(r.array()?)).map_err(|_| CheckpointError::OutOfRange("isize of this machine"))
    };
    bool => |v, w| w.bytes(&[u8::from(v)]), |r| match r.array()? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(CheckpointError::OutOfRange("bool")),
    };
    char => |v, w| w.bytes(&u32::from(v).to_le_bytes()), |r| {
        char::from_u32(u32::from_le_bytes(r.array()?)).ok_or(CheckpointError::OutOfRange("character"))
    };
    f32 => |v, w| w.f32(v), |r| Ok(f32::from_bits(u32::from_le_bytes(r.array()?)));
    f64 => |v, w| w.f64(v), |r| Ok(f64::from_bits(u64::from_le_bytes(r.array()?)));
    () => |_v, _w| {}, |_r| Ok(());
    NetId => |v, w| w.bytes(&v.0.to_le_bytes()), |r| Ok(NetId(u64::from_le_bytes(r.array()?)));
}

/// Compares what two values write, and shows them if that differs.
fn differ_whole<T: Checkpoint>(mine: &T, others: &T, at: &mut Differ<'_>, show: impl Fn(&T) -> String) -> bool {
    let mut writers = (CheckpointWriter::for_digest(at.names.0), CheckpointWriter::for_digest(at.names.1));
    mine.write(&mut writers.0);
    others.write(&mut writers.1);
    writers.0.as_bytes() != writers.1.as_bytes() && at.found(show(mine), show(others))
}

impl Checkpoint for Entity {
    const PLAIN: bool = true;

    #[inline]
    fn save_into(&self, into: &mut Self) {
        *into = *self;
    }

    #[inline]
    fn write(&self, w: &mut CheckpointWriter<'_>) {
        w.entity(*self);
    }

    #[inline]
    fn read(r: &mut CheckpointReader<'_>) -> Result<Self, CheckpointError> {
        r.entity()
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

    fn write(&self, w: &mut CheckpointWriter<'_>) {
        w.length(self.len());
        w.bytes(self.as_bytes());
    }

    fn read(r: &mut CheckpointReader<'_>) -> Result<Self, CheckpointError> {
        let length = r.length()?;
        let text = std::str::from_utf8(r.bytes(length)?).map_err(|_| CheckpointError::OutOfRange("text"))?;
        Ok(text.to_owned())
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

    fn write(&self, w: &mut CheckpointWriter<'_>) {
        w.length(self.len());
        for value in self {
            value.write(w);
            if size_of::<T>() == 0 {
                w.bytes(&[0]); // so that no list is longer than its bytes
            }
        }
    }

    fn read(r: &mut CheckpointReader<'_>) -> Result<Self, CheckpointError> {
        let length = r.length()?;
        r.allocate(length, size_of::<T>())?;
        r.nested(|r| {
            let mut values = Self::with_capacity(length);
            for _ in 0..length {
                values.push(T::read(r)?);
                if size_of::<T>() == 0 && r.array()? != [0] {
                    return Err(CheckpointError::OutOfRange("element"));
                }
            }
            Ok(values)
        })
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
    fn write(&self, w: &mut CheckpointWriter<'_>) {
        self.iter().for_each(|value| value.write(w));
    }

    fn read(r: &mut CheckpointReader<'_>) -> Result<Self, CheckpointError> {
        let mut failed = None;
        let values: [Option<T>; N] = std::array::from_fn(|_| match failed {
            None => T::read(r).map_err(|error| failed = Some(error)).ok(),
            Some(_) => None,
        });
        match failed {
            None => Ok(values.map(|value| value.expect("each was read"))),
            Some(error) => Err(error),
        }
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

    fn write(&self, w: &mut CheckpointWriter<'_>) {
        w.variant(self.is_some().into());
        if let Some(value) = self {
            value.write(w);
        }
    }

    fn read(r: &mut CheckpointReader<'_>) -> Result<Self, CheckpointError> {
        match r.variant()? {
            0 => Ok(None),
            1 => T::read(r).map(Some),
            _ => Err(CheckpointError::OutOfRange("option")),
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

macro_rules! tuples {
    ($(($($part:ident $index:tt),*))*) => {$(
        impl<$($part: Checkpoint),*> Checkpoint for ($($part,)*) {
            const PLAIN: bool = true $(&& $part::PLAIN)*;

            #[inline]
            fn save_into(&self, into: &mut Self) {
                $(self.$index.save_into(&mut into.$index);)*
            }

            #[inline]
            fn write(&self, w: &mut CheckpointWriter<'_>) {
                $(self.$index.write(w);)*
            }

            #[inline]
            fn read(r: &mut CheckpointReader<'_>) -> Result<Self, CheckpointError> {
                Ok(($($part::read(r)?,)*))
            }

            fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
                $(at.field(stringify!($index), |at| self.$index.differ(&other.$index, at)))||*
            }
        }
    )*};
}

tuples! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }
