//! Raw declarations of libgsel, the whole of it: what `gsel/gsel.h` includes, and the tables of plugins.
//!
//! The names are those of C, and the headers document them. `generated.rs` is made from the headers by `generate.sh` and
//! checked in, so that a build needs neither them nor libclang. Programs use the crate `gsel` instead, which owns handles,
//! checks lengths and returns errors.
//!
//! Codes and tags are integers of fixed width, as in C: a number from a newer library is harmless. A struct that a program
//! passes is made by its function `gsel_*_init`, or by [`sized`].
#![allow(non_camel_case_types, non_snake_case)]

#[rustfmt::skip]
mod generated;
pub use generated::*;

/// `dlpack.h`'s tensor without a version; only pointers to it are passed.
pub type DLManagedTensor = gsel_dlpack_tensor;
/// `dlpack.h`'s tensor with a version; only pointers to it are passed.
pub type DLManagedTensorVersioned = gsel_dlpack_versioned;

/// A struct of the interface, whose first field is its size in bytes.
///
/// # Safety
/// The type is `repr(C)`, begins with `struct_size: u32`, and is valid when all of its bytes are zero.
pub unsafe trait Sized32: Copy {}

/// A struct with zeros in every field but `struct_size`: what `GSEL_*_INIT` gives in C.
#[inline]
pub fn sized<T: Sized32>() -> T {
    // Zeros are a value of each of these types, and the size is the first field, as the trait says.
    unsafe {
        let mut value: T = std::mem::zeroed();
        *(&mut value as *mut T as *mut u32) = std::mem::size_of::<T>() as u32;
        value
    }
}

include!(concat!(env!("OUT_DIR"), "/linked.rs"));

/// The strategies that are linked into the program: with `GSEL_STATIC=1` all of libgsel_plugins.a, for
/// [`gsel_plugin_register`]; else none, since libgsel finds their files.
pub fn linked_strategies() -> &'static [&'static gsel_plugin_v1] {
    let first = linked();
    if first.is_null() {
        return &[];
    }
    // The list of gsel/strategies.h: pointers to constants, of which the last is NULL.
    unsafe {
        let count = (0..).take_while(|&i| !(*first.add(i)).is_null()).count();
        std::slice::from_raw_parts(first as *const &'static gsel_plugin_v1, count)
    }
}

/// Bit of an input in `backward_*_unread` of a layer; i < 31.
#[inline]
pub const fn GSEL_UNREAD_INPUT(i: u32) -> u64 {
    1 << i
}

/// Bit of an output in `backward_*_unread` of a layer; i < 31.
#[inline]
pub const fn GSEL_UNREAD_OUTPUT(i: u32) -> u64 {
    1 << (32 + i)
}
