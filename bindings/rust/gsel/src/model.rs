//! A model: parameters, values and layers with closures as kernels, described once and run unchanged by every strategy.
use crate::call::{Backward, Call, Forward};
use crate::error::{check, made};
use crate::guard::{self, Outcome};
use crate::{number, text, DType, Op, Result};
use gsel_sys as sys;
use std::os::raw::c_void;
use std::ptr::NonNull;

/// Id of a parameter of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParamId(pub i32);
/// Id of a value of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueId(pub i32);
/// Id of a layer of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerId(pub i32);

type Init = dyn Fn(&mut [f32], usize, u64) -> Outcome + Send + Sync;

/// A parameter: name, global shape, initial values.
pub struct Param {
    name: String,
    dims: Vec<i64>,
    options: sys::gsel_param_options,
    init: Option<Box<Init>>,
}

impl Param {
    /// A parameter of f32 that begins with zeros.
    pub fn new(name: &str, dims: &[i64]) -> Param {
        Param {
            name: name.to_owned(),
            dims: dims.to_vec(),
            options: sys::sized(),
            init: None,
        }
    }
    /// What the kernels get: f32, bf16 or f16. Gradients are f32 all the same.
    pub fn dtype(mut self, dtype: DType) -> Param {
        self.options.dtype = dtype.0;
        self
    }
    /// Begins with ones.
    pub fn ones(mut self) -> Param {
        self.options.init = sys::GSEL_INIT_ONES;
        self
    }
    /// Begins with normal numbers of mean 0 and this deviation, the same on any number of ranks.
    pub fn normal(mut self, deviation: f64) -> Param {
        self.options.init = sys::GSEL_INIT_NORMAL;
        self.options.init_scale = deviation;
        self
    }
    /// Begins with what `init(dst, first, seed)` writes for elements `first..first + dst.len()`.
    ///
    /// C has no place for the text of an initialiser's error: the error of [`Trainer::new`](crate::Trainer::new) names the
    /// parameter and a code, [`Code::CALLBACK`](crate::Code::CALLBACK) or that of a [`crate::Error`]. Other ranks get
    /// [`Code::PEER`](crate::Code::PEER).
    pub fn init(mut self, init: impl Fn(&mut [f32], usize, u64) -> Outcome + Send + Sync + 'static) -> Param {
        self.options.init = sys::GSEL_INIT_CALLBACK;
        self.init = Some(Box::new(init));
        self
    }
    /// `gsel::sys::GSEL_PARAM_*`: without decay, frozen, not clipped, replicated if few.
    pub fn flags(mut self, flags: u32) -> Param {
        self.options.flags = flags;
        self
    }
    /// Multiplies the learning rate.
    pub fn lr_factor(mut self, factor: f64) -> Param {
        self.options.lr_factor = factor;
        self
    }
    /// May be split along `dim`, which has `blocks` equal blocks, at multiples of `granularity` elements.
    pub fn shard(mut self, dim: i32, blocks: i32, granularity: i32) -> Param {
        self.options.shard = sys::GSEL_SHARD_DIM;
        self.options.shard_dim = dim;
        self.options.shard_blocks = blocks;
        self.options.shard_granularity = granularity;
        self
    }
}

/// A value: a tensor that flows between layers.
pub struct Value {
    name: String,
    dims: Vec<i64>,
    options: sys::gsel_value_options,
}

impl Value {
    /// A value of f32 with this shape of one sample; calls have the batch as first dimension.
    pub fn new(name: &str, dims: &[i64]) -> Value {
        Value {
            name: name.to_owned(),
            dims: dims.to_vec(),
            options: sys::sized(),
        }
    }
    /// An input, which the program supplies.
    pub fn input(name: &str, dims: &[i64]) -> Value {
        Value::new(name, dims).flags(sys::GSEL_VALUE_INPUT)
    }
    /// One f64 per micro-batch: sum of losses, or of weights.
    pub fn scalar(name: &str) -> Value {
        Value::new(name, &[]).flags(sys::GSEL_VALUE_SCALAR).dtype(DType::F64)
    }
    /// Type of the elements.
    pub fn dtype(mut self, dtype: DType) -> Value {
        self.options.dtype = dtype.0;
        self
    }
    /// Adds `gsel::sys::GSEL_VALUE_*`.
    pub fn flags(mut self, flags: u32) -> Value {
        self.options.flags |= flags;
        self
    }
    /// Placement when its layer has written it (`gsel::sys::GSEL_PLACEMENT_*`), if several ranks share the layer.
    pub fn placement(mut self, placement: i32) -> Value {
        self.options.placement = placement;
        self
    }
    /// The dimension that it is split along, counted with the batch as 0, in how many blocks and at what multiples.
    pub fn shard(mut self, dim: i32, blocks: i32, granularity: i32) -> Value {
        self.options.shard_dim = dim;
        self.options.shard_blocks = blocks;
        self.options.shard_granularity = granularity;
        self
    }
    /// The dimension of positions, counted with the batch as 0.
    pub fn sequence_dim(mut self, dim: i32) -> Value {
        self.options.sequence_dim = dim;
        self
    }
}

/// A collective in the middle of a kernel; see `gsel_phase`.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Axis that it goes over.
    pub axis: crate::Axis,
    /// What is reduced; `None`: the buffer is shifted round the ranks of the axis.
    pub op: Option<Op<'static>>,
    /// Type: f32 or f64.
    pub dtype: DType,
    /// Elements of the buffer.
    pub elems: i64,
    /// Elements per sample, added to these.
    pub elems_per_sample: i64,
    /// Of a shift: a phase more, which brings each rank's own buffer back.
    pub home: bool,
}

impl Phase {
    fn raw(&self) -> sys::gsel_phase {
        let mut phase = sys::sized::<sys::gsel_phase>();
        phase.axis = self.axis.0;
        phase.op = self.op.map_or(0, |op| op.0);
        phase.dtype = self.dtype.0;
        phase.elems = self.elems;
        phase.elems_per_sample = self.elems_per_sample;
        if self.op.is_none() {
            phase.flags = sys::GSEL_PHASE_RING_SHIFT | if self.home { sys::GSEL_PHASE_HOME } else { 0 };
        }
        phase
    }
}

type ForwardFn = Box<dyn Fn(&Forward<'_>) -> Outcome + Send + Sync>;
type BackwardFn = Box<dyn Fn(&Backward<'_>) -> Outcome + Send + Sync>;

/// The kernels of a layer, which C keeps as user data.
#[derive(Default)]
struct Kernels {
    forward: Option<ForwardFn>,
    backward_input: Option<BackwardFn>,
    backward_weight: Option<BackwardFn>,
    backward: Option<BackwardFn>,
}

unsafe extern "C" fn forward(call: *const sys::gsel_call, user: *mut c_void) -> i32 {
    let view = Forward(Call::new(call));
    let (message, capacity) = view.message();
    guard::status(message, capacity, || {
        let kernels = &*(user as *const Kernels);
        kernels
            .forward
            .as_ref()
            .map_or(Ok(()), |kernel| kernel(&view))
            .map(|()| sys::GSEL_OK)
    })
}

unsafe fn run_backward(kernel: Option<&BackwardFn>, call: *const sys::gsel_call) -> i32 {
    let view = Backward(Call::new(call));
    let (message, capacity) = view.message();
    guard::status(message, capacity, || {
        kernel.map_or(Ok(()), |kernel| kernel(&view)).map(|()| sys::GSEL_OK)
    })
}
unsafe extern "C" fn backward_input(call: *const sys::gsel_call, user: *mut c_void) -> i32 {
    run_backward((*(user as *const Kernels)).backward_input.as_ref(), call)
}
unsafe extern "C" fn backward_weight(call: *const sys::gsel_call, user: *mut c_void) -> i32 {
    run_backward((*(user as *const Kernels)).backward_weight.as_ref(), call)
}
unsafe extern "C" fn backward(call: *const sys::gsel_call, user: *mut c_void) -> i32 {
    run_backward((*(user as *const Kernels)).backward.as_ref(), call)
}

unsafe extern "C" fn init(dst: *mut f32, first: i64, count: i64, seed: u64, user: *mut c_void) -> i32 {
    guard::status(std::ptr::null_mut(), 0, || {
        let init = &*(user as *const Box<Init>);
        init(
            std::slice::from_raw_parts_mut(dst, count as usize),
            first as usize,
            seed,
        )
        .map(|()| sys::GSEL_OK)
    })
}

/// A layer: which values and parameters it uses, and its kernels. A layer without any kernel is driven by pull alone.
///
/// Kernels are closures that any thread may call: what they keep between calls belongs in a `Mutex` or an atomic.
/// An error or a panic of a kernel ends the step with layer, rank and text: on this rank, and on the others in this step
/// or the next one, see the [crate's rules](crate).
pub struct Layer {
    name: String,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    params: Vec<ParamId>,
    forward_phases: Vec<Phase>,
    backward_phases: Vec<Phase>,
    options: sys::gsel_layer_options,
    kernels: Kernels,
}

impl Layer {
    /// A layer that reads `inputs` and `params` and writes `outputs`.
    pub fn new(name: &str, inputs: &[ValueId], outputs: &[ValueId], params: &[ParamId]) -> Layer {
        Layer {
            name: name.to_owned(),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            params: params.to_vec(),
            forward_phases: Vec::new(),
            backward_phases: Vec::new(),
            options: sys::sized(),
            kernels: Kernels::default(),
        }
    }
    /// The layer of the loss, whose outputs are two scalars: sum of losses and sum of weights.
    pub fn loss(name: &str, inputs: &[ValueId], outputs: [ValueId; 2], params: &[ParamId]) -> Layer {
        Layer::new(name, inputs, &outputs, params).flags(sys::GSEL_LAYER_LOSS)
    }
    /// The kernel of forward.
    pub fn forward(mut self, kernel: impl Fn(&Forward<'_>) -> Outcome + Send + Sync + 'static) -> Layer {
        self.kernels.forward = Some(Box::new(kernel));
        self.options.forward = Some(forward);
        self
    }
    /// The kernel of both halves of backward at once.
    pub fn backward(mut self, kernel: impl Fn(&Backward<'_>) -> Outcome + Send + Sync + 'static) -> Layer {
        self.kernels.backward = Some(Box::new(kernel));
        self.options.backward = Some(backward);
        self
    }
    /// The kernel of the gradients of inputs.
    pub fn backward_input(mut self, kernel: impl Fn(&Backward<'_>) -> Outcome + Send + Sync + 'static) -> Layer {
        self.kernels.backward_input = Some(Box::new(kernel));
        self.options.backward_input = Some(backward_input);
        self
    }
    /// The kernel of the gradients of parameters.
    pub fn backward_weight(mut self, kernel: impl Fn(&Backward<'_>) -> Outcome + Send + Sync + 'static) -> Layer {
        self.kernels.backward_weight = Some(Box::new(kernel));
        self.options.backward_weight = Some(backward_weight);
        self
    }
    /// Adds `gsel::sys::GSEL_LAYER_*`.
    pub fn flags(mut self, flags: u32) -> Layer {
        self.options.flags |= flags;
        self
    }
    /// Bytes per sample that forward saves for backward.
    pub fn saved_bytes(mut self, bytes_per_sample: u64) -> Layer {
        self.options.saved_bytes_per_sample = bytes_per_sample;
        self
    }
    /// Operations of one forward per sample, a hint.
    pub fn flop(mut self, flop_per_sample: f64) -> Layer {
        self.options.flop_per_sample = flop_per_sample;
        self
    }
    /// What the halves of backward do not read (`gsel::sys::GSEL_UNREAD_*`), and which parameters no backward reads (bit i).
    pub fn unread(mut self, by_input: u64, by_weight: u64, params: u64) -> Layer {
        self.options.backward_input_unread = by_input;
        self.options.backward_weight_unread = by_weight;
        self.options.backward_unread_params = params;
        self
    }
    /// Collectives in the middle of forward and of backward.
    pub fn phases(mut self, forward: &[Phase], backward: &[Phase]) -> Layer {
        self.forward_phases = forward.to_vec();
        self.backward_phases = backward.to_vec();
        self
    }
}

/// A description of a model. It holds no data and is the same on every rank. Trainers keep what they need of it.
#[derive(Debug)]
pub struct Model(NonNull<sys::gsel_model>);

// One thread at a time; kernels are Send and Sync, since trainers on several threads may share them.
unsafe impl Send for Model {}

impl Model {
    /// An empty description.
    pub fn new() -> Result<Model> {
        let model = made(|out, error| unsafe { sys::gsel_model_create(out, error) })?;
        Ok(Model(
            NonNull::new(model).expect("a call that succeeds gives an object"),
        ))
    }
    pub(crate) fn raw(&self) -> *mut sys::gsel_model {
        self.0.as_ptr()
    }

    /// Adds a parameter. [`Code::MODEL`](crate::Code::MODEL) names the fault and leaves the model unchanged.
    pub fn add_param(&mut self, param: Param) -> Result<ParamId> {
        let mut options = param.options;
        options.name = text::given(&param.name);
        options.dims = param.dims.as_ptr();
        options.n_dims = number(param.dims.len());
        let user = param.init.map(|init| Box::into_raw(Box::new(init)));
        if let Some(user) = user {
            options.init_fn = Some(init);
            options.init_user_data = user as *mut c_void;
            options.init_free_user_data = Some(guard::free::<Box<Init>>);
        }
        let mut id = -1;
        let result = check(|error| unsafe { sys::gsel_model_add_param(self.raw(), &options, &mut id, error) });
        if let (Err(_), Some(user)) = (&result, user) {
            unsafe { guard::free::<Box<Init>>(user as *mut c_void) } // a call that fails has kept nothing
        }
        result.map(|()| ParamId(id))
    }

    /// Adds a value.
    pub fn add_value(&mut self, value: Value) -> Result<ValueId> {
        let mut options = value.options;
        options.name = text::given(&value.name);
        options.dims = value.dims.as_ptr();
        options.n_dims = number(value.dims.len());
        let mut id = -1;
        check(|error| unsafe { sys::gsel_model_add_value(self.raw(), &options, &mut id, error) })?;
        Ok(ValueId(id))
    }

    /// Adds a layer; the order of layers is that of execution.
    pub fn add_layer(&mut self, layer: Layer) -> Result<LayerId> {
        let mut options = layer.options;
        let (forward, backward): (Vec<_>, Vec<_>) = (
            layer.forward_phases.iter().map(Phase::raw).collect(),
            layer.backward_phases.iter().map(Phase::raw).collect(),
        );
        options.name = text::given(&layer.name);
        // The ids are transparent in effect, yet copied, since that is not promised.
        let (inputs, outputs): (Vec<i32>, Vec<i32>) = (
            layer.inputs.iter().map(|id| id.0).collect(),
            layer.outputs.iter().map(|id| id.0).collect(),
        );
        let params: Vec<i32> = layer.params.iter().map(|id| id.0).collect();
        (options.inputs, options.n_inputs) = (inputs.as_ptr(), number(inputs.len()));
        (options.outputs, options.n_outputs) = (outputs.as_ptr(), number(outputs.len()));
        (options.params, options.n_params) = (params.as_ptr(), number(params.len()));
        (options.forward_phases, options.n_forward_phases) = (forward.as_ptr(), number(forward.len()));
        (options.backward_phases, options.n_backward_phases) = (backward.as_ptr(), number(backward.len()));
        let user = Box::into_raw(Box::new(layer.kernels));
        options.user_data = user as *mut c_void;
        options.free_user_data = Some(guard::free::<Kernels>);
        let mut id = -1;
        let result = check(|error| unsafe { sys::gsel_model_add_layer(self.raw(), &options, &mut id, error) });
        if result.is_err() {
            unsafe { guard::free::<Kernels>(user as *mut c_void) } // a call that fails has kept nothing
        }
        result.map(|()| LayerId(id))
    }

    /// Checks the whole model and freezes it. A trainer does so, too.
    pub fn finish(&mut self) -> Result<()> {
        check(|error| unsafe { sys::gsel_model_finish(self.raw(), error) })
    }
    /// Number of parameters.
    pub fn param_count(&self) -> usize {
        unsafe { sys::gsel_model_param_count(self.raw()) as usize }
    }
    /// Number of values.
    pub fn value_count(&self) -> usize {
        unsafe { sys::gsel_model_value_count(self.raw()) as usize }
    }
    /// Number of layers.
    pub fn layer_count(&self) -> usize {
        unsafe { sys::gsel_model_layer_count(self.raw()) as usize }
    }
    /// Elements of all parameters.
    pub fn element_count(&self) -> u64 {
        unsafe { sys::gsel_model_element_count(self.raw()) as u64 }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { sys::gsel_model_free(self.raw()) }
    }
}

/// Uniform in [0, 1) with 24 bits, of (key, counter) alone: Philox 4x32-10.
pub fn random_uniform(key: u64, counter: u64) -> f32 {
    unsafe { sys::gsel_random_uniform(key, counter) }
}
/// Normal with mean 0 and deviation 1, of (key, counter) alone.
pub fn random_normal(key: u64, counter: u64) -> f32 {
    unsafe { sys::gsel_random_normal(key, counter) }
}
