//! The schema: which components travel and how, which kinds there are, and who has authority over what. One value, built once;
//! the order of the calls that build it does not matter.

use crate::column::{Column, Form, Itself, Typed, Via};
use crate::input::InputEntry;
use crate::layout::{Layout, LayoutBuilder, LayoutError};
use crate::policy::{Absent, OWNER_SLOTS, Policy};
use crate::presence;
use crate::replicate::{FieldError, Replicate, Restorer};
use crate::requests::Requests;
use crate::rewind::kept::{Keeper, KeptEntry};
use hecs::{Archetype, Component, Entity, EntityBuilder, World};
use std::any::TypeId;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::sync::Arc;
use thiserror::Error;
use tidelock_netcore::control::SchemaEntry;
use tidelock_netcore::limits;
use xxhash_rust::xxh3::Xxh3;

mod options;

pub use options::{ComponentOptions, KindOptions};

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
    /// An input with a field that names an entity, which a peer may not have when the input comes.
    #[error("input `{0}` names an entity; send the number of its `NetId` instead")]
    InputNamesEntity(String),
    /// The input's `Default` cannot travel.
    #[error("input `{name}`: its default cannot travel: {error}")]
    InputDefault {
        /// The input.
        name: String,
        /// What is wrong.
        error: FieldError,
    },
}

/// A component's entry.
pub(crate) struct ComponentEntry {
    pub(crate) name: String,
    pub(crate) type_id: TypeId,
    pub(crate) column: Box<dyn Column>,
    pub(crate) digest: u64,
    pub(crate) interpolate: bool,
    pub(crate) checkpoint: bool,
    pub(crate) parent: bool,
    pub(crate) notify: bool,
    policy: Option<Arc<dyn Policy>>,
}

/// A kind's entry.
pub(crate) struct KindEntry {
    pub(crate) name: String,
    pub(crate) type_id: TypeId,
    pub(crate) mark: fn(&mut World, Entity),
    pub(crate) has: fn(&World, Entity) -> bool,
    pub(crate) is_in: fn(&Archetype) -> bool,
    /// Its entities are saved and can be rewound, on a peer that keeps saves.
    pub(crate) rewound: bool,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) absent: Absent,
    pub(crate) requests: Requests,
    /// By component index (0, presence, is unused): who decides there.
    pub(crate) policies: Vec<Arc<dyn Policy>>,
    overrides: Vec<(TypeId, Arc<dyn Policy>)>,
}

/// A message's entry.
pub(crate) struct MessageEntry {
    pub(crate) name: String,
    pub(crate) type_id: TypeId,
    pub(crate) layout: Layout,
    pub(crate) reliable: bool,
    /// Can the words be a message at all, once every entity that they name is here?
    pub(crate) is_complete: fn(&[u32]) -> bool,
}

/// What travels, and who decides. Cheap to clone. It is complete before a [`Peer`](crate::Peer) can be made from it, and cannot be
/// changed after: to register something late does not compile.
///
/// ```compile_fail,E0599
/// # #[derive(tidelock::Replicate)]
/// # struct Late;
/// let schema = tidelock::Schema::builder("game").build().unwrap();
/// schema.component::<Late>("late", |c| c); // only the builder can
/// ```
#[derive(Clone)]
pub struct Schema(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) name: String,
    /// Index 0 is presence and stands here without an entry: component i is `components[i - 1]`.
    pub(crate) components: Vec<ComponentEntry>,
    pub(crate) kinds: Vec<KindEntry>,
    pub(crate) messages: Vec<MessageEntry>,
    pub(crate) input: Option<InputEntry>,
    /// What is saved and restored: components, then resources, each by name.
    pub(crate) kept: Vec<KeptEntry>,
    pub(crate) presence: Layout,
    pub(crate) slots: usize,
    /// Bit c: in a list, values of component c are absolute: presence, and what names entities.
    pub(crate) absolute: u64,
    /// Bit c: component c is drawn between two samples.
    pub(crate) interpolated: u64,
    digest: u64,
}

impl Schema {
    /// Starts a schema. `name` is the game's; it is part of the digest.
    #[must_use]
    pub fn builder(name: &str) -> SchemaBuilder {
        SchemaBuilder {
            name: name.to_owned(),
            components: Vec::new(),
            kinds: Vec::new(),
            messages: Vec::new(),
            inputs: Vec::new(),
            kept: Vec::new(),
            mistakes: Vec::new(),
        }
    }

    /// What two peers must agree on, in one number; independent of the order of registration.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.0.digest
    }

    /// Names and digests of all entries, for the handshake and for its refusal.
    #[must_use]
    pub fn entries(&self) -> Vec<SchemaEntry> {
        let inner = &self.0;
        let component = |c: &ComponentEntry| SchemaEntry { name: format!("component {}", c.name), digest: c.digest };
        let message = |m: &MessageEntry| SchemaEntry {
            name: format!("message {}", m.name),
            digest: m.layout.digest(&m.name) ^ u64::from(m.reliable),
        };
        let kinds = inner.kinds.iter().map(|k| SchemaEntry { name: format!("kind {}", k.name), digest: self.kind_digest(k) });
        let input = inner.input.iter().map(|i| SchemaEntry { name: format!("input {}", i.name), digest: i.digest() });
        let resources = inner.kept.iter().filter(|k| k.first.is_some());
        let resources = resources.map(|r| SchemaEntry { name: format!("resource {}", r.name), digest: 0 });
        let messages = inner.messages.iter().map(message);
        inner.components.iter().map(component).chain(kinds).chain(messages).chain(input).chain(resources).collect()
    }

    fn kind_digest(&self, kind: &KindEntry) -> u64 {
        let mut hasher = Xxh3::new();
        for (policy, component) in kind.policies[1..].iter().zip(&self.0.components) {
            hasher.update(component.name.as_bytes());
            hasher.update(policy.name().as_bytes());
        }
        hasher.update(kind.policy.name().as_bytes());
        hasher.digest()
    }

    /// The resulting table: for each kind and component who decides, and how it is shown.
    #[must_use]
    pub fn explain(&self) -> String {
        let inner = &self.0;
        let mut out = format!("schema `{}`, digest {:016x}\n", inner.name, self.digest());
        let width = inner.components.iter().map(|c| c.name.len()).max().unwrap_or(0).max(9);
        for kind in &inner.kinds {
            let _ = writeln!(
                out,
                "kind `{}`: lifetime {}, absent owner: {:?}, requests: {:?}",
                kind.name,
                kind.policy.name(),
                kind.absent,
                kind.requests
            );
            for (component, policy) in inner.components.iter().zip(&kind.policies[1..]) {
                let from = if kind.overrides.iter().any(|o| o.0 == component.type_id) {
                    "chosen in the kind"
                } else if component.policy.is_some() {
                    "chosen for the component"
                } else {
                    "the kind's"
                };
                let _ = writeln!(out, "  {:width$}  {:12} ({from})", component.name, policy.name());
            }
        }
        for c in &inner.components {
            let flags = [(c.interpolate, "interpolated"), (c.checkpoint, "checkpointed"), (c.parent, "names the parent")];
            let flags: Vec<_> = flags.iter().filter(|f| f.0).map(|f| f.1).collect();
            let (words, bits) = (c.column.layout().words(), c.column.layout().worst_bits());
            let _ = writeln!(out, "component `{}`: {words} words, at most {bits} bits {}", c.name, flags.join(", "));
        }
        for resource in inner.kept.iter().filter(|k| k.first.is_some()) {
            let _ = writeln!(out, "resource `{}`: checkpointed, stays here", resource.name);
        }
        for m in &inner.messages {
            let lane = if m.reliable { "reliable, ordered" } else { "unreliable" };
            let _ = writeln!(out, "message `{}`: {lane}, at most {} bits", m.name, m.layout.worst_bits());
        }
        if let Some(input) = &inner.input {
            let _ = writeln!(out, "input `{}`: at most {} bits a tick", input.name, input.layout.worst_bits());
        }
        out
    }
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.explain())
    }
}

impl Inner {
    /// Components and presence.
    pub(crate) fn columns(&self) -> usize {
        self.components.len() + 1
    }

    pub(crate) fn layout(&self, c: usize) -> &Layout {
        if c == 0 { &self.presence } else { self.components[c - 1].column.layout() }
    }

    pub(crate) fn component(&self, c: usize) -> &ComponentEntry {
        &self.components[c - 1]
    }

    pub(crate) fn strides(&self) -> Vec<usize> {
        (0..self.columns()).map(|c| self.layout(c).words()).collect()
    }

    pub(crate) fn component_of<C: 'static>(&self) -> Option<usize> {
        self.components.iter().position(|c| c.type_id == TypeId::of::<C>()).map(|i| i + 1)
    }

    /// Which of what is kept is resource `T`?
    pub(crate) fn resource_of<T: 'static>(&self) -> Option<&KeptEntry> {
        self.kept.iter().find(|k| k.first.is_some() && k.type_id == TypeId::of::<T>())
    }

    pub(crate) fn kind_of<K: 'static>(&self) -> Option<usize> {
        self.kinds.iter().position(|k| k.type_id == TypeId::of::<K>())
    }

    pub(crate) fn policy(&self, kind: usize, c: usize) -> &dyn Policy {
        &*self.kinds[kind].policies[c]
    }
}

/// Builds a [`Schema`]. Mistakes are collected and told by [`build`](Self::build), all at once.
pub struct SchemaBuilder {
    name: String,
    components: Vec<ComponentEntry>,
    kinds: Vec<KindEntry>,
    messages: Vec<MessageEntry>,
    inputs: Vec<InputEntry>,
    kept: Vec<KeptEntry>,
    mistakes: Vec<SchemaMistake>,
}

impl SchemaBuilder {
    /// Registers a component under a stable name.
    #[must_use]
    pub fn component<C: Component + Replicate>(
        self,
        name: &str,
        options: impl FnOnce(ComponentOptions<C>) -> ComponentOptions<C>,
    ) -> Self {
        self.component_form(name, Itself, options(ComponentOptions::new()))
    }

    /// Registers a component of a foreign type that travels as `W`: no newtype is needed for `glam::Vec3` or an engine's
    /// transform.
    #[must_use]
    pub fn component_as<C: Component, W: Replicate>(
        self,
        name: &str,
        to: fn(&C) -> W,
        from: fn(W) -> C,
        options: impl FnOnce(ComponentOptions<C>) -> ComponentOptions<C>,
    ) -> Self {
        self.component_form(name, Via { to, from }, options(ComponentOptions::new()))
    }

    fn component_form<C: Component, F: Form<C>>(mut self, name: &str, form: F, options: ComponentOptions<C>) -> Self {
        let mut builder = LayoutBuilder::new();
        form.layout(&mut builder);
        match builder.build() {
            Ok(layout) => {
                if options.parent && !layout.has_entities() {
                    self.mistakes.push(SchemaMistake::ParentWithoutEntity(name.to_owned()));
                }
                let digest = layout.digest(name);
                let (name_of, type_id, checkpoint) = (name.to_owned(), TypeId::of::<C>(), options.checkpoint.is_some());
                self.kept.extend(options.checkpoint.map(|kept| KeptEntry { name: name_of, type_id, kept, first: None }));
                self.components.push(ComponentEntry {
                    name: name.to_owned(),
                    type_id,
                    column: Box::new(Typed::new(form, layout, options.validators, options.blend)),
                    digest,
                    interpolate: options.blend.is_some(),
                    checkpoint,
                    parent: options.parent,
                    notify: options.notify,
                    policy: options.policy,
                });
            }
            Err(error) => self.mistakes.push(SchemaMistake::Layout { sort: "component", name: name.to_owned(), error }),
        }
        self
    }

    /// Registers a kind of networked entity by its marker type, with the policy that its components follow unless they have
    /// their own.
    #[must_use]
    pub fn kind<K: Component + Default>(self, name: &str, policy: impl Policy) -> Self {
        self.kind_with::<K>(name, policy, |k| k)
    }

    /// The same with options: policies of single components within the kind, and what becomes of an absent owner's entities.
    #[must_use]
    pub fn kind_with<K: Component + Default>(
        mut self,
        name: &str,
        policy: impl Policy,
        options: impl FnOnce(KindOptions) -> KindOptions,
    ) -> Self {
        let options = options(KindOptions::new());
        self.kinds.push(KindEntry {
            name: name.to_owned(),
            type_id: TypeId::of::<K>(),
            mark: |world, entity| {
                // an entity that is gone needs no mark
                let _ = world.insert_one(entity, K::default());
            },
            has: |world, entity| world.satisfies::<&K>(entity),
            is_in: |archetype| archetype.has::<K>(),
            rewound: options.rewound,
            policy: Arc::new(policy),
            absent: options.absent,
            requests: options.requests,
            policies: Vec::new(),
            overrides: options.overrides,
        });
        self
    }

    /// Registers state that belongs to no entity: a score, whose turn it is. It begins as `T::default()` and is reached with
    /// [`Step::resource`](crate::Step::resource). It is saved, restored and digested like a component with `.checkpoint()`: it *is*
    /// one, of a single entity that the framework keeps. So far it does not travel.
    #[must_use]
    pub fn resource<T: Component + crate::checkpoint::Checkpoint + Default>(mut self, name: &str) -> Self {
        let first: fn(&mut EntityBuilder) = |builder| {
            builder.add(T::default());
        };
        let (type_id, kept) = (TypeId::of::<T>(), Box::new(Keeper::<T>(PhantomData)));
        self.kept.push(KeptEntry { name: name.to_owned(), type_id, kept, first: Some(first) });
        self
    }

    /// Registers a message that arrives exactly once and in order. Its fields are coded like a component's; it waits at the
    /// receiver until the entities it names are there.
    #[must_use]
    pub fn message<M: Replicate>(self, name: &str) -> Self {
        self.message_form::<M>(name, true)
    }

    /// Registers a message that may be lost or overtaken.
    #[must_use]
    pub fn unreliable_message<M: Replicate>(self, name: &str) -> Self {
        self.message_form::<M>(name, false)
    }

    fn message_form<M: Replicate>(mut self, name: &str, reliable: bool) -> Self {
        match Layout::of::<M>() {
            Ok(layout) => {
                let is_complete = |words: &[u32]| M::restore(&mut Restorer::new(words, &|_| Some(Entity::DANGLING))).is_ok();
                let (name, type_id) = (name.to_owned(), TypeId::of::<M>());
                self.messages.push(MessageEntry { name, type_id, layout, reliable, is_complete });
            }
            Err(error) => self.mistakes.push(SchemaMistake::Layout { sort: "message", name: name.to_owned(), error }),
        }
        self
    }

    /// Registers what a peer's player does in a tick. There is one per schema; what it holds until somebody does something is its
    /// [`Default`]. See [`input`](crate::input).
    #[must_use]
    pub fn input<I: Replicate + Default + Clone>(mut self, name: &str) -> Self {
        match InputEntry::new::<I>(name) {
            Ok(entry) => self.inputs.push(entry),
            Err(mistake) => self.mistakes.push(mistake),
        }
        self
    }

    /// The schema.
    ///
    /// # Errors
    /// [`SchemaError`] with every mistake there is.
    pub fn build(mut self) -> Result<Schema, SchemaError> {
        self.components.sort_by(|a, b| a.name.cmp(&b.name));
        self.kinds.sort_by(|a, b| a.name.cmp(&b.name));
        self.messages.sort_by(|a, b| a.name.cmp(&b.name));
        self.kept.sort_by(|a, b| (a.first.is_some(), &a.name).cmp(&(b.first.is_some(), &b.name)));
        let Self { name, components, mut kinds, messages, mut inputs, kept, mut mistakes } = self;
        check_resources(&components, &kept, &mut mistakes);
        check("component", components.iter().map(|c| (c.name.as_str(), c.type_id)), limits::COMPONENTS, &mut mistakes);
        check("kind", kinds.iter().map(|k| (k.name.as_str(), k.type_id)), limits::KINDS, &mut mistakes);
        check("message", messages.iter().map(|m| (m.name.as_str(), m.type_id)), limits::MESSAGES, &mut mistakes);
        check("input", inputs.iter().map(|i| (i.name.as_str(), i.type_id)), limits::INPUTS, &mut mistakes);
        for kind in &mut kinds {
            for (type_id, _) in &kind.overrides {
                if !components.iter().any(|c| c.type_id == *type_id) {
                    mistakes.push(SchemaMistake::UnknownComponent(kind.name.clone()));
                }
            }
            kind.policies = resolve(kind, &components);
        }
        let slots = slots(&components, &kinds, &mut mistakes);
        if !mistakes.is_empty() {
            return Err(SchemaError(mistakes));
        }
        let presence = presence::layout(components.len(), kinds.len(), slots);
        let mask = |of: fn(&ComponentEntry) -> bool| {
            components.iter().enumerate().fold(0, |mask, (i, c)| mask | u64::from(of(c)) << (i + 1))
        };
        let absolute = mask(|c| c.column.layout().has_entities()) | 1;
        let interpolated = mask(|c| c.interpolate);
        let input = inputs.pop();
        let mut inner =
            Inner { name, components, kinds, messages, input, kept, presence, slots, absolute, interpolated, digest: 0 };
        inner.digest = digest(&inner);
        Ok(Schema(Arc::new(inner)))
    }
}

/// Component within a kind, then component, then kind.
fn resolve(kind: &KindEntry, components: &[ComponentEntry]) -> Vec<Arc<dyn Policy>> {
    let of = |c: &ComponentEntry| {
        let chosen = kind.overrides.iter().find(|o| o.0 == c.type_id).map(|o| &o.1);
        chosen.or(c.policy.as_ref()).unwrap_or(&kind.policy).clone()
    };
    std::iter::once(kind.policy.clone()).chain(components.iter().map(of)).collect()
}

fn slots(components: &[ComponentEntry], kinds: &[KindEntry], mistakes: &mut Vec<SchemaMistake>) -> usize {
    let of_kinds = kinds.iter().flat_map(|k| k.policies.iter().map(|p| (&k.name, p.slot())));
    let of_components = components.iter().filter_map(|c| c.policy.as_ref().map(|p| (&c.name, p.slot())));
    let mut most = 0;
    for (name, slot) in of_kinds.chain(of_components) {
        if slot >= OWNER_SLOTS {
            mistakes.push(SchemaMistake::Slot { name: name.clone(), slot });
        }
        most = most.max(slot);
    }
    most + 1
}

fn check_resources(components: &[ComponentEntry], kept: &[KeptEntry], mistakes: &mut Vec<SchemaMistake>) {
    let resources = || kept.iter().filter(|k| k.first.is_some());
    let room = limits::COMPONENTS.saturating_sub(components.len());
    check("resource", resources().map(|r| (r.name.as_str(), r.type_id)), room, mistakes);
    for resource in resources().filter(|r| components.iter().any(|c| c.type_id == r.type_id)) {
        mistakes.push(SchemaMistake::TypeTwice { sort: "resource", name: resource.name.clone() });
    }
}

fn check<'a>(
    sort: &'static str,
    entries: impl Iterator<Item = (&'a str, TypeId)>,
    max: usize,
    mistakes: &mut Vec<SchemaMistake>,
) {
    let entries: Vec<_> = entries.collect();
    if entries.len() > max {
        mistakes.push(SchemaMistake::TooMany { sort, count: entries.len(), max });
    }
    for (i, (name, type_id)) in entries.iter().enumerate() {
        let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
        // the handshake adds the sort to the name
        if name.is_empty() || name.len() + 10 > limits::NAME_BYTES || !letters {
            mistakes.push(SchemaMistake::Name((*name).to_owned()));
        }
        if entries[..i].iter().any(|e| e.0 == *name) {
            mistakes.push(SchemaMistake::NameTwice { sort, name: (*name).to_owned() });
        } else if entries[..i].iter().any(|e| e.1 == *type_id) {
            mistakes.push(SchemaMistake::TypeTwice { sort, name: (*name).to_owned() });
        }
    }
}

fn digest(inner: &Inner) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(inner.name.as_bytes());
    inner.presence.hash_into(&mut hasher);
    for c in &inner.components {
        hasher.update(&c.digest.to_le_bytes());
    }
    for k in &inner.kinds {
        hasher.update(k.name.as_bytes());
        k.policies.iter().for_each(|p| hasher.update(p.name().as_bytes()));
    }
    for m in &inner.messages {
        hasher.update(&m.layout.digest(&m.name).to_le_bytes());
        hasher.update(&[u8::from(m.reliable)]);
    }
    if let Some(input) = &inner.input {
        hasher.update(b"input");
        hasher.update(&input.digest().to_le_bytes());
    }
    for resource in inner.kept.iter().filter(|k| k.first.is_some()) {
        hasher.update(b"resource ");
        hasher.update(resource.name.as_bytes());
    }
    hasher.digest()
}
