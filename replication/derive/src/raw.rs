//! The component's own bits, for `Replicate::raw`.

use crate::shape::Shape;
use proc_macro2::TokenStream;
use quote::quote;
use syn::Path;

/// Words of the raw form of a plain field.
pub(crate) fn words(shape: &Shape, k: &Path) -> TokenStream {
    match shape {
        Shape::Step { float, .. } | Shape::Angle { float, .. } if float == "f64" => quote!(2),
        Shape::Integer { ty, .. } if ty == "u64" || ty == "i64" => quote!(2),
        Shape::Step { .. } | Shape::Angle { .. } | Shape::Exact | Shape::Integer { .. } | Shape::Bool => quote!(1),
        Shape::Wide { .. } | Shape::Entity { .. } => quote!(2),
        Shape::Quat { .. } => quote!(4),
        Shape::Text { cap } => quote!(#k::field::text_words(#cap)),
        Shape::Maybe(inner) => {
            let inner = words(inner, k);
            quote!((1 + #inner))
        }
        Shape::Array(inner, len) => {
            let inner = words(inner, k);
            quote!((#len) * #inner)
        }
        Shape::Nested(_) => unreachable!("nested values are not plain"),
    }
}

/// Statements that append a plain field to `raw`; `value` is a reference.
pub(crate) fn put(shape: &Shape, value: &TokenStream, k: &Path) -> TokenStream {
    match shape {
        Shape::Step { float, .. } | Shape::Angle { float, .. } if float == "f64" => quote!(raw.two((*#value).to_bits());),
        Shape::Step { .. } | Shape::Angle { .. } | Shape::Exact => quote!(raw.one((*#value).to_bits());),
        Shape::Integer { ty, .. } if ty == "u64" || ty == "i64" => quote!(raw.two(*#value as u64);),
        Shape::Integer { .. } | Shape::Bool => quote!(raw.one(*#value as u32);),
        Shape::Wide { .. } => quote!(raw.two(*#value as u64);),
        Shape::Quat { .. } => quote!(for part in #value { raw.one(part.to_bits()); }),
        Shape::Text { cap } => quote!(raw.text(#cap, #value);),
        Shape::Entity { optional: false } => quote!(raw.two((*#value).to_bits().get());),
        // The bits of an entity are never zero.
        Shape::Entity { optional: true } => quote!(raw.two((*#value).map_or(0, |entity| entity.to_bits().get()));),
        Shape::Maybe(inner) => {
            let words = words(inner, k);
            let inner = put(inner, &quote!(value), k);
            quote!(raw.maybe(#words, (#value).as_ref(), |raw, value| { #inner });)
        }
        Shape::Array(inner, _) => {
            let inner = put(inner, &quote!(value), k);
            quote!(for value in #value { #inner })
        }
        Shape::Nested(_) => unreachable!("nested values are not plain"),
    }
}

/// The raw type of a field that is not plain.
pub(crate) fn ty(shape: &Shape, k: &Path) -> TokenStream {
    match shape {
        Shape::Nested(ty) => quote!(<#ty as #k::replicate::Replicate>::Raw),
        Shape::Maybe(inner) => {
            let inner = ty(inner, k);
            quote!(::core::option::Option<#inner>)
        }
        Shape::Array(inner, len) => {
            let inner = ty(inner, k);
            quote!([#inner; #len])
        }
        _ => unreachable!("plain values are words"),
    }
}

/// The raw value of a field that is not plain.
pub(crate) fn value(shape: &Shape, of: &TokenStream, k: &Path) -> TokenStream {
    match shape {
        Shape::Nested(_) => quote!(#k::replicate::Replicate::raw(#of)),
        Shape::Maybe(inner) => {
            let inner = value(inner, &quote!(value), k);
            quote!((#of).as_ref().map(|value| #inner))
        }
        Shape::Array(inner, _) => {
            let inner = value(inner, &quote!(value), k);
            quote!((#of).each_ref().map(|value| #inner))
        }
        _ => unreachable!("plain values are words"),
    }
}
