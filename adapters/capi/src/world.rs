//! Entities and their components, the input, and what to draw.

use crate::peer::{TdPeer, entity_of, with};
use crate::raw;
use crate::schema::Component;
use crate::slots::KINDS;
use crate::status::{Failure, Outcome, TdStatus, argument, failure};
use hecs::{Entity, EntityBuilder};
use std::ffi::c_void;
use std::time::Duration;
use tidelock::netcore::limits;
use tidelock::replicate::{Quantiser, Restorer};
use tidelock::{NetId, PeerId, Source};

/// In place of a component's id: any networked entity.
pub const TD_ANY: u32 = u32::MAX;

/// A component of what is to be spawned.
#[repr(C)]
pub struct TdValue {
    /// The component's id.
    pub component: u32,
    /// Its struct.
    pub data: *const c_void,
    /// `sizeof` of the struct.
    pub size: usize,
}

/// The bytes of a component's struct.
///
/// # Safety
/// `data` is null or has `size` bytes, which nobody writes to meanwhile.
unsafe fn bytes<'a>(component: &Component, data: *const c_void, size: usize) -> Result<&'a [u8], Failure> {
    check_size(component, size)?;
    // SAFETY: the caller promises it; bytes have no alignment.
    unsafe { raw::slice("data", data.cast::<u8>(), size) }
}

fn check_size(component: &Component, size: usize) -> Result<(), Failure> {
    if size == component.shape.size {
        return Ok(());
    }
    Err(argument(format_args!("`{}` has {} bytes, not {size}", component.name, component.shape.size)))
}

/// Spawns a networked entity, in the step that is run or outside of one; its handle goes to `entity`.
///
/// # Safety
/// `peer` came from this library, `values` are `count` ones as described, `entity` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_spawn(
    peer: *mut TdPeer,
    kind: u32,
    values: *const TdValue,
    count: usize,
    entity: *mut u64,
) -> TdStatus {
    let call = |td: &mut TdPeer| {
        // SAFETY: this function asks for the same.
        let (values, out) = unsafe { (raw::slice("values", values, count)?, raw::one_mut("entity", entity)?) };
        if kind as usize >= td.kinds.len() {
            return Err(argument(format_args!("there is no kind {kind}")));
        }
        let mut builder = EntityBuilder::new();
        for value in values {
            let component = td.component(value.component)?;
            // SAFETY: this function asks for the same.
            let bytes = unsafe { bytes(&component, value.data, value.size) }?;
            component.column().add(&component.shape, bytes, &mut builder)?;
        }
        let entity = KINDS[kind as usize].spawn(&mut td.peer, &mut td.world, &mut builder)?;
        *out = entity.to_bits().get();
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Despawns a networked entity, everywhere.
///
/// # Safety
/// `peer` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_despawn(peer: *mut TdPeer, entity: u64) -> TdStatus {
    let call = |TdPeer { peer, world, .. }: &mut TdPeer| {
        let entity = entity_of(entity)?;
        match peer.step() {
            Some(mut step) => step.despawn(world, entity)?,
            None => peer.despawn(world, entity)?,
        }
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Hands an entity over (host only): `slot` 0 is its owner, `to` a guest, 0 the host, 65535 nobody.
///
/// # Safety
/// `peer` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_grant(peer: *mut TdPeer, entity: u64, slot: u32, to: u32) -> TdStatus {
    let call = |TdPeer { peer, world, .. }: &mut TdPeer| {
        let to = u16::try_from(to).map_err(|_| argument(format_args!("there is no peer {to}")))?;
        peer.grant(world, entity_of(entity)?, slot as usize, PeerId(to))?;
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Marks that an entity has jumped, when its pose is set: what is drawn jumps with it.
///
/// # Safety
/// `peer` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_teleport(peer: *mut TdPeer, entity: u64) -> TdStatus {
    let call = |TdPeer { peer, world, .. }: &mut TdPeer| {
        peer.teleport(world, entity_of(entity)?)?;
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Who owns an entity: a peer's number goes to `owner`.
///
/// # Safety
/// `peer` came from this library, `owner` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_owner(peer: *mut TdPeer, entity: u64, slot: u32, owner: *mut u32) -> TdStatus {
    let call = |TdPeer { peer, world, .. }: &mut TdPeer| {
        // SAFETY: this function asks for the same.
        let out = unsafe { raw::one_mut("owner", owner) }?;
        let Some(owner) = peer.owner(world, entity_of(entity)?, slot as usize) else { return Ok(TdStatus::TdNone) };
        *out = owner.0.into();
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// The name that an entity has on all peers.
///
/// # Safety
/// `peer` came from this library, `name` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_name_of(peer: *mut TdPeer, entity: u64, name: *mut u64) -> TdStatus {
    let call = |TdPeer { peer, world, .. }: &mut TdPeer| {
        // SAFETY: this function asks for the same.
        let out = unsafe { raw::one_mut("name", name) }?;
        let Some(name) = peer.name_of(world, entity_of(entity)?) else { return Ok(TdStatus::TdNone) };
        *out = name.0;
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// The local entity behind a name.
///
/// # Safety
/// `peer` came from this library, `entity` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_entity_of(peer: *mut TdPeer, name: u64, entity: *mut u64) -> TdStatus {
    let call = |TdPeer { peer, .. }: &mut TdPeer| {
        // SAFETY: this function asks for the same.
        let out = unsafe { raw::one_mut("entity", entity) }?;
        let Some(entity) = peer.entity_of(NetId(name)) else { return Ok(TdStatus::TdNone) };
        *out = entity.to_bits().get();
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Reads a component; `TD_NONE` if the entity has none.
///
/// # Safety
/// `peer` came from this library, `data` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_get(peer: *mut TdPeer, entity: u64, component: u32, data: *mut c_void, size: usize) -> TdStatus {
    let call = |td: &mut TdPeer| {
        let (component, entity) = (td.component(component)?, entity_of(entity)?);
        check_size(&component, size)?;
        // SAFETY: this function asks for the same; bytes have no alignment.
        let to = unsafe { raw::slice_mut("data", data.cast::<u8>(), size) }?;
        let found = component.column().get(&td.world, entity, to);
        Ok(if found { TdStatus::TdOk } else { TdStatus::TdNone })
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Writes a component, or adds it. It travels if this peer has authority over it.
///
/// # Safety
/// `peer` came from this library, `data` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_set(peer: *mut TdPeer, entity: u64, component: u32, data: *const c_void, size: usize) -> TdStatus {
    let call = |td: &mut TdPeer| {
        let (component, entity) = (td.component(component)?, entity_of(entity)?);
        // SAFETY: this function asks for the same.
        let from = unsafe { bytes(&component, data, size) }?;
        let found = component.column().set(&mut td.world, entity, &component.shape, from)?;
        if found { Ok(TdStatus::TdOk) } else { Err(argument("the entity is not in the world")) }
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Removes a component; `TD_NONE` if the entity has none.
///
/// # Safety
/// `peer` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_remove(peer: *mut TdPeer, entity: u64, component: u32) -> TdStatus {
    let call = |td: &mut TdPeer| {
        let (component, entity) = (td.component(component)?, entity_of(entity)?);
        let found = component.column().remove(&mut td.world, entity);
        Ok(if found { TdStatus::TdOk } else { TdStatus::TdNone })
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Has this peer authority over a component of an entity? `TD_OK`, or `TD_NONE`.
///
/// # Safety
/// `peer` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_has_authority(peer: *mut TdPeer, entity: u64, component: u32) -> TdStatus {
    let call = |td: &mut TdPeer| {
        let (component, entity) = (td.component(component)?, entity_of(entity)?);
        let has = component.column().has_authority(&td.peer, &td.world, entity);
        Ok(if has { TdStatus::TdOk } else { TdStatus::TdNone })
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Fills a list of C; what does not fit is counted all the same.
struct List<'a> {
    out: &'a mut [u64],
    count: usize,
}

impl List<'_> {
    fn push(&mut self, entity: Entity) {
        if let Some(place) = self.out.get_mut(self.count) {
            *place = entity.to_bits().get();
        }
        self.count += 1;
    }

    fn finish(self, count: &mut usize) -> Outcome {
        *count = self.count;
        if self.count <= self.out.len() {
            return Ok(TdStatus::TdOk);
        }
        Err(failure(TdStatus::TdErrorBuffer, format_args!("there are {}, and room for {}", self.count, self.out.len())))
    }
}

/// The networked entities that have a component (or `TD_ANY`), in the order of their names. How many there are goes to `count`,
/// also if that is more than `capacity`, which is `TD_ERROR_BUFFER`.
///
/// # Safety
/// `peer` came from this library, `entities` has room for `capacity`, `count` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_entities(
    peer: *mut TdPeer,
    component: u32,
    entities: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> TdStatus {
    let call = |td: &mut TdPeer| {
        // SAFETY: this function asks for the same.
        let (out, count) = unsafe { (raw::slice_mut("entities", entities, capacity)?, raw::one_mut("count", count)?) };
        let mut found = Vec::new();
        let mut tell = |entity| found.extend(td.peer.name_of(&td.world, entity).map(|name| (name, entity)));
        if component == TD_ANY {
            td.world.query::<(Entity, &tidelock::Networked)>().iter().for_each(|(entity, _)| tell(entity));
        } else {
            td.component(component)?.column().each(&td.world, &mut tell);
        }
        found.sort_unstable_by_key(|(name, _)| *name);
        let mut list = List { out, count: 0 };
        found.into_iter().for_each(|(_, entity)| list.push(entity));
        list.finish(count)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// The entities with a component that this peer simulates in the step that is run: those it has authority over or predicts; of a step
/// that is run again, those that went back.
///
/// # Safety
/// `peer` came from this library, `entities` has room for `capacity`, `count` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_simulated(
    peer: *mut TdPeer,
    component: u32,
    entities: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> TdStatus {
    let call = |td: &mut TdPeer| {
        // SAFETY: this function asks for the same.
        let (out, count) = unsafe { (raw::slice_mut("entities", entities, capacity)?, raw::one_mut("count", count)?) };
        let component = td.component(component)?;
        let mut list = List { out, count: 0 };
        component.column().simulated(&mut td.peer, &td.world, &mut |entity| list.push(entity))?;
        list.finish(count)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// What this peer does, from the next tick on, until it is set again.
///
/// # Safety
/// `peer` came from this library, `data` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_set_input(peer: *mut TdPeer, data: *const c_void, size: usize) -> TdStatus {
    let call = |td: &mut TdPeer| {
        let shape = td.input.clone().ok_or_else(no_input)?;
        if size != shape.size {
            return Err(argument(format_args!("the input has {} bytes, not {size}", shape.size)));
        }
        // SAFETY: this function asks for the same; bytes have no alignment.
        let from = unsafe { raw::slice("data", data.cast::<u8>(), size) }?;
        let mut clean = vec![0; size];
        shape.clean(from, &mut clean)?;
        let mut words = vec![0; shape.words()];
        let quantised = shape.quantise_bytes(&clean, &mut Quantiser::new(&mut words, &|_| None));
        quantised.map_err(|error| failure(TdStatus::TdErrorArgument, error))?;
        td.peer.set_input_words(&words)?;
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

fn no_input() -> Failure {
    failure(TdStatus::TdErrorSchema, "the schema has no input")
}

/// What a peer does in the step that is run: this peer's own, or at the host anyone's. `TD_NONE` if it is absent, and zero.
///
/// # Safety
/// `peer` came from this library, `data` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_input(peer: *mut TdPeer, of: u32, data: *mut c_void, size: usize) -> TdStatus {
    let call = |td: &mut TdPeer| {
        let shape = td.input.clone().ok_or_else(no_input)?;
        if size != shape.size {
            return Err(argument(format_args!("the input has {} bytes, not {size}", shape.size)));
        }
        // SAFETY: this function asks for the same; bytes have no alignment.
        let to = unsafe { raw::slice_mut("data", data.cast::<u8>(), size) }?;
        let of = PeerId(u16::try_from(of).map_err(|_| argument(format_args!("there is no peer {of}")))?);
        let step = td.peer.step().ok_or_else(|| failure(TdStatus::TdErrorUsage, "no step is run"))?;
        let input = step.input_words(of)?;
        to.fill(0);
        let restored = shape.restore_bytes(&mut Restorer::new(input.value, &|_| None), to);
        restored.map_err(|error| failure(TdStatus::TdErrorUsage, error))?;
        Ok(if input.source == Source::Absent { TdStatus::TdNone } else { TdStatus::TdOk })
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// What to draw of a component that is interpolated or extrapolated, at `now_us`: the entities, and as many structs one after the
/// other in `data`, of `size` bytes each. How many there are goes to `count`, also if that is more than `capacity`, which is
/// `TD_ERROR_BUFFER`.
///
/// # Safety
/// `peer` came from this library, `entities` has room for `capacity`, `data` for `capacity` times `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_present(
    peer: *mut TdPeer,
    component: u32,
    now_us: u64,
    entities: *mut u64,
    data: *mut c_void,
    size: usize,
    capacity: usize,
    count: *mut usize,
) -> TdStatus {
    let call = |td: &mut TdPeer| {
        let component = td.component(component)?;
        check_size(&component, size)?;
        if capacity > limits::ROWS * 2 {
            return Err(argument("there are never so many entities"));
        }
        // SAFETY: this function asks for the same; bytes have no alignment.
        let (out, to, count) = unsafe {
            let to = raw::slice_mut("data", data.cast::<u8>(), capacity * size)?;
            (raw::slice_mut("entities", entities, capacity)?, to, raw::one_mut("count", count)?)
        };
        let mut list = List { out, count: 0 };
        component.column().present(&td.peer, &td.world, Duration::from_micros(now_us), &mut |entity, value| {
            let at = list.count * size;
            if let Some(to) = to.get_mut(at..at + size) {
                to.copy_from_slice(&value[..size]);
            }
            list.push(entity);
        })?;
        list.finish(count)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}
