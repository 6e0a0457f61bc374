//! The test that every Tidelock transport passes: what the [`Transport`] trait promises, checked from outside.
//!
//! A transport's own tests put it on a [`Bed`] and call [`run_all`]. The checks wait for what must happen and fail with a
//! message that says what they waited for; they know nothing of sockets or of virtual time, which are the bed's.

#![forbid(unsafe_code)]

mod checks;
mod ends;
pub mod programs;

use std::time::Duration;
use tidelock_netcore::transport::Transport;

/// A host and a way to join it, on which a transport is tested. Each check gets a fresh one.
pub trait Bed {
    /// What is tested, for messages of failure: the transport, its settings, the seed.
    fn name(&self) -> String;

    /// The host's end. Not called after [`stop_host`](Self::stop_host).
    fn host(&mut self) -> &mut dyn Transport;

    /// A new guest's end, on its way to the host: its first link opens by itself, while both ends are polled.
    fn join(&mut self) -> Box<dyn Transport>;

    /// Drops the host's end.
    fn stop_host(&mut self);

    /// The time now, by whatever clock the ends use.
    fn now(&self) -> Duration;

    /// Lets time pass, a little (up to some 10 ms): advances a virtual clock, or blocks until there was I/O, or yields.
    fn wait(&mut self);
}

/// One promise: its name, and what checks it.
pub type Check = (&'static str, fn(&mut dyn Bed));

/// Every promise that is checked, in the order in which they build on each other.
pub const CHECKS: &[Check] = &[
    ("a link opens at both ends, with facts", checks::opens),
    ("unknown links are not open", checks::unknown_links),
    ("messages arrive exactly once and in order", checks::in_order),
    ("messages without order arrive exactly once", checks::unordered),
    ("messages of every size arrive whole", checks::message_sizes),
    ("messages beyond the limit are refused and harm nothing", checks::message_too_large),
    ("lanes that do not exist are refused", checks::no_such_lane),
    ("datagrams of every size arrive whole", checks::datagram_sizes),
    ("a flood of datagrams arrives whole or not at all", checks::datagram_flood),
    ("a flood of messages is answered with Full, and nothing is lost", checks::message_flood),
    ("guests are not mixed up", checks::many_guests),
    ("a guest closes, after its messages", checks::guest_closes),
    ("the host closes one guest, after its messages", checks::host_closes),
    ("a stopped host tells every guest", checks::host_stops),
    ("a stopped guest is told to the host", checks::guest_stops),
    ("who comes again has a new link", checks::reconnects),
];

/// Runs every check on a bed of its own.
///
/// # Panics
/// With the name of the bed, the check and what it waited for, if the transport breaks a promise.
pub fn run_all(mut make: impl FnMut() -> Box<dyn Bed>) {
    for (name, check) in CHECKS {
        let mut bed = make();
        // Panics inside a check do not know its name; this is printed beside them.
        eprintln!("conformance of {}: {name}", bed.name());
        check(bed.as_mut());
    }
}
