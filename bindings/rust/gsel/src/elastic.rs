//! Training that goes on with other ranks: a trainer moves to another communicator, and ranks join.
use crate::error::filled;
use crate::{guard, text, Comm, Config, Error, Model, Result, Trainer, TrainerOptions};
use gsel_sys as sys;
use std::borrow::Borrow;
use std::fmt;

/// How a trainer is moved to another communicator.
#[derive(Clone, Copy, Default)]
pub struct RebindOptions<'a> {
    config: Option<&'a Config>,
    folder: Option<&'a str>,
}

impl<'a> RebindOptions<'a> {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }
    /// The configuration for the new ranks; as before if none is given.
    pub fn config(mut self, config: &'a Config) -> Self {
        self.config = Some(config);
        self
    }
    /// A folder of checkpoints, in case the ranks do not have the state.
    pub fn folder(mut self, folder: &'a str) -> Self {
        self.folder = Some(folder);
        self
    }

    fn raw(&self) -> sys::gsel_rebind_options {
        let mut raw = sys::sized::<sys::gsel_rebind_options>();
        raw.config = self.config.map_or(std::ptr::null(), |config| config.raw() as *const _);
        raw.folder = text::optional(self.folder);
        raw
    }
}

/// Where the state of a trainer that was moved comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RebindSource {
    /// What ranks hold, or keep for each other.
    Ranks,
    /// A checkpoint.
    Checkpoint,
    /// Another source, of a newer library.
    Other(i32),
}

/// What a rebind did on this rank.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RebindReport {
    /// Where the state comes from.
    pub source: RebindSource,
    /// The step that comes next.
    pub step: i64,
    /// Steps that some rank had completed, and that are trained again.
    pub lost_steps: i64,
    /// Bytes from other ranks, or from disk, to this one.
    pub bytes_moved: u64,
    /// How long it took.
    pub seconds: f64,
    /// Of these, for the state alone.
    pub move_seconds: f64,
}

impl RebindReport {
    fn of(out: sys::gsel_rebind_report) -> Self {
        RebindReport {
            source: match out.source {
                sys::GSEL_REBIND_FROM_RANKS => RebindSource::Ranks,
                sys::GSEL_REBIND_FROM_CHECKPOINT => RebindSource::Checkpoint,
                other => RebindSource::Other(other),
            },
            step: out.step,
            lost_steps: out.lost_steps,
            bytes_moved: out.bytes_moved,
            seconds: out.seconds,
            move_seconds: out.move_seconds,
        }
    }
}

/// Why a trainer was not moved, with the trainer as it was and the communicator. `?` drops both and goes on with the error.
pub struct NotRebound<C: Borrow<Comm>, D> {
    /// What failed.
    pub error: Error,
    /// The trainer, on the communicator that it had.
    pub trainer: Trainer<C>,
    /// The communicator that it was to be moved to.
    pub comm: D,
}

impl<C: Borrow<Comm>, D> From<NotRebound<C, D>> for Error {
    fn from(failure: NotRebound<C, D>) -> Error {
        failure.error
    }
}

impl<C: Borrow<Comm>, D> fmt::Debug for NotRebound<C, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<C: Borrow<Comm>, D> fmt::Display for NotRebound<C, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<C: Borrow<Comm>, D> std::error::Error for NotRebound<C, D> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

impl<C: Borrow<Comm>> Trainer<C> {
    /// Moves the trainer to another communicator, such as one of [`Comm::shrink`] or [`Comm::grow`], and takes the newest
    /// state that its ranks have whole together. A collective over `comm`, also after the trainer's communicator broke; ranks
    /// that are new call [`join`](Trainer::join). The trainer's communicator is dropped if the trainer owns it.
    ///
    /// Errors: see `gsel_trainer_rebind`. The trainer is then what it was, and in the failure.
    ///
    /// ```no_run
    /// # fn run(trainer: gsel::Trainer) -> gsel::Result<gsel::Trainer> {
    /// let survivors = trainer.comm().shrink()?;
    /// let (trainer, report) = trainer.rebind(survivors, gsel::RebindOptions::new())?;
    /// println!("goes on with step {}", report.step);
    /// # Ok(trainer) }
    /// ```
    pub fn rebind<D: Borrow<Comm>>(
        self,
        comm: D,
        options: RebindOptions<'_>,
    ) -> std::result::Result<(Trainer<D>, RebindReport), NotRebound<C, D>> {
        let (raw, alive) = (options.raw(), comm.borrow().shared.clone());
        let call = |out, error| unsafe { sys::gsel_trainer_rebind(self.raw(), alive.comm.as_ptr(), &raw, out, error) };
        match guard::resuming(|| filled(call)) {
            Ok(report) => Ok((self.moved_to(comm, alive), RebindReport::of(report))),
            Err(error) => Err(NotRebound {
                error,
                trainer: self,
                comm,
            }),
        }
    }

    /// The part of a rank that had no trainer in [`rebind`](Trainer::rebind) of the others: makes one, which takes the state
    /// that they have. `folder`: of checkpoints, as theirs.
    pub fn join(
        comm: C,
        model: &Model,
        options: TrainerOptions<'_>,
        folder: Option<&str>,
    ) -> Result<(Self, RebindReport)> {
        let rebind = RebindOptions { config: None, folder }.raw();
        let mut report = sys::sized::<sys::gsel_rebind_report>();
        let trainer = Trainer::made(comm, options, |comm, raw, out, error| unsafe {
            sys::gsel_trainer_join(comm, model.raw(), raw, &rebind, out, &mut report, error)
        })?;
        Ok((trainer, RebindReport::of(report)))
    }
}
