//! Section 1 of `docs/WIRE.md`: bits, Exp-Golomb numbers, zigzag, widening.

use super::Fault;

/// Reads bits, the lowest of each byte first.
#[derive(Clone, Debug)]
pub struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bits were read.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn bit(&mut self) -> Result<bool, Fault> {
        let byte = self.bytes.get(self.at / 8).ok_or(Fault::Malformed("the bits end too early"))?;
        let bit = byte >> (self.at % 8) & 1;
        self.at += 1;
        Ok(bit == 1)
    }

    /// A number of `count` bits, lowest first.
    pub fn number(&mut self, count: u32) -> Result<u64, Fault> {
        let mut value = 0;
        for place in 0..count {
            value |= u64::from(self.bit()?) << place;
        }
        Ok(value)
    }

    /// Ones in front, up to `most`; the zero that ends fewer of them is read too.
    pub fn ones(&mut self, most: u32) -> Result<u32, Fault> {
        let mut ones = 0;
        while ones < most && self.bit()? {
            ones += 1;
        }
        Ok(ones)
    }

    /// What follows the ones and the zero of an Exp-Golomb number.
    pub fn exp_golomb_rest(&mut self, ones: u32, order: u32) -> Result<u64, Fault> {
        if ones + order >= 64 {
            return Err(Fault::Malformed("an Exp-Golomb number of 64 bits or more"));
        }
        let q = (1 << ones) | self.number(ones)?;
        let low = self.number(order)?;
        Ok((q - 1) << order | low)
    }

    pub fn exp_golomb(&mut self, order: u32) -> Result<u64, Fault> {
        let ones = self.ones(64)?;
        self.exp_golomb_rest(ones, order)
    }

    /// The message is over: less than a byte is left, and it is zero.
    pub fn ended(mut self) -> Result<(), Fault> {
        let left = self.bytes.len() * 8 - self.at;
        if left >= 8 || self.number(left as u32)? != 0 {
            return Err(Fault::Malformed("something stands after the end"));
        }
        Ok(())
    }
}

/// 0, 1, 2, 3, 4 … to 0, −1, 1, −2, 2 …
pub fn unzigzag(value: u64) -> i64 {
    if value & 1 == 0 { (value >> 1) as i64 } else { -((value >> 1) as i64) - 1 }
}

/// The number nearest to `reference` whose low 16 bits are `low`.
pub fn widen(low: u64, reference: u64) -> u64 {
    let turn = 1 << 16;
    let mut best: Option<u64> = None;
    let round = reference / turn;
    for high in round.saturating_sub(1)..=round + 1 {
        let candidate = high * turn + low;
        // Ascending, so that at equal distance the greater one stays.
        if best.is_none_or(|best| candidate.abs_diff(reference) <= best.abs_diff(reference)) {
            best = Some(candidate);
        }
    }
    best.expect("three candidates were looked at")
}

/// The bits that hold every number up to `most`.
pub fn bits_for(most: u32) -> u32 {
    32 - most.leading_zeros()
}
