//! Sections 2.10, 3 and 4 of `docs/WIRE.md`: events, messages of the game, and as much of control as that page spells out.

use super::bits::{Bits, widen};
use super::values::read_value;
use super::{Fault, Schema, Sort};

/// One message of the game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GameMessage {
    /// Its place among the names of messages, ascending.
    pub index: usize,
    pub words: Vec<u32>,
}

/// Reads a reliable message, as it comes on lane 1.
pub fn read_reliable(schema: &Schema, bytes: &[u8]) -> Result<GameMessage, Fault> {
    Ok(read_message(schema, Bits::new(bytes), &[Sort::Ordered])?.1)
}

/// Reads an unreliable message, as it comes in a datagram.
pub fn read_unreliable(schema: &Schema, bytes: &[u8]) -> Result<GameMessage, Fault> {
    let mut bits = Bits::new(bytes);
    if bits.number(2)? != 1 {
        return Err(Fault::Malformed("not a message of the game"));
    }
    Ok(read_message(schema, bits, &[Sort::Unreliable])?.1)
}

/// Reads any message of lane 1 or 3, or of a datagram, with its number if it has one.
pub fn read_any(schema: &Schema, lane: Option<u8>, bytes: &[u8]) -> Result<(Option<u64>, GameMessage), Fault> {
    let mut bits = Bits::new(bytes);
    match lane {
        None if bits.number(2)? == 1 => read_message(schema, bits, &[Sort::Unreliable, Sort::Sequenced]),
        Some(1) => read_message(schema, bits, &[Sort::Ordered, Sort::Request, Sort::Reply]),
        Some(3) => read_message(schema, bits, &[Sort::Unordered]),
        _ => Err(Fault::Malformed("not a message of the game")),
    }
}

/// An event that rode along in a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub number: u64,
    pub index: usize,
    /// From a guest: for all. From a host: whose it is.
    pub shared: Option<u64>,
    pub at: Option<u64>,
    pub words: Vec<u32>,
}

/// Reads the events of a packet. `next`: the number after the greatest up to which all have come.
pub fn read_events(bits: &mut Bits<'_>, schema: &Schema, from_host: bool, next: u64, tick: u64) -> Result<Vec<Event>, Fault> {
    let count = bits.exp_golomb(1)?;
    let mut events: Vec<Event> = Vec::new();
    for _ in 0..=count {
        let number = match events.last() {
            None => widen(bits.number(16)?, next),
            Some(before) => bits.exp_golomb(0)?.checked_add(before.number + 1).ok_or(Fault::Malformed("a number of an event"))?,
        };
        if number >= next + 1024 {
            return Err(Fault::Malformed("the number of an event that cannot be yet"));
        }
        let index = bits.number(8)? as usize;
        let message = schema.messages.get(index).ok_or(Fault::Malformed("no such message"))?;
        let is_shared = match message.sort {
            Sort::Event => false,
            Sort::SharedEvent => bits.bit()?,
            _ => return Err(Fault::Malformed("a message that is no event")),
        };
        let shared = match (is_shared, from_host) {
            (false, _) => None,
            (true, false) => Some(0),
            (true, true) => Some(bits.number(10)?),
        };
        let at = if bits.bit()? {
            let zigzag = bits.exp_golomb(4)?;
            let by = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            let at = tick.checked_add_signed(by).filter(|at| *at <= tick + 32_768);
            Some(at.ok_or(Fault::Malformed("the tick of an event"))?)
        } else {
            None
        };
        let words = read_value(bits, &message.fields, None)?;
        events.push(Event { number, index, shared, at, words });
    }
    Ok(events)
}

fn read_message(schema: &Schema, mut bits: Bits<'_>, sorts: &[Sort]) -> Result<(Option<u64>, GameMessage), Fault> {
    let index = bits.number(8)? as usize;
    let message = schema.messages.get(index).ok_or(Fault::Malformed("no such message"))?;
    if !sorts.contains(&message.sort) {
        return Err(Fault::Malformed("a message that is sent the other way"));
    }
    let numbered = matches!(message.sort, Sort::Sequenced | Sort::Request | Sort::Reply);
    let number = if numbered { Some(bits.number(32)?) } else { None };
    let refused = message.sort == Sort::Reply && !bits.bit()?;
    let words = if refused { Vec::new() } else { read_value(&mut bits, &message.fields, None)? };
    bits.ended()?;
    Ok((number, GameMessage { index, words }))
}

/// The names of the control messages, in the order of their shapes.
pub const CONTROL: [&str; 8] = ["Hello", "Welcome", "Joined", "Left", "LeaseRequest", "Lease", "Digest", "Verdict"];

/// Which control message it is, and the bytes after that. Those are in the encoding of another.
pub fn read_control(bytes: &[u8]) -> Result<(&'static str, &[u8]), Fault> {
    match bytes {
        [1, shape, rest @ ..] => {
            let name = CONTROL.get(usize::from(*shape)).ok_or(Fault::Malformed("no such control message"))?;
            Ok((name, rest))
        }
        _ => Err(Fault::Malformed("not layout 1 of control")),
    }
}
