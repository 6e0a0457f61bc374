//! What the host of a stadium keeps for each guest, and that what the guests see is right.

use tidelock_benches::alloc::Counting;
use tidelock_benches::stadium::walkers::RATE;
use tidelock_benches::stadium::{Setup, Stadium, Tier};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The design's bound for a guest that sees 256 entities.
const MOST: f64 = 100.0 * 1024.0;

fn setup(tier: Tier, loss: f64, host_avatars: bool) -> Setup {
    Setup { entities: 1200, guests: 9, tier, loss, seed: 7, host_avatars, threads: 1 }
}

/// One test: the allocator counts for the whole process.
#[test]
fn a_guest_costs_its_host_little_memory_and_sees_what_it_should() {
    // whose walkers the host moves: what guests publish themselves is another stream, and has its own history
    let setups = [setup(Tier::STADIUM, 0.0, true), setup(Tier::STADIUM, 0.05, true), setup(Tier::CLASS, 0.05, false)];
    for setup in setups {
        let mut stadium = Stadium::new(setup);
        (0..5 * RATE).for_each(|_| _ = stadium.tick());
        let bytes = stadium.bytes_per_guest();
        println!("nearest {}, loss {}: {:.1} kB for each guest", setup.tier.rows, setup.loss, bytes / 1024.0);
        assert!(bytes > 1024.0, "SEED={}: nothing is counted", setup.seed);
        assert!(bytes <= MOST, "SEED={}: {:.1} kB for each guest of {setup:?}", setup.seed, bytes / 1024.0);
        assert_eq!(stadium.settle(30 * u64::from(RATE)), setup.guests, "SEED={}: worlds that are equal", setup.seed);
    }
}
