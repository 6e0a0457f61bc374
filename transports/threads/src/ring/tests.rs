//! One thread, virtual time.

use super::*;

/// Pops all that waits.
fn drain(receiver: &mut Receiver) -> Vec<(u64, Class, Vec<u8>)> {
    let mut all = Vec::new();
    while let Popped::Packet { tick, class, bytes } = receiver.pop() {
        all.push((tick, class, bytes.to_vec()));
    }
    all
}

fn state(tick: u64, of: u8) -> (u64, Class, Vec<u8>) {
    (tick, Class::State, vec![tick as u8, of])
}

/// Bounds that nothing reaches, but for the number of packets of state.
fn packets(state_packets: usize) -> Bounds {
    Bounds { state_packets, ..Bounds::default() }
}

const GONE: Option<Discarded> = None;

#[track_caller]
fn push(sender: &mut Sender, tick: u64, of: u8) -> Option<Discarded> {
    let pushed = sender.push(tick, Class::State, &[tick as u8, of]);
    assert_eq!(pushed.answer, Answer::Taken);
    pushed.discarded
}

#[test]
fn packets_come_in_their_order_whatever_their_class() {
    let (mut sender, mut receiver) = ring(Bounds::default());
    let classes = [Class::State, Class::Kept, Class::Kept, Class::State, Class::State, Class::Kept];
    for (i, class) in classes.iter().enumerate() {
        assert_eq!(sender.push(i as u64 / 2, *class, &[i as u8]).answer, Answer::Taken);
    }
    assert_eq!(receiver.waiting(), Waiting { packets: 6, bytes: 6 * (1 + Bounds::PACKET_COST) });
    let expected: Vec<_> = classes.iter().enumerate().map(|(i, class)| (i as u64 / 2, *class, vec![i as u8])).collect();
    assert_eq!(drain(&mut receiver), expected);
    assert_eq!((receiver.waiting(), receiver.lost()), (Waiting::default(), 0));
    assert_eq!(receiver.pop(), Popped::Empty);
}

#[test]
fn the_oldest_tick_goes_as_a_whole_and_the_sender_is_told() {
    let (mut sender, mut receiver) = ring(packets(5));
    for (tick, of) in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)] {
        assert_eq!(push(&mut sender, tick, of), GONE);
    }
    assert_eq!(push(&mut sender, 3, 0), Some(Discarded { packets: 3, first: 1, last: 1 }), "one would have been enough");
    assert_eq!(drain(&mut receiver), [state(2, 0), state(2, 1), state(3, 0)]);
    assert_eq!((receiver.lost(), sender.lost()), (3, 3));
}

#[test]
fn what_is_left_of_a_tick_goes_too() {
    let (mut sender, mut receiver) = ring(packets(3));
    for of in 0..3 {
        push(&mut sender, 7, of);
    }
    assert!(matches!(receiver.pop(), Popped::Packet { tick: 7, bytes: [7, 0], .. }));
    push(&mut sender, 8, 0);
    assert_eq!(push(&mut sender, 9, 0), Some(Discarded { packets: 2, first: 7, last: 7 }));
    assert_eq!(drain(&mut receiver), [state(8, 0), state(9, 0)]);
}

#[test]
fn bytes_are_a_bound_too_and_a_large_packet_may_cost_several_ticks() {
    let cost = 100 + Bounds::PACKET_COST;
    let (mut sender, mut receiver) = ring(Bounds { state_bytes: 4 * cost, ..Bounds::default() });
    for tick in 1..=4 {
        assert_eq!(sender.push(tick, Class::State, &[0; 100]).discarded, GONE);
    }
    let pushed = sender.push(5, Class::State, &vec![0; 100 + 2 * cost]);
    assert_eq!(pushed.discarded, Some(Discarded { packets: 3, first: 1, last: 3 }));
    assert_eq!(receiver.waiting(), Waiting { packets: 2, bytes: 4 * cost }, "exactly full");
    // what can never fit costs nobody else anything
    let pushed = sender.push(6, Class::State, &vec![0; 4 * cost]);
    assert_eq!(pushed, Pushed { answer: Answer::Full, discarded: GONE });
    assert_eq!(drain(&mut receiver).len(), 2);
}

#[test]
fn the_newest_tick_is_never_discarded() {
    let (mut sender, mut receiver) = ring(packets(3));
    push(&mut sender, 1, 0);
    push(&mut sender, 2, 0);
    push(&mut sender, 2, 1);
    assert_eq!(push(&mut sender, 2, 2), Some(Discarded { packets: 1, first: 1, last: 1 }));
    let pushed = sender.push(2, Class::State, &[2, 3]);
    assert_eq!(pushed, Pushed { answer: Answer::Full, discarded: GONE });
    assert_eq!(drain(&mut receiver), [state(2, 0), state(2, 1), state(2, 2)]);
    assert_eq!(receiver.lost(), 2);
}

#[test]
fn state_that_is_too_old_goes_even_where_there_is_room() {
    let (mut sender, mut receiver) = ring(Bounds { state_ticks: 10, ..Bounds::default() });
    push(&mut sender, 1, 0);
    push(&mut sender, 2, 0);
    assert_eq!(push(&mut sender, 10, 0), GONE);
    // whatever brings the news of a later tick
    let pushed = sender.push(12, Class::Kept, b"input");
    assert_eq!(pushed, Pushed { answer: Answer::Taken, discarded: Some(Discarded { packets: 2, first: 1, last: 2 }) });
    // and a tick that goes back is none
    assert_eq!(push(&mut sender, 3, 0), GONE);
    let ticks: Vec<u64> = drain(&mut receiver).iter().map(|packet| packet.0).collect();
    assert_eq!(ticks, [10, 12, 12]);
}

#[test]
fn what_is_kept_is_never_discarded_and_is_full_at_its_bound() {
    let (mut sender, mut receiver) = ring(Bounds { state_packets: 1, kept_packets: 3, ..Bounds::default() });
    for tick in 0..3 {
        push(&mut sender, tick, 0);
        assert_eq!(sender.push(tick, Class::Kept, &[tick as u8]).answer, Answer::Taken);
    }
    assert_eq!(sender.push(3, Class::Kept, &[3]), Pushed { answer: Answer::Full, discarded: GONE });
    let expected = [(0, Class::Kept, vec![0]), (1, Class::Kept, vec![1]), state(2, 0), (2, Class::Kept, vec![2])];
    assert_eq!(drain(&mut receiver), expected);
    assert_eq!(sender.push(3, Class::Kept, &[3]).answer, Answer::Taken);
}

#[test]
fn what_waits_when_it_is_closed_can_still_be_popped() {
    for by_receiver in [false, true] {
        let (mut sender, mut receiver) = ring(Bounds::default());
        push(&mut sender, 1, 0);
        if by_receiver {
            receiver.close()
        } else {
            sender.close()
        }
        assert_eq!(sender.push(2, Class::State, b"x").answer, Answer::Closed);
        assert_eq!(sender.push(2, Class::Kept, b"x").answer, Answer::Closed);
        assert_eq!(drain(&mut receiver), [state(1, 0)]);
        assert_eq!(receiver.pop(), Popped::Ended);
    }
    let (sender, mut receiver) = ring(Bounds::default());
    drop(sender);
    assert_eq!(receiver.pop(), Popped::Ended);
    let (mut sender, receiver) = ring(Bounds::default());
    drop(receiver);
    assert_eq!(sender.push(1, Class::State, b"x").answer, Answer::Closed);
}

/// A game thread that polls in each frame of a 60th of a second, but stands still from one frame to another, while the other side sends
/// three packets of state and one of input for each tick. Time is virtual: the ring has no clock.
#[test]
fn a_stall_of_five_seconds_builds_no_backlog_and_is_over_at_once() {
    const TICKS: u64 = 900;
    let (stall, resume) = (300, 600); // 5 s
    let bounds = Bounds::default();
    let most = bounds.state_bytes + bounds.kept_bytes;
    let (mut sender, mut receiver) = ring(bounds);
    let (mut seed, mut told, mut newest, mut inputs, mut ages) = (1u64, 0, 0, Vec::new(), Vec::new());
    for tick in 0..TICKS {
        for of in 0..3u8 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let size = 400 + (seed >> 33) as usize % 800;
            let mut packet = vec![of; size];
            packet[..8].copy_from_slice(&tick.to_le_bytes());
            let pushed = sender.push(tick, Class::State, &packet);
            assert_eq!(pushed.answer, Answer::Taken, "the newest is always taken");
            told += pushed.discarded.map_or(0, |gone| gone.packets as u64);
        }
        let pushed = sender.push(tick, Class::Kept, &[&tick.to_le_bytes()[..], &[0; 40]].concat());
        assert_eq!((pushed.answer, pushed.discarded.is_some()), (Answer::Taken, false));
        let waiting = receiver.waiting();
        assert!(waiting.bytes <= most && waiting.packets <= bounds.state_packets + bounds.kept_packets, "{waiting:?}");
        if (stall..resume).contains(&tick) {
            continue;
        }
        let mut popped = 0;
        while let Popped::Packet { tick: of, class, bytes } = receiver.pop() {
            let written = u64::from_le_bytes(*bytes.first_chunk().unwrap());
            assert_eq!(of, written, "a buffer was given out twice");
            popped += 1;
            match class {
                Class::State => {
                    assert!(of >= newest, "tick {of} after {newest}");
                    newest = of;
                    ages.push(tick - of);
                }
                Class::Kept => inputs.push(of),
            }
        }
        assert_eq!(newest, tick, "the game is as new as what has arrived, in its first frame too");
        if tick != resume {
            assert_eq!(popped, 4, "nothing is left of the stall after one frame");
        }
    }
    assert!(inputs.iter().copied().eq(0..TICKS), "no input was lost");
    let oldest = ages.iter().max().copied().unwrap();
    assert!(oldest < bounds.state_ticks, "{oldest} ticks");
    assert_eq!(ages.len() as u64 + told, 3 * TICKS, "each packet of state was popped, or its sender was told");
    assert!(told > 3 * (resume - stall - bounds.state_ticks), "{told}");
    assert_eq!(receiver.lost(), told);
}

#[test]
fn buffers_are_used_again() {
    let (mut sender, mut receiver) = ring(packets(8));
    for tick in 0..1000 {
        push(&mut sender, tick, 0);
        if tick % 13 == 0 {
            drain(&mut receiver);
        }
    }
    // as many as waited at the same time, and one for each end
    let buffers = receiver.ring.lock().places().len() + 2;
    assert!(buffers <= 8 + 2, "{buffers}");
}
