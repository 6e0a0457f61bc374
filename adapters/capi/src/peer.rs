//! Peers: made, driven frame by frame, and freed.

use crate::raw;
use crate::schema::{Component, TdSchema};
use crate::shape::Shape;
use crate::status::{Failure, Outcome, TdStatus, argument, failure, guard};
use hecs::{Entity, World};
use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;
use tidelock::netcore::error::DisconnectReason;
use tidelock::netcore::transport::Transport;
use tidelock::policy::Timeline;
use tidelock::{Config, Peer};
use tidelock_loopback::{Conditions, Network};
use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport};

/// Settings of a peer. What is zero is as usual.
#[repr(C)]
pub struct TdConfig {
    /// What it calls itself; may be null.
    pub name: *const c_char,
    /// Ticks per second.
    pub tick_rate: u32,
    /// Sends once in so many ticks.
    pub send_every: u32,
    /// Bits per second to each peer.
    pub bandwidth: u64,
    /// The most guests.
    pub guests: u32,
    /// How many ticks a prediction can be taken back.
    pub rewind: u32,
}

/// A tick to run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TdStep {
    /// Its number.
    pub tick: u64,
    /// Its length in seconds.
    pub seconds: f32,
    /// 1 if it was run before, else 0.
    pub rerun: u8,
    /// 0 for the session's own timeline.
    pub timeline: u8,
}

/// A network within the process, for tests and for a game alone. Used by one thread.
pub struct TdNetwork(Network);

/// One participant, with its world. Used by one thread at a time.
pub struct TdPeer {
    pub(crate) peer: Peer,
    pub(crate) world: World,
    pub(crate) components: Vec<Component>,
    pub(crate) kinds: Vec<String>,
    pub(crate) input: Option<Arc<Shape>>,
    pub(crate) by_name: HashMap<String, u32>,
    address: String,
    broken: bool,
}

impl TdPeer {
    pub(crate) fn component(&self, id: u32) -> Result<Component, Failure> {
        let component = self.components.get(id as usize).cloned();
        component.ok_or_else(|| argument(format_args!("there is no component {id}")))
    }
}

/// An entity as C has it.
pub(crate) fn entity_of(bits: u64) -> Result<Entity, Failure> {
    Entity::from_bits(bits).ok_or_else(|| argument(format_args!("{bits} is no entity")))
}

/// Runs a call on a peer; after one that has panicked there is nothing but to free it.
///
/// # Safety
/// `peer` is null, or came from one of the functions that make one, was not freed, and is used by this thread alone.
pub(crate) unsafe fn with(peer: *mut TdPeer, call: impl FnOnce(&mut TdPeer) -> Outcome) -> TdStatus {
    let status = guard(|| {
        // SAFETY: the caller promises it.
        let peer = unsafe { raw::one_mut("peer", peer) }?;
        if peer.broken {
            return Err(failure(TdStatus::TdErrorPanic, "the library has panicked with this peer before"));
        }
        call(peer)
    });
    if status == TdStatus::TdErrorPanic && !peer.is_null() {
        // SAFETY: as above; what was borrowed there is not any more.
        unsafe { (*peer).broken = true };
    }
    status
}

/// # Safety
/// `config` is null or as described.
unsafe fn config(config: *const TdConfig) -> Result<Config, Failure> {
    let mut made = Config::default();
    if config.is_null() {
        return Ok(made);
    }
    // SAFETY: the caller promises it.
    let told = unsafe { raw::one("config", config) }?;
    if !told.name.is_null() {
        // SAFETY: the caller promises that it is a text.
        made.name = unsafe { raw::text("name", told.name) }?.to_owned();
    }
    let set = |to: &mut u32, from: u32| *to = if from == 0 { *to } else { from };
    set(&mut made.tick_rate, told.tick_rate);
    set(&mut made.send_every, told.send_every);
    if told.bandwidth != 0 {
        made.bandwidth = told.bandwidth;
    }
    if told.guests != 0 {
        made.guests = u16::try_from(told.guests).map_err(|_| argument("too many guests"))?;
    }
    if told.rewind != 0 {
        made.rewind = told.rewind.into();
    }
    Ok(made)
}

/// How a peer takes part.
enum Role<T> {
    Alone,
    Host(T),
    Guest(T),
}

/// # Safety
/// `schema` came from `td_schema_new`, `settings` is null or as described, `out` can be written.
unsafe fn make<T: Transport + 'static>(
    schema: *const TdSchema,
    settings: *const TdConfig,
    out: *mut *mut TdPeer,
    role: impl FnOnce() -> Result<(Role<T>, String), Failure>,
) -> TdStatus {
    guard(|| {
        // SAFETY: the caller promises it.
        let (schema, config, out) = unsafe { (raw::one("schema", schema)?, config(settings)?, raw::one_mut("out", out)?) };
        *out = std::ptr::null_mut();
        let built = schema.built.clone().ok_or_else(|| failure(TdStatus::TdErrorSchema, "the schema is not built yet"))?;
        let (role, address) = role()?;
        let peer = match role {
            Role::Alone => Peer::alone(built, config)?,
            Role::Host(transport) => Peer::host(built, transport, config)?,
            Role::Guest(transport) => Peer::join(built, transport, config)?,
        };
        let names = schema.components.iter().enumerate();
        *out = Box::into_raw(Box::new(TdPeer {
            peer,
            world: World::new(),
            by_name: names.map(|(id, c)| (c.name.clone(), id as u32)).collect(),
            components: schema.components.clone(),
            kinds: schema.kind_names(),
            input: schema.input.as_ref().map(|input| input.1.clone()),
            address,
            broken: false,
        }));
        Ok(TdStatus::TdOk)
    })
}

fn transport(error: impl std::fmt::Display) -> Failure {
    failure(TdStatus::TdErrorTransport, error)
}

/// A session without others.
///
/// # Safety
/// `schema` came from `td_schema_new`, `config` is null or as described, `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_alone(schema: *const TdSchema, config: *const TdConfig, out: *mut *mut TdPeer) -> TdStatus {
    // SAFETY: this function asks for the same.
    unsafe { make::<QuicTransport>(schema, config, out, || Ok((Role::Alone, String::new()))) }
}

/// A host that listens for guests over QUIC at `bind`, for example `0.0.0.0:4433`; port 0 lets the system choose. What guests join
/// by is told by `td_peer_address`.
///
/// # Safety
/// `schema` came from `td_schema_new`, `config` is null or as described, `bind` is a text, `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_host_quic(
    schema: *const TdSchema,
    config: *const TdConfig,
    bind: *const c_char,
    out: *mut *mut TdPeer,
) -> TdStatus {
    let listen = || {
        // SAFETY: this function asks for the same.
        let bind = unsafe { raw::text("bind", bind) }?;
        let bind = bind.parse().map_err(|_| argument(format_args!("`{bind}` is no address and port")))?;
        let identity = Identity::generate().map_err(transport)?;
        let made = QuicTransport::listen(ListenConfig::new(bind, identity)).map_err(transport)?;
        let address = made.address();
        Ok((Role::Host(made), address))
    };
    // SAFETY: this function asks for the same.
    unsafe { make(schema, config, out, listen) }
}

/// A guest that joins a host over QUIC, by what that host's `td_peer_address` (in Rust, `QuicTransport::address`) says.
///
/// # Safety
/// `schema` came from `td_schema_new`, `config` is null or as described, `address` is a text, `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_join_quic(
    schema: *const TdSchema,
    config: *const TdConfig,
    address: *const c_char,
    out: *mut *mut TdPeer,
) -> TdStatus {
    let join = || {
        // SAFETY: this function asks for the same.
        let address = unsafe { raw::text("address", address) }?;
        let made = QuicTransport::join(address, JoinConfig::default()).map_err(transport)?;
        Ok((Role::Guest(made), address.to_owned()))
    };
    // SAFETY: this function asks for the same.
    unsafe { make(schema, config, out, join) }
}

/// A network within the process; free it with `td_network_free`. Peers on it go on without it.
#[unsafe(no_mangle)]
pub extern "C" fn td_network_new(seed: u64) -> *mut TdNetwork {
    let mut made = std::ptr::null_mut();
    guard(|| {
        made = Box::into_raw(Box::new(TdNetwork(Network::new(seed))));
        Ok(TdStatus::TdOk)
    });
    made
}

/// Frees a network. Null is nothing.
///
/// # Safety
/// `network` came from `td_network_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_network_free(network: *mut TdNetwork) {
    if !network.is_null() {
        guard(|| {
            // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
            drop(unsafe { Box::from_raw(network) });
            Ok(TdStatus::TdOk)
        });
    }
}

/// The host of a network within the process; there is one.
///
/// # Safety
/// `schema` and `network` came from this library, `config` is null or as described, `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_host_loopback(
    schema: *const TdSchema,
    config: *const TdConfig,
    network: *const TdNetwork,
    out: *mut *mut TdPeer,
) -> TdStatus {
    let host = || {
        // SAFETY: this function asks for the same.
        let network = unsafe { raw::one("network", network) }?;
        Ok((Role::Host(network.0.host()), String::new()))
    };
    // SAFETY: this function asks for the same.
    unsafe { make(schema, config, out, host) }
}

/// A guest on a network within the process, whose packets take `latency_us` microseconds each way and are lost with a probability
/// of `loss`.
///
/// # Safety
/// `schema` and `network` came from this library, `config` is null or as described, `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_join_loopback(
    schema: *const TdSchema,
    config: *const TdConfig,
    network: *const TdNetwork,
    latency_us: u64,
    loss: f64,
    out: *mut *mut TdPeer,
) -> TdStatus {
    let join = || {
        // SAFETY: this function asks for the same.
        let network = unsafe { raw::one("network", network) }?;
        if !(0.0..=1.0).contains(&loss) {
            return Err(argument("`loss` is a probability"));
        }
        let way = Conditions { latency: Duration::from_micros(latency_us), loss, ..Conditions::default() };
        Ok((Role::Guest(network.0.join(way, way)), String::new()))
    };
    // SAFETY: this function asks for the same.
    unsafe { make(schema, config, out, join) }
}

/// Frees a peer and its world, which leaves the session without a word if `td_disconnect` was not called. Null is nothing.
///
/// # Safety
/// `peer` came from this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_peer_free(peer: *mut TdPeer) {
    if !peer.is_null() {
        guard(|| {
            // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
            drop(unsafe { Box::from_raw(peer) });
            Ok(TdStatus::TdOk)
        });
    }
}

/// Writes what guests join by, with a zero byte at its end, to `buffer` of `size` bytes; `TD_ERROR_BUFFER` if that is too small.
///
/// # Safety
/// `peer` came from this library, `buffer` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_peer_address(peer: *mut TdPeer, buffer: *mut c_char, size: usize) -> TdStatus {
    let call = |peer: &mut TdPeer| {
        // SAFETY: this function asks for the same; a `c_char` is a byte.
        let buffer = unsafe { raw::slice_mut("buffer", buffer.cast::<u8>(), size) }?;
        put_text(&peer.address, buffer)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

fn put_text(text: &str, to: &mut [u8]) -> Outcome {
    if to.len() <= text.len() {
        return Err(failure(TdStatus::TdErrorBuffer, format_args!("{} bytes are needed", text.len() + 1)));
    }
    to[..text.len()].copy_from_slice(text.as_bytes());
    to[text.len()] = 0;
    Ok(TdStatus::TdOk)
}

/// Takes in what has come. Call it once per frame, before the steps, with the time since the program's start in microseconds.
///
/// # Safety
/// `peer` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_receive(peer: *mut TdPeer, now_us: u64) -> TdStatus {
    let call = |TdPeer { peer, world, .. }: &mut TdPeer| {
        peer.receive(Duration::from_micros(now_us), world)?;
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// The next tick to run; `TD_NONE` if there is none. Ask until then, and run each: what is asked and done in between belongs to it.
///
/// # Safety
/// `peer` came from this library, `step` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_next_step(peer: *mut TdPeer, step: *mut TdStep) -> TdStatus {
    let call = |TdPeer { peer, world, .. }: &mut TdPeer| {
        // SAFETY: this function asks for the same.
        let out = unsafe { raw::one_mut("step", step) }?;
        let Some(step) = peer.next_step(world) else { return Ok(TdStatus::TdNone) };
        let timeline = match step.timeline() {
            Timeline::Session => 0,
            Timeline::Rollback => 1,
            Timeline::Lockstep => 2,
        };
        *out = TdStep { tick: step.tick().0, seconds: step.seconds(), rerun: step.rerun().into(), timeline };
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Sends what has changed. Call it once per frame, after the steps.
///
/// # Safety
/// `peer` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_send(peer: *mut TdPeer, now_us: u64) -> TdStatus {
    let call = |TdPeer { peer, world, .. }: &mut TdPeer| {
        peer.send(Duration::from_micros(now_us), world)?;
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Leaves the session, or ends it for all at the host. Copies of others' entities leave the world.
///
/// # Safety
/// `peer` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_disconnect(peer: *mut TdPeer) -> TdStatus {
    let call = |TdPeer { peer, world, .. }: &mut TdPeer| {
        let reason = if peer.is_host() { DisconnectReason::HostLeft } else { DisconnectReason::Left };
        peer.disconnect(world, reason);
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}

/// Who this peer is: 0 the host, 65535 nobody yet.
///
/// # Safety
/// `peer` came from this library, `id` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_local(peer: *mut TdPeer, id: *mut u32) -> TdStatus {
    let call = |TdPeer { peer, .. }: &mut TdPeer| {
        // SAFETY: this function asks for the same.
        *unsafe { raw::one_mut("id", id) }? = peer.local().0.into();
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}
