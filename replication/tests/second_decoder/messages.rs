//! Sections 3 and 4 of `docs/WIRE.md`: messages of the game, and as much of control as that page spells out.

use super::bits::Bits;
use super::values::read_value;
use super::{Fault, Schema};

/// One message of the game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GameMessage {
    /// Its place among the names of messages, ascending.
    pub index: usize,
    pub words: Vec<u32>,
}

/// Reads a reliable message, as it comes on lane 1.
pub fn read_reliable(schema: &Schema, bytes: &[u8]) -> Result<GameMessage, Fault> {
    read_message(schema, Bits::new(bytes), true)
}

/// Reads an unreliable message, as it comes in a datagram.
pub fn read_unreliable(schema: &Schema, bytes: &[u8]) -> Result<GameMessage, Fault> {
    let mut bits = Bits::new(bytes);
    if bits.number(2)? != 1 {
        return Err(Fault::Malformed("not a message of the game"));
    }
    read_message(schema, bits, false)
}

fn read_message(schema: &Schema, mut bits: Bits<'_>, reliable: bool) -> Result<GameMessage, Fault> {
    let index = bits.number(8)? as usize;
    let message = schema.messages.get(index).ok_or(Fault::Malformed("no such message"))?;
    if message.reliable != reliable {
        return Err(Fault::Malformed("a message that is sent the other way"));
    }
    let words = read_value(&mut bits, &message.fields, None)?;
    bits.ended()?;
    Ok(GameMessage { index, words })
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
