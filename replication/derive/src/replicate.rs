//! `derive(Replicate)`.

use crate::input::{Body, Input, collect};
use crate::shape::Shape;
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Ident, Path, Result};

pub(crate) fn expand(input: &Input) -> Result<TokenStream> {
    match &input.body {
        Body::Enum(variants) => Ok(choice(input, variants)),
        Body::Struct(members) => {
            let fields = collect(members.iter().map(|m| Ok((m, Shape::of(&m.ty, &m.attrs)?))))?;
            let k = &input.krate;
            let each = |make: &dyn Fn(&Shape, &str, TokenStream) -> TokenStream| -> Vec<TokenStream> {
                fields
                    .iter()
                    .map(|(m, shape)| {
                        make(shape, &m.name, {
                            let a = &m.access;
                            quote!(&self.#a)
                        })
                    })
                    .collect()
            };
            let words = each(&|shape, _, _| words(shape, k));
            let layout = each(&|shape, name, _| layout(shape, name, k));
            let quantise = each(&|shape, name, value| quantise(shape, name, &value, k));
            let restore = each(&|shape, name, _| restore(shape, name, k));
            let access: Vec<_> = members.iter().map(|m| &m.access).collect();
            let (raw_type, raw) = raw_of(&each, &fields.iter().map(|(_, s)| s).collect::<Vec<_>>(), k);
            let ident = &input.ident;
            Ok(quote! {
                #[automatically_derived]
                impl #k::replicate::Replicate for #ident {
                    type Raw = #raw_type;
                    const WORDS: usize = 0 #(+ #words)*;
                    fn layout(l: &mut #k::layout::LayoutBuilder) {
                        let _ = &l;
                        #(#layout)*
                    }
                    #[inline]
                    fn raw(&self) -> Self::Raw {
                        #raw
                    }
                    #[inline]
                    fn quantise(&self, out: &mut #k::replicate::Quantiser<'_>) -> ::core::result::Result<(), #k::replicate::FieldError> {
                        let _ = &out;
                        #(#quantise?;)*
                        ::core::result::Result::Ok(())
                    }
                    #[inline]
                    fn restore(from: &mut #k::replicate::Restorer<'_>) -> ::core::result::Result<Self, #k::replicate::RestoreError> {
                        let _ = &from;
                        ::core::result::Result::Ok(Self { #(#access: #restore?,)* })
                    }
                }
            })
        }
    }
}

fn choice(input: &Input, variants: &[Ident]) -> TokenStream {
    let (k, ident) = (&input.krate, &input.ident);
    let names = variants.iter().map(|v| v.unraw().to_string());
    let count = variants.len() as u32;
    let numbers: Vec<_> = (0..count).collect();
    quote! {
        #[automatically_derived]
        impl #k::replicate::Replicate for #ident {
            type Raw = [u32; 1];
            const WORDS: usize = 1;
            fn layout(l: &mut #k::layout::LayoutBuilder) {
                l.choice("", &[#(#names),*]);
            }
            #[inline]
            fn raw(&self) -> Self::Raw {
                [match self { #(Self::#variants => #numbers,)* }]
            }
            #[inline]
            fn quantise(&self, out: &mut #k::replicate::Quantiser<'_>) -> ::core::result::Result<(), #k::replicate::FieldError> {
                out.choice(match self { #(Self::#variants => #numbers,)* });
                ::core::result::Result::Ok(())
            }
            #[inline]
            fn restore(from: &mut #k::replicate::Restorer<'_>) -> ::core::result::Result<Self, #k::replicate::RestoreError> {
                match from.choice("value", #count)? {
                    #(#numbers => ::core::result::Result::Ok(Self::#variants),)*
                    _ => ::core::result::Result::Err(#k::replicate::RestoreError::Invalid { field: "value" }),
                }
            }
        }
    }
}

/// Words of the quantised form.
fn words(shape: &Shape, k: &Path) -> TokenStream {
    match shape {
        Shape::Step { .. } | Shape::Angle { .. } | Shape::Exact | Shape::Integer { .. } | Shape::Bool => quote!(1),
        Shape::Wide { .. } | Shape::Entity { .. } | Shape::Normal { .. } => quote!(2),
        Shape::Quat { .. } => quote!(4),
        Shape::Text { cap } | Shape::Bytes { cap } | Shape::Opaque { cap, .. } => quote!(#k::field::text_words(#cap)),
        Shape::Nested(ty) => quote!(<#ty as #k::replicate::Replicate>::WORDS),
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
            quote!((#max as usize) * (1 + #item))
        }
        Shape::Map { key, value, max } => {
            let (key, value) = (words(key, k), words(value, k));
            quote!((#max as usize) * (1 + #key + #value))
        }
    }
}

fn step(shape: &Shape, k: &Path) -> TokenStream {
    let Shape::Step { steps, .. } = shape else { return TokenStream::new() };
    quote!(&const { #k::field::Step::#steps })
}

/// `low, high` of an integer as `i64`, checked while compiling.
fn bounds(ty: &Ident, low: &TokenStream, high: &TokenStream) -> TokenStream {
    quote! {
        const { let low: #ty = #low; low as i64 },
        const {
            let (low, high): (#ty, #ty) = (#low, #high);
            assert!(low < high && high as i128 - low as i128 <= u32::MAX as i128 && high as i128 <= i64::MAX as i128, "a range that cannot travel");
            high as i64
        }
    }
}

fn layout(shape: &Shape, name: &str, k: &Path) -> TokenStream {
    match shape {
        Shape::Step { order, .. } => {
            let step = step(shape, k);
            quote!(l.number(#name, #step, #order);)
        }
        Shape::Angle { bits, .. } => quote!(l.angle(#name, #bits);),
        Shape::Quat { bits } => quote!(l.quat(#name, #bits);),
        Shape::Exact => quote!(l.float(#name);),
        Shape::Integer { ty, low, high, order } => {
            let bounds = bounds(ty, low, high);
            quote!(l.integer(#name, #bounds, #order);)
        }
        Shape::Wide { .. } => quote!(l.wide(#name);),
        Shape::Bool => quote!(l.choice(#name, &["false", "true"]);),
        Shape::Text { cap } => quote!(l.text(#name, #cap);),
        Shape::Entity { .. } => quote!(l.entity(#name);),
        Shape::Nested(ty) => quote!(l.part::<#ty>(#name);),
        Shape::Maybe(inner) => {
            let inner = layout(inner, "", k);
            quote!(l.maybe(#name, |l| { #inner });)
        }
        Shape::Array(inner, len) => {
            let inner = layout(inner, "", k);
            quote!(l.array(#name, #len, |l| { #inner });)
        }
        Shape::Normal { bits } => quote!(l.normal(#name, #bits);),
        Shape::Bytes { cap } | Shape::Opaque { cap, .. } => quote!(l.bytes(#name, #cap);),
        Shape::List { item, max, .. } => {
            let item = layout(item, "", k);
            quote!(l.list(#name, #max, |l| { #item });)
        }
        Shape::Map { key, value, max } => {
            let (key, value) = (layout(key, "key", k), layout(value, "value", k));
            quote!(l.list(#name, #max, |l| { #key #value });)
        }
    }
}

/// An expression of type `Result<(), FieldError>`; `value` is a reference.
fn quantise(shape: &Shape, name: &str, value: &TokenStream, k: &Path) -> TokenStream {
    let ok = quote!(::core::result::Result::Ok::<(), #k::replicate::FieldError>(()));
    match shape {
        Shape::Step { .. } => {
            let step = step(shape, k);
            quote!(out.number(#name, #step, f64::from(*#value)))
        }
        Shape::Angle { bits, .. } => quote!(out.angle(#name, #bits, f64::from(*#value))),
        Shape::Quat { bits } => quote!(out.quat(#name, #bits, *#value)),
        Shape::Exact => quote!(out.float(#name, *#value)),
        Shape::Integer { ty, low, high, .. } => {
            let bounds = bounds(ty, low, high);
            let value = if ty == "u64" { quote!(i64::try_from(*#value).unwrap_or(i64::MAX)) } else { quote!(i64::from(*#value)) };
            quote!(out.integer(#name, #value, #bounds))
        }
        Shape::Wide { .. } => quote!({ out.wide(*#value as u64); #ok }),
        Shape::Bool => quote!({ out.choice(u32::from(*#value)); #ok }),
        Shape::Text { cap } => quote!(out.text(#name, #cap, #value)),
        Shape::Entity { optional: false } => quote!({ out.entity(::core::option::Option::Some(*#value)); #ok }),
        Shape::Entity { optional: true } => quote!({ out.entity(*#value); #ok }),
        Shape::Nested(_) => quote!(out.part(#name, #value)),
        Shape::Maybe(inner) => {
            let words = words(inner, k);
            let inner = quantise(inner, "", &quote!(value), k);
            quote!(out.maybe(#name, #words, (#value).as_ref(), |out, value| #inner))
        }
        Shape::Array(inner, _) => {
            let inner = quantise(inner, "", &quote!(value), k);
            quote!(out.array(#name, #value, |out, value| #inner))
        }
        Shape::Normal { bits } => quote!(out.normal(#name, #bits, *#value)),
        Shape::Bytes { cap } => quote!(out.bytes(#name, #cap, #value)),
        Shape::Opaque { cap, .. } => quote!(out.opaque(#name, #cap, #value)),
        Shape::List { item, max, .. } => {
            let words = words(item, k);
            let item = quantise(item, "", &quote!(value), k);
            quote!(out.list(#name, #words, #max, #k::collections::List::items(#value), |out, value| #item))
        }
        Shape::Map { key, value: of, max } => {
            let (key_words, value_words) = (words(key, k), words(of, k));
            let (key, of) = (quantise(key, "key", &quote!(key), k), quantise(of, "value", &quote!(value), k));
            quote!(out.list(#name, #key_words + #value_words, #max, (#value).iter(), |out, (key, value)| { #key?; #of }))
        }
    }
}

/// An expression of type `Result<T, RestoreError>`.
fn restore(shape: &Shape, name: &str, k: &Path) -> TokenStream {
    match shape {
        Shape::Step { float, .. } => {
            let step = step(shape, k);
            quote!(from.number(#name, #step).map(|v| v as #float))
        }
        Shape::Angle { float, bits } => quote!(from.angle(#name, #bits).map(|v| v as #float)),
        Shape::Quat { bits } => quote!(from.quat(#name, #bits)),
        Shape::Exact => quote!(from.float(#name)),
        Shape::Integer { ty, low, high, .. } => {
            let bounds = bounds(ty, low, high);
            quote!(from.integer(#name, #bounds).map(|v| v as #ty))
        }
        Shape::Wide { ty } => quote!(from.wide(#name).map(|v| v as #ty)),
        Shape::Bool => quote!(from.choice(#name, 2).map(|v| v == 1)),
        Shape::Text { cap } => quote!(from.text(#name, #cap)),
        Shape::Entity { optional: false } => quote!(from.entity(#name)),
        Shape::Entity { optional: true } => quote!(from.entity_or_none(#name)),
        Shape::Nested(ty) => quote!(<#ty as #k::replicate::Replicate>::restore(from)),
        Shape::Maybe(inner) => {
            let words = words(inner, k);
            let inner = restore(inner, name, k);
            quote!(from.maybe(#name, #words, |from| #inner))
        }
        Shape::Array(inner, _) => {
            let inner = restore(inner, name, k);
            quote!(from.array(|from| #inner))
        }
        Shape::Normal { bits } => quote!(from.normal(#name, #bits)),
        Shape::Bytes { cap } => quote!(from.bytes(#name, #cap)),
        Shape::Opaque { ty, cap } => quote!(from.opaque::<#ty>(#name, #cap)),
        Shape::List { ty, item, max } => {
            let words = words(item, k);
            let item = restore(item, name, k);
            quote!(from.list(#name, #words, #max, |from| #item).and_then(|items| #k::collections::list_of::<#ty>(#name, items)))
        }
        Shape::Map { key, value, max } => {
            let (key_words, value_words) = (words(key, k), words(value, k));
            let (key, value) = (restore(key, name, k), restore(value, name, k));
            let pair = quote!(::core::result::Result::Ok((#key?, #value?)));
            quote!(from.list(#name, #key_words + #value_words, #max, |from| #pair).and_then(|items| #k::collections::map_of(#name, items)))
        }
    }
}

type Each<'a> = &'a dyn Fn(&dyn Fn(&Shape, &str, TokenStream) -> TokenStream) -> Vec<TokenStream>;

/// The raw type and an expression for it: plain fields as one array of words, others as a list of pairs behind it.
fn raw_of(each: Each<'_>, shapes: &[&Shape], k: &Path) -> (TokenStream, TokenStream) {
    let count = shapes.iter().filter(|s| s.is_plain()).map(|s| crate::raw::words(s, k));
    let count = quote!({ 0 #(+ #count)* });
    let puts = each(&|s, _, value| if s.is_plain() { crate::raw::put(s, &value, k) } else { TokenStream::new() });
    let words = quote!({
        let mut raw = #k::replicate::RawWords::<#count>::default();
        #(#puts)*
        raw.finish()
    });
    let pick = |tokens: Vec<TokenStream>| tokens.into_iter().filter(|t| !t.is_empty()).rev().collect::<Vec<_>>();
    let types = pick(each(&|s, _, _| if s.is_plain() { TokenStream::new() } else { crate::raw::ty(s, k) }));
    let values = pick(each(&|s, _, value| if s.is_plain() { TokenStream::new() } else { crate::raw::value(s, &value, k) }));
    if types.is_empty() {
        return (quote!([u32; #count]), words);
    }
    let rest_type = types.into_iter().fold(quote!(()), |rest, ty| quote!((#ty, #rest)));
    let rest = values.into_iter().fold(quote!(()), |rest, value| quote!((#value, #rest)));
    (quote!(([u32; #count], #rest_type)), quote!((#words, #rest)))
}
