//! Who decides what, as the schema's calls resolve, and whether that can work.

use super::{ComponentEntry, KindEntry, MessageEntry, SchemaMistake};
use crate::forecast::Velocity;
use crate::frames::ORDER_BITS;
use crate::input::InputEntry;
use crate::peer_id::PeerId;
use crate::policy::{Apply, Facts, OWNER_SLOTS, Policy, Timeline};
use crate::rewind::kept::KeptEntry;
use std::any::TypeId;
use std::sync::Arc;
use tidelock_netcore::limits;

/// Component within a kind, then component, then kind.
pub(super) fn resolve(kind: &KindEntry, components: &[ComponentEntry]) -> Vec<Arc<dyn Policy>> {
    let of = |c: &ComponentEntry| {
        let chosen = kind.overrides.iter().find(|o| o.0 == c.type_id).map(|o| &o.1);
        chosen.or(c.policy.as_ref()).unwrap_or(&kind.policy).clone()
    };
    std::iter::once(kind.policy.clone()).chain(components.iter().map(of)).collect()
}

/// By column: which other says how it moves.
pub(super) fn velocities(components: &[ComponentEntry], mistakes: &mut Vec<SchemaMistake>) -> Vec<Option<Velocity>> {
    let mut velocity = |own: &ComponentEntry| {
        let type_id = own.velocity?;
        let source = components.iter().position(|c| c.type_id == type_id);
        let found = source.and_then(|i| Velocity::new(own.column.layout(), i + 1, components[i].column.layout()));
        if found.is_none() {
            mistakes.push(SchemaMistake::Velocity(own.name.clone()));
        }
        found
    };
    std::iter::once(None).chain(components.iter().map(&mut velocity)).collect()
}

pub(super) fn slots(components: &[ComponentEntry], kinds: &[KindEntry], mistakes: &mut Vec<SchemaMistake>) -> usize {
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

/// What each kind's owner predicts, and for each such component that has steps its form on the simulation grid, which is put after
/// all others. Components without `.checkpoint()` cannot be taken back, so they are not predicted.
pub(super) fn add_grids(components: &mut Vec<ComponentEntry>, kinds: &mut [KindEntry]) -> (Vec<u64>, Vec<(usize, usize)>) {
    let of_kind = |kind: &KindEntry, components: &[ComponentEntry]| {
        let all = components.iter().zip(&kind.policies[1..]).enumerate();
        let is_it = |c: &ComponentEntry, policy: &dyn Policy| c.checkpoint && predicts(policy);
        all.fold(0u64, |mask, (i, (c, policy))| mask | u64::from(is_it(c, &**policy)) << ((i + 1) & 63))
    };
    let predicted: Vec<u64> = kinds.iter().map(|kind| of_kind(kind, components)).collect();
    let any = predicted.iter().fold(0, |a, b| a | b);
    let mut grids = Vec::new();
    for c in (1..=components.len().min(limits::COMPONENTS)).filter(|c| any >> c & 1 != 0) {
        let entry = &components[c - 1];
        let Some(column) = entry.column.on_grid() else { continue };
        let twin = ComponentEntry {
            name: entry.name.clone(),
            type_id: entry.type_id,
            digest: column.layout().digest(&entry.name),
            column,
            interpolate: false,
            reckoned: false,
            checkpoint: false,
            parent: false,
            notify: false,
            tolerance: entry.tolerance,
            velocity: entry.velocity,
            policy: entry.policy.clone(),
        };
        components.push(twin);
        grids.push((c, components.len()));
    }
    for kind in kinds {
        kind.policies = resolve(kind, components);
    }
    (predicted, grids)
}

/// Combinations of policies that cannot work.
pub(super) fn check_timelines(
    components: &[ComponentEntry],
    kinds: &[KindEntry],
    input: bool,
    mistakes: &mut Vec<SchemaMistake>,
) {
    let chosen = components.iter().filter_map(|c| Some((&c.name, c.policy.as_ref()?)));
    let named = |id: &TypeId| components.iter().find(|c| c.type_id == *id).map(|c| &c.name);
    let within = kinds.iter().flat_map(|k| &k.overrides).filter_map(|(id, policy)| Some((named(id)?, policy)));
    for (component, policy) in chosen.chain(within).filter(|(_, policy)| is_for_kinds(&***policy)) {
        mistakes.push(SchemaMistake::ForKinds { component: component.clone(), policy: policy.name() });
    }
    for kind in kinds {
        if kind.is_computed() && (kind.rewound || !kind.overrides.is_empty()) {
            mistakes.push(SchemaMistake::Mixed(kind.name.clone()));
        }
        let guesses = kind.is_predicted() || kind.policy.timeline() == Timeline::Rollback;
        if guesses && !input {
            mistakes.push(SchemaMistake::NoInput { kind: kind.name.clone(), policy: kind.policy.name() });
        }
    }
}

/// What has to fit a frame.
pub(super) fn check_frames(
    orders: &[MessageEntry],
    kinds: &[KindEntry],
    input: Option<&InputEntry>,
    mistakes: &mut Vec<SchemaMistake>,
) {
    let framed = !orders.is_empty() || kinds.iter().any(KindEntry::is_computed);
    let mut fits = |sort, name: &str, bits: usize, max: usize| {
        if bits > max {
            mistakes.push(SchemaMistake::TooLarge { sort, name: name.to_owned(), bits, max });
        }
    };
    for order in orders {
        fits("order", &order.name, order.layout.worst_bits(), ORDER_BITS);
    }
    if let Some(input) = input.filter(|_| framed) {
        fits("input", &input.name, input.layout.worst_bits(), limits::FRAME_INPUT_BITS);
    }
}

fn is_for_kinds(policy: &dyn Policy) -> bool {
    policy.timeline() != Timeline::Session || predicts(policy)
}

/// Does a guest that owns one of its entities run its steps, though the host decides?
pub(super) fn predicts(policy: &dyn Policy) -> bool {
    let owner = PeerId(1);
    policy.apply(Facts { local: owner, owner, host: PeerId::HOST }) == Apply::Reconcile
}

pub(super) fn check_resources(components: &[ComponentEntry], kept: &[KeptEntry], mistakes: &mut Vec<SchemaMistake>) {
    let resources = || kept.iter().filter(|k| k.first.is_some());
    let room = limits::COMPONENTS.saturating_sub(components.len());
    check("resource", resources().map(|r| (r.name.as_str(), r.type_id)), room, mistakes);
    let only = || kept.iter().filter(|k| k.first.is_none() && k.only);
    check("checkpoint", only().map(|k| (k.name.as_str(), k.type_id)), room, mistakes);
    for kept in only().filter(|k| components.iter().any(|c| c.type_id == k.type_id)) {
        mistakes.push(SchemaMistake::TypeTwice { sort: "checkpoint", name: kept.name.clone() });
    }
    for resource in resources().filter(|r| components.iter().any(|c| c.type_id == r.type_id)) {
        mistakes.push(SchemaMistake::TypeTwice { sort: "resource", name: resource.name.clone() });
    }
}

pub(super) fn check<'a>(
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
