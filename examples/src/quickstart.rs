//! A ball that the host moves and everybody sees move smoothly: `quickstart` alone, or `quickstart host` and, in another terminal,
//! `quickstart join ADDRESS` with what the host prints.

use hecs::World;
use std::{error::Error, thread, time::Duration, time::Instant};
use tidelock::{Config, Interpolate, Peer, Replicate, Schema, SchemaError, policy::Host};
use tidelock_loopback::{Conditions, Network};
use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport};

#[derive(Clone, Copy, Replicate, Interpolate)]
struct Position(#[net(step = 0.01, range = -500.0..=500.0)] [f32; 2]);

#[derive(Clone, Copy, Default)]
struct Ball;

fn schema() -> Result<Schema, SchemaError> {
    let schema = Schema::builder("quickstart").component::<Position>("position", |c| c.interpolate());
    schema.kind::<Ball>("ball", Host::default()).build()
}

fn main() -> Result<(), Box<dyn Error>> {
    let (args, config): (Vec<String>, _) = (std::env::args().skip(1).collect(), Config::default());
    let mut peers = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host"] => {
            let transport = QuicTransport::listen(ListenConfig::new("127.0.0.1:0".parse()?, Identity::generate()?))?;
            println!("{}", transport.address());
            vec![Peer::host(schema()?, transport, config)?]
        }
        ["join", address] => vec![Peer::join(schema()?, QuicTransport::join(address, JoinConfig::default())?, config)?],
        _ => {
            let (net, perfect) = (Network::new(1), Conditions::default());
            let host = Peer::host(schema()?, net.host(), config.clone())?;
            vec![host, Peer::join(schema()?, net.join(perfect, perfect), config)?]
        }
    };
    let mut worlds: Vec<World> = peers.iter().map(|_| World::new()).collect();
    if peers[0].is_host() {
        peers[0].spawn(&mut worlds[0], Ball, (Position([10.0, 0.0]),))?;
    }
    let start = Instant::now();
    for frame in 0..600 {
        for (peer, world) in peers.iter_mut().zip(&mut worlds) {
            let now = start.elapsed();
            peer.receive(now, world)?; // network in
            while let Some(step) = peer.next_step(world) {
                let (sin, cos) = (step.tick().0 as f32 / 60.0).sin_cos();
                step.query::<&mut Position>(world).iter().for_each(|p| p.0 = [10.0 * cos, 10.0 * sin]);
            }
            peer.send(now, world)?; // network out
            for (_, Position([x, y])) in peer.present::<Position>(world, now)?.filter(|_| frame % 30 == 0) {
                println!("{} draws the ball at {x:6.2} {y:6.2}", peer.local());
            }
            if let Some(reason) = peer.ended() {
                return Err(reason.clone().into());
            }
        }
        thread::sleep(Duration::from_millis(16)); // a game would wait for the screen
    }
    Ok(())
}
