//! Stages of any computation as a pipeline over ranks, without a trainer: forward alone, or forward and backward.
use crate::call::DataRequest;
use crate::comm::Shared;
use crate::error::{filled, made};
use crate::train::{fill, DataFn, DataOutcome};
use crate::{guard, number, text, Comm, Model, Program, Result};
use gsel_sys as sys;
use std::borrow::Borrow;
use std::cell::Cell;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// How stages are run.
#[derive(Default)]
pub struct PipelineOptions {
    schedule: Option<String>,
    chunks: usize,
    microbatches: usize,
    samples: usize,
    first_layers: Vec<i32>,
    data: Option<Box<DataFn>>,
    tensor_ranks: usize,
    timeline: Option<String>,
}

impl PipelineOptions {
    /// Schedule 1f1b, `microbatches` of `samples` each in one run.
    pub fn new(microbatches: usize, samples: usize) -> PipelineOptions {
        PipelineOptions {
            microbatches,
            samples,
            ..Default::default()
        }
    }
    /// A schedule by name or file, and how many stages each rank has; 0: what it needs.
    pub fn schedule(mut self, schedule: &str, chunks: usize) -> Self {
        self.schedule = Some(schedule.to_owned());
        self.chunks = chunks;
        self
    }
    /// First layers of stages 1, 2, ...; default: the library cuts.
    pub fn first_layers(mut self, layers: &[i32]) -> Self {
        self.first_layers = layers.to_vec();
        self
    }
    /// Fills the inputs on the ranks that read them.
    pub fn data(mut self, data: impl FnMut(&DataRequest<'_>) -> DataOutcome + Send + 'static) -> Self {
        self.data = Some(Box::new(data));
        self
    }
    /// Ranks that share each stage.
    pub fn tensor_ranks(mut self, ranks: usize) -> Self {
        self.tensor_ranks = ranks;
        self
    }
    /// Folder where each rank writes step-RANK.json of its last run.
    pub fn timeline(mut self, folder: &str) -> Self {
        self.timeline = Some(folder.to_owned());
        self
    }
}

/// A pipeline over the ranks of a communicator, owned or borrowed.
pub struct Pipeline<C: Borrow<Comm> = Comm> {
    pipeline: NonNull<sys::gsel_pipeline>,
    comm: C,
    _alive: Arc<Shared>,
    not_sync: PhantomData<Cell<()>>,
}
// As a trainer.
unsafe impl<C: Borrow<Comm> + Send> Send for Pipeline<C> {}

impl<C: Borrow<Comm>> Pipeline<C> {
    /// Cuts the model's layers into stages. Collective. Parameters that the model declares are frozen.
    pub fn new(comm: C, model: &Model, options: PipelineOptions) -> Result<Self> {
        let mut raw = sys::sized::<sys::gsel_pipeline_options>();
        raw.schedule = text::optional(options.schedule.as_deref());
        raw.chunks = number(options.chunks);
        raw.microbatches = number(options.microbatches);
        raw.microbatch_samples = options.samples as i64;
        raw.tensor_ranks = number(options.tensor_ranks);
        raw.timeline = text::optional(options.timeline.as_deref());
        if !options.first_layers.is_empty() {
            (raw.first_layers, raw.n_first_layers) =
                (options.first_layers.as_ptr(), number(options.first_layers.len()));
        }
        let data = options.data.map(|data| Box::into_raw(Box::new(data)));
        if let Some(data) = data {
            raw.data = Some(fill::<Box<DataFn>>);
            raw.data_user_data = data as *mut c_void;
            raw.data_free_user_data = Some(guard::free::<Box<DataFn>>);
        }
        let alive = comm.borrow().shared.clone();
        let pipeline = guard::resuming(|| {
            let (comm, model) = (alive.comm.as_ptr(), model.raw());
            let result = made(|out, error| unsafe { sys::gsel_pipeline_create(comm, model, &raw, out, error) });
            if let (Err(_), Some(data)) = (&result, data) {
                unsafe { guard::free::<Box<DataFn>>(data as *mut c_void) } // a call that fails has kept nothing
            }
            result
        })?;
        let pipeline = NonNull::new(pipeline).expect("a call that succeeds gives an object");
        Ok(Pipeline {
            pipeline,
            comm,
            _alive: alive,
            not_sync: PhantomData,
        })
    }
    fn raw(&self) -> *mut sys::gsel_pipeline {
        self.pipeline.as_ptr()
    }
    /// The communicator, for calls between runs.
    pub fn comm(&self) -> &Comm {
        self.comm.borrow()
    }
    fn run(&mut self, what: i32) -> Result<sys::gsel_pipeline_report> {
        guard::resuming(|| filled(|out, error| unsafe { sys::gsel_pipeline_run(self.raw(), what, out, error) }))
    }
    /// Runs forward of all micro-batches. Collective. The report's times are this rank's, in seconds. A rank may return while
    /// others still work on the run; their failure is then an error of its next run.
    pub fn forward(&mut self) -> Result<sys::gsel_pipeline_report> {
        self.run(sys::GSEL_FORWARD)
    }
    /// Runs forward and backward. The program steps the parameters between runs.
    pub fn forward_backward(&mut self) -> Result<sys::gsel_pipeline_report> {
        self.run(sys::GSEL_FORWARD_BACKWARD)
    }
    /// This rank's stages with their seconds in the last run.
    pub fn stages(&self) -> Result<Vec<sys::gsel_pipeline_stage>> {
        (0..unsafe { sys::gsel_pipeline_stage_count(self.raw()) })
            .map(|i| filled(|out, error| unsafe { sys::gsel_pipeline_stage_get(self.raw(), i, out, error) }))
            .collect()
    }
    /// This rank's program, with notes that explain the cuts.
    pub fn program(&self) -> Program<'_> {
        Program::borrowed(unsafe { sys::gsel_pipeline_program(self.raw()) })
    }
}

impl<C: Borrow<Comm>> Drop for Pipeline<C> {
    fn drop(&mut self) {
        unsafe { sys::gsel_pipeline_free(self.raw()) }
    }
}
