//! Datagrams from one thread to another: the ring, and what it has replaced: a bounded channel of crossbeam's, from which the oldest
//! is taken when it is full, with a copy of each packet on the heap. See the crate's README.

use bytes::Bytes;
use clap::Parser;
use crossbeam_channel::{TrySendError, bounded};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tidelock_benches::alloc::{Counting, count};
use tidelock_benches::meter::quantile;
use tidelock_threads::{Answer, Bounds, Class, Popped, Receiver, Sender, ring};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Nanoseconds per packet between two threads.
#[derive(Parser)]
struct Options {
    /// Bytes of a packet.
    #[arg(long, default_value_t = 1200)]
    size: usize,
    /// Packets of each case in a round.
    #[arg(long, default_value_t = 200_000)]
    packets: u64,
    /// Rounds; in each, both have their turn in every case.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Prints one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
}

/// Packets that wait at most, as in the QUIC transport.
const ROOM: usize = 256;
/// Packets of a tick.
const TICK: u64 = 4;
/// Packets that go through first, to warm up. Those that are measured are numbered from here on: ticks do not go back.
const WARM: u64 = 2 * ROOM as u64;
/// Packets that are there when the game comes to fetch them.
const FRAME: u64 = 16;

/// The pushing and the popping end of something.
trait Way {
    const NAME: &'static str;
    type In: Send;
    type Out: Send;
    fn open() -> (Self::In, Self::Out);
    /// What was discarded for it.
    fn push(into: &mut Self::In, number: u64, packet: &[u8]) -> u64;
    /// The next packet into `payload`.
    fn pop(out: &mut Self::Out, payload: &mut Vec<u8>) -> bool;
}

struct Ring;

impl Way for Ring {
    const NAME: &'static str = "ring";
    type In = Sender;
    type Out = Receiver;

    fn open() -> (Sender, Receiver) {
        ring(Bounds { state_bytes: usize::MAX, state_packets: ROOM, state_ticks: u64::MAX, ..Bounds::default() })
    }

    fn push(into: &mut Sender, number: u64, packet: &[u8]) -> u64 {
        let pushed = into.push(number / TICK, Class::State, packet);
        assert_eq!(pushed.answer, Answer::Taken);
        pushed.discarded.map_or(0, |gone| gone.packets as u64)
    }

    fn pop(out: &mut Receiver, payload: &mut Vec<u8>) -> bool {
        let Popped::Packet { bytes, .. } = out.pop() else { return false };
        payload.clear();
        payload.extend_from_slice(bytes);
        true
    }
}

struct Channel;

type End<T> = (crossbeam_channel::Sender<T>, crossbeam_channel::Receiver<T>);

impl Way for Channel {
    const NAME: &'static str = "crossbeam";
    type In = End<Bytes>;
    type Out = crossbeam_channel::Receiver<Bytes>;

    fn open() -> (Self::In, Self::Out) {
        let (into, out) = bounded(ROOM);
        ((into, out.clone()), out)
    }

    fn push((into, out): &mut Self::In, _: u64, packet: &[u8]) -> u64 {
        let (mut packet, mut discarded) = (Bytes::copy_from_slice(packet), 0);
        while let Err(TrySendError::Full(back)) = into.try_send(packet) {
            packet = back;
            discarded += u64::from(out.try_recv().is_ok());
        }
        discarded
    }

    fn pop(out: &mut Self::Out, payload: &mut Vec<u8>) -> bool {
        let Ok(packet) = out.try_recv() else { return false };
        payload.clear();
        payload.extend_from_slice(&packet);
        true
    }
}

/// What one case took, per packet.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    nanoseconds: f64,
    allocations: f64,
}

/// Nobody pops: after the first packets, each push discards.
fn stalled<W: Way>(packet: &[u8], packets: u64) -> Cost {
    let (mut into, _out) = W::open();
    let warm: u64 = (0..WARM).map(|i| W::push(&mut into, i, packet)).sum();
    assert!(warm > 0, "{}: so many do not fit", W::NAME);
    measured(packets, || (WARM..WARM + packets).map(|i| W::push(&mut into, i, packet)).sum())
}

/// One thread: a frame's packets in, a frame's packets out.
fn frames<W: Way>(packet: &[u8], packets: u64) -> Cost {
    let (mut into, mut out) = W::open();
    let mut payload = Vec::new();
    let mut frame = |first: u64| {
        let lost: u64 = (first..first + FRAME).map(|i| W::push(&mut into, i, packet)).sum();
        while W::pop(&mut out, &mut payload) {
            black_box(payload.last());
        }
        lost
    };
    // both ends begin with a buffer that has no room yet, and the last of those comes round in the third frame
    (0..3).for_each(|i| assert_eq!(frame(i * FRAME), 0));
    measured(packets, || (3..3 + packets / FRAME).map(|i| frame(i * FRAME)).sum())
}

/// Two threads, each as fast as it can.
fn threads<W: Way>(packet: &[u8], packets: u64) -> Cost {
    let (mut into, mut out) = W::open();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let popping = scope.spawn(|| {
            let (mut payload, mut popped) = (Vec::new(), 0u64);
            loop {
                // looked at first: what was pushed before it is seen below
                let last = over.load(Ordering::Acquire);
                while W::pop(&mut out, &mut payload) {
                    popped += 1;
                    black_box(payload.last());
                }
                if last {
                    return popped;
                }
                std::hint::spin_loop();
            }
        });
        let mut discarded = (0..WARM).map(|i| W::push(&mut into, i, packet)).sum::<u64>();
        let cost = measured(packets, || {
            let lost = (WARM..WARM + packets).map(|i| W::push(&mut into, i, packet)).sum();
            discarded += lost;
            lost
        });
        over.store(true, Ordering::Release);
        let popped = popping.join().expect("it does not panic");
        assert_eq!(popped + discarded, packets + WARM, "{}: each is popped, or its loss is told", W::NAME);
        cost
    })
}

fn measured(packets: u64, run: impl FnOnce() -> u64) -> Cost {
    let (before, start) = (count().calls, Instant::now());
    black_box(run());
    let time = start.elapsed();
    Cost { nanoseconds: time.as_nanos() as f64 / packets as f64, allocations: (count().calls - before) as f64 / packets as f64 }
}

type Case = (&'static str, [fn(&[u8], u64) -> Cost; 2]);

const CASES: [Case; 3] = [
    ("frames of 16", [frames::<Ring>, frames::<Channel>]),
    ("nobody pops", [stalled::<Ring>, stalled::<Channel>]),
    ("two threads", [threads::<Ring>, threads::<Channel>]),
];

fn main() {
    let options = Options::parse();
    let packet = vec![7; options.size];
    for (case, ways) in CASES {
        let mut costs = [Vec::new(), Vec::new()];
        for _ in 0..options.rounds.max(1) {
            for (way, costs) in ways.iter().zip(&mut costs) {
                costs.push(way(&packet, options.packets));
            }
        }
        for (name, costs) in [Ring::NAME, Channel::NAME].iter().zip(&costs) {
            let picoseconds = |part| quantile(costs.iter().map(|cost| (cost.nanoseconds * 1e3) as u64), part) as f64 / 1e3;
            let most = costs.iter().map(|cost| cost.allocations).fold(0.0, f64::max);
            let (median, best) = (picoseconds(0.5), picoseconds(0.0));
            match options.json {
                true => println!(
                    r#"{{"case":"{case}","way":"{name}","size":{},"ns":{median:.1},"ns_best":{best:.1},"allocations":{most:.4}}}"#,
                    options.size
                ),
                false => println!("{case:<14}{name:<11}{median:>8.1} ns ({best:.1} at best) a packet, {most:.4} allocations"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_ring_allocates_nothing() {
        let packet = vec![7; 1200];
        for case in [frames::<Ring>, stalled::<Ring>] {
            let cost = case(&packet, 10_000);
            // tests of one process share the counter, but this is the only one here
            assert_eq!(cost.allocations, 0.0, "{cost:?}");
        }
        let cost = frames::<Channel>(&packet, 1_000);
        assert!(cost.allocations >= 0.9, "the counter does not count: {cost:?}");
    }
}
