//! What a layer's kernel gets: views of parameters, values and gradients, valid during the call.
//!
//! A buffer that a kernel writes is handed out once per call, so that no two mutable slices name it. An index out of range, a
//! second time, and another type than the model declares are faults of the kernel: it panics, as slices do.
use crate::{DType, Element};
use gsel_sys as sys;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::raw::c_void;

/// A shard of a tensor: elements `[begin, end)` of each of `blocks` blocks of `whole` elements along `dim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The dimension; `None`: the rank has the whole tensor.
    pub dim: Option<usize>,
    /// Number of equal blocks.
    pub blocks: usize,
    /// First element of each block.
    pub begin: usize,
    /// Behind the last.
    pub end: usize,
    /// Elements of a whole block.
    pub whole: usize,
}

impl Shard {
    fn of(shard: &sys::gsel_shard) -> Shard {
        let size = |n: i64| n as usize;
        Shard {
            dim: usize::try_from(shard.dim).ok(),
            blocks: shard.blocks as usize,
            begin: size(shard.begin),
            end: size(shard.end),
            whole: size(shard.whole),
        }
    }
}

/// Elements of a tensor; a NULL one has none.
fn slice<'a, T: Element>(tensor: &'a sys::gsel_tensor, what: &str, i: usize) -> &'a [T] {
    unsafe { std::slice::from_raw_parts(typed::<T>(tensor, what, i), tensor.n_elems as usize) }
}

/// First element, of the right type and not NULL.
fn typed<T: Element>(tensor: &sys::gsel_tensor, what: &str, i: usize) -> *mut T {
    let declared = DType(tensor.dtype);
    assert!(
        declared == T::DTYPE,
        "{} {} has elements of {}, not {}",
        what,
        i,
        declared.name(),
        T::DTYPE.name()
    );
    assert!(
        !tensor.data.is_null(),
        "{} {} is not there: the layer says that it is unread, or it needs no gradient",
        what,
        i
    );
    tensor.data as *mut T
}

/// A call of a layer, forward or backward.
pub struct Call<'a> {
    call: &'a sys::gsel_call,
    /// Which buffers of each list are handed out.
    taken: [Cell<u64>; 5],
    /// The same of those from 64 on, which few layers have.
    taken_beyond: RefCell<BTreeSet<(usize, usize)>>,
}

const OUTPUTS: usize = 0;
const D_INPUTS: usize = 1;
const D_PARAMS: usize = 2;
const SAVED: usize = 3;
const REDUCTIONS: usize = 4;

impl<'a> Call<'a> {
    /// # Safety
    /// `call` points to a call that lives for `'a`, and no other `Call` is made of it.
    pub(crate) unsafe fn new(call: *const sys::gsel_call) -> Call<'a> {
        Call {
            call: &*call,
            taken: Default::default(),
            taken_beyond: Default::default(),
        }
    }

    fn list(&self, first: *const sys::gsel_tensor, n: i32, what: &str, i: usize) -> &'a sys::gsel_tensor {
        assert!(i < n as usize, "{} {} was asked for, the layer has {}", what, i, n);
        unsafe { &*first.add(i) }
    }
    fn take(&self, list: usize, what: &str, i: usize) {
        let first = if i < 64 {
            let taken = self.taken[list].get();
            self.taken[list].set(taken | 1 << i);
            taken & (1 << i) == 0
        } else {
            self.taken_beyond.borrow_mut().insert((list, i))
        };
        assert!(first, "{} {} is handed out already", what, i);
    }
    /// A buffer that the library lends for the call; `take` hands it out once, so it is no second reference.
    #[allow(clippy::mut_from_ref)]
    fn taken<T: Element>(&self, list: usize, tensor: &'a sys::gsel_tensor, what: &str, i: usize) -> &'a mut [T] {
        let data = typed::<T>(tensor, what, i);
        self.take(list, what, i);
        unsafe { std::slice::from_raw_parts_mut(data, tensor.n_elems as usize) }
    }

    /// Layer id.
    pub fn layer(&self) -> usize {
        self.call.layer as usize
    }
    /// Micro-batch, from 0.
    pub fn microbatch(&self) -> usize {
        self.call.microbatch as usize
    }
    /// Step, from 0; in an evaluation, the number of the next step.
    pub fn step(&self) -> u64 {
        self.call.step as u64
    }
    /// Whether forward runs without training.
    pub fn evaluating(&self) -> bool {
        self.call.evaluating != 0
    }
    /// Samples of this micro-batch on this rank.
    pub fn samples(&self) -> usize {
        self.call.n_samples as usize
    }
    /// `[samples]` global ids, the same under every strategy.
    pub fn sample_ids(&self) -> &'a [i64] {
        if self.call.sample_ids.is_null() {
            return &[];
        }
        unsafe { std::slice::from_raw_parts(self.call.sample_ids, self.samples()) }
    }
    /// Key of (seed, step, layer) for [`random_uniform`](crate::random_uniform) and [`random_normal`](crate::random_normal).
    pub fn rng_key(&self) -> u64 {
        self.call.rng_key
    }
    /// Memory of the device with the key of the step whose work reads it, for layers with noise whose steps are launched
    /// as graphs; null: they are not.
    pub fn device_rng_key(&self) -> *const u64 {
        self.call.device_rng_key
    }
    /// Phase of a layer with phases, from 0.
    pub fn phase(&self) -> usize {
        self.call.phase as usize
    }
    /// Coordinate of this rank among those that share the layer, and their number.
    pub fn shard(&self) -> (usize, usize) {
        (self.call.shard_index as usize, self.call.shard_count as usize)
    }
    /// Stream of the device; null for host memory.
    pub fn stream(&self) -> *mut c_void {
        self.call.stream
    }
    /// Elements of parameter i, in the order of the layer's description.
    pub fn param<T: Element>(&self, i: usize) -> &'a [T] {
        slice(
            self.list(self.call.params, self.call.n_params, "parameter", i),
            "parameter",
            i,
        )
    }
    /// Elements of input i, samples first.
    pub fn input<T: Element>(&self, i: usize) -> &'a [T] {
        slice(self.list(self.call.inputs, self.call.n_inputs, "input", i), "input", i)
    }
    /// Shape of input i on this rank; the first size is that of the batch.
    pub fn input_dims(&self, i: usize) -> &'a [i64] {
        let tensor = self.list(self.call.inputs, self.call.n_inputs, "input", i);
        &tensor.dims[..tensor.n_dims as usize]
    }
    /// Shape of parameter i on this rank.
    pub fn param_dims(&self, i: usize) -> &'a [i64] {
        let tensor = self.list(self.call.params, self.call.n_params, "parameter", i);
        &tensor.dims[..tensor.n_dims as usize]
    }
    fn shard_of(&self, first: *const sys::gsel_shard, n: i32, i: usize) -> Shard {
        assert!(
            i < n as usize && !first.is_null(),
            "shard {} was asked for, the layer has {}",
            i,
            n
        );
        Shard::of(unsafe { &*first.add(i) })
    }
    /// Which shard of parameter i this rank has.
    pub fn param_shard(&self, i: usize) -> Shard {
        self.shard_of(self.call.param_shards, self.call.n_params, i)
    }
    /// Which shard of input i this rank has.
    pub fn input_shard(&self, i: usize) -> Shard {
        self.shard_of(self.call.input_shards, self.call.n_inputs, i)
    }
    /// Which shard of output i this rank has.
    pub fn output_shard(&self, i: usize) -> Shard {
        self.shard_of(self.call.output_shards, self.call.n_outputs, i)
    }
    /// The buffer of phase i of this direction. Once per call.
    pub fn reduction<T: Element>(&self, i: usize) -> &'a mut [T] {
        let tensor = self.list(self.call.reductions, self.call.n_reductions, "reduction", i);
        self.taken(REDUCTIONS, tensor, "reduction", i)
    }
    fn saved_bytes(&self) -> &'a mut [u8] {
        self.take(SAVED, "saved memory", 0);
        if self.call.saved.is_null() {
            return &mut [];
        }
        unsafe { std::slice::from_raw_parts_mut(self.call.saved as *mut u8, self.call.saved_bytes as usize) }
    }
    pub(crate) fn message(&self) -> (*mut std::os::raw::c_char, usize) {
        (self.call.message, self.call.message_capacity)
    }
}

macro_rules! view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<'a>(pub(crate) Call<'a>);
        impl<'a> std::ops::Deref for $name<'a> {
            type Target = Call<'a>;
            fn deref(&self) -> &Call<'a> {
                &self.0
            }
        }
    };
}
view! {
    /// What `forward` gets: reads parameters and inputs; writes outputs and saved bytes.
    Forward
}
view! {
    /// What a `backward` gets: reads parameters, inputs, outputs, saved bytes and gradients of outputs; writes gradients of
    /// inputs (`backward_input`), of parameters (`backward_weight`), or both.
    Backward
}

impl<'a> Forward<'a> {
    /// Elements of output i, all to be written. Once per call.
    pub fn output<T: Element>(&self, i: usize) -> &'a mut [T] {
        let tensor = self.0.list(self.0.call.outputs, self.0.call.n_outputs, "output", i);
        self.0.taken(OUTPUTS, tensor, "output", i)
    }
    /// Bytes kept until backward, 64-byte aligned. Once per call.
    pub fn saved(&self) -> &'a mut [u8] {
        self.0.saved_bytes()
    }
}

impl<'a> Backward<'a> {
    /// Elements of output i, as forward wrote them.
    pub fn output<T: Element>(&self, i: usize) -> &'a [T] {
        slice(
            self.0.list(self.0.call.outputs, self.0.call.n_outputs, "output", i),
            "output",
            i,
        )
    }
    /// Gradient of output i. The loss layer has none: the derivative of its loss sum is 1.
    pub fn d_output<T: Element>(&self, i: usize) -> &'a [T] {
        slice(
            self.0
                .list(self.0.call.d_outputs, self.0.call.n_outputs, "gradient of output", i),
            "gradient of output",
            i,
        )
    }
    /// Gradient of input i, to be overwritten; `None` if it needs none. Once per call.
    pub fn d_input<T: Element>(&self, i: usize) -> Option<&'a mut [T]> {
        let tensor = self
            .0
            .list(self.0.call.d_inputs, self.0.call.n_inputs, "gradient of input", i);
        if tensor.data.is_null() {
            return None;
        }
        Some(self.0.taken(D_INPUTS, tensor, "gradient of input", i))
    }
    /// Gradient of parameter i: to be overwritten, or added to if [`accumulate`](Backward::accumulate). Once per call.
    pub fn d_param(&self, i: usize) -> &'a mut [f32] {
        let tensor = self
            .0
            .list(self.0.call.d_params, self.0.call.n_params, "gradient of parameter", i);
        self.0.taken(D_PARAMS, tensor, "gradient of parameter", i)
    }
    /// Whether gradients of parameters are added to.
    pub fn accumulate(&self) -> bool {
        self.0.call.accumulate != 0
    }
    /// Says that the gradient of parameter i is not produced: it counts as 0 and stays unwritten.
    pub fn not_produced(&self, i: usize) {
        self.0
            .list(self.0.call.d_params, self.0.call.n_params, "gradient of parameter", i);
        if !self.0.call.produced.is_null() {
            unsafe { *self.0.call.produced.add(i) = 0 }
        }
    }
    /// Bytes that forward saved.
    pub fn saved(&self) -> &'a [u8] {
        self.0.saved_bytes()
    }
}

/// Asks for the elements of an input of the model.
pub struct DataRequest<'a> {
    request: &'a sys::gsel_data_request,
    taken: Cell<bool>,
}

impl<'a> DataRequest<'a> {
    /// # Safety
    /// As [`Call::new`].
    pub(crate) unsafe fn new(request: *const sys::gsel_data_request) -> DataRequest<'a> {
        DataRequest {
            request: &*request,
            taken: Cell::new(false),
        }
    }
    /// Id of the value.
    pub fn value(&self) -> usize {
        self.request.value as usize
    }
    /// Micro-batch, from 0.
    pub fn microbatch(&self) -> usize {
        self.request.microbatch as usize
    }
    /// Global ids of the samples; step k has the same ids under every strategy, over all ranks.
    pub fn sample_ids(&self) -> &'a [i64] {
        if self.request.sample_ids.is_null() {
            return &[];
        }
        unsafe { std::slice::from_raw_parts(self.request.sample_ids, self.request.n_samples as usize) }
    }
    /// Stream of the device; null for host memory.
    pub fn stream(&self) -> *mut c_void {
        self.request.stream
    }
    /// `[samples][dims of the value]`, all to be written. Once per request. Only for host memory.
    pub fn elements<T: Element>(&self) -> &'a mut [T] {
        let data = typed::<T>(&self.request.dst, "value", self.value());
        assert!(
            !self.taken.replace(true),
            "the elements of value {} are handed out already",
            self.value()
        );
        unsafe { std::slice::from_raw_parts_mut(data, self.request.dst.n_elems as usize) }
    }
    pub(crate) fn message(&self) -> (*mut std::os::raw::c_char, usize) {
        (self.request.message, self.request.message_capacity)
    }
}
