//! Every limit that Tidelock puts on what others may send or make it keep. Nothing is allocated for a peer before its size was
//! compared with one of these.

use std::time::Duration;

/// Bytes of one message on a reliable lane. Larger things come in pieces.
pub const MESSAGE_BYTES: usize = 16 * 1024;
/// Bytes of the words that go with the end of a link.
pub const CLOSE_TEXT_BYTES: usize = 512;
/// Bytes that each reliable lane may hold for a peer that does not take them, once in the transport and once before it. Beyond, a
/// message of the game is refused at the call; a peer that has no room for one of the control lane is too slow and is removed.
pub const LANE_QUEUE_BYTES: usize = 1 << 20;
/// Bytes that a message counts for beside its own while it waits, so that many small ones are bounded too.
pub const MESSAGE_COST: usize = 64;
/// How long a lane may have a message to hand over that the transport does not take; then the peer is too slow.
pub const LANE_QUEUE_TIME: Duration = Duration::from_secs(10);
/// Bytes of one blob: a large thing that goes to a guest in pieces.
pub const BLOB_BYTES: usize = 16 << 20;
/// Topics that blobs may have. Of each, one is on its way at a time, or is there and was not fetched.
pub const BLOB_TOPICS: usize = 4;
/// Bytes of a large message of the game, as the game made it.
pub const LARGE_BYTES: usize = 1 << 20;
/// Bytes of large messages that wait to go to one peer or are on their way, and of those that came from one and were not fetched,
/// with [`MESSAGE_COST`] for each.
pub const LARGE_QUEUE_BYTES: usize = 4 << 20;
/// Large messages (their types) in a schema.
pub const LARGE_MESSAGES: usize = 64;
/// What is there of a large message is let go when nothing of it has come for so long. Its sender lets some of it go well before.
pub const LARGE_IDLE: Duration = Duration::from_secs(10);
/// Bytes of a blob in one piece: what fits one packet with its head.
pub const BLOB_PIECE: usize = 1000;
/// Bytes of blobs that may be on their way to a guest at most: beyond, it must say first that it has some.
pub const BLOB_FLIGHT: usize = 256 << 10;
/// The same to begin with, and as soon as queues fill up on the way.
pub const BLOB_FLIGHT_LEAST: usize = 8 << 10;
/// While round trips take so much longer than they took lately, no piece goes out: queues are filling up somewhere.
pub const BLOB_DELAY: Duration = Duration::from_millis(100);
/// Types of definitions in a schema.
pub const DEFINITION_TYPES: usize = 64;
/// Definitions that a host has at a time.
pub const DEFINITIONS: usize = 4096;
/// Bytes of one definition as it travels.
pub const DEFINITION_BYTES: usize = 1 << 20;
/// Changes of definitions that go together: new revisions and ends.
pub const DEFINITION_CHANGES: usize = 4096;
/// Bytes of changes of definitions that go together: the largest definition with its head, or smaller ones and ends.
pub const DEFINITION_CHANGES_BYTES: usize = DEFINITION_BYTES + 18;
/// Bytes of all definitions of a host, each in its newest revision.
pub const DEFINITIONS_BYTES: usize = 32 << 20;
/// Lists and maps that grow, in a schema.
pub const COLLECTIONS: usize = 64;
/// Lists and maps of entities that a host has at a time.
pub const COLLECTIONS_HELD: usize = 4096;
/// Items of one list or map that grows, and operations on it in one message.
pub const COLLECTION_ITEMS: usize = 1 << 16;
/// Bytes of one item as it travels, with its key.
pub const COLLECTION_ITEM_BYTES: usize = 4 << 10;
/// Bytes of all items of one list or map, each with its length and its key.
pub const COLLECTION_BYTES: usize = 1 << 20;
/// Bytes that the items of one list or map may take in memory: their bytes as they travel, and for each its size as a value and
/// [`COLLECTION_ITEM_MEMORY`].
pub const COLLECTION_MEMORY: usize = 8 << 20;
/// Bytes that are charged for what an item takes beside its bytes and its value.
pub const COLLECTION_ITEM_MEMORY: usize = 64;
/// The same as [`COLLECTION_MEMORY`] of all lists and maps of a host.
pub const COLLECTIONS_BYTES: usize = 32 << 20;
/// Bytes beyond that which a guest takes: what goes in pieces may overtake the message that makes room for it.
pub const COLLECTIONS_SLACK: usize = 8 << 20;
/// Items of a list that are moved by all insertions and removals of one message. Where there would be more, all of the list goes.
pub const COLLECTION_SHIFTS: usize = 1 << 22;
/// Bytes of what goes as one message about a list or map; what is larger goes in pieces. While more than this waits on the lane, no
/// further one is added.
pub const COLLECTION_MESSAGE_BYTES: usize = 4 << 10;
/// How often a guest may ask for a list or map that does not go with what it has. On lanes that lose nothing there is no need to.
pub const COLLECTION_ASKS: u32 = 16;
/// Bits per second towards one peer that can be set at least.
pub const BANDWIDTH_LEAST: u64 = 16_000;
/// Bytes of the smallest state packet that is built because no more may be sent now.
pub const PACKET_LEAST_BYTES: usize = 64;
/// Bytes that every transport must take in one datagram.
pub const DATAGRAM_MIN_BYTES: usize = 1000;
/// Bytes of the largest datagram that Tidelock ever builds, whatever a transport offers.
pub const DATAGRAM_MAX_BYTES: usize = 1200;
/// Ranges of packet numbers in one acknowledgement. The oldest are left out; their packets are sent again.
pub const ACK_RANGES: usize = 32;
/// Packets sent and not yet acknowledged or lost, per link and direction.
pub const PACKETS_IN_FLIGHT: usize = 8192;
/// Send ticks that the history remembers: both sides of every stream. Baselines are younger than this.
pub const RING: usize = 64;
/// Words of quantised values in one packet: what decoding it may take for a moment, whatever it says is "the same".
pub const PACKET_WORDS: usize = 1 << 15;
/// Values in one packet.
pub const PACKET_VALUES: usize = 1 << 13;
/// The oldest baseline, in send ticks, that a packet may name.
pub const BASE_AGE: u64 = 62;
/// Session ticks from a baseline to now that a packet may speak of: what is older is carried on no further.
pub const ELAPSED: u64 = 1 << 14;
/// Ticks that a peer can keep to go back to.
pub const SAVES: usize = 128;
/// Entities that a peer can steer ahead of lockstep: each is saved, run and restored in every frame.
pub const STEERED: usize = 8;
/// Lists in lists of a value that is read from a snapshot: bounds the stack.
pub const CHECKPOINT_DEPTH: usize = 32;
/// Bytes of memory that the lists and components of one snapshot may take once they are read: a byte of it can stand for much more.
pub const CHECKPOINT_MEMORY: usize = 256 << 20;
/// Trained tables of prefix codes that a session may have.
pub const TABLES: usize = 64;
/// Bytes of trained tables as they travel: two, and 37 for each.
pub const TABLES_BYTES: usize = 2370;
/// Histograms in one recording that tables are trained from.
pub const HISTOGRAMS: usize = 4096;
/// Components (and resources) in a schema.
pub const COMPONENTS: usize = 63;
/// Kinds in a schema.
pub const KINDS: usize = 64;
/// Messages in a schema: their number is a byte, and the last two stand for lists and maps, and for orders.
pub const MESSAGES: usize = 254;
/// Fields of one component, options, parts and the items of lists counted.
pub const FIELDS: usize = 256;
/// Items of one list or map within a component.
pub const LIST_ITEMS: usize = 64;
/// Bits of the largest value of one component: it must fit any datagram together with its headers.
pub const COMPONENT_BITS: usize = 7_200;
/// Bytes of a stable name (component, kind, message, field).
pub const NAME_BYTES: usize = 64;
/// Bytes of a bounded field of text or bytes, opaque values included.
pub const STRING_BYTES: usize = 512;
/// Rows of one stream: networked entities that one peer publishes at one time.
pub const ROWS: usize = 1 << 18;
/// Rows that a guest may publish at one time: bounds what it can make its host remember.
pub const GUEST_ROWS: usize = 1 << 14;
/// Datagrams that are no valid packet, after which the other side counts as broken or hostile and its link ends.
pub const MALFORMED: u64 = 16;
/// Peers of one session, the host included.
pub const PEERS: usize = 1024;
/// NetIds in one lease.
pub const LEASE: u64 = 1 << 16;
/// Bytes of messages of one sender that came and were not fetched, overheads counted: four times what its own lane may hold, so
/// that whatever a repaired loss sets free at once has room. Beyond, the oldest are dropped and counted, a sixteenth of it at once.
pub const MAILBOX_BYTES: usize = 4 << 20;
/// Events that one peer was sent and has not acknowledged. Beyond, one is refused at the call.
pub const EVENTS_IN_FLIGHT: usize = 1024;
/// Events in a second that a guest may send to all, [`EVENTS_IN_FLIGHT`] of them at once. Beyond, one is refused at the call; a guest
/// that sends twice as many all the same is removed.
pub const SHARED_EVENTS_RATE: u32 = 4096;
/// Bits of the largest event: it must fit any packet of state together with its headers.
pub const EVENT_BITS: usize = 7_000;
/// Ticks that the tick of a timed event may be ahead of the session.
pub const EVENT_AHEAD: u64 = 1 << 14;
/// Requests to one peer that have no outcome yet; and how many of one peer wait for an answer. Beyond, the oldest is given up there.
pub const REQUESTS: usize = 256;
/// How long a request waits for its reply, unless its caller says otherwise.
pub const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Messages of one type that wait for an entity they name, per sender. Beyond, the oldest is dropped and counted.
pub const WAITING_MESSAGES: usize = 256;
/// How long a message waits for an entity that it names.
pub const WAITING_TIME: Duration = Duration::from_secs(10);
/// How long a link may take from its opening to admission.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Ticks run in one frame after a stall; the rest is skipped.
pub const CATCH_UP_TICKS: u64 = 8;
/// Events that wait for the game to fetch them; the oldest go first, and their number is told.
pub const EVENTS: usize = 1 << 16;
/// Protocol versions that a peer may list.
pub const VERSIONS: usize = 16;
/// Ticks per second that a session may run at.
pub const TICK_RATE: u32 = 1000;
/// Microseconds that a session may last (142 years): times below this can be added and scaled without care.
pub const SESSION_MICROS: u64 = 1 << 52;
/// Inputs in a schema.
pub const INPUTS: usize = 1;
/// Ticks of inputs in one packet, the newest ones: what was not confirmed before is given up.
pub const INPUT_WINDOW: usize = 64;
/// How many ticks past what it has run a host keeps inputs for. A power of two.
pub const INPUT_AHEAD: u64 = 128;
/// For how long a host repeats the last input of a guest that sends none. Beyond, the guest's input is absent.
pub const INPUT_REPEAT: Duration = Duration::from_millis(250);
/// The most that a guest's ticks run ahead of the session, and at most as many ticks as [`INPUT_WINDOW`].
pub const LEAD_MAX: Duration = Duration::from_secs(1);
/// Orders (their types) in a schema.
pub const ORDERS: usize = 64;
/// Bytes of the orders in one sealed frame; what is beyond waits for the next tick.
pub const FRAME_BYTES: usize = 480;
/// Bytes of everything else in a frame: with its orders it fits the smallest datagram. Inputs beyond are as good as late.
pub const FRAME_STATE_BYTES: usize = 480;
/// Seats in a frame, and so peers of a session that has frames.
pub const FRAME_SEATS: usize = 256;
/// Seats that are taken, left or change hands in one frame; the rest does in the next.
pub const FRAME_SEAT_CHANGES: usize = 64;
/// Bits of the largest input that a schema may have with frames: one fits the smallest room that a frame has for them.
pub const FRAME_INPUT_BITS: usize = 1900;
/// Orders in one sealed frame.
pub const FRAME_ORDERS: usize = 256;
/// Orders of one peer in one sealed frame; what is beyond waits for the next tick.
pub const ORDERS_PER_PEER_TICK: usize = 8;
/// Orders that one peer has given and that are not sealed. Beyond, an order is refused at the call; a guest that sends more is removed.
pub const ORDERS_PENDING: usize = 256;
/// The most that an order's tick is ahead of the session.
pub const ORDER_DELAY_MAX: Duration = Duration::from_secs(2);
/// Frames that a host keeps for its slowest guest, and that a guest keeps until it has run them.
pub const FRAMES: usize = 4096;
/// Bytes of the frames that a host keeps for its slowest guest, as they are sent.
pub const FRAMES_BYTES: usize = 1 << 20;
/// Bytes of the frames that a guest keeps, as they are in memory.
pub const FRAMES_HELD_BYTES: usize = 8 << 20;
/// Frames in one packet.
pub const FRAMES_IN_PACKET: u64 = 256;
/// How often a frame is repeated, at most, in the packets that follow it, before a round trip has passed.
pub const FRAME_REPEATS: u32 = 3;
/// How often, beside that, all frames that are not confirmed are repeated within a round trip.
pub const FRAME_SWEEPS: u32 = 6;
/// Steps of lockstep in one tick of the session.
pub const LOCKSTEP_STEPS: u8 = 8;
/// How far a host goes back at most to what a guest saw when it acted: see `Peer::seen_by`.
pub const LAG_COMPENSATION: Duration = Duration::from_millis(500);
/// How far behind its own tick a guest can say that it draws, in sixteenths of a tick. Beyond, it is not read.
pub const BEHIND_UNITS: u32 = 1 << 18;
/// Requests for ownership of one guest that have no outcome yet, at the guest and at the host; and how many a host takes at once.
pub const OWNERSHIP_REQUESTS: usize = 64;
/// Requests for ownership, and releases, of one guest that a host takes in a second. A guest makes a quarter as many. Beyond, one is
/// refused, and counts like a refused write.
pub const OWNERSHIP_RATE: u32 = 64;
/// How long a host's game may leave a request for ownership unanswered. Then it is refused.
pub const OWNERSHIP_TIME: Duration = Duration::from_secs(10);
/// Entities in one digest of a computed state: beyond, it is taken a slice per step. Resources come on top.
pub const DIGEST_ROWS: usize = 4096;
/// Digests of a computed timeline that a host remembers, for guests that are late with theirs; and how many a guest may send that
/// its host knows nothing of.
pub const DIGESTS: usize = 1024;
/// States (or slices of them) of a computed timeline that are kept after their digest was taken, to find out what differs.
pub const DIGEST_STATES: usize = 128;
/// Bytes that they take, at most; the oldest go first.
pub const DIGEST_BYTES: usize = 32 << 20;
/// How long a host waits, once a digest differs, for those of the other guests.
pub const FORK_WAIT: Duration = Duration::from_secs(2);
/// A guest's forks on one timeline are reported at most so often.
pub const FORK_COOLDOWN: Duration = Duration::from_secs(10);
/// How long a guest may take to answer a question about its state.
pub const FORK_ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long a guest that is removed for its fork still gets what is found out about it.
pub const FORK_FAREWELL: Duration = Duration::from_secs(1);
/// Guests whose forks wait to be located. Beyond, one is reported and not located.
pub const FORK_DESCENTS: usize = 8;
/// Forks that wait, at a guest, until it has run their tick. Beyond, the oldest is told at once.
pub const FORKS_PENDING: usize = 64;
/// Classes that names are put into on the way down from a digest.
pub const FORK_CLASSES: usize = 64;
/// Rows in one answer about a state.
pub const FORK_ROWS: usize = 512;
/// Bytes of a value in one answer about a state.
pub const FORK_VALUE_BYTES: usize = 8 << 10;
/// Bytes of the path of a field that differs, and of each value.
pub const FORK_TEXT_BYTES: usize = 256;
