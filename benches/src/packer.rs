//! The plain bit packer that the cubes are compared with: it writes what differs from one baseline, with widths that were chosen
//! by hand, and knows nothing of motion. A changed bit per body or a relative index, whichever is shorter in a packet; then, for
//! position and rotation apart, a small or a large class for each difference, or the whole value.

use crate::recording::Pose;
use tidelock::netcore::bits::{BitError, BitReader, BitWriter};

/// Steps per metre.
const STEPS: f32 = 512.0;
/// Largest value of a quaternion's part: nine bits with a sign.
const HALF: i32 = 255;
/// Bits of a whole x or y: −256 to 256 m.
const PLANE_BITS: u32 = 18;
/// Bits of a whole z: 0 to 32 m.
const HEIGHT_BITS: u32 = 14;
/// Bits of a whole part of a quaternion.
const PART_BITS: u32 = 9;
/// Bits of a small difference.
const SMALL_BITS: u32 = 5;
/// Bits of a large difference of positions.
const LARGE_MOVE_BITS: u32 = 9;
/// Bits of a large difference of rotations.
const LARGE_TURN_BITS: u32 = 8;

/// A body, quantised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    position: [i32; 3],
    /// Which part of the quaternion is the largest, and the other three.
    largest: u32,
    parts: [i32; 3],
    touched: bool,
}

impl Packed {
    /// Quantises a pose.
    #[must_use]
    pub fn of(pose: &Pose) -> Self {
        let [x, y, z] = pose.position.map(|v| (v * STEPS).round() as i32);
        let plane = 1 << (PLANE_BITS - 1);
        let position = [x.clamp(-plane, plane - 1), y.clamp(-plane, plane - 1), z.clamp(0, (1 << HEIGHT_BITS) - 1)];
        let q = pose.rotation;
        let largest = (1..4).fold(0, |best, i| if q[i].abs() > q[best].abs() { i } else { best });
        let scale = std::f32::consts::SQRT_2 * HALF as f32 * 1f32.copysign(q[largest]);
        let mut others = (0..4).filter(|i| *i != largest).map(|i| ((q[i] * scale).round() as i32).clamp(-HALF, HALF));
        let parts = std::array::from_fn(|_| others.next().unwrap_or_default());
        Self { position, largest: largest as u32, parts, touched: pose.touched }
    }
}

fn fits(value: i32, bits: u32) -> bool {
    let half = 1 << (bits - 1);
    (-half..half).contains(&value)
}

fn put_signed(w: &mut BitWriter, value: i32, bits: u32) {
    w.put((value + (1 << (bits - 1))) as u64, bits);
}

/// Writes three differences by class; `false` and one bit if they need the whole value.
fn put_classes(w: &mut BitWriter, differences: [i32; 3], large: u32) -> bool {
    let all = differences.iter().all(|d| fits(*d, large));
    w.put(u64::from(all), 1);
    if all {
        for d in differences {
            let small = fits(d, SMALL_BITS);
            w.put(u64::from(small), 1);
            put_signed(w, d, if small { SMALL_BITS } else { large });
        }
    }
    all
}

fn index_width(bodies: usize) -> u32 {
    usize::BITS - bodies.leading_zeros()
}

/// Bits of a relative index; `gap` is at least 1.
fn gap_bits(gap: usize, width: u32) -> u32 {
    match gap {
        0..=8 => 4,
        9..=40 => 7,
        _ => 2 + width,
    }
}

/// Writes what differs from the baseline, and says of how many bodies that was.
pub fn encode(base: &[Packed], now: &[Packed], w: &mut BitWriter) -> usize {
    let changed: Vec<usize> = (0..now.len()).filter(|i| base[*i] != now[*i]).collect();
    let width = index_width(now.len());
    // gaps are counted from just before the first body
    let gaps = changed.iter().scan(0, |next, i| Some(i + 1 - std::mem::replace(next, i + 1)));
    let relative = (gaps.map(|gap| gap_bits(gap, width)).sum::<u32>() + width) < now.len() as u32;
    w.put(u64::from(relative), 1);
    if relative {
        w.put(changed.len() as u64, width);
    }
    let mut next = 0;
    for &i in &changed {
        if relative {
            put_gap(w, i + 1 - next, i, width);
        } else {
            (next..i).for_each(|_| w.put(0, 1));
            w.put(1, 1);
        }
        next = i + 1;
        put_body(w, &base[i], &now[i]);
    }
    if !relative {
        (next..now.len()).for_each(|_| w.put(0, 1));
    }
    changed.len()
}

fn put_gap(w: &mut BitWriter, gap: usize, index: usize, width: u32) {
    match gap {
        0..=8 => {
            w.put(1, 1);
            w.put(gap as u64 - 1, 3);
        }
        9..=40 => {
            w.put(0, 1);
            w.put(1, 1);
            w.put(gap as u64 - 9, 5);
        }
        _ => {
            w.put(0, 1);
            w.put(0, 1);
            w.put(index as u64, width);
        }
    }
}

fn put_body(w: &mut BitWriter, base: &Packed, now: &Packed) {
    w.put(u64::from(now.touched), 1);
    let moved = now.position != base.position;
    w.put(u64::from(moved), 1);
    if moved && !put_classes(w, std::array::from_fn(|a| now.position[a] - base.position[a]), LARGE_MOVE_BITS) {
        put_signed(w, now.position[0], PLANE_BITS);
        put_signed(w, now.position[1], PLANE_BITS);
        w.put(now.position[2] as u64, HEIGHT_BITS);
    }
    let turned = (now.largest, now.parts) != (base.largest, base.parts);
    w.put(u64::from(turned), 1);
    if !turned {
        return;
    }
    let same = now.largest == base.largest;
    if !same {
        w.put(0, 1);
    }
    if !same || !put_classes(w, std::array::from_fn(|a| now.parts[a] - base.parts[a]), LARGE_TURN_BITS) {
        w.put(u64::from(now.largest), 2);
        now.parts.iter().for_each(|p| w.put((p + HALF) as u64, PART_BITS));
    }
}

type Read<T> = Result<T, BitError>;

fn signed(r: &mut BitReader<'_>, bits: u32) -> Read<i32> {
    Ok(r.get(bits)? as i32 - (1 << (bits - 1)))
}

fn classes(r: &mut BitReader<'_>, large: u32) -> Read<Option<[i32; 3]>> {
    if r.get(1)? == 0 {
        return Ok(None);
    }
    let mut differences = [0; 3];
    for d in &mut differences {
        let small = r.get(1)? == 1;
        *d = signed(r, if small { SMALL_BITS } else { large })?;
    }
    Ok(Some(differences))
}

/// Reads what [`encode`] wrote: `state` is the baseline, and becomes what was written.
///
/// # Errors
/// If the bits are not such a packet.
pub fn decode(bytes: &[u8], state: &mut [Packed]) -> Result<(), BitError> {
    let (r, width) = (&mut BitReader::new(bytes), index_width(state.len()));
    if r.get(1)? == 0 {
        for body in state {
            if r.get(1)? == 1 {
                body_from(r, body)?;
            }
        }
        return Ok(());
    }
    let mut next = 0;
    for _ in 0..r.get(width)? {
        let at = if r.get(1)? == 1 {
            next + r.get(3)? as usize
        } else if r.get(1)? == 1 {
            next + r.get(5)? as usize + 8
        } else {
            r.get(width)? as usize
        };
        body_from(r, state.get_mut(at).ok_or(BitError::OutOfRange)?)?;
        next = at + 1;
    }
    Ok(())
}

fn body_from(r: &mut BitReader<'_>, body: &mut Packed) -> Read<()> {
    body.touched = r.get(1)? == 1;
    if r.get(1)? == 1 {
        body.position = match classes(r, LARGE_MOVE_BITS)? {
            Some(by) => std::array::from_fn(|a| body.position[a] + by[a]),
            None => [signed(r, PLANE_BITS)?, signed(r, PLANE_BITS)?, r.get(HEIGHT_BITS)? as i32],
        };
    }
    if r.get(1)? == 1 {
        match classes(r, LARGE_TURN_BITS)? {
            Some(by) => body.parts = std::array::from_fn(|a| body.parts[a] + by[a]),
            None => {
                body.largest = r.get(2)? as u32;
                for part in &mut body.parts {
                    *part = r.get(PART_BITS)? as i32 - HALF;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd::Generator;

    /// Some bodies stand, some move a little, some far, some turn over.
    fn shaken(from: &[Packed], chance: &mut Generator, part: usize) -> Vec<Packed> {
        let mut to = from.to_vec();
        for body in &mut to {
            if chance.below(100) >= part {
                continue;
            }
            let reach = [1, 10, 200, 100_000][chance.below(4)];
            body.position[0] = (chance.below(2 * reach) as i32 - reach as i32).clamp(-(1 << 17), (1 << 17) - 1);
            body.position[2] = chance.below(1 << HEIGHT_BITS) as i32;
            body.largest = chance.below(4) as u32;
            body.parts = std::array::from_fn(|_| chance.below(511) as i32 - HALF);
            body.touched = chance.below(2) == 1;
        }
        to
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        for seed in 0..200 {
            let chance = &mut Generator::new(seed);
            let base = shaken(&vec![Packed::default(); 1 + chance.below(1000)], chance, 100);
            let part = [0, 1, 5, 30, 100][chance.below(5)];
            let now = shaken(&base, chance, part);
            let mut w = BitWriter::new();
            let count = encode(&base, &now, &mut w);
            assert_eq!(count, (0..now.len()).filter(|i| now[*i] != base[*i]).count(), "SEED={seed}");
            let mut read = base.clone();
            decode(&w.to_bytes(), &mut read).unwrap();
            assert!(read == now, "SEED={seed}");
        }
    }

    #[test]
    fn packets_of_others_are_refused() {
        let mut state = vec![Packed::default(); 5];
        assert!(decode(&[], &mut state).is_err());
        assert!(decode(&[0xff; 3], &mut state).is_err());
    }
}
