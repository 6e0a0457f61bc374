//! What a guest draws while its ticks are run: how far behind each tick its screen is, told along with the inputs.

use tidelock_netcore::bits::{BitError, BitReader, BitWriter, unzigzag, zigzag};
use tidelock_netcore::limits;

/// In one tick.
pub(crate) const UNITS: u32 = 16;
/// Nothing is told of what was drawn in a tick.
pub(crate) const UNTOLD: u32 = u32::MAX;

const FIRST_ORDER: u32 = 7;
const NEXT_ORDER: u32 = 1;

/// Writes how far behind their ticks the drawn moments were, for ticks in a row, the oldest first; or that it is not told, if it is
/// not of all.
pub(crate) fn write(behind: impl Iterator<Item = u32> + Clone, w: &mut BitWriter) {
    let told = behind.clone().all(|b| b != UNTOLD);
    w.flag(told);
    let mut before: Option<u32> = None;
    for behind in behind.filter(|_| told) {
        match before {
            None => w.golomb(behind.into(), FIRST_ORDER),
            Some(before) => w.golomb(zigzag(i64::from(behind) - i64::from(before)), NEXT_ORDER),
        }
        before = Some(behind);
    }
}

/// Reads them, for `count` ticks, into `behind`, which is empty if they are not told.
pub(crate) fn read(count: usize, r: &mut BitReader<'_>, behind: &mut Vec<u32>) -> Result<(), BitError> {
    behind.clear();
    if !r.flag()? {
        return Ok(());
    }
    for i in 0..count {
        let value = match i.checked_sub(1) {
            None => i64::try_from(r.golomb(FIRST_ORDER)?).map_err(|_| BitError::OutOfRange)?,
            Some(last) => i64::from(behind[last]).checked_add(unzigzag(r.golomb(NEXT_ORDER)?)).ok_or(BitError::OutOfRange)?,
        };
        let value = u32::try_from(value).ok().filter(|v| *v <= limits::BEHIND_UNITS);
        behind.push(value.ok_or(BitError::OutOfRange)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(behind: &[u32]) -> Vec<u8> {
        let mut w = BitWriter::new();
        write(behind.iter().copied(), &mut w);
        w.to_bytes()
    }

    #[test]
    fn the_bytes() {
        // a frame of one tick each, 15 ticks behind and then a little less
        assert_eq!(written(&[240, 240, 237]), GOLDEN);
        assert_eq!(written(&[240, UNTOLD]), [0]);
    }

    const GOLDEN: [u8; 3] = [3, 167, 1];

    #[test]
    fn what_is_too_far_behind_is_refused() {
        for behind in [&[limits::BEHIND_UNITS + 1][..], &[limits::BEHIND_UNITS, limits::BEHIND_UNITS + 1]] {
            let bytes = written(behind);
            assert_eq!(read(behind.len(), &mut BitReader::new(&bytes), &mut Vec::new()), Err(BitError::OutOfRange));
        }
        // before the tick itself nothing can be said
        let mut w = BitWriter::new();
        w.flag(true);
        w.golomb(3, FIRST_ORDER);
        w.golomb(zigzag(-4), NEXT_ORDER);
        assert_eq!(read(2, &mut BitReader::new(&w.to_bytes()), &mut Vec::new()), Err(BitError::OutOfRange));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(behind in prop::collection::vec(0..=limits::BEHIND_UNITS, 1..64)) {
            let bytes = written(&behind);
            let mut read_back = Vec::new();
            let mut r = BitReader::new(&bytes);
            prop_assert_eq!(read(behind.len(), &mut r, &mut read_back), Ok(()));
            prop_assert!(r.finish().is_ok());
            prop_assert_eq!(read_back, behind);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), count in 1usize..64) {
            let mut behind = Vec::new();
            if read(count, &mut BitReader::new(&bytes), &mut behind).is_ok() {
                prop_assert!(behind.is_empty() || behind.len() == count);
                prop_assert!(behind.iter().all(|b| *b <= limits::BEHIND_UNITS));
            }
        }
    }
}
