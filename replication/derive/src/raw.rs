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
        Shape::Normal { .. } => quote!(3),
        Shape::Text { cap } | Shape::Bytes { cap } | Shape::Opaque { cap, .. } => quote!(#k::field::text_words(#cap)),
        Shape::Maybe(inner) => {
            let inner = words(inner, k);
            quote!((1 + #inner))
        }
        Shape::Array(inner, len) => {
            let inner = words(inner, k);
            quote!((#len) * #inner)
        }
        Shape::List { item, max, .. } => {
            let item = words(item, k);
            quote!((1 + (#max as usize) * #item))
        }
        Shape::Map { key, value, max } => {
            let (key, value) = (words(key, k), words(value, k));
            quote!((1 + (#max as usize) * (#key + #value)))
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
        Shape::Quat { .. } | Shape::Normal { .. } => quote!(for part in #value { raw.one(part.to_bits()); }),
        Shape::Text { cap } => quote!(raw.text(#cap, #value);),
        Shape::Bytes { cap } => quote!(raw.bytes(#cap, #value);),
        Shape::Opaque { cap, .. } => quote!(raw.opaque(#cap, #value);),
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
        Shape::List { item, max, .. } => {
            let (words, item) = (words(item, k), put(item, &quote!(value), k));
            quote!(raw.list(#words, #max, #k::collections::List::items(#value), |raw, value| { #item });)
        }
        Shape::Map { key, value: of, max } => {
            let (key_words, value_words) = (words(key, k), words(of, k));
            let (key, of) = (put(key, &quote!(key), k), put(of, &quote!(value), k));
            quote!(raw.list(#key_words + #value_words, #max, (#value).iter(), |raw, (key, value)| { #key #of });)
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
        Shape::List { item, max, .. } => {
            let item = any_ty(item, k);
            quote!((usize, [::core::option::Option<#item>; #max as usize]))
        }
        Shape::Map { key, value, max } => {
            let (key, value) = (any_ty(key, k), any_ty(value, k));
            quote!((usize, [::core::option::Option<(#key, #value)>; #max as usize]))
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
        Shape::List { item, max, .. } => {
            let item = any_value(item, &quote!(value), k);
            quote!(#k::collections::raw_list::<_, { #max as usize }>(#k::collections::List::items(#of).map(|value| #item)))
        }
        Shape::Map { key, value, max } => {
            let (key, value) = (any_value(key, &quote!(key), k), any_value(value, &quote!(value), k));
            quote!(#k::collections::raw_list::<_, { #max as usize }>((#of).iter().map(|(key, value)| (#key, #value))))
        }
        _ => unreachable!("plain values are words"),
    }
}

/// The raw type of a part of a list that is not plain: the part may be.
fn any_ty(shape: &Shape, k: &Path) -> TokenStream {
    if shape.is_plain() {
        let words = words(shape, k);
        return quote!([u32; #words]);
    }
    ty(shape, k)
}

/// The raw value of such a part.
fn any_value(shape: &Shape, of: &TokenStream, k: &Path) -> TokenStream {
    if shape.is_plain() {
        let (words, put) = (words(shape, k), put(shape, of, k));
        return quote!({
            let mut raw = #k::replicate::RawWords::<{ #words }>::default();
            #put
            raw.finish()
        });
    }
    value(shape, of, k)
}
