//! `derive(Checkpoint)`: nothing of it travels, so that enums may have fields and every type is taken by its own implementation.

use crate::attrs::crate_path;
use crate::input::no_generics;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Ident, Index, Member, Path, Result};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let k = crate_path(&input.attrs)?;
    no_generics(input)?;
    let (save, digest) = match &input.data {
        Data::Struct(data) => {
            let access = names(&data.fields);
            let types: Vec<_> = data.fields.iter().map(|f| &f.ty).collect();
            let save = quote!(#(<#types as #k::checkpoint::Checkpoint>::save_into(&self.#access, &mut into.#access);)*);
            let digest = quote!(#(<#types as #k::checkpoint::Checkpoint>::digest(&self.#access, digest);)*);
            (save, digest)
        }
        Data::Enum(data) if data.variants.is_empty() => {
            return Err(Error::new(input.ident.span(), "an enum without variants has no values"));
        }
        Data::Enum(data) => {
            let arms = data.variants.iter().enumerate().map(|(i, v)| variant(i as u32, &v.ident, &v.fields, &k));
            let (saves, digests): (Vec<_>, Vec<_>) = arms.unzip();
            let save = quote! {
                match (self, into) {
                    #(#saves)*
                    #[allow(unreachable_patterns)]
                    (from, into) => *into = ::core::clone::Clone::clone(from),
                }
            };
            (save, quote!(match self { #(#digests)* }))
        }
        Data::Union(data) => return Err(Error::new(data.union_token.span(), "unions cannot be derived")),
    };
    let ident = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl #k::checkpoint::Checkpoint for #ident {
            #[inline]
            fn save_into(&self, into: &mut Self) {
                let _ = &into;
                #save
            }
            #[inline]
            fn digest(&self, digest: &mut #k::checkpoint::DigestWriter<'_>) {
                let _ = &digest;
                #digest
            }
        }
    })
}

fn names(fields: &Fields) -> Vec<Member> {
    let name = |(i, field): (usize, &syn::Field)| match &field.ident {
        Some(ident) => Member::Named(ident.clone()),
        None => Member::Unnamed(Index { index: i as u32, span: Span::call_site() }),
    };
    fields.iter().enumerate().map(name).collect()
}

fn variant(index: u32, ident: &Ident, fields: &Fields, k: &Path) -> (TokenStream, TokenStream) {
    let access = names(fields);
    let from: Vec<_> = (0..access.len()).map(|i| format_ident!("from_{i}")).collect();
    let to: Vec<_> = (0..access.len()).map(|i| format_ident!("to_{i}")).collect();
    let save = quote! {
        (Self::#ident { #(#access: #from),* }, Self::#ident { #(#access: #to),* }) => {
            #(#k::checkpoint::Checkpoint::save_into(#from, #to);)*
        }
    };
    let digest = quote! {
        Self::#ident { #(#access: #from),* } => {
            digest.variant(#index);
            #(#k::checkpoint::Checkpoint::digest(#from, digest);)*
        }
    };
    (save, digest)
}
