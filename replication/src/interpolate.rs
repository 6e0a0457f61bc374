//! [`Interpolate`]: a value between two samples, and beyond the later one.

use hecs::Entity;
use std::f64::consts::{PI, TAU};

/// A component that can be drawn between two samples.
///
/// `t` is 0 at `from` and 1 at `to`; beyond 1 the motion goes on (extrapolation), possibly out of the range that a field states.
/// What is not blended is `from` for every `t` below 1, however near: what is extrapolated
/// ([`ComponentOptions::extrapolate`](crate::ComponentOptions::extrapolate)) is a mean of what is newer and what is older, taken
/// from the newer one.
/// Whatever the inputs, every float that comes out is finite.
///
/// The derive goes field by field: floats on a line, `#[net(angle, …)]` the short way round, `#[net(quat, …)]` along the short
/// arc at constant speed, `#[net(octahedral, …)]` along it; integers, `bool`, enums, strings, lists, maps, opaque values and entities keep `from` until `t` reaches 1, and so does whatever is
/// marked `#[net(hold)]`. An option that is empty on one side does the same.
///
/// ```
/// use tidelock::Interpolate;
///
/// #[derive(Clone, Debug, PartialEq, Interpolate)]
/// struct Barrel {
///     at: [f32; 2],
///     #[net(angle, bits = 10)]
///     turn: f32,
///     #[net(hold)]
///     pressure: f32,
///     leaks: u8,
/// }
///
/// let from = Barrel { at: [0.0, 2.0], turn: 3.0, pressure: 1.0, leaks: 0 };
/// let to = Barrel { at: [1.0, 2.0], turn: -3.0, pressure: 5.0, leaks: 3 };
/// let half = Barrel::interpolate(&from, &to, 0.5);
/// assert_eq!((half.at, half.pressure, half.leaks), ([0.5, 2.0], 1.0, 0));
/// assert!(half.turn.abs() > 3.1, "through the back, not through zero");
/// assert_eq!(Barrel::interpolate(&from, &to, 2.0).at, [2.0, 2.0]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be interpolated",
    label = "derive `Interpolate` for it, or mark the field `#[net(hold)]`"
)]
pub trait Interpolate: Sized {
    /// The value at `t`.
    #[must_use]
    fn interpolate(from: &Self, to: &Self, t: f32) -> Self;
}

/// `from` until `t` reaches 1, then `to`.
#[inline]
#[must_use]
pub fn hold<T: Clone>(from: &T, to: &T, t: f32) -> T {
    if t >= 1.0 { to.clone() } else { from.clone() }
}

/// A number on the line through two.
#[inline]
#[must_use]
pub fn line(from: f64, to: f64, t: f32) -> f64 {
    if t == 0.0 && from.is_finite() {
        return from;
    }
    if t == 1.0 && to.is_finite() {
        return to;
    }
    let t = f64::from(finite_time(t));
    let (from, to) = ends(from, to);
    // In this form nothing overflows between the two.
    let value = from * (1.0 - t) + to * t;
    if value.is_nan() { to } else { value.clamp(f64::MIN, f64::MAX) }
}

/// An angle in radians on the short way from one to another, from −π up to π.
#[must_use]
pub fn angle(from: f64, to: f64, t: f32) -> f64 {
    let (from, to) = ends(from, to);
    wrap(from + wrap(to - from) * f64::from(finite_time(t)))
}

/// A rotation (x, y, z, w) on the short arc from one to another, of length 1; what is no rotation counts as none at all.
#[must_use]
pub fn quat(from: [f32; 4], to: [f32; 4], t: f32) -> [f32; 4] {
    let t = f64::from(finite_time(t));
    let (a, mut b) = (unit(from.map(f64::from)), unit(to.map(f64::from)));
    let mut dot = a.iter().zip(&b).map(|(a, b)| a * b).sum::<f64>();
    if dot < 0.0 {
        // q and −q are the same rotation; the nearer one is the short way.
        b = b.map(|v| -v);
        dot = -dot;
    }
    let (u, v) = if dot > 0.999_999 {
        (1.0 - t, t)
    } else {
        let arc = dot.acos();
        (((1.0 - t) * arc).sin() / arc.sin(), (t * arc).sin() / arc.sin())
    };
    unit([0, 1, 2, 3].map(|i| a[i] * u + b[i] * v)).map(|v| v as f32)
}

/// A direction between two, of length 1: on the short arc, a little faster in its middle. Between opposite ones, and from or to what
/// is no direction, `from` is held.
#[must_use]
pub fn normal(from: [f32; 3], to: [f32; 3], t: f32) -> [f32; 3] {
    let is_one = |v: [f32; 3]| v.iter().all(|part| part.is_finite()) && v.iter().any(|part| *part != 0.0);
    let one = |v: [f64; 3]| {
        let length = v.iter().map(|part| part * part).sum::<f64>().sqrt();
        (length > 1e-6 && length.is_finite()).then(|| v.map(|part| part / length))
    };
    match (is_one(from), is_one(to)) {
        (false, true) => return to,
        (false, false) => return [0.0, 0.0, 1.0],
        (true, false) => return from,
        (true, true) => {}
    }
    let time = f64::from(finite_time(t));
    let between = one(from.map(f64::from))
        .zip(one(to.map(f64::from)))
        .and_then(|(a, b)| one([0, 1, 2].map(|i| a[i] * (1.0 - time) + b[i] * time)));
    between.map_or(if t >= 1.0 { to } else { from }, |v| v.map(|part| part as f32))
}

fn unit(q: [f64; 4]) -> [f64; 4] {
    let length = q.iter().map(|v| v * v).sum::<f64>().sqrt();
    if length > 0.0 && length.is_finite() { q.map(|v| v / length) } else { [0.0, 0.0, 0.0, 1.0] }
}

/// Both ends, each finite: a broken one takes the other's place.
#[inline]
fn ends(from: f64, to: f64) -> (f64, f64) {
    match (from.is_finite(), to.is_finite()) {
        (true, true) => (from, to),
        (true, false) => (from, from),
        (false, true) => (to, to),
        (false, false) => (0.0, 0.0),
    }
}

/// No presentation runs a million samples ahead; such a time is a mistake that shall not become an infinite position.
#[inline]
fn finite_time(t: f32) -> f32 {
    if t.is_nan() { 0.0 } else { t.clamp(-1e6, 1e6) }
}

fn wrap(radians: f64) -> f64 {
    if (-PI..PI).contains(&radians) {
        return radians;
    }
    let turned = (radians + PI).rem_euclid(TAU) - PI;
    // The sum of two huge angles may be infinite, and a remainder just below zero may round up to a whole turn.
    if turned.is_nan() { 0.0 } else { turned.clamp(-PI, PI) }
}

impl Interpolate for f32 {
    #[inline]
    fn interpolate(from: &Self, to: &Self, t: f32) -> Self {
        line((*from).into(), (*to).into(), t).clamp(Self::MIN.into(), Self::MAX.into()) as Self
    }
}

impl Interpolate for f64 {
    #[inline]
    fn interpolate(from: &Self, to: &Self, t: f32) -> Self {
        line(*from, *to, t)
    }
}

macro_rules! held {
    ($($ty:ty)*) => {$(
        impl Interpolate for $ty {
            #[inline]
            fn interpolate(from: &Self, to: &Self, t: f32) -> Self {
                hold(from, to, t)
            }
        }
    )*};
}

held!(() u8 u16 u32 u64 i8 i16 i32 i64 bool String Entity);

impl<T: Interpolate + Clone> Interpolate for Option<T> {
    fn interpolate(from: &Self, to: &Self, t: f32) -> Self {
        option(from, to, t, |from, to| T::interpolate(from, to, t))
    }
}

impl<T: Interpolate, const N: usize> Interpolate for [T; N] {
    #[inline]
    fn interpolate(from: &Self, to: &Self, t: f32) -> Self {
        array(from, to, |from, to| T::interpolate(from, to, t))
    }
}

/// Options: `inner` where both are there, else held.
pub fn option<T: Clone>(from: &Option<T>, to: &Option<T>, t: f32, inner: impl FnOnce(&T, &T) -> T) -> Option<T> {
    match (from, to) {
        (Some(from), Some(to)) => Some(inner(from, to)),
        _ => hold(from, to, t),
    }
}

/// Arrays, element by element.
#[inline]
pub fn array<T, const N: usize>(from: &[T; N], to: &[T; N], mut inner: impl FnMut(&T, &T) -> T) -> [T; N] {
    std::array::from_fn(|i| inner(&from[i], &to[i]))
}
