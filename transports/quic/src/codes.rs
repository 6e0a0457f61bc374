//! Between QUIC's ways of ending a connection and ours. The table stands in the crate's documentation.

use quinn::{ConnectionError, TransportErrorCode, VarInt};
use tidelock_netcore::error::LinkError;
use tidelock_netcore::limits;

/// Application close codes from here on are the transport's own; those below are the game's.
const OWN: u64 = 1 << 32;
/// The host takes no more connections.
const FULL: u64 = OWN + 1;
/// The other side did not keep to the mapping of streams and messages.
const PROTOCOL: u64 = OWN + 2;
/// The TLS alert `no_application_protocol`.
const ALERT_NO_ALPN: u8 = 120;

/// How a connection is ended: a code and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Farewell {
    pub(crate) code: VarInt,
    pub(crate) text: String,
}

impl Farewell {
    /// The game's own; the text is cut to its limit between two characters.
    pub(crate) fn game(code: u32, text: &str) -> Self {
        Self { code: VarInt::from_u32(code), text: cut(text).to_owned() }
    }

    pub(crate) fn full(text: &str) -> Self {
        Self { code: own(FULL), text: cut(text).to_owned() }
    }

    pub(crate) fn protocol(text: &str) -> Self {
        Self { code: own(PROTOCOL), text: cut(text).to_owned() }
    }
}

fn own(code: u64) -> VarInt {
    VarInt::from_u64(code).expect("2^32 and a little is less than 2^62")
}

/// Why a connection ended, for the game.
pub(crate) fn link_error(error: &ConnectionError) -> LinkError {
    match error {
        ConnectionError::VersionMismatch => LinkError::Version("the other side speaks another version of QUIC".into()),
        ConnectionError::TransportError(e) => by_code(e.code, || e.to_string()),
        ConnectionError::ConnectionClosed(close) => by_code(close.error_code, || words(&close.to_string())),
        ConnectionError::ApplicationClosed(close) => {
            let text = words(&String::from_utf8_lossy(&close.reason));
            match close.error_code.into_inner() {
                FULL => LinkError::Full(text),
                PROTOCOL => LinkError::Failed(format!("the other side says that we broke the transport's protocol: {text}")),
                code => match u32::try_from(code) {
                    Ok(code) => LinkError::ClosedByPeer { code, text },
                    Err(_) => LinkError::Failed(format!("closed by the other side with the unknown code {code}: {text}")),
                },
            }
        }
        ConnectionError::Reset => LinkError::Failed("the other side no longer knows this connection; was it restarted?".into()),
        ConnectionError::TimedOut => LinkError::TimedOut,
        ConnectionError::LocallyClosed => LinkError::Failed("closed on this side".into()),
        ConnectionError::CidsExhausted => LinkError::Failed("no connection ids are left".into()),
    }
}

/// The other side's farewell.
pub(crate) fn peer_closed(code: u32, text: &[u8]) -> LinkError {
    LinkError::ClosedByPeer { code, text: words(&String::from_utf8_lossy(text)) }
}

fn by_code(code: TransportErrorCode, text: impl Fn() -> String) -> LinkError {
    if code == TransportErrorCode::CONNECTION_REFUSED {
        LinkError::Full("it takes no more connections now, in all or from this address".into())
    } else if code == TransportErrorCode::crypto(ALERT_NO_ALPN) {
        LinkError::Version(format!("the other side does not speak {}", String::from_utf8_lossy(crate::tls::ALPN)))
    } else {
        LinkError::Failed(text())
    }
}

fn words(text: &str) -> String {
    cut(text).to_owned()
}

/// At most [`limits::CLOSE_TEXT_BYTES`], cut between two characters.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(limits::CLOSE_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn::ApplicationClose;

    fn closed(farewell: Farewell) -> LinkError {
        let close = ApplicationClose { error_code: farewell.code, reason: farewell.text.into_bytes().into() };
        link_error(&ConnectionError::ApplicationClosed(close))
    }

    #[test]
    fn every_code_of_the_game_comes_through() {
        for code in [0, 1, 11, u32::MAX] {
            let expected = LinkError::ClosedByPeer { code, text: "bye".into() };
            assert_eq!(closed(Farewell::game(code, "bye")), expected);
        }
    }

    #[test]
    fn the_transports_own_codes_are_no_codes_of_the_game() {
        assert_eq!(closed(Farewell::full("8 of 8")), LinkError::Full("8 of 8".into()));
        assert!(matches!(closed(Farewell::protocol("lane 7")), LinkError::Failed(t) if t.contains("lane 7")));
        let unknown = Farewell { code: own(OWN + 99), text: String::new() };
        assert!(matches!(closed(unknown), LinkError::Failed(_)));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let text = format!("x{}", "ü".repeat(limits::CLOSE_TEXT_BYTES));
        let cut = Farewell::game(1, &text).text;
        assert_eq!(cut.len(), limits::CLOSE_TEXT_BYTES - 1);
        assert!(text.starts_with(&cut));
    }

    #[test]
    fn invalid_text_of_a_peer_stays_within_the_limit() {
        let reason = vec![0xFF; limits::CLOSE_TEXT_BYTES];
        let close = ApplicationClose { error_code: VarInt::from_u32(2), reason: reason.into() };
        match link_error(&ConnectionError::ApplicationClosed(close)) {
            LinkError::ClosedByPeer { code: 2, text } => assert!(text.len() <= limits::CLOSE_TEXT_BYTES),
            other => panic!("{other:?}"),
        }
    }
}
