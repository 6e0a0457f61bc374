//! The type under the derive, and the attributes of its fields.

use crate::attrs::{Attrs, crate_path, refuse};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Ident, Index, Path, Result, Type};

/// The type under the derive.
pub(crate) struct Input {
    pub(crate) krate: Path,
    pub(crate) ident: Ident,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    /// A struct, with or without fields.
    Struct(Vec<Member>),
    /// The variants of an enum without fields.
    Enum(Vec<Ident>),
}

/// One field of a struct.
pub(crate) struct Member {
    /// `x` or `0`, for `self.x` and `Self { x: … }`.
    pub(crate) access: TokenStream,
    /// The same as text.
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) attrs: Attrs,
}

impl Input {
    pub(crate) fn parse(input: DeriveInput) -> Result<Self> {
        let krate = crate_path(&input.attrs)?;
        no_generics(&input)?;
        let body = match input.data {
            Data::Struct(data) => Body::Struct(members(data.fields)?),
            Data::Enum(data) if data.variants.is_empty() => {
                return Err(Error::new(input.ident.span(), "an enum without variants has no values"));
            }
            Data::Enum(data) => {
                let mut variants = Vec::new();
                for variant in data.variants {
                    refuse(&variant.attrs)?;
                    if !matches!(variant.fields, Fields::Unit) {
                        let message = "variants with fields cannot be derived; use a struct of options, or a component for each";
                        return Err(Error::new(variant.span(), message));
                    }
                    variants.push(variant.ident);
                }
                Body::Enum(variants)
            }
            Data::Union(data) => return Err(Error::new(data.union_token.span(), "unions cannot be derived")),
        };
        Ok(Self { krate, ident: input.ident, body })
    }
}

/// A component is one concrete type.
pub(crate) fn no_generics(input: &DeriveInput) -> Result<()> {
    if input.generics.params.is_empty() {
        return Ok(());
    }
    let message = "generic types cannot be derived: a component is one concrete type with one layout";
    Err(Error::new(input.generics.span(), message))
}

fn members(fields: Fields) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for (i, field) in fields.into_iter().enumerate() {
        let access = match &field.ident {
            Some(ident) => ident.to_token_stream(),
            None => {
                let index = Index { index: i as u32, span: Span::call_site() };
                quote!(#index)
            }
        };
        let name =
            field.ident.as_ref().map_or_else(|| i.to_string(), |ident| ident.to_string().trim_start_matches("r#").to_owned());
        members.push(Member { access, name, attrs: Attrs::of_field(&field.attrs)?, ty: field.ty });
    }
    Ok(members)
}
