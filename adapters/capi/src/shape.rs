//! A component whose fields are told at run time: where they lie in the struct of C, and how they travel.

use crate::status::{Failure, argument};
use hecs::Entity;
use tidelock::Form;
use tidelock::field::{ANGLE_BITS, INTEGER_ORDER, MAX_ORDER, QUAT_BITS, STEP_ORDER, Step};
use tidelock::interpolate::{self, Interpolate};
use tidelock::layout::LayoutBuilder;
use tidelock::netcore::limits;
use tidelock::replicate::{FieldError, Quantiser, RestoreError, Restorer};

/// One value in the struct.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) at: usize,
    pub(crate) code: Code,
    /// It is not blended with the sample before.
    pub(crate) hold: bool,
}

/// What it is there, and how it travels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Code {
    StepF32 {
        step: Step,
        order: u32,
    },
    StepF64 {
        step: Step,
        order: u32,
    },
    Exact,
    Angle {
        bits: u32,
    },
    Quat {
        bits: u32,
    },
    /// `size` bytes; sent as its distance from `least`.
    Integer {
        size: usize,
        signed: bool,
        least: i64,
        most: i64,
        order: u32,
    },
    Wide,
    Bool,
    Choice(&'static [&'static str]),
    Text {
        cap: u32,
    },
    Entity {
        optional: bool,
    },
}

/// What the bits of an integer are: least, most.
pub(crate) fn bounds(size: usize, signed: bool) -> (i64, i64) {
    let bits = 8 * size as u32;
    match (signed, bits) {
        (_, 64) => (if signed { i64::MIN } else { 0 }, i64::MAX),
        (true, bits) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        (false, bits) => (0, (1 << bits) - 1),
    }
}

impl Code {
    /// Bytes in the struct.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::StepF32 { .. } | Self::Exact | Self::Angle { .. } => 4,
            Self::StepF64 { .. } | Self::Wide | Self::Entity { .. } => 8,
            Self::Quat { .. } => 16,
            Self::Integer { size, .. } => size,
            Self::Bool | Self::Choice(_) => 1,
            Self::Text { cap } => cap as usize + 1,
        }
    }

    /// An integer, all of whose values travel if `range` is `None`.
    pub(crate) fn integer(size: usize, signed: bool, range: Option<(i64, i64)>, order: Option<u32>) -> Result<Self, Failure> {
        let order = order.unwrap_or(INTEGER_ORDER);
        let (lowest, highest) = bounds(size, signed);
        let Some((least, most)) = range else {
            let (least, most) = (lowest, highest);
            return Ok(if size == 8 { Self::Wide } else { Self::Integer { size, signed, least, most, order } });
        };
        let fits = least < most && least >= lowest && most <= highest && most.abs_diff(least) <= u32::MAX.into();
        if !fits || order > MAX_ORDER {
            return Err(argument(format_args!("the range {least}..={most} cannot travel")));
        }
        Ok(Self::Integer { size, signed, least, most, order })
    }

    /// A float in steps, once it is known that these can be.
    pub(crate) fn step(wide: bool, step: f64, min: f64, max: f64, order: Option<u32>) -> Result<Self, Failure> {
        let order = order.unwrap_or(STEP_ORDER);
        let reach = if wide { 1e15 } else { 8e6 };
        let numbers = step.is_finite() && step > 0.0 && min.is_finite() && max.is_finite() && min < max;
        let steps = (max - min) / step + 0.5;
        let fits = min.abs().max(max.abs()) <= step * reach && (1.0..4_294_967_296.0).contains(&steps) && order <= MAX_ORDER;
        if !numbers || !fits {
            return Err(argument(format_args!("{min}..={max} cannot be divided into steps of {step}")));
        }
        Ok(if wide {
            Self::StepF64 { step: Step::f64(step, min, max), order }
        } else {
            Self::StepF32 { step: Step::f32(step, min, max), order }
        })
    }

    pub(crate) fn angle(bits: u32) -> Result<Self, Failure> {
        let fits = ANGLE_BITS.contains(&bits);
        if fits { Ok(Self::Angle { bits }) } else { Err(argument(format_args!("an angle cannot be of {bits} bits"))) }
    }

    pub(crate) fn quat(bits: u32) -> Result<Self, Failure> {
        let fits = QUAT_BITS.contains(&bits);
        if fits { Ok(Self::Quat { bits }) } else { Err(argument(format_args!("a rotation cannot be of {bits} bits"))) }
    }

    pub(crate) fn text(cap: u32) -> Result<Self, Failure> {
        let fits = (1..=limits::STRING_BYTES as u32).contains(&cap);
        if fits { Ok(Self::Text { cap }) } else { Err(argument(format_args!("a text cannot be of {cap} bytes"))) }
    }

    /// Takes a value over as it is in the struct of C, in the one form that equal values have.
    fn clean(self, name: &str, from: &[u8], to: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Bool => to[0] = u8::from(from[0] != 0),
            Self::Choice(names) if usize::from(from[0]) >= names.len() => {
                return Err(argument(format_args!("`{name}` has no choice {}", from[0])));
            }
            Self::Text { .. } => {
                let Some(text) = from.iter().position(|b| *b == 0).map(|end| &from[..end]) else {
                    return Err(argument(format_args!("`{name}` does not end with a zero byte")));
                };
                if std::str::from_utf8(text).is_err() {
                    return Err(argument(format_args!("`{name}` is not UTF-8")));
                }
                to.fill(0);
                to[..text.len()].copy_from_slice(text);
            }
            _ => to.copy_from_slice(from),
        }
        Ok(())
    }
}

/// The fields of one struct.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) size: usize,
    pub(crate) items: Vec<Item>,
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|i| bytes[i])
}

fn f32_of(bytes: &[u8]) -> f32 {
    f32::from_ne_bytes(array(bytes))
}

fn f64_of(bytes: &[u8]) -> f64 {
    f64::from_ne_bytes(array(bytes))
}

fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(array(bytes))
}

fn quat_of(bytes: &[u8]) -> [f32; 4] {
    std::array::from_fn(|i| f32_of(&bytes[4 * i..]))
}

fn integer_of(bytes: &[u8], signed: bool) -> i64 {
    match (bytes.len(), signed) {
        (1, false) => bytes[0].into(),
        (1, true) => i8::from_ne_bytes(array(bytes)).into(),
        (2, false) => u16::from_ne_bytes(array(bytes)).into(),
        (2, true) => i16::from_ne_bytes(array(bytes)).into(),
        (4, false) => u32::from_ne_bytes(array(bytes)).into(),
        (4, true) => i32::from_ne_bytes(array(bytes)).into(),
        (_, true) => i64::from_ne_bytes(array(bytes)),
        (_, false) => i64::try_from(u64_of(bytes)).unwrap_or(i64::MAX),
    }
}

fn put_integer(value: i64, signed: bool, to: &mut [u8]) {
    match (to.len(), signed) {
        (1, _) => to.copy_from_slice(&(value as u8).to_ne_bytes()),
        (2, _) => to.copy_from_slice(&(value as u16).to_ne_bytes()),
        (4, _) => to.copy_from_slice(&(value as u32).to_ne_bytes()),
        _ => to.copy_from_slice(&value.to_ne_bytes()),
    }
}

fn put_quat(value: [f32; 4], to: &mut [u8]) {
    for (part, to) in value.iter().zip(to.chunks_exact_mut(4)) {
        to.copy_from_slice(&part.to_ne_bytes());
    }
}

impl Shape {
    /// The struct of C, without what lies between its fields; `to` is as long as the shape, or longer, and zero.
    pub(crate) fn clean(&self, from: &[u8], to: &mut [u8]) -> Result<(), Failure> {
        self.items.iter().try_for_each(|item| {
            let range = item.at..item.at + item.code.size();
            item.code.clean(&item.name, &from[range.clone()], &mut to[range])
        })
    }

    /// Words of the quantised form.
    pub(crate) fn words(&self) -> usize {
        let words = |code: Code| match code {
            Code::Wide | Code::Entity { .. } => 2,
            Code::Quat { .. } => 4,
            Code::Text { cap } => tidelock::field::text_words(cap),
            _ => 1,
        };
        self.items.iter().map(|item| words(item.code)).sum()
    }

    pub(crate) fn describe(&self, l: &mut LayoutBuilder) {
        for Item { name, code, .. } in &self.items {
            match *code {
                Code::StepF32 { step, order } | Code::StepF64 { step, order } => l.number(name, &step, order),
                Code::Exact => l.float(name),
                Code::Angle { bits } => l.angle(name, bits),
                Code::Quat { bits } => l.quat(name, bits),
                Code::Integer { least, most, order, .. } => l.integer(name, least, most, order),
                Code::Wide => l.wide(name),
                Code::Bool => l.choice(name, &["false", "true"]),
                Code::Choice(names) => l.choice(name, names),
                Code::Text { cap } => l.text(name, cap),
                Code::Entity { .. } => l.entity(name),
            }
        }
    }

    pub(crate) fn quantise_bytes(&self, bytes: &[u8], out: &mut Quantiser<'_>) -> Result<(), FieldError> {
        for Item { name, at, code, .. } in &self.items {
            let from = &bytes[*at..at + code.size()];
            let result = match *code {
                Code::StepF32 { step, .. } => out.number("", &step, f32_of(from).into()),
                Code::StepF64 { step, .. } => out.number("", &step, f64_of(from)),
                Code::Exact => out.float("", f32_of(from)),
                Code::Angle { bits } => out.angle("", bits, f32_of(from).into()),
                Code::Quat { bits } => out.quat("", bits, quat_of(from)),
                Code::Integer { signed, least, most, .. } => out.integer("", integer_of(from, signed), least, most),
                Code::Wide => {
                    out.wide(u64_of(from));
                    Ok(())
                }
                Code::Bool | Code::Choice(_) => {
                    out.choice(from[0].into());
                    Ok(())
                }
                Code::Text { cap } => {
                    let end = from.iter().position(|b| *b == 0).unwrap_or(cap as usize);
                    out.text("", cap, std::str::from_utf8(&from[..end]).unwrap_or_default())
                }
                Code::Entity { .. } => {
                    out.entity(Entity::from_bits(u64_of(from)));
                    Ok(())
                }
            };
            result.map_err(|error| error.within(name))?;
        }
        Ok(())
    }

    pub(crate) fn restore_bytes(&self, from: &mut Restorer<'_>, bytes: &mut [u8]) -> Result<(), RestoreError> {
        for Item { at, code, .. } in &self.items {
            let to = &mut bytes[*at..at + code.size()];
            match *code {
                Code::StepF32 { step, .. } => to.copy_from_slice(&(from.number("", &step)? as f32).to_ne_bytes()),
                Code::StepF64 { step, .. } => to.copy_from_slice(&from.number("", &step)?.to_ne_bytes()),
                Code::Exact => to.copy_from_slice(&from.float("")?.to_ne_bytes()),
                Code::Angle { bits } => to.copy_from_slice(&(from.angle("", bits)? as f32).to_ne_bytes()),
                Code::Quat { bits } => put_quat(from.quat("", bits)?, to),
                Code::Integer { signed, least, most, .. } => put_integer(from.integer("", least, most)?, signed, to),
                Code::Wide => to.copy_from_slice(&from.wide("")?.to_ne_bytes()),
                Code::Bool => to[0] = from.choice("", 2)? as u8,
                Code::Choice(names) => to[0] = from.choice("", names.len() as u32)? as u8,
                Code::Text { cap } => {
                    let text = from.text("", cap)?;
                    to[..text.len()].copy_from_slice(text.as_bytes());
                }
                Code::Entity { optional: false } => to.copy_from_slice(&from.entity("")?.to_bits().get().to_ne_bytes()),
                Code::Entity { optional: true } => {
                    let bits = from.entity_or_none("")?.map_or(0, |entity| entity.to_bits().get());
                    to.copy_from_slice(&bits.to_ne_bytes());
                }
            }
        }
        Ok(())
    }

    /// A struct between two, field by field as the derive of Rust does it.
    pub(crate) fn blend(&self, before: &[u8], after: &[u8], t: f32, to: &mut [u8]) {
        to.copy_from_slice(if t >= 1.0 { after } else { before });
        for item in self.items.iter().filter(|item| !item.hold) {
            let range = item.at..item.at + item.code.size();
            let (a, b, to) = (&before[range.clone()], &after[range.clone()], &mut to[range]);
            match item.code {
                Code::StepF32 { .. } | Code::Exact => {
                    to.copy_from_slice(&f32::interpolate(&f32_of(a), &f32_of(b), t).to_ne_bytes());
                }
                Code::StepF64 { .. } => to.copy_from_slice(&f64::interpolate(&f64_of(a), &f64_of(b), t).to_ne_bytes()),
                Code::Angle { .. } => {
                    let angle = interpolate::angle(f32_of(a).into(), f32_of(b).into(), t) as f32;
                    to.copy_from_slice(&angle.to_ne_bytes());
                }
                Code::Quat { .. } => put_quat(interpolate::quat(quat_of(a), quat_of(b), t), to),
                _ => {}
            }
        }
    }
}

/// A shape as the form of components that hold `B` bytes.
pub(crate) struct Bytes(pub(crate) std::sync::Arc<Shape>);

impl<const I: usize, const B: usize> Form<crate::slots::Slot<I, B>> for Bytes {
    type Raw = [u8; B];

    fn layout(&self, l: &mut LayoutBuilder) {
        self.0.describe(l);
    }

    fn raw(&self, value: &crate::slots::Slot<I, B>) -> [u8; B] {
        value.0
    }

    fn quantise(&self, value: &crate::slots::Slot<I, B>, out: &mut Quantiser<'_>) -> Result<(), FieldError> {
        self.0.quantise_bytes(&value.0, out)
    }

    fn restore(&self, from: &mut Restorer<'_>) -> Result<crate::slots::Slot<I, B>, RestoreError> {
        let mut bytes = [0; B];
        self.0.restore_bytes(from, &mut bytes)?;
        Ok(crate::slots::Slot(bytes))
    }
}
