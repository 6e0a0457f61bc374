//! Tables of prefix codes that were trained for a game, beside the fixed ones.
//!
//! What a guess is off by is written with the table that fits best of what was sent lately: one of 63 fixed ones
//! (`docs/codes.txt`), or of up to [`limits::TABLES`] that were trained from what a session like this one sent before. Trained ones
//! fit better, because they know the shape of a game's surprises and not only their size. Who does not see everything
//! ([relevance](crate::Peer::set_relevance)) is told in another form of packets, which has the usual tables: such a host neither
//! records what it tells its guests nor uses trained tables for it.
//!
//! 1. A peer [records](crate::Peer::start_recording) what it sends, in sessions as the players will have them. Recordings of several
//!    runs can be [merged](Recording::merge).
//! 2. [`Tables::train`] makes tables of it, which are kept as [bytes](Tables::to_bytes) with the game.
//! 3. [`Config::tables`](crate::Config::tables) puts them to use. The host's are those of the session. A guest that has the same is
//!    told so; another gets them with its welcome, so no two builds are kept apart by them.
//!
//! ```
//! use tidelock::trained::{Recording, Tables, TablesError};
//!
//! // of a peer that has played: `peer.start_recording()`, and in the end `peer.take_recording()`
//! fn train(runs: &[Recording]) -> Result<Vec<u8>, TablesError> {
//!     let mut all = runs[0].clone();
//!     runs[1..].iter().try_for_each(|run| all.merge(run))?;
//!     Ok(Tables::train(&all, 16)?.to_bytes())
//! }
//! ```

mod code;
mod peer;
mod recording;
mod train;

pub use recording::Recording;

pub(crate) use recording::Occasion;

use crate::codes::{ESCAPE, LONGEST, TOKENS, Table};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;
use tidelock_netcore::control::SessionTables;
use tidelock_netcore::limits;
use xxhash_rust::xxh3::xxh3_64;

/// Trained tables, 1 to [`limits::TABLES`]. Cheap to clone.
///
/// ```text
/// byte 0    the layout of the rest: 1
/// byte 1    how many tables there are
/// then 37 bytes for each: the code lengths of the 73 tokens in 4 bits each, the first in the lower half of a byte; the upper
///           half of the last is zero
/// ```
///
/// A length is 1 to 10, or 0: the token has no code, and where it would be needed, the escape is written and the value itself. The
/// escape (token 72) has a code. All codes of a table together use every bit pattern.
#[derive(Clone)]
pub struct Tables(Arc<Built>);

struct Built {
    bytes: Vec<u8>,
    digest: u64,
    codes: Vec<Table>,
}

/// Tables, or a recording, that cannot be what they should.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TablesError {
    /// Made by another version, or nothing of the kind.
    #[error("these bytes are of another format")]
    Format,
    /// The bytes are not as many as they say, or more than there may be.
    #[error("{0} bytes are too few, too many, or not what they say")]
    Length(usize),
    /// Not 1 to [`limits::TABLES`] tables.
    #[error("{0} tables; there are 1 to {max}", max = limits::TABLES)]
    Count(usize),
    /// The lengths of a table are no complete code of at most 10 bits in which the escape has a part.
    #[error("the lengths of table {0} are no complete code")]
    Code(usize),
    /// A recording speaks of what there is not, or counts out of order.
    #[error("the recording counts what cannot be sent")]
    Recording,
    /// Two recordings are of different schemas.
    #[error("the recordings are of different schemas")]
    Schema,
    /// Tables that came from a host have another digest than it said.
    #[error("the tables have another digest than was said")]
    Digest,
    /// A recording holds nothing from which a table would be better than the fixed ones.
    #[error("nothing was recorded that other tables than the fixed ones would help")]
    Nothing,
}

/// The code lengths of a table.
type Lengths = [u8; TOKENS];

impl Tables {
    /// Tables for what was recorded, at most so many, which must be 1 to [`limits::TABLES`]. The same recording makes the same tables
    /// on every machine. Takes up to some seconds.
    ///
    /// # Errors
    /// [`TablesError::Count`], and [`TablesError::Nothing`] if what is recorded is too little or the fixed tables fit it as well.
    pub fn train(recording: &Recording, most: usize) -> Result<Self, TablesError> {
        if !(1..=limits::TABLES).contains(&most) {
            return Err(TablesError::Count(most));
        }
        let lengths = train::tables(recording, most);
        if lengths.is_empty() {
            return Err(TablesError::Nothing);
        }
        Ok(Self::built(&lengths))
    }

    /// As they are kept and sent.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.bytes.clone()
    }

    /// The inverse of [`to_bytes`](Self::to_bytes), for bytes from anywhere.
    ///
    /// # Errors
    /// [`TablesError`] for whatever `to_bytes` does not make.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TablesError> {
        let (&format, rest) = bytes.split_first().ok_or(TablesError::Length(0))?;
        if format != FORMAT {
            return Err(TablesError::Format);
        }
        let (&count, rest) = rest.split_first().ok_or(TablesError::Length(1))?;
        if !(1..=limits::TABLES).contains(&usize::from(count)) {
            return Err(TablesError::Count(count.into()));
        }
        if rest.len() != usize::from(count) * TABLE_BYTES {
            return Err(TablesError::Length(bytes.len()));
        }
        let lengths = rest.chunks_exact(TABLE_BYTES).enumerate().map(|(i, table)| unpack(table).ok_or(TablesError::Code(i)));
        Ok(Self::built(&lengths.collect::<Result<Vec<_>, _>>()?))
    }

    /// Equal digests are equal tables, and nothing of them has to be sent.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.0.digest
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.codes.len()
    }

    fn built(lengths: &[Lengths]) -> Self {
        let mut bytes = vec![FORMAT, lengths.len() as u8];
        lengths.iter().for_each(|lengths| pack(lengths, &mut bytes));
        Self(Arc::new(Built { digest: xxh3_64(&bytes), codes: lengths.iter().map(Table::new).collect(), bytes }))
    }

    /// What a host tells a guest that has those of this digest.
    pub(crate) fn to_wire(&self, guests: Option<u64>) -> SessionTables {
        let bytes = if guests == Some(self.digest()) { Vec::new() } else { self.to_bytes() };
        SessionTables { digest: self.digest(), bytes }
    }

    /// The session's tables, of what a host has said to a guest that has these.
    pub(crate) fn of_session(own: Option<&Self>, said: Option<&SessionTables>) -> Result<Option<Self>, TablesError> {
        let Some(said) = said else { return Ok(None) };
        if let Some(own) = own.filter(|own| said.bytes.is_empty() && own.digest() == said.digest) {
            return Ok(Some(own.clone()));
        }
        let tables = Self::from_bytes(&said.bytes)?;
        if tables.digest() == said.digest { Ok(Some(tables)) } else { Err(TablesError::Digest) }
    }

    #[inline]
    pub(crate) fn codes(tables: Option<&Self>) -> &[Table] {
        tables.map_or(&[], |tables| &tables.0.codes)
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tables({} of digest {:016x})", self.count(), self.digest())
    }
}

impl PartialEq for Tables {
    fn eq(&self, other: &Self) -> bool {
        self.0.bytes == other.0.bytes
    }
}

impl Eq for Tables {}

const FORMAT: u8 = 1;
/// Bytes of one table.
const TABLE_BYTES: usize = TOKENS.div_ceil(2);
const _: () = assert!(limits::TABLES_BYTES == 2 + limits::TABLES * TABLE_BYTES);

fn pack(lengths: &Lengths, out: &mut Vec<u8>) {
    out.extend(lengths.chunks(2).map(|pair| pair[0] | pair.get(1).map_or(0, |second| second << 4)));
}

/// The lengths in some bytes, if they are a complete code.
fn unpack(bytes: &[u8]) -> Option<Lengths> {
    let mut halves = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
    let lengths = std::array::from_fn(|_| halves.next().unwrap_or(0));
    let rest_is_zero = halves.all(|half| half == 0);
    (rest_is_zero && is_complete(&lengths)).then_some(lengths)
}

/// Do the codes use every pattern of bits exactly once, and has the escape one?
fn is_complete(lengths: &Lengths) -> bool {
    let share = |length: &u8| if *length == 0 { 0 } else { 1u32 << (LONGEST - u32::from(*length)) };
    let short = lengths.iter().all(|length| u32::from(*length) <= LONGEST);
    short && lengths[ESCAPE] > 0 && lengths.iter().map(share).sum::<u32>() == 1 << LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A complete code: patterns are split in two, as often as is drawn, and given to tokens from the escape on.
    fn code(splits: &[u16]) -> Lengths {
        let mut open = vec![1u8, 1];
        for split in splits {
            let at = usize::from(*split) % open.len();
            if open.len() < TOKENS && open[at] < LONGEST as u8 {
                open[at] += 1;
                open.push(open[at]);
            }
        }
        let mut lengths = [0; TOKENS];
        let step = 1 + splits.len() % (TOKENS - 1);
        // 73 is a prime: every step comes by every token
        open.iter().enumerate().for_each(|(i, length)| lengths[(ESCAPE + i * step) % TOKENS] = *length);
        lengths
    }

    fn codes() -> impl Strategy<Value = Vec<Lengths>> {
        prop::collection::vec(prop::collection::vec(any::<u16>(), 0..200).prop_map(|s| code(&s)), 1..=limits::TABLES)
    }

    proptest! {
        #[test]
        fn tables_come_back_and_no_part_of_them_does(lengths in codes(), other in any::<(u16, u8)>()) {
            let tables = Tables::built(&lengths);
            let bytes = tables.to_bytes();
            prop_assert!(bytes.len() <= limits::TABLES_BYTES);
            let back = Tables::from_bytes(&bytes).unwrap();
            prop_assert_eq!((&back, back.digest(), back.count()), (&tables, tables.digest(), lengths.len()));
            for end in 0..bytes.len() {
                prop_assert!(Tables::from_bytes(&bytes[..end]).is_err(), "{} bytes of {}", end, bytes.len());
            }
            let mut longer = bytes.clone();
            longer.push(0);
            prop_assert_eq!(Tables::from_bytes(&longer), Err(TablesError::Length(longer.len())));
            // another byte: other tables, or none
            let mut wrong = bytes.clone();
            wrong[usize::from(other.0) % bytes.len()] ^= other.1;
            if let Ok(read) = Tables::from_bytes(&wrong) {
                prop_assert_eq!(read.to_bytes(), wrong);
            }
        }

        #[test]
        fn any_bytes_are_refused_or_come_back(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(tables) = Tables::from_bytes(&bytes) {
                prop_assert_eq!(tables.to_bytes(), bytes);
            }
        }

        #[test]
        fn every_number_comes_back_from_a_trained_table(lengths in codes(), numbers in prop::collection::vec(any::<u64>(), 1..40)) {
            use tidelock_netcore::bits::{BitReader, BitWriter};
            let tables = Tables::built(&lengths);
            for (table, lengths) in Tables::codes(Some(&tables)).iter().zip(&lengths) {
                for z in numbers.iter().flat_map(|n| [n % 16, n % 300, n % (1 << 33), *n]) {
                    let mut w = BitWriter::new();
                    let said = table.put(z, &mut w);
                    let token = crate::codes::token(z).0;
                    prop_assert_eq!(said, token != ESCAPE && lengths[token] > 0);
                    prop_assert_eq!(w.len(), usize::from(table.cost[token]));
                    let bytes = w.to_bytes();
                    prop_assert_eq!(table.get(&mut BitReader::new(&bytes)).unwrap(), said.then_some(z));
                }
            }
        }
    }

    /// What is not sent is what the guest has said it has, and nothing else is taken for it.
    #[test]
    fn a_guest_is_sent_what_it_does_not_have() {
        let (tables, other) = (Tables::built(&[code(&[1])]), Tables::built(&[code(&[1, 2])]));
        assert_eq!(tables.to_wire(Some(tables.digest())), SessionTables { digest: tables.digest(), bytes: vec![] });
        for guests in [None, Some(other.digest())] {
            let said = tables.to_wire(guests);
            assert_eq!(said.bytes, tables.to_bytes());
            assert_eq!(Tables::of_session(Some(&other), Some(&said)), Ok(Some(tables.clone())));
            assert_eq!(Tables::of_session(None, Some(&said)), Ok(Some(tables.clone())));
        }
        let nothing = tables.to_wire(Some(tables.digest()));
        assert_eq!(Tables::of_session(Some(&tables), Some(&nothing)), Ok(Some(tables.clone())));
        assert!(Tables::of_session(Some(&other), Some(&nothing)).is_err() && Tables::of_session(None, Some(&nothing)).is_err());
        let wrong = SessionTables { digest: other.digest(), ..tables.to_wire(None) };
        assert_eq!(Tables::of_session(Some(&other), Some(&wrong)), Err(TablesError::Digest));
        assert_eq!(Tables::of_session(Some(&other), None), Ok(None), "the session has none");
    }

    #[test]
    fn what_is_no_complete_code_is_refused() {
        let good = code(&[0, 1, 2, 3]);
        let refused = |change: fn(&mut Lengths)| {
            let mut lengths = good;
            change(&mut lengths);
            let mut bytes = vec![FORMAT, 1];
            pack(&lengths, &mut bytes);
            assert_eq!(Tables::from_bytes(&bytes), Err(TablesError::Code(0)));
        };
        refused(|l| l[ESCAPE] = 0);
        refused(|l| *l.iter_mut().find(|l| **l == 0).unwrap() = 10);
        refused(|l| *l.iter_mut().find(|l| **l > 0).unwrap() += 1);
        // 11 bits would fit four, and a look-up of ten not
        refused(|l| (l[0], l[1]) = (11, 11));
        // every pattern is the escape's: all values as they are, and that has a table already
        refused(|l| {
            *l = [0; TOKENS];
            l[ESCAPE] = 1;
        });
        let mut bytes = Tables::built(&[good]).to_bytes();
        *bytes.last_mut().unwrap() |= 0x10;
        assert_eq!(Tables::from_bytes(&bytes), Err(TablesError::Code(0)), "something in the unused half");
        for count in [0, limits::TABLES as u8 + 1] {
            bytes[1] = count;
            assert_eq!(Tables::from_bytes(&bytes), Err(TablesError::Count(count.into())));
        }
        bytes[0] = 2;
        assert_eq!(Tables::from_bytes(&bytes), Err(TablesError::Format));
    }
}
