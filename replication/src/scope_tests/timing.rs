//! What it costs: `cargo test --release -p tidelock --lib -- --ignored --nocapture scope_tests::timing`.

use super::*;
use std::time::{Duration, Instant};

const ENTITIES: u32 = 10_000;
const GUESTS: u16 = 200;
const SENDS: u32 = 100;

struct Crowd {
    stage: Stage,
    headings: Vec<[f32; 2]>,
}

impl Crowd {
    fn new(settings: Relevance) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut axis = || (rng.next_u64() >> 40) as f32 / (1u64 << 24) as f32;
        let mut stage = Stage::new(settings, GUESTS);
        let mut headings = Vec::new();
        for _ in 0..ENTITIES {
            stage.spawn_at([axis() * 1000.0, 0.0, axis() * 1000.0]);
            headings.push([axis() - 0.5, axis() - 0.5]);
        }
        (0..GUESTS).for_each(|g| stage.own(u32::from(g) * 7, 0, g + 1));
        Self { stage, headings }
    }

    fn walk(&mut self) {
        for (at, heading) in self.stage.world.query::<&mut At>().iter().zip(&mut self.headings) {
            for (x, h) in [(0, 0), (2, 1)] {
                at.0[x] += heading[h] * 0.5;
                heading[h] = if (0.0..1000.0).contains(&at.0[x]) { heading[h] } else { -heading[h] };
            }
        }
    }

    /// Times of a refresh and of a look.
    fn run(&mut self) -> (Duration, Duration) {
        let (mut refresh, mut look) = (Vec::new(), Vec::new());
        for send in 0..SENDS + 10 {
            self.walk();
            let stage = &mut self.stage;
            stage.send += 1;
            let start = Instant::now();
            stage.scope.refresh(&stage.world, &stage.entities, &stage.schema.0);
            let refreshed = Instant::now();
            for guest in &mut stage.guests {
                stage.scope.look(&mut guest.viewer, &stage.world, stage.send, &mut stage.changes);
            }
            if send >= 10 {
                refresh.push(refreshed - start);
                look.push(refreshed.elapsed() / u32::from(GUESTS));
            }
        }
        // the median: other programs run on the machine, too
        let median = |mut times: Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        (median(refresh), median(look))
    }
}

#[test]
#[ignore = "prints times; only of use in a release build"]
fn timing() {
    for (count, cell) in [(32, 12.0), (256, 30.0)] {
        for is_ruled in [false, true] {
            for refresh in [1, 1_000_000, 4] {
                let settings = Relevance::nearest(count).refresh(refresh).cell(cell);
                let settings = if is_ruled { settings.rule(|s| s.get::<Odd>().is_none()) } else { settings };
                let mut crowd = Crowd::new(settings);
                let (refreshed, looked) = crowd.run();
                let name = match refresh {
                    1 => "always due",
                    4 => "every 4th due",
                    _ => "hardly ever due",
                };
                println!("nearest {count}, rule {is_ruled}, {name}: refresh {refreshed:?}, look {looked:?}");
            }
        }
    }
}
