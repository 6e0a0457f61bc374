//! What stands between the game thread and the I/O thread of a transport: the concurrent pieces that are written by hand, all in
//! this one place. They are built on the few types of `sync`, which are `parking_lot`'s or, with `--cfg loom`, loom's, so that loom
//! can run through every order in which two threads may meet in them. No socket, no clock, no thread of its own, no `unsafe`.
//!
//! ```
//! use tidelock_threads::{Answer, Bounds, Class, Popped, ring};
//!
//! let (mut sender, mut receiver) = ring(Bounds { state_packets: 2, ..Bounds::default() });
//! for tick in 1..=3 {
//!     let pushed = sender.push(tick, Class::State, &[tick as u8]);
//!     assert_eq!(pushed.answer, Answer::Taken);
//!     // the third does not fit beside the first two: what there is of the oldest tick has to go, and its sender is told
//!     assert_eq!(pushed.discarded.map(|gone| (gone.packets, gone.first)), (tick == 3).then_some((1, 1)));
//! }
//! assert!(matches!(receiver.pop(), Popped::Packet { tick: 2, bytes: [2], .. }));
//! assert!(matches!(receiver.pop(), Popped::Packet { tick: 3, .. }));
//! assert!(matches!(receiver.pop(), Popped::Empty));
//! ```

#![forbid(unsafe_code)]

mod ring;
mod sync;

pub use ring::{Answer, Bounds, Class, Discarded, Popped, Pushed, Receiver, Sender, Waiting, ring};
