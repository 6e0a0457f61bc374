//! The ground under Tidelock: bytes, ticks, links and sessions, without ECS, engine, socket, clock or thread.
//!
//! Everything here is sans-IO: time comes in as a [`Duration`](std::time::Duration) since the program's own start, bytes come in
//! and go out as values, and nothing blocks. In this order it is: correct under loss and malice, simple to read, small on the
//! wire, fast, comfortable.

#![forbid(unsafe_code)]

pub mod ack;
pub mod allowance;
pub mod bits;
pub mod bulk;
pub mod clock;
pub mod control;
pub mod emulator;
pub mod error;
pub mod forks;
pub mod frames;
pub mod input;
pub mod lead;
pub mod limits;
pub mod packet;
pub mod session;
pub mod tick;
pub mod transport;
