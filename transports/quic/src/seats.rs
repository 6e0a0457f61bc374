//! How many connections and handshakes there are, in all and by address.

use crate::config::ConnectionLimits;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The counts of one listener. Clones share them.
#[derive(Clone)]
pub(crate) struct Seats {
    limits: ConnectionLimits,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Default)]
struct Counts {
    total: usize,
    pending: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A connection's place; dropping it gives it back.
pub(crate) struct Seat {
    seats: Seats,
    address: IpAddr,
}

/// A handshake's place; dropping it gives it back.
pub(crate) struct Pending {
    seats: Seats,
}

/// What to do with a hello.
pub(crate) enum Door {
    /// Go on with the handshake.
    Open(Pending),
    /// Ask for a proof of the address first.
    Prove,
    /// Too many handshakes: do not answer.
    Ignore,
    /// No seat: say so.
    Refuse,
}

impl Seats {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, counts: Arc::default() }
    }

    /// Decides about a hello from `address`, which is `proven` or not.
    pub(crate) fn knock(&self, address: SocketAddr, proven: bool) -> Door {
        let mut counts = self.counts.lock();
        if counts.check(&self.limits, network(address)).is_err() {
            return Door::Refuse;
        }
        if counts.pending >= self.limits.pending {
            return Door::Ignore;
        }
        if counts.pending >= self.limits.retry_from && !proven {
            return Door::Prove;
        }
        counts.pending += 1;
        Door::Open(Pending { seats: self.clone() })
    }

    /// A seat for a connection whose handshake is done, or the words for its refusal.
    pub(crate) fn sit(&self, address: SocketAddr) -> Result<Seat, String> {
        let address = network(address);
        let mut counts = self.counts.lock();
        counts.check(&self.limits, address)?;
        counts.total += 1;
        *counts.by_address.entry(address).or_default() += 1;
        Ok(Seat { seats: self.clone(), address })
    }
}

impl Counts {
    fn check(&self, limits: &ConnectionLimits, address: IpAddr) -> Result<(), String> {
        let here = self.by_address.get(&address).copied().unwrap_or(0);
        if self.total >= limits.total {
            Err(format!("all {} connections are in use", limits.total))
        } else if here >= limits.per_address {
            Err(format!("all {} connections for one address are in use", limits.per_address))
        } else {
            Ok(())
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.seats.counts.lock();
        counts.total -= 1;
        if let Some(here) = counts.by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.seats.counts.lock().pending -= 1;
    }
}

/// What counts as one address: an IPv4 address (also where it comes in as IPv6), or an IPv6 /64.
fn network(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        ip @ IpAddr::V4(_) => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats() -> Seats {
        Seats::new(ConnectionLimits { total: 3, per_address: 2, pending: 2, retry_from: 1, ..ConnectionLimits::default() })
    }

    fn at(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), 1)
    }

    #[test]
    fn seats_are_counted_in_all_and_by_network_and_given_back() {
        let seats = seats();
        let a = seats.sit(at("10.0.0.1")).unwrap();
        let _b = seats.sit(at("::ffff:10.0.0.1")).unwrap();
        assert!(seats.sit(at("10.0.0.1")).err().unwrap().contains("one address"));
        assert!(matches!(seats.knock(at("10.0.0.1"), true), Door::Refuse));
        let _c = seats.sit(at("2001:db8::1")).unwrap();
        assert!(seats.sit(at("10.0.0.2")).err().unwrap().contains("all 3"));
        drop(a);
        let _d = seats.sit(at("2001:db8::ffff")).unwrap();
        assert!(seats.sit(at("2001:db8::2")).is_err());
    }

    #[test]
    fn handshakes_must_prove_their_address_then_are_ignored() {
        let seats = seats();
        let Door::Open(first) = seats.knock(at("10.0.0.1"), false) else { panic!("the first comes in") };
        assert!(matches!(seats.knock(at("10.0.0.2"), false), Door::Prove));
        let Door::Open(_second) = seats.knock(at("10.0.0.2"), true) else { panic!("it has proven its address") };
        assert!(matches!(seats.knock(at("10.0.0.3"), true), Door::Ignore));
        drop(first);
        assert!(matches!(seats.knock(at("10.0.0.3"), true), Door::Open(_)));
    }
}
