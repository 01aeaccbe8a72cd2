//! Which strategy, will it fit, how fast, and why: answered from descriptions, with no accelerator at hand. `docs/plan.md`
//! has the formulas, and how far the forecasts were from what others measured.
use crate::error::{check, filled, made};
use crate::{guard, number, text, Config, Inventory, Model, Result};
use gsel_sys as sys;
use std::fmt;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::ptr::NonNull;

/// What is to be planned. What is not set takes its default: this machine, one node, one sample for each device.
///
/// ```
/// let config = r#"{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
///     "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}"#;
/// let options = gsel::PlanOptions::new().model(config).cluster("8xH100").batch(64).sequence(4096);
/// let mut plan = options.search()?;
/// let best = &plan.candidates()?[0];
/// assert_eq!(best.tensor * best.context * best.data * best.pipeline, 8);
/// println!("{}", plan); // the questions that decide, and the ranked list
/// let config = gsel::Config::parse(&plan.toml(0)?, "plan.toml")?; // as gsel run takes it
/// assert_eq!(config.get("train.batch"), Some("64"));
/// # Ok::<(), gsel::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PlanOptions<'a> {
    described: Option<&'a Model>,
    inventory: Option<&'a Inventory>,
    text: [Option<String>; 8],
    memory_bytes: f64,
    batch: i64,
    sequence: i64,
    nodes: i32,
    shown: i32,
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $i:expr;)*) => {
        impl PlanOptions<'_> {
            $($(#[$doc])*
            pub fn $name(mut self, text: &str) -> Self {
                self.text[$i] = Some(text.to_owned());
                self
            })*
        }
    };
}
texts! {
    /// JSON of the model: a config.json of the Hugging Face hub, or a list of layers.
    model = 0;
    /// Stands for the model in messages, such as its file.
    model_name = 1;
    /// Devices of one node: "8xH100", or unequal ones, "2xA100-80GB+1xRTX4090".
    cluster = 2;
    /// Between two devices of a node: a class of `nvidia-smi topo -m`, "p2p-off", or a rate such as "300GB/s".
    link = 3;
    /// Of each node: "8x400Gb/s", or a rate.
    network = 4;
    /// How parameters and states are kept: "gsel-bf16", "gsel-f32", or of another program, such as "megatron-bf16".
    precision = 5;
    /// What is decided already: "tensor=2, zero=1, recompute=all".
    fixed = 6;
    /// Own measurements, as [`Plan::rows`] reads them: one scalar for the class of device is fitted to them.
    measured = 7;
}

impl<'a> PlanOptions<'a> {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }
    /// A model of this program, used where [`model`](PlanOptions::model) is not given. Its layers say
    /// [`flop`](crate::Layer::flop).
    pub fn described(mut self, model: &'a Model) -> Self {
        self.described = Some(model);
        self
    }
    /// The machine, used where [`cluster`](PlanOptions::cluster) is not given; default: this one.
    pub fn inventory(mut self, inventory: &'a Inventory) -> Self {
        self.inventory = Some(inventory);
        self
    }
    /// Number of nodes.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = number(nodes);
        self
    }
    /// Bytes of memory of each device, in place of what cluster or inventory say.
    pub fn memory_bytes(mut self, bytes: f64) -> Self {
        self.memory_bytes = bytes;
        self
    }
    /// Samples of a step over all ranks.
    pub fn batch(mut self, samples: usize) -> Self {
        self.batch = samples as i64;
        self
    }
    /// Tokens of a sample; default: the model's own.
    pub fn sequence(mut self, tokens: usize) -> Self {
        self.sequence = tokens as i64;
        self
    }
    /// Candidates in the text; default: 10.
    pub fn shown(mut self, candidates: usize) -> Self {
        self.shown = number(candidates);
        self
    }

    fn raw(&self) -> sys::gsel_plan_options {
        let at = |i: usize| text::optional(self.text[i].as_deref());
        let mut options = sys::sized::<sys::gsel_plan_options>();
        options.model = at(0);
        options.model_name = at(1);
        options.cluster = at(2);
        options.link = at(3);
        options.network = at(4);
        options.precision = at(5);
        options.fixed = at(6);
        options.measured = at(7);
        options.described = self.described.map_or(std::ptr::null(), |model| model.raw() as *const _);
        options.inventory = self.inventory.map_or(std::ptr::null(), Inventory::raw);
        options.memory_bytes = self.memory_bytes;
        options.batch = self.batch;
        options.sequence = self.sequence;
        options.nodes = self.nodes;
        options.n_shown = self.shown;
        options
    }

    /// Searches. A plan without candidates is no error: its text says what is short and which change fits. Errors have the
    /// token, or file and key of the model, and what is accepted.
    pub fn search(&self) -> Result<Plan> {
        made(|out, error| unsafe { sys::gsel_plan_create(&self.raw(), out, error) }).map(Plan::owned)
    }

    /// Searches, and calls `progress` on this thread now and then with how many layouts were tried. A break ends the search
    /// with [`Code::ABORTED`](crate::Code::ABORTED).
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use std::time::{Duration, Instant};
    /// # let options = gsel::PlanOptions::new().model(r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    /// #     "vocab_size": 50257, "n_positions": 1024}"#).cluster("8xH100");
    /// let end = Instant::now() + Duration::from_secs(10);
    /// let plan = options.search_with(|_| match Instant::now() < end {
    ///     true => ControlFlow::Continue(()),
    ///     false => ControlFlow::Break(()),
    /// })?;
    /// # assert!(!plan.candidates()?.is_empty());
    /// # Ok::<(), gsel::Error>(())
    /// ```
    pub fn search_with<F: FnMut(u64) -> ControlFlow<()>>(&self, mut progress: F) -> Result<Plan> {
        let mut options = self.raw();
        options.progress = Some(tried::<F>);
        options.user_data = &mut progress as *mut F as *mut c_void;
        guard::resuming(|| made(|out, error| unsafe { sys::gsel_plan_create(&options, out, error) })).map(Plan::owned)
    }

    /// Memory of a rank under each strategy, whether it fits or not, without a search: a plan without candidates.
    pub fn estimate(&self) -> Result<Plan> {
        made(|out, error| unsafe { sys::gsel_plan_estimate(&self.raw(), out, error) }).map(Plan::owned)
    }

    /// Configurations beside each other, in columns named by their files: the forecast of each by part, whether it fits or
    /// not, as a plan without candidates. [`Code::CONFIG`](crate::Code::CONFIG) where one asks for what has no price.
    pub fn compare(&self, configs: &[&Config]) -> Result<Plan> {
        let configs: Vec<_> = configs.iter().map(|config| config.raw() as *const _).collect();
        let n = number(configs.len());
        made(|out, error| unsafe { sys::gsel_plan_compare(&self.raw(), configs.as_ptr(), n, out, error) })
            .map(Plan::owned)
    }
}

unsafe extern "C" fn tried<F: FnMut(u64) -> ControlFlow<()>>(n_tried: i64, user: *mut c_void) -> i32 {
    guard::status(std::ptr::null_mut(), 0, || {
        Ok((*(user as *mut F))(n_tried as u64).is_break() as i32)
    })
}

/// A layout and its forecast.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlanCandidate {
    /// For people.
    pub name: String,
    /// Ranks on the tensor axis.
    pub tensor: usize,
    /// Ranks on the context axis.
    pub context: usize,
    /// Ranks on the data axis.
    pub data: usize,
    /// Ranks on the pipeline axis.
    pub pipeline: usize,
    /// Of ZeRO: 0 to 3.
    pub zero_stage: usize,
    /// Stages of a rank.
    pub chunks: usize,
    /// Samples of a micro-batch.
    pub microbatch: usize,
    /// Micro-batches of one replica and step.
    pub microbatches: usize,
    /// What is positionwise is divided along the sequence on the tensor axis.
    pub sequence_parallel: bool,
    /// All layers that may are recomputed.
    pub recompute: bool,
    /// Optimizer state is in the memory of the host.
    pub offload_state: bool,
    /// Parameters are, too.
    pub offload_params: bool,
    /// Seconds of a step.
    pub step_s: f64,
    /// Over all ranks.
    pub samples_per_s: f64,
    /// Over all ranks.
    pub tokens_per_s: f64,
    /// Share of the dense 16-bit peak, without recomputation.
    pub mfu: f64,
    /// The same with recomputation.
    pub hfu: f64,
    /// Share of the step that waits in the pipeline.
    pub bubble: f64,
    /// Share of the step that is communication that nothing hides.
    pub exposed: f64,
    /// Of the rank that needs most.
    pub memory_bytes: f64,
    /// Of the memory of that rank's host.
    pub host_bytes: f64,
}

impl PlanCandidate {
    fn of(out: sys::gsel_plan_candidate) -> PlanCandidate {
        let has = |flag: u32| out.flags & flag != 0;
        PlanCandidate {
            name: text::owned(out.name),
            tensor: out.tensor as usize,
            context: out.context as usize,
            data: out.data as usize,
            pipeline: out.pipeline as usize,
            zero_stage: out.zero_stage as usize,
            chunks: out.chunks as usize,
            microbatch: out.microbatch as usize,
            microbatches: out.microbatches as usize,
            sequence_parallel: has(sys::GSEL_PLAN_SEQUENCE_PARALLEL),
            recompute: has(sys::GSEL_PLAN_RECOMPUTE),
            offload_state: has(sys::GSEL_PLAN_OFFLOAD_STATE),
            offload_params: has(sys::GSEL_PLAN_OFFLOAD_PARAMS),
            step_s: out.step_s,
            samples_per_s: out.samples_per_s,
            tokens_per_s: out.tokens_per_s,
            mfu: out.mfu,
            hfu: out.hfu,
            bubble: out.bubble,
            exposed: out.exposed,
            memory_bytes: out.memory_bytes,
            host_bytes: out.host_bytes,
        }
    }
}

/// Layouts that fit, fastest first, or a report without candidates. `Display` is the text for people, the same for the same
/// options on every machine.
#[derive(Debug)]
pub struct Plan(NonNull<sys::gsel_plan>);
// C allows any thread; what it allows to one at a time needs `&mut`.
unsafe impl Send for Plan {}
unsafe impl Sync for Plan {}

impl Plan {
    fn owned(plan: *mut sys::gsel_plan) -> Plan {
        Plan(NonNull::new(plan).expect("a call that succeeds gives an object"))
    }
    /// Forecasts for a table of measurements, with their errors before and after one scalar for each class of device is
    /// fitted: a plan without candidates. `rows` is tab-separated, and its first line names the columns; `name` stands for
    /// it in messages.
    pub fn rows(rows: &str, name: &str) -> Result<Plan> {
        made(|out, error| unsafe { sys::gsel_plan_rows(text::given(rows), text::given(name), out, error) })
            .map(Plan::owned)
    }
    fn raw(&self) -> *mut sys::gsel_plan {
        self.0.as_ptr()
    }
    /// The layouts that fit, fastest first; at most 32.
    pub fn candidates(&self) -> Result<Vec<PlanCandidate>> {
        (0..unsafe { sys::gsel_plan_candidate_count(self.raw()) })
            .map(|i| {
                filled(|out, error| unsafe { sys::gsel_plan_candidate_get(self.raw(), i, out, error) })
                    .map(PlanCandidate::of)
            })
            .collect()
    }
    /// The plan as JSON, with all candidates.
    pub fn json(&self) -> &str {
        text::borrowed(self, unsafe { sys::gsel_plan_json(self.raw()) })
    }
    /// Candidate `i` as gsel.toml, which `gsel run` and [`Config::parse`] take as it is.
    pub fn toml(&mut self, i: usize) -> Result<String> {
        self.lent(|plan, out, error| unsafe { sys::gsel_plan_toml(plan, number(i), out, error) })
    }
    /// The simulated schedule of candidate `i`, which has a pipeline, as JSON that a [`Timeline`](crate::Timeline) draws.
    pub fn simulation(&mut self, i: usize) -> Result<String> {
        self.lent(|plan, out, error| unsafe { sys::gsel_plan_simulation(plan, number(i), out, error) })
    }
    /// The parts of a step of the candidates that the text shows, as bars one below the other: an SVG that needs nothing
    /// else.
    pub fn picture(&mut self) -> Result<String> {
        self.lent(|plan, out, error| unsafe { sys::gsel_plan_picture(plan, out, error) })
    }
    fn lent(
        &mut self,
        call: impl FnOnce(*mut sys::gsel_plan, *mut sys::gsel_str, *mut *mut sys::gsel_error) -> sys::gsel_status,
    ) -> Result<String> {
        let mut out = text::optional(None);
        check(|error| call(self.raw(), &mut out, error))?;
        Ok(text::owned(out))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text::borrowed(self, unsafe { sys::gsel_plan_text(self.raw()) }))
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        unsafe { sys::gsel_plan_free(self.raw()) }
    }
}
