//! What can be chosen, and the sizes that cannot.

use crate::identity::Identity;
use quinn::{IdleTimeout, TransportConfig, VarInt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidelock_netcore::error::TransportError;
use tidelock_netcore::limits;
use tidelock_netcore::transport::Lane;

/// For [`QuicTransport::listen`](crate::QuicTransport::listen).
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The UDP address to bind; port 0 takes any free one. `[::]` serves IPv4 as well, any other address only its own family.
    pub addr: SocketAddr,
    /// The certificate to show.
    pub identity: Identity,
    /// How many connections.
    pub limits: ConnectionLimits,
    /// How silence is taken.
    pub timing: Timing,
}

impl ListenConfig {
    /// With the default limits and times.
    #[must_use]
    pub fn new(addr: SocketAddr, identity: Identity) -> Self {
        Self { addr, identity, limits: ConnectionLimits::default(), timing: Timing::default() }
    }
}

/// How many connections a listener serves. A connection counts from the end of its handshake until both its end has been fetched by
/// the game ([`Arrival::Closed`](tidelock_netcore::transport::Arrival::Closed), or the game closed it itself) and its goodbye is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all.
    pub total: usize,
    /// From one IPv4 address, or from one IPv6 /64 network (one customer usually has all of it).
    pub per_address: usize,
    /// Handshakes in progress. Beyond, a hello is ignored; the guest repeats it, so it comes in as soon as there is room.
    pub pending: usize,
    /// From this many handshakes in progress, a guest must first prove that it can receive at its address (a QUIC Retry).
    pub retry_from: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { total: limits::PEERS, per_address: 64, pending: 256, retry_from: 32, handshake: Duration::from_secs(5) }
    }
}

/// How silence is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A link that sends nothing else sends a ping this often; it does so from the I/O thread, however long the game stalls.
    pub keep_alive: Duration,
    /// A link on which nothing is heard for so long has ended. Must be more than `keep_alive`; the smaller of both sides' holds.
    pub idle: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { keep_alive: Duration::from_secs(1), idle: Duration::from_secs(5) }
    }
}

/// For [`QuicTransport::join`](crate::QuicTransport::join).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinConfig {
    /// How long all of joining may take: look-up, every address of the name, handshake.
    pub deadline: Duration,
    /// How silence is taken.
    pub timing: Timing,
}

impl Default for JoinConfig {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(5), timing: Timing::default() }
    }
}

impl Timing {
    /// The settings of QUIC, the same for both sides.
    pub(crate) fn transport_config(self) -> Result<Arc<TransportConfig>, TransportError> {
        if self.keep_alive >= self.idle {
            let text = format!("keep_alive ({:?}) must be less than idle ({:?})", self.keep_alive, self.idle);
            return Err(TransportError::Broken(text));
        }
        let idle = IdleTimeout::try_from(self.idle)
            .map_err(|_| TransportError::Broken(format!("an idle time-out of {:?} is too long for QUIC", self.idle)))?;
        let mut config = TransportConfig::default();
        config
            .max_idle_timeout(Some(idle))
            .keep_alive_interval(Some(self.keep_alive))
            .initial_mtu(1200)
            .initial_rtt(INITIAL_RTT)
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
            .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
            .receive_window(VarInt::from_u32(WINDOW))
            .send_window(2 * u64::from(WINDOW))
            .datagram_receive_buffer_size(Some(DATAGRAMS_IN_BYTES))
            .datagram_send_buffer_size(DATAGRAMS_OUT_BYTES)
            .congestion_controller_factory(Arc::new(quinn::congestion::BbrConfig::default()));
        Ok(Arc::new(config))
    }
}

/// The round trip that is assumed before one was measured. A lost hello is repeated after three times this, then twice that, and
/// so on. QUIC's own third of a second would give a handshake with losses too few attempts within the deadline of five seconds.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Streams of messages without order that may be open at a time: one message each. Beyond, the next waits until one was read. One at a
/// link of 100 ms carries some 600 a second.
pub(crate) const UNORDERED_STREAMS: u32 = 64;
/// Streams that one side may have open: one for each other lane, one for the goodbye.
pub(crate) const STREAMS: u32 = Lane::COUNT as u32 + UNORDERED_STREAMS;
/// Bytes of all streams together: each lane its share, and each message without order its own.
const WINDOW: u32 = Lane::COUNT as u32 * STREAM_WINDOW + UNORDERED_STREAMS * (limits::MESSAGE_BYTES as u32 + 5);
/// Bytes that one lane may have on the way and unread. The connection's windows are so large that no lane can use up another's
/// share: the receiver grants the sum of all streams, and the sender keeps twice as much, for what was read but not acknowledged.
pub(crate) const STREAM_WINDOW: u32 = 128 * 1024;
/// Bytes of datagrams that wait for congestion control. Small, since whatever waits there is getting old: at 64 kB/s it is half a
/// second; yet enough for 25 full datagrams in one frame.
pub(crate) const DATAGRAMS_OUT_BYTES: usize = 32 * 1024;
/// Bytes of datagrams between QUIC and the link's task, which empties it at once unless the I/O thread itself is late.
pub(crate) const DATAGRAMS_IN_BYTES: usize = 256 * 1024;
/// Datagrams of one link that wait for the game thread. Beyond, the oldest goes, and is counted.
pub(crate) const DATAGRAMS_IN: usize = 256;
/// Bytes of reliable messages of one link that wait for the game thread. Beyond, the link's streams are not read.
pub(crate) const INBOX_BYTES: usize = 256 * 1024;
/// What a message costs in a queue beside its own bytes, so that many empty ones are bounded too.
pub(crate) const MESSAGE_COST: usize = 64;
/// How long an ended link waits until what was taken for its lanes is acknowledged.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);
/// The same when the whole transport is dropped; with [`LAST_WORDS`] it makes the second that a drop may take.
pub(crate) const FAREWELL_OF_ALL: Duration = Duration::from_millis(700);
/// How long a dropped transport stays to see its closes leave and to repeat them to whoever still sends.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(250);
/// Bytes that the system should keep for the socket, each way, so that a burst of all guests is not lost. It may give less.
pub(crate) const SOCKET_BYTES: usize = 1 << 20;
/// Hellos that QUIC keeps for the accepting task, which empties it at once.
pub(crate) const HELLOS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_times_are_refused_with_words() {
        let lazy = Timing { keep_alive: Duration::from_secs(5), idle: Duration::from_secs(5) };
        assert!(lazy.transport_config().unwrap_err().to_string().contains("keep_alive"));
        let endless = Timing { idle: Duration::MAX, ..Timing::default() };
        assert!(endless.transport_config().unwrap_err().to_string().contains("too long"));
        assert!(Timing::default().transport_config().is_ok());
    }

    #[test]
    fn the_largest_message_fits_every_queue_and_window() {
        let cost = limits::MESSAGE_BYTES + MESSAGE_COST;
        assert!(cost <= INBOX_BYTES && cost <= STREAM_WINDOW as usize && cost <= limits::LANE_QUEUE_BYTES);
        assert!(FAREWELL_OF_ALL + LAST_WORDS <= Duration::from_secs(1));
    }
}
