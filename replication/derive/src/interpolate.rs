//! `derive(Interpolate)`.

use crate::attrs::Attrs;
use crate::input::{Body, Input, collect};
use crate::shape::{last, option};
use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, Path, Result, Type};

pub(crate) fn expand(input: &Input) -> Result<TokenStream> {
    let (k, ident) = (&input.krate, &input.ident);
    let body = match &input.body {
        Body::Enum(variants) => {
            quote!(match if t >= 1.0 { to } else { from } { #(Self::#variants => Self::#variants,)* })
        }
        Body::Struct(members) => {
            let fields = collect(members.iter().map(|member| {
                let access = &member.access;
                let value = mix(&member.ty, &member.attrs, &quote!(&from.#access), &quote!(&to.#access), k)?;
                Ok(quote!(#access: #value))
            }))?;
            quote!({ let _ = (&from, &to, t); Self { #(#fields),* } })
        }
    };
    Ok(quote! {
        #[automatically_derived]
        impl #k::interpolate::Interpolate for #ident {
            fn interpolate(from: &Self, to: &Self, t: f32) -> Self {
                #body
            }
        }
    })
}

/// The value between two references.
fn mix(ty: &Type, attrs: &Attrs, from: &TokenStream, to: &TokenStream, k: &Path) -> Result<TokenStream> {
    // lists and opaque values are taken whole, as texts are
    if attrs.hold.is_some() || attrs.opaque.is_some() || attrs.max.is_some() {
        return Ok(quote!(#k::interpolate::hold(#from, #to, t)));
    }
    if attrs.angle.is_none() && attrs.quat.is_none() && attrs.octahedral.is_none() {
        return Ok(quote!(<#ty as #k::interpolate::Interpolate>::interpolate(#from, #to, t)));
    }
    if let Type::Group(inner) = ty {
        return mix(&inner.elem, attrs, from, to, k);
    }
    if let Some(inner) = option(ty) {
        let inner = mix(inner, attrs, &quote!(from), &quote!(to), k)?;
        return Ok(quote!(#k::interpolate::option(#from, #to, t, |from, to| #inner)));
    }
    if let Type::Array(array) = ty {
        if attrs.quat.is_some() && last(&array.elem).is_some_and(|i| i == "f32") {
            return Ok(quote!(#k::interpolate::quat(*#from, *#to, t)));
        }
        if attrs.octahedral.is_some() && last(&array.elem).is_some_and(|i| i == "f32") {
            return Ok(quote!(#k::interpolate::normal(*#from, *#to, t)));
        }
        let inner = mix(&array.elem, attrs, &quote!(from), &quote!(to), k)?;
        return Ok(quote!(#k::interpolate::array(#from, #to, |from, to| #inner)));
    }
    match last(ty) {
        Some(float) if attrs.angle.is_some() && (float == "f32" || float == "f64") => {
            Ok(quote!(#k::interpolate::angle(f64::from(*#from), f64::from(*#to), t) as #float))
        }
        _ if attrs.angle.is_some() => Err(Error::new(ty.span(), "an angle is an `f32` or `f64`")),
        _ if attrs.octahedral.is_some() => Err(Error::new(ty.span(), "a direction is `[f32; 3]`: x, y, z")),
        _ => Err(Error::new(ty.span(), "a rotation is `[f32; 4]`: x, y, z, w")),
    }
}
