//! naia on the crowd: its own server and client cores over bevy_ecs worlds, its in-memory transport and its test clock; the limit
//! on bandwidth is lifted. Components are plain floats, as its users have them. Its bookkeeping of changes happens where a value
//! is written, so that is counted as the server's work.

use bevy_ecs::component::Component;
use bevy_ecs::entity::Entity;
use bevy_ecs::world::World;
use naia_bevy_shared::{Message, Protocol, Replicate, WorldData, WorldProxy, WorldProxyMut};
use naia_client::transport::local::{LocalAddrCell, LocalClientSocket, Socket as ClientSocket};
use naia_client::{Client, ClientConfig};
use naia_server::transport::local::{LocalServerSocket, Socket as ServerSocket};
use naia_server::{ConnectEvent, RoomKey, Server, ServerConfig};
use naia_shared::transport::local::{FAKE_SERVER_ADDR, LocalTransportHub};
use naia_shared::{Instant, Property, TestClock};
use parking_lot::Mutex;
use peer_common::{Library, run};
use std::process::ExitCode;
use std::sync::Arc;
use tidelock_benches::alloc::Counting;
use tidelock_benches::crowd::Crowd;
use tidelock_benches::meter::{Reading, timed};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A tick, in whole milliseconds as its clock counts.
const TICK_MS: u64 = 16;
/// Ticks within which everybody must be connected.
const CONNECT_TICKS: u32 = 1000;
/// The first state is over when for so many ticks in a row hardly anything was sent to a client; it must be by [`MOST_TICKS`].
const QUIET_TICKS: u32 = 30;
const QUIET_BYTES: u64 = 200;
const MOST_TICKS: u32 = 5000;

#[derive(Message)]
struct Greeting;

#[derive(Component, Replicate)]
struct Place {
    value: Property<[f32; 3]>,
}
#[derive(Component, Replicate)]
struct Turn {
    value: Property<[f32; 4]>,
}
#[derive(Component, Replicate)]
struct Speed {
    value: Property<[f32; 3]>,
}
#[derive(Component, Replicate)]
struct Health {
    value: Property<u16>,
}
/// Which of the crowd it is; clients learn it too, for the comparison at the end. It never changes.
#[derive(Component, Replicate)]
struct Member {
    value: Property<u32>,
}

struct Guest {
    core: Client<Entity>,
    world: World,
}

struct Naia {
    hub: LocalTransportHub,
    core: Server<Entity>,
    world: World,
    guests: Vec<Guest>,
    members: Vec<Entity>,
    now: Instant,
}

fn protocol() -> (naia_shared::Protocol, WorldData) {
    let mut protocol = Protocol::builder();
    protocol.add_default_channels().add_message::<Greeting>();
    protocol.add_component::<Place>().add_component::<Turn>().add_component::<Speed>();
    protocol.add_component::<Health>().add_component::<Member>();
    protocol.tick_interval(std::time::Duration::from_millis(TICK_MS));
    let mut protocol = protocol.build();
    let data = protocol.take_world_data();
    (protocol.into(), data)
}

fn world_of(data: WorldData) -> World {
    let mut world = World::new();
    world.insert_resource(data);
    world
}

impl Guest {
    fn new(hub: &LocalTransportHub) -> Self {
        let (protocol, data) = protocol();
        let mut core = Client::new(ClientConfig::default(), protocol);
        let (address, auth_out, auth_in, out, back) = hub.register_client();
        let server = LocalAddrCell::new();
        server.set_sync(hub.server_addr());
        let (token, rejection) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let socket = LocalClientSocket::new_with_tokens(
            address,
            hub.server_addr(),
            auth_out,
            auth_in,
            out,
            back,
            server,
            token,
            rejection,
        );
        core.auth(Greeting);
        core.connect(ClientSocket::new(socket, None));
        Self { core, world: world_of(data) }
    }

    fn receive(&mut self, now: &Instant) {
        self.core.receive_all_packets();
        self.core.process_all_packets(self.world.proxy_mut(), now);
        let _ = self.core.take_world_events();
    }
}

impl Naia {
    fn new(guests: usize) -> Self {
        TestClock::init(0);
        let hub = LocalTransportHub::new(FAKE_SERVER_ADDR.parse().expect("it is an address"));
        let mut config = ServerConfig::default();
        config.connection.bandwidth.target_bytes_per_sec = u32::MAX;
        let (protocol, data) = protocol();
        let mut core = Server::new(config, protocol);
        core.listen(ServerSocket::new(LocalServerSocket::new(hub.clone()), None));
        let guests = (0..guests).map(|_| Guest::new(&hub)).collect();
        Self { hub, core, world: world_of(data), guests, members: Vec::new(), now: Instant::now() }
    }

    fn pass(&mut self) {
        TestClock::advance(TICK_MS);
        self.now = Instant::now();
        self.hub.process_time_queues();
    }

    /// A room with everybody in it, once they are connected.
    fn gather(&mut self) -> RoomKey {
        let room = self.core.create_room().key();
        let mut connected = 0;
        for _ in 0..CONNECT_TICKS {
            self.serve();
            let mut events = self.core.take_world_events();
            for (_, users) in events.take_auths() {
                users.iter().for_each(|(user, _)| self.core.accept_connection(user));
            }
            for user in events.read::<ConnectEvent>() {
                self.core.room_mut(&room).add_user(&user);
                connected += 1;
            }
            self.hub.process_time_queues();
            (0..self.guests.len()).for_each(|i| self.receive(i));
            self.carry_back();
            if connected == self.guests.len() {
                return room;
            }
        }
        panic!("{connected} of {} clients connected within {CONNECT_TICKS} ticks", self.guests.len());
    }

    fn fill(&mut self, crowd: &Crowd, room: &RoomKey) {
        for i in 0..crowd.len() {
            let mut entity = self.core.spawn_entity(self.world.proxy_mut());
            let id = entity.id();
            entity.insert_component(Place::new_complete(crowd.position[i]));
            entity.insert_component(Turn::new_complete(crowd.rotation[i]));
            entity.insert_component(Speed::new_complete(crowd.velocity[i]));
            entity.insert_component(Health::new_complete(crowd.health[i]));
            entity.insert_component(Member::new_complete(i as u32));
            self.core.room_mut(room).add_entity(&id);
            self.members.push(id);
        }
    }
}

impl Library for Naia {
    const NAME: &'static str = "naia 0.25";

    fn start(crowd: &Crowd, guests: usize) -> Self {
        let mut library = Self::new(guests);
        let room = library.gather();
        library.fill(crowd, &room);
        library.hub.enable_packet_recording();
        let mut quiet = 0;
        for _ in 0..MOST_TICKS {
            library.serve();
            let few = library.carry() < QUIET_BYTES * guests as u64;
            (0..guests).for_each(|i| library.receive(i));
            library.carry_back();
            quiet = if few { quiet + 1 } else { 0 };
            let all_in = |g: &Guest| g.core.entities(&g.world.proxy()).len() >= crowd.len();
            if quiet >= QUIET_TICKS && library.guests.iter().all(all_in) {
                break;
            }
        }
        library
    }

    fn show(&mut self, crowd: &Crowd) -> Reading {
        let Self { world, members, .. } = self;
        let write = || {
            for i in crowd.moved.iter().map(|i| *i as usize) {
                let mut entity = world.entity_mut(members[i]);
                *entity.get_mut::<Place>().expect("it has one").value = crowd.position[i];
                *entity.get_mut::<Turn>().expect("it has one").value = crowd.rotation[i];
            }
            for i in crowd.hurt.iter().map(|i| *i as usize) {
                *world.entity_mut(members[i]).get_mut::<Health>().expect("it has one").value = crowd.health[i];
            }
        };
        timed(write).1
    }

    fn serve(&mut self) {
        self.core.receive_all_packets();
        self.core.process_all_packets(self.world.proxy_mut(), &self.now);
        self.core.send_all_packets(self.world.proxy());
    }

    fn carry(&mut self) -> u64 {
        let bytes = self.hub.take_recorded_packets().iter().map(|packet| packet.1.len() as u64).sum();
        self.hub.process_time_queues();
        bytes
    }

    fn receive(&mut self, client: usize) {
        self.guests[client].receive(&self.now);
    }

    fn carry_back(&mut self) {
        for Guest { core, world } in &mut self.guests {
            core.send_all_packets(world.proxy_mut());
            let _ = core.take_tick_events(&self.now);
        }
        let _ = self.hub.take_recorded_packets();
        let _ = self.core.take_tick_events(&self.now);
        self.pass();
    }

    fn is_equal(&mut self, crowd: &Crowd) -> bool {
        self.guests.iter_mut().all(|guest| {
            let mut query = guest.world.query::<(&Member, &Place, &Turn, &Health)>();
            let same = |(member, place, turn, health): (&Member, &Place, &Turn, &Health)| {
                let i = *member.value as usize;
                (*place.value, *turn.value, *health.value) == (crowd.position[i], crowd.rotation[i], crowd.health[i])
            };
            query.iter(&guest.world).filter(|row| same(*row)).count() == crowd.len()
        })
    }
}

fn main() -> ExitCode {
    if run::<Naia>() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
