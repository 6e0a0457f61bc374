//! What a caller in C can do wrong and we can see is refused with a code and words; and every kind of field is that of the derive.

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::ptr::{null, null_mut};
use tidelock::policy::{Host, Owner};
use tidelock::{Interpolate, Replicate, Schema};
use tidelock_capi::peer::*;
use tidelock_capi::schema::*;
use tidelock_capi::status::TdStatus::*;
use tidelock_capi::status::*;
use tidelock_capi::world::*;

/// The struct of C.
#[repr(C)]
#[derive(Clone, Copy)]
struct Raw {
    step: f64,
    wide: u64,
    signed_wide: i64,
    whom: u64,
    maybe: u64,
    quat: [f32; 4],
    exact: f32,
    angle: f32,
    at: [f32; 2],
    u: u32,
    i: i32,
    v: u16,
    j: i16,
    b: u8,
    c: i8,
    yes: u8,
    stance: u8,
    text: [u8; 33],
}

#[derive(Clone, Replicate, Interpolate)]
enum Stance {
    Stands,
    Crouches,
    Lies,
}
/// The same in Rust.
#[derive(Clone, Replicate, Interpolate)]
struct Everything {
    #[net(step = 0.001, range = -1000.0..=1000.0, order = 7)]
    step: f64,
    wide: u64,
    signed_wide: i64,
    whom: hecs::Entity,
    maybe: Option<hecs::Entity>,
    #[net(quat, bits = 10)]
    quat: [f32; 4],
    #[net(exact)]
    exact: f32,
    #[net(angle, bits = 10)]
    angle: f32,
    #[net(step = 0.01, range = -500.0..=500.0)]
    at: [f32; 2],
    u: u32,
    #[net(range = -100_000..=100_000)]
    i: i32,
    v: u16,
    j: i16,
    b: u8,
    c: i8,
    yes: bool,
    stance: Stance,
    #[net(max = 32)]
    text: String,
}
#[derive(Clone, Copy, Default)]
struct Thing;

fn field(name: &'static CStr, offset: usize, kind: u32) -> TdField {
    TdField {
        name: name.as_ptr(),
        offset,
        kind,
        count: 0,
        flags: 0,
        bits: 0,
        cap: 0,
        order_plus_one: 0,
        step: 0.0,
        min: 0.0,
        max: 0.0,
        least: 0,
        most: 0,
        choices: null(),
        choice_count: 0,
    }
}

fn component(name: &'static CStr, size: usize, fields: &[TdField]) -> TdComponent {
    let (fields, field_count) = (fields.as_ptr(), fields.len());
    let (policy, slot, flags, tolerance) = (TD_POLICY_OF_KIND, 0, TD_COMPONENT_INTERPOLATE, 0);
    TdComponent { name: name.as_ptr(), size, fields, field_count, policy, slot, flags, tolerance }
}

fn everything(choices: &[*const c_char]) -> Vec<TdField> {
    let of = field;
    vec![
        TdField { step: 0.001, min: -1000.0, max: 1000.0, order_plus_one: 8, ..of(c"step", offset_of!(Raw, step), TD_STEP_F64) },
        of(c"wide", offset_of!(Raw, wide), TD_U64),
        of(c"signed_wide", offset_of!(Raw, signed_wide), TD_I64),
        of(c"whom", offset_of!(Raw, whom), TD_ENTITY),
        of(c"maybe", offset_of!(Raw, maybe), TD_ENTITY_OR_NONE),
        TdField { bits: 10, ..of(c"quat", offset_of!(Raw, quat), TD_QUAT) },
        of(c"exact", offset_of!(Raw, exact), TD_EXACT_F32),
        TdField { bits: 10, ..of(c"angle", offset_of!(Raw, angle), TD_ANGLE_F32) },
        TdField { count: 2, step: 0.01, min: -500.0, max: 500.0, ..of(c"at", offset_of!(Raw, at), TD_STEP_F32) },
        of(c"u", offset_of!(Raw, u), TD_U32),
        TdField { flags: TD_FIELD_RANGED, least: -100_000, most: 100_000, ..of(c"i", offset_of!(Raw, i), TD_I32) },
        of(c"v", offset_of!(Raw, v), TD_U16),
        of(c"j", offset_of!(Raw, j), TD_I16),
        of(c"b", offset_of!(Raw, b), TD_U8),
        of(c"c", offset_of!(Raw, c), TD_I8),
        of(c"yes", offset_of!(Raw, yes), TD_BOOL),
        TdField { choices: choices.as_ptr(), choice_count: 3, ..of(c"stance", offset_of!(Raw, stance), TD_CHOICE) },
        TdField { cap: 32, ..of(c"text", offset_of!(Raw, text), TD_TEXT) },
    ]
}

struct Made {
    schema: *mut TdSchema,
    component: u32,
    kind: u32,
}

fn make() -> Made {
    let choices = [c"Stands".as_ptr(), c"Crouches".as_ptr(), c"Lies".as_ptr()];
    let fields = everything(&choices);
    let (mut id, mut kind) = (0, 0);
    let thing = TdKind { name: c"thing".as_ptr(), policy: TD_POLICY_OWNER, slot: 0, overrides: null(), override_count: 0 };
    // SAFETY: everything lives until it was read, and is as described.
    let schema = unsafe {
        let schema = td_schema_new(c"everything".as_ptr());
        assert_eq!(
            td_schema_component(schema, &component(c"everything", size_of::<Raw>(), &fields), &mut id),
            TdOk,
            "{}",
            words()
        );
        assert_eq!(td_schema_kind(schema, &thing, &mut kind), TdOk);
        assert_eq!(td_schema_build(schema), TdOk, "{}", words());
        schema
    };
    Made { schema, component: id, kind }
}

fn words() -> String {
    // SAFETY: it is a text that lives until the next failure.
    unsafe { CStr::from_ptr(td_last_error()) }.to_string_lossy().into_owned()
}

fn value(whom: u64) -> Raw {
    let mut text = [0; 33];
    text[..5].copy_from_slice("h\u{e9}ro".as_bytes());
    let (quat, at) = ([0.0, 0.0, 0.0, 1.0], [1.25, -499.5]);
    let (wide, signed_wide, maybe, exact, angle) = (u64::MAX, i64::MIN, 0, 0.1, 0.0);
    let (u, i, v, j, b, c) = (u32::MAX, -100_000, u16::MAX, i16::MIN, 255, -128);
    Raw { step: -3.5, wide, signed_wide, whom, maybe, quat, exact, angle, at, u, i, v, j, b, c, yes: 7, stance: 2, text }
}

#[test]
fn every_kind_of_field_is_that_of_the_derive() {
    let made = make();
    let mut digest = 0;
    // SAFETY: the schema came from the library.
    assert_eq!(unsafe { td_schema_digest(made.schema, &mut digest) }, TdOk);
    let schema = Schema::builder("everything").component::<Everything>("everything", |c| c.interpolate());
    let schema = schema.kind::<Thing>("thing", Owner::default()).build().expect("a schema without mistakes");
    assert_eq!(digest, schema.digest());
    let other =
        Schema::builder("everything").component::<Everything>("everything", |c| c).kind::<Thing>("thing", Host::default());
    assert_ne!(digest, other.build().expect("one as well").digest(), "who decides is part of it");
    // SAFETY: as above, and it is not used any more.
    unsafe { td_schema_free(made.schema) };
}

#[test]
fn values_of_every_kind_travel() {
    let made = make();
    let (mut host, mut guest, mut entity) = (null_mut(), null_mut(), 0);
    let size = size_of::<Raw>();
    // SAFETY: what is handed over lives, and came from the library.
    unsafe {
        let network = td_network_new(1);
        assert_eq!(td_host_loopback(made.schema, null(), network, &mut host), TdOk);
        assert_eq!(td_join_loopback(made.schema, null(), network, 20_000, 0.0, &mut guest), TdOk);
        td_schema_free(made.schema);
        td_network_free(network);
        assert_eq!(td_spawn(host, made.kind, null(), 0, &mut entity), TdOk, "{}", words());
        let sent = value(entity);
        assert_eq!(td_set(host, entity, made.component, (&raw const sent).cast(), size), TdOk, "{}", words());
        let mut step = TdStep { tick: 0, seconds: 0.0, rerun: 0, timeline: 0 };
        for frame in 0..60 {
            for peer in [host, guest] {
                assert_eq!(td_receive(peer, frame * 16_667), TdOk);
                while td_next_step(peer, &mut step) == TdOk {}
                assert_eq!(td_send(peer, frame * 16_667), TdOk);
            }
        }
        let (mut there, mut count, mut got) = ([0; 4], 0, value(0));
        assert_eq!(td_entities(guest, made.component, there.as_mut_ptr(), 4, &mut count), TdOk);
        assert_eq!(count, 1);
        assert_eq!(td_get(guest, there[0], made.component, (&raw mut got).cast(), size), TdOk);
        assert_eq!((got.step, got.wide, got.signed_wide, got.exact), (-3.5, u64::MAX, i64::MIN, 0.1));
        assert_eq!((got.whom, got.maybe, got.quat, got.at), (there[0], 0, [0.0, 0.0, 0.0, 1.0], [1.25, -499.5]));
        assert_eq!((got.u, got.i, got.v, got.j, got.b, got.c), (u32::MAX, -100_000, u16::MAX, i16::MIN, 255, -128));
        assert_eq!((got.yes, got.stance, got.text), (1, 2, sent.text));
        // too small a buffer says how many there are
        assert_eq!(td_entities(guest, TD_ANY, null_mut(), 0, &mut count), TdErrorBuffer);
        assert_eq!(count, 1);
        assert_eq!(td_remove(host, entity, made.component), TdOk);
        assert_eq!(td_get(host, entity, made.component, (&raw mut got).cast(), size), TdNone);
        assert_eq!(td_despawn(host, entity), TdOk);
        assert_eq!(td_despawn(host, entity), TdErrorUsage);
        td_peer_free(guest);
        td_peer_free(host);
    }
}

#[test]
fn what_can_be_seen_to_be_wrong_is_refused() {
    let made = make();
    let (mut peer, mut entity, mut id, size) = (null_mut(), 0, 0, size_of::<Raw>());
    // SAFETY: what is handed over lives and came from the library, or is what the functions say that they look for.
    unsafe {
        assert_eq!(td_receive(null_mut(), 0), TdErrorNull);
        assert_eq!(words(), "`peer` is null");
        assert_eq!(td_alone(null(), null(), &mut peer), TdErrorNull);
        assert_eq!(td_alone(made.schema, null(), null_mut()), TdErrorNull);
        assert_eq!(td_schema_build(made.schema), TdErrorSchema, "it is built already");
        assert_eq!(td_schema_component(made.schema, &component(c"late", 0, &[]), &mut id), TdErrorSchema);
        assert_eq!(td_host_quic(made.schema, null(), c"nowhere".as_ptr(), &mut peer), TdErrorArgument);
        assert_eq!(td_join_quic(made.schema, null(), c"\xff".as_ptr(), &mut peer), TdErrorArgument);
        assert!(peer.is_null());
        let schema = td_schema_new(c"wrong".as_ptr());
        let outside = [field(c"x", 2, TD_U32)];
        assert_eq!(td_schema_component(schema, &component(c"x", 4, &outside), &mut id), TdErrorArgument);
        let far = [field(c"x", usize::MAX, TD_U32)];
        assert_eq!(td_schema_component(schema, &component(c"x", 4, &far), &mut id), TdErrorArgument);
        let upon = [field(c"x", 0, TD_U32), field(c"y", 3, TD_U8)];
        assert_eq!(td_schema_component(schema, &component(c"x", 4, &upon), &mut id), TdErrorArgument);
        let no_steps = [field(c"x", 0, TD_STEP_F32)];
        assert_eq!(td_schema_component(schema, &component(c"x", 4, &no_steps), &mut id), TdErrorArgument);
        let strange = [field(c"x", 0, 99)];
        assert_eq!(td_schema_component(schema, &component(c"x", 4, &strange), &mut id), TdErrorArgument);
        assert_eq!(td_schema_component(schema, &component(c"x", 4096, &[]), &mut id), TdErrorArgument);
        assert_eq!(td_alone(schema, null(), &mut peer), TdErrorSchema, "it is not built");
        td_schema_free(schema);

        assert_eq!(td_alone(made.schema, null(), &mut peer), TdOk);
        td_schema_free(made.schema);
        assert_eq!(td_spawn(peer, 77, null(), 0, &mut entity), TdErrorArgument);
        assert_eq!(td_spawn(peer, made.kind, null(), 3, &mut entity), TdErrorNull);
        assert_eq!(td_spawn(peer, made.kind, null(), 0, &mut entity), TdOk);
        let mut wrong = value(0);
        let data: *const c_void = (&raw const wrong).cast();
        assert_eq!(td_set(peer, entity, made.component, data, size - 1), TdErrorArgument);
        assert_eq!(td_set(peer, entity, 9, data, size), TdErrorArgument);
        assert_eq!(td_set(peer, 0, made.component, data, size), TdErrorArgument);
        assert_eq!(td_set(peer, entity, made.component, null(), size), TdErrorNull);
        wrong.stance = 3;
        assert_eq!(td_set(peer, entity, made.component, (&raw const wrong).cast(), size), TdErrorArgument);
        assert_eq!(words(), "`stance` has no choice 3");
        wrong.stance = 0;
        wrong.text = [b'x'; 33];
        assert_eq!(td_set(peer, entity, made.component, (&raw const wrong).cast(), size), TdErrorArgument);
        wrong.text = [0; 33];
        wrong.text[0] = 0xff;
        assert_eq!(td_set(peer, entity, made.component, (&raw const wrong).cast(), size), TdErrorArgument);
        let mut count = 0;
        assert_eq!(td_simulated(peer, made.component, null_mut(), 0, &mut count), TdErrorUsage, "no step is run");
        assert_eq!(td_set_input(peer, data, size), TdErrorSchema, "there is no input");
        td_peer_free(peer);
        td_peer_free(null_mut());
    }
}
