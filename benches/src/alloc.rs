//! The measuring allocator: the system's, with counters. What is held is also counted by side, so that in a process with a host,
//! its guests and the network between them each one's memory can be told.

#![allow(unsafe_code, reason = "a global allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Whose code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This program's own.
    Bench,
    /// The host's, its world's included.
    Host,
    /// A guest's, its world's included.
    Guest,
    /// The network's between them.
    Network,
}

const SIDES: usize = 4;
/// Blocks are counted by the power of two that their size does not exceed.
const CLASSES: usize = 32;

static CALLS: AtomicU64 = AtomicU64::new(0);
static HELD: [AtomicI64; SIDES] = [const { AtomicI64::new(0) }; SIDES];
static MOST: [AtomicI64; SIDES] = [const { AtomicI64::new(0) }; SIDES];
static BLOCKS: [[AtomicI64; CLASSES]; SIDES] = [const { [const { AtomicI64::new(0) }; CLASSES] }; SIDES];

thread_local! {
    // neither allocates nor is ever destroyed, so the allocator may ask at any time
    static SIDE: Cell<usize> = const { Cell::new(Side::Bench as usize) };
}

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
    Count { calls: CALLS.load(Relaxed), live: HELD.iter().map(|n| n.load(Relaxed)).sum() }
}

/// Runs `f` as code of a side: what is allocated in it is that side's, what is freed in it was. A block that another side frees is
/// told wrongly on both; between peers only packets change hands, and those are the [`Side::Network`]'s.
pub fn within<R>(side: Side, f: impl FnOnce() -> R) -> R {
    let outer = SIDE.replace(side as usize);
    let result = f();
    SIDE.set(outer);
    result
}

/// Bytes that a side holds now.
#[must_use]
pub fn held(side: Side) -> i64 {
    HELD[side as usize].load(Relaxed)
}

/// The most bytes that a side held since [`forget_most`].
#[must_use]
pub fn most_held(side: Side) -> i64 {
    MOST[side as usize].load(Relaxed)
}

/// Counts the most that each side holds from now on.
pub fn forget_most() {
    MOST.iter().zip(&HELD).for_each(|(most, held)| most.store(held.load(Relaxed), Relaxed));
}

/// What a side holds now in blocks of up to 1, 2, 4, 8 … bytes: their size, and bytes. Only those that there are, small ones first.
#[must_use]
pub fn blocks(side: Side) -> Vec<(u64, i64)> {
    let classes = BLOCKS[side as usize].iter().enumerate();
    classes.map(|(i, bytes)| (1 << i, bytes.load(Relaxed))).filter(|c| c.1 != 0).collect()
}

fn note(size: usize, sign: i64) {
    let bytes = size as i64 * sign;
    let side = SIDE.with(Cell::get);
    let class = size.next_power_of_two().trailing_zeros() as usize;
    BLOCKS[side][class.min(CLASSES - 1)].fetch_add(bytes, Relaxed);
    let held = HELD[side].fetch_add(bytes, Relaxed) + bytes;
    if sign > 0 {
        CALLS.fetch_add(1, Relaxed);
        MOST[side].fetch_max(held, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; the counters touch no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller's promises are passed on
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(layout.size(), -1);
        // SAFETY: the caller's promises are passed on
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller's promises are passed on
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(layout.size(), -1);
        note(size, 1);
        // SAFETY: the caller's promises are passed on
        unsafe { System.realloc(at, layout, size) }
    }
}
