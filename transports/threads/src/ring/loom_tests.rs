//! Models: loom runs each in every order in which its threads can meet. They are small, since the orders are many.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p tidelock-threads loom`

use super::*;
use loom::thread;

/// What a thread that pushes has seen.
#[derive(Debug, Default)]
struct Sent {
    taken: Vec<u8>,
    /// Ticks of state whose packets were discarded, with their count.
    discarded: Vec<Discarded>,
    full: usize,
    closed: usize,
}

impl Sent {
    fn push(&mut self, sender: &mut Sender, tick: u64, class: Class, name: u8) {
        let pushed = sender.push(tick, class, &[name; 3]);
        match pushed.answer {
            Answer::Taken => self.taken.push(name),
            Answer::Full => self.full += 1,
            Answer::Closed => self.closed += 1,
        }
        self.discarded.extend(pushed.discarded);
    }

    fn gone(&self) -> usize {
        self.discarded.iter().map(|gone| gone.packets).sum()
    }
}

/// What one pop gave: the name of a packet, or whether the end has come.
fn pop(receiver: &mut Receiver, into: &mut Vec<u8>) -> Option<bool> {
    match receiver.pop() {
        Popped::Packet { bytes, .. } => {
            assert!(bytes.len() == 3 && bytes.iter().all(|b| *b == bytes[0]), "a buffer that two had: {bytes:?}");
            into.push(bytes[0]);
            None
        }
        Popped::Empty => Some(false),
        Popped::Ended => Some(true),
    }
}

fn drain(receiver: &mut Receiver, into: &mut Vec<u8>) -> bool {
    loop {
        if let Some(ended) = pop(receiver, into) {
            return ended;
        }
    }
}

/// Bounds of so many packets.
fn packets(state_packets: usize, kept_packets: usize) -> Bounds {
    Bounds { state_packets, kept_packets, ..Bounds::default() }
}

/// The packets 10 and 11 of tick 1, 20 of tick 2 and 30 of tick 3 through a ring of two, while the other thread pops.
#[test]
fn loom_overflow_during_pop_loses_nothing_that_was_not_reported() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring(packets(2, 2));
        let pushing = thread::spawn(move || {
            let mut sent = Sent::default();
            for (tick, name) in [(1, 10), (1, 11), (2, 20), (3, 30)] {
                sent.push(&mut sender, tick, Class::State, name);
            }
            sent
        });
        let mut popped = Vec::new();
        for _ in 0..2 {
            pop(&mut receiver, &mut popped);
        }
        let sent = pushing.join().unwrap();
        assert!(drain(&mut receiver, &mut popped), "the sender is gone");
        assert_eq!(sent.taken, [10, 11, 20, 30], "there is always something older to discard");
        assert_eq!(popped.len() + sent.gone(), 4, "{popped:?} {sent:?}");
        assert!(popped.is_sorted(), "{popped:?}");
        assert!(popped.contains(&20) && popped.contains(&30), "two fit: {popped:?} {sent:?}");
        assert!(sent.discarded.iter().all(|gone| (gone.first, gone.last) == (1, 1)), "{sent:?}");
        assert_eq!(receiver.lost(), sent.gone() as u64);
    });
}

/// Inputs between state that overflows.
#[test]
fn loom_what_is_kept_is_never_lost() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring(packets(1, 2));
        let pushing = thread::spawn(move || {
            let mut sent = Sent::default();
            sent.push(&mut sender, 1, Class::State, 10);
            sent.push(&mut sender, 1, Class::Kept, 15);
            sent.push(&mut sender, 2, Class::State, 20);
            sent.push(&mut sender, 2, Class::Kept, 25);
            sent
        });
        let mut popped = Vec::new();
        for _ in 0..2 {
            pop(&mut receiver, &mut popped);
        }
        let sent = pushing.join().unwrap();
        drain(&mut receiver, &mut popped);
        assert!(popped.contains(&15) && popped.contains(&25), "{popped:?}");
        assert_eq!(popped.len() + sent.gone(), 4, "{popped:?} {sent:?}");
        assert!(popped.is_sorted(), "{popped:?}");
    });
}

/// The popping side closes while the other pushes: what was taken is there, and what comes later is refused.
#[test]
fn loom_closing_by_the_receiver_during_push() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring(packets(2, 2));
        let pushing = thread::spawn(move || {
            let mut sent = Sent::default();
            for (tick, name) in [(1, 10), (2, 20), (3, 30)] {
                sent.push(&mut sender, tick, Class::State, name);
            }
            sent
        });
        let mut popped = Vec::new();
        pop(&mut receiver, &mut popped);
        receiver.close();
        assert!(drain(&mut receiver, &mut popped), "a closed ring is at its end when it is empty");
        let after = popped.len();
        let sent = pushing.join().unwrap();
        assert!(drain(&mut receiver, &mut popped));
        assert_eq!(popped.len(), after, "something came after the end: {popped:?}");
        assert_eq!(popped.len() + sent.gone(), sent.taken.len(), "{popped:?} {sent:?}");
        assert_eq!(sent.taken.len() + sent.closed, 3);
    });
}

/// The pushing side goes away: its last packet is there before the end is.
#[test]
fn loom_closing_by_the_sender_during_pop() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring(packets(2, 2));
        let pushing = thread::spawn(move || {
            let mut sent = Sent::default();
            sent.push(&mut sender, 1, Class::State, 10);
            sent.push(&mut sender, 1, Class::Kept, 15);
            sent
        });
        let mut popped = Vec::new();
        let mut ended = false;
        for _ in 0..3 {
            ended |= pop(&mut receiver, &mut popped) == Some(true);
            assert!(!ended || popped == [10, 15], "{popped:?}");
        }
        let sent = pushing.join().unwrap();
        assert!(drain(&mut receiver, &mut popped));
        assert_eq!((popped.as_slice(), sent.gone()), (&[10, 15][..], 0));
    });
}

/// The popping side goes away in the middle of it.
#[test]
fn loom_a_receiver_that_is_dropped_closes() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring(packets(1, 1));
        let popping = thread::spawn(move || {
            let mut popped = Vec::new();
            pop(&mut receiver, &mut popped);
        });
        let mut sent = Sent::default();
        sent.push(&mut sender, 1, Class::State, 10);
        sent.push(&mut sender, 2, Class::State, 20);
        popping.join().unwrap();
        sent.push(&mut sender, 3, Class::State, 30);
        assert!(sent.closed > 0 && sent.full == 0, "{sent:?}");
    });
}

/// Buffers go round: none is lost, none is in two places, and no more are made than can be in use.
#[test]
fn loom_no_buffer_is_handed_out_twice() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring(packets(1, 1));
        // one round in advance, so that there are buffers to be used again
        let mut popped = Vec::new();
        let mut before = Sent::default();
        before.push(&mut sender, 1, Class::State, 1);
        pop(&mut receiver, &mut popped);
        let pushing = thread::spawn(move || {
            let mut sent = Sent::default();
            for (tick, name) in [(2, 20), (3, 30), (4, 40)] {
                sent.push(&mut sender, tick, Class::State, name);
            }
            (sender, sent)
        });
        for _ in 0..2 {
            pop(&mut receiver, &mut popped);
        }
        let (sender, sent) = pushing.join().unwrap();
        let mut at = receiver.ring.lock().places();
        at.extend([&sender.buffer, &receiver.buffer].map(|buffer| (buffer.capacity() > 0).then_some(buffer.as_ptr())));
        assert_eq!(at.len(), 3, "one that waits or is spare, and one at each end: none is lost, none is made beyond these");
        let written: Vec<_> = at.into_iter().flatten().collect();
        let distinct: std::collections::BTreeSet<_> = written.iter().collect();
        assert_eq!(distinct.len(), written.len(), "one buffer is in two places");
        drain(&mut receiver, &mut popped);
        assert_eq!(popped.len() - 1 + sent.gone(), 3, "{popped:?} {sent:?}");
    });
}
