//! A whole session in one process on virtual time: a host, its guests, and the loopback between them. In every frame exactly one
//! tick is due.

use crate::cast::Cast;
use crate::crowd::Crowd;
use crate::meter::{Reading, timed};
use hecs::{Entity, World};
use std::time::Duration;
use tidelock::{Config, Peer, PeerId};
use tidelock_loopback::{Conditions, Network};

/// Ticks, and sends, per second.
pub const RATE: u32 = 60;
/// Frames within which everybody must have joined and hold the first state.
const JOIN_FRAMES: u64 = 1200;

/// What the network does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// How many ticks acknowledgements are under way, beyond the next tick.
    pub ack_delay: u32,
    /// The part of the datagrams that is lost, in both directions.
    pub loss: f64,
    /// Decides which.
    pub seed: u64,
}

/// A peer and its world.
pub struct Node {
    /// The peer.
    pub peer: Peer,
    /// Its world.
    pub world: World,
}

/// What one frame took.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The host's `receive`: acknowledgements.
    pub host_receive: Reading,
    /// The host's `send`: from the end of the simulation to bytes in the transport.
    pub host_send: Reading,
    /// Each guest's `receive`: decoding and applying.
    pub guest_receive: Vec<Reading>,
    /// Each guest's `send`.
    pub guest_send: Vec<Reading>,
    /// Bytes that the host handed to the transport for each guest.
    pub bytes: Vec<u64>,
}

/// The session.
pub struct Session<C> {
    /// The host.
    pub host: Node,
    /// The guests.
    pub guests: Vec<Node>,
    /// What the host simulates.
    pub crowd: Crowd,
    entities: Vec<Entity>,
    sent: Vec<u64>,
    frame: u64,
    cast: std::marker::PhantomData<C>,
}

fn config() -> Config {
    Config { tick_rate: RATE, send_every: 1, bandwidth: 1 << 33, guests: 1000, session: Some(1), ..Config::default() }
}

/// When frame `n` begins: the first nanosecond in which tick `n` is due.
fn time_of(n: u64) -> Duration {
    Duration::from_nanos((n * 1_000_000_000).div_ceil(u64::from(RATE)))
}

impl<C: Cast> Session<C> {
    /// A session whose guests are all in and hold the first state of the crowd.
    ///
    /// # Panics
    /// If they do not get there within 20 s of virtual time.
    #[must_use]
    pub fn new(crowd: Crowd, guests: usize, weather: Weather) -> Self {
        let network = Network::new(weather.seed);
        let host = Peer::host(C::schema(), network.host(), config()).expect("the settings are sound");
        // half a tick more: they arrive between two frames
        let halves = if weather.ack_delay == 0 { 0 } else { weather.ack_delay * 2 + 1 };
        let down = Conditions { loss: weather.loss, ..Conditions::default() };
        let up = Conditions { latency: Duration::from_secs(1) / (RATE * 2) * halves, ..down };
        let join = |_| Node {
            peer: Peer::join(C::schema(), network.join(up, down), config()).expect("the settings are sound"),
            world: World::new(),
        };
        let guests: Vec<_> = (0..guests).map(join).collect();
        let sent = vec![0; guests.len()];
        let mut session = Self {
            host: Node { peer: host, world: World::new() },
            guests,
            crowd,
            entities: Vec::new(),
            sent,
            frame: 0,
            cast: std::marker::PhantomData,
        };
        let Node { peer, world } = &mut session.host;
        peer.receive(Duration::ZERO, world).expect("time has just begun");
        session.entities = (0..session.crowd.len()).map(|i| C::spawn(peer, world, &session.crowd, i)).collect();
        session.settle(JOIN_FRAMES);
        assert!(session.is_equal(), "not everybody had the first state after 20 s");
        session
    }

    /// The time of the next frame.
    #[must_use]
    pub fn now(&self) -> Duration {
        time_of(self.frame)
    }

    /// Lets the crowd take a step and runs a frame.
    pub fn tick(&mut self) -> Frame {
        self.crowd.step();
        self.frame(true)
    }

    /// Runs a frame; `moving`: the host's world takes over what the crowd's last step changed.
    pub fn frame(&mut self, moving: bool) -> Frame {
        let now = self.now();
        self.frame += 1;
        let mut frame = Frame::default();
        self.host_frame(now, moving, &mut frame);
        self.guest_frames(now, &mut frame);
        for (i, sent) in self.sent.iter_mut().enumerate() {
            let total = self.host.peer.stats(PeerId(i as u16 + 1)).map_or(0, |s| s.sent.bytes);
            frame.bytes.push(total - *sent);
            *sent = total;
        }
        frame
    }

    /// The host's part. A function of its own, by whose name instructions are counted: `benches/instructions`.
    #[inline(never)]
    fn host_frame(&mut self, now: Duration, moving: bool, frame: &mut Frame) {
        let Node { peer, world } = &mut self.host;
        frame.host_receive = timed(|| peer.receive(now, world).expect("time goes on")).1;
        while peer.next_step(world).is_some() {}
        if moving {
            C::show(world, &self.entities, &self.crowd);
        }
        frame.host_send = timed(|| peer.send(now, world).expect("time goes on")).1;
    }

    /// The guests' part; see [`host_frame`](Self::host_frame).
    #[inline(never)]
    fn guest_frames(&mut self, now: Duration, frame: &mut Frame) {
        for Node { peer, world } in &mut self.guests {
            frame.guest_receive.push(timed(|| peer.receive(now, world).expect("time goes on")).1);
            while peer.next_step(world).is_some() {}
            frame.guest_send.push(timed(|| peer.send(now, world).expect("time goes on")).1);
        }
    }

    /// Runs frames without changes until all guests hold what the host holds, or `most` have been run.
    pub fn settle(&mut self, most: u64) {
        for n in 0..most {
            self.frame(false);
            let all_in = self.guests.iter().all(|g| g.peer.is_in_session() && g.peer.entity_count() == self.crowd.len());
            if all_in && n.is_multiple_of(30) && self.is_equal() {
                return;
            }
        }
    }

    /// Do all guests' worlds hold exactly what the host's world does, quantised?
    #[must_use]
    pub fn is_equal(&self) -> bool {
        let digests = self.host.peer.digests(&self.host.world);
        self.guests.iter().all(|g| g.peer.digests(&g.world) == digests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cast::{Full, Points};
    use crate::crowd::Motion;

    #[test]
    fn guests_follow_through_loss_and_delay() {
        let weather = Weather { ack_delay: 6, loss: 0.05, seed: 3 };
        let mut session = Session::<Full>::new(Crowd::new(500, 0.2, Motion::Turning), 2, weather);
        for _ in 0..80 {
            let tick = session.host.peer.tick();
            session.tick();
            assert_eq!(session.host.peer.tick(), tick.plus(1), "SEED={}", weather.seed);
        }
        session.settle(300);
        assert!(session.is_equal(), "SEED={}", weather.seed);
    }

    #[test]
    fn another_schema_runs_the_same_way() {
        let mut session = Session::<Points>::new(Crowd::new(300, 0.5, Motion::Steady), 1, Weather::default());
        let bytes: u64 = (0..20).map(|_| session.tick().bytes[0]).sum();
        session.settle(60);
        assert!(session.is_equal() && bytes > 0);
    }
}
