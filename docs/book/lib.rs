//! The examples of Tidelock's book: each page is a documentation test, and `cargo test -p tidelock-book` runs them all.

#![forbid(unsafe_code)]

macro_rules! pages {
    ($($name:ident $file:literal)*) => {
        /// The pages whose examples are run here, as files below `src`.
        pub const PAGES: &[&str] = &[$($file),*];
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("src/", $file))]
            struct $name;
        )*
    };
}

pages! {
    Introduction "introduction.md"
    GettingStarted "getting-started.md"
    Arena "arena.md"
    Concepts "concepts.md"
    WhichPolicy "which-policy.md"
    Components "components.md"
    Owner "policies/owner.md"
    Host "policies/host.md"
    Predicted "policies/predicted.md"
    Lockstep "policies/lockstep.md"
    Rollback "policies/rollback.md"
    OwnPolicy "policies/own.md"
    Ownership "ownership.md"
    Messages "messages.md"
    Lists "lists.md"
    Relevance "relevance.md"
    Drawing "drawing.md"
    Testing "testing.md"
    Determinism "determinism.md"
    GoingBack "going-back.md"
    Transports "transports.md"
    Security "security.md"
    Limits "limits.md"
    Watching "watching.md"
    Faq "faq.md"
}

/// Pages whose examples are run elsewhere: in `adapters/bevy`, which is a workspace of its own, and by a C compiler in
/// `adapters/capi`.
pub const ELSEWHERE: &[&str] = &["bevy.md", "c.md"];
