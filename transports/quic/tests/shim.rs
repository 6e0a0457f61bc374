//! The shim itself, with plain UDP.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use tidelock_quic::shim::{Counters, Direction, Shim, ShimConfig};

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> (u32, SocketAddr) {
    let mut buffer = [0; 64];
    let (length, from) = socket.recv_from(&mut buffer).expect("a packet within the deadline");
    (u32::from_le_bytes(buffer[..length].try_into().unwrap()), from)
}

#[test]
fn packets_are_late_but_in_order_both_ways() {
    let server = socket();
    let config = ShimConfig { latency: Duration::from_millis(30), jitter: Duration::from_millis(20), ..ShimConfig::default() };
    let shim = Shim::start(server.local_addr().unwrap(), config).unwrap();
    let client = socket();
    let start = Instant::now();
    for number in 0..100u32 {
        client.send_to(&number.to_le_bytes(), shim.addr()).unwrap();
    }
    for number in 0..100 {
        let (got, from) = receive(&server);
        assert_eq!(got, number);
        server.send_to(&got.to_le_bytes(), from).unwrap();
    }
    assert!(start.elapsed() >= config.latency);
    for number in 0..100 {
        let (got, from) = receive(&client);
        assert_eq!((got, from), (number, shim.addr()));
    }
    assert!(start.elapsed() >= 2 * config.latency);
}

#[test]
fn it_loses_doubles_and_reorders_as_it_is_told() {
    let server = socket();
    let target = server.local_addr().unwrap();
    let double = ShimConfig { duplicate: 1.0, ..ShimConfig::default() };
    let shim = Shim::start(target, double).unwrap();
    let client = socket();
    client.send_to(&7u32.to_le_bytes(), shim.addr()).unwrap();
    assert_eq!((receive(&server).0, receive(&server).0), (7, 7));

    shim.set(ShimConfig { loss: 1.0, ..ShimConfig::default() });
    client.send_to(&8u32.to_le_bytes(), shim.addr()).unwrap();
    let start = Instant::now();
    while shim.counters(Direction::Up).lost == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "the packet was not even lost");
        std::thread::yield_now();
    }
    shim.set(ShimConfig { latency: Duration::from_millis(20), reorder: 0.5, ..ShimConfig::default() });
    for number in 0..100u32 {
        client.send_to(&number.to_le_bytes(), shim.addr()).unwrap();
    }
    let mut got: Vec<u32> = (0..100).map(|_| receive(&server).0).collect();
    assert!(got.windows(2).any(|pair| pair[0] > pair[1]), "{got:?}");
    got.sort_unstable();
    assert_eq!(got, (0..100).collect::<Vec<_>>(), "and 8 was lost");
    // A packet is counted after it is sent, so that the last count may still be on its way.
    let start = Instant::now();
    while shim.counters(Direction::Up).forwarded < 102 && start.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    let up = shim.counters(Direction::Up);
    assert!(up.reordered > 20, "{up:?}");
    let expected = Counters { received: 102, forwarded: 102, lost: 1, duplicated: 1, reordered: up.reordered, overflowed: 0 };
    assert_eq!(up, expected);
}
