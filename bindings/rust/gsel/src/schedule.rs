//! Pipeline schedules: in which order each rank runs its stages, made, checked, simulated and drawn without running.
use crate::error::{check, filled, made};
use crate::{number, text, Result};
use gsel_sys as sys;
use std::fmt;
use std::ptr::NonNull;

/// A schedule. `Display` is its text, which parses back.
#[derive(Debug)]
pub struct Schedule(NonNull<sys::gsel_schedule>);
// C allows any thread.
unsafe impl Send for Schedule {}
unsafe impl Sync for Schedule {}

/// Durations of a rank's whole share of the model for one micro-batch, in any one unit.
#[derive(Clone, Debug)]
pub struct Times {
    /// Forward.
    pub forward: f64,
    /// Gradients of inputs.
    pub backward_input: f64,
    /// Gradients of parameters.
    pub backward_weight: f64,
    /// From the end of an action until another rank can use its result.
    pub hop: f64,
    /// `[3 * stages]`: the three durations of each stage, in place of the first three; empty: not given.
    pub stages: Vec<f64>,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            forward: 1.0,
            backward_input: 1.0,
            backward_weight: 1.0,
            hop: 0.0,
            stages: Vec::new(),
        }
    }
}

impl Schedule {
    fn owned(schedule: *mut sys::gsel_schedule) -> Schedule {
        Schedule(NonNull::new(schedule).expect("a call that succeeds gives an object"))
    }
    /// A schedule by name, such as "1f1b" or "zb-v"; chunks 0: as many stages per rank as it needs.
    pub fn new(name: &str, ranks: usize, microbatches: usize, chunks: usize) -> Result<Schedule> {
        let (ranks, microbatches, chunks) = (number(ranks), number(microbatches), number(chunks));
        made(|out, error| unsafe {
            sys::gsel_schedule_create(text::given(name), ranks, microbatches, chunks, out, error)
        })
        .map(Schedule::owned)
    }
    /// Reads a schedule: a row for each rank, actions such as 2F0 separated by commas.
    pub fn parse(rows: &str, name: &str) -> Result<Schedule> {
        made(|out, error| unsafe { sys::gsel_schedule_parse(text::given(rows), text::given(name), out, error) })
            .map(Schedule::owned)
    }
    fn raw(&self) -> *const sys::gsel_schedule {
        self.0.as_ptr()
    }
    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        unsafe { sys::gsel_schedule_ranks(self.raw()) as usize }
    }
    /// Number of stages.
    pub fn stages(&self) -> usize {
        unsafe { sys::gsel_schedule_stages(self.raw()) as usize }
    }
    /// Number of micro-batches.
    pub fn microbatches(&self) -> usize {
        unsafe { sys::gsel_schedule_microbatches(self.raw()) as usize }
    }
    /// Rank of a stage.
    pub fn rank_of(&self, stage: usize) -> Option<usize> {
        usize::try_from(unsafe { sys::gsel_schedule_rank_of(self.raw(), number(stage)) }).ok()
    }
    /// The actions of a rank, in order: kind (`gsel::sys::GSEL_FORWARD` ...), stage and micro-batch.
    pub fn actions(&self, rank: usize) -> Result<Vec<sys::gsel_action>> {
        (0..unsafe { sys::gsel_schedule_length(self.raw(), number(rank)) })
            .map(|i| {
                let mut out = sys::gsel_action {
                    kind: 0,
                    stage: 0,
                    microbatch: 0,
                };
                check(|error| unsafe { sys::gsel_schedule_action(self.raw(), number(rank), i, &mut out, error) })?;
                Ok(out)
            })
            .collect()
    }
    /// Simulates. [`Code::ARG`](crate::Code::ARG) for times that are negative or infinite, or not 3 for each stage.
    pub fn simulate(&self, times: &Times) -> Result<Simulation> {
        if !times.stages.is_empty() && times.stages.len() != 3 * self.stages() {
            let message = format!(
                "{} times of stages, expected 3 for each of {}",
                times.stages.len(),
                self.stages()
            );
            return Err(crate::Error::new(crate::Code::ARG, message));
        }
        let mut raw = sys::sized::<sys::gsel_schedule_times>();
        raw.forward = times.forward;
        raw.backward_input = times.backward_input;
        raw.backward_weight = times.backward_weight;
        raw.hop = times.hop;
        if !times.stages.is_empty() {
            raw.stage_times = times.stages.as_ptr();
        }
        let out = made(|out, error| unsafe { sys::gsel_schedule_simulate(self.raw(), &raw, out, error) })?;
        Ok(Simulation(
            NonNull::new(out).expect("a call that succeeds gives an object"),
        ))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text::borrowed(self, unsafe { sys::gsel_schedule_text(self.raw()) }))
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        unsafe { sys::gsel_schedule_free(self.0.as_ptr()) }
    }
}

/// A simulated schedule.
#[derive(Debug)]
pub struct Simulation(NonNull<sys::gsel_simulation>);
unsafe impl Send for Simulation {}
unsafe impl Sync for Simulation {}

impl Simulation {
    /// Makespan, bubble and the like; `gsel_simulation_report` says what each is.
    pub fn report(&self) -> Result<sys::gsel_simulation_report> {
        filled(|out, error| unsafe { sys::gsel_simulation_get(self.0.as_ptr(), out, error) })
    }
    /// The simulation as JSON, which a [`Timeline`] draws.
    pub fn json(&self) -> &str {
        text::borrowed(self, unsafe { sys::gsel_simulation_json(self.0.as_ptr()) })
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        unsafe { sys::gsel_simulation_free(self.0.as_ptr()) }
    }
}

/// Draws what ranks did at what time: steps, recordings and simulations.
#[derive(Debug)]
pub struct Timeline(NonNull<sys::gsel_timeline>);
unsafe impl Send for Timeline {}

impl Timeline {
    /// An empty timeline.
    pub fn new() -> Result<Timeline> {
        let timeline = made(|out, error| unsafe { sys::gsel_timeline_create(out, error) })?;
        Ok(Timeline(
            NonNull::new(timeline).expect("a call that succeeds gives an object"),
        ))
    }
    /// Adds a document: JSON of a step, a recording or a simulation; `name` stands for it in messages.
    pub fn add(&mut self, json: &str, name: &str) -> Result<()> {
        check(|error| unsafe { sys::gsel_timeline_add(self.0.as_ptr(), text::given(json), text::given(name), error) })
    }
    /// A picture that needs nothing else.
    pub fn svg(&mut self) -> Result<String> {
        self.draw(sys::GSEL_TIMELINE_SVG)
    }
    /// JSON of Chrome's trace events.
    pub fn chrome(&mut self) -> Result<String> {
        self.draw(sys::GSEL_TIMELINE_CHROME)
    }
    fn draw(&mut self, format: i32) -> Result<String> {
        let mut out = text::optional(None);
        check(|error| unsafe { sys::gsel_timeline_draw(self.0.as_ptr(), format, &mut out, error) })?;
        Ok(text::owned(out))
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        unsafe { sys::gsel_timeline_free(self.0.as_ptr()) }
    }
}
