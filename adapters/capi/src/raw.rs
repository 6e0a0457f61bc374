//! What comes as pointers, made into what can be used: the one place where they are looked at.

use crate::status::{Failure, argument, null};
use std::ffi::{CStr, c_char};

/// Text of C.
///
/// # Safety
/// `text` is null, or ends with a zero byte, and is not written to while what is returned lives.
pub(crate) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: it is not null, and the caller promises the rest.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| argument(format_args!("`{what}` is not UTF-8")))
}

/// `count` values to read.
///
/// # Safety
/// `first` is null, or points to `count` values that are not written to while what is returned lives.
pub(crate) unsafe fn slice<'a, T>(what: &str, first: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check(what, first, count)?;
    // SAFETY: it is neither null nor misaligned, not too long for memory, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// `count` values to write.
///
/// # Safety
/// `first` is null, or points to `count` values that nobody else uses while what is returned lives.
pub(crate) unsafe fn slice_mut<'a, T>(what: &str, first: *mut T, count: usize) -> Result<&'a mut [T], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(what, first, count)?;
    // SAFETY: it is neither null nor misaligned, not too long for memory, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts_mut(first, count) })
}

fn check<T>(what: &str, first: *const T, count: usize) -> Result<(), Failure> {
    if first.is_null() {
        return Err(null(what));
    }
    if !first.is_aligned() {
        return Err(argument(format_args!("`{what}` is not aligned")));
    }
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if fits { Ok(()) } else { Err(argument(format_args!("`{what}` cannot be of {count} elements"))) }
}

/// One value to read.
///
/// # Safety
/// Like [`slice`] of one.
pub(crate) unsafe fn one<'a, T>(what: &str, value: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise is the same.
    unsafe { slice(what, value, 1) }.map(|values| &values[0])
}

/// One value to write.
///
/// # Safety
/// Like [`slice_mut`] of one.
pub(crate) unsafe fn one_mut<'a, T>(what: &str, value: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise is the same.
    unsafe { slice_mut(what, value, 1) }.map(|values| &mut values[0])
}
