//! A game thread that stands still for five seconds, behind a ring as the QUIC transport has it, on virtual time.

#![forbid(unsafe_code)]

use hecs::World;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidelock::netcore::error::TransportError;
use tidelock::netcore::packet::PacketKind;
use tidelock::netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};
use tidelock::policy::Host;
use tidelock::{Config, Peer, Replicate, Schema, Step};
use tidelock_loopback::{Conditions, Loopback, Network};
use tidelock_threads::{Answer, Bounds, Class, Popped, Receiver, Sender, ring};

/// A guest's end: what would be its I/O thread fetches what comes in, and the game finds it when it comes to look.
#[derive(Clone)]
struct Behind(Arc<Mutex<Ends>>);

struct Ends {
    inner: Loopback,
    sender: Sender,
    receiver: Receiver,
    /// All but datagrams.
    others: VecDeque<(Arrival, Vec<u8>)>,
    /// Packets of state that were discarded, as the I/O thread was told.
    discarded: u64,
    refused: u64,
}

impl Behind {
    fn new(inner: Loopback, bounds: Bounds) -> Self {
        let (sender, receiver) = ring(bounds);
        Self(Arc::new(Mutex::new(Ends { inner, sender, receiver, others: VecDeque::new(), discarded: 0, refused: 0 })))
    }

    /// What an I/O thread does at every moment.
    fn fetch(&self, now: Duration) {
        let mut ends = self.0.lock().unwrap();
        let mut payload = Vec::new();
        while let Some(arrival) = ends.inner.poll(now, &mut payload) {
            let Arrival::Datagram { .. } = arrival else {
                ends.others.push_back((arrival, payload.clone()));
                continue;
            };
            let replaceable = PacketKind::of(&payload).is_none_or(PacketKind::is_replaceable);
            let class = if replaceable { Class::State } else { Class::Kept };
            let pushed = ends.sender.push(now.as_millis() as u64 / 16, class, &payload);
            ends.discarded += pushed.discarded.map_or(0, |gone| gone.packets as u64);
            ends.refused += u64::from(pushed.answer != Answer::Taken);
        }
    }
}

impl Transport for Behind {
    fn poll(&mut self, _: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        let ends = &mut *self.0.lock().unwrap();
        if let Some((arrival, bytes)) = ends.others.pop_front() {
            *payload = bytes;
            return Some(arrival);
        }
        let Popped::Packet { bytes, .. } = ends.receiver.pop() else { return None };
        payload.clear();
        payload.extend_from_slice(bytes);
        Some(Arrival::Datagram { link: LinkId(0) })
    }

    fn facts(&self, link: LinkId) -> Option<Facts> {
        self.0.lock().unwrap().inner.facts(link)
    }

    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        self.0.lock().unwrap().inner.send_datagram(now, link, bytes)
    }

    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        self.0.lock().unwrap().inner.send_message(now, link, lane, bytes)
    }

    fn close(&mut self, now: Duration, link: LinkId, code: u32, text: &str) {
        self.0.lock().unwrap().inner.close(now, link, code, text);
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        self.0.lock().unwrap().inner.stats(link)
    }
}

/// The tick in which the host wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Written(u16);

#[derive(Clone, Copy, Default)]
struct Crate;

fn schema() -> Schema {
    Schema::builder("stall").component::<Written>("written", |c| c).kind::<Crate>("crate", Host::default()).build().unwrap()
}

fn frame(peer: &mut Peer, world: &mut World, now: Duration, mut run: impl FnMut(&mut World, &mut Step<'_>)) {
    peer.receive(now, world).unwrap();
    while let Some(mut step) = peer.next_step(world) {
        run(world, &mut step);
    }
    peer.send(now, world).unwrap();
}

/// How many ticks the oldest value in a world is behind.
fn behind(world: &World, tick: u64) -> u64 {
    world.query::<&Written>().iter().map(|written| tick - u64::from(written.0)).max().unwrap_or(u64::MAX)
}

#[test]
fn a_game_that_stands_still_for_five_seconds_is_as_new_as_before_at_once() {
    const ENTITIES: usize = 2000;
    let ms = Duration::from_millis;
    let (stall, resume, end) = (ms(3000), ms(8000), ms(9000));
    let network = Network::new(11);
    let config = Config { time_out: ms(30_000), ..Config::default() };
    let (mut host, mut hosts) = (Peer::host(schema(), network.host(), config.clone()).unwrap(), World::new());
    let weather = Conditions { latency: ms(20), ..Conditions::default() };
    let bounds = Bounds::default();
    let io = Behind::new(network.join(weather, weather), bounds);
    let (mut guest, mut guests) = (Peer::join(schema(), io.clone(), config).unwrap(), World::new());
    for _ in 0..ENTITIES {
        host.spawn(&mut hosts, Crate, (Written(0),)).unwrap();
    }
    let (mut before, mut most, mut fresh) = (0, 0, None);
    for now in (0..end.as_millis() as u64).map(ms) {
        io.fetch(now);
        let waiting = io.0.lock().unwrap().receiver.waiting();
        most = most.max(waiting.packets);
        assert!(waiting.bytes <= bounds.state_bytes + bounds.kept_bytes, "{waiting:?} at {now:?}");
        assert!(waiting.packets <= bounds.state_packets + bounds.kept_packets, "{waiting:?} at {now:?}");
        if !(now.as_millis() as u64).is_multiple_of(16) {
            continue;
        }
        frame(&mut host, &mut hosts, now, |world, step| {
            let tick = step.tick().0 as u16;
            step.query::<&mut Written>(world).iter().for_each(|written| *written = Written(tick));
        });
        if (stall..resume).contains(&now) {
            continue;
        }
        frame(&mut guest, &mut guests, now, |_, _| {});
        assert_eq!(io.0.lock().unwrap().receiver.waiting().packets, 0, "at {now:?}");
        let late = behind(&guests, host.tick().0);
        match now {
            _ if now >= resume && fresh.is_none() && late <= before => fresh = Some(now - resume),
            _ if (ms(2000)..stall).contains(&now) => before = before.max(late),
            // and it stays so
            _ if fresh.is_some() => assert!(late <= before + 1, "{late} ticks behind at {now:?}, {before} before the stall"),
            _ => {}
        }
    }
    let ends = io.0.lock().unwrap();
    assert_eq!(fresh, Some(Duration::ZERO), "in its very first frame; {before} ticks behind is what the way takes");
    assert!(
        most > bounds.state_packets / 2 && ends.discarded > 500,
        "{most} packets, {} discarded: was there a stall?",
        ends.discarded
    );
    assert_eq!((ends.receiver.lost(), ends.refused), (ends.discarded, 0), "what is lost was told, and only state was");
    assert_eq!(guests.len() as usize, ENTITIES);
}
