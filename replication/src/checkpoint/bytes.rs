//! Values as bytes: what is written, kept, compared and read back.
//!
//! ```text
//! integer, float   little endian, in full        bool, ()          1 byte; nothing
//! char             u32                           usize, isize      u64, i64
//! length, variant  varint: 7 bits a byte, the lowest first, in as few bytes as they fit
//! String           length, UTF-8                 Vec               length, elements
//! Option           variant (0 none, 1 some), the value
//! struct, tuple    the fields in order           enum              variant, the fields in order
//! Entity           its name, u64; 0 for one that has none
//! ```
//!
//! There is one encoding of each value, so that equal bytes mean equal values and the other way round, but for NaNs: where bytes
//! are hashed, all NaNs are one.

use crate::column::NameOf;
use crate::netid::NetId;
use hecs::Entity;
use std::fmt;
use thiserror::Error;
use tidelock_netcore::limits;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes that are no value of the type that was to be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointError {
    /// There are fewer bytes than the value needs.
    #[error("the bytes end too early")]
    Truncated,
    /// There are more.
    #[error("{0} bytes are left over")]
    Trailing(usize),
    /// The bytes stand for nothing, or for something that is written in another way.
    #[error("the bytes are no {0}")]
    OutOfRange(&'static str),
    /// Lists in lists, deeper than [`limits::CHECKPOINT_DEPTH`](tidelock_netcore::limits::CHECKPOINT_DEPTH).
    #[error("lists are nested too deep")]
    TooDeep,
    /// It would take more memory than [`limits::CHECKPOINT_MEMORY`](tidelock_netcore::limits::CHECKPOINT_MEMORY).
    #[error("the value takes too much memory")]
    TooLarge,
    /// It names an entity that is not here.
    #[error("it names entity {0}, which is not here")]
    UnknownName(NetId),
}

/// Collects the bytes of values, to keep or to hash them. One is used for many values, so that its memory is allocated once.
pub struct CheckpointWriter<'a> {
    bytes: Vec<u8>,
    names: NameOf<'a>,
    /// All NaNs are one.
    hashes: bool,
}

impl fmt::Debug for CheckpointWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointWriter").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl<'a> CheckpointWriter<'a> {
    /// An empty one, for bytes that are kept. `names` knows the names of entities, because handles differ between peers.
    #[must_use]
    pub fn new(names: &'a dyn Fn(Entity) -> Option<NetId>) -> Self {
        Self { bytes: Vec::new(), names, hashes: false }
    }

    /// An empty one, for bytes that are hashed: NaNs are all the same there, because machines make different ones.
    #[must_use]
    pub fn for_digest(names: &'a dyn Fn(Entity) -> Option<NetId>) -> Self {
        Self { hashes: true, ..Self::new(names) }
    }

    /// The same, into memory that was used before. It is emptied.
    pub(crate) fn for_digest_into(mut bytes: Vec<u8>, names: NameOf<'a>) -> Self {
        bytes.clear();
        Self { bytes, names, hashes: true }
    }

    /// What was written.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes, as they are. What has no fixed length puts its length first.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A length, the same on machines of any word size.
    #[inline]
    pub fn length(&mut self, length: usize) {
        self.varint(length as u64);
    }

    /// Which variant of an enum, or whether an option is there.
    #[inline]
    pub fn variant(&mut self, index: u32) {
        self.varint(index.into());
    }

    #[inline]
    pub(crate) fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// A float, bit for bit where bytes are kept. −0.0 and 0.0 behave differently and are different.
    #[inline]
    pub fn f32(&mut self, value: f32) {
        let bits = if self.hashes && value.is_nan() { 0x7fc0_0000 } else { value.to_bits() };
        self.bytes(&bits.to_le_bytes());
    }

    /// The same of twice the size.
    #[inline]
    pub fn f64(&mut self, value: f64) {
        let bits = if self.hashes && value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() };
        self.bytes(&bits.to_le_bytes());
    }

    /// An entity, by its name. Those without one are all the same: only local code can tell them apart.
    #[inline]
    pub fn entity(&mut self, entity: Entity) {
        let name = (self.names)(entity).unwrap_or_default();
        self.bytes(&name.0.to_le_bytes());
    }

    /// What was written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The xxh3 of what was written, keyed with `key`; the writer is empty afterwards.
    #[must_use]
    pub fn finish(&mut self, key: u64) -> u64 {
        let digest = xxh3_64_with_seed(&self.bytes, key);
        self.bytes.clear();
        digest
    }
}

/// Takes values out of bytes from anywhere: nothing is allocated that was not compared with a limit, and what is not as a
/// [`CheckpointWriter`] writes it is refused.
pub struct CheckpointReader<'a> {
    bytes: &'a [u8],
    entities: &'a dyn Fn(NetId) -> Option<Entity>,
    depth: usize,
    /// Bytes of memory that values may still take.
    memory: usize,
}

impl fmt::Debug for CheckpointReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointReader").field("left", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl<'a> CheckpointReader<'a> {
    /// Reads `bytes`; `entities` knows the entities behind names.
    #[must_use]
    pub fn new(bytes: &'a [u8], entities: &'a dyn Fn(NetId) -> Option<Entity>) -> Self {
        Self { bytes, entities, depth: 0, memory: limits::CHECKPOINT_MEMORY }
    }

    /// Bytes that were not read yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`CheckpointError::Truncated`].
    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], CheckpointError> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(CheckpointError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// The next `N` bytes: what `from_le_bytes` of a number takes.
    ///
    /// # Errors
    /// [`CheckpointError::Truncated`].
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], CheckpointError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(CheckpointError::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// The number of things that follow, of which each takes a byte or more: never more than there are bytes left.
    ///
    /// # Errors
    /// [`CheckpointError`].
    #[inline]
    pub fn length(&mut self) -> Result<usize, CheckpointError> {
        let length = self.varint()?;
        let length = usize::try_from(length).ok().filter(|l| *l <= self.bytes.len());
        length.ok_or(CheckpointError::Truncated)
    }

    /// Which variant of an enum.
    ///
    /// # Errors
    /// [`CheckpointError`].
    #[inline]
    pub fn variant(&mut self) -> Result<u32, CheckpointError> {
        u32::try_from(self.varint()?).map_err(|_| CheckpointError::OutOfRange("variant"))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, CheckpointError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // the last byte of several is not empty, and the tenth has one bit
                let is_short = shift == 0 || byte != 0;
                return (is_short && (shift < 63 || byte < 2)).then_some(number).ok_or(CheckpointError::OutOfRange("number"));
            }
        }
        Err(CheckpointError::OutOfRange("number"))
    }

    /// An entity that is here, or [`Entity::DANGLING`] for one that had no name.
    ///
    /// # Errors
    /// [`CheckpointError::UnknownName`] for one that is not here.
    pub fn entity(&mut self) -> Result<Entity, CheckpointError> {
        let name = NetId(u64::from_le_bytes(self.array()?));
        if name == NetId(0) {
            return Ok(Entity::DANGLING);
        }
        (self.entities)(name).ok_or(CheckpointError::UnknownName(name))
    }

    /// Reads a part that is as deep in the value as it may be long: a list's elements, what a `Box` holds.
    ///
    /// # Errors
    /// Those of `read`; [`CheckpointError::TooDeep`].
    pub fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, CheckpointError>) -> Result<T, CheckpointError> {
        if self.depth == limits::CHECKPOINT_DEPTH {
            return Err(CheckpointError::TooDeep);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Counts `count` things of `size` bytes each that are about to be allocated: a byte can stand for a large one.
    ///
    /// # Errors
    /// [`CheckpointError::TooLarge`]: then they must not be.
    pub fn allocate(&mut self, count: usize, size: usize) -> Result<(), CheckpointError> {
        let left = count.checked_mul(size).and_then(|bytes| self.memory.checked_sub(bytes));
        self.memory = left.ok_or(CheckpointError::TooLarge)?;
        Ok(())
    }

    /// A reader of the next `count` bytes alone, under the same limits; [`rejoin`](Self::rejoin) it when it is done.
    pub(crate) fn part(&mut self, count: usize) -> Result<Self, CheckpointError> {
        Ok(Self { bytes: self.bytes(count)?, entities: self.entities, depth: self.depth, memory: self.memory })
    }

    pub(crate) fn rejoin(&mut self, part: &Self) -> Result<(), CheckpointError> {
        self.memory = part.memory;
        part.finish()
    }

    /// There is nothing more.
    ///
    /// # Errors
    /// [`CheckpointError::Trailing`] if there is.
    pub fn finish(&self) -> Result<(), CheckpointError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(CheckpointError::Trailing(self.bytes.len())) }
    }
}
