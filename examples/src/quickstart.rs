//! Rovers, one for each guest, who steers it: predicted at who steers, decided by the host, interpolated at everybody else.
//! `quickstart` alone, or `quickstart host` and, in other terminals, `quickstart join ADDRESS` with what the host prints.

use hecs::{Entity, World};
use std::{error::Error, thread, time::Duration, time::Instant};
use tidelock::{Checkpoint, Config, Interpolate, News, Peer, Replicate, Schema, policy::Host};
use tidelock_loopback::{Conditions, Network};
use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport};

#[derive(Clone, Copy, Replicate, Interpolate, Checkpoint)]
struct Position(#[net(step = 0.01, range = -500.0..=500.0)] [f32; 2]);
#[derive(Clone, Copy, Default, Replicate)]
struct Stick(#[net(step = 0.01, range = -1.0..=1.0)] [f32; 2]);
#[derive(Clone, Copy, Default)]
struct Rover;

fn main() -> Result<(), Box<dyn Error>> {
    let schema = || {
        let schema = Schema::builder("quickstart").component::<Position>("position", |c| c.interpolate().checkpoint());
        schema.kind::<Rover>("rover", Host::predicted()).input::<Stick>("stick").build()
    };
    let (args, config): (Vec<String>, _) = (std::env::args().skip(1).collect(), Config::default());
    let mut peers = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host"] => {
            let transport = QuicTransport::listen(ListenConfig::new("127.0.0.1:0".parse()?, Identity::generate()?))?;
            println!("{}", transport.address());
            vec![Peer::host(schema()?, transport, config)?]
        }
        ["join", address] => vec![Peer::join(schema()?, QuicTransport::join(address, JoinConfig::default())?, config)?],
        _ => {
            let (net, far) = (Network::new(1), Conditions { latency: Duration::from_millis(50), ..Conditions::default() });
            vec![Peer::host(schema()?, net.host(), config.clone())?, Peer::join(schema()?, net.join(far, far), config)?]
        }
    };
    let (start, mut worlds) = (Instant::now(), peers.iter().map(|_| World::new()).collect::<Vec<_>>());
    for frame in 0..600 {
        for (peer, world) in peers.iter_mut().zip(&mut worlds) {
            let (now, (y, x)) = (start.elapsed(), start.elapsed().as_secs_f32().sin_cos());
            peer.receive(now, world)?; // network in
            peer.set_input(&Stick([x, y]))?; // a game would ask the gamepad; this one drives in a circle
            while let Some(News::Joined { peer: guest, .. }) = peer.poll_news().filter(|_| peer.is_host()) {
                let rover = peer.spawn(world, Rover, (Position([10.0, 0.0]),))?;
                peer.grant(world, rover, 0, guest)?;
            }
            while let Some(step) = peer.next_step(world) {
                for (rover, at) in step.query::<(Entity, &mut Position)>(world).iter() {
                    let Stick(stick) = step.input(step.owner(world, rover).unwrap_or_default())?.value;
                    (0..2).for_each(|i| at.0[i] += 10.0 * stick[i] * step.seconds());
                }
            }
            peer.send(now, world)?; // network out
            for (rover, Position([x, y])) in peer.present::<Position>(world, now)?.filter(|_| frame % 30 == 0) {
                println!("{}: {} is at {x:6.2} {y:6.2}", peer.local(), peer.owner(world, rover, 0).unwrap_or_default());
            }
            peer.ended().cloned().map_or(Ok(()), Err)?;
        }
        thread::sleep(Duration::from_millis(16)); // a game would wait for the screen
    }
    Ok(())
}
