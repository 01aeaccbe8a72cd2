//! Element types: what a buffer holds, and how memory is named that is not a slice.
use gsel_sys as sys;
use std::os::raw::c_void;

mod sealed {
    pub trait Sealed {}
}

/// Number of an element type in the interface, such as [`DType::F32`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DType(pub i32);

impl DType {
    /// Bytes of one element; 0 for an unknown type.
    pub fn bytes(self) -> usize {
        unsafe { sys::gsel_dtype_bytes(self.0) }
    }
    /// Name such as "f32"; "unknown" for an unknown type.
    pub fn name(self) -> &'static str {
        crate::text::fixed(unsafe { sys::gsel_dtype_name(self.0) })
    }
}

/// A type that buffers are made of: every bit pattern of it is a value. Sealed: the library has these types alone.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// Its number.
    const DTYPE: DType;
}

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident($bits:ty);)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(pub $bits);)*
    };
}
bits! {
    /// Bits of an IEEE half.
    F16(u16);
    /// Bits of a bfloat16: the upper half of an f32.
    BF16(u16);
    /// Bits of an OCP E4M3.
    F8E4M3(u8);
    /// Bits of an OCP E5M2.
    F8E5M2(u8);
    /// 0 or 1, as a `bool`, which another rank could give other bits.
    Bool(u8);
}

macro_rules! elements {
    ($($type:ty, $name:ident, $number:ident;)*) => {
        impl DType {
            $(#[doc = concat!("Elements of ", stringify!($type), ".")]
            pub const $name: DType = DType(sys::$number);)*
        }
        $(impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$name;
        })*
    };
}
elements! {
    i8, I8, GSEL_I8;
    u8, U8, GSEL_U8;
    i16, I16, GSEL_I16;
    u16, U16, GSEL_U16;
    i32, I32, GSEL_I32;
    u32, U32, GSEL_U32;
    i64, I64, GSEL_I64;
    u64, U64, GSEL_U64;
    F16, F16, GSEL_F16;
    BF16, BF16, GSEL_BF16;
    f32, F32, GSEL_F32;
    f64, F64, GSEL_F64;
    F8E4M3, F8E4M3, GSEL_F8E4M3;
    F8E5M2, F8E5M2, GSEL_F8E5M2;
    Bool, BOOL, GSEL_BOOL;
}

impl From<bool> for Bool {
    fn from(x: bool) -> Bool {
        Bool(u8::from(x))
    }
}

impl From<Bool> for bool {
    fn from(x: Bool) -> bool {
        x.0 != 0
    }
}

impl From<f32> for BF16 {
    /// Rounds to nearest, ties to even; NaN stays a quiet NaN.
    fn from(x: f32) -> BF16 {
        let bits = x.to_bits();
        if x.is_nan() {
            return BF16(0x7fc0);
        }
        BF16(((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }
}

impl From<BF16> for f32 {
    fn from(x: BF16) -> f32 {
        f32::from_bits(u32::from(x.0) << 16)
    }
}

/// Memory of an accelerator, such as a tensor's. Implement it for the tensors of your framework; gsel depends on none.
///
/// # Safety
/// [`device_ptr`](DevicePtr::device_ptr) is the first of [`elements`](DevicePtr::elements) elements in memory of the device
/// that the communicator was made with, or page-locked memory of the host, and stays so as long as the value lives.
pub unsafe trait DevicePtr {
    /// Type of the elements.
    type Element: Element;
    /// Address of the first element.
    fn device_ptr(&self) -> *mut c_void;
    /// Number of elements.
    fn elements(&self) -> usize;
}
