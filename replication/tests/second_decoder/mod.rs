//! A second reader of the wire, written from `docs/WIRE.md` alone.
//!
//! It shares no code with the project and prefers what is plainly right to what is fast, so that where it and the project
//! disagree, one of them or the page has a fault. Where the page was found unclear it has been made clearer.

#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod bits;
pub mod codings;
pub mod guess;
pub mod messages;
pub mod of_common;
pub mod packet;
pub mod rows;
pub mod stream;
pub mod tables;
pub mod values;

/// Why bytes had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// They break the protocol.
    Malformed(&'static str),
    /// They are of no use any more.
    Useless(&'static str),
}

/// How one field of a value is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Number { max: u32, order: u32 },
    Wide,
    Wrapping { bits: u32 },
    Choice { count: u32 },
    Float,
    Quat { bits: u32 },
    Text { cap: u32 },
    Bytes { cap: u32 },
    Entity,
    Maybe { fields: u32 },
}

/// One entry of the table of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub code: Code,
}

/// A named table of fields: a component, or what a message holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    pub name: String,
    pub fields: Vec<Field>,
}

/// What a message of the game is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Unreliable,
    Ordered,
    Unordered,
    Sequenced,
    Event,
    SharedEvent,
    Request,
    Reply,
}

/// A message of the game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub name: String,
    pub sort: Sort,
    pub fields: Vec<Field>,
}

/// What both sides know before the first byte.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub components: Vec<Component>,
    pub messages: Vec<Message>,
    pub owners: u32,
    /// Ticks a second, as the welcome says.
    pub rate: u64,
    /// The trained tables of the session, as the welcome says.
    pub trained: Vec<tables::Table>,
    presence: Vec<Field>,
    velocities: Vec<Velocity>,
}

/// That one component says how another moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Velocity {
    pub of: usize,
    pub source: usize,
    /// Of each Number of the component: its step.
    pub steps: Vec<f64>,
    /// Of each Number of the velocity: its least value and its step.
    pub speeds: Vec<(f64, f64)>,
}

/// Fields by name and code.
pub fn fields(list: &[(&str, Code)]) -> Vec<Field> {
    list.iter().map(|(name, code)| Field { name: (*name).into(), code: *code }).collect()
}

impl Schema {
    pub fn new(components: &[(&str, Vec<Field>)], kinds: u32, owners: u32, messages: &[(&str, bool, Vec<Field>)]) -> Self {
        let mut components: Vec<_> =
            components.iter().map(|(name, fields)| Component { name: (*name).into(), fields: fields.clone() }).collect();
        components.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        let mut messages: Vec<_> = messages
            .iter()
            .map(|(name, reliable, fields)| Message {
                name: (*name).into(),
                sort: if *reliable { Sort::Ordered } else { Sort::Unreliable },
                fields: fields.clone(),
            })
            .collect();
        messages.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        let presence = presence_fields(components.len() as u32, kinds, owners);
        Self { components, messages, owners, rate: 60, trained: Vec::new(), presence, velocities: Vec::new() }
    }

    /// The same with one more message.
    pub fn and_message(mut self, name: &str, sort: Sort, fields: Vec<Field>) -> Self {
        self.messages.push(Message { name: name.into(), sort, fields });
        self.messages.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        self
    }

    /// The same in a session with these trained tables.
    pub fn with_tables(mut self, trained: Vec<tables::Table>) -> Self {
        self.trained = trained;
        self
    }

    /// The table of a component by its column: 0 is presence.
    pub fn fields(&self, component: usize) -> &[Field] {
        match component {
            0 => &self.presence,
            _ => &self.components[component - 1].fields,
        }
    }

    /// The same where component `of` is moved by `source`.
    pub fn moved(mut self, of: &str, steps: &[f64], source: &str, speeds: &[(f64, f64)]) -> Self {
        let (of, source) = (self.column(of), self.column(source));
        self.velocities.push(Velocity { of, source, steps: steps.to_vec(), speeds: speeds.to_vec() });
        self
    }

    /// What moves a component.
    pub fn velocity(&self, component: usize) -> Option<&Velocity> {
        self.velocities.iter().find(|velocity| velocity.of == component)
    }

    /// Whether a value of the component names an entity anywhere.
    pub fn names_entities(&self, component: usize) -> bool {
        self.fields(component).iter().any(|field| field.code == Code::Entity)
    }

    /// The column of a component by its name.
    pub fn column(&self, name: &str) -> usize {
        1 + self.components.iter().position(|component| component.name == name).expect("a component of the schema")
    }
}

/// Section 2.5: the fields of presence.
fn presence_fields(components: u32, kinds: u32, owners: u32) -> Vec<Field> {
    let mut list = fields(&[
        ("life", Code::Choice { count: 3 }),
        ("net", Code::Entity),
        ("kind", Code::Choice { count: kinds.max(1) }),
        ("cut", Code::Wrapping { bits: 6 }),
    ]);
    for first in (0..components).step_by(32) {
        let held = (components - first).min(32);
        let max = u32::MAX >> (32 - held);
        list.push(Field { name: format!("components.{first}"), code: Code::Number { max, order: 0 } });
    }
    for slot in 0..owners {
        list.push(Field { name: format!("owner.{slot}"), code: Code::Choice { count: 1025 } });
        list.push(Field { name: format!("epoch.{slot}"), code: Code::Number { max: 65_535, order: 0 } });
    }
    list
}

/// The words of presence by their meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    pub life: u32,
    pub net: u64,
    pub kind: u32,
    pub cut: u32,
    /// Bit *i* for component *i* + 1.
    pub components: u64,
    /// Owner and epoch of each slot.
    pub owners: Vec<(u32, u32)>,
}

impl Presence {
    pub fn of_words(schema: &Schema, words: &[u32]) -> Self {
        let lists = schema.components.len().div_ceil(32);
        let mut components = 0;
        for (index, word) in words[5..5 + lists].iter().enumerate() {
            components |= u64::from(*word) << (32 * index);
        }
        let owners = words[5 + lists..].chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let net = u64::from(words[1]) | u64::from(words[2]) << 32;
        Self { life: words[0], net, kind: words[3], cut: words[4], components, owners }
    }

    /// Whether the entity has the component of this column.
    pub fn has(&self, component: usize) -> bool {
        component > 0 && self.components >> (component - 1) & 1 == 1
    }
}
