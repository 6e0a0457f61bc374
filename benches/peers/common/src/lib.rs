//! What the programs share: the options of a case, the order of a run, and the line that is printed. The crowd itself and the
//! clocks are those of the benches.

#![forbid(unsafe_code)]

use clap::Parser;
use tidelock_benches::crowd::{Crowd, Motion};
use tidelock_benches::meter::{Reading, Series, peak_rss_mb, quantile, timed};

/// Ticks that are run and not measured.
pub const WARM_UP: u32 = 30;

/// A case of the crowd.
#[derive(Parser, Clone)]
pub struct Options {
    /// Entities.
    #[arg(long, default_value_t = 10_000)]
    pub entities: usize,
    /// The part of them that moves in each tick; 0: nothing changes at all.
    #[arg(long, default_value_t = 0.1)]
    pub changed: f32,
    /// Guests, all with a world of their own.
    #[arg(long, default_value_t = 1)]
    pub guests: usize,
    /// Ticks that are measured.
    #[arg(long, default_value_t = 120)]
    pub ticks: u32,
    /// Prints one JSON object, as it always does: taken so that all programs have the same options.
    #[arg(long)]
    pub json: bool,
}

/// A library with a server and clients in this process, all of whom have the crowd's first state.
pub trait Library {
    /// Its name and version.
    const NAME: &'static str;

    /// Starts it, and lets what it sends for the first state come to rest.
    fn start(crowd: &Crowd, guests: usize) -> Self;

    /// Writes into the server's world what the crowd's last step changed. Not timed, unless the library does its work there:
    /// then it gives what that took.
    fn show(&mut self, crowd: &Crowd) -> Reading;

    /// Everything that the server does in a tick, from acknowledgements to bytes at its transport.
    fn serve(&mut self);

    /// Takes what the server sent to its clients, and gives the bytes of all of it. Not timed.
    fn carry(&mut self) -> u64;

    /// Everything that one client does in a tick: receive and apply.
    fn receive(&mut self, client: usize);

    /// Takes what the clients sent to the server. Not timed.
    fn carry_back(&mut self);

    /// Do all clients hold the crowd's positions and health exactly?
    fn is_equal(&mut self, crowd: &Crowd) -> bool;
}

/// Runs a case and prints its line; gives whether the worlds were equal.
pub fn run<L: Library>() -> bool {
    let options = Options::parse();
    let mut crowd = Crowd::new(options.entities, options.changed, Motion::Steady);
    let mut library = L::start(&crowd, options.guests);
    let (mut server, mut client, mut bytes) = (Series::default(), Series::default(), Vec::new());
    let all = WARM_UP + options.ticks;
    // a few more at the end, without changes, until what is under way has arrived
    for n in 0..all + 40 {
        let mut reading = Reading::default();
        if n < all {
            crowd.step();
            reading += library.show(&crowd);
        }
        reading += timed(|| library.serve()).1;
        let sent = library.carry();
        let measured = (WARM_UP..all).contains(&n);
        for i in 0..options.guests {
            let taken = timed(|| library.receive(i)).1;
            if measured {
                client.push(taken);
            }
        }
        library.carry_back();
        if measured {
            server.push(reading);
            bytes.push(sent / options.guests as u64);
        }
    }
    let equal = library.is_equal(&crowd);
    println!(
        "{{\"peer\":\"{}\",\"bench\":\"crowd\",\"n\":{},\"f\":{},\"m\":{},\"server_us\":{:.1},\"bytes_per_client\":{},\"client_us\":{:.1},\
         \"server_allocs\":{},\"client_allocs\":{},\"peak_rss_mb\":{:.1},\"equal\":{equal}}}",
        L::NAME,
        options.entities,
        options.changed,
        options.guests,
        server.cpu_us(0.5),
        quantile(bytes.iter().copied(), 0.5),
        client.cpu_us(0.5),
        server.allocs(),
        client.allocs(),
        peak_rss_mb(),
    );
    equal
}
