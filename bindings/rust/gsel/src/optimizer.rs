//! Optimizers of the program's, as closures.
use crate::guard::{self, Outcome};
use crate::number;
use gsel_sys as sys;
use std::cell::Cell;
use std::os::raw::c_void;

/// What an optimizer needs of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Each element by itself: a call gets any piece.
    Elements,
    /// Norms of the parameter and of its update, so two phases (LAMB).
    ParamNorm,
    /// The whole parameter in one call (Muon).
    WholeParam,
}

/// A call of an optimizer: elements `first..first + values().len()` of a parameter.
pub struct OptimizerCall<'a> {
    call: &'a sys::gsel_optimizer_call,
    taken: Cell<u32>,
}

impl<'a> OptimizerCall<'a> {
    fn take(&self, bit: u32, data: *mut f32, what: &str) -> &'a mut [f32] {
        assert!(self.taken.get() & (1 << bit) == 0, "{} is handed out already", what);
        self.taken.set(self.taken.get() | 1 << bit);
        unsafe { std::slice::from_raw_parts_mut(data, self.call.count as usize) }
    }
    /// Values to be updated. Once per call.
    pub fn values(&self) -> &'a mut [f32] {
        self.take(0, self.call.values, "values")
    }
    /// Gradient of the mean loss, clipped; phase 0 of [`Needs::ParamNorm`] replaces it by the update. Once per call.
    pub fn gradient(&self) -> &'a mut [f32] {
        self.take(1, self.call.gradient, "gradient")
    }
    /// State i, zero before the first step, kept between steps. Once per call.
    pub fn state(&self, i: usize) -> &'a mut [f32] {
        assert!(
            i < self.call.n_states as usize,
            "state {} was asked for, there are {}",
            i,
            self.call.n_states
        );
        self.take(2 + i as u32, unsafe { *self.call.states.add(i) }, "a state")
    }
    /// Step from 1.
    pub fn t(&self) -> u64 {
        self.call.t as u64
    }
    /// Id, shape, first element, rates and norms, as in C.
    pub fn raw(&self) -> &'a sys::gsel_optimizer_call {
        self.call
    }
}

type Step = dyn FnMut(&OptimizerCall<'_>) -> Outcome + Send;

/// An optimizer of the program's, which replaces `train.optimizer`.
pub struct Optimizer {
    needs: Needs,
    n_states: usize,
    step: Box<Step>,
}

unsafe extern "C" fn step(call: *const sys::gsel_optimizer_call, user: *mut c_void) -> i32 {
    let call = &*call;
    guard::status(call.message, call.message_capacity, || {
        let view = OptimizerCall {
            call,
            taken: Cell::new(0),
        };
        (*(user as *mut Box<Step>))(&view).map(|()| sys::GSEL_OK)
    })
}

impl Optimizer {
    /// An optimizer that keeps `n_states` (at most 4) numbers per element. The same call must give the same bits.
    pub fn new(
        needs: Needs,
        n_states: usize,
        step: impl FnMut(&OptimizerCall<'_>) -> Outcome + Send + 'static,
    ) -> Optimizer {
        Optimizer {
            needs,
            n_states,
            step: Box::new(step),
        }
    }
    /// Options that own the closure: the library frees it, or [`free`](Optimizer::free) does.
    pub(crate) fn into_raw(self) -> sys::gsel_optimizer_options {
        let mut options = sys::sized::<sys::gsel_optimizer_options>();
        options.needs = match self.needs {
            Needs::Elements => sys::GSEL_NEEDS_ELEMENTS,
            Needs::ParamNorm => sys::GSEL_NEEDS_PARAM_NORM,
            Needs::WholeParam => sys::GSEL_NEEDS_WHOLE_PARAM,
        };
        options.n_states = number(self.n_states);
        options.step = Some(step);
        options.user_data = Box::into_raw(Box::new(self.step)) as *mut c_void;
        options.free_user_data = Some(guard::free::<Box<Step>>);
        options
    }
    /// # Safety
    /// The library has not kept the options.
    pub(crate) unsafe fn free(options: &sys::gsel_optimizer_options) {
        guard::free::<Box<Step>>(options.user_data);
    }
}
