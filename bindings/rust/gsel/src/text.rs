//! Text and lists between Rust and C: pointer and length both ways, never a NUL that has to be looked for.
use gsel_sys as sys;
use std::os::raw::c_char;

/// Text for a call, borrowed for as long as C says.
pub(crate) fn given(text: &str) -> sys::gsel_str {
    sys::gsel_str {
        data: text.as_ptr() as *const c_char,
        len: text.len(),
    }
}

/// The same; `None` is "not given".
pub(crate) fn optional(text: Option<&str>) -> sys::gsel_str {
    text.map_or(
        sys::gsel_str {
            data: std::ptr::null(),
            len: 0,
        },
        given,
    )
}

/// Text of the library as a string of its own; empty where there is none.
pub(crate) fn owned(text: sys::gsel_str) -> String {
    String::from_utf8_lossy(bytes(&text)).into_owned()
}

/// Text of the library, borrowed from `owner`, which keeps it.
pub(crate) fn borrowed<T: ?Sized>(_owner: &T, text: sys::gsel_str) -> &str {
    let bytes: &[u8] = if text.data.is_null() {
        &[]
    } else {
        unsafe { std::slice::from_raw_parts(text.data as *const u8, text.len) }
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""),
    }
}

/// Static text of the library that ends with a NUL.
pub(crate) fn fixed(text: *const c_char) -> &'static str {
    if text.is_null() {
        return "";
    }
    unsafe { std::ffi::CStr::from_ptr(text) }.to_str().unwrap_or("")
}

fn bytes(text: &sys::gsel_str) -> &[u8] {
    if text.data.is_null() {
        return &[];
    }
    unsafe { std::slice::from_raw_parts(text.data as *const u8, text.len) }
}

/// Writes a failing callback's reason, NUL-terminated and cut to `capacity` bytes.
pub(crate) fn write_message(message: *mut c_char, capacity: usize, text: &str) {
    if message.is_null() || capacity == 0 {
        return;
    }
    let mut n = text.len().min(capacity - 1);
    while !text.is_char_boundary(n) {
        n -= 1;
    }
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), message as *mut u8, n);
        *message.add(n) = 0;
    }
}
