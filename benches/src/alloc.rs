//! The measuring allocator: the system's, with counters.

#![allow(unsafe_code, reason = "a global allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

static CALLS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);

/// Counts every allocation and the bytes that are held. To be a program's `#[global_allocator]`.
pub struct Counting;

/// What the allocator has counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Allocations and reallocations.
    pub calls: u64,
    /// Bytes held now.
    pub live: i64,
}

/// Reads the counters. All zero unless [`Counting`] is the program's allocator.
#[must_use]
pub fn count() -> Count {
    Count { calls: CALLS.load(Relaxed), live: LIVE.load(Relaxed) }
}

fn note(by: i64) {
    CALLS.fetch_add(1, Relaxed);
    LIVE.fetch_add(by, Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; the counters touch no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller's promises are passed on
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: the caller's promises are passed on
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller's promises are passed on
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promises are passed on
        unsafe { System.realloc(at, layout, size) }
    }
}
