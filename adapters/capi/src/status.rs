//! How a call ends: a code, and words about the last failure of the calling thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a call has ended. Those below zero are failures; [`td_last_error`] has words about the last one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TdStatus {
    /// It was done.
    TdOk = 0,
    /// There is nothing: no further step, no further event, no such component on the entity.
    TdNone = 1,
    /// A pointer is null that must not be.
    TdErrorNull = -1,
    /// An argument is none that this function can take: an unknown id, a size that is not the component's, text that is not UTF-8.
    TdErrorArgument = -2,
    /// The schema has a mistake, or is not built yet, or is built already.
    TdErrorSchema = -3,
    /// The library is used in a way that cannot work here: the policy leaves it to others, or there is no session.
    TdErrorUsage = -4,
    /// The transport could not be made.
    TdErrorTransport = -5,
    /// The buffer is too small; the count says how much there is.
    TdErrorBuffer = -6,
    /// The library has panicked, which is a fault of its own. The peer can only be freed.
    TdErrorPanic = -7,
}

/// Why a call has failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: TdStatus,
    pub(crate) words: String,
}

pub(crate) type Outcome = Result<TdStatus, Failure>;

pub(crate) fn failure(status: TdStatus, words: impl std::fmt::Display) -> Failure {
    Failure { status, words: words.to_string() }
}

pub(crate) fn argument(words: impl std::fmt::Display) -> Failure {
    failure(TdStatus::TdErrorArgument, words)
}

pub(crate) fn null(what: &str) -> Failure {
    failure(TdStatus::TdErrorNull, format_args!("`{what}` is null"))
}

impl From<tidelock::UsageError> for Failure {
    fn from(error: tidelock::UsageError) -> Self {
        failure(TdStatus::TdErrorUsage, error)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn remember(words: &str) {
    let words: String = words.chars().filter(|c| *c != '\0').collect();
    LAST.with(|last| *last.borrow_mut() = CString::new(words).unwrap_or_default());
}

/// Runs a call: nothing that panics gets out, and failures leave their words.
pub(crate) fn guard(call: impl FnOnce() -> Outcome) -> TdStatus {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    match outcome {
        Ok(Ok(status)) => status,
        Ok(Err(Failure { status, words })) => {
            remember(&words);
            status
        }
        Err(panic) => {
            let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
            let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
            remember(&format!("a fault of the library: {}", words.unwrap_or_default()));
            TdStatus::TdErrorPanic
        }
    }
}

/// Words about the last failure on this thread; empty if there was none. They are good until the next call on this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn td_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
