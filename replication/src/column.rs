//! One component type behind a common face: how a column of it is read from the world, compared, quantised and written back.
//!
//! Erasure is done per column, not per value: the typed code sits in [`Typed`], made generic at registration, and everything
//! else in the crate handles words.

use crate::block::bits;
use crate::entities::name_in;
use crate::history::{BLOCK, History};
use crate::layout::{Layout, LayoutBuilder};
use crate::netid::NetId;
use crate::peer_id::PeerId;
use crate::replicate::{FieldError, Quantiser, Replicate, RestoreError, Restorer};
use hecs::{Archetype, Component, Entity, World};
use std::any::Any;
use std::time::Duration;

/// Looks a local entity's name up.
pub(crate) type NameOf<'a> = &'a dyn Fn(Entity) -> Option<NetId>;
/// Looks a name's local entity up.
pub(crate) type EntityOf<'a> = &'a dyn Fn(NetId) -> Option<Entity>;

/// What a `validate` closure is told beside the two values.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Who wrote.
    pub sender: PeerId,
    /// The local entity, where there already is one.
    pub entity: Option<Entity>,
    /// Between the samples of the value before and of this one, on the writer's timeline; at least one tick.
    pub elapsed: Duration,
}

/// A check of what a peer wrote: the value before, the new one. `Err` refuses it.
pub(crate) type Validator<C> = Box<dyn Fn(Option<&C>, &C, &Write) -> Result<(), &'static str> + Send + Sync>;
/// QuantisedRows values, one after the other.
#[derive(Default)]
pub(crate) struct QuantisedRows {
    pub(crate) words: Vec<u32>,
    /// Those that cannot travel, by their number, ascending; their words say nothing.
    pub(crate) failed: Vec<(usize, FieldError)>,
}

/// Blends two samples.
pub(crate) type Blend<C> = std::sync::Arc<dyn Fn(&C, &C, f32) -> C + Send + Sync>;

/// How a component type travels, as a value: for types whose fields are known at run time only, such as those of another language.
/// What is known while compiling is [`Replicate`], which has the same functions without `self`.
///
/// Register it with [`SchemaBuilder::component_in`](crate::SchemaBuilder::component_in). One type has one form in a schema, and
/// two peers understand each other if their forms describe the same layout under the same name, whatever their types are.
pub trait Form<C>: Send + Sync + 'static {
    /// The component's own bits, to tell cheaply whether the game touched it.
    type Raw: Copy + PartialEq + Send + Sync + 'static;

    /// Describes the fields, in the order in which the other functions handle them.
    fn layout(&self, l: &mut LayoutBuilder);

    /// The component's own bits. Equal bits quantise equally.
    fn raw(&self, value: &C) -> Self::Raw;

    /// Writes exactly the words that the layout describes.
    ///
    /// # Errors
    /// [`FieldError`] if a value lies outside what its field allows; the words are unspecified then.
    fn quantise(&self, value: &C, out: &mut Quantiser<'_>) -> Result<(), FieldError>;

    /// Makes a value from words that [`quantise`](Self::quantise) wrote or a layout read.
    ///
    /// # Errors
    /// [`RestoreError`]; the component is then withheld.
    fn restore(&self, from: &mut Restorer<'_>) -> Result<C, RestoreError>;
}

/// The type is [`Replicate`].
pub(crate) struct Itself;

impl<C: Replicate> Form<C> for Itself {
    type Raw = C::Raw;

    fn layout(&self, l: &mut LayoutBuilder) {
        C::layout(l);
    }

    #[inline]
    fn raw(&self, value: &C) -> C::Raw {
        value.raw()
    }

    #[inline]
    fn quantise(&self, value: &C, out: &mut Quantiser<'_>) -> Result<(), FieldError> {
        value.quantise(out)
    }

    #[inline]
    fn restore(&self, from: &mut Restorer<'_>) -> Result<C, RestoreError> {
        C::restore(from)
    }
}

/// The type travels as `W`.
pub(crate) struct Via<C, W> {
    pub(crate) to: fn(&C) -> W,
    pub(crate) from: fn(W) -> C,
}

impl<C: 'static, W: Replicate> Form<C> for Via<C, W> {
    type Raw = W::Raw;

    fn layout(&self, l: &mut LayoutBuilder) {
        W::layout(l);
    }

    fn raw(&self, value: &C) -> W::Raw {
        (self.to)(value).raw()
    }

    fn quantise(&self, value: &C, out: &mut Quantiser<'_>) -> Result<(), FieldError> {
        (self.to)(value).quantise(out)
    }

    fn restore(&self, from: &mut Restorer<'_>) -> Result<C, RestoreError> {
        Ok((self.from)(W::restore(from)?))
    }
}

/// What writing a value into the world did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The entity did not have the component.
    Added,
    /// It had another value of it.
    Changed,
    /// It had just that value.
    Same,
    /// The entity is gone from the world: the game despawned it behind our back.
    NoEntity,
}

/// Rows of a block whose values are to be written.
#[derive(Clone, Copy)]
pub(crate) struct WriteOver {
    pub(crate) block: u32,
    pub(crate) rows: u64,
}

/// What became of a value that was to be rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounded {
    Yes,
    /// There is none.
    Absent,
    /// It lies outside its range, or names somebody who is not here: it is as it was.
    Cannot,
}

/// A column of one component type.
pub(crate) trait Column: Send + Sync {
    fn layout(&self) -> &Layout;
    fn is_in(&self, archetype: &Archetype) -> bool;
    /// A copy of an archetype's raw values, to compare with later.
    fn shadow(&self) -> Box<dyn Shadow>;
    /// Quantises the values at `indices`, in order.
    fn quantise(&self, archetype: &Archetype, indices: &[u32], names: NameOf<'_>, into: &mut QuantisedRows);
    /// Quantises one entity's value; `None` if it has none.
    fn quantise_one(&self, world: &World, entity: Entity, names: NameOf<'_>, out: &mut [u32]) -> Option<Result<(), FieldError>>;
    fn write(&self, world: &mut World, entity: Entity, words: &[u32], entities: EntityOf<'_>) -> Result<Written, RestoreError>;
    /// Writes many values, of a component that names no entities, over those that the `entities` have whose rows they are of; adds to
    /// `odd` the rows that could not be: their entity is gone or lacks the component, or the words are none of its.
    fn write_over(
        &self,
        world: &mut World,
        history: &History,
        c: usize,
        writes: &[WriteOver],
        entities: &[Entity],
        odd: &mut Vec<usize>,
    );
    fn remove(&self, world: &mut World, entity: Entity) -> bool;
    fn has(&self, world: &World, entity: Entity) -> bool;
    fn validate(&self, old: Option<&[u32]>, new: &[u32], write: &Write, entities: EntityOf<'_>) -> Result<(), &'static str>;
    fn is_validated(&self) -> bool;
    /// Could a value be made of the words if every entity that they name were here?
    fn is_complete(&self, words: &[u32]) -> bool;
    /// Are they words that a value can have? A layout alone knows nothing of order, or of what opaque bytes say.
    fn is_value(&self, words: &[u32]) -> bool;
    /// Rounds one entity's value to what its words say, and gives the words.
    fn round(&self, world: &World, entity: Entity, words: &mut [u32], entities: EntityOf<'_>) -> Rounded;
    /// The same component on the simulation grid, if that is another form.
    fn on_grid(&self) -> Option<Box<dyn Column>>;
    /// A copy of one entity's value, if such values can be blended.
    fn snap(&self, world: &World, entity: Entity) -> Option<Box<dyn Any + Send + Sync>>;
    /// A copy of such a copy.
    fn copy(&self, snap: &dyn Any) -> Option<Box<dyn Any + Send + Sync>>;
    /// Are two such copies equal?
    fn is_same(&self, a: &dyn Any, b: &dyn Any) -> bool;
    /// A [`Reader`] of the component's type.
    fn reader(&self) -> &dyn Any;
}

/// The raw values of one component in one archetype when they were last captured.
pub(crate) trait Shadow: Send + Sync {
    /// Sets a bit for each value that differs, and takes the new values over. `bits` has a word per 64 values.
    fn compare(&mut self, archetype: &Archetype, bits: &mut [u64]);
}

/// Restores and blends values of one type, whatever their form.
pub(crate) struct Reader<C> {
    #[expect(clippy::type_complexity, reason = "the one place where it is written")]
    pub(crate) restore: Box<dyn Fn(&mut Restorer<'_>) -> Result<C, RestoreError> + Send + Sync>,
    pub(crate) blend: Option<Blend<C>>,
}

pub(crate) struct Typed<C, F> {
    form: std::sync::Arc<F>,
    layout: Layout,
    validators: Vec<Validator<C>>,
    reader: Reader<C>,
    /// Is it the form on the simulation grid?
    fine: bool,
}

impl<C: Component, F: Form<C>> Typed<C, F> {
    pub(crate) fn new(form: F, layout: Layout, validators: Vec<Validator<C>>, blend: Option<Blend<C>>) -> Self {
        let form = std::sync::Arc::new(form);
        let inner = form.clone();
        let reader = Reader { restore: Box::new(move |from| inner.restore(from)), blend };
        Self { form, layout, validators, reader, fine: false }
    }

    fn value(&self, words: &[u32], entities: EntityOf<'_>) -> Result<C, RestoreError> {
        self.form.restore(&mut Restorer::new(words, entities).on_grid(self.fine))
    }
}

impl<C: Component, F: Form<C>> Column for Typed<C, F> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn is_in(&self, archetype: &Archetype) -> bool {
        archetype.has::<C>()
    }

    fn shadow(&self) -> Box<dyn Shadow> {
        Box::new(Raws::<C, F> { form: self.form.clone(), values: Vec::new(), fresh: Vec::new(), of: std::marker::PhantomData })
    }

    fn quantise(&self, archetype: &Archetype, indices: &[u32], names: NameOf<'_>, into: &mut QuantisedRows) {
        let stride = self.layout.words();
        into.failed.clear();
        if into.words.len() < indices.len() * stride {
            into.words.resize(indices.len() * stride, 0);
        }
        let column = archetype.get::<&C>().expect("only archetypes with the component are asked");
        for (n, &i) in indices.iter().enumerate() {
            // what other values have left there is written over
            let mut out = Quantiser::new(&mut into.words[n * stride..][..stride], names).on_grid(self.fine);
            match self.form.quantise(&column[i as usize], &mut out) {
                Ok(()) => debug_assert_eq!(out.written(), stride, "a form writes all the words that it describes"),
                Err(error) => into.failed.push((n, error)),
            }
        }
    }

    fn quantise_one(&self, world: &World, entity: Entity, names: NameOf<'_>, out: &mut [u32]) -> Option<Result<(), FieldError>> {
        let value = world.get::<&C>(entity).ok()?;
        Some(self.form.quantise(&value, &mut Quantiser::new(out, names).on_grid(self.fine)))
    }

    fn write(&self, world: &mut World, entity: Entity, words: &[u32], entities: EntityOf<'_>) -> Result<Written, RestoreError> {
        let value = self.value(words, entities)?;
        if let Ok(mut old) = world.get::<&mut C>(entity) {
            let same = self.form.raw(&old) == self.form.raw(&value);
            *old = value;
            return Ok(if same { Written::Same } else { Written::Changed });
        }
        Ok(if world.insert_one(entity, value).is_ok() { Written::Added } else { Written::NoEntity })
    }

    fn write_over(
        &self,
        world: &mut World,
        history: &History,
        c: usize,
        writes: &[WriteOver],
        entities: &[Entity],
        odd: &mut Vec<usize>,
    ) {
        let mut view = world.view_mut::<&mut C>();
        let stride = self.layout.words();
        for write in writes {
            let block = write.block as usize;
            let (values, entities) = (history.block_values(c, block), &entities[block * BLOCK..][..BLOCK]);
            for bit in bits(write.rows).map(|bit| bit as usize) {
                match (view.get_mut(entities[bit]), self.value(&values[bit * stride..][..stride], &|_| None)) {
                    (Some(old), Ok(value)) => *old = value,
                    _ => odd.push(block * BLOCK + bit),
                }
            }
        }
    }

    fn remove(&self, world: &mut World, entity: Entity) -> bool {
        world.remove_one::<C>(entity).is_ok()
    }

    fn has(&self, world: &World, entity: Entity) -> bool {
        world.satisfies::<&C>(entity)
    }

    fn validate(&self, old: Option<&[u32]>, new: &[u32], write: &Write, entities: EntityOf<'_>) -> Result<(), &'static str> {
        if self.validators.is_empty() {
            return Ok(());
        }
        // what waits for an entity is checked by the bounds of its fields alone
        let Ok(new) = self.value(new, entities) else { return Ok(()) };
        let old = old.and_then(|words| self.value(words, entities).ok());
        self.validators.iter().try_for_each(|check| check(old.as_ref(), &new, write))
    }

    fn is_validated(&self) -> bool {
        !self.validators.is_empty()
    }

    fn is_complete(&self, words: &[u32]) -> bool {
        self.value(words, &|_| Some(Entity::DANGLING)).is_ok()
    }

    fn is_value(&self, words: &[u32]) -> bool {
        !matches!(self.value(words, &|_| Some(Entity::DANGLING)), Err(RestoreError::Invalid { .. }))
    }

    fn round(&self, world: &World, entity: Entity, words: &mut [u32], entities: EntityOf<'_>) -> Rounded {
        let Ok(mut value) = world.get::<&mut C>(entity) else { return Rounded::Absent };
        let names = name_in(world);
        if self.form.quantise(&value, &mut Quantiser::new(words, &names).on_grid(self.fine)).is_err() {
            return Rounded::Cannot;
        }
        match self.value(words, entities) {
            Ok(rounded) => {
                *value = rounded;
                Rounded::Yes
            }
            Err(_) => Rounded::Cannot,
        }
    }

    fn on_grid(&self) -> Option<Box<dyn Column>> {
        let mut builder = LayoutBuilder::on_grid();
        self.form.layout(&mut builder);
        // a layout that was good in the steps of its fields can only have become too large
        let layout = builder.build().ok().filter(|layout| *layout != self.layout)?;
        let (form, inner) = (self.form.clone(), self.form.clone());
        let restore = move |from: &mut Restorer<'_>| inner.restore(from);
        let reader = Reader { restore: Box::new(restore), blend: None };
        Some(Box::new(Self { form, layout, validators: Vec::new(), reader, fine: true }))
    }

    fn snap(&self, world: &World, entity: Entity) -> Option<Box<dyn Any + Send + Sync>> {
        self.copy(&*world.get::<&C>(entity).ok()?)
    }

    fn copy(&self, snap: &dyn Any) -> Option<Box<dyn Any + Send + Sync>> {
        // components need not be `Clone`; what is blended with itself is itself
        let (value, blend) = (snap.downcast_ref::<C>()?, self.reader.blend.as_deref()?);
        Some(Box::new(blend(value, value, 0.0)))
    }

    fn is_same(&self, a: &dyn Any, b: &dyn Any) -> bool {
        let raw = |snap: &dyn Any| snap.downcast_ref::<C>().map(|value| self.form.raw(value));
        raw(a) == raw(b)
    }

    fn reader(&self) -> &dyn Any {
        &self.reader
    }
}

struct Raws<C, F: Form<C>> {
    form: std::sync::Arc<F>,
    values: Vec<F::Raw>,
    /// Those of one block as they are now.
    fresh: Vec<F::Raw>,
    of: std::marker::PhantomData<fn() -> C>,
}

impl<C: Component, F: Form<C>> Shadow for Raws<C, F> {
    fn compare(&mut self, archetype: &Archetype, bits: &mut [u64]) {
        let Some(column) = archetype.get::<&C>() else { return };
        self.values.truncate(column.len());
        let known = self.values.len();
        self.values.extend(column[known..].iter().map(|v| self.form.raw(v)));
        for ((old, now), word) in self.values[..known].chunks_mut(BLOCK).zip(column.chunks(BLOCK)).zip(bits.iter_mut()) {
            let now = &now[..old.len()];
            // most blocks are as they were, which is found out all at once
            self.fresh.clear();
            self.fresh.extend(now.iter().map(|value| self.form.raw(value)));
            if *old != self.fresh[..] {
                let differs = old.iter_mut().zip(&self.fresh).enumerate();
                *word |= differs.fold(0, |all, (i, (old, new))| {
                    let differs = *old != *new;
                    *old = *new;
                    all | u64::from(differs) << i
                });
            }
        }
        for i in known..column.len() {
            bits[i / 64] |= 1 << (i % 64);
        }
    }
}
