//! bevy_replicon on the crowd: an app for the server and one for each client, and messages carried by hand between its own
//! queues, so that acknowledgements arrive before the next tick. Components are plain floats, as its users have them.

use bevy::prelude::*;
use bevy::state::app::StatesPlugin;
use bevy_replicon::prelude::*;
use bevy_replicon::test_app::{ServerTestAppExt, TestClientEntity};
use peer_common::{Library, run};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use tidelock_benches::alloc::Counting;
use tidelock_benches::crowd::Crowd;
use tidelock_benches::meter::Reading;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Component, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Place([f32; 3]);
#[derive(Component, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Turn([f32; 4]);
#[derive(Component, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Speed([f32; 3]);
#[derive(Component, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Health(u16);
/// Which of the crowd it is; clients learn it too, for the comparison at the end. It never changes.
#[derive(Component, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Member(u32);

struct Replicon {
    server: App,
    clients: Vec<App>,
    /// How the server calls each client.
    seats: Vec<Entity>,
    members: Vec<Entity>,
}

fn app() -> App {
    let mut app = App::new();
    app.add_plugins((MinimalPlugins, StatesPlugin, RepliconPlugins.set(ServerPlugin::new(PostUpdate))));
    app.replicate::<Place>().replicate::<Turn>().replicate::<Speed>().replicate::<Health>().replicate::<Member>();
    app.finish();
    app
}

impl Library for Replicon {
    const NAME: &'static str = "bevy_replicon 0.44";

    fn start(crowd: &Crowd, guests: usize) -> Self {
        let mut server = app();
        let mut clients: Vec<App> = (0..guests).map(|_| app()).collect();
        clients.iter_mut().for_each(|client| server.connect_client(client));
        let seats = clients.iter().map(|client| **client.world().resource::<TestClientEntity>()).collect();
        let member = |i: usize| {
            let pose = (Place(crowd.position[i]), Turn(crowd.rotation[i]), Speed(crowd.velocity[i]));
            (Replicated, pose, Health(crowd.health[i]), Member(i as u32))
        };
        let members = (0..crowd.len()).map(|i| server.world_mut().spawn(member(i)).id()).collect();
        let mut library = Self { server, clients, seats, members };
        for _ in 0..10 {
            library.serve();
            library.carry();
            (0..guests).for_each(|i| library.receive(i));
            library.carry_back();
        }
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
        let mut queue = self.server.world_mut().resource_mut::<ServerMessages>();
        let sent: Vec<_> = queue.drain_sent().collect();
        let mut bytes = 0;
        for (seat, channel, message) in sent {
            bytes += message.len() as u64;
            let client = self.seats.iter().position(|s| *s == seat).expect("messages go to clients");
            self.clients[client].world_mut().resource_mut::<ClientMessages>().insert_received(channel, message);
        }
        bytes
    }

    fn receive(&mut self, client: usize) {
        self.clients[client].update();
    }

    fn carry_back(&mut self) {
        let mut to = self.server.world_mut().resource_mut::<ServerMessages>();
        for (client, seat) in self.clients.iter_mut().zip(&self.seats) {
            for (channel, message) in client.world_mut().resource_mut::<ClientMessages>().drain_sent() {
                to.insert_received(*seat, channel, message);
            }
        }
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
    if run::<Replicon>() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
