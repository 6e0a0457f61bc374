//! The type under the derive, and the attributes of its fields.

use crate::attrs::{Attrs, crate_path, refuse};
use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
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
    collect(fields.into_iter().enumerate().map(|(i, field)| {
        let access = match &field.ident {
            Some(ident) => ident.to_token_stream(),
            None => Index { index: i as u32, span: Span::call_site() }.to_token_stream(),
        };
        let name = field.ident.as_ref().map_or_else(|| i.to_string(), |ident| ident.unraw().to_string());
        Ok(Member { access, name, attrs: Attrs::of_field(&field.attrs)?, ty: field.ty })
    }))
}

/// All the values, or all the errors.
pub(crate) fn collect<T>(results: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let mut errors: Option<Error> = None;
    for result in results {
        match (result, &mut errors) {
            (Ok(value), _) => values.push(value),
            (Err(error), Some(all)) => all.combine(error),
            (Err(error), None) => errors = Some(error),
        }
    }
    errors.map_or(Ok(values), Err)
}
