//! Errors: what C returns with a call, as a value with its causes.
use crate::text;
use gsel_sys as sys;
use std::fmt;

/// Code of an error. Numbers never change; a newer library may return one that has no constant here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:ident;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Code = Code(sys::$number);)*
        }
    };
}
codes! {
    /// Invalid argument; nothing happened.
    ARG = GSEL_ERR_ARG;
    /// Out of memory.
    NOMEM = GSEL_ERR_NOMEM;
    /// A fault of the library.
    INTERNAL = GSEL_ERR_INTERNAL;
    /// Not supported.
    UNSUPPORTED = GSEL_ERR_UNSUPPORTED;
    /// Version not accepted.
    VERSION = GSEL_ERR_VERSION;
    /// A file or a system call failed.
    IO = GSEL_ERR_IO;
    /// Text could not be parsed; the error has line and column.
    PARSE = GSEL_ERR_PARSE;
    /// Configuration not accepted; the error has file, line and key.
    CONFIG = GSEL_ERR_CONFIG;
    /// Not found, such as a plugin.
    NOT_FOUND = GSEL_ERR_NOT_FOUND;
    /// Plugin refused.
    PLUGIN = GSEL_ERR_PLUGIN;
    /// A peer rank died or left; [`Detail::rank`] names it.
    PEER = GSEL_ERR_PEER;
    /// Timed out; [`Detail::rank`] names the rank that is late.
    TIMEOUT = GSEL_ERR_TIMEOUT;
    /// Ranks made different calls; both are quoted.
    MISMATCH = GSEL_ERR_MISMATCH;
    /// Aborted, see [`Aborter`](crate::Aborter).
    ABORTED = GSEL_ERR_ABORTED;
    /// Handle used after fork.
    FORKED = GSEL_ERR_FORKED;
    /// A callback failed or panicked on some rank.
    CALLBACK = GSEL_ERR_CALLBACK;
    /// Model description not accepted.
    MODEL = GSEL_ERR_MODEL;
    /// Program not accepted.
    PROGRAM = GSEL_ERR_PROGRAM;
    /// Call out of order.
    STATE = GSEL_ERR_STATE;
    /// A device failed.
    DEVICE = GSEL_ERR_DEVICE;
    /// Selection: syntax.
    SYNTAX = GSEL_ERR_SYNTAX;
    /// Selection: wrong type.
    TYPE = GSEL_ERR_TYPE;
    /// Selection: out of range.
    OUT_OF_RANGE = GSEL_ERR_OUT_OF_RANGE;
    /// Selection: duplicate.
    DUPLICATE = GSEL_ERR_DUPLICATE;
    /// Selection: unknown device.
    UNKNOWN_DEVICE = GSEL_ERR_UNKNOWN_DEVICE;
    /// Selection: ambiguous.
    AMBIGUOUS = GSEL_ERR_AMBIGUOUS;
    /// Selection: unknown host.
    UNKNOWN_HOST = GSEL_ERR_UNKNOWN_HOST;
    /// Selection: conflict.
    CONFLICT = GSEL_ERR_CONFLICT;
    /// Selection: no devices.
    NO_DEVICES = GSEL_ERR_NO_DEVICES;
    /// Selection: busy.
    BUSY = GSEL_ERR_BUSY;
    /// Selection: driver already initialised with other variables.
    ALREADY_INITIALIZED = GSEL_ERR_ALREADY_INITIALIZED;
    /// Permission denied.
    PERMISSION = GSEL_ERR_PERMISSION;
    /// Selection: more ranks than devices.
    RANK_OVERFLOW = GSEL_ERR_RANK_OVERFLOW;
}

impl Code {
    /// Name in C, such as `GSEL_ERR_PEER`; "unknown" for a code that the library does not have.
    pub fn name(self) -> &'static str {
        text::fixed(unsafe { sys::gsel_status_name(self.0) })
    }
    /// Default text, such as "timed out".
    pub fn text(self) -> &'static str {
        text::fixed(unsafe { sys::gsel_status_text(self.0) })
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// An error of a call: the message of the layer that knows most, what it is about, and its causes as
/// [`source`](std::error::Error::source). `Display` is the message alone. Its parts are the fields of [`Detail`].
#[derive(Clone)]
pub struct Error(Box<Detail>); // boxed, so that success costs the calls nothing

/// The parts of an [`Error`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Detail {
    /// What kind of error it is.
    pub code: Code,
    /// One line: what was asked, what was found, what would work.
    pub message: String,
    /// The rank that the error is about: the one that died, is late or disagrees.
    pub rank: Option<usize>,
    /// File or input of the fault, such as "gsel.toml" or "CUDA_VISIBLE_DEVICES".
    pub file: Option<String>,
    /// Line in the file, from 1.
    pub line: Option<u32>,
    /// Column in the line, from 1.
    pub column: Option<u32>,
    /// The key or token.
    pub token: Option<String>,
    cause: Option<Error>,
}

impl std::ops::Deref for Error {
    type Target = Detail;
    fn deref(&self) -> &Detail {
        &self.0
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Result of a fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

impl Error {
    /// An error of this crate, where C cannot tell it.
    pub(crate) fn new(code: Code, message: String) -> Error {
        Error(Box::new(Detail {
            code,
            message,
            rank: None,
            file: None,
            line: None,
            column: None,
            token: None,
            cause: None,
        }))
    }

    /// Copies an error and its causes.
    unsafe fn copied(error: *const sys::gsel_error) -> Error {
        let some = |text: sys::gsel_str| Some(text::owned(text)).filter(|text| !text.is_empty());
        let number = |n: i32| u32::try_from(n).ok().filter(|&n| n > 0);
        let cause = sys::gsel_error_cause(error);
        Error(Box::new(Detail {
            code: Code(sys::gsel_error_code(error)),
            message: text::owned(sys::gsel_error_message(error)),
            rank: usize::try_from(sys::gsel_error_rank(error)).ok(),
            file: some(sys::gsel_error_file(error)),
            line: number(sys::gsel_error_line(error)),
            column: number(sys::gsel_error_column(error)),
            token: some(sys::gsel_error_token(error)),
            cause: if cause.is_null() {
                None
            } else {
                Some(Error::copied(cause))
            },
        }))
    }

    /// Takes an error object. It is NULL where memory was out.
    #[cold]
    unsafe fn taken(status: i32, error: *mut sys::gsel_error) -> Error {
        if error.is_null() {
            return Error::new(Code(status), Code(status).text().to_owned());
        }
        let result = Error::copied(error);
        sys::gsel_error_free(error);
        result
    }
}

/// Makes a call that returns a status and an error object.
#[inline]
pub(crate) fn check(call: impl FnOnce(*mut *mut sys::gsel_error) -> sys::gsel_status) -> Result<()> {
    let mut error = std::ptr::null_mut();
    let status = call(&mut error);
    if status == sys::GSEL_OK {
        return Ok(());
    }
    Err(unsafe { Error::taken(status, error) })
}

/// Makes a call that gives an object to its caller.
pub(crate) fn made<T>(call: impl FnOnce(*mut *mut T, *mut *mut sys::gsel_error) -> sys::gsel_status) -> Result<*mut T> {
    let mut out = std::ptr::null_mut();
    check(|error| call(&mut out, error))?;
    Ok(out)
}

/// Makes a call that fills a struct, which states its size.
pub(crate) fn filled<T: sys::Sized32>(
    call: impl FnOnce(*mut T, *mut *mut sys::gsel_error) -> sys::gsel_status,
) -> Result<T> {
    let mut out = sys::sized::<T>();
    check(|error| call(&mut out, error))?;
    Ok(out)
}
