//! Panics of closures: caught before they would leave through C, kept, and resumed when C has returned.
//!
//! The library calls closures on the thread that makes the call, so a panic is kept per thread and taken by the call. An
//! operation may also run on a thread of the library; its panic is an error of the call alone.
use crate::text;
use crate::{Error, Result};
use gsel_sys as sys;
use std::any::Any;
use std::cell::RefCell;
use std::os::raw::c_char;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

thread_local! {
    static PANIC: RefCell<Option<Box<dyn Any + Send>>> = RefCell::new(None);
}

/// What a closure returns: `Ok`, or any error, whose text becomes part of the error of the step on every rank.
pub type Outcome = std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Text of a panic, for the other ranks.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("of another type than text"))
}

/// Runs a closure between two frames of C. A panic becomes GSEL_ERR_CALLBACK, is kept for the call, and its text goes to
/// the message.
pub(crate) fn status(
    message: *mut c_char,
    capacity: usize,
    closure: impl FnOnce() -> Result<i32, Box<dyn std::error::Error + Send + Sync>>,
) -> i32 {
    match catch_unwind(AssertUnwindSafe(closure)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => {
            text::write_message(message, capacity, &error.to_string());
            match error.downcast_ref::<Error>() {
                Some(error) if error.code.0 < 0 => error.code.0,
                _ => sys::GSEL_ERR_CALLBACK,
            }
        }
        Err(payload) => {
            text::write_message(message, capacity, &panic_text(&*payload));
            let _ = PANIC.try_with(|kept| *kept.borrow_mut() = Some(payload));
            sys::GSEL_ERR_CALLBACK
        }
    }
}

/// Continues the panic of a closure that ran on this thread during the call, if the call failed.
#[inline]
pub(crate) fn resume<T>(result: Result<T>) -> Result<T> {
    if result.is_err() {
        resume_kept();
    }
    result
}

#[cold]
fn resume_kept() {
    if let Some(payload) = PANIC.with(|kept| kept.borrow_mut().take()) {
        resume_unwind(payload);
    }
}

/// Runs a function that must not panic, such as the drop of a closure's state, between two frames of C.
pub(crate) fn quiet(closure: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(closure)).map_err(std::mem::forget);
}

/// `free_user_data` of a boxed T.
pub(crate) unsafe extern "C" fn free<T>(user_data: *mut std::os::raw::c_void) {
    quiet(|| drop(Box::from_raw(user_data as *mut T)));
}
