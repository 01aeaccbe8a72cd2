//! Where log lines go.
use crate::{guard, text};
use gsel_sys as sys;
use std::os::raw::c_void;

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A failure.
    Error = sys::GSEL_LOG_ERROR as isize,
    /// What a person should look at.
    Warn = sys::GSEL_LOG_WARN as isize,
    /// What was decided.
    Info = sys::GSEL_LOG_INFO as isize,
    /// Everything.
    Debug = sys::GSEL_LOG_DEBUG as isize,
}

type Sink = dyn Fn(Level, &str, &str) + Send + Sync;

unsafe extern "C" fn line(level: i32, component: sys::gsel_str, line: sys::gsel_str, user: *mut c_void) {
    let level = match level {
        sys::GSEL_LOG_ERROR => Level::Error,
        sys::GSEL_LOG_WARN => Level::Warn,
        sys::GSEL_LOG_INFO => Level::Info,
        _ => Level::Debug,
    };
    guard::quiet(|| {
        (*(user as *const Box<Sink>))(
            level,
            text::borrowed(&component, component),
            text::borrowed(&line, line),
        )
    });
}

/// Sends lines up to `level` to a closure: level, component, line. It is called on the thread that logs, never by two at the
/// same time, and calls no function of this crate; a panic of it is swallowed.
pub fn set(level: Level, sink: impl Fn(Level, &str, &str) + Send + Sync + 'static) {
    let sink: Box<Sink> = Box::new(sink);
    let user = Box::into_raw(Box::new(sink)) as *mut c_void;
    unsafe { sys::gsel_log_set(Some(line), level as i32, user, Some(guard::free::<Box<Sink>>)) }
}

/// Silence.
pub fn silence() {
    unsafe { sys::gsel_log_set(None, 0, std::ptr::null_mut(), None) }
}
