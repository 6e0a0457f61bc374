//! The schema: which components travel and how, which kinds there are, and who has authority over what. One value, built once;
//! the order of the calls that build it does not matter.

use crate::column::{Column, Form, Itself, Typed, Via};
use crate::definitions::DefinitionEntry;
use crate::forecast::Velocity;
use crate::growing::CollectionEntry;
use crate::input::InputEntry;
use crate::layout::{Layout, LayoutBuilder};
use crate::peer_id::PeerId;
use crate::policy::{Absent, Policy, Timeline};
use crate::presence;
use crate::replicate::Replicate;
use crate::requests::Requests;
use crate::rewind::kept::{Keeper, KeptEntry};
use hecs::{Archetype, Component, Entity, EntityBuilder, World};
use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::Arc;
use tidelock_netcore::limits;

mod checks;
mod definitions;
mod describe;
mod growing;
mod messages;
mod mistakes;
mod options;
mod shared;

use checks::{add_grids, check, check_frames, check_resources, check_timelines, predicts, resolve, slots, velocities};
pub use growing::{ListOptions, MapOptions};
pub(crate) use messages::{LargeEntry, MessageEntry, Promise, ReplyOf};
pub use mistakes::{SchemaError, SchemaMistake};
pub use options::{ComponentOptions, KindOptions};
pub(crate) use shared::SharedEntry;
pub use shared::SharedResources;

/// A component's entry.
pub(crate) struct ComponentEntry {
    pub(crate) name: String,
    pub(crate) type_id: TypeId,
    pub(crate) column: Box<dyn Column>,
    pub(crate) digest: u64,
    pub(crate) interpolate: bool,
    /// Drawn where it is by now.
    pub(crate) reckoned: bool,
    pub(crate) checkpoint: bool,
    pub(crate) parent: bool,
    pub(crate) notify: bool,
    /// Steps of the simulation grid by which a prediction may be off.
    pub(crate) tolerance: u32,
    /// The type of the component that says how it moves.
    velocity: Option<TypeId>,
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

impl KindEntry {
    /// Does every peer compute its entities, so that nothing of them is published?
    pub(crate) fn is_computed(&self) -> bool {
        self.policy.timeline() != Timeline::Session
    }

    /// Does a guest that owns one of its entities run its steps, though the host decides?
    pub(crate) fn is_predicted(&self) -> bool {
        predicts(&*self.policy)
    }
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
    pub(crate) larges: Vec<LargeEntry>,
    pub(crate) orders: Vec<MessageEntry>,
    pub(crate) input: Option<InputEntry>,
    /// What is saved and restored: components, then resources, each by name.
    pub(crate) kept: Vec<KeptEntry>,
    /// Resources that travel; their values are components of one entity.
    pub(crate) shared: Vec<SharedEntry>,
    pub(crate) definitions: Vec<DefinitionEntry>,
    pub(crate) collections: Vec<CollectionEntry>,
    /// By kind: the components that its owner predicts, as bits.
    pub(crate) predicted: Vec<u64>,
    /// Pairs of a component and the same one on the simulation grid, which stands after all others.
    pub(crate) grids: Vec<(usize, usize)>,
    /// Those on the simulation grid, as bits.
    pub(crate) fine: u64,
    pub(crate) presence: Layout,
    pub(crate) slots: usize,
    /// Bit c: in a list, values of component c are absolute: presence, and what names entities.
    pub(crate) absolute: u64,
    /// Bit c: component c names nobody, and nobody is told of its changes.
    pub(crate) plain: u64,
    /// Bit c: component c is drawn between two samples.
    pub(crate) interpolated: u64,
    /// By column: what says how it moves.
    velocities: Vec<Option<Velocity>>,
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
            larges: Vec::new(),
            orders: Vec::new(),
            inputs: Vec::new(),
            kept: Vec::new(),
            shared: Vec::new(),
            definitions: Vec::new(),
            collections: Vec::new(),
            mistakes: Vec::new(),
        }
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

    /// What says how a component moves.
    #[inline]
    pub(crate) fn velocity(&self, c: usize) -> Option<&Velocity> {
        self.velocities[c].as_ref()
    }

    pub(crate) fn strides(&self) -> Vec<usize> {
        (0..self.columns()).map(|c| self.layout(c).words()).collect()
    }

    pub(crate) fn component_of<C: 'static>(&self) -> Option<usize> {
        self.components.iter().position(|c| c.type_id == TypeId::of::<C>()).map(|i| i + 1)
    }

    /// Is there a kind that every peer computes?
    pub(crate) fn has_computed(&self) -> bool {
        self.kinds.iter().any(KindEntry::is_computed)
    }

    /// The form in which a component travels to a peer that predicts it: itself, or on the simulation grid.
    pub(crate) fn on_grid(&self, c: usize) -> usize {
        self.grids.iter().find(|g| g.0 == c).map_or(c, |g| g.1)
    }

    /// The component itself, of its form on the simulation grid.
    pub(crate) fn off_grid(&self, c: usize) -> usize {
        self.grids.iter().find(|g| g.1 == c).map_or(c, |g| g.0)
    }

    /// Is there anything that an owner predicts?
    pub(crate) fn predicts_some(&self) -> bool {
        self.predicted.iter().any(|p| *p != 0)
    }

    /// Does `peer` predict entities of that kind and that owner?
    pub(crate) fn predicts(&self, peer: PeerId, kind: usize, owner: PeerId) -> bool {
        self.predicted[kind] != 0 && peer == owner && peer != PeerId::HOST
    }

    /// The forms of an entity's components that a peer does not get because it gets the other one.
    pub(crate) fn other_forms(&self, peer: PeerId, kind: usize, owner: PeerId) -> u64 {
        if self.fine == 0 || !self.predicts(peer, kind, owner) {
            return self.fine;
        }
        let here = self.predicted[kind];
        self.grids.iter().fold(self.fine, |mask, (c, f)| if here >> c & 1 != 0 { mask & !(1 << f) | 1 << c } else { mask })
    }

    /// Who hides a component hides it in every form.
    pub(crate) fn in_all_forms(&self, mask: u64) -> u64 {
        self.grids.iter().fold(mask, |m, (c, f)| m | (mask >> c & 1) << f)
    }

    /// Does the host seal frames?
    pub(crate) fn has_frames(&self) -> bool {
        !self.orders.is_empty() || self.has_computed()
    }

    /// The kinds that live by a timeline, as bits.
    pub(crate) fn kinds_of(&self, line: Timeline) -> u64 {
        let kinds = self.kinds.iter().enumerate();
        kinds.fold(0, |mask, (i, k)| mask | u64::from(k.policy.timeline() == line) << i)
    }

    /// The kinds that a peer alone can keep saves of, as bits.
    pub(crate) fn kinds_rewound(&self) -> u64 {
        let kinds = self.kinds.iter().enumerate();
        kinds.fold(0, |mask, (i, k)| mask | u64::from(k.rewound && !k.is_computed()) << i)
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
    larges: Vec<LargeEntry>,
    orders: Vec<MessageEntry>,
    inputs: Vec<InputEntry>,
    kept: Vec<KeptEntry>,
    shared: Vec<SharedEntry>,
    definitions: Vec<DefinitionEntry>,
    collections: Vec<CollectionEntry>,
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

    /// Registers a component whose fields are described by a value: see [`Form`].
    #[must_use]
    pub fn component_in<C: Component, F: Form<C>>(
        self,
        name: &str,
        form: F,
        options: impl FnOnce(ComponentOptions<C>) -> ComponentOptions<C>,
    ) -> Self {
        self.component_form(name, form, options(ComponentOptions::new()))
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
                let interpolate = options.blend.is_some();
                self.kept.extend(options.checkpoint.map(|kept| KeptEntry {
                    name: name_of,
                    type_id,
                    kept,
                    first: None,
                    only: false,
                    line: Timeline::Session,
                }));
                self.components.push(ComponentEntry {
                    name: name.to_owned(),
                    type_id,
                    column: Box::new(Typed::new(form, layout, options.validators, options.blend)),
                    digest,
                    interpolate,
                    reckoned: options.reckoned,
                    checkpoint,
                    parent: options.parent,
                    notify: options.notify,
                    tolerance: options.tolerance,
                    velocity: options.velocity,
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

    /// Registers a component that does not travel, but is saved, restored and digested: state of what every peer
    /// [computes](crate::policy::Timeline), and what a predicted entity has for itself. Those that travel and are kept are registered
    /// with [`component`](Self::component) and [`.checkpoint()`](ComponentOptions::checkpoint).
    #[must_use]
    pub fn checkpoint<C: Component + crate::checkpoint::Checkpoint>(mut self, name: &str) -> Self {
        let (type_id, kept) = (TypeId::of::<C>(), Box::new(Keeper::<C>(PhantomData)));
        let line = Timeline::Session;
        self.kept.push(KeptEntry { name: name.to_owned(), type_id, kept, first: None, only: true, line });
        self
    }

    /// Registers state that belongs to no entity: a score, whose turn it is. It begins as `T::default()` and is reached with
    /// [`Step::resource`](crate::Step::resource). It is saved, restored and digested like a component with `.checkpoint()`: it *is*
    /// one, of a single entity that the framework keeps. On the session's own timeline it does not travel: for what
    /// does, see [`shared_resource`](Self::shared_resource).
    #[must_use]
    pub fn resource<T: Component + crate::checkpoint::Checkpoint + Default>(self, name: &str) -> Self {
        self.resource_of::<T>(name, Timeline::Session)
    }

    /// The same on another timeline: every peer computes it in steps of that timeline, and it goes back with them.
    #[must_use]
    pub fn resource_of<T: Component + crate::checkpoint::Checkpoint + Default>(mut self, name: &str, line: Timeline) -> Self {
        let first: fn(&mut EntityBuilder) = |builder| {
            builder.add(T::default());
        };
        let (type_id, kept) = (TypeId::of::<T>(), Box::new(Keeper::<T>(PhantomData)));
        self.kept.push(KeptEntry { name: name.to_owned(), type_id, kept, first: Some(first), only: true, line });
        self
    }

    /// Registers an order: what a player wants, given with [`Peer::order`](crate::Peer::order) and taken by every peer in the same
    /// tick of lockstep with [`Step::orders`](crate::Step::orders). Its fields are coded like a message's. Without a kind of
    /// [`Lockstep`](crate::policy::Lockstep) there are no steps of lockstep, and none can be given.
    #[must_use]
    pub fn order<O: Replicate>(mut self, name: &str) -> Self {
        match MessageEntry::new::<O>("order", name, Promise::Ordered) {
            Ok(entry) => self.orders.push(entry),
            Err(mistake) => self.mistakes.push(mistake),
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

    /// Registers an input whose fields are known at run time only. It is set with
    /// [`Peer::set_input_words`](crate::Peer::set_input_words) and told by [`Step::input_words`](crate::Step::input_words).
    /// `default` are the words of what is done until somebody does something.
    #[must_use]
    pub fn input_words(mut self, name: &str, layout: Layout, default: Vec<u32>) -> Self {
        match InputEntry::of_words(name, layout, default) {
            Ok(entry) => self.inputs.push(entry),
            Err(mistake) => self.mistakes.push(mistake),
        }
        self
    }

    /// How the rollback timeline guesses what another peer's input is a tick later, if it was `input` so far: `guess` is asked once
    /// more for each further tick. Without it an input stays as it was. Call it after [`input`](Self::input).
    #[must_use]
    pub fn guess_input<I: Replicate + Default>(mut self, guess: impl Fn(&I) -> I + Send + Sync + 'static) -> Self {
        match self.inputs.last_mut().filter(|entry| entry.type_id == TypeId::of::<I>()) {
            Some(entry) => entry.guess_with(guess),
            None => self.mistakes.push(SchemaMistake::GuessOfOther(std::any::type_name::<I>())),
        }
        self
    }

    /// The order of calls does not matter: everything goes by name.
    fn sort(&mut self) {
        self.components.sort_by(|a, b| a.name.cmp(&b.name));
        self.kinds.sort_by(|a, b| a.name.cmp(&b.name));
        self.messages.sort_by(|a, b| a.name.cmp(&b.name));
        self.larges.sort_by(|a, b| a.name.cmp(&b.name));
        self.orders.sort_by(|a, b| a.name.cmp(&b.name));
        self.definitions.sort_by(|a, b| a.name.cmp(&b.name));
        self.collections.sort_by(|a, b| a.name.cmp(&b.name));
        self.kept.sort_by(|a, b| (a.first.is_some(), &a.name).cmp(&(b.first.is_some(), &b.name)));
    }

    fn check_names(&mut self) {
        let Self { components, kinds, messages, larges, orders, inputs, kept, definitions, collections, mistakes, .. } = self;
        check_resources(components, kept, mistakes);
        check("component", components.iter().map(|c| (c.name.as_str(), c.type_id)), limits::COMPONENTS, mistakes);
        check("kind", kinds.iter().map(|k| (k.name.as_str(), k.type_id)), limits::KINDS, mistakes);
        check("message", messages.iter().map(|m| (m.name.as_str(), m.type_id)), limits::MESSAGES, mistakes);
        check("large", larges.iter().map(|l| (l.name.as_str(), l.type_id)), limits::LARGE_MESSAGES, mistakes);
        check("order", orders.iter().map(|o| (o.name.as_str(), o.type_id)), limits::ORDERS, mistakes);
        check("definition", definitions.iter().map(|d| (d.name.as_str(), d.type_id)), limits::DEFINITION_TYPES, mistakes);
        check("collection", collections.iter().map(|c| (c.name.as_str(), c.type_id)), limits::COLLECTIONS, mistakes);
        check("input", inputs.iter().map(|i| (i.name.as_str(), i.type_id)), limits::INPUTS, mistakes);
    }

    /// The schema.
    ///
    /// # Errors
    /// [`SchemaError`] with every mistake there is.
    pub fn build(mut self) -> Result<Schema, SchemaError> {
        self = self.with_shared_kind();
        self.sort();
        self.check_names();
        let Self {
            name,
            mut components,
            mut kinds,
            messages,
            larges,
            orders,
            mut inputs,
            kept,
            shared,
            definitions,
            collections,
            mut mistakes,
        } = self;
        for kind in &mut kinds {
            for (type_id, _) in &kind.overrides {
                if !components.iter().any(|c| c.type_id == *type_id) {
                    mistakes.push(SchemaMistake::UnknownComponent(kind.name.clone()));
                }
            }
            kind.policies = resolve(kind, &components);
        }
        let (predicted, grids) = add_grids(&mut components, &mut kinds);
        if components.len() > limits::COMPONENTS {
            let (sort, max) = ("component, with those that are predicted counted twice", limits::COMPONENTS);
            mistakes.push(SchemaMistake::TooMany { sort, count: components.len(), max });
        }
        let slots = slots(&components, &kinds, &mut mistakes);
        let velocities = velocities(&components, &mut mistakes);
        check_timelines(&components, &kinds, !inputs.is_empty(), &mut mistakes);
        check_frames(&orders, &kinds, inputs.first(), &mut mistakes);
        if !mistakes.is_empty() {
            return Err(SchemaError(mistakes));
        }
        let presence = presence::layout(components.len(), kinds.len(), slots);
        let mask = |of: fn(&ComponentEntry) -> bool| {
            components.iter().enumerate().fold(0, |mask, (i, c)| mask | u64::from(of(c)) << (i + 1))
        };
        let fine = grids.iter().fold(0, |mask, g| mask | 1 << g.1);
        let absolute = mask(|c| c.column.layout().has_entities()) | 1;
        let plain = mask(|c| !c.column.layout().has_entities() && !c.notify);
        let interpolated = mask(|c| c.interpolate);
        let mut inner = Inner {
            name,
            components,
            kinds,
            messages,
            larges,
            orders,
            input: inputs.pop(),
            kept,
            shared,
            definitions,
            collections,
            predicted,
            grids,
            fine,
            presence,
            slots,
            absolute,
            plain,
            interpolated,
            velocities,
            digest: 0,
        };
        inner.digest = describe::digest(&inner);
        Ok(Schema(Arc::new(inner)))
    }
}
