//! A Rust framework that keeps the worlds of many machines in step.
