//! What "the same" costs its receiver is bounded: a sender puts no more into a packet than a reader takes, however few bits it is.

mod common;

use common::weather;
use std::time::Duration;
use tidelock::policy::Host;
use tidelock::testing::Table;
use tidelock::{Config, PeerId, Replicate, Schema};
use tidelock_loopback::Network;

/// Two hundred words, of which a change of `on` alone takes seven bits.
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Sheet {
    #[net(max = 128)]
    a: String,
    #[net(max = 128)]
    b: String,
    #[net(max = 128)]
    c: String,
    #[net(max = 128)]
    d: String,
    #[net(max = 128)]
    e: String,
    #[net(max = 128)]
    f: String,
    on: bool,
}

#[derive(Clone, Copy, Default)]
struct Person;

#[test]
fn a_packet_holds_no_more_words_than_its_reader_takes() {
    let schema = Schema::builder("sheets").component::<Sheet>("sheet", |c| c).kind::<Person>("person", Host::default());
    let schema = schema.build().unwrap();
    let network = Network::new(1);
    let mut table = Table::new(1, &schema, Config::default(), network.host()).unwrap();
    table.join(Config::default(), network.join(weather(10, 0.0), weather(10, 0.0))).unwrap();
    table.rest(30);
    let text = || "x".repeat(20);
    let host = table.seat(0);
    for _ in 0..1500 {
        let sheet = Sheet { a: text(), b: text(), c: text(), d: text(), e: text(), f: text(), on: false };
        host.peer.spawn(&mut host.world, Person, (sheet,)).unwrap();
    }
    assert!(table.settle(Duration::from_secs(20)), "SEED=1: {:?}", table.all_equal());
    let before = table.seat(0).peer.stats(PeerId(1)).unwrap().sent;
    table.seat(0).world.query::<&mut Sheet>().iter().for_each(|s| s.on = true);
    assert!(table.settle(Duration::from_secs(5)), "SEED=1: {:?}", table.all_equal());
    let sent = table.seat(0).peer.stats(PeerId(1)).unwrap().sent;
    assert!(sent.state_bytes - before.state_bytes < 6000, "SEED=1: the texts were sent again, so this tests nothing");
    let guest = table.seat(1).peer.stats(PeerId::HOST).unwrap();
    assert_eq!(guest.link.malformed, 0, "SEED=1: a packet held more than its reader takes");
}
