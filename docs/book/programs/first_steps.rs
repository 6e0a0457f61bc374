//! A rover at each peer, and everybody sees all of them move.

use std::{env, error::Error, thread, time::Duration, time::Instant};
use tidelock::{Config, Interpolate, Peer, Replicate, Schema, policy::Owner};
use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport};

#[derive(Clone, Copy, Replicate, Interpolate)]
struct Position {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
    #[net(step = 0.01, range = -500.0..=500.0)]
    y: f32,
}

#[derive(Clone, Copy, Default)]
struct Rover;

fn main() -> Result<(), Box<dyn Error>> {
    let schema = Schema::builder("first steps")
        .component::<Position>("position", |c| c.interpolate())
        .kind::<Rover>("rover", Owner::default())
        .build()?;
    let mut peer = match env::args().nth(1) {
        None => {
            let listen = ListenConfig::new("127.0.0.1:0".parse()?, Identity::generate()?);
            let transport = QuicTransport::listen(listen)?;
            println!("{}", transport.address());
            Peer::host(schema, transport, Config::default())?
        }
        Some(address) => Peer::join(schema, QuicTransport::join(&address, JoinConfig::default())?, Config::default())?,
    };
    let mut world = hecs::World::new();
    let mut mine = None;
    let start = Instant::now();
    for frame in 0.. {
        let now = start.elapsed();
        peer.receive(now, &mut world)?; // network in
        while let Some(news) = peer.poll_news() {
            println!("{news:?}");
        }
        if let Some(reason) = peer.ended() {
            return Err(reason.to_string().into());
        }
        while let Some(mut step) = peer.next_step(&mut world) {
            if mine.is_none() {
                mine = Some(step.spawn(&mut world, Rover, (Position { x: 0.0, y: 0.0 },))?);
            }
            for at in step.query::<&mut Position>(&world).iter() {
                at.x = (at.x + 5.0 * step.seconds()) % 100.0; // to the right, and round again
            }
        }
        peer.send(now, &mut world)?; // network out
        for (entity, at) in peer.present::<Position>(&world, now)?.filter(|_| frame % 60 == 0) {
            let whose = if Some(entity) == mine { "my" } else { "another's" };
            println!("{whose} rover is at {:.2}, {:.2}", at.x, at.y);
        }
        thread::sleep(Duration::from_millis(16)); // a game would wait for the screen
    }
    Ok(())
}
