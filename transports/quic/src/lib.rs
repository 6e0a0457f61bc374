//! Tidelock over QUIC: quinn for the protocol, rustls with the ring provider for TLS 1.3, one I/O thread per transport.
//!
//! A host listens and prints its address, which names its certificate; a guest joins by that line and trusts nothing else. No
//! certificate authority, no account and no clock is needed.
//!
//! ```
//! use std::time::Duration;
//! use tidelock_netcore::transport::{Arrival, Transport};
//! use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport};
//!
//! let config = ListenConfig::new("127.0.0.1:0".parse()?, Identity::generate()?);
//! let mut host = QuicTransport::listen(config)?;
//! println!("join with {}", host.address()); // 127.0.0.1:40123#5d1c…
//! let mut guest = QuicTransport::join(&host.address(), JoinConfig::default())?;
//! let mut payload = Vec::new();
//! while !matches!(guest.poll(Duration::ZERO, &mut payload), Some(Arrival::Opened { .. })) {
//!     host.poll(Duration::ZERO, &mut payload);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The mapping to QUIC
//!
//! * **Versions.** QUIC version 1; the TLS application protocol is `tidelock/1`, and its number rises when this mapping changes
//!   incompatibly. Either not in common: the guest is told [`LinkError::Version`].
//! * **Certificates.** The host's is self-signed. The guest compares the SHA-256 of its DER form with the fingerprint that it was
//!   given, ignores names and dates, and checks the host's signature over the handshake. Another certificate:
//!   [`LinkError::Certificate`]. Guests have none. Sessions are not resumed and there is no 0-RTT, so that every handshake is
//!   checked.
//! * **Datagrams.** One of ours is one DATAGRAM frame, with nothing added. A peer that does not take
//!   [`DATAGRAM_MIN_BYTES`] is closed with `PROTOCOL`.
//! * **Streams.** Each side may open a unidirectional stream for each of its ordered lanes, one for its goodbye, and 64 at a
//!   time for messages of [`Lane::UNORDERED`]; bidirectional streams are not granted. A stream is opened when it has something to carry. Its first byte says what it is:
//!
//!   | first byte | what follows |
//!   |---|---|
//!   | 0 … 2 | the lane of that number: messages, each a `u32` (little endian) of its length and so many bytes |
//!   | 3 | one message of [`Lane::UNORDERED`], in the same form, and the end of the stream |
//!   | 255 | the goodbye: a `u32` (little endian) code, then UTF-8 text to the end, at most [`CLOSE_TEXT_BYTES`] |
//!
//!   An ordered lane has one stream for its whole life, and ends it only between two messages. Anything else (another first byte, a second
//!   stream for a lane, a second message on a stream of its own, a length beyond [`MESSAGE_BYTES`], a stream that is reset or ends within a message) closes the
//!   connection with `PROTOCOL`, and costs nobody else anything.
//! * **Ends.** Who ends a link finishes its lanes, waits until they are acknowledged, sends the goodbye, waits until that is
//!   acknowledged, and closes the connection with the same code and text; after a second at most it closes in any case. The
//!   goodbye is on a stream because QUIC does not repeat a lost CONNECTION_CLOSE. Who has received the goodbye reads the lanes to
//!   their ends, then closes with application code 0, which is not looked at.
//! * **Codes** of the application's CONNECTION_CLOSE, and how the other side's game hears of them:
//!
//!   | code | name | meaning | told as |
//!   |---|---|---|---|
//!   | 0 … 2³²-1 | | the game's own, see [`DisconnectReason`] | [`LinkError::ClosedByPeer`] |
//!   | 2³²+1 | `FULL` | no seat was left when the handshake was done | [`LinkError::Full`] |
//!   | 2³²+2 | `PROTOCOL` | this mapping was broken | [`LinkError::Failed`] |
//!
//!   Of QUIC's own errors, `CONNECTION_REFUSED` is what a host answers to a hello when it has no seat, told as
//!   [`LinkError::Full`]; the TLS alert 120 (`no_application_protocol`) is told as [`LinkError::Version`]; others as
//!   [`LinkError::Failed`].
//!
//! # The way in
//!
//! A hello meets, in this order: no seat in all or for its address (answered with `CONNECTION_REFUSED`); too many handshakes in
//! progress (not answered; the guest repeats its hello and comes in when there is room); many handshakes in progress (answered
//! with a Retry, so that only those get further who can receive where they say they are). See [`ConnectionLimits`].
//!
//! A guest looks up the name if there is one (on a thread of tokio's, while it lasts), then tries each address in turn, each with
//! its share of the time. Beside each hello it sends one byte from a connected socket of its own, which QUIC ignores: if no program
//! listens there, the system hears so by ICMP and tells that socket. The attempt ends as [`LinkError::Refused`] (so it was),
//! [`LinkError::Unreachable`] (no address, no route), [`LinkError::TimedOut`] (silence until [`JoinConfig::deadline`]), or one
//! of the answers above.
//!
//! # Threads, and the way of a packet
//!
//! The game thread holds the [`QuicTransport`]; one thread per transport runs a current-thread tokio runtime with the socket,
//! QUIC, and one task per link. Between them stand, per link, these queues and nothing else that could grow:
//!
//! | queue | bound | when it is full |
//! |---|---|---|
//! | datagrams out | QUIC's own buffer, 32 KiB | [`Delivery::Full`], until it is empty |
//! | messages out, per lane | [`LANE_QUEUE_BYTES`], 64 bytes added to each | [`Delivery::Full`] |
//! | messages on their way, per lane | 128 KiB by QUIC's flow control | they wait in the queue above |
//! | messages in | 256 KiB, 64 bytes added to each | the lanes are not read, so that flow control holds the other side back |
//! | datagrams in | 256 | the oldest goes, and is counted: [`QuicTransport::datagrams_dropped`] |
//!
//! *Out.* `send_datagram` looks at the room in QUIC's buffer and puts the datagram there itself, under QUIC's lock, which is never
//! held for longer than it takes to write a few packets; quinn would drop the oldest if there was no room, and since only the
//! game thread adds, the look is enough. The I/O thread, woken by the first, encrypts and sends as congestion control allows.
//! `send_message` puts the message with its length in front into its lane's queue; the lane's task writes it to its stream. So
//! everything leaves as soon as it is sent, and `flush` has nothing to do. QUIC sends datagrams before
//! streams; lest a buffer that is always topped up starve the lanes, one that was full takes nothing more until it has run dry.
//!
//! *In.* The link's task copies datagrams into their queue. Each lane's task reads a length, waits for room, reads the message and
//! queues it. `poll` goes from link to link and gives what was there when a link's turn came; then it gives `None`, however
//! fast a peer sends. Acknowledgements, repetition and keep-alive are the I/O thread's, so that a game that stalls keeps its
//! links, and a link whose messages it does not fetch holds up no other.
//!
//! *Ends.* A link's reason is set when all that came in is queued, and `poll` gives it when the queues are empty. A connection
//! keeps its seat until then, so that connections that come and go while the game stalls cannot pile up.
//!
//! # Choices
//!
//! * *Congestion control* is BBR, as quinn has it: it measures what the path carries, and does not take every loss for congestion.
//!   CUBIC, the default, came down to about 1 Mbit/s at 2 % of random loss and to 100 kbit/s at 20 %, on a path without any limit;
//!   the state of the arena's 2 000 entities was then five seconds old where it is half a second with BBR.
//! * *The rate* that [`Facts::rate`] tells is BBR's own, the largest within a second, but at least twice what is sent without loss,
//!   so that a program that has had little to say is not held to that.
//! * *Packet size* begins at 1200 bytes, which every path takes, and grows by QUIC's own discovery; [`Facts::datagram_limit`]
//!   follows.
//! * *Migration* is allowed: a guest whose router gives it another port keeps its link.
//!
//! [`CLOSE_TEXT_BYTES`]: tidelock_netcore::limits::CLOSE_TEXT_BYTES
//! [`DATAGRAM_MIN_BYTES`]: tidelock_netcore::limits::DATAGRAM_MIN_BYTES
//! [`Delivery::Full`]: tidelock_netcore::transport::Delivery::Full
//! [`DisconnectReason`]: tidelock_netcore::error::DisconnectReason
//! [`Facts::datagram_limit`]: tidelock_netcore::transport::Facts::datagram_limit
//! [`Facts::rate`]: tidelock_netcore::transport::Facts::rate
//! [`LANE_QUEUE_BYTES`]: tidelock_netcore::limits::LANE_QUEUE_BYTES
//! [`Lane::UNORDERED`]: tidelock_netcore::transport::Lane::UNORDERED
//! [`LinkError::Certificate`]: tidelock_netcore::error::LinkError::Certificate
//! [`LinkError::ClosedByPeer`]: tidelock_netcore::error::LinkError::ClosedByPeer
//! [`LinkError::Failed`]: tidelock_netcore::error::LinkError::Failed
//! [`LinkError::Full`]: tidelock_netcore::error::LinkError::Full
//! [`LinkError::Refused`]: tidelock_netcore::error::LinkError::Refused
//! [`LinkError::TimedOut`]: tidelock_netcore::error::LinkError::TimedOut
//! [`LinkError::Unreachable`]: tidelock_netcore::error::LinkError::Unreachable
//! [`LinkError::Version`]: tidelock_netcore::error::LinkError::Version
//! [`MESSAGE_BYTES`]: tidelock_netcore::limits::MESSAGE_BYTES

#![forbid(unsafe_code)]

mod address;
mod codes;
mod config;
mod identity;
mod join;
mod link;
mod listen;
mod rate;
mod seats;
mod shared;
pub mod shim;
mod tls;
mod transport;

pub use address::{Address, AddressError};
pub use config::{ConnectionLimits, JoinConfig, ListenConfig, Timing};
pub use identity::{Fingerprint, Identity, IdentityError};
pub use transport::{JoinError, QuicTransport};
