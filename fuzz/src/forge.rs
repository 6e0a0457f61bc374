//! Packets made by hand: well formed, with whatever in them.

use tidelock::PeerId;
use tidelock::layout::{FieldCode, Layout, LayoutBuilder, Meaning};
use tidelock_netcore::ack::Received;
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::packet::{Echo, Header, PacketKind, Stamp, WireTime};
use tidelock_netcore::tick::Tick;

/// Bytes of an input, taken from the front; zeros once they are used up.
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    /// All of the input.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Is nothing left?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Two bytes, the low one first.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A length in two bytes, and so many bytes, or what is left.
    pub fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.short()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }
}

/// Columns of the game's schema: presence and seven components.
pub const COLUMNS: u32 = 8;
/// Components with an ordinary code; the rest of the schema's tables, in the order of registration.
const KINDS: u32 = 3;
const SLOTS: usize = 2;

/// What a forger knows of the stream that it speaks on.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The packet number that comes next.
    pub number: u64,
    /// The send tick that comes next.
    pub send_tick: Tick,
    /// The session's tick.
    pub tick: Tick,
    /// The first name of the forger's lease.
    pub lease: u64,
    /// Who it is.
    pub peer: PeerId,
}

/// A state packet as the input says.
pub fn packet(from: &mut Source<'_>, place: &mut Place) -> Vec<u8> {
    let mut w = BitWriter::new();
    let flags = from.byte();
    header(PacketKind::State, from, place, flags, &mut w);
    for _ in 0..flags >> 6 {
        entry(from, place, &mut w);
    }
    w.flag(false);
    w.to_bytes()
}

/// A state packet with a list of rows, as the input says.
pub fn list(from: &mut Source<'_>, place: &mut Place) -> Vec<u8> {
    let mut w = BitWriter::new();
    let flags = from.byte();
    header(PacketKind::List, from, place, flags, &mut w);
    // bits of `how`: 0 to 2 the order of gaps, 3 mixed ages, 4 rested rows, 5 more rows than there are, 6 spawns
    let (how, rows) = (from.byte(), u64::from(from.byte() % 64));
    w.golomb(if how & 32 != 0 { rows << 9 } else { rows }, 4);
    w.put(u64::from(how & 7), 3);
    w.golomb(u64::from(from.byte()) * if flags & 0x80 != 0 { 2 } else { 1 }, 3);
    w.flag(how & 8 != 0);
    w.flag(how & 16 != 0);
    let first = from.short();
    for i in 0..rows {
        row(from, place, how, u64::from(first) + i, &mut w);
    }
    w.to_bytes()
}

/// One row of a list: presence of an entity without components or with a tag, or values of components as raw bits.
fn row(from: &mut Source<'_>, place: &Place, how: u8, name: u64, w: &mut BitWriter) {
    let of = from.byte();
    let gap = if of & 1 != 0 { u64::from(from.short()) } else { 0 };
    w.golomb(gap, u32::from(how & 7));
    w.flag(of & 2 == 0);
    if of & 2 != 0 {
        w.put(u64::from(from.byte()) & 63, 6);
    }
    let components = match how & 64 != 0 {
        true => 1 | u64::from(of & 4 != 0) << 6,
        false => u64::from(from.byte()),
    };
    w.flag(of & 8 != 0);
    if of & 8 == 0 {
        w.put(components, COLUMNS);
    }
    for _ in 0..if how & 8 != 0 { components.count_ones() } else { 0 } {
        w.flag(of & 16 == 0);
        if of & 16 != 0 {
            w.golomb(u64::from(from.byte()), 3);
        }
    }
    if how & 16 != 0 {
        w.flag(of & 32 != 0);
    }
    if how & 64 != 0 {
        let kind = if of & 64 != 0 { from.byte() } else { 1 };
        spawn(place, name, u32::from(of >> 6) % 3, kind, components >> 1, w);
    } else {
        from.bytes().iter().for_each(|b| w.put(u64::from(*b), 8));
    }
}

/// Bits of `flags`: 0 base, 1 late, 2 acknowledgement, 3 stamp, 4 number of its own, 5 tick of its own.
fn header(kind: PacketKind, from: &mut Source<'_>, place: &mut Place, flags: u8, w: &mut BitWriter) {
    let number = if flags & 16 != 0 { place.number.saturating_add_signed((from.short() as i16).into()) } else { place.number };
    place.number = place.number.max(number) + 1;
    let send_tick = if flags & 32 != 0 {
        Tick(place.send_tick.0.saturating_add_signed((from.short() as i16).into()))
    } else {
        place.send_tick
    };
    place.send_tick = Tick(place.send_tick.0.max(send_tick.0) + 1);
    let age = if flags & 1 != 0 { u64::from(from.byte()) % 63 } else { 0 };
    let late = if flags & 2 != 0 { u64::from(from.short()) } else { 0 };
    let mut acked = Received::new(0);
    if flags & 4 != 0 {
        let first = u64::from(from.short());
        for i in 0..u64::from(from.byte() % 64) {
            acked.insert(first + i * u64::from(from.byte() % 4 + 1));
        }
    }
    let stamp = (flags & 8 != 0).then(|| {
        let echo = Echo { time: WireTime(from.short()), held: std::time::Duration::from_micros(u64::from(from.short()) * 250) };
        Stamp { sent: WireTime(from.short()), echo: Some(echo) }
    });
    let header = Header {
        number,
        send_tick,
        tick: Tick(place.tick.0 + late / 256),
        base: (age > 0).then(|| send_tick.minus(age)).filter(|b| *b < send_tick),
        events: false,
        complete: Tick(place.tick.0.saturating_sub(late % 256)),
        floor: number.saturating_sub(late).max(1).min(number),
        ack: None,
        stamp,
    };
    header.write(kind, Some(&acked), w);
}

/// One entry: whole spawns, or values of components as raw bits.
fn entry(from: &mut Source<'_>, place: &Place, w: &mut BitWriter) {
    let how = from.byte();
    w.flag(true);
    match how & 3 {
        0 => w.flag(true),
        1 => w.put(0b10, 2),
        _ => {
            w.put(0, 2);
            w.golomb(u64::from(from.short()), 4);
        }
    }
    w.flag(how & 4 != 0);
    if how & 4 != 0 {
        w.put(u64::from(from.byte()) & 63, 6);
    }
    w.flag(how & 8 != 0);
    if how & 8 != 0 {
        w.golomb(u64::from(from.byte()), 3);
    }
    w.flag(false); // nothing had rested
    w.flag(false);
    if how & 16 != 0 {
        spawns(from, place, w);
    } else {
        raw(from, w);
    }
}

/// Presence of some rows from 0 on, of entities without components or with a tag.
fn spawns(from: &mut Source<'_>, place: &Place, w: &mut BitWriter) {
    let (count, first, life, kind) = (from.byte() % 64 + 1, from.short(), from.byte() % 3, from.byte());
    let tagged = life & 1 != 0;
    w.put(if tagged { 1 | 1 << 6 } else { 1 }, COLUMNS);
    w.put(3, 2);
    w.put(u64::MAX >> (64 - count), 64);
    if tagged {
        w.flag(true); // the same rows have the tag
    }
    for i in 0..u64::from(count) {
        spawn(place, u64::from(first) + i, life.into(), kind, if tagged { 1 << 5 } else { 0 }, w);
    }
}

/// Presence of an entity with that name in the forger's lease, and these components.
fn spawn(place: &Place, name: u64, life: u32, kind: u8, components: u64, w: &mut BitWriter) {
    let owner = if kind & 0x80 != 0 { u32::from(kind >> 2) } else { place.peer.0.into() };
    let net = place.lease + name;
    let mut words = vec![life, net as u32, (net >> 32) as u32, u32::from(kind) % KINDS, 0, components as u32];
    (0..SLOTS).for_each(|_| words.extend([owner, u32::from(kind & 0x40)]));
    presence().write(&words, None, 0, w);
}

fn raw(from: &mut Source<'_>, w: &mut BitWriter) {
    let components = u64::from(from.byte()).max(1);
    w.put(components, COLUMNS);
    for i in 0..components.count_ones() {
        if i > 0 {
            w.flag(false);
        }
        match from.byte() % 3 {
            0 => w.put(1, 2), // all 64
            1 => {
                w.put(3, 2);
                (0..8).for_each(|_| w.put(u64::from(from.byte()), 8));
            }
            _ => {
                w.put(0, 2);
                w.golomb(u64::from(from.byte() % 3), 3);
                w.put(u64::from(from.short()), 16);
            }
        }
    }
    from.bytes().iter().for_each(|b| w.put(u64::from(*b), 8));
}

/// The layout of presence in the game's schema, as `docs/WIRE.md` describes it.
fn presence() -> Layout {
    let mut l = LayoutBuilder::new();
    l.field("life", FieldCode::Choice { count: 3 }, Meaning::Plain);
    l.entity("net");
    l.field("kind", FieldCode::Choice { count: KINDS }, Meaning::Plain);
    l.field("cut", FieldCode::Wrapping { bits: 6 }, Meaning::Plain);
    l.field("components", FieldCode::Number { max: (1 << (COLUMNS - 1)) - 1, order: 0 }, Meaning::Plain);
    for slot in 0..SLOTS {
        l.field(&format!("owner.{slot}"), FieldCode::Choice { count: 1025 }, Meaning::Plain);
        l.field(&format!("epoch.{slot}"), FieldCode::Number { max: 0xffff, order: 0 }, Meaning::Plain);
    }
    l.build().expect("a layout")
}
