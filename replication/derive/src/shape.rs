//! What a field is, from its type and its attributes: the place where both are checked against each other.

use crate::attrs::{At, Attrs};
use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprUnary, GenericArgument, Ident, Lit, PathArguments, Result, Type, UnOp};

/// A field, taken apart.
pub(crate) enum Shape {
    /// A float in steps. The float type, and the call of a constructor of `Step`.
    Step { float: Ident, steps: TokenStream, order: u32 },
    /// An angle of this float type.
    Angle { float: Ident, bits: u32 },
    /// `[f32; 4]` as a rotation.
    Quat { bits: u32 },
    /// `[f32; 3]` as a direction.
    Normal { bits: u32 },
    /// An exact `f32`.
    Exact,
    /// An integer of at most 32 bits or with a range; `low` and `high` are of its own type.
    Integer { ty: Ident, low: TokenStream, high: TokenStream, order: u32 },
    /// An integer of 64 bits.
    Wide { ty: Ident },
    /// `bool`
    Bool,
    /// A string of at most `cap` bytes.
    Text { cap: u32 },
    /// At most `cap` bytes.
    Bytes { cap: u32 },
    /// Whatever `bitcode` makes of it, in at most `cap` bytes.
    Opaque { ty: Type, cap: u32 },
    /// A list of at most `max` items.
    List { ty: Type, item: Box<Shape>, max: u32 },
    /// A `BTreeMap` of at most `max` keys and values.
    Map { key: Box<Shape>, value: Box<Shape>, max: u32 },
    /// An entity; `optional` for `Option<Entity>`.
    Entity { optional: bool },
    /// Any other type that implements the trait itself.
    Nested(Type),
    /// `Option` of anything but an entity.
    Maybe(Box<Shape>),
    /// An array.
    Array(Box<Shape>, Expr),
}

impl Shape {
    /// What travels of a field of type `ty` with these attributes.
    pub(crate) fn of(ty: &Type, attrs: &Attrs) -> Result<Self> {
        if attrs.opaque.is_some() {
            return opaque(ty, attrs);
        }
        match ty {
            Type::Group(inner) => return Self::of(&inner.elem, attrs),
            Type::Paren(inner) => return Self::of(&inner.elem, attrs),
            Type::Array(array) if attrs.quat.is_some() => return quat(&array.elem, &array.len, attrs),
            Type::Array(array) if attrs.octahedral.is_some() => return normal(&array.elem, &array.len, attrs),
            Type::Array(array) => return Ok(Self::Array(Box::new(Self::of(&array.elem, attrs)?), array.len.clone())),
            Type::Path(_) => {}
            Type::Tuple(_) => {
                return Err(Error::new(ty.span(), "tuples have no field names; use a struct that derives `Replicate`"));
            }
            Type::Reference(_) => return Err(Error::new(ty.span(), "references cannot travel; a component owns its values")),
            _ => return Err(Error::new(ty.span(), "this type cannot travel; it has no fixed number of words")),
        }
        if let Some(inner) = option(ty) {
            return match Self::of(inner, attrs)? {
                Self::Entity { optional: false } => Ok(Self::Entity { optional: true }),
                Self::Maybe(_) | Self::Entity { .. } => {
                    Err(Error::new(ty.span(), "an option of an option cannot travel; use an enum or a struct"))
                }
                inner => Ok(Self::Maybe(Box::new(inner))),
            };
        }
        let Some(ident) = last(ty) else { return nested(ty, attrs) };
        match ident.to_string().as_str() {
            "f32" | "f64" => float(ident, attrs),
            "bool" => attrs.only(&[], "a `bool`").map(|()| Self::Bool),
            "u8" | "u16" | "u32" | "u64" | "i8" | "i16" | "i32" | "i64" => integer(ident, attrs),
            "usize" | "isize" => {
                Err(Error::new(ty.span(), "its size differs between machines; use `u32`, `u64`, `i32` or `i64`"))
            }
            "u128" | "i128" => Err(Error::new(ty.span(), "integers of 128 bits cannot travel; use two of 64 bits")),
            "char" => Err(Error::new(ty.span(), "a `char` cannot travel; use `u32` or a String with `#[net(max = 4)]`")),
            "String" => text(ty, attrs),
            "Entity" => attrs.only(&[], "an entity").map(|()| Self::Entity { optional: false }),
            "HashMap" | "HashSet" => {
                Err(Error::new(ty.span(), "its order is another one each time; use a `BTreeMap` or `BTreeSet`"))
            }
            "Vec" | "VecDeque" | "SmallVec" | "BTreeSet" | "BTreeMap" => collection(ty, attrs),
            _ if attrs.list.is_some() => collection(ty, attrs),
            _ => nested(ty, attrs),
        }
    }

    /// Is everything in it built in, so that its raw bits are plain words?
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            Self::Nested(_) => false,
            Self::Maybe(inner) | Self::Array(inner, _) | Self::List { item: inner, .. } => inner.is_plain(),
            Self::Map { key, value, .. } => key.is_plain() && value.is_plain(),
            _ => true,
        }
    }
}

fn nested(ty: &Type, attrs: &Attrs) -> Result<Shape> {
    attrs.only(&[], "this type; attributes of a nested value stand in its own struct")?;
    Ok(Shape::Nested(ty.clone()))
}

fn float(ident: &Ident, attrs: &Attrs) -> Result<Shape> {
    if attrs.exact.is_some() {
        if ident == "f64" {
            return Err(Error::new(ident.span(), "an `f64` cannot travel exactly; give it a `step` and a `range`"));
        }
        return attrs.only(&["exact"], "an exact float").map(|()| Shape::Exact);
    }
    if attrs.angle.is_some() {
        attrs.only(&["angle", "bits"], "an angle")?;
        let Some(bits) = &attrs.bits else {
            return Err(Error::new(ident.span(), "an angle needs `bits`: `#[net(angle, bits = 10)]`"));
        };
        return Ok(Shape::Angle { float: ident.clone(), bits: bits.value });
    }
    let order = attrs.order.as_ref().map_or(4, |o| o.value);
    let range = |default: f64| match &attrs.range {
        Some(At { value: (low, high), .. }) => (quote!(#low), quote!(#high)),
        None => (quote!(-#default), quote!(#default)),
    };
    let wide = ident == "f64";
    let float = ident.clone();
    if let Some(unit) = &attrs.unit {
        attrs.only(&["unit", "signed", "order"], "a fraction")?;
        let bits = unit.value;
        return match &attrs.signed {
            Some(signed) if bits < 2 => Err(Error::new(signed.span, "a fraction with a sign has at least 2 bits")),
            Some(_) => Ok(Shape::Step { float, steps: quote!(signed_unit(#bits)), order }),
            None => Ok(Shape::Step { float, steps: quote!(unit(#bits)), order }),
        };
    }
    if let Some(fixed) = &attrs.fixed {
        attrs.only(&["fixed", "range", "order"], "a fixed-point number")?;
        let bits = fixed.value;
        let (low, high) = range(2f64.powi(if wide { 30 } else { 22 }) / 2f64.powi(bits as i32));
        let call = if wide { quote!(fixed_f64) } else { quote!(fixed_f32) };
        return Ok(Shape::Step { float, steps: quote!(#call(#bits, (#low) as f64, (#high) as f64)), order });
    }
    if let Some(mm) = &attrs.mm {
        attrs.only(&["mm", "range", "order"], "whole millimetres")?;
        if let Some(range) = &attrs.range {
            check_steps(ident, &At { value: syn::parse_quote_spanned!(mm.span=> 0.001), span: mm.span }, range)?;
        }
        let (low, high) = range(if wide { 2_000_000.0 } else { 8000.0 });
        return Ok(Shape::Step { float, steps: quote!(#ident(0.001, (#low) as f64, (#high) as f64)), order });
    }
    attrs.only(&["step", "range", "order"], "a float")?;
    match (&attrs.step, &attrs.range) {
        (Some(step), Some(range)) => {
            check_steps(ident, step, range)?;
            let (step, (low, high)) = (&step.value, &range.value);
            Ok(Shape::Step { float, steps: quote!(#ident((#step) as f64, (#low) as f64, (#high) as f64)), order })
        }
        (Some(step), None) => Err(Error::new(step.span, "a step needs a range: `#[net(step = 0.01, range = -500.0..=500.0)]`")),
        (None, Some(range)) => Err(Error::new(range.span, "a float with a range needs a step: `step = 0.01`")),
        (None, None) => Err(Error::new(
            ident.span(),
            "how exactly should this float travel? Write `#[net(step = 0.01, range = -500.0..=500.0)]`, `#[net(mm)]`, `#[net(unit = 8)]`, `#[net(angle, bits = 10)]` or, for an f32, `#[net(exact)]`",
        )),
    }
}

/// What can be seen here is refused here, with its place; what is a constant elsewhere, `Step` refuses in a `const`.
fn check_steps(float: &Ident, step: &At<Expr>, range: &At<(Expr, Expr)>) -> Result<()> {
    if let Some(step_value) = literal(&step.value) {
        if step_value <= 0.0 {
            return Err(Error::new(step.value.span(), "a step must be greater than zero"));
        }
        if let (Some(low), Some(high)) = (literal(&range.value.0), literal(&range.value.1)) {
            let reach = if float == "f32" { 8e6 } else { 1e15 };
            if low.abs().max(high.abs()) > step_value * reach {
                return Err(Error::new(
                    step.value.span(),
                    format!("the step is too fine: an {float} cannot tell neighbours apart at the far end of the range"),
                ));
            }
            if high - low < step_value / 2.0 && low < high {
                return Err(Error::new(range.span, "the range is shorter than a step"));
            }
            if (high - low) / step_value + 0.5 >= 4_294_967_296.0 {
                return Err(Error::new(range.span, "the range has more than 2^32 steps"));
            }
        }
    }
    if let (Some(low), Some(high)) = (literal(&range.value.0), literal(&range.value.1))
        && low >= high
    {
        return Err(Error::new(range.span, "the range is empty"));
    }
    Ok(())
}

fn quat(elem: &Type, len: &Expr, attrs: &Attrs) -> Result<Shape> {
    attrs.only(&["quat", "bits"], "a rotation")?;
    if last(elem).is_none_or(|i| i != "f32") || literal(len) != Some(4.0) {
        return Err(Error::new(elem.span(), "a rotation is `[f32; 4]`: x, y, z, w"));
    }
    match &attrs.bits {
        Some(bits) if (4..=16).contains(&bits.value) => Ok(Shape::Quat { bits: bits.value }),
        Some(bits) => Err(Error::new(bits.span, "the parts of a rotation have 4 to 16 bits")),
        None => Err(Error::new(elem.span(), "a rotation needs `bits`: `#[net(quat, bits = 10)]`")),
    }
}

fn normal(elem: &Type, len: &Expr, attrs: &Attrs) -> Result<Shape> {
    attrs.only(&["octahedral", "bits"], "a direction")?;
    if last(elem).is_none_or(|i| i != "f32") || literal(len) != Some(3.0) {
        return Err(Error::new(elem.span(), "a direction is `[f32; 3]`: x, y, z"));
    }
    match &attrs.bits {
        Some(bits) if (4..=16).contains(&bits.value) => Ok(Shape::Normal { bits: bits.value }),
        Some(bits) => Err(Error::new(bits.span, "the words of a direction have 4 to 16 bits")),
        None => Err(Error::new(elem.span(), "a direction needs `bits`: `#[net(octahedral, bits = 10)]`")),
    }
}

fn opaque(ty: &Type, attrs: &Attrs) -> Result<Shape> {
    attrs.only(&["opaque", "max"], "an opaque value")?;
    match &attrs.max {
        Some(max) => Ok(Shape::Opaque { ty: ty.clone(), cap: max.value }),
        None => Err(Error::new(ty.span(), "an opaque value needs the most bytes it may have: `#[net(opaque, max = 200)]`")),
    }
}

/// The most items of a list, as `limits::LIST_ITEMS`.
const LIST_ITEMS: u32 = 64;

fn collection(ty: &Type, attrs: &Attrs) -> Result<Shape> {
    let Some(max) = &attrs.max else {
        return Err(Error::new(ty.span(), "a collection needs a bound: `#[net(max = 8)]`"));
    };
    let cap = max.value;
    let types = arguments(ty);
    let inner = Attrs { max: None, list: None, hold: None, ..attrs.clone() };
    let is = |name: &str| last(ty).is_some_and(|ident| ident == name);
    let is_bytes = is("Vec") && types.first().and_then(|item| last(item)).is_some_and(|item| item == "u8");
    if is_bytes && attrs.only(&["max"], "bytes").is_ok() {
        return Ok(Shape::Bytes { cap });
    }
    if cap > LIST_ITEMS {
        return Err(Error::new(max.span, format!("a list has at most {LIST_ITEMS} items; use entities of their own for more")));
    }
    match types[..] {
        [key, value] if is("BTreeMap") => {
            let key = Box::new(Shape::of(key, &Attrs::default())?);
            ordered(&key, ty)?;
            Ok(Shape::Map { key, value: Box::new(Shape::of(value, &inner)?), max: cap })
        }
        [item, ..] => {
            let item = match item {
                Type::Array(array) if is("SmallVec") => &*array.elem,
                item => item,
            };
            let item = Box::new(Shape::of(item, &inner)?);
            if is("BTreeSet") {
                ordered(&item, ty)?;
            }
            Ok(Shape::List { ty: ty.clone(), item, max: cap })
        }
        [] => Err(Error::new(ty.span(), "a list of what? Write its type with the one of its items: `Queue<Item>`")),
    }
}

/// What orders a collection must be in the same order on every machine.
fn ordered(key: &Shape, ty: &Type) -> Result<()> {
    match key {
        Shape::Entity { .. } => Err(Error::new(ty.span(), "entities have another order on each machine: use a `Vec`")),
        Shape::Maybe(inner) | Shape::Array(inner, _) => ordered(inner, ty),
        _ => Ok(()),
    }
}

/// The types among the arguments of a generic type.
fn arguments(ty: &Type) -> Vec<&Type> {
    let Type::Path(path) = ty else { return Vec::new() };
    let Some(PathArguments::AngleBracketed(args)) = path.path.segments.last().map(|s| &s.arguments) else { return Vec::new() };
    let types = args.args.iter();
    types.filter_map(|arg| if let GenericArgument::Type(ty) = arg { Some(ty) } else { None }).collect()
}

fn integer(ty: &Ident, attrs: &Attrs) -> Result<Shape> {
    attrs.only(&["range", "order"], "an integer")?;
    let order = attrs.order.as_ref().map_or(2, |o| o.value);
    let wide = ty == "u64" || ty == "i64";
    let Some(range) = &attrs.range else {
        if !wide {
            return Ok(Shape::Integer { ty: ty.clone(), low: quote!(#ty::MIN), high: quote!(#ty::MAX), order });
        }
        return match &attrs.order {
            Some(order) => Err(Error::new(order.span, "an integer of 64 bits takes an `order` only together with a `range`")),
            None => Ok(Shape::Wide { ty: ty.clone() }),
        };
    };
    let (low, high) = &range.value;
    if let (Some(low), Some(high)) = (literal(low), literal(high)) {
        if low >= high {
            return Err(Error::new(range.span, "the range is empty"));
        }
        let (least, most) = limits(ty);
        if low < least || high > most {
            return Err(Error::new(range.span, format!("the range goes beyond what `{ty}` holds")));
        }
        if wide && high - low >= 4_294_967_296.0 {
            return Err(Error::new(range.span, "a range has at most 2^32 values; leave it out to send all 64 bits"));
        }
    }
    Ok(Shape::Integer { ty: ty.clone(), low: quote!(#low), high: quote!(#high), order })
}

/// The bounds of an integer type; those of 64 bits are rounded, and the compiler checks their literals.
fn limits(ty: &Ident) -> (f64, f64) {
    let name = ty.to_string();
    let bits: i32 = name[1..].parse().unwrap_or(64);
    if name.starts_with('u') { (0.0, 2f64.powi(bits) - 1.0) } else { (-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - 1.0) }
}

fn text(ty: &Type, attrs: &Attrs) -> Result<Shape> {
    attrs.only(&["max"], "a String")?;
    match &attrs.max {
        Some(max) => Ok(Shape::Text { cap: max.value }),
        None => Err(Error::new(ty.span(), "a String needs the most bytes it may have: `#[net(max = 32)]`")),
    }
}

/// The `T` of `Option<T>`.
pub(crate) fn option(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last()?;
    let PathArguments::AngleBracketed(args) = &segment.arguments else { return None };
    match args.args.first()? {
        GenericArgument::Type(inner) if segment.ident == "Option" && args.args.len() == 1 => Some(inner),
        _ => None,
    }
}

/// The last name of a path.
pub(crate) fn last(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Group(inner) => last(&inner.elem),
        Type::Paren(inner) => last(&inner.elem),
        Type::Path(path) if path.qself.is_none() => path.path.segments.last().map(|s| &s.ident),
        _ => None,
    }
}

/// The value of a literal, if the expression is one.
fn literal(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(v) => v.base10_digits().parse().ok(),
            Lit::Float(v) => v.base10_digits().parse().ok(),
            _ => None,
        },
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => literal(expr).map(|v| -v),
        Expr::Paren(inner) => literal(&inner.expr),
        Expr::Group(inner) => literal(&inner.expr),
        _ => None,
    }
}
