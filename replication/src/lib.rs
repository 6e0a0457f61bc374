//! A Rust framework that keeps the worlds of many machines in step.

#![forbid(unsafe_code)]

// The derives name the crate `::tidelock`, in here too.
extern crate self as tidelock;

mod codec;
pub mod field;
pub mod layout;
pub mod netid;
pub mod replicate;

pub use netid::NetId;
pub use replicate::Replicate;
pub use tidelock_derive::Replicate;
