//! Trainers: a model on the ranks of a communicator, under the strategy that a configuration names.
use crate::call::DataRequest;
use crate::comm::{Counts, Shared};
use crate::error::{check, filled, made};
use crate::guard;
use crate::optimizer::Optimizer;
use crate::state::AddedState;
use crate::{text, Axis, CheckpointOptions, Comm, Config, Model, ParamId, Program, Result, ValueId};
use gsel_sys as sys;
use std::borrow::Borrow;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::raw::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// What a data closure returns: whether there were samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The elements are written.
    Filled,
    /// This rank has no samples left: the micro-batch has weight 0.
    NoSamples,
}

/// Result of a data closure. An error is kept as that of an [`Outcome`](crate::Outcome).
pub type DataOutcome = std::result::Result<Data, Box<dyn std::error::Error + Send + Sync>>;
pub(crate) type DataFn = dyn FnMut(&DataRequest<'_>) -> DataOutcome + Send;

/// `user` is a pointer to a `Box<DataFn>`, or to a `&mut F` of one call.
pub(crate) unsafe extern "C" fn fill<F: FnMut(&DataRequest<'_>) -> DataOutcome>(
    request: *const sys::gsel_data_request,
    user: *mut c_void,
) -> i32 {
    let request = DataRequest::new(request);
    let (message, capacity) = request.message();
    guard::status(message, capacity, || {
        (*(user as *mut F))(&request).map(|data| {
            if data == Data::NoSamples {
                sys::GSEL_NO_SAMPLES
            } else {
                sys::GSEL_OK
            }
        })
    })
}

/// How a trainer is made.
#[derive(Default)]
pub struct TrainerOptions<'a> {
    pub(crate) config: Option<&'a Config>,
    data: Option<Box<DataFn>>,
    optimizer: Option<Optimizer>,
}

impl<'a> TrainerOptions<'a> {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }
    /// The configuration.
    pub fn config(mut self, config: &'a Config) -> Self {
        self.config = Some(config);
        self
    }
    /// Fills the inputs; kept until the trainer is dropped. Not needed for pull alone.
    pub fn data(mut self, data: impl FnMut(&DataRequest<'_>) -> DataOutcome + Send + 'static) -> Self {
        self.data = Some(Box::new(data));
        self
    }
    /// Replaces `train.optimizer`.
    pub fn optimizer(mut self, optimizer: Optimizer) -> Self {
        self.optimizer = Some(optimizer);
        self
    }
}

/// A trainer of a model. `C` is the communicator, owned or borrowed; between the trainer's calls the program may use it.
///
/// Dropping it while a step is under way ends the step on every rank.
pub struct Trainer<C: Borrow<Comm> = Comm> {
    trainer: NonNull<sys::gsel_trainer>,
    comm: C,
    _alive: Arc<Shared>,
    pub(crate) added: Vec<AddedState>,
    not_sync: PhantomData<Cell<()>>,
}
// One thread at a time; the closures it keeps are Send, and so is the communicator if it is owned.
unsafe impl<C: Borrow<Comm> + Send> Send for Trainer<C> {}

impl<C: Borrow<Comm>> Trainer<C> {
    /// Compiles the model to programs and initialises the parameters. A collective. Errors: see `gsel_trainer_create`;
    /// those of a configuration have file, line and key.
    pub fn new(comm: C, model: &Model, options: TrainerOptions<'_>) -> Result<Self> {
        Trainer::made(comm, options, |comm, raw, out, error| unsafe {
            sys::gsel_trainer_create(comm, model.raw(), raw, out, error)
        })
    }

    /// The trainer that a call of C makes.
    pub(crate) fn made(
        comm: C,
        options: TrainerOptions<'_>,
        call: impl FnOnce(
            *mut sys::gsel_comm,
            *const sys::gsel_trainer_options,
            *mut *mut sys::gsel_trainer,
            *mut *mut sys::gsel_error,
        ) -> sys::gsel_status,
    ) -> Result<Self> {
        let mut raw = sys::sized::<sys::gsel_trainer_options>();
        raw.config = options
            .config
            .map_or(std::ptr::null(), |config| config.raw() as *const _);
        let data = options.data.map(|data| Box::into_raw(Box::new(data)));
        if let Some(data) = data {
            raw.data = Some(fill::<Box<DataFn>>);
            raw.data_user_data = data as *mut c_void;
            raw.data_free_user_data = Some(guard::free::<Box<DataFn>>);
        }
        let optimizer = options.optimizer.map(Optimizer::into_raw);
        raw.optimizer = optimizer
            .as_ref()
            .map_or(std::ptr::null(), |optimizer| optimizer as *const _);
        let alive = comm.borrow().shared.clone();
        let trainer = guard::resuming(|| {
            let result = made(|out, error| call(alive.comm.as_ptr(), &raw, out, error));
            if result.is_err() {
                // A call that fails has kept nothing.
                unsafe {
                    data.into_iter()
                        .for_each(|data| guard::free::<Box<DataFn>>(data as *mut c_void));
                    optimizer.iter().for_each(|optimizer| Optimizer::free(optimizer));
                }
            }
            result
        })?;
        let trainer = NonNull::new(trainer).expect("a call that succeeds gives an object");
        Ok(Trainer {
            trainer,
            comm,
            _alive: alive,
            added: Vec::new(),
            not_sync: PhantomData,
        })
    }

    /// The same trainer, which C has moved to this communicator; leaves the one from before.
    pub(crate) fn moved_to<D: Borrow<Comm>>(self, comm: D, alive: Arc<Shared>) -> Trainer<D> {
        let mut before = ManuallyDrop::new(self);
        let moved = Trainer {
            trainer: before.trainer,
            comm,
            _alive: alive,
            added: std::mem::take(&mut before.added),
            not_sync: PhantomData,
        };
        // Nobody else drops these, and `before` is not used again.
        unsafe {
            std::ptr::drop_in_place(&mut before.comm);
            std::ptr::drop_in_place(&mut before._alive);
        }
        moved
    }

    pub(crate) fn raw(&self) -> *mut sys::gsel_trainer {
        self.trainer.as_ptr()
    }
    /// The communicator, for calls between steps.
    pub fn comm(&self) -> &Comm {
        self.comm.borrow()
    }

    /// Runs one step, push: the model's kernels are called on this thread. After an error but
    /// [`Code::STATE`](crate::Code::STATE) and [`Code::IO`](crate::Code::IO) the trainer and its communicator are broken. A
    /// rank may return while others still work on the step; their failure is then an error of its next step.
    pub fn step(&mut self) -> Result<StepReport> {
        guard::resuming(|| filled(|out, error| unsafe { sys::gsel_trainer_step(self.raw(), out, error) }))
            .map(StepReport)
    }
    /// Report of the last finished step. [`Code::STATE`](crate::Code::STATE) when there is none.
    pub fn report(&self) -> Result<StepReport> {
        filled(|out, error| unsafe { sys::gsel_trainer_report(self.raw(), out, error) }).map(StepReport)
    }
    /// Evaluates one batch from this sample on, with the trainer's data closure. A collective.
    pub fn evaluate(&mut self, first_sample: i64) -> Result<StepReport> {
        let call = |out, error| unsafe {
            sys::gsel_trainer_evaluate(self.raw(), first_sample, None, std::ptr::null_mut(), out, error)
        };
        guard::resuming(|| filled(call)).map(StepReport)
    }
    /// The same with a data closure of its own.
    pub fn evaluate_with<F: FnMut(&DataRequest<'_>) -> DataOutcome>(
        &mut self,
        first_sample: i64,
        mut data: F,
    ) -> Result<StepReport> {
        let user = &mut data as *mut F as *mut c_void;
        let call = |out, error| unsafe {
            sys::gsel_trainer_evaluate(self.raw(), first_sample, Some(fill::<F>), user, out, error)
        };
        guard::resuming(|| filled(call)).map(StepReport)
    }
    /// Begins an evaluation in pull mode; [`next_work`](Trainer::next_work) then hands out its work.
    pub fn begin_evaluation(&mut self, first_sample: i64) -> Result<()> {
        check(|error| unsafe { sys::gsel_trainer_begin_evaluation(self.raw(), first_sample, error) })
    }
    /// Runs forward until `value` is written for samples `0..n_samples`, and copies it to `dst`, which has exactly their
    /// elements. A collective unless [`holds_params`](Trainer::holds_params).
    pub fn infer<T: crate::Element, F: FnMut(&DataRequest<'_>) -> DataOutcome>(
        &mut self,
        value: ValueId,
        n_samples: usize,
        mut data: F,
        dst: &mut [T],
    ) -> Result<()> {
        let user = &mut data as *mut F as *mut c_void;
        let (out, bytes) = (dst.as_mut_ptr() as *mut c_void, std::mem::size_of_val(dst));
        guard::resuming(|| {
            check(|error| unsafe {
                sys::gsel_trainer_infer(
                    self.raw(),
                    value.0,
                    n_samples as i64,
                    Some(fill::<F>),
                    user,
                    out,
                    bytes,
                    error,
                )
            })
        })
    }

    /// Whether this rank has every parameter whole and exact between steps. Otherwise [`infer`](Trainer::infer) and
    /// [`read_param`](Trainer::read_param) are collectives.
    pub fn holds_params(&self) -> bool {
        unsafe { sys::gsel_trainer_holds_params(self.raw()) == 1 }
    }
    /// Copies a whole parameter as f32; `dst` has exactly its elements.
    pub fn read_param(&mut self, param: ParamId, dst: &mut [f32]) -> Result<()> {
        let (out, bytes) = (dst.as_mut_ptr() as *mut c_void, std::mem::size_of_val(dst));
        check(|error| unsafe { sys::gsel_trainer_read_param(self.raw(), param.0, out, bytes, error) })
    }
    /// Copies the gradient of a whole parameter in the last step: of the mean loss, before clipping. A collective.
    pub fn read_gradient(&mut self, param: ParamId, dst: &mut [f32]) -> Result<()> {
        let (out, bytes) = (dst.as_mut_ptr() as *mut c_void, std::mem::size_of_val(dst));
        check(|error| unsafe { sys::gsel_trainer_read_gradient(self.raw(), param.0, out, bytes, error) })
    }
    /// Whether any backward of the last step produced this parameter's gradient on this rank.
    pub fn param_used(&self, param: ParamId) -> bool {
        unsafe { sys::gsel_trainer_param_used(self.raw(), param.0) == 1 }
    }
    /// Sets the learning rate of the next steps; all ranks set the same one.
    pub fn set_learning_rate(&mut self, rate: f64) -> Result<()> {
        check(|error| unsafe { sys::gsel_trainer_set_learning_rate(self.raw(), rate, error) })
    }
    /// Saves the trainer between steps as `folder/step-NNNNNNNNNNNN`. A collective.
    pub fn save(&mut self, folder: &str, options: &CheckpointOptions) -> Result<CheckpointReport> {
        let (folder, options) = (text::given(folder), options.raw());
        filled(|out, error| unsafe { sys::gsel_trainer_save(self.raw(), folder, &options, out, error) })
            .map(CheckpointReport::of)
    }
    /// The same in the background: returns when the state of this rank is copied to host memory, and a thread writes the
    /// copy while training goes on. One at a time. A collective.
    pub fn save_begin(&mut self, folder: &str, options: &CheckpointOptions) -> Result<CheckpointReport> {
        let (folder, options) = (text::given(folder), options.raw());
        filled(|out, error| unsafe { sys::gsel_trainer_save_begin(self.raw(), folder, &options, out, error) })
            .map(CheckpointReport::of)
    }
    /// What became of [`save_begin`](Trainer::save_begin).
    pub fn save_state(&self) -> SaveState {
        SaveState::of(unsafe { sys::gsel_trainer_save_state(self.raw()) })
    }
    /// Waits until the save in the background has ended, and takes its outcome. `None`: there is none to take. Not a
    /// collective. Dropping the trainer waits, too.
    pub fn save_wait(&mut self) -> Result<Option<CheckpointReport>> {
        if self.save_state() == SaveState::None {
            return Ok(None);
        }
        filled(|out, error| unsafe { sys::gsel_trainer_save_wait(self.raw(), out, error) })
            .map(|out| Some(CheckpointReport::of(out)))
    }
    /// Loads a checkpoint, or the newest of a folder of checkpoints, whatever strategy and number of ranks saved it. A collective.
    pub fn load(&mut self, path: &str) -> Result<CheckpointReport> {
        let path = text::given(path);
        filled(|out, error| unsafe { sys::gsel_trainer_load(self.raw(), path, out, error) }).map(CheckpointReport::of)
    }
    /// This rank's program.
    pub fn program(&self) -> Program<'_> {
        Program::borrowed(unsafe { sys::gsel_trainer_program(self.raw()) })
    }
    /// Bytes sent and calls made since the trainer was made, for one kind of instruction on one axis.
    pub fn counts(&self, kind: i32, axis: Axis) -> Result<Counts> {
        filled(|out, error| unsafe { sys::gsel_trainer_counts(self.raw(), kind, axis.0, out, error) })
            .map(|out| Counts::of(&out))
    }
    /// The memory of this rank's trainer, part by part.
    pub fn memory(&self) -> Result<Vec<MemoryPart>> {
        (0..unsafe { sys::gsel_trainer_memory_count(self.raw()) })
            .map(|i| {
                let part = filled::<sys::gsel_memory_part>(|out, error| unsafe {
                    sys::gsel_trainer_memory(self.raw(), i, out, error)
                })?;
                Ok(MemoryPart {
                    name: text::fixed(part.name),
                    offloaded: part.offloaded == 1,
                    forecast_bytes: part.forecast_bytes,
                    peak_bytes: part.peak_bytes,
                })
            })
            .collect()
    }
    /// The last step as JSON (`docs/step.md`).
    pub fn step_json(&mut self) -> Result<String> {
        let mut out = text::optional(None);
        check(|error| unsafe { sys::gsel_trainer_step_json(self.raw(), &mut out, error) })?;
        Ok(text::owned(out))
    }
}

impl<C: Borrow<Comm>> Drop for Trainer<C> {
    fn drop(&mut self) {
        unsafe { sys::gsel_trainer_free(self.raw()) } // which uses self.added no more
    }
}

/// What a step did. Its fields are those of `gsel_step_report`; times in seconds on this rank.
#[derive(Clone, Copy)]
pub struct StepReport(sys::gsel_step_report);

impl std::ops::Deref for StepReport {
    type Target = sys::gsel_step_report;
    fn deref(&self) -> &sys::gsel_step_report {
        &self.0
    }
}

impl StepReport {
    /// What had become of a save in the background when the step ended.
    pub fn save_state(&self) -> SaveState {
        SaveState::of(self.save)
    }
}

impl std::fmt::Debug for StepReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "StepReport(step {}, loss {}, {} s)",
            self.step, self.loss, self.seconds
        )
    }
}

/// What a save or a load did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// The step that comes next.
    pub step: i64,
    /// Bytes of tensors that this rank wrote or read.
    pub bytes: u64,
    /// Bytes of tensors that this rank's placement needs.
    pub needed_bytes: u64,
    /// How long it took; of a save in the background: until all was on the disk.
    pub seconds: f64,
    /// How long training waited.
    pub blocked_seconds: f64,
    /// Of a save in the background: the copy of the state, in `blocked_seconds`.
    pub copy_seconds: f64,
    /// Of a load: bytes that this rank read besides, for the sums of blocks that no rank needs as a whole.
    pub compared_bytes: u64,
}

impl CheckpointReport {
    fn of(out: sys::gsel_checkpoint_report) -> Self {
        CheckpointReport {
            step: out.step,
            bytes: out.bytes,
            needed_bytes: out.needed_bytes,
            seconds: out.seconds,
            blocked_seconds: out.blocked_seconds,
            copy_seconds: out.copy_seconds,
            compared_bytes: out.compared_bytes,
        }
    }
}

/// What became of a save in the background: the same on every rank, though not at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaveState {
    /// None was begun, or its outcome was taken.
    None,
    /// Its files are being written.
    UnderWay,
    /// All is on the disk.
    Done,
    /// There is no checkpoint of that step; [`Trainer::save_wait`] says why.
    Failed,
    /// Another state, of a newer library.
    Other(i32),
}

impl SaveState {
    fn of(state: i32) -> Self {
        match state {
            sys::GSEL_SAVE_NONE => SaveState::None,
            sys::GSEL_SAVE_UNDER_WAY => SaveState::UnderWay,
            sys::GSEL_SAVE_DONE => SaveState::Done,
            sys::GSEL_SAVE_FAILED => SaveState::Failed,
            other => SaveState::Other(other),
        }
    }
}

/// One part of the memory of a trainer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryPart {
    /// "parameters", "gradients", ...
    pub name: &'static str,
    /// Whether it is offload memory.
    pub offloaded: bool,
    /// Bytes forecast from the program.
    pub forecast_bytes: u64,
    /// The most bytes allocated.
    pub peak_bytes: u64,
}
