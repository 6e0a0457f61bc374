//! What is told less often because it is far is drawn as smoothly as what is near.

use std::time::Duration;
use tidelock::policy::Host;
use tidelock::testing::Table;
use tidelock::{Config, Detail, Interpolate, PeerId, Relevance, Replicate, Schema, Viewpoint};
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Position {
    #[net(step = 0.001, range = -500.0..=500.0)]
    x: f32,
}
#[derive(Clone, Copy, Default)]
struct Walker;

#[test]
fn a_far_walker_walks_smoothly() {
    let schema = Schema::builder("paced")
        .component::<Position>("position", |c| c.interpolate())
        .kind::<Walker>("walker", Host::default())
        .build()
        .unwrap();
    for seed in 0..10 {
        let network = Network::new(seed);
        let config = Config { send_every: 3, ..Config::default() };
        let mut table = Table::new(seed, &schema, config.clone(), network.host()).unwrap();
        let relevance = Relevance::everything().place::<Position>(|p| [p.x, 0.0, 0.0]).detail(Detail { full: 10.0, slowest: 8 });
        table.seat(0).peer.set_relevance(relevance).unwrap();
        let weather = Conditions {
            latency: Duration::from_millis(30),
            jitter: Duration::from_millis(10),
            loss: 0.02,
            ..Conditions::default()
        };
        table.join(config, network.join(weather, weather)).unwrap();
        table.rest(40);
        let host = table.seat(0);
        host.peer.look_from(PeerId(1), Viewpoint::Point([0.0; 3])).unwrap();
        host.peer.spawn(&mut host.world, Walker, (Position { x: 300.0 },)).unwrap();
        let mut shown: Vec<f32> = Vec::new();
        let before = table.seat(0).peer.stats(PeerId(1)).unwrap().sent.rows;
        for n in 0..900 {
            table.run(|_, world, step| {
                step.query::<&mut Position>(world).iter().for_each(|p| p.x += 0.02);
            });
            let now = table.now;
            let guest = table.seat(1);
            if n > 300 {
                shown.extend(guest.peer.present::<Position>(&guest.world, now).unwrap().map(|p| p.1.x));
            }
        }
        let rows = table.seat(0).peer.stats(PeerId(1)).unwrap().sent.rows - before;
        assert!(rows < 900 / 3 / 8 + 20, "SEED={seed}: {rows} rows: it is told every eighth send");
        // how far it goes in six frames, against 0.12: a hold or a jump would show
        let uneven = shown.windows(7).filter(|w| !(0.03..0.25).contains(&(w[6] - w[0]))).count();
        assert!(uneven < shown.len() / 8, "SEED={seed}: {uneven} of {}", shown.len());
    }
}
