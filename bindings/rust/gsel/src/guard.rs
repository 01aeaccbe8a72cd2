//! Panics of closures: caught before they would leave through C, kept, and resumed when C has returned.
//!
//! The library calls closures on the thread that makes the call. A call that resumes panics keeps one on its own stack frame,
//! so that none outlives its call. Anywhere else, on a thread of the library or in the wait for a request, a panic of an
//! operation is an error alone.
use crate::text;
use crate::{Error, Result};
use gsel_sys as sys;
use std::any::Any;
use std::cell::Cell;
use std::fmt::Write;
use std::os::raw::c_char;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

type Payload = Box<dyn Any + Send>;

thread_local! {
    /// Where the innermost call of this thread that resumes panics keeps one, in its stack frame; NULL outside such calls.
    static KEPT: Cell<*mut Option<Payload>> = const { Cell::new(std::ptr::null_mut()) };
}

/// What a closure returns: `Ok`, or any error. Its text becomes part of the message of the error that this rank gets, and the
/// others, see the [crate's rules](crate). The text is all that is kept: the closure's error is dropped, so the error of the
/// call does not have it as `source()`. Of a [`crate::Error`] the message names the code as well.
/// An error of [`Param::init`](crate::Param::init) loses its text, too.
pub type Outcome = std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Text of a panic, for the other ranks.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("of another type than text"))
}

/// Takes the text of a closure's error, and drops the error. `Display` and `Drop` are code of the program and may panic; their
/// panics end here, since the closure itself has returned.
pub(crate) fn error_text(error: Failure) -> String {
    let mut text = String::new();
    let shown = catch_unwind(AssertUnwindSafe(|| write!(text, "{}", error)));
    quiet(|| drop(error));
    let fault = match shown {
        Ok(Ok(())) => return text,
        Ok(Err(_)) => "the Display of this error fails".to_owned(),
        Err(payload) => {
            let fault = format!("the Display of this error panics: {}", panic_text(&*payload));
            quiet(|| drop(payload));
            fault
        }
    };
    format!("{}{}{}", text, if text.is_empty() { "" } else { "; " }, fault)
}

/// Runs a closure between two frames of C. A panic becomes GSEL_ERR_CALLBACK, is kept for the call, and its text goes to
/// the message.
pub(crate) fn status(message: *mut c_char, capacity: usize, closure: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    match catch_unwind(AssertUnwindSafe(closure)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => {
            let code = match error.downcast_ref::<Error>() {
                Some(error) if error.code.0 < 0 => error.code.0,
                _ => sys::GSEL_ERR_CALLBACK,
            };
            text::write_message(message, capacity, &error_text(error));
            code
        }
        Err(payload) => {
            text::write_message(message, capacity, &panic_text(&*payload));
            keep(payload);
            sys::GSEL_ERR_CALLBACK
        }
    }
}

/// Keeps the first panic for the call that resumes it, if there is one on this thread.
#[cold]
fn keep(payload: Payload) {
    let kept = KEPT.with(Cell::get);
    if kept.is_null() || unsafe { (*kept).is_some() } {
        return quiet(|| drop(payload));
    }
    unsafe { *kept = Some(payload) }
}

/// Makes a call; if it fails, continues the panic of a closure that ran on this thread during it.
#[inline]
pub(crate) fn resuming<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    struct Restore(*mut Option<Payload>);
    impl Drop for Restore {
        fn drop(&mut self) {
            KEPT.with(|kept| kept.set(self.0));
        }
    }
    let mut own = None;
    let outer = Restore(KEPT.with(|kept| kept.replace(&mut own)));
    let result = call();
    drop(outer);
    match own {
        Some(payload) => ended(result, payload),
        None => result,
    }
}

#[cold]
fn ended<T>(result: Result<T>, payload: Payload) -> Result<T> {
    if result.is_err() {
        resume_unwind(payload);
    }
    quiet(|| drop(payload));
    result
}

/// Runs a function whose panic ends here, such as the drop of a closure's state between two frames of C. The payload is
/// dropped, and so is that of a payload whose drop panics. This can go on without end, so the fourth one is forgotten.
pub(crate) fn quiet(closure: impl FnOnce()) {
    let mut ended = catch_unwind(AssertUnwindSafe(closure));
    for _ in 0..3 {
        match ended {
            Ok(()) => return,
            Err(payload) => ended = catch_unwind(AssertUnwindSafe(|| drop(payload))),
        }
    }
    std::mem::forget(ended);
}

/// `free_user_data` of a boxed T.
pub(crate) unsafe extern "C" fn free<T>(user_data: *mut std::os::raw::c_void) {
    quiet(|| drop(Box::from_raw(user_data as *mut T)));
}
