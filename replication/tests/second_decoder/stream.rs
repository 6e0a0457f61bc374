//! Sections 2.1, 2.3, 2.5 and the mirror of 2.6 of `docs/WIRE.md`: one direction of a link as its reader keeps it.

use std::collections::{BTreeMap, BTreeSet};

use super::bits::Bits;
use super::messages::Event;
use super::packet::{Known, Packet, read_front, read_rest};
use super::values::words_of;
use super::{Fault, Presence, Schema};

/// Send ticks that both sides remember.
const REMEMBERED: u64 = 64;
/// Ranges of numbers that a reader keeps.
const MOST_RANGES: usize = 32;

/// What was received, by component and row, each value at the send tick of its packet.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    values: BTreeMap<(usize, u64), BTreeMap<u64, Vec<u32>>>,
}

impl Mirror {
    /// The value received with the greatest send tick up to `tick`, at first zeros.
    pub fn in_force(&self, schema: &Schema, component: usize, row: u64, tick: u64) -> Vec<u32> {
        let received = self.values.get(&(component, row)).and_then(|ticks| ticks.range(..=tick).next_back());
        received.map_or_else(|| vec![0; words_of(schema.fields(component))], |(_, words)| words.clone())
    }

    /// The rows of a block of which a value of the component was received at just this send tick.
    pub fn received_at(&self, component: usize, block: u64, tick: u64) -> u64 {
        let has = |place| self.values.get(&(component, block * 64 + place)).is_some_and(|ticks| ticks.contains_key(&tick));
        (0..64).filter(|place| has(*place)).fold(0, |rows, place| rows | 1 << place)
    }

    /// The newest value and its send tick.
    pub fn newest(&self, component: usize, row: u64) -> Option<(u64, &[u32])> {
        let (tick, words) = self.values.get(&(component, row))?.last_key_value()?;
        Some((*tick, words))
    }

    /// Enters a packet. Says which value comes twice in it, or differs from another of the same send, if one does.
    fn enter(&mut self, packet: &Packet, newest: u64) -> Option<String> {
        let mut differs = None;
        let mut places = BTreeSet::new();
        for value in packet.values() {
            let ticks = self.values.entry((value.component, value.row)).or_default();
            let before = ticks.insert(packet.send_tick, value.words.clone());
            let again = !places.insert((value.component, value.row));
            if again || before.is_some_and(|before| before != value.words) {
                differs = Some(format!("component {} of row {} at send {}", value.component, value.row, packet.send_tick));
            }
            // Presence is kept for good: it says which binding a value came under.
            let oldest = (newest + 1).saturating_sub(REMEMBERED);
            if value.component != 0
                && let Some((kept, _)) = ticks.range(..=oldest).next_back()
            {
                let kept = *kept;
                ticks.retain(|tick, _| *tick >= kept);
            }
        }
        differs
    }
}

/// One direction of a link, as its reader keeps it.
#[derive(Clone, Debug)]
pub struct Stream {
    schema: Schema,
    blocks: u64,
    mirror: Mirror,
    kept: BTreeSet<u64>,
    floor: u64,
    greatest_number: u64,
    greatest_send_tick: u64,
    /// Complete through, of the packet with the greatest number.
    complete: u64,
    has: u64,
    /// Events that came, from the first one on that is missing, by number.
    events: BTreeMap<u64, Event>,
    next_event: u64,
    /// All that were handed on, in order.
    pub heard: Vec<Event>,
    /// Packets of one send that disagreed about a value.
    pub contradictions: Vec<String>,
}

impl Stream {
    /// Of a host `rows` is 262 144, of a guest 16 384.
    pub fn new(schema: Schema, rows: u64) -> Self {
        Self {
            schema,
            blocks: rows / 64,
            mirror: Mirror::default(),
            kept: BTreeSet::new(),
            floor: 1,
            greatest_number: 1,
            greatest_send_tick: 1,
            complete: 0,
            has: 0,
            events: BTreeMap::new(),
            next_event: 1,
            heard: Vec::new(),
            contradictions: Vec::new(),
        }
    }

    /// Reads one state packet and takes it.
    pub fn read(&mut self, datagram: &[u8], session_tick: u64, greatest_sent_back: u64) -> Result<Packet, Fault> {
        let mut bits = Bits::new(datagram);
        let front = read_front(&mut bits, self.greatest_number, self.greatest_send_tick)?;
        let ranges = self.ranges();
        let lowest = ranges.last().filter(|_| ranges.len() == MOST_RANGES).map_or(0, |(low, _)| *low);
        if front.number < self.floor || self.kept.contains(&front.number) || front.number + 1 < lowest {
            return Err(Fault::Useless("the packet was taken or given up"));
        }
        if front.send_tick + REMEMBERED <= self.greatest_send_tick {
            return Err(Fault::Useless("the packet's send is too old"));
        }
        let packet = read_rest(bits, front, self.known(session_tick, greatest_sent_back))?;
        self.take(&packet);
        Ok(packet)
    }

    fn known(&self, session_tick: u64, greatest_sent_back: u64) -> Known<'_> {
        Known {
            schema: &self.schema,
            mirror: &self.mirror,
            blocks: self.blocks,
            greatest_number: self.greatest_number,
            greatest_send_tick: self.greatest_send_tick,
            session_tick,
            greatest_sent_back,
            events: (self.blocks > 256, self.next_event),
        }
    }

    fn take(&mut self, packet: &Packet) {
        self.kept.insert(packet.number);
        if packet.number >= self.greatest_number {
            self.greatest_number = packet.number;
            self.complete = packet.complete;
        }
        self.greatest_send_tick = self.greatest_send_tick.max(packet.send_tick);
        for event in packet.events.iter().filter(|event| event.number >= self.next_event) {
            self.events.entry(event.number).or_insert_with(|| event.clone());
        }
        while let Some(event) = self.events.remove(&self.next_event) {
            self.heard.push(event);
            self.next_event += 1;
        }
        self.contradictions.extend(self.mirror.enter(packet, self.greatest_send_tick));
        let ranges = self.ranges();
        if ranges.len() > MOST_RANGES {
            self.floor = self.floor.max(ranges[ranges.len() - 1].1 + 1);
        }
        self.floor = self.floor.max(packet.floor.min(packet.number));
        self.kept = self.kept.split_off(&self.floor);
        if (self.floor..=self.greatest_number).all(|number| self.kept.contains(&number)) {
            self.has = self.has.max(self.complete);
        }
    }

    /// Ranges of the numbers kept, newest first: the acknowledgement.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in self.kept.iter().rev() {
            match ranges.last_mut() {
                Some((low, _)) if *low == number + 1 => *low = *number,
                _ => ranges.push((*number, *number)),
            }
        }
        ranges
    }

    /// The session tick up to which the reader has everything.
    pub fn has_through(&self) -> u64 {
        self.has
    }

    /// The last words of presence of a row, newest first, for a person to read.
    pub fn history(&self, row: u64) -> String {
        let ticks = self.mirror.values.get(&(0, row)).into_iter().flat_map(|ticks| ticks.iter().rev());
        ticks.take(5).map(|(tick, words)| format!("{tick}: {words:?}")).collect::<Vec<_>>().join(", ")
    }

    /// The send tick of the newest value of a component of a row.
    pub fn sent(&self, row: u64, component: usize) -> Option<u64> {
        self.mirror.newest(component, row).map(|(tick, _)| tick)
    }

    /// The rows that presence was received for.
    pub fn rows(&self) -> Vec<u64> {
        self.mirror.values.range((0, 0)..(1, 0)).map(|((_, row), _)| *row).collect()
    }

    /// The newest presence of a row.
    pub fn presence(&self, row: u64) -> Option<Presence> {
        self.mirror.newest(0, row).map(|(_, words)| Presence::of_words(&self.schema, words))
    }

    /// The newest words of a component of a row, if presence names it and a value came under the binding.
    pub fn shown(&self, row: u64, component: usize) -> Option<&[u32]> {
        let presence = self.presence(row).filter(|presence| presence.life == 1 && presence.has(component))?;
        let words = |words: &[u32]| Presence::of_words(&self.schema, words);
        let other = |now: &Presence| now.life != 1 || now.net != presence.net;
        // Whatever was sent after the end of the binding before belongs to this one.
        let ended = self.mirror.values.get(&(0, row))?.iter().rev().find(|(_, value)| other(&words(value)));
        let (tick, value) = self.mirror.newest(component, row)?;
        (ended.is_none_or(|(end, _)| tick > *end)).then_some(value)
    }
}
