//! The I/O thread's side of one link, from the end of the handshake to the end of the connection.

use crate::codes::{Farewell, link_error, peer_closed};
use crate::config::{FAREWELL, UNORDERED_STREAMS};
use crate::shared::{Link, Opened};
use bytes::Bytes;
use quinn::{Connection, ReadExactError, RecvStream, VarInt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tidelock_netcore::error::LinkError;
use tidelock_netcore::limits;
use tidelock_netcore::transport::Lane;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Something that the other side may not do on the transport's level. It costs that side its link.
#[derive(Debug)]
struct Violation(String);

/// Makes sure that the game hears of a link's end, whatever happens to the task that serves it.
pub(crate) struct End(pub(crate) Arc<Link>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end.get_or_init(|| LinkError::Failed("the transport's thread ended".into()));
    }
}

/// Marks a link as open. The other side must take datagrams of the size that Tidelock relies on.
pub(crate) fn open(link: &Link, connection: &Connection) -> Result<(), LinkError> {
    if connection.max_datagram_size().unwrap_or(0) < limits::DATAGRAM_MIN_BYTES {
        let text = format!("datagrams of {} bytes are needed", limits::DATAGRAM_MIN_BYTES);
        let farewell = Farewell::protocol(&text);
        connection.close(farewell.code, farewell.text.as_bytes());
        return Err(LinkError::Failed(format!("the other side breaks the transport's protocol: {text}")));
    }
    let mut address = connection.remote_address();
    address.set_ip(address.ip().to_canonical());
    let room = connection.datagram_send_buffer_space();
    let opened = Opened { connection: connection.clone(), room, address: address.to_string() };
    let first = link.opened.set(opened).is_ok();
    debug_assert!(first, "a link opens once");
    Ok(())
}

/// Serves an open link until it has ended and everything that came in was handed over.
pub(crate) async fn serve(link: Arc<Link>, connection: Connection, mut stop: watch::Receiver<Option<Farewell>>) {
    let end = End(link.clone());
    let mut writers = JoinSet::new();
    for lane in (0..Lane::COUNT).map(Lane).filter(|lane| *lane != Lane::UNORDERED) {
        writers.spawn(write_lane(link.clone(), connection.clone(), lane));
    }
    writers.spawn(write_unordered(link.clone(), connection.clone()));
    let reason = tokio::select! {
        read = read_all(&link, &connection) => match read {
            // All is read: the other side took its leave, or the connection is lost.
            Ok(()) => match link.goodbye.get().cloned() {
                Some(goodbye) => {
                    connection.close(VarInt::from_u32(0), b"");
                    goodbye
                }
                None => link_error(&connection.closed().await),
            },
            Err(Violation(text)) => {
                let farewell = Farewell::protocol(&text);
                connection.close(farewell.code, farewell.text.as_bytes());
                LinkError::Failed(format!("the other side broke the transport's protocol: {text}"))
            }
        },
        farewell = take_leave(&link, &connection, &mut writers, &mut stop) => {
            // Before the writers are dropped, which would end their streams as if they were complete.
            connection.close(farewell.code, farewell.text.as_bytes());
            LinkError::Failed("closed on this side".into())
        }
    };
    tracing::debug!(link = link.id.0, %reason, "link ended");
    link.end.get_or_init(|| reason);
    drop(end);
}

/// Waits for a farewell (the link's own or that of all), then for the lanes to be acknowledged, then for the farewell itself; all
/// of it for at most [`FAREWELL`].
async fn take_leave(
    link: &Link,
    connection: &Connection,
    writers: &mut JoinSet<()>,
    stop: &mut watch::Receiver<Option<Farewell>>,
) -> Farewell {
    tokio::select! {
        _ = link.farewell() => {}
        farewell = stopped(stop) => link.say_farewell(farewell),
    }
    let farewell = link.farewell().await;
    let written = async {
        while writers.join_next().await.is_some() {}
        say_goodbye(connection, &farewell).await;
    };
    if tokio::time::timeout(FAREWELL, written).await.is_err() {
        tracing::debug!(link = link.id.0, "the other side did not take all of its messages in time");
    }
    farewell
}

/// Tells the other side on a stream, since QUIC does not repeat a close that is lost. Over when it is acknowledged.
async fn say_goodbye(connection: &Connection, farewell: &Farewell) {
    let Ok(mut stream) = connection.open_uni().await else { return };
    let Ok(code) = u32::try_from(farewell.code.into_inner()) else { return };
    let goodbye = [&[GOODBYE][..], &code.to_le_bytes(), farewell.text.as_bytes()].concat();
    if stream.write_all(&goodbye).await.is_ok() {
        let _ = stream.finish();
        let _ = stream.stopped().await;
    }
}

/// Waits until all is to end. A transport that went away without a word counts as that.
pub(crate) async fn stopped(stop: &mut watch::Receiver<Option<Farewell>>) -> Farewell {
    match stop.wait_for(Option::is_some).await {
        Ok(farewell) => farewell.clone().expect("waited for"),
        Err(_) => Farewell::game(0, ""),
    }
}

/// Writes one lane's messages, each as it comes. Ends after a farewell when all is acknowledged, or when the connection is lost.
async fn write_lane(link: Arc<Link>, connection: Connection, lane: Lane) {
    let out = &link.out[usize::from(lane.0)];
    let mut farewell = link.farewell.subscribe();
    let mut stream = None;
    loop {
        // Looked at before the queue: what the game sent before its farewell is then seen in the queue below.
        let last = farewell.borrow_and_update().is_some();
        while let Some(message) = out.pop() {
            let length = message.len();
            if stream.is_none() {
                let Ok(mut opened) = connection.open_uni().await else { return };
                // The control lane goes first where the network is narrow, and large things last.
                let _ = opened.set_priority(i32::from(lane == Lane::CONTROL) - i32::from(lane == Lane::BULK));
                if opened.write_all(&[lane.0]).await.is_err() {
                    return;
                }
                stream = Some(opened);
            }
            let Some(stream) = &mut stream else { return };
            if stream.write_chunk(message).await.is_err() {
                return;
            }
            out.written(length);
        }
        if last {
            break;
        }
        tokio::select! {
            () = out.pushed.notified() => {}
            _ = farewell.changed() => {}
            _ = connection.closed() => return,
        }
    }
    if let Some(mut stream) = stream {
        let _ = stream.finish();
        let _ = stream.stopped().await;
    }
}

/// Writes the messages without order, each on a stream of its own. Ends like [`write_lane`].
async fn write_unordered(link: Arc<Link>, connection: Connection) {
    let out = &link.out[usize::from(Lane::UNORDERED.0)];
    let mut farewell = link.farewell.subscribe();
    let mut open = JoinSet::new();
    loop {
        let last = farewell.borrow_and_update().is_some();
        while let Some(message) = out.pop() {
            let length = message.len();
            // no more streams than the other side grants, so that the other lanes find theirs
            while open.len() >= UNORDERED_STREAMS as usize {
                open.join_next().await;
            }
            let Ok(mut stream) = connection.open_uni().await else { return };
            if stream.write_all(&[Lane::UNORDERED.0]).await.is_err() || stream.write_chunk(message).await.is_err() {
                return;
            }
            let _ = stream.finish();
            out.written(length);
            open.spawn(async move { drop(stream.stopped().await) });
        }
        while open.try_join_next().is_some() {}
        if last {
            break;
        }
        tokio::select! {
            () = out.pushed.notified() => {}
            _ = farewell.changed() => {}
            _ = connection.closed() => return,
        }
    }
    while open.join_next().await.is_some() {}
}

/// Reads all lanes and datagrams until nothing is left to read: the connection is lost, or the other side said goodbye.
async fn read_all(link: &Arc<Link>, connection: &Connection) -> Result<(), Violation> {
    let seen = Arc::new(AtomicU32::new(0));
    let mut lanes = JoinSet::new();
    let (mut streams, mut datagrams) = (true, true);
    while streams || datagrams || !lanes.is_empty() {
        // Who says goodbye has seen all of its lanes acknowledged, so that they are among those that are open or done.
        if link.goodbye.get().is_some() && lanes.is_empty() {
            break;
        }
        tokio::select! {
            stream = connection.accept_uni(), if streams => match stream {
                Ok(stream) => drop(lanes.spawn(read_stream(link.clone(), seen.clone(), stream))),
                Err(_) => streams = false,
            },
            datagram = connection.read_datagram(), if datagrams => match datagram {
                // A copy, since the slice would keep alive all that the system gave in one go.
                Ok(datagram) => link.datagrams.push(Bytes::copy_from_slice(&datagram)),
                Err(_) => datagrams = false,
            },
            Some(lane) = lanes.join_next() => lane.unwrap_or_else(|e| Err(Violation(format!("reading failed: {e}"))))?,
        }
    }
    Ok(())
}

/// Reads one stream: a byte that names the lane, then messages. `seen` has a bit for each lane that has had its stream.
async fn read_stream(link: Arc<Link>, seen: Arc<AtomicU32>, mut stream: RecvStream) -> Result<(), Violation> {
    let mut first = [0];
    match read(&mut stream, &mut first).await? {
        Read::Whole => {}
        Read::Finished => return Err(Violation("a stream names no lane".into())),
        Read::Lost => return Ok(()),
    }
    match first[0] {
        GOODBYE => read_goodbye(&link, &mut stream).await,
        lane if lane >= Lane::COUNT => Err(Violation(format!("there is no lane {lane}"))),
        lane if lane == Lane::UNORDERED.0 => read_unordered(&link, &mut stream).await,
        lane if seen.fetch_or(1 << lane, Ordering::Relaxed) & 1 << lane != 0 => {
            Err(Violation(format!("lane {lane} has a second stream")))
        }
        lane => read_lane(&link, Lane(lane), &mut stream).await,
    }
}

/// Reads the code and the text of a goodbye, which end the link once all lanes are read.
async fn read_goodbye(link: &Link, stream: &mut RecvStream) -> Result<(), Violation> {
    let goodbye = match stream.read_to_end(CODE_BYTES + limits::CLOSE_TEXT_BYTES).await {
        Ok(goodbye) => goodbye,
        Err(quinn::ReadToEndError::Read(quinn::ReadError::ConnectionLost(_))) => return Ok(()),
        Err(_) => return Err(Violation("a goodbye that is too long, or was reset".into())),
    };
    let Some((code, text)) = goodbye.split_first_chunk::<CODE_BYTES>() else {
        return Err(Violation("a goodbye without a code".into()));
    };
    match link.goodbye.set(peer_closed(u32::from_le_bytes(*code), text)) {
        Ok(()) => Ok(()),
        Err(_) => Err(Violation("a second goodbye".into())),
    }
}

/// Reads messages, each with its length in front.
async fn read_lane(link: &Link, lane: Lane, stream: &mut RecvStream) -> Result<(), Violation> {
    while read_message(link, lane, stream).await?.is_some() {}
    Ok(())
}

/// Reads the one message of a stream of its own.
async fn read_unordered(link: &Link, stream: &mut RecvStream) -> Result<(), Violation> {
    if read_message(link, Lane::UNORDERED, stream).await?.is_none() {
        return Ok(());
    }
    match read(stream, &mut [0]).await? {
        Read::Whole => Err(Violation("more than one message on a stream of its own".into())),
        Read::Finished | Read::Lost => Ok(()),
    }
}

/// Reads a message and hands it over; `None` if there is no more.
async fn read_message(link: &Link, lane: Lane, stream: &mut RecvStream) -> Result<Option<()>, Violation> {
    let mut length = [0; PREFIX_BYTES];
    match read(stream, &mut length).await? {
        Read::Whole => {}
        Read::Finished | Read::Lost => return Ok(None),
    }
    let length = u32::from_le_bytes(length);
    let fits = usize::try_from(length).ok().filter(|length| *length <= limits::MESSAGE_BYTES);
    let Some(length) = fits else { return Err(Violation(format!("a message of {length} bytes"))) };
    // While the game does not fetch, we wait here and do not read: QUIC's flow control holds the other side back.
    link.messages.reserve(length).await;
    let mut message = vec![0; length];
    match read(stream, &mut message).await? {
        Read::Whole => link.messages.push(lane, message),
        Read::Finished => return Err(Violation("a stream ends within a message".into())),
        Read::Lost => return Ok(None),
    }
    Ok(Some(()))
}

enum Read {
    Whole,
    /// The other side ended the stream at this very place.
    Finished,
    /// The connection is gone; what was on its way stays incomplete.
    Lost,
}

async fn read(stream: &mut RecvStream, buffer: &mut [u8]) -> Result<Read, Violation> {
    // Without a byte to read there is nothing to wait for (an empty message).
    if buffer.is_empty() {
        return Ok(Read::Whole);
    }
    match stream.read_exact(buffer).await {
        Ok(()) => Ok(Read::Whole),
        Err(ReadExactError::FinishedEarly(0)) => Ok(Read::Finished),
        Err(ReadExactError::FinishedEarly(_)) => Err(Violation("a stream ends within a message".into())),
        Err(ReadExactError::ReadError(quinn::ReadError::Reset(code))) => Err(Violation(format!("a lane was reset ({code})"))),
        Err(ReadExactError::ReadError(_)) => Ok(Read::Lost),
    }
}

/// In the place of a lane's number: the stream is a goodbye.
const GOODBYE: u8 = 255;
/// Bytes of a goodbye's code, little endian. What follows is its text.
const CODE_BYTES: usize = 4;
/// Bytes of the length in front of each message, little endian.
pub(crate) const PREFIX_BYTES: usize = 4;
