//! Presence: the first component of every row. Existence, name, kind, owners and the set of components are a value like any
//! other, so they are sent, acknowledged and repaired like any other.

use crate::layout::{FieldCode, Layout, LayoutBuilder, Meaning};
use crate::netid::NetId;
use crate::peer_id::PeerId;
use crate::policy::OWNER_SLOTS;
use tidelock_netcore::limits;

/// Is there an entity in the row?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    /// The row is free, or its publisher no longer speaks for the entity.
    #[default]
    Free,
    Alive,
    /// Despawned: a tombstone until everybody has acknowledged it.
    Dead,
}

/// Who owns an entity (or some of its components), and the how-manieth owner that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub(crate) peer: PeerId,
    pub(crate) epoch: u16,
}

pub(crate) type Owners = [Ownership; OWNER_SLOTS];

pub(crate) const UNOWNED: Ownership = Ownership { peer: PeerId::HOST, epoch: 0 };

/// The value of component 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Presence {
    pub(crate) life: Life,
    pub(crate) net: NetId,
    pub(crate) kind: usize,
    /// Counts teleports: a sample with another count is not blended with the one before.
    pub(crate) cut: u8,
    /// Bit c − 1: the entity has component c.
    pub(crate) components: u64,
    pub(crate) owners: Owners,
}

pub(crate) const CUT_BITS: u32 = 6;
const NOBODY_WORD: u32 = limits::PEERS as u32;

/// Words before the sets of components.
const HEAD: usize = 5;

/// The layout for a schema's numbers of components, kinds and owner slots.
pub(crate) fn layout(components: usize, kinds: usize, slots: usize) -> Layout {
    let mut l = LayoutBuilder::new();
    l.choice("life", &["free", "alive", "dead"]);
    l.entity("net");
    l.field("kind", FieldCode::Choice { count: kinds.max(1) as u32 }, Meaning::Plain);
    l.field("cut", FieldCode::Wrapping { bits: CUT_BITS }, Meaning::Plain);
    for first in (0..components).step_by(32) {
        let bits = (components - first).min(32);
        let max = ((1u64 << bits) - 1) as u32;
        l.field(&format!("components.{first}"), FieldCode::Number { max, order: 0 }, Meaning::Plain);
    }
    for slot in 0..slots {
        l.field(&format!("owner.{slot}"), FieldCode::Choice { count: NOBODY_WORD + 1 }, Meaning::Plain);
        l.field(&format!("epoch.{slot}"), FieldCode::Number { max: u32::from(u16::MAX), order: 0 }, Meaning::Plain);
    }
    l.build().expect("the presence layout is within every limit for every schema that was accepted")
}

impl Presence {
    pub(crate) fn write(&self, components: usize, slots: usize, words: &mut [u32]) {
        words[0] = self.life as u32;
        words[1] = self.net.0 as u32;
        words[2] = (self.net.0 >> 32) as u32;
        words[3] = self.kind as u32;
        words[4] = u32::from(self.cut);
        let sets = components.div_ceil(32);
        for (i, word) in words[HEAD..HEAD + sets].iter_mut().enumerate() {
            *word = (self.components >> (32 * i)) as u32;
        }
        for (pair, owner) in words[HEAD + sets..].chunks_mut(2).zip(&self.owners[..slots]) {
            pair[0] = if owner.peer == PeerId::NOBODY { NOBODY_WORD } else { u32::from(owner.peer.0) };
            pair[1] = u32::from(owner.epoch);
        }
    }

    /// The inverse of [`write`](Self::write), for words that passed the layout's checks.
    pub(crate) fn read(words: &[u32], components: usize, slots: usize) -> Self {
        let sets = components.div_ceil(32);
        let mut owners = [UNOWNED; OWNER_SLOTS];
        for (pair, owner) in words[HEAD + sets..].chunks(2).zip(&mut owners[..slots]) {
            let peer = if pair[0] == NOBODY_WORD { PeerId::NOBODY } else { PeerId(pair[0] as u16) };
            *owner = Ownership { peer, epoch: pair[1] as u16 };
        }
        let life = match words[0] {
            1 => Life::Alive,
            2 => Life::Dead,
            _ => Life::Free,
        };
        let (net, set) = (net_in(words), components_in(words, components));
        Self { life, net, kind: words[3] as usize, cut: words[4] as u8, components: set, owners }
    }

    pub(crate) fn has(&self, c: usize) -> bool {
        c > 0 && self.components >> (c - 1) & 1 != 0
    }
}

/// The name in the words of a presence.
#[inline]
pub(crate) fn net_in(words: &[u32]) -> NetId {
    NetId(u64::from(words[1]) | u64::from(words[2]) << 32)
}

/// The kind in the words of a presence.
#[inline]
pub(crate) fn kind_in(words: &[u32]) -> usize {
    words[3] as usize
}

/// The set of components in the words of a presence.
#[inline]
pub(crate) fn components_in(words: &[u32], components: usize) -> u64 {
    words[HEAD..HEAD + components.div_ceil(32)].iter().rev().fold(0u64, |a, w| a << 32 | u64::from(*w))
}
