//! How a guest takes the end of a session, at whatever moment it comes.

use super::*;
use tidelock_loopback::{Conditions, Network};

const FRAME: Duration = Duration::from_micros(16_667);
/// Frames after which the first host ends its session; each further seed plays one more.
const PLAYED: u32 = 30;

/// How a host goes.
#[derive(Clone, Copy)]
enum End {
    /// It says so.
    Told,
    /// It is heard no more.
    Silent,
}

#[test]
fn a_guest_that_gives_orders_ends_with_the_reason_whenever_its_host_goes() {
    let orders: u32 = (0..150).map(|seed| orders_of_a_guest(seed, [End::Told, End::Silent][seed as usize % 2])).sum();
    assert!(orders > 50, "{orders} orders in all: nothing was tried");
}

/// Plays until the session is over for the guest; how many orders it gave.
fn orders_of_a_guest(seed: u32, end: End) -> u32 {
    let net = Network::new(seed.into());
    let setup = |salt| Setup {
        share: 2,
        units: 1,
        seed: u64::from(seed) * 2 + salt,
        send_every: 1,
        time_out: Duration::from_millis(500),
    };
    let mut host = Host::new(net.host(), &setup(0), 1, FOREVER).unwrap();
    let link = Conditions { latency: Duration::from_millis(20), ..Conditions::default() };
    let mut guest = Guest::new(net.join(link, link), &setup(1), "guest").unwrap();
    for frame in 0..PLAYED + seed + 200 {
        let now = FRAME * frame;
        if frame < PLAYED + seed {
            host.frame(now).unwrap_or_else(|e| panic!("seed {seed}: the host: {e}"));
        } else if frame == PLAYED + seed && matches!(end, End::Told) {
            host.end();
        }
        guest.frame(now).unwrap_or_else(|e| panic!("seed {seed}, frame {frame}: {e}"));
        if let Some(outcome) = guest.outcome() {
            assert!(matches!(outcome, Err(Failure::Lost(_))), "seed {seed}: {outcome:?}");
            return guest.pilot.orders;
        }
    }
    panic!("seed {seed}: the session did not end for the guest");
}
