//! gsel selects accelerators, plans strategies for machines that need not be there, connects the ranks of a host, and trains
//! models in parallel. This crate is the safe interface to libgsel; names are those of C without the prefix, and
//! `gsel/gsel.h` is the manual.
//!
//! ```no_run
//! use gsel::{Comm, Op};
//!
//! fn main() -> gsel::Result<()> {
//!     let comm = Comm::from_env()?; // under `gsel run -n 4 -- program`
//!     let mut x = [comm.rank() as f32];
//!     comm.allreduce(&mut x, Op::SUM)?;
//!     println!("sum of ranks: {}", x[0]);
//!     Ok(())
//! }
//! ```
//!
//! Rules that hold everywhere:
//!  * Dropping a handle releases it. `drop` does not panic, and it waits for a bounded time. Handles are `Send`, except
//!    those that borrow a communicator, such as [`Persistent`]. A handle is `Sync` only if the C header allows calls from
//!    any thread.
//!  * An [`Error`] has the code, the message, the rank or place that it is about, and its causes as `source()`.
//!  * A closure that panics ends the call. On the rank where it panicked, a blocking call continues the panic when C has
//!    returned; of a [`Request`] the panic is the error alone. Other ranks that need this rank for the same call get an error
//!    with the text. A rank that needs nothing more of this rank may have returned `Ok`, and its next call then has the error:
//!    with `ddp`, rank 0 has all gradients when the optimizer panics on rank 1, and the first stage of a pipeline has sent
//!    its outputs when the second one panics. A closure that returns an error ends the call in the same way, without the
//!    panic.
//!  * Nothing unwinds through C. State and errors of closures are dropped where a panic of their `drop` goes no further.
//!  * Slices are borrowed for the call. What runs after the call owns its buffers, see [`Request`].
#![warn(missing_docs)]

mod call;
mod calls;
mod checkpoint;
mod checks;
mod collective;
mod comm;
mod config;
pub mod dlpack;
mod elastic;
mod element;
mod error;
mod guard;
mod inventory;
pub mod log;
mod mesh;
mod model;
mod op;
mod optimizer;
mod pipeline;
mod plan;
mod program;
mod pull;
mod queue;
mod request;
mod schedule;
mod select;
mod state;
mod text;
mod train;
mod weights;

/// Every declaration of C: what has no type here, such as the flags `sys::GSEL_PARAM_FROZEN` and `sys::GSEL_LAYER_LOSS`.
pub use gsel_sys as sys;

pub use call::{Backward, Call, DataRequest, Forward, Shard};
pub use calls::{group, DeviceMemory, SharedMemory};
pub use checkpoint::{
    Checkpoint, CheckpointDifference, CheckpointEntry, CheckpointFile, CheckpointInfo, CheckpointOptions,
    CheckpointOwn, CheckpointOwnPiece, CheckpointPiece,
};
pub use checks::{Breach, CheckOptions, CheckReport};
pub use collective::{Collective, Message, Parts, Source, Target, ANY_RANK, ANY_TAG};
pub use comm::{trace_process, Aborter, Comm, CommBuilder, Counts, Explanation, UniqueId};
pub use config::{Config, ConfigBuilder};
pub use elastic::{NotRebound, RebindOptions, RebindReport, RebindSource};
pub use element::{Bool, DType, DevicePtr, Element, BF16, F16, F8E4M3, F8E5M2};
pub use error::{Code, Detail, Error, Result};
pub use guard::Outcome;
pub use inventory::{
    plugins, register_plugin, register_strategies, DeviceInfo, Interconnect, Inventory, Partition, PluginInfo,
};
pub use mesh::{Axis, Mesh};
pub use model::{random_normal, random_uniform, Layer, LayerId, Model, Param, ParamId, Phase, Value, ValueId};
pub use op::{reduce_local, Op, Order, UserOp};
pub use optimizer::{Needs, Optimizer, OptimizerCall};
pub use pipeline::{Pipeline, PipelineOptions};
pub use plan::{Plan, PlanCandidate, PlanOptions};
pub use program::{verify, Program};
pub use pull::{Task, Work};
pub use queue::CompletionQueue;
pub use request::{wait_any, Making, Persistent, Request, Scope, Scoped};
pub use schedule::{Schedule, Simulation, Timeline, Times};
pub use select::{compat_systems, Candidate, Decision, Reservation, Resolve, Selection};
pub use state::{OwnState, State, StateEntry, StateRun, StateScope, TrainingNumbers};
pub use train::{CheckpointReport, Data, DataOutcome, MemoryPart, SaveState, StepReport, Trainer, TrainerOptions};
pub use weights::WeightsReport;

/// Version of the loaded library as major * 10000 + minor * 100 + patch, and as text.
pub fn version() -> (i32, &'static str) {
    unsafe { (sys::gsel_version(), text::fixed(sys::gsel_version_text())) }
}

/// n as C takes counts, places and ranks; what has no place there becomes the largest number, more than any call has
/// ranks, places or things to count.
fn number(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The range of part `index` when n items are divided in `parts` parts: sizes differ by at most one, larger parts first.
/// Arguments out of range give an empty range.
pub fn shard_range(n: usize, parts: usize, index: usize) -> std::ops::Range<usize> {
    let range = unsafe { sys::gsel_shard_range(n as i64, parts as i64, index as i64) };
    range.begin as usize..range.end as usize
}
