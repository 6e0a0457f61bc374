//! Sections 2.2 to 2.4 and 2.6 of `docs/WIRE.md`: one state packet, read against a mirror. Lists of rows are in [`rows`](super::rows).

use std::fmt::{self, Display, Formatter};

use super::bits::{Bits, widen};
use super::codings::{Codings, Forecast, MaskGuess, read_codings};
use super::guess::{by_motion, by_velocity};
use super::messages::{Event, read_events};
use super::rows::{List, read_list_of_rows};
use super::stream::Mirror;
use super::tables::{numbered, usual_of};
use super::values::read_value_with;
use super::{Fault, Schema};

/// The fields in front of the entries that decide whether the rest is read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    /// It holds a list of rows instead of entries.
    pub is_list: bool,
    pub number: u64,
    pub send_tick: u64,
}

/// One state packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub number: u64,
    pub send_tick: u64,
    pub session_tick: u64,
    pub base: Option<u64>,
    pub complete: u64,
    pub floor: u64,
    /// Ranges of numbers, lowest and greatest, newest range first.
    pub ack: Option<Vec<(u64, u64)>>,
    pub stamp: Option<Stamp>,
    /// Of a packet with entries.
    pub codings: Option<Codings>,
    pub entries: Vec<Entry>,
    /// Of a packet with a list of rows.
    pub list: Option<List>,
    pub events: Vec<Event>,
}

impl Packet {
    /// All its values.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        let of_entries = self.entries.iter().flat_map(|entry| &entry.values);
        of_entries.chain(self.list.iter().flat_map(|list| list.rows.iter().flat_map(|row| &row.values)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub clock: u16,
    /// The clock that came from the other side, and how long it was held.
    pub echo: Option<(u16, u16)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub block: u64,
    pub base: Option<u64>,
    /// The entry names its own baseline, instead of taking the packet's.
    pub own_base: bool,
    pub sample_age: u64,
    /// All of its head but the masks was one bit.
    pub short: bool,
    /// Masks are guessed from the baseline's send.
    pub guessed: bool,
    /// The rows that had been at rest, if the entry says so of any.
    pub rested: Option<u64>,
    /// Component, rows, and how the difference to the guess was written; none where the guess was right. Without rows: not here.
    pub masks: Vec<(usize, u64, Option<u64>)>,
    pub values: Vec<Value>,
}

/// One value of one component of one row of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub component: usize,
    pub row: u64,
    pub words: Vec<u32>,
}

/// What a reader knows when a packet arrives.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub schema: &'a Schema,
    pub mirror: &'a Mirror,
    /// Blocks that the publisher may speak of.
    pub blocks: u64,
    pub greatest_number: u64,
    pub greatest_send_tick: u64,
    pub session_tick: u64,
    /// The greatest number that was sent in the other direction.
    pub greatest_sent_back: u64,
    /// Does a host speak? And the number after the greatest up to which all events have come.
    pub events: (bool, u64),
}

/// Reads the kind, the number and the send tick.
pub fn read_front(bits: &mut Bits<'_>, greatest_number: u64, greatest_send_tick: u64) -> Result<Front, Fault> {
    let is_list = match bits.number(2)? {
        0 => false,
        2 => true,
        _ => return Err(Fault::Malformed("not a state packet")),
    };
    let number = widen(bits.number(16)?, greatest_number);
    let send_tick = widen(bits.number(16)?, greatest_send_tick);
    Ok(Front { is_list, number, send_tick })
}

/// Reads the header after the front.
pub fn read_header(
    bits: &mut Bits<'_>,
    front: Front,
    session_tick: u64,
    greatest_sent_back: u64,
) -> Result<(Packet, bool), Fault> {
    let session_tick = widen(bits.number(16)?, session_tick);
    // 63 in the place of an age: events follow the state
    let has_events = bits.clone().number(6)? == 63;
    if has_events {
        bits.number(6)?;
    }
    let base = read_base(bits, front.send_tick)?;
    let behind = if bits.bit()? { 0 } else { bits.exp_golomb(3)? };
    let complete = session_tick.checked_sub(behind).ok_or(Fault::Malformed("complete below 0"))?;
    let floor = front.number.checked_sub(bits.exp_golomb(2)?).ok_or(Fault::Malformed("a floor below 0"))?;
    let ack = if bits.bit()? { Some(read_ack(bits, greatest_sent_back)?) } else { None };
    let stamp = if bits.bit()? { Some(read_stamp(bits)?) } else { None };
    let Front { number, send_tick, .. } = front;
    let packet = Packet {
        number,
        send_tick,
        session_tick,
        base,
        complete,
        floor,
        ack,
        stamp,
        codings: None,
        entries: Vec::new(),
        list: None,
        events: Vec::new(),
    };
    Ok((packet, has_events))
}

/// Reads everything after the front.
pub fn read_rest(mut bits: Bits<'_>, front: Front, known: Known<'_>) -> Result<Packet, Fault> {
    let (mut packet, has_events) = read_header(&mut bits, front, known.session_tick, known.greatest_sent_back)?;
    if front.is_list {
        packet.list = Some(read_list_of_rows(&mut bits, &packet, known)?);
    } else if bits.bit()? {
        read_entries(&mut bits, &mut packet, known)?;
    }
    if has_events {
        let (from_host, next) = known.events;
        packet.events = read_events(&mut bits, known.schema, from_host, next, packet.session_tick)?;
    }
    bits.ended()?;
    Ok(packet)
}

fn read_entries(bits: &mut Bits<'_>, packet: &mut Packet, known: Known<'_>) -> Result<(), Fault> {
    packet.codings = Some(read_codings(bits, known.schema)?);
    still_kept(packet.base, packet, known)?;
    let mut context = Context::default();
    while let Some(mut entry) = read_head(bits, packet, &context, known)? {
        entry.values = read_values(bits, packet, &entry, known)?;
        context = Context::after(&entry);
        packet.entries.push(entry);
    }
    Ok(())
}

pub fn read_base(bits: &mut Bits<'_>, send_tick: u64) -> Result<Option<u64>, Fault> {
    match bits.number(6)? {
        0 => Ok(None),
        63 => Err(Fault::Malformed("a baseline of age 63")),
        age => send_tick.checked_sub(age).map(Some).ok_or(Fault::Malformed("a baseline below 0")),
    }
}

fn read_ack(bits: &mut Bits<'_>, greatest_sent: u64) -> Result<Vec<(u64, u64)>, Fault> {
    let below = Fault::Malformed("an acknowledged number below 0");
    let mut high = widen(bits.number(16)?, greatest_sent);
    let mut ranges = Vec::new();
    loop {
        let low = high.checked_sub(bits.exp_golomb(3)?).ok_or(below)?;
        if ranges.len() == 32 {
            return Err(Fault::Malformed("a 33rd range"));
        }
        ranges.push((low, high));
        if !bits.bit()? {
            return Ok(ranges);
        }
        let missing = bits.exp_golomb(2)?.checked_add(1).ok_or(below)?;
        high = low.checked_sub(missing).and_then(|next| next.checked_sub(1)).ok_or(below)?;
    }
}

fn read_stamp(bits: &mut Bits<'_>) -> Result<Stamp, Fault> {
    let clock = bits.number(16)? as u16;
    if !bits.bit()? {
        return Ok(Stamp { clock, echo: None });
    }
    let echoed = bits.number(16)? as u16;
    let held = u16::try_from(bits.exp_golomb(6)?).map_err(|_| Fault::Malformed("a stamp held for too long"))?;
    Ok(Stamp { clock, echo: Some((echoed, held)) })
}

/// What the entry before left behind.
#[derive(Clone, Debug, Default)]
pub struct Context {
    next_block: u64,
    sample_age: u64,
}

impl Context {
    pub fn after(entry: &Entry) -> Self {
        Self { next_block: entry.block + 1, sample_age: entry.sample_age }
    }
}

/// A send tick that is referred to must be among those that are kept.
fn still_kept(tick: Option<u64>, packet: &Packet, known: Known<'_>) -> Result<(), Fault> {
    let newest = packet.send_tick.max(known.greatest_send_tick);
    if tick.is_some_and(|tick| tick + 64 <= newest) {
        return Err(Fault::Useless("what a packet refers to is no longer kept"));
    }
    Ok(())
}

/// Reads an entry up to its values; none at the end of the packet.
pub fn read_head(bits: &mut Bits<'_>, packet: &Packet, context: &Context, known: Known<'_>) -> Result<Option<Entry>, Fault> {
    let mut entry = Entry {
        block: context.next_block,
        base: packet.base,
        own_base: false,
        sample_age: context.sample_age,
        short: true,
        guessed: true,
        rested: None,
        masks: Vec::new(),
        values: Vec::new(),
    };
    let mut some_rested = false;
    if bits.bit()? {
        if !bits.bit()? {
            return Ok(None);
        }
        some_rested = read_long_head(bits, packet, &mut entry)?;
    }
    if entry.block >= known.blocks {
        return Err(Fault::Malformed("a block beyond the rows of the publisher"));
    }
    read_masks(bits, packet, &mut entry, known)?;
    if some_rested {
        entry.rested = Some(read_rested(bits, &entry.masks)?);
    }
    let age = entry.base.map_or(0, |base| packet.send_tick - base);
    let of = |component: &usize| packet.codings.as_ref().and_then(|codings| codings.components.get(component));
    let by_motion = |(component, ..): &(usize, u64, Option<u64>)| of(component).is_some_and(|c| c.forecast == Forecast::Motion);
    let goes_on = !entry.own_base && entry.masks.iter().any(by_motion);
    let oldest = entry.base.map(|base| if goes_on { base.saturating_sub(age) } else { base });
    still_kept(oldest, packet, known)?;
    Ok(Some(entry))
}

/// Says whether some rows had been at rest.
fn read_long_head(bits: &mut Bits<'_>, packet: &Packet, entry: &mut Entry) -> Result<bool, Fault> {
    entry.short = false;
    if !bits.bit()? {
        entry.block = if bits.bit()? {
            entry.block.checked_sub(1).ok_or(Fault::Malformed("a block below 0"))?
        } else {
            bits.exp_golomb(4)?
        };
    }
    entry.own_base = bits.bit()?;
    if entry.own_base {
        entry.base = read_base(bits, packet.send_tick)?;
        entry.guessed = false;
    } else {
        entry.guessed = bits.bit()?;
    }
    if bits.bit()? {
        entry.sample_age = bits.exp_golomb(3)?;
    }
    if entry.sample_age > 255 {
        return Err(Fault::Malformed("a sample that is too old"));
    }
    bits.bit()
}

fn read_masks(bits: &mut Bits<'_>, packet: &Packet, entry: &mut Entry, known: Known<'_>) -> Result<(), Fault> {
    let codings = packet.codings.as_ref().expect("they stand in front of the entries");
    let mut before = 0;
    for (component, coding) in &codings.components {
        let guess = match (coding.masks, packet.base) {
            (MaskGuess::Baseline, Some(base)) if entry.guessed => known.mirror.received_at(*component, entry.block, base),
            (MaskGuess::Before, _) => before,
            _ => 0,
        };
        let (difference, mode) = read_mask(bits)?;
        let rows = guess ^ difference;
        if rows != 0 {
            entry.masks.push((*component, rows, mode));
        }
        before = rows;
    }
    if entry.masks.is_empty() {
        return Err(Fault::Malformed("an entry without rows"));
    }
    Ok(())
}

/// The rows of a difference, and how they were written.
fn read_mask(bits: &mut Bits<'_>) -> Result<(u64, Option<u64>), Fault> {
    if !bits.bit()? {
        return Ok((0, None));
    }
    if !bits.bit()? {
        return Ok((read_list(bits)?, Some(0)));
    }
    if !bits.bit()? {
        return Ok((u64::MAX, Some(1)));
    }
    if !bits.bit()? {
        return Ok((!read_list(bits)?, Some(2)));
    }
    Ok((bits.number(64)?, Some(3)))
}

fn read_list(bits: &mut Bits<'_>) -> Result<u64, Fault> {
    let length = bits.exp_golomb(0)?.saturating_add(1);
    if length > 64 {
        return Err(Fault::Malformed("a list of more than 64 rows"));
    }
    if length == 1 {
        return Ok(1 << bits.number(6)?);
    }
    let order = (64 / length).ilog2().saturating_sub(1);
    let mut rows = 0;
    let mut next = 0u64;
    for _ in 0..length {
        let row = next.saturating_add(bits.exp_golomb(order)?);
        if row > 63 {
            return Err(Fault::Malformed("a row beyond its block"));
        }
        rows |= 1 << row;
        next = row + 1;
    }
    Ok(rows)
}

fn read_rested(bits: &mut Bits<'_>, masks: &[(usize, u64, Option<u64>)]) -> Result<u64, Fault> {
    let any = masks.iter().fold(0, |any, (_, rows, _)| any | rows);
    let mut rested = 0;
    for row in rows_in(any) {
        rested |= u64::from(bits.bit()?) << row;
    }
    Ok(rested)
}

fn read_values(bits: &mut Bits<'_>, packet: &Packet, entry: &Entry, known: Known<'_>) -> Result<Vec<Value>, Fault> {
    let codings = packet.codings.as_ref().expect("they stand in front of the entries");
    let mut values = Vec::new();
    for (component, rows, _) in &entry.masks {
        let fields = known.schema.fields(*component);
        let coding = codings.components.get(component).filter(|_| !entry.own_base);
        let age = entry.base.map_or(1, |base| packet.send_tick - base);
        let numbers = coding.and_then(|coding| coding.tables.clone()).unwrap_or_else(|| usual_of(fields, age));
        let tables: Vec<_> = numbers.iter().map(|number| numbered(*number, &known.schema.trained)).collect();
        let forecast = coding.map_or(Forecast::Still, |coding| coding.forecast);
        for place in rows_in(*rows) {
            let row = entry.block * 64 + place;
            let guess = entry.base.map(|base| guess(known, *component, row, (base, age), forecast, codings.elapsed));
            let words = read_value_with(bits, fields, guess.as_deref(), &tables)?;
            values.push(Value { component: *component, row, words });
        }
    }
    Ok(values)
}

fn guess(
    known: Known<'_>,
    component: usize,
    row: u64,
    (base, age): (u64, u64),
    forecast: Forecast,
    elapsed: Option<u64>,
) -> Vec<u32> {
    let schema = known.schema;
    let fields = schema.fields(component);
    let then = known.mirror.in_force(schema, component, row, base);
    match (forecast, schema.velocity(component), elapsed) {
        (Forecast::Motion, ..) => {
            let older = known.mirror.in_force(schema, component, row, base.saturating_sub(age));
            by_motion(fields, &older, &then)
        }
        (Forecast::Velocity, Some(pair), Some(elapsed)) => {
            let words = known.mirror.in_force(schema, pair.source, row, base);
            let seconds = elapsed as f64 / schema.rate as f64;
            by_velocity(pair, fields, schema.fields(pair.source), &words, &then, seconds)
        }
        _ => then,
    }
}

/// The rows of a mask, ascending.
pub fn rows_in(rows: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |row| rows >> row & 1 == 1)
}

fn list(rows: u64) -> String {
    rows_in(rows).map(|row| row.to_string()).collect::<Vec<_>>().join(" ")
}

pub fn or_none(value: Option<u64>) -> String {
    value.map_or("none".into(), |value| value.to_string())
}

impl Display for Packet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "packet {} send {} session {}", self.number, self.send_tick, self.session_tick)?;
        writeln!(f, " base {} complete {} floor {}", or_none(self.base), self.complete, self.floor)?;
        if let Some(ack) = &self.ack {
            let ranges: Vec<_> = ack.iter().map(|(low, high)| format!("{low}..={high}")).collect();
            writeln!(f, "  ack {}", ranges.join(" "))?;
        }
        if let Some(stamp) = &self.stamp {
            match stamp.echo {
                Some((echoed, held)) => writeln!(f, "  stamp {} echo {echoed} held {held}", stamp.clock)?,
                None => writeln!(f, "  stamp {}", stamp.clock)?,
            }
        }
        if let Some(codings) = &self.codings {
            let elapsed = codings.elapsed.map_or(String::new(), |elapsed| format!(" elapsed {elapsed}"));
            writeln!(f, "  codings{elapsed}")?;
            for (component, coding) in &codings.components {
                let tables = coding.tables.as_ref().map_or("usual".into(), |tables| format!("{tables:?}"));
                writeln!(f, "    component {component} masks {:?} values {:?} tables {tables}", coding.masks, coding.forecast)?;
            }
        }
        self.entries.iter().try_for_each(|entry| entry.fmt(f))?;
        self.list.iter().try_for_each(|list| list.fmt(f))?;
        for Event { number, index, shared, at, words } in &self.events {
            let (shared, at) = (or_none(*shared), or_none(*at));
            writeln!(f, "  event {number} of message {index} shared {shared} at {at}: {words:?}")?;
        }
        Ok(())
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let own = if self.own_base { "own base" } else { "base" };
        write!(f, "  entry block {} {own} {} sample age {}", self.block, or_none(self.base), self.sample_age)?;
        if self.short {
            write!(f, " short")?;
        } else if !self.guessed {
            write!(f, " no rows guessed")?;
        }
        if let Some(rested) = self.rested {
            write!(f, " rested {}", list(rested))?;
        }
        writeln!(f)?;
        for (component, rows, mode) in &self.masks {
            let mode = mode.map_or("as guessed".into(), |mode| format!("mode {mode}"));
            writeln!(f, "    component {component} {mode} rows {}", list(*rows))?;
            for value in self.values.iter().filter(|value| value.component == *component) {
                writeln!(f, "      row {} {:?}", value.row, value.words)?;
            }
        }
        Ok(())
    }
}
