//! The schema of a C program: components, kinds and the input, described at run time.

use crate::raw;
use crate::shape::{Code, Item, Shape};
use crate::slots::{COLUMNS, Choice, Column, KINDS, LARGE, Options};
use crate::status::{Failure, TdStatus, argument, failure, guard};
use std::ffi::c_char;
use std::sync::Arc;
use tidelock::Schema;
use tidelock::layout::{Layout, LayoutBuilder};
use tidelock::netcore::limits;
use tidelock::replicate::Quantiser;

/// What a field is in the struct, and how it travels: `TdField::kind`.
/// A `float` in steps of `step` within `min..=max`.
pub const TD_STEP_F32: u32 = 1;
/// A `double` in steps of `step` within `min..=max`.
pub const TD_STEP_F64: u32 = 2;
/// A `float`, all of its 32 bits.
pub const TD_EXACT_F32: u32 = 3;
/// A `float` of radians, as one of 2^`bits` directions; from -pi up to pi when it comes back.
pub const TD_ANGLE_F32: u32 = 4;
/// `float[4]`, a rotation x, y, z, w, of `bits` for each of three parts.
pub const TD_QUAT: u32 = 5;
/// `uint8_t`. Integers have all values of their type, or `least..=most` with `TD_FIELD_RANGED`.
pub const TD_U8: u32 = 6;
/// `uint16_t`.
pub const TD_U16: u32 = 7;
/// `uint32_t`.
pub const TD_U32: u32 = 8;
/// `uint64_t`.
pub const TD_U64: u32 = 9;
/// `int8_t`.
pub const TD_I8: u32 = 10;
/// `int16_t`.
pub const TD_I16: u32 = 11;
/// `int32_t`.
pub const TD_I32: u32 = 12;
/// `int64_t`.
pub const TD_I64: u32 = 13;
/// `uint8_t` or `bool`, 0 or not.
pub const TD_BOOL: u32 = 14;
/// `uint8_t`, one of `choices`.
pub const TD_CHOICE: u32 = 15;
/// `char[cap + 1]`, at most `cap` bytes of UTF-8 and a zero byte.
pub const TD_TEXT: u32 = 16;
/// `uint64_t`, an entity; the component is withheld from who does not have it.
pub const TD_ENTITY: u32 = 17;
/// `uint64_t`, an entity, or 0 for none, or for one that has no name on the network.
pub const TD_ENTITY_OR_NONE: u32 = 18;

/// `TdField::flags`: the integer lies within `least..=most`.
pub const TD_FIELD_RANGED: u32 = 1;
/// `TdField::flags`: it is not blended between two samples.
pub const TD_FIELD_HOLD: u32 = 2;

/// `TdComponent::policy`: the component follows its kind.
pub const TD_POLICY_OF_KIND: u32 = 0;
/// The host decides.
pub const TD_POLICY_HOST: u32 = 1;
/// The host decides, and the owner predicts it.
pub const TD_POLICY_HOST_PREDICTED: u32 = 2;
/// The owner decides, or the co-owner in `slot`, if that is not 0.
pub const TD_POLICY_OWNER: u32 = 3;

/// `TdComponent::flags`: drawn between two samples.
pub const TD_COMPONENT_INTERPOLATE: u32 = 1;
/// Drawn where it is by now.
pub const TD_COMPONENT_EXTRAPOLATE: u32 = 2;
/// Saved and restored: what is predicted must be.
pub const TD_COMPONENT_CHECKPOINT: u32 = 4;
/// Its first entity is the parent.
pub const TD_COMPONENT_PARENT: u32 = 8;
/// Changes of its value are told as events.
pub const TD_COMPONENT_NOTIFY: u32 = 16;

/// A field of a struct. Set what its kind does not use to zero.
#[repr(C)]
pub struct TdField {
    /// Its name, the same as on other peers: `x`, `owner.id` within another struct, `0` in a tuple of Rust.
    pub name: *const c_char,
    /// `offsetof` of the field.
    pub offset: usize,
    /// One of `TD_STEP_F32` … `TD_ENTITY_OR_NONE`.
    pub kind: u32,
    /// 0 for a single value, else how many stand in an array, whose names are `name.0`, `name.1` …
    pub count: u32,
    /// `TD_FIELD_…`.
    pub flags: u32,
    /// Of an angle or a rotation.
    pub bits: u32,
    /// The most bytes of a text.
    pub cap: u32,
    /// Order of the code for differences and one more; 0 for the usual one.
    pub order_plus_one: u32,
    /// Distance of two steps.
    pub step: f64,
    /// The least step.
    pub min: f64,
    /// The greatest step.
    pub max: f64,
    /// The least integer.
    pub least: i64,
    /// The greatest integer.
    pub most: i64,
    /// The names of the choices.
    pub choices: *const *const c_char,
    /// How many there are, at most 256.
    pub choice_count: u32,
}

/// A component, or the input: a struct of at most 544 bytes. At most 40 of a schema, of which 8 may be larger than 32 bytes.
#[repr(C)]
pub struct TdComponent {
    /// Its name, the same as on other peers.
    pub name: *const c_char,
    /// `sizeof` of the struct.
    pub size: usize,
    /// Its fields, in the order in which other peers have them.
    pub fields: *const TdField,
    /// How many there are.
    pub field_count: usize,
    /// `TD_POLICY_…`, whatever its kind says.
    pub policy: u32,
    /// Of a co-owner.
    pub slot: u32,
    /// `TD_COMPONENT_…`.
    pub flags: u32,
    /// By how many steps of the simulation grid a prediction may be off.
    pub tolerance: u32,
}

/// Who decides a component within one kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TdOverride {
    /// The component's id.
    pub component: u32,
    /// `TD_POLICY_…`.
    pub policy: u32,
    /// Of a co-owner.
    pub slot: u32,
}

/// A kind of entity. At most 32 of a schema.
#[repr(C)]
pub struct TdKind {
    /// Its name, the same as on other peers.
    pub name: *const c_char,
    /// `TD_POLICY_…`, not that of a kind.
    pub policy: u32,
    /// Of a co-owner.
    pub slot: u32,
    /// Components with another policy within this kind.
    pub overrides: *const TdOverride,
    /// How many there are.
    pub override_count: usize,
}

/// A registered component.
#[derive(Clone)]
pub(crate) struct Component {
    pub(crate) name: String,
    /// Into [`COLUMNS`].
    pub(crate) number: usize,
    pub(crate) shape: Arc<Shape>,
    options: Options,
}

impl Component {
    pub(crate) fn column(&self) -> &'static dyn Column {
        COLUMNS[self.number]
    }
}

struct KindEntry {
    name: String,
    policy: Choice,
    overrides: Vec<(usize, Choice)>,
}

/// What travels, and who decides.
pub struct TdSchema {
    name: String,
    pub(crate) components: Vec<Component>,
    kinds: Vec<KindEntry>,
    pub(crate) input: Option<(String, Arc<Shape>)>,
    pub(crate) built: Option<Schema>,
}

impl TdSchema {
    pub(crate) fn kind_names(&self) -> Vec<String> {
        self.kinds.iter().map(|kind| kind.name.clone()).collect()
    }

    fn open(&mut self) -> Result<&mut Self, Failure> {
        if self.built.is_some() {
            return Err(failure(TdStatus::TdErrorSchema, "the schema is built already"));
        }
        Ok(self)
    }

    fn free_column(&self, size: usize) -> Option<usize> {
        let taken = |number: usize| self.components.iter().any(|c| c.number == number);
        (0..COLUMNS.len()).find(|number| COLUMNS[*number].room() >= size && !taken(*number))
    }

    fn build(&mut self) -> Result<(), Failure> {
        let mut builder = Schema::builder(&self.name);
        for c in &self.components {
            builder = c.column().register(builder, &c.name, c.shape.clone(), c.options);
        }
        for (kind, entry) in KINDS.iter().zip(&self.kinds) {
            let overrides = entry.overrides.iter().map(|(id, policy)| (self.components[*id].number, *policy));
            builder = kind.register(builder, &entry.name, entry.policy, overrides.collect());
        }
        if let Some((name, shape)) = &self.input {
            let mut layout = LayoutBuilder::new();
            shape.describe(&mut layout);
            let layout: Layout = layout.build().map_err(|e| failure(TdStatus::TdErrorSchema, e))?;
            let mut words = vec![0; layout.words()];
            let zero = vec![0; shape.size];
            let quantised = shape.quantise_bytes(&zero, &mut Quantiser::new(&mut words, &|_| None));
            quantised.map_err(|e| failure(TdStatus::TdErrorSchema, format_args!("input `{name}`, all zero: {e}")))?;
            builder = builder.input_words(name, layout, words);
        }
        self.built = Some(builder.build().map_err(|e| failure(TdStatus::TdErrorSchema, e))?);
        Ok(())
    }
}

fn policy(code: u32, slot: u32) -> Result<Option<Choice>, Failure> {
    match code {
        TD_POLICY_OF_KIND => Ok(None),
        TD_POLICY_HOST => Ok(Some(Choice::Host)),
        TD_POLICY_HOST_PREDICTED => Ok(Some(Choice::Predicted)),
        TD_POLICY_OWNER => Ok(Some(Choice::Owner(slot as usize))),
        code => Err(argument(format_args!("there is no policy {code}"))),
    }
}

/// The names of choices live as long as the program: a schema does so too, and they are told to every log and error.
///
/// # Safety
/// Like [`raw::slice`] and [`raw::text`], for all names.
unsafe fn choices(field: &TdField) -> Result<&'static [&'static str], Failure> {
    if field.choice_count == 0 || field.choice_count > 256 {
        return Err(argument("a choice has 1 to 256 names"));
    }
    // SAFETY: the caller promises that `choices` holds so many names.
    let names = unsafe { raw::slice("choices", field.choices, field.choice_count as usize) }?;
    let mut kept = Vec::with_capacity(names.len());
    for name in names {
        // SAFETY: the caller promises that each is a text.
        let name = unsafe { raw::text("choices", *name) }?;
        kept.push(&*Box::leak(name.to_owned().into_boxed_str()));
    }
    Ok(Box::leak(kept.into_boxed_slice()))
}

/// # Safety
/// Like [`choices`].
unsafe fn code(field: &TdField) -> Result<Code, Failure> {
    let order = field.order_plus_one.checked_sub(1);
    let range = (field.flags & TD_FIELD_RANGED != 0).then_some((field.least, field.most));
    let integer = |size, signed| Code::integer(size, signed, range, order);
    match field.kind {
        TD_STEP_F32 => Code::step(false, field.step, field.min, field.max, order),
        TD_STEP_F64 => Code::step(true, field.step, field.min, field.max, order),
        TD_EXACT_F32 => Ok(Code::Exact),
        TD_ANGLE_F32 => Code::angle(field.bits),
        TD_QUAT => Code::quat(field.bits),
        TD_U8 => integer(1, false),
        TD_U16 => integer(2, false),
        TD_U32 => integer(4, false),
        TD_U64 => integer(8, false),
        TD_I8 => integer(1, true),
        TD_I16 => integer(2, true),
        TD_I32 => integer(4, true),
        TD_I64 => integer(8, true),
        TD_BOOL => Ok(Code::Bool),
        // SAFETY: the caller's promise is the same.
        TD_CHOICE => unsafe { choices(field) }.map(Code::Choice),
        TD_TEXT => Code::text(field.cap),
        TD_ENTITY => Ok(Code::Entity { optional: false }),
        TD_ENTITY_OR_NONE => Ok(Code::Entity { optional: true }),
        kind => Err(argument(format_args!("there is no kind of field {kind}"))),
    }
}

/// # Safety
/// What the description points to is as it says.
unsafe fn shape(described: &TdComponent) -> Result<Shape, Failure> {
    // SAFETY: the caller promises that there are so many fields.
    let fields = unsafe { raw::slice("fields", described.fields, described.field_count) }?;
    if described.size > LARGE {
        return Err(argument(format_args!("a struct of {} bytes; at most {LARGE} are allowed", described.size)));
    }
    let mut shape = Shape { size: described.size, items: Vec::new() };
    for field in fields {
        // SAFETY: the caller promises that names are texts.
        let (name, code) = unsafe { (raw::text("name", field.name)?, code(field)?) };
        let count = field.count.max(1) as usize;
        let end = code.size().checked_mul(count).and_then(|bytes| bytes.checked_add(field.offset));
        if count > limits::FIELDS || end.is_none_or(|end| end > described.size) {
            return Err(argument(format_args!("field `{name}` does not lie within the struct")));
        }
        for i in 0..count {
            let name = if field.count == 0 { name.to_owned() } else { format!("{name}.{i}") };
            let (at, hold) = (field.offset + i * code.size(), field.flags & TD_FIELD_HOLD != 0);
            shape.items.push(Item { name, at, code, hold });
        }
    }
    let mut ranges: Vec<_> = shape.items.iter().map(|item| (item.at, item.at + item.code.size())).collect();
    ranges.sort_unstable();
    if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Err(argument("two fields lie upon each other"));
    }
    Ok(shape)
}

/// A new schema, to be filled; free it with `td_schema_free`. Null if the name is none.
///
/// # Safety
/// `name` is a text with a zero byte at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_schema_new(name: *const c_char) -> *mut TdSchema {
    let mut made = std::ptr::null_mut();
    guard(|| {
        // SAFETY: this function asks for the same.
        let name = unsafe { raw::text("name", name) }?.to_owned();
        let schema = TdSchema { name, components: Vec::new(), kinds: Vec::new(), input: None, built: None };
        made = Box::into_raw(Box::new(schema));
        Ok(TdStatus::TdOk)
    });
    made
}

/// Frees a schema; peers that were made from it go on. Null is nothing.
///
/// # Safety
/// `schema` came from `td_schema_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_schema_free(schema: *mut TdSchema) {
    if !schema.is_null() {
        guard(|| {
            // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
            drop(unsafe { Box::from_raw(schema) });
            Ok(TdStatus::TdOk)
        });
    }
}

/// Registers a component; its id goes to `id`.
///
/// # Safety
/// `schema` came from `td_schema_new`, `component` and what it points to are as described, `id` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_schema_component(schema: *mut TdSchema, component: *const TdComponent, id: *mut u32) -> TdStatus {
    guard(|| {
        // SAFETY: this function asks for the same.
        let (schema, component, id) =
            unsafe { (raw::one_mut("schema", schema)?, raw::one("component", component)?, raw::one_mut("id", id)?) };
        let schema = schema.open()?;
        // SAFETY: the same.
        let (name, shape) = unsafe { (raw::text("name", component.name)?.to_owned(), shape(component)?) };
        let has = |flag: u32| component.flags & flag != 0;
        let options = Options {
            policy: policy(component.policy, component.slot)?,
            interpolate: has(TD_COMPONENT_INTERPOLATE),
            extrapolate: has(TD_COMPONENT_EXTRAPOLATE),
            checkpoint: has(TD_COMPONENT_CHECKPOINT),
            parent: has(TD_COMPONENT_PARENT),
            notify: has(TD_COMPONENT_NOTIFY),
            tolerance: component.tolerance,
        };
        let number = schema.free_column(shape.size);
        let number = number.ok_or_else(|| failure(TdStatus::TdErrorSchema, "too many components, or too many large ones"))?;
        *id = schema.components.len() as u32;
        schema.components.push(Component { name, number, shape: Arc::new(shape), options });
        Ok(TdStatus::TdOk)
    })
}

/// Registers a kind, after the components of its overrides; its id goes to `id`.
///
/// # Safety
/// `schema` came from `td_schema_new`, `kind` and what it points to are as described, `id` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_schema_kind(schema: *mut TdSchema, kind: *const TdKind, id: *mut u32) -> TdStatus {
    guard(|| {
        // SAFETY: this function asks for the same.
        let (schema, kind, id) = unsafe { (raw::one_mut("schema", schema)?, raw::one("kind", kind)?, raw::one_mut("id", id)?) };
        let schema = schema.open()?;
        // SAFETY: the same.
        let (name, told) =
            unsafe { (raw::text("name", kind.name)?, raw::slice("overrides", kind.overrides, kind.override_count)?) };
        if schema.kinds.len() == KINDS.len() {
            return Err(failure(TdStatus::TdErrorSchema, "too many kinds"));
        }
        let of_kind = policy(kind.policy, kind.slot)?.ok_or_else(|| argument("a kind has a policy of its own"))?;
        let mut overrides = Vec::new();
        for one in told {
            let known = (one.component as usize) < schema.components.len();
            let policy = policy(one.policy, one.slot)?.filter(|_| known);
            overrides
                .push((one.component as usize, policy.ok_or_else(|| argument("an override needs a component and a policy"))?));
        }
        *id = schema.kinds.len() as u32;
        schema.kinds.push(KindEntry { name: name.to_owned(), policy: of_kind, overrides });
        Ok(TdStatus::TdOk)
    })
}

/// Registers the input: of `input`, only name, size and fields count. What is done until somebody does something is all zero.
///
/// # Safety
/// `schema` came from `td_schema_new`, `input` and what it points to are as described.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_schema_input(schema: *mut TdSchema, input: *const TdComponent) -> TdStatus {
    guard(|| {
        // SAFETY: this function asks for the same.
        let (schema, input) = unsafe { (raw::one_mut("schema", schema)?, raw::one("input", input)?) };
        let schema = schema.open()?;
        // SAFETY: the same.
        let (name, shape) = unsafe { (raw::text("name", input.name)?.to_owned(), shape(input)?) };
        if schema.input.is_some() {
            return Err(failure(TdStatus::TdErrorSchema, "a schema has one input"));
        }
        schema.input = Some((name, Arc::new(shape)));
        Ok(TdStatus::TdOk)
    })
}

/// Completes the schema; `td_last_error` names every mistake there is.
///
/// # Safety
/// `schema` came from `td_schema_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_schema_build(schema: *mut TdSchema) -> TdStatus {
    guard(|| {
        // SAFETY: this function asks for the same.
        unsafe { raw::one_mut("schema", schema) }?.open()?.build()?;
        Ok(TdStatus::TdOk)
    })
}

/// What two peers must agree on, in one number. A schema that says the same in Rust has the same.
///
/// # Safety
/// `schema` came from `td_schema_new`, `digest` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_schema_digest(schema: *const TdSchema, digest: *mut u64) -> TdStatus {
    guard(|| {
        // SAFETY: this function asks for the same.
        let (schema, digest) = unsafe { (raw::one("schema", schema)?, raw::one_mut("digest", digest)?) };
        let built = schema.built.as_ref().ok_or_else(|| failure(TdStatus::TdErrorSchema, "the schema is not built yet"))?;
        *digest = built.digest();
        Ok(TdStatus::TdOk)
    })
}
