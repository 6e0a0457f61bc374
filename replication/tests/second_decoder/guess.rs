//! Section 2.7 of `docs/WIRE.md`: what a value is guessed to have become since the baseline.

use super::values::Code;
use super::{Field, Velocity};

/// The words where each field begins.
fn places(fields: &[Field]) -> impl Iterator<Item = (usize, Code)> + '_ {
    let mut next = 0;
    fields.iter().map(move |field| {
        let at = next;
        next += field.code.words();
        (at, field.code)
    })
}

/// Goes on by the last motion from `older` over `base`.
pub fn by_motion(fields: &[Field], older: &[u32], base: &[u32]) -> Vec<u32> {
    let mut guess = base.to_vec();
    for (at, code) in places(fields) {
        let (o, b) = (i64::from(older[at]), i64::from(base[at]));
        match code {
            Code::Number { max, .. } => guess[at] = (2 * b - o).max(0).min(max.into()) as u32,
            Code::Wrapping { bits } => guess[at] = (2 * b - o).rem_euclid(1 << bits) as u32,
            Code::Quat { bits } => {
                let turned = turn_on([0, 1, 2, 3].map(|i| older[at + i]), [0, 1, 2, 3].map(|i| base[at + i]), bits);
                guess[at..at + 4].copy_from_slice(&turned);
            }
            _ => {}
        }
    }
    guess
}

/// All four parts, of which the largest stands where the first word says.
fn four(words: [u32; 4], h: f64) -> [f64; 4] {
    let [a, b, c] = [words[1], words[2], words[3]].map(|word| f64::from(word) - h);
    let rest = 2.0 * h * h - a * a - b * b - c * c;
    let mut parts = vec![a, b, c];
    parts.insert(words[0] as usize, if rest > 0.0 { rest.sqrt() } else { 0.0 });
    [parts[0], parts[1], parts[2], parts[3]]
}

fn turn_on(older: [u32; 4], base: [u32; 4], bits: u32) -> [u32; 4] {
    let h = f64::from(2u32.pow(bits - 1) - 1);
    let (o, b) = (four(older, h), four(base, h));
    let mut dot = o[0] * b[0];
    for i in 1..4 {
        dot += o[i] * b[i];
    }
    let factor = dot.abs() / (h * h);
    let mut next = [0.0; 4];
    for i in 0..4 {
        next[i] = if dot < 0.0 { factor * b[i] + o[i] } else { factor * b[i] - o[i] };
    }
    let mut largest = 0;
    for i in 1..4 {
        if next[i].abs() > next[largest].abs() {
            largest = i;
        }
    }
    let mut words = vec![largest as u32];
    for (i, part) in next.into_iter().enumerate().filter(|(i, _)| *i != largest) {
        assert!(i < 4);
        words.push(rounded(if next[largest] < 0.0 { h - part } else { part + h }, 2 * h as u32));
    }
    [words[0], words[1], words[2], words[3]]
}

/// The whole number nearest to `value`, from 0 to `max`.
fn rounded(value: f64, max: u32) -> u32 {
    (value + 0.5).floor().clamp(0.0, max.into()) as u32
}

/// Goes on by a velocity, whose words at the baseline are these.
pub fn by_velocity(pair: &Velocity, fields: &[Field], of: &[Field], words: &[u32], base: &[u32], seconds: f64) -> Vec<u32> {
    let numbers = |(at, code)| if let Code::Number { max, .. } = code { Some((at, max)) } else { None };
    let own = places(fields).filter_map(numbers);
    let of: Vec<(usize, u32)> = places(of).filter_map(numbers).collect();
    let mut guess = base.to_vec();
    for (i, (at, max)) in own.enumerate() {
        let (step, (least, speed)) = (pair.steps[i], pair.speeds[i]);
        let each_second = f64::from(words[of[i].0]) * (speed / step) + least / step;
        guess[at] = rounded(f64::from(base[at]) + each_second * seconds, max);
    }
    guess
}
