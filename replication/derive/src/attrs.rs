//! `#[net(…)]` as it is written, before it is known whether it fits the field.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, LitInt, Path, RangeLimits, Result};

/// A value and where it was written.
#[derive(Clone)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

/// The attributes of one field.
#[derive(Clone, Default)]
pub(crate) struct Attrs {
    pub(crate) step: Option<At<Expr>>,
    pub(crate) range: Option<At<(Expr, Expr)>>,
    pub(crate) bits: Option<At<u32>>,
    pub(crate) max: Option<At<u32>>,
    pub(crate) order: Option<At<u32>>,
    pub(crate) angle: Option<At<()>>,
    pub(crate) quat: Option<At<()>>,
    pub(crate) exact: Option<At<()>>,
    pub(crate) hold: Option<At<()>>,
    pub(crate) mm: Option<At<()>>,
    pub(crate) fixed: Option<At<u32>>,
    pub(crate) unit: Option<At<u32>>,
    pub(crate) signed: Option<At<()>>,
    pub(crate) octahedral: Option<At<()>>,
    pub(crate) list: Option<At<()>>,
    pub(crate) opaque: Option<At<()>>,
}

const KEYS: &str = "`step`, `range`, `mm`, `fixed`, `unit`, `signed`, `angle`, `quat`, `octahedral`, `bits`, `exact`, `order`, `max`, `list`, \
     `opaque` and `hold`";

impl Attrs {
    /// Reads every `#[net(…)]` of a field.
    pub(crate) fn of_field(attributes: &[Attribute]) -> Result<Self> {
        let mut attrs = Self::default();
        for attribute in attributes.iter().filter(|a| a.path().is_ident("net")) {
            attribute.parse_nested_meta(|meta| {
                let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                let span = meta.path.span();
                let number = |least: u32, most: u32| -> Result<At<u32>> {
                    let lit: LitInt = meta.value()?.parse()?;
                    match lit.base10_parse::<u32>() {
                        Ok(value) if (least..=most).contains(&value) => Ok(At { value, span: lit.span() }),
                        _ => Err(Error::new(lit.span(), format!("`{key}` must be a number from {least} to {most}"))),
                    }
                };
                match key.as_str() {
                    "step" => set(&mut attrs.step, span, At { value: meta.value()?.parse()?, span }),
                    "range" => set(&mut attrs.range, span, range(meta.value()?.parse()?)?),
                    "bits" => set(&mut attrs.bits, span, number(2, 20)?),
                    "max" => set(&mut attrs.max, span, number(1, 512)?),
                    "order" => set(&mut attrs.order, span, number(0, 24)?),
                    "angle" => set(&mut attrs.angle, span, At { value: (), span }),
                    "quat" => set(&mut attrs.quat, span, At { value: (), span }),
                    "exact" => set(&mut attrs.exact, span, At { value: (), span }),
                    "fixed" => set(&mut attrs.fixed, span, number(0, 30)?),
                    "unit" => set(&mut attrs.unit, span, number(1, 22)?),
                    "mm" => set(&mut attrs.mm, span, At { value: (), span }),
                    "signed" => set(&mut attrs.signed, span, At { value: (), span }),
                    "octahedral" => set(&mut attrs.octahedral, span, At { value: (), span }),
                    "list" => set(&mut attrs.list, span, At { value: (), span }),
                    "opaque" => set(&mut attrs.opaque, span, At { value: (), span }),
                    "hold" => set(&mut attrs.hold, span, At { value: (), span }),
                    _ => Err(Error::new(span, format!("unknown attribute; a field knows {KEYS}"))),
                }
            })?;
        }
        Ok(attrs)
    }

    /// Refuses every attribute that is set and not in `fitting`.
    pub(crate) fn only(&self, fitting: &[&str], what: &str) -> Result<()> {
        let set = [
            ("step", self.step.as_ref().map(|a| a.span)),
            ("range", self.range.as_ref().map(|a| a.span)),
            ("bits", self.bits.as_ref().map(|a| a.span)),
            ("max", self.max.as_ref().map(|a| a.span)),
            ("order", self.order.as_ref().map(|a| a.span)),
            ("angle", self.angle.as_ref().map(|a| a.span)),
            ("quat", self.quat.as_ref().map(|a| a.span)),
            ("exact", self.exact.as_ref().map(|a| a.span)),
            ("mm", self.mm.as_ref().map(|a| a.span)),
            ("fixed", self.fixed.as_ref().map(|a| a.span)),
            ("unit", self.unit.as_ref().map(|a| a.span)),
            ("signed", self.signed.as_ref().map(|a| a.span)),
            ("octahedral", self.octahedral.as_ref().map(|a| a.span)),
            ("list", self.list.as_ref().map(|a| a.span)),
            ("opaque", self.opaque.as_ref().map(|a| a.span)),
        ];
        for (key, span) in set {
            if let (Some(span), false) = (span, fitting.contains(&key)) {
                return Err(Error::new(span, format!("`{key}` does not fit {what}")));
            }
        }
        Ok(())
    }
}

/// The path of the crate: `::tidelock`, or what `#[net(crate = path)]` on the type says.
pub(crate) fn crate_path(attributes: &[Attribute]) -> Result<Path> {
    let mut path = None;
    for attribute in attributes.iter().filter(|a| a.path().is_ident("net")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("unknown attribute; a type knows only `crate = path`"));
            }
            let span = meta.path.span();
            set(&mut path, span, At { value: meta.value()?.call(Path::parse_mod_style)?, span })
        })?;
    }
    Ok(path.map_or_else(|| syn::parse_quote!(::tidelock), |p: At<Path>| p.value))
}

/// Variants of enums take no attributes.
pub(crate) fn refuse(attributes: &[Attribute]) -> Result<()> {
    match attributes.iter().find(|a| a.path().is_ident("net")) {
        Some(attribute) => Err(Error::new(attribute.span(), "variants take no `net` attributes")),
        None => Ok(()),
    }
}

fn set<T>(slot: &mut Option<At<T>>, span: Span, value: At<T>) -> Result<()> {
    match slot.replace(value) {
        Some(_) => Err(Error::new(span, "this attribute is given twice")),
        None => Ok(()),
    }
}

fn range(expr: Expr) -> Result<At<(Expr, Expr)>> {
    let span = expr.span();
    match expr {
        Expr::Range(syn::ExprRange { start: Some(start), end: Some(end), limits: RangeLimits::Closed(_), .. }) => {
            Ok(At { value: (*start, *end), span })
        }
        _ => Err(Error::new(span, "write the range as `low..=high`")),
    }
}
