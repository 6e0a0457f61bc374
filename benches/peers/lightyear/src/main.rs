//! lightyear on the crowd: raw connections over its crossbeam links, cut in the middle so that bytes can be counted; its clock is
//! set by hand, and acknowledgements arrive before the next tick. Components are plain floats, as its users have them.

use bevy::platform::time::Instant;
use bevy::prelude::*;
use bevy::state::app::StatesPlugin;
use bevy::time::TimeUpdateStrategy;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};
use lightyear::crossbeam::CrossbeamIo;
use lightyear::prelude::client::*;
use lightyear::prelude::server::*;
use lightyear::prelude::*;
use mock_instant::global::MockClock;
use peer_common::{Library, run};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;
use tidelock_benches::alloc::Counting;
use tidelock_benches::crowd::Crowd;
use tidelock_benches::meter::Reading;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A tick at 60 Hz.
const TICK: Duration = Duration::from_nanos(16_666_667);
/// Ticks for connecting and agreeing on the time.
const CONNECT_TICKS: u32 = 60;
/// The first state is sent again and again until its acknowledgements have caught up: it is over when for so many ticks in a row
/// hardly anything was sent to a client.
const QUIET_TICKS: u32 = 20;
const QUIET_BYTES: u64 = 100;
/// It must be over by then.
const MOST_TICKS: u32 = 3000;

#[derive(Component, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Place([f32; 3]);
#[derive(Component, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Turn([f32; 4]);
#[derive(Component, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Speed([f32; 3]);
#[derive(Component, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Health(u16);
/// Which of the crowd it is; clients learn it too, for the comparison at the end. It never changes.
#[derive(Component, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Member(u32);

struct Lightyear {
    server: App,
    clients: Vec<App>,
    /// What the server sent to each client, and the way on.
    cuts: Vec<(Receiver<Bytes>, Sender<Bytes>)>,
    members: Vec<Entity>,
    now: Instant,
}

fn bare() -> App {
    let mut app = App::new();
    app.add_plugins((MinimalPlugins, StatesPlugin));
    app
}

fn protocol(app: &mut App) {
    app.component::<Place>().replicate();
    app.component::<Turn>().replicate();
    app.component::<Speed>().replicate();
    app.component::<Health>().replicate();
    app.component::<Member>().replicate();
}

fn begin(app: &mut App, now: Instant) {
    app.finish();
    app.cleanup();
    app.world_mut().resource_mut::<Time<Real>>().update_with_instant(now);
}

impl Lightyear {
    fn connect(guests: usize) -> Self {
        let now = Instant::now();
        let mut server = bare();
        server.add_plugins(ServerPlugins { tick_duration: TICK });
        protocol(&mut server);
        server.add_observer(|link: On<Add, LinkOf>, mut commands: Commands| {
            commands.entity(link.entity).insert(ReplicationSender);
        });
        let seat = server.world_mut().spawn(RawServer).id();
        begin(&mut server, now);
        server.world_mut().trigger(Start { entity: seat });
        // nothing listens: the links are made here
        server.world_mut().entity_mut(seat).insert(Linked);
        server.world_mut().flush();
        let mut library = Self { server, clients: Vec::new(), cuts: Vec::new(), members: Vec::new(), now };
        (0..guests).for_each(|i| library.add_client(i, seat));
        library
    }

    fn add_client(&mut self, i: usize, seat: Entity) {
        let mut client = bare();
        client.add_plugins(ClientPlugins { tick_duration: TICK });
        protocol(&mut client);
        begin(&mut client, self.now);
        let ((from_server, cut_in), (cut_out, to_client)) = (unbounded(), unbounded());
        let (from_client, to_server) = unbounded();
        self.cuts.push((cut_in, cut_out));
        let own = (Client, RawClient, Link::default(), ReplicationReceiver::default(), PingManager::default());
        let own = client.world_mut().spawn((own, CrossbeamIo::new(from_client, to_client))).id();
        let address = PeerAddr((Ipv4Addr::LOCALHOST, 1000 + i as u16).into());
        let io = CrossbeamIo::new(from_server, to_server);
        let at_server = (LinkOf { server: seat }, Link::default(), address, io, PingManager::default());
        let at_server = self.server.world_mut().spawn(at_server).id();
        self.server.world_mut().trigger(LinkStart { entity: at_server });
        client.world_mut().trigger(Connect { entity: own });
        client.world_mut().flush();
        self.server.world_mut().flush();
        self.clients.push(client);
    }

    /// Lets a tick pass for everybody.
    fn pass(&mut self) {
        self.now += TICK;
        for app in self.clients.iter_mut().chain([&mut self.server]) {
            app.insert_resource(TimeUpdateStrategy::ManualInstant(self.now));
        }
        MockClock::advance(TICK);
    }

    /// A tick without changes; gives the bytes to all clients.
    fn quiet_tick(&mut self) -> u64 {
        self.pass();
        self.server.update();
        let bytes = self.carry();
        self.clients.iter_mut().for_each(App::update);
        bytes
    }
}

impl Library for Lightyear {
    const NAME: &'static str = "lightyear 0.30";

    fn start(crowd: &Crowd, guests: usize) -> Self {
        let mut library = Self::connect(guests);
        for _ in 0..CONNECT_TICKS {
            library.quiet_tick();
        }
        for i in 0..crowd.len() {
            let pose = (Place(crowd.position[i]), Turn(crowd.rotation[i]), Speed(crowd.velocity[i]));
            let member = (Replicate::to_clients(NetworkTarget::All), pose, Health(crowd.health[i]), Member(i as u32));
            library.members.push(library.server.world_mut().spawn(member).id());
        }
        let mut quiet = 0;
        for _ in 0..MOST_TICKS {
            let few = library.quiet_tick() < QUIET_BYTES * guests as u64;
            quiet = if few { quiet + 1 } else { 0 };
            if quiet == QUIET_TICKS {
                break;
            }
        }
        library.pass();
        library
    }

    fn show(&mut self, crowd: &Crowd) -> Reading {
        let world = self.server.world_mut();
        for i in crowd.moved.iter().map(|i| *i as usize) {
            let mut entity = world.entity_mut(self.members[i]);
            entity.get_mut::<Place>().expect("it has one").0 = crowd.position[i];
            entity.get_mut::<Turn>().expect("it has one").0 = crowd.rotation[i];
        }
        for i in crowd.hurt.iter().map(|i| *i as usize) {
            world.entity_mut(self.members[i]).get_mut::<Health>().expect("it has one").0 = crowd.health[i];
        }
        Reading::default()
    }

    fn serve(&mut self) {
        self.server.update();
    }

    fn carry(&mut self) -> u64 {
        let mut bytes = 0;
        for (from, to) in &self.cuts {
            for packet in from.try_iter() {
                bytes += packet.len() as u64;
                to.send(packet).expect("the client lives as long");
            }
        }
        bytes
    }

    fn receive(&mut self, client: usize) {
        self.clients[client].update();
    }

    fn carry_back(&mut self) {
        self.pass();
    }

    fn is_equal(&mut self, crowd: &Crowd) -> bool {
        self.clients.iter_mut().all(|client| {
            let world = client.world_mut();
            let mut query = world.query::<(&Member, &Place, &Turn, &Health)>();
            let same = |(member, place, turn, health): (&Member, &Place, &Turn, &Health)| {
                let i = member.0 as usize;
                (place.0, turn.0, health.0) == (crowd.position[i], crowd.rotation[i], crowd.health[i])
            };
            query.iter(world).filter(|row| same(*row)).count() == crowd.len()
        })
    }
}

fn main() -> ExitCode {
    if run::<Lightyear>() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
