//! What can be wrong with a schema.

use crate::layout::LayoutError;
use crate::policy::OWNER_SLOTS;
use crate::replicate::FieldError;
use thiserror::Error;

/// A schema that cannot work, with everything that is wrong with it.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("the schema has {} mistake(s): {}", .0.len(), .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct SchemaError(pub Vec<SchemaMistake>);

/// One thing that is wrong with a schema.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum SchemaMistake {
    /// A name that is empty, too long, or has characters other than letters, digits, `_`, `-` and `.`.
    #[error("`{0}` is no name: use 1 to 64 letters, digits, `_`, `-` or `.`")]
    Name(String),
    /// Two entries of one sort have one name.
    #[error("the {sort} name `{name}` is used twice")]
    NameTwice {
        /// component, kind, message or input.
        sort: &'static str,
        /// The name.
        name: String,
    },
    /// One Rust type stands for two entries of one sort.
    #[error("the type of {sort} `{name}` is registered twice; give the second one a type of its own")]
    TypeTwice {
        /// component, kind, message or input.
        sort: &'static str,
        /// The later name.
        name: String,
    },
    /// The fields cannot travel.
    #[error("{sort} `{name}`: {error}")]
    Layout {
        /// component, message or input.
        sort: &'static str,
        /// Its name.
        name: String,
        /// What is wrong.
        error: LayoutError,
    },
    /// More entries than fit.
    #[error("{count} {sort}s are too many; at most {max} are allowed")]
    TooMany {
        /// component, kind, message or input.
        sort: &'static str,
        /// How many there are.
        count: usize,
        /// How many may be.
        max: usize,
    },
    /// A kind chooses a policy for a component type that is not registered.
    #[error("kind `{0}` chooses a policy for a component that the schema does not have; register it with `.component`")]
    UnknownComponent(String),
    /// A policy that speaks of an owner that entities do not have.
    #[error("the policy of `{name}` speaks of owner slot {slot}; there are {OWNER_SLOTS}")]
    Slot {
        /// The component or kind.
        name: String,
        /// The policy's slot.
        slot: usize,
    },
    /// `.parent()` on a component without an entity field.
    #[error("component `{0}` is marked as parent but has no `hecs::Entity` field")]
    ParentWithoutEntity(String),
    /// `.velocity::<V>()` of a type that is no component of the schema, or whose numbers do not go with this one's.
    #[error(
        "component `{0}` has a velocity that is not registered as a component, or has not as many fields in steps or of integers"
    )]
    Velocity(String),
    /// A kind that every peer computes, with a component that somebody publishes, or with options that only say something about
    /// what is published.
    #[error(
        "kind `{0}` is computed by every peer: no component of it can have an authority of its own, and it is rewound as its policy says"
    )]
    Mixed(String),
    /// A policy for a component that only a whole kind can have.
    #[error("component `{component}`: `{policy}` is a policy for kinds; give the kind that policy")]
    ForKinds {
        /// The component.
        component: String,
        /// The policy.
        policy: &'static str,
    },
    /// A predicted or rollback kind in a schema without an input: there is nothing to predict from.
    #[error("kind `{kind}` is `{policy}`, and the schema has no input; register one with `.input`")]
    NoInput {
        /// The kind.
        kind: String,
        /// The policy.
        policy: &'static str,
    },
    /// A guess of an input that is not the schema's.
    #[error("`{0}` is not the schema's input; call `.guess_input` after `.input`, with the same type")]
    GuessOfOther(&'static str),
    /// An input with a field that names an entity, which a peer may not have when the input comes.
    #[error("input `{0}` names an entity; send the number of its `NetId` instead")]
    InputNamesEntity(String),
    /// An order, or an input beside kinds that every peer computes or orders, that is too large to be sealed in a frame with others.
    #[error("{sort} `{name}`: up to {bits} bits, at most {max} fit a frame; shorten it")]
    TooLarge {
        /// order or input.
        sort: &'static str,
        /// Its name.
        name: String,
        /// What it takes at most.
        bits: usize,
        /// What it may take.
        max: usize,
    },
    /// A list or map that may have no items, or too many.
    #[error("list or map `{name}`: it may have 1 to {limit} items, not {max}", limit = tidelock_netcore::limits::COLLECTION_ITEMS)]
    Items {
        /// Its name.
        name: String,
        /// How many it is to have at most.
        max: usize,
    },
    /// The input's `Default` cannot travel.
    #[error("input `{name}`: its default cannot travel: {error}")]
    InputDefault {
        /// The input.
        name: String,
        /// What is wrong.
        error: FieldError,
    },
}
