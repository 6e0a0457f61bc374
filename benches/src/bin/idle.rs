//! A world at rest: what it costs to know that nothing has changed. See the crate's README.

use clap::Parser;
use hecs::Entity;
use std::process::ExitCode;
use tidelock::{Networked, PeerId};
use tidelock_benches::cast::Full;
use tidelock_benches::crowd::{Crowd, Motion};
use tidelock_benches::session::{RATE, Session, Weather};

/// Seconds after the join that are not counted.
const SETTLE_SECONDS: u64 = 5;

/// One host, one guest, and nothing happens.
#[derive(Parser)]
struct Options {
    /// Entities.
    #[arg(long, default_value_t = 10_000)]
    entities: usize,
    /// Seconds of virtual time that are counted.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Totals of both directions.
#[derive(Clone, Copy, Default)]
struct Totals {
    down: u64,
    up: u64,
    packets_down: u64,
    packets_up: u64,
    state: u64,
}

fn totals(session: &Session<Full>) -> Totals {
    let down = session.host.peer.stats(PeerId(1)).unwrap_or_default();
    let up = session.guests[0].peer.stats(PeerId::HOST).unwrap_or_default();
    Totals {
        down: down.link.bytes_out + down.link.message_bytes_out,
        up: up.link.bytes_out + up.link.message_bytes_out,
        packets_down: down.sent.packets,
        packets_up: up.sent.packets,
        state: down.sent.state_bytes + up.sent.state_bytes,
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut session = Session::<Full>::new(Crowd::new(options.entities, 0.0, Motion::Steady), 1, Weather::default());
    for _ in 0..SETTLE_SECONDS * u64::from(RATE) {
        session.frame(false);
    }
    let complete = |s: &Session<Full>| s.guests[0].peer.stats(PeerId::HOST).unwrap_or_default().complete;
    let guest = &session.guests[0];
    let entities: Vec<Entity> = guest.world.query::<(Entity, &Networked)>().iter().map(|(entity, _)| entity).collect();
    let before = totals(&session);
    let (mut known, mut marks, mut stale) = (complete(&session), 0u64, 0u64);
    for _ in 0..options.seconds * u64::from(RATE) {
        session.frame(false);
        marks += u64::from(complete(&session) > known);
        known = complete(&session);
        let guest = &session.guests[0];
        stale += entities.iter().filter(|e| guest.peer.is_stale(&guest.world, **e)).count() as u64;
    }
    let after = totals(&session);
    let seconds = options.seconds as f64;
    let rate = |a: u64, b: u64| (a - b) as f64 / seconds;
    let (down, up) = (rate(after.down, before.down), rate(after.up, before.up));
    let (state, freshness) = (after.state - before.state, marks as f64 / seconds);
    let equal = session.is_equal() && entities.len() == options.entities;
    if options.json {
        println!(
            "{{\"bench\":\"idle\",\"n\":{},\"bytes_per_second\":{:.1},\"state_bytes\":{state},\"freshness_per_s\":{freshness:.2},\
             \"stale\":{stale},\"down_per_second\":{down:.1},\"up_per_second\":{up:.1},\"equal\":{equal}}}",
            options.entities,
            down + up,
        );
    } else {
        println!("{} entities at rest, one guest, {seconds} s", options.entities);
        println!("{:.1} bytes a second: {down:.1} to the guest, {up:.1} from it; {state} of them state", down + up);
        let packets = (rate(after.packets_down, before.packets_down), rate(after.packets_up, before.packets_up));
        println!("{:.2} packets a second to the guest, {:.2} from it", packets.0, packets.1);
        println!("{freshness:.2} marks of freshness a second; {stale} times an entity was stale; worlds equal: {equal}");
    }
    if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
