//! The types that concurrent pieces are made of: loom's under `--cfg loom`, and those of every day otherwise.

#[cfg(loom)]
pub(crate) use loom::sync::Arc;
#[cfg(not(loom))]
pub(crate) use std::sync::Arc;

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use parking_lot as imp;

/// A lock that is not poisoned by a panic.
#[derive(Debug)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    #[cfg(not(loom))]
    pub(crate) fn lock(&self) -> imp::MutexGuard<'_, T> {
        self.0.lock()
    }

    #[cfg(loom)]
    pub(crate) fn lock(&self) -> imp::MutexGuard<'_, T> {
        self.0.lock().expect("a model ends with its first panic")
    }
}
