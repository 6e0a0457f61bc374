//! Guesses of what a value has become since the receiver's baseline. What is sent is what the guess was off by.
//!
//! Both sides make the same guess from the same words, so everything here is exact on every machine: whole numbers, or `f64` with
//! nothing but + − × ÷ and square roots, rounded once at the end.
//!
//! * **Last motion**: with the value b at the baseline and o as long before that as the baseline is old, a `Number` goes on to
//!   2b − o (kept within its range), a `Wrapping` to 2b − o around the circle, and a rotation turns on as it has turned:
//!   q = 2(b·o)b − o, where o is taken with the sign that makes b·o positive. Every other field stays as it was.
//! * **Velocity**: with a component that says by how many units a second each `Number` changes, b goes on to
//!   b + (v · (velocity's step ÷ own step) + (velocity's least value ÷ own step)) · seconds, v being its word at the baseline.

use crate::layout::{FieldCode, Layout, Meaning};
use crate::turn::turn_on;

/// How a component's guess is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Forecast {
    /// It stays what it was.
    #[default]
    Still,
    /// It goes on as it has.
    Motion,
    /// It goes on as its velocity says.
    Velocity,
}

impl Forecast {
    pub(crate) const ALL: [Self; 3] = [Self::Still, Self::Motion, Self::Velocity];
}

/// Which component says how another moves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Velocity {
    /// The column that says it.
    pub(crate) source: usize,
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    /// The word of the value, and that of its velocity.
    at: usize,
    from: usize,
    ratio: f64,
    offset: f64,
    max: u32,
}

impl Velocity {
    /// Pairs the numbers of two layouts in their order; `None` if they have not as many, or none.
    pub(crate) fn new(own: &Layout, source: usize, of: &Layout) -> Option<Self> {
        let (own, of): (Vec<_>, Vec<_>) = (numbers(own).collect(), numbers(of).collect());
        if own.is_empty() || own.len() != of.len() {
            return None;
        }
        let part = |(&(at, max, _, step), &(from, _, least, by)): (&Number, &Number)| Part {
            at,
            from,
            ratio: by / step,
            offset: least / step,
            max,
        };
        Some(Self { source, parts: own.iter().zip(&of).map(part).collect() })
    }

    /// The guess, put over a copy of the value at the baseline.
    #[inline]
    pub(crate) fn go_on(&self, velocity: &[u32], seconds: f64, value: &mut [u32]) {
        for part in &self.parts {
            let by = (f64::from(velocity[part.from]) * part.ratio + part.offset) * seconds;
            value[part.at] = within(f64::from(value[part.at]) + by, part.max);
        }
    }
}

/// The place of a number's word, its largest word, least value and step.
type Number = (usize, u32, f64, f64);

fn numbers(layout: &Layout) -> impl Iterator<Item = Number> + '_ {
    let mut at = 0;
    layout.fields().iter().filter_map(move |field| {
        let here = at;
        at += field.code.words();
        match (field.code, field.meaning) {
            (FieldCode::Number { max, .. }, Meaning::Grid { min, step }) => Some((here, max, min, step)),
            _ => None,
        }
    })
}

#[inline]
fn within(value: f64, max: u32) -> u32 {
    // a cast rounds towards zero and saturates
    ((value + 0.5) as u32).min(max)
}

impl Layout {
    /// The guess from the last motion: `value` holds the baseline's words, `older` those from before.
    #[inline]
    pub(crate) fn go_on(&self, older: &[u32], value: &mut [u32]) {
        let mut at = 0;
        for code in &self.codes {
            match *code {
                FieldCode::Number { max, .. } => {
                    let next = 2 * i64::from(value[at]) - i64::from(older[at]);
                    value[at] = next.clamp(0, max.into()) as u32;
                }
                FieldCode::Wrapping { bits } => {
                    value[at] = value[at].wrapping_mul(2).wrapping_sub(older[at]) & ((1 << bits) - 1);
                }
                FieldCode::Quat { bits } => turn_on(&older[at..], &mut value[at..], bits),
                _ => {}
            }
            at += code.words();
        }
    }

    /// Can a last motion say anything of it?
    pub(crate) fn can_go_on(&self) -> bool {
        self.codes.iter().any(|c| c.has_table())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{Step, quat_words};
    use crate::layout::LayoutBuilder;

    fn layout(with: impl FnOnce(&mut LayoutBuilder)) -> Layout {
        let mut builder = LayoutBuilder::new();
        with(&mut builder);
        builder.build().unwrap()
    }

    #[test]
    fn numbers_and_angles_go_on_and_stay_in_range() {
        let layout = layout(|l| {
            l.integer("n", 0, 100, 2);
            l.angle("a", 8);
            l.choice("c", &["x", "y", "z"]);
        });
        for (older, value, next) in [([10, 250, 0], [13, 2, 2], [16, 10, 2]), ([90, 5, 1], [99, 250, 1], [100, 239, 1])] {
            let mut guess = value;
            layout.go_on(&older, &mut guess);
            assert_eq!(guess, next);
        }
    }

    /// A body that turns evenly, about any axis, is guessed to within a step or two.
    #[test]
    fn an_even_turn_goes_on() {
        let layout = layout(|l| l.quat("q", 10));
        for axis in [[1.0f32, 0.0, 0.0], [0.6, -0.8, 0.0], [0.48, 0.6, 0.64]] {
            for start in 0..40 {
                let at = |turn: f32| {
                    let (s, c) = (turn / 2.0).sin_cos();
                    quat_words([axis[0] * s, axis[1] * s, axis[2] * s, c], 10).unwrap()
                };
                let turn = start as f32 * 0.16;
                let (older, mut guess, now) = (at(turn), at(turn + 0.1), at(turn + 0.2));
                layout.go_on(&older, &mut guess);
                // where another part has become the largest just now, words are not comparable
                if guess[0] == now[0] {
                    for i in 1..4 {
                        assert!(guess[i].abs_diff(now[i]) <= 2, "axis {axis:?} turn {turn}: {guess:?} for {now:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_velocity_moves_its_numbers() {
        const METRES: Step = Step::f32(0.01, -100.0, 100.0);
        const SPEED: Step = Step::f32(0.5, -50.0, 50.0);
        let own = layout(|l| {
            l.choice("c", &["x", "y"]);
            l.number("x", &METRES, 4);
        });
        let of = layout(|l| l.number("x", &SPEED, 4));
        let velocity = Velocity::new(&own, 7, &of).unwrap();
        let mut value = [1, METRES.index(3.0).unwrap()];
        velocity.go_on(&[SPEED.index(-12.5).unwrap()], 0.1, &mut value);
        assert_eq!(value, [1, METRES.index(1.75).unwrap()]);
        velocity.go_on(&[SPEED.index(50.0).unwrap()], 1e6, &mut value);
        assert_eq!(value[1], METRES.last());
        assert!(Velocity::new(&own, 7, &layout(|l| l.float("f"))).is_none());
    }
}
