//! What a schema says of itself: to other builds, as digests, and to people.

use super::{ComponentEntry, Inner, KindEntry, MessageEntry, Schema};
use crate::rewind::kept::KeptEntry;
use std::fmt::Write as _;
use tidelock_netcore::control::SchemaEntry;
use xxhash_rust::xxh3::Xxh3;

impl Schema {
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
            digest: m.layout.digest(&m.name) ^ m.promise as u64,
        };
        let kinds = inner.kinds.iter().map(|k| SchemaEntry { name: format!("kind {}", k.name), digest: self.kind_digest(k) });
        let input = inner.input.iter().map(|i| SchemaEntry { name: format!("input {}", i.name), digest: i.digest() });
        let sort = |k: &KeptEntry| if k.first.is_some() { "resource" } else { "checkpoint" };
        let resources = inner.kept.iter().filter(|k| k.only);
        let resources = resources.map(|k| SchemaEntry { name: format!("{} {}", sort(k), k.name), digest: k.line as u64 });
        let messages = inner.messages.iter().map(message);
        let larges = inner.larges.iter().map(|l| SchemaEntry { name: format!("large {}", l.name), digest: 0 });
        let orders = inner.orders.iter();
        let orders = orders.map(|o| SchemaEntry { name: format!("order {}", o.name), digest: o.layout.digest(&o.name) });
        let components = inner.components.iter().map(component);
        let definitions = inner.definitions.iter();
        let definitions = definitions.map(|d| SchemaEntry { name: format!("definition {}", d.name), digest: 0 });
        let collections = inner.collections.iter();
        let collections =
            collections.map(|c| SchemaEntry { name: format!("{} {}", c.sort.word(), c.name), digest: c.max as u64 });
        let rest = orders.chain(input).chain(resources).chain(definitions).chain(collections);
        components.chain(kinds).chain(messages).chain(larges).chain(rest).collect()
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

    /// The resulting table: for each kind and component who decides, and how it is shown. A component that
    /// is predicted stands there twice: as itself, and after all others as it is on the simulation grid.
    #[must_use]
    pub fn explain(&self) -> String {
        let inner = &self.0;
        let mut out = format!("schema `{}`, digest {:016x}\n", inner.name, self.digest());
        let width = inner.components.iter().map(|c| c.name.len()).max().unwrap_or(0).max(9);
        for (kind_index, kind) in inner.kinds.iter().enumerate() {
            let (name, policy) = (&kind.name, kind.policy.name());
            if kind.is_computed() {
                let line = kind.policy.timeline();
                let _ = writeln!(out, "kind `{name}`: {policy}, computed by every peer on the {line:?} timeline");
                continue;
            }
            let _ =
                writeln!(out, "kind `{name}`: lifetime {policy}, absent owner: {:?}, requests: {:?}", kind.absent, kind.requests);
            let forms = inner.components.len() - inner.grids.len();
            for (i, (component, policy)) in inner.components.iter().zip(&kind.policies[1..]).take(forms).enumerate() {
                let from = if kind.overrides.iter().any(|o| o.0 == component.type_id) {
                    "chosen in the kind"
                } else if component.policy.is_some() {
                    "chosen for the component"
                } else {
                    "the kind's"
                };
                let kept = inner.predicted[kind_index] >> (i + 1) & 1 != 0;
                let unkept = if super::predicts(&**policy) && !kept { ", not predicted: it has no checkpoint" } else { "" };
                let _ = writeln!(out, "  {:width$}  {:12} ({from}{unkept})", component.name, policy.name());
            }
        }
        for (i, c) in inner.components.iter().enumerate() {
            let flags = [
                (inner.fine >> (i + 1) & 1 != 0, "on the grid, for who predicts it"),
                (c.interpolate && !c.reckoned, "interpolated"),
                (c.reckoned, "extrapolated"),
                (c.checkpoint, "checkpointed"),
                (c.parent, "names the parent"),
            ];
            let flags: Vec<_> = flags.iter().filter(|f| f.0).map(|f| f.1).collect();
            let (words, bits) = (c.column.layout().words(), c.column.layout().worst_bits());
            let _ = writeln!(
                out,
                "component `{}`: {words} words, at most {bits} bits{}",
                c.name,
                flags.iter().map(|f| format!(", {f}")).collect::<String>()
            );
        }
        for kept in inner.kept.iter().filter(|k| k.only && k.first.is_none()) {
            let _ = writeln!(out, "component `{}`: checkpointed, does not travel", kept.name);
        }
        for resource in inner.kept.iter().filter(|k| k.first.is_some()) {
            let _ = writeln!(out, "resource `{}`: checkpointed, {:?} timeline", resource.name, resource.line);
        }
        for m in &inner.messages {
            let _ = writeln!(out, "message `{}`: {}, at most {} bits", m.name, m.promise.words(), m.layout.worst_bits());
        }
        for l in &inner.larges {
            let _ = writeln!(out, "large message `{}`: in pieces", l.name);
        }
        for o in &inner.orders {
            let _ = writeln!(out, "order `{}`: sealed by the host, at most {} bits", o.name, o.layout.worst_bits());
        }
        for definition in &inner.definitions {
            let _ = writeln!(out, "definition `{}`", definition.name);
        }
        for c in &inner.collections {
            let (word, full) = (c.sort.word(), if c.rolls { "the oldest go" } else { "one more is refused" });
            let _ = writeln!(out, "{word} `{}`: it grows to {} items, then {full}", c.name, c.max);
        }
        if let Some(input) = &inner.input {
            let _ = writeln!(out, "input `{}`: at most {} bits a tick", input.name, input.layout.worst_bits());
        }
        out
    }
}

pub(super) fn digest(inner: &Inner) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(inner.name.as_bytes());
    inner.presence.hash_into(&mut hasher);
    for c in &inner.components {
        hasher.update(&c.digest.to_le_bytes());
    }
    for c in 0..inner.columns() {
        hasher.update(&inner.velocity(c).map_or(0, |v| v.source as u64).to_le_bytes());
    }
    for k in &inner.kinds {
        hasher.update(k.name.as_bytes());
        k.policies.iter().for_each(|p| hasher.update(p.name().as_bytes()));
    }
    for m in &inner.messages {
        hasher.update(&m.layout.digest(&m.name).to_le_bytes());
        hasher.update(&[m.promise as u8]);
    }
    for l in &inner.larges {
        hasher.update(b"large ");
        hasher.update(l.name.as_bytes());
    }
    for o in &inner.orders {
        hasher.update(b"order ");
        hasher.update(&o.layout.digest(&o.name).to_le_bytes());
    }
    if let Some(input) = &inner.input {
        hasher.update(b"input");
        hasher.update(&input.digest().to_le_bytes());
    }
    for definition in &inner.definitions {
        hasher.update(b"definition ");
        hasher.update(definition.name.as_bytes());
    }
    for collection in &inner.collections {
        hasher.update(collection.sort.word().as_bytes());
        hasher.update(b" ");
        hasher.update(collection.name.as_bytes());
        hasher.update(&(collection.max as u32).to_le_bytes());
    }
    for kept in inner.kept.iter().filter(|k| k.only) {
        hasher.update(if kept.first.is_some() { &b"resource "[..] } else { b"checkpoint " });
        hasher.update(kept.name.as_bytes());
        hasher.update(&[kept.line as u8]);
    }
    hasher.digest()
}
