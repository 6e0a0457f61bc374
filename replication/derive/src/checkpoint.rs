//! `derive(Checkpoint)`: nothing of it travels, so that enums may have fields and every type is taken by its own implementation.

use crate::attrs::crate_path;
use crate::input::no_generics;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Ident, Index, Member, Path, Result, Type};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let k = crate_path(&input.attrs)?;
    no_generics(input)?;
    let (save, write, read, differ) = match &input.data {
        Data::Struct(data) => {
            let access = names(&data.fields);
            let types: Vec<_> = data.fields.iter().map(|f| &f.ty).collect();
            let save = quote!(#(<#types as #k::checkpoint::Checkpoint>::save_into(&self.#access, &mut into.#access);)*);
            let write = quote!(#(<#types as #k::checkpoint::Checkpoint>::write(&self.#access, w);)*);
            let read = quote! {
                ::core::result::Result::Ok(Self { #(#access: <#types as #k::checkpoint::Checkpoint>::read(r)?),* })
            };
            let names = access.iter().map(member_name);
            let differ = quote! {
                #(if at.field(#names, |at| {
                    <#types as #k::checkpoint::Checkpoint>::differ(&self.#access, &other.#access, at)
                }) {
                    return true;
                })*
                false
            };
            (save, write, read, differ)
        }
        Data::Enum(data) if data.variants.is_empty() => {
            return Err(Error::new(input.ident.span(), "an enum without variants has no values"));
        }
        Data::Enum(data) => variants(&input.ident, data, &k),
        Data::Union(data) => return Err(Error::new(data.union_token.span(), "unions cannot be derived")),
    };
    let ident = &input.ident;
    let parts = parts(&input.data);
    Ok(quote! {
        #[automatically_derived]
        impl #k::checkpoint::Checkpoint for #ident {
            const PLAIN: bool = true #(&& <#parts as #k::checkpoint::Checkpoint>::PLAIN)*;

            #[inline]
            fn save_into(&self, into: &mut Self) {
                let _ = &into;
                #save
            }
            #[inline]
            fn write(&self, w: &mut #k::checkpoint::CheckpointWriter<'_>) {
                let _ = &w;
                #write
            }
            #[inline]
            fn read(
                r: &mut #k::checkpoint::CheckpointReader<'_>,
            ) -> ::core::result::Result<Self, #k::checkpoint::CheckpointError> {
                let _ = &r;
                #read
            }
            fn differ(&self, other: &Self, at: &mut #k::checkpoint::Differ<'_>) -> bool {
                let _ = (&other, &at);
                #differ
            }
        }
    })
}

/// The bodies of `save_into`, `write`, `read` and `differ` of an enum.
fn variants(name: &Ident, data: &DataEnum, k: &Path) -> (TokenStream, TokenStream, TokenStream, TokenStream) {
    let (mut saves, mut writes, mut reads, mut differs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (i, v) in data.variants.iter().enumerate() {
        let arms = variant(i as u32, &v.ident, &v.fields, k);
        saves.push(arms.save);
        writes.push(arms.write);
        reads.push(arms.read);
        differs.push(arms.differ);
    }
    let idents = data.variants.iter().map(|v| &v.ident);
    let names = data.variants.iter().map(|v| v.ident.to_string());
    let save = quote! {
        match (self, into) {
            #(#saves)*
            #[allow(unreachable_patterns)]
            (from, into) => *into = ::core::clone::Clone::clone(from),
        }
    };
    let differ = quote! {
        match (self, other) {
            #(#differs)*
            #[allow(unreachable_patterns)]
            (mine, others) => {
                let name = |of: &Self| match of { #(Self::#idents { .. } => #names,)* };
                at.found(name(mine), name(others))
            }
        }
    };
    let name = name.to_string();
    let read = quote! {
        match r.variant()? {
            #(#reads)*
            _ => ::core::result::Result::Err(#k::checkpoint::CheckpointError::OutOfRange(#name)),
        }
    };
    (save, quote!(match self { #(#writes)* }), read, differ)
}

fn names(fields: &Fields) -> Vec<Member> {
    let name = |(i, field): (usize, &syn::Field)| match &field.ident {
        Some(ident) => Member::Named(ident.clone()),
        None => Member::Unnamed(Index { index: i as u32, span: Span::call_site() }),
    };
    fields.iter().enumerate().map(name).collect()
}

/// The types of all fields, of all variants.
fn parts(data: &Data) -> Vec<&Type> {
    match data {
        Data::Struct(data) => data.fields.iter().map(|f| &f.ty).collect(),
        Data::Enum(data) => data.variants.iter().flat_map(|v| v.fields.iter().map(|f| &f.ty)).collect(),
        Data::Union(_) => Vec::new(),
    }
}

fn member_name(member: &Member) -> String {
    match member {
        Member::Named(ident) => ident.to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

/// A variant's arms in the functions.
struct Arms {
    save: TokenStream,
    write: TokenStream,
    read: TokenStream,
    differ: TokenStream,
}

fn variant(index: u32, ident: &Ident, fields: &Fields, k: &Path) -> Arms {
    let access = names(fields);
    let from: Vec<_> = (0..access.len()).map(|i| format_ident!("from_{i}")).collect();
    let to: Vec<_> = (0..access.len()).map(|i| format_ident!("to_{i}")).collect();
    let pair = quote!((Self::#ident { #(#access: #from),* }, Self::#ident { #(#access: #to),* }));
    let save = quote! {
        #pair => {
            #(#k::checkpoint::Checkpoint::save_into(#from, #to);)*
        }
    };
    let write = quote! {
        Self::#ident { #(#access: #from),* } => {
            w.variant(#index);
            #(#k::checkpoint::Checkpoint::write(#from, w);)*
        }
    };
    let read = quote! {
        #index => ::core::result::Result::Ok(Self::#ident { #(#access: #k::checkpoint::Checkpoint::read(r)?),* }),
    };
    let names = access.iter().map(|m| format!("{ident}.{}", member_name(m)));
    let differ = quote! {
        #pair => {
            #(if at.field(#names, |at| #k::checkpoint::Checkpoint::differ(#from, #to, at)) {
                return true;
            })*
            false
        }
    };
    Arms { save, write, read, differ }
}
