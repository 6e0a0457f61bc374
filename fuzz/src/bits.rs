//! The bit reader: what it read, written again, is the same bits; a read that fails consumes nothing it should not.
//!
//! Input: a byte with the number of steps, so many bytes of steps, then the bits.

use tidelock_netcore::bits::{BitError, BitReader, BitWriter, unzigzag, zigzag};

/// Steps of 0 to 64 read so many bits; above, Exp-Golomb codes of order (step − 65) % 32.
pub fn run(data: &[u8]) {
    let Some((&count, rest)) = data.split_first() else { return };
    let Some((steps, bytes)) = rest.split_at_checked(count.into()) else { return };
    let (mut r, mut w) = (BitReader::new(bytes), BitWriter::new());
    for &step in steps {
        let before = r.position();
        if step <= 64 {
            match r.get(step.into()) {
                Ok(value) => w.put(value, step.into()),
                Err(error) => {
                    assert_eq!(error, BitError::Truncated);
                    assert_eq!(r.position(), before, "a read of {step} bits failed and consumed some");
                    break;
                }
            }
        } else {
            let order = u32::from(step - 65) % 32;
            let Ok(value) = r.golomb(order) else { break };
            assert_eq!(zigzag(unzigzag(value)), value);
            w.golomb(value, order);
        }
        assert_eq!(w.len(), r.position(), "another length after step {step}");
    }
    compare(&w, bytes);
    let left = r.remaining();
    assert_eq!(r.position() + left, bytes.len() * 8);
    if r.finish().is_ok() {
        assert!(left < 8);
    }
}

fn compare(w: &BitWriter, bytes: &[u8]) {
    let again = w.to_bytes();
    let (mut x, mut y) = (BitReader::new(&again), BitReader::new(bytes));
    for i in 0..w.len().div_ceil(64) {
        let n = (w.len() - i * 64).min(64) as u32;
        assert_eq!(x.get(n), y.get(n), "the bits from {} on differ", i * 64);
    }
    assert!(x.finish().is_ok(), "the last byte is not filled up with zeros");
}

/// Fixed widths, codes, and both at odd places.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let plain = [0u8, 1, 7, 8, 16, 31, 32, 33, 63, 64];
    let codes = [65u8, 66, 67, 68, 73, 75, 96];
    let mixed = [3u8, 65, 64, 73, 1, 67, 13, 96, 64];
    [&plain[..], &codes[..], &mixed[..]]
        .iter()
        .map(|steps| {
            let mut w = BitWriter::new();
            for (i, &step) in steps.iter().enumerate() {
                let value = 0x9e37_79b9_7f4a_7c15u64.rotate_left(i as u32 * 9);
                match step {
                    0 => {}
                    1..=64 => w.put(value >> (64 - u32::from(step)), step.into()),
                    _ => w.golomb(value >> (20 + i * 5), u32::from(step - 65) % 32),
                }
            }
            [&[steps.len() as u8][..], steps, &w.to_bytes()].concat()
        })
        .collect()
}
