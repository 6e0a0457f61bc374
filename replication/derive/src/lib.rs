//! derive(Replicate, Interpolate, Checkpoint) for Tidelock. What the attributes mean stands at the traits, in the crate `tidelock`.

#![forbid(unsafe_code)]

mod attrs;
mod checkpoint;
mod input;
mod interpolate;
mod raw;
mod replicate;
mod shape;

use input::Input;
use proc_macro::TokenStream;
use syn::{DeriveInput, Result, parse_macro_input};

/// Implements `tidelock::Replicate`.
#[proc_macro_derive(Replicate, attributes(net))]
pub fn replicate(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    finish(Input::parse(input).and_then(|input| replicate::expand(&input)))
}

/// Implements `tidelock::Interpolate`.
#[proc_macro_derive(Interpolate, attributes(net))]
pub fn interpolate(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    finish(Input::parse(input).and_then(|input| interpolate::expand(&input)))
}

/// Implements `tidelock::Checkpoint`.
#[proc_macro_derive(Checkpoint, attributes(net))]
pub fn checkpoint(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    finish(checkpoint::expand(&input))
}

fn finish(result: Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(|error| error.into_compile_error()).into()
}
