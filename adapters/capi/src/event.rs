//! What happened, told once, one after the other.

use crate::peer::{TdPeer, with};
use crate::raw;
use crate::status::TdStatus;
use hecs::Entity;
use std::ffi::c_char;
use tidelock::News;

/// `TdEvent::event`: this peer is in the session; `peer` is who it is.
pub const TD_EVENT_ADMITTED: u32 = 1;
/// The session is over; `text` says why.
pub const TD_EVENT_DISCONNECTED: u32 = 2;
/// `peer` has joined; `text` is what it calls itself.
pub const TD_EVENT_JOINED: u32 = 3;
/// `peer` has left; `text` says why.
pub const TD_EVENT_LEFT: u32 = 4;
/// `entity` is here, with all its components; `id` is its kind.
pub const TD_EVENT_SPAWNED: u32 = 5;
/// `entity` is gone.
pub const TD_EVENT_DESPAWNED: u32 = 6;
/// `entity` is out of sight.
pub const TD_EVENT_HIDDEN: u32 = 7;
/// `entity` has got component `id`.
pub const TD_EVENT_ADDED: u32 = 8;
/// Component `id` of `entity` has another value.
pub const TD_EVENT_CHANGED: u32 = 9;
/// `entity` has lost component `id`.
pub const TD_EVENT_REMOVED: u32 = 10;
/// `peer` owns `entity` now; `id` is the slot.
pub const TD_EVENT_OWNED: u32 = 11;
/// A write of `peer` was refused (host); `id` is the component, or none; `text` says why.
pub const TD_EVENT_REFUSED: u32 = 12;
/// Component `id` of `entity` cannot travel; `text` says why.
pub const TD_EVENT_UNSENDABLE: u32 = 13;
/// The host's comparison of the worlds has come; `peer` is with whom, `text` what differs, empty if nothing does.
pub const TD_EVENT_COMPARED: u32 = 14;
/// Events were lost because nobody fetched them.
pub const TD_EVENT_MISSED: u32 = 15;
/// Something else; `text` says what.
pub const TD_EVENT_OTHER: u32 = 16;

/// In `TdEvent::id`: none.
pub const TD_NO_ID: u32 = u32::MAX;

/// Something that happened. What it has nothing to say of is zero; `id` is `TD_NO_ID` then.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TdEvent {
    /// `TD_EVENT_…`.
    pub event: u32,
    /// Who.
    pub peer: u32,
    /// The local entity, or what it was.
    pub entity: u64,
    /// Its name on all peers.
    pub name: u64,
    /// A kind, a component or a slot.
    pub id: u32,
    /// Words, cut off where they are too long, with a zero byte at their end.
    pub text: [c_char; 252],
}

impl TdEvent {
    fn of(event: u32) -> Self {
        Self { event, peer: 0, entity: 0, name: 0, id: TD_NO_ID, text: [0; 252] }
    }

    fn peer(self, peer: tidelock::PeerId) -> Self {
        Self { peer: peer.0.into(), ..self }
    }

    fn entity(self, entity: Entity) -> Self {
        Self { entity: entity.to_bits().get(), ..self }
    }

    fn id(self, id: Option<u32>) -> Self {
        Self { id: id.unwrap_or(TD_NO_ID), ..self }
    }

    fn text(mut self, words: impl std::fmt::Display) -> Self {
        let words = words.to_string().replace('\0', "");
        let mut end = words.len().min(self.text.len() - 1);
        while !words.is_char_boundary(end) {
            end -= 1;
        }
        for (to, from) in self.text.iter_mut().zip(&words.as_bytes()[..end]) {
            *to = *from as c_char;
        }
        self
    }
}

impl TdPeer {
    fn tell(&self, news: News) -> TdEvent {
        let component = |name: &str| self.by_name.get(name).copied();
        match news {
            News::Admitted { local } => TdEvent::of(TD_EVENT_ADMITTED).peer(local),
            News::Disconnected { reason } => TdEvent::of(TD_EVENT_DISCONNECTED).text(reason),
            News::Joined { peer, name } => TdEvent::of(TD_EVENT_JOINED).peer(peer).text(name),
            News::Left { peer, reason } => TdEvent::of(TD_EVENT_LEFT).peer(peer).text(reason),
            News::Spawned { entity, net, kind } => {
                let kind = self.kinds.iter().position(|known| *known == kind).map(|id| id as u32);
                TdEvent { name: net.0, ..TdEvent::of(TD_EVENT_SPAWNED).entity(entity).id(kind) }
            }
            News::Despawned { entity, net } => TdEvent { name: net.0, ..TdEvent::of(TD_EVENT_DESPAWNED).entity(entity) },
            News::Hidden { entity, net } => TdEvent { name: net.0, ..TdEvent::of(TD_EVENT_HIDDEN).entity(entity) },
            News::Added { entity, component: c } => TdEvent::of(TD_EVENT_ADDED).entity(entity).id(component(&c)),
            News::Changed { entity, component: c } => TdEvent::of(TD_EVENT_CHANGED).entity(entity).id(component(&c)),
            News::Removed { entity, component: c } => TdEvent::of(TD_EVENT_REMOVED).entity(entity).id(component(&c)),
            News::Owned { entity, slot, owner } => TdEvent::of(TD_EVENT_OWNED).entity(entity).peer(owner).id(Some(slot as u32)),
            News::Refused { peer, net, component: c, refusal } => {
                let event = TdEvent::of(TD_EVENT_REFUSED).peer(peer).id(component(&c)).text(format_args!("{refusal:?}"));
                TdEvent { name: net.0, ..event }
            }
            News::Unsendable { entity, component: c, error } => {
                TdEvent::of(TD_EVENT_UNSENDABLE).entity(entity).id(component(&c)).text(error)
            }
            News::Compared { peer, differing } => TdEvent::of(TD_EVENT_COMPARED).peer(peer).text(differing.join(", ")),
            News::Missed { count } => TdEvent::of(TD_EVENT_MISSED).text(count),
            other => TdEvent::of(TD_EVENT_OTHER).text(format_args!("{other:?}")),
        }
    }
}

/// The next thing that happened; `TD_NONE` if there is none.
///
/// # Safety
/// `peer` came from this library, `event` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn td_poll_event(peer: *mut TdPeer, event: *mut TdEvent) -> TdStatus {
    let call = |td: &mut TdPeer| {
        // SAFETY: this function asks for the same.
        let out = unsafe { raw::one_mut("event", event) }?;
        let Some(news) = td.peer.poll_news() else { return Ok(TdStatus::TdNone) };
        *out = td.tell(news);
        Ok(TdStatus::TdOk)
    };
    // SAFETY: this function asks for the same.
    unsafe { with(peer, call) }
}
