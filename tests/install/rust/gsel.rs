//! gsel.rs: the part of gsel's C ABI that allreduce.rs uses, declared by hand, and the little that makes it safe to use:
//! an error becomes a Result, a handle is freed when dropped. It knows no more than the public headers say.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::{fmt, ptr, slice};

pub const I32: i32 = 5;
pub const F32: i32 = 11;
pub const F64: i32 = 12;
pub const SUM: i32 = 1;
pub const ERR_ARG: i32 = -1;
pub const ERR_MISMATCH: i32 = -13;
pub const VALUE_INPUT: u32 = 1;
pub const VALUE_SCALAR: u32 = 4;
pub const LAYER_LOSS: u32 = 1;
pub const WORK_INPUT: i32 = 1;
pub const WORK_FORWARD: i32 = 2;
pub const WORK_BACKWARD: i32 = 5;
pub const WORK_DONE: i32 = 0;

/// gsel_str: borrowed text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Str<'a> {
    data: *const u8,
    len: usize,
    text: PhantomData<&'a str>,
}

impl<'a> From<&'a str> for Str<'a> {
    fn from(text: &'a str) -> Self {
        Str { data: text.as_ptr(), len: text.len(), text: PhantomData }
    }
}

impl<'a> Str<'a> {
    fn to_owned(self) -> String {
        if self.data.is_null() {
            return String::new();
        }
        let bytes = unsafe { slice::from_raw_parts(self.data, self.len) };
        String::from_utf8_lossy(bytes).into_owned()
    }
}

#[repr(C)]
pub struct Tensor {
    pub data: *mut c_void,
    pub n_elems: i64,
    pub dims: [i64; 6],
    pub n_dims: i32,
    pub dtype: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [u8; 128],
}

#[repr(C)]
pub struct CommOptions {
    pub struct_size: u32,
    pub reserved: u32,
    pub rank: i32,
    pub world_size: i32,
    pub id: *const UniqueId,
    pub timeout_s: f64,
    pub join_timeout_s: f64,
}

#[repr(C)]
pub struct Call {
    pub struct_size: u32,
    pub reserved: u32,
    pub layer: i32,
    pub microbatch: i32,
    pub n_samples: i64,
    pub sample_ids: *const i64,
    pub params: *const Tensor,
    pub inputs: *const Tensor,
    pub outputs: *const Tensor,
    pub d_outputs: *const Tensor,
    pub d_inputs: *const Tensor,
    pub d_params: *const Tensor,
    pub n_params: i32,
    pub n_inputs: i32,
    pub n_outputs: i32,
    pub accumulate: i32,
    pub saved: *mut c_void,
    pub saved_bytes: u64,
    pub rng_key: u64,
    pub stream: *mut c_void,
    pub message: *mut u8,
    pub message_capacity: usize,
    pub user_data: *mut c_void,
}

pub type LayerFn = extern "C" fn(call: *const Call, user_data: *mut c_void) -> i32;
pub type InitFn = extern "C" fn(dst: *mut f32, first: i64, count: i64, seed: u64, user_data: *mut c_void) -> i32;
pub type DataFn = extern "C" fn(request: *const DataRequest, user_data: *mut c_void) -> i32;

#[repr(C)]
pub struct ParamOptions<'a> {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: Str<'a>,
    pub dims: *const i64,
    pub n_dims: i32,
    pub dtype: i32,
    pub flags: u32,
    pub init: i32,
    pub init_scale: f64,
    pub init_fn: Option<InitFn>,
    pub init_user_data: *mut c_void,
    pub shard: i32,
    pub shard_dim: i32,
    pub shard_blocks: i32,
    pub reserved2: i32,
}

#[repr(C)]
pub struct ValueOptions<'a> {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: Str<'a>,
    pub dims: *const i64,
    pub n_dims: i32,
    pub dtype: i32,
    pub flags: u32,
    pub placement: i32,
    pub shard_dim: i32,
    pub reserved2: i32,
}

#[repr(C)]
pub struct LayerOptions<'a> {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: Str<'a>,
    pub inputs: *const i32,
    pub outputs: *const i32,
    pub params: *const i32,
    pub n_inputs: i32,
    pub n_outputs: i32,
    pub n_params: i32,
    pub flags: u32,
    pub saved_bytes_per_sample: u64,
    pub flop_per_sample: f64,
    pub forward: Option<LayerFn>,
    pub backward_input: Option<LayerFn>,
    pub backward_weight: Option<LayerFn>,
    pub backward: Option<LayerFn>,
    pub user_data: *mut c_void,
}

#[repr(C)]
pub struct DataRequest {
    pub struct_size: u32,
    pub reserved: u32,
    pub value: i32,
    pub microbatch: i32,
    pub n_samples: i64,
    pub sample_ids: *const i64,
    pub dst: Tensor,
    pub message: *mut u8,
    pub message_capacity: usize,
}

#[repr(C)]
pub struct TrainerOptions {
    pub struct_size: u32,
    pub reserved: u32,
    pub config: *const RawConfig,
    pub data: Option<DataFn>,
    pub data_user_data: *mut c_void,
}

#[repr(C)]
pub struct Work {
    pub struct_size: u32,
    pub reserved: u32,
    pub kind: i32,
    pub reserved2: i32,
    pub ticket: u64,
    pub call: *const Call,
    pub input: *const DataRequest,
}

#[repr(C)]
pub struct StepReport {
    pub struct_size: u32,
    pub reserved: u32,
    pub step: i64,
    pub loss: f64,
    pub loss_sum: f64,
    pub weight: f64,
    pub gradient_norm: f64,
    pub seconds: f64,
    pub compute_s: f64,
    pub exposed_comm_s: f64,
    pub optimizer_s: f64,
    pub bytes_sent: u64,
    pub n_reduces: i32,
    pub n_overlapped: i32,
}

/// A struct as its GSEL_..._INIT macro leaves it: zeros, and the size this program was compiled with.
///
/// # Safety
/// T is one of the structs above, which begin with struct_size and for which all zeros is a value.
unsafe trait Sized32: Sized {
    fn init() -> Self {
        unsafe {
            let mut value: Self = std::mem::zeroed();
            *(&mut value as *mut Self as *mut u32) = std::mem::size_of::<Self>() as u32;
            value
        }
    }
}
unsafe impl Sized32 for CommOptions {}
unsafe impl Sized32 for TrainerOptions {}
unsafe impl Sized32 for Work {}
unsafe impl Sized32 for StepReport {}
unsafe impl Sized32 for ParamOptions<'_> {}
unsafe impl Sized32 for ValueOptions<'_> {}
unsafe impl Sized32 for LayerOptions<'_> {}

macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name { _private: [u8; 0] }
    )*};
}
opaque!(RawError RawComm RawConfig RawModel RawTrainer);

#[link(name = "gsel")]
extern "C" {
    fn gsel_error_message(error: *const RawError) -> Str<'static>;
    fn gsel_error_rank(error: *const RawError) -> i32;
    fn gsel_error_free(error: *mut RawError);
    fn gsel_unique_id_create(out: *mut UniqueId, err: *mut *mut RawError) -> i32;
    fn gsel_comm_init(options: *const CommOptions, out: *mut *mut RawComm, err: *mut *mut RawError) -> i32;
    fn gsel_comm_rank(comm: *const RawComm) -> i32;
    fn gsel_comm_world_size(comm: *const RawComm) -> i32;
    fn gsel_allreduce(
        comm: *mut RawComm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: i32,
        op: i32,
        err: *mut *mut RawError,
    ) -> i32;
    fn gsel_comm_free(comm: *mut RawComm);
    fn gsel_config_parse(text: Str, name: Str, out: *mut *mut RawConfig, err: *mut *mut RawError) -> i32;
    fn gsel_config_free(config: *mut RawConfig);
    fn gsel_model_create(out: *mut *mut RawModel, err: *mut *mut RawError) -> i32;
    fn gsel_model_add_param(model: *mut RawModel, options: *const ParamOptions, id: *mut i32, err: *mut *mut RawError)
        -> i32;
    fn gsel_model_add_value(model: *mut RawModel, options: *const ValueOptions, id: *mut i32, err: *mut *mut RawError)
        -> i32;
    fn gsel_model_add_layer(model: *mut RawModel, options: *const LayerOptions, id: *mut i32, err: *mut *mut RawError)
        -> i32;
    fn gsel_model_free(model: *mut RawModel);
    fn gsel_trainer_create(comm: *mut RawComm, model: *mut RawModel,
        options: *const TrainerOptions,
        out: *mut *mut RawTrainer,
        err: *mut *mut RawError,
    ) -> i32;
    fn gsel_trainer_step(trainer: *mut RawTrainer, report: *mut StepReport, err: *mut *mut RawError) -> i32;
    fn gsel_trainer_next_work(trainer: *mut RawTrainer, out: *mut Work, err: *mut *mut RawError) -> i32;
    fn gsel_trainer_complete(
        trainer: *mut RawTrainer,
        ticket: u64,
        status: i32,
        message: Str,
        err: *mut *mut RawError,
    ) -> i32;
    fn gsel_trainer_report(trainer: *const RawTrainer, report: *mut StepReport, err: *mut *mut RawError) -> i32;
    fn gsel_trainer_read_param(
        trainer: *mut RawTrainer,
        param: i32,
        dst: *mut c_void,
        dst_bytes: usize,
        err: *mut *mut RawError,
    ) -> i32;
    fn gsel_trainer_free(trainer: *mut RawTrainer);
}

/// What went wrong, copied out of gsel's object, which is freed by then.
#[derive(Debug)]
pub struct Error {
    pub status: i32,
    pub rank: i32,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.status)
    }
}
impl std::error::Error for Error {}

/// Runs a fallible call with a place for its error.
fn check(call: impl FnOnce(*mut *mut RawError) -> i32) -> Result<(), Error> {
    let mut error: *mut RawError = ptr::null_mut();
    match call(&mut error) {
        0 => Ok(()),
        status => unsafe {
            let copied = Error { status, rank: gsel_error_rank(error), message: gsel_error_message(error).to_owned() };
            gsel_error_free(error);
            Err(copied)
        },
    }
}

pub fn unique_id() -> Result<UniqueId, Error> {
    let mut id = UniqueId { bytes: [0; 128] };
    check(|err| unsafe { gsel_unique_id_create(&mut id, err) })?;
    Ok(id)
}

/// A type gsel can reduce.
pub trait Element: Copy {
    const DTYPE: i32;
}
impl Element for i32 {
    const DTYPE: i32 = I32;
}

pub struct Comm(*mut RawComm);

impl Comm {
    /// Joins as the launcher's environment says.
    pub fn from_environment() -> Result<Comm, Error> {
        Comm::join(ptr::null())
    }
    pub fn new(rank: i32, world_size: i32, id: &UniqueId) -> Result<Comm, Error> {
        Comm::join(&CommOptions { rank, world_size, id, ..CommOptions::init() })
    }
    fn join(options: *const CommOptions) -> Result<Comm, Error> {
        let mut comm = ptr::null_mut();
        check(|err| unsafe { gsel_comm_init(options, &mut comm, err) })?;
        Ok(Comm(comm))
    }
    pub fn rank(&self) -> i32 {
        unsafe { gsel_comm_rank(self.0) }
    }
    pub fn world_size(&self) -> i32 {
        unsafe { gsel_comm_world_size(self.0) }
    }
    /// In place, over all elements of x; op is one of gsel's, or what the test wants to see refused.
    pub fn allreduce<T: Element>(&mut self, x: &mut [T], op: i32) -> Result<(), Error> {
        let data = x.as_mut_ptr() as *mut c_void;
        check(|err| unsafe { gsel_allreduce(self.0, data, data, x.len(), T::DTYPE, op, err) })
    }
}
impl Drop for Comm {
    fn drop(&mut self) {
        unsafe { gsel_comm_free(self.0) }
    }
}

pub struct Config(*mut RawConfig);

impl Config {
    pub fn parse(text: &str, name: &str) -> Result<Config, Error> {
        let mut config = ptr::null_mut();
        check(|err| unsafe { gsel_config_parse(text.into(), name.into(), &mut config, err) })?;
        Ok(Config(config))
    }
}
impl Drop for Config {
    fn drop(&mut self) {
        unsafe { gsel_config_free(self.0) }
    }
}

pub struct Model(*mut RawModel);

impl Model {
    pub fn new() -> Result<Model, Error> {
        let mut model = ptr::null_mut();
        check(|err| unsafe { gsel_model_create(&mut model, err) })?;
        Ok(Model(model))
    }
    pub fn add_param(&mut self, name: &str, dims: &[i64]) -> Result<i32, Error> {
        let (mut id, n_dims) = (0, dims.len() as i32);
        let options = ParamOptions { name: name.into(), dims: dims.as_ptr(), n_dims, ..ParamOptions::init() };
        check(|err| unsafe { gsel_model_add_param(self.0, &options, &mut id, err) })?;
        Ok(id)
    }
    pub fn add_value(&mut self, name: &str, dims: &[i64], dtype: i32, flags: u32) -> Result<i32, Error> {
        let (mut id, n_dims) = (0, dims.len() as i32);
        let options =
            ValueOptions { name: name.into(), dims: dims.as_ptr(), n_dims, dtype, flags, ..ValueOptions::init() };
        check(|err| unsafe { gsel_model_add_value(self.0, &options, &mut id, err) })?;
        Ok(id)
    }
    /// The loss, with callbacks that get `user_data`.
    /// # Safety
    /// `user_data` outlives the model and its trainers.
    pub unsafe fn add_loss(
        &mut self,
        name: &str,
        (inputs, outputs, params): (&[i32], &[i32], &[i32]),
        (forward, backward): (LayerFn, LayerFn),
        user_data: *mut c_void,
    ) -> Result<i32, Error> {
        let options = LayerOptions {
            name: name.into(),
            inputs: inputs.as_ptr(),
            outputs: outputs.as_ptr(),
            params: params.as_ptr(),
            n_inputs: inputs.len() as i32,
            n_outputs: outputs.len() as i32,
            n_params: params.len() as i32,
            flags: LAYER_LOSS,
            forward: Some(forward),
            backward: Some(backward),
            user_data,
            ..LayerOptions::init()
        };
        let mut id = 0;
        check(|err| gsel_model_add_layer(self.0, &options, &mut id, err))?;
        Ok(id)
    }
}
impl Drop for Model {
    fn drop(&mut self) {
        unsafe { gsel_model_free(self.0) }
    }
}

/// What a trainer hands out to be done.
pub enum Task<'a> {
    Input(&'a DataRequest),
    Forward(&'a Call),
    Backward(&'a Call),
}

/// A trainer borrows its communicator: while it lives nothing else uses that.
pub struct Trainer<'a> {
    raw: *mut RawTrainer,
    comm: PhantomData<&'a mut Comm>,
}

impl<'a> Trainer<'a> {
    /// # Safety
    /// `user_data` outlives the trainer.
    pub unsafe fn new(
        comm: &'a mut Comm,
        model: &Model,
        config: &Config,
        data: Option<DataFn>,
        data_user_data: *mut c_void,
    ) -> Result<Trainer<'a>, Error> {
        let options = TrainerOptions { config: config.0, data, data_user_data, ..TrainerOptions::init() };
        let mut raw = ptr::null_mut();
        check(|err| gsel_trainer_create(comm.0, model.0, &options, &mut raw, err))?;
        Ok(Trainer { raw, comm: PhantomData })
    }
    /// One step by pull: `work` does each task, or says why not.
    pub fn pull(&mut self, mut work: impl FnMut(Task) -> Result<(), String>) -> Result<StepReport, Error> {
        loop {
            let mut next = Work::init();
            check(|err| unsafe { gsel_trainer_next_work(self.raw, &mut next, err) })?;
            let outcome = match next.kind {
                WORK_DONE => break,
                WORK_INPUT => work(Task::Input(unsafe { &*next.input })),
                WORK_FORWARD => work(Task::Forward(unsafe { &*next.call })),
                WORK_BACKWARD => work(Task::Backward(unsafe { &*next.call })),
                kind => Err(format!("work of kind {}", kind)),
            };
            let (status, message) = match &outcome {
                Ok(()) => (0, ""),
                Err(why) => (-1, why.as_str()),
            };
            check(|err| unsafe { gsel_trainer_complete(self.raw, next.ticket, status, message.into(), err) })?;
        }
        let mut report = StepReport::init();
        check(|err| unsafe { gsel_trainer_report(self.raw, &mut report, err) })?;
        Ok(report)
    }
    /// One step by push: the model's callbacks do the work.
    pub fn push(&mut self) -> Result<StepReport, Error> {
        let mut report = StepReport::init();
        check(|err| unsafe { gsel_trainer_step(self.raw, &mut report, err) })?;
        Ok(report)
    }
    pub fn read_param(&mut self, param: i32, dst: &mut [f32]) -> Result<(), Error> {
        let bytes = std::mem::size_of_val(dst);
        check(|err| unsafe { gsel_trainer_read_param(self.raw, param, dst.as_mut_ptr() as *mut c_void, bytes, err) })
    }
}
impl Drop for Trainer<'_> {
    fn drop(&mut self) {
        unsafe { gsel_trainer_free(self.raw) }
    }
}
