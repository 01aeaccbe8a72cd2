//! Reduction operations: those of the library, and closures.
use crate::error::check;
use crate::error::Code;
use crate::{guard, text, DType, Element, Error, Result};
use gsel_sys as sys;
use std::marker::PhantomData;
use std::os::raw::c_void;

/// A reduction operation, element by element, inputs in rank order. `gsel/types.h` says what each computes, to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op<'a>(pub(crate) i32, PhantomData<&'a ()>);

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        impl Op<'static> {
            $($(#[$doc])* pub const $name: Op<'static> = Op(number::$name, PhantomData);)*
        }
    };
}
mod number {
    use gsel_sys as sys;
    pub const SUM: i32 = sys::GSEL_SUM;
    pub const PROD: i32 = sys::GSEL_PROD;
    pub const MIN: i32 = sys::GSEL_MIN;
    pub const MAX: i32 = sys::GSEL_MAX;
    pub const AVG: i32 = sys::GSEL_AVG;
    pub const BAND: i32 = sys::GSEL_BAND;
    pub const BOR: i32 = sys::GSEL_BOR;
    pub const BXOR: i32 = sys::GSEL_BXOR;
    pub const SCALED_SUM: i32 = sys::GSEL_SCALED_SUM;
}
ops! {
    /// Sum; integers wrap.
    SUM;
    /// Product; integers wrap.
    PROD;
    /// Least; NaN if any input is NaN.
    MIN;
    /// Greatest; NaN if any input is NaN.
    MAX;
    /// Sum divided by the number of ranks.
    AVG;
    /// Bitwise and; integers only.
    BAND;
    /// Bitwise or; integers only.
    BOR;
    /// Bitwise exclusive or; integers only.
    BXOR;
    /// Sum of the inputs, each times the factor of its rank, see [`Collective::factor`](crate::Collective::factor).
    SCALED_SUM;
}

/// An operation of the program's. Every rank makes its own under the same name; ranks compare operations by name.
///
/// It is released when dropped, and [`op`](UserOp::op) borrows it, so a call that uses it cannot outlive it. A
/// [`Request`](crate::Request) owns it with its buffers: `comm.start((x, op), |(x, op)| allreduce_in_place(x, op.op()))`.
#[derive(Debug)]
pub struct UserOp(i32);

struct Fold<T, F>(F, PhantomData<fn(T)>);

unsafe extern "C" fn fold<T: Element, F: Fn(&mut [T], &[T])>(
    a: *mut c_void,
    b: *const c_void,
    n: usize,
    dtype: i32,
    user: *mut c_void,
) -> i32 {
    if DType(dtype) != T::DTYPE {
        return sys::GSEL_ERR_ARG;
    }
    let fold = &*(user as *const Fold<T, F>);
    guard::status(std::ptr::null_mut(), 0, || {
        (fold.0)(
            std::slice::from_raw_parts_mut(a as *mut T, n),
            std::slice::from_raw_parts(b as *const T, n),
        );
        Ok(sys::GSEL_OK)
    })
}

impl UserOp {
    /// Makes an operation of elements T: `function(accumulated, next)` computes `accumulated[i] = accumulated[i] op next[i]`
    /// on pieces of equal length, which are whole records.
    ///
    ///  * `name`: at most 31 bytes, the same on every rank
    ///  * `record`: elements that belong together, such as 2 for a value and its index; 1: each by itself
    ///
    /// The function may be called by several threads at once, and its result may depend on the arguments alone. If it
    /// panics, the call fails with [`Code::CALLBACK`]; in a small call each rank reduces for itself, and a rank where nothing
    /// panicked may get the error in its next call. If it panicked on the thread of a blocking call, the panic
    /// resumes there after C has returned. A [`Request`](crate::Request) returns only the error. Elements of another
    /// type fail the call.
    pub fn new<T: Element, F: Fn(&mut [T], &[T]) + Send + Sync + 'static>(
        name: &str,
        record: usize,
        function: F,
    ) -> Result<UserOp> {
        let user = Box::into_raw(Box::new(Fold(function, PhantomData::<fn(T)>)));
        let mut out = 0;
        let result = check(|error| unsafe {
            sys::gsel_op_create(
                text::given(name),
                record,
                Some(fold::<T, F>),
                user as *mut c_void,
                Some(guard::free::<Fold<T, F>>),
                &mut out,
                error,
            )
        });
        if result.is_err() {
            unsafe { guard::free::<Fold<T, F>>(user as *mut c_void) }
        }
        result.map(|()| UserOp(out))
    }

    /// [`Op::SCALED_SUM`] with this rank's factor, for calls that take an operation alone.
    pub fn scaled_sum(factor: f64) -> Result<UserOp> {
        let mut out = 0;
        check(|error| unsafe { sys::gsel_op_create_scaled_sum(factor, &mut out, error) })?;
        Ok(UserOp(out))
    }

    /// The operation, for a call.
    pub fn op(&self) -> Op<'_> {
        Op(self.0, PhantomData)
    }
}

impl Drop for UserOp {
    fn drop(&mut self) {
        unsafe { sys::gsel_op_free(self.0) }
    }
}

/// Order in which inputs are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `((x0 + x1) + x2) + x3`.
    Ranks,
    /// `(x0 + x1) + (x2 + x3)`: pairs of neighbours, level by level.
    Tree,
}

impl Order {
    pub(crate) fn number(self) -> i32 {
        match self {
            Order::Ranks => sys::GSEL_ORDER_RANKS,
            Order::Tree => sys::GSEL_ORDER_TREE,
        }
    }
}

/// `out[count]` = op over `inputs[n][count]` of this process: the reduction of the collectives, without other ranks.
/// [`Code::ARG`] for inputs of another length than `out`, and for [`Op::SCALED_SUM`].
pub fn reduce_local<T: Element>(inputs: &[&[T]], out: &mut [T], op: Op<'_>, order: Order) -> Result<()> {
    if let Some(input) = inputs.iter().find(|input| input.len() != out.len()) {
        return Err(Error::new(
            Code::ARG,
            format!("an input has {} elements, out has {}", input.len(), out.len()),
        ));
    }
    let pointers: Vec<_> = inputs.iter().map(|input| input.as_ptr() as *const c_void).collect();
    guard::resuming(|| {
        check(|error| unsafe {
            sys::gsel_reduce_local(
                pointers.as_ptr(),
                pointers.len(),
                out.as_mut_ptr() as *mut c_void,
                out.len(),
                T::DTYPE.0,
                op.0,
                order.number(),
                error,
            )
        })
    })
}
