//! Some definitions as the bytes of one blob, one change after the other:
//!
//! ```text
//! value  u8 0, u8 type, u64 key, u32 revision, u32 length, the bytes that bitcode makes of it
//! end    u8 1, u8 type, u64 key
//! ```
//!
//! Numbers are little endian; the type is its place among the names of definitions. There are at most
//! [`limits::DEFINITION_CHANGES`] of them, in [`limits::DEFINITION_CHANGES_BYTES`].

use tidelock_netcore::limits;

/// Bytes of values that are worth a blob. A larger one goes alone.
pub(super) const ENOUGH: usize = 32 << 10;

/// A change of one definition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change<'a> {
    pub(super) index: u8,
    pub(super) key: u64,
    pub(super) what: What<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum What<'a> {
    /// It has a new revision.
    Value { revision: u32, bytes: &'a [u8] },
    /// It is no more.
    End,
}

impl Change<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend([u8::from(self.what == What::End), self.index]);
        out.extend(self.key.to_le_bytes());
        if let What::Value { revision, bytes } = self.what {
            out.extend(revision.to_le_bytes());
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        }
    }
}

/// The changes that the bytes are; `None` if they are none, name a type that is not below `types`, or are beyond a limit.
pub(super) fn read(mut bytes: &[u8], types: usize) -> Option<Vec<Change<'_>>> {
    let mut changes = Vec::new();
    if bytes.len() > limits::DEFINITION_CHANGES_BYTES {
        return None;
    }
    while !bytes.is_empty() {
        // an end takes ten bytes here, and many times that once it is read
        if changes.len() == limits::DEFINITION_CHANGES {
            return None;
        }
        let ([code, index], rest) = bytes.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_first_chunk::<8>()?;
        if usize::from(*index) >= types {
            return None;
        }
        let (what, rest) = match code {
            0 => {
                let (revision, rest) = rest.split_first_chunk::<4>()?;
                let (length, rest) = rest.split_first_chunk::<4>()?;
                let length = u32::from_le_bytes(*length) as usize;
                let (bytes, rest) = rest.split_at_checked(length).filter(|_| length <= limits::DEFINITION_BYTES)?;
                (What::Value { revision: u32::from_le_bytes(*revision), bytes }, rest)
            }
            1 => (What::End, rest),
            _ => return None,
        };
        changes.push(Change { index: *index, key: u64::from_le_bytes(*key), what });
        bytes = rest;
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_as_described() {
        let mut out = Vec::new();
        Change { index: 2, key: 0x0102, what: What::Value { revision: 258, bytes: b"ab" } }.write(&mut out);
        Change { index: 1, key: 9, what: What::End }.write(&mut out);
        let value = [0, 2, 2, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 2, 0, 0, 0, b'a', b'b'];
        assert_eq!(out, [&value[..], &[1, 1, 9, 0, 0, 0, 0, 0, 0, 0]].concat());
        assert_eq!(read(&out, 2), None, "a type that is not there");
        assert_eq!(read(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1), None, "no such change");
        let long = vec![0; limits::DEFINITION_BYTES + 1];
        for (bytes, fits) in [(&long[1..], true), (&long[..], false)] {
            out.clear();
            Change { index: 0, key: 0, what: What::Value { revision: 1, bytes } }.write(&mut out);
            assert_eq!(read(&out, 1).is_some(), fits);
        }
    }

    #[test]
    fn as_many_as_may_go_together_and_one_more() {
        let mut out = Vec::new();
        for key in 0..limits::DEFINITION_CHANGES as u64 {
            Change { index: 0, key, what: What::End }.write(&mut out);
        }
        assert_eq!(read(&out, 1).map(|changes| changes.len()), Some(limits::DEFINITION_CHANGES));
        Change { index: 0, key: 0, what: What::End }.write(&mut out);
        assert_eq!(read(&out, 1), None);
        // and in bytes: two that are as long as may be
        out.clear();
        let half = vec![7; limits::DEFINITION_BYTES / 2];
        for (key, bytes, fits) in [(1, &half[..], true), (2, &half[..half.len() - 18], true), (3, &[][..], false)] {
            Change { index: 0, key, what: What::Value { revision: 1, bytes } }.write(&mut out);
            assert_eq!(read(&out, 1).is_some(), fits, "{} bytes", out.len());
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(parts in prop::collection::vec(
            (0u8..3, any::<u64>(), prop::option::of((any::<u32>(), prop::collection::vec(any::<u8>(), 0..20)))), 0..5)
        ) {
            let change = |(index, key, value): &(u8, u64, Option<(u32, Vec<u8>)>)| {
                let (index, key) = (*index, *key);
                let what = value.as_ref().map_or(What::End, |(revision, bytes)| What::Value { revision: *revision, bytes });
                let mut out = Vec::new();
                Change { index, key, what }.write(&mut out);
                out
            };
            let pieces: Vec<_> = parts.iter().map(change).collect();
            let bytes = pieces.concat();
            let changes = read(&bytes, 3).unwrap();
            prop_assert_eq!(changes.len(), parts.len());
            let mut again = Vec::new();
            changes.iter().for_each(|change| change.write(&mut again));
            prop_assert_eq!(&again, &bytes);
            // a prefix is refused, unless it ends where a change does
            let ends: Vec<usize> = pieces.iter().scan(0, |at, piece| { *at += piece.len(); Some(*at) }).collect();
            for len in 1..bytes.len() {
                prop_assert_eq!(read(&bytes[..len], 3).is_some(), ends.contains(&len));
            }
        }

        #[test]
        fn random_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(changes) = read(&bytes, 4) {
                let mut again = Vec::new();
                changes.iter().for_each(|change| change.write(&mut again));
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
