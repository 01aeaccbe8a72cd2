//! The pull driver: the trainer hands out work, and the program runs it where and how it likes. C calls no kernel.
//!
//! [`Trainer::next_work`] lends: a [`Work`] borrows the trainer until it is completed, since the next one may use the same
//! buffers. `Iterator` gives items that outlive the next call, so there is none, and `while let` stands for `for`.
//!
//! ```no_run
//! # fn run<C: std::borrow::Borrow<gsel::Comm>>(trainer: &mut gsel::Trainer<C>) -> gsel::Result<()> {
//! use gsel::Task;
//! while let Some(work) = trainer.next_work()? {
//!     match work.task() {
//!         Task::Input(request) => { /* fill request.elements() */ }
//!         Task::Forward(call) => { /* kernel of call.layer() */ }
//!         Task::Backward(call) | Task::BackwardInput(call) | Task::BackwardWeight(call) => { /* its gradient */ }
//!         _ => return work.fail("a kind of work that this program does not know"),
//!     }
//!     work.complete()?;
//! }
//! # Ok(()) }
//! ```
use crate::call::{Backward, Call, DataRequest, Forward};
use crate::error::{check, filled};
use crate::guard::{self, error_text, panic_text, Outcome};
use crate::train::StepReport;
use crate::{text, Comm, Result, Trainer};
use gsel_sys as sys;
use std::borrow::Borrow;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// What a piece of work is.
#[non_exhaustive]
pub enum Task<'a> {
    /// An input is to be filled.
    Input(DataRequest<'a>),
    /// Forward of a layer.
    Forward(Forward<'a>),
    /// Gradients of a layer's inputs.
    BackwardInput(Backward<'a>),
    /// Gradients of a layer's parameters.
    BackwardWeight(Backward<'a>),
    /// Both.
    Backward(Backward<'a>),
    /// Another kind, of a newer library.
    Other(i32),
}

/// A piece of work, until it is completed. Dropped before, it fails as by [`fail`](Work::fail).
pub struct Work<'t, C: Borrow<Comm>> {
    trainer: &'t mut Trainer<C>,
    work: sys::gsel_work,
    is_handed_out: std::cell::Cell<bool>,
    is_over: bool,
}

impl<C: Borrow<Comm>> Trainer<C> {
    /// The next work of the step; begins a step when none is under way. `None`: the step is over, and
    /// [`report`](Trainer::report) has it.
    pub fn next_work(&mut self) -> Result<Option<Work<'_, C>>> {
        let work = guard::resuming(|| {
            filled::<sys::gsel_work>(|out, error| unsafe { sys::gsel_trainer_next_work(self.raw(), out, error) })
        })?;
        if work.kind == sys::GSEL_WORK_DONE {
            return Ok(None);
        }
        Ok(Some(Work {
            trainer: self,
            work,
            is_handed_out: std::cell::Cell::new(false),
            is_over: false,
        }))
    }

    /// Runs a step, or the evaluation that has begun, with one closure for all its work. An error or a panic of the closure
    /// fails the work; a panic then continues here.
    pub fn pull(&mut self, mut body: impl FnMut(Task<'_>) -> Outcome) -> Result<StepReport> {
        while let Some(work) = self.next_work()? {
            match catch_unwind(AssertUnwindSafe(|| body(work.task()))) {
                Ok(Ok(())) => work.complete()?,
                Ok(Err(error)) => work.fail(&error_text(error))?,
                Err(payload) => {
                    let _ = work.fail(&panic_text(&*payload));
                    resume_unwind(payload);
                }
            }
        }
        self.report()
    }
}

impl<C: Borrow<Comm>> Work<'_, C> {
    /// What is to be done. Once per work: buffers are not handed out twice.
    pub fn task(&self) -> Task<'_> {
        assert!(
            !self.is_handed_out.replace(true),
            "the task of this work is handed out already"
        );
        unsafe {
            match self.work.kind {
                sys::GSEL_INPUT => Task::Input(DataRequest::new(self.work.input)),
                sys::GSEL_FORWARD => Task::Forward(Forward(Call::new(self.work.call))),
                sys::GSEL_BACKWARD_INPUT => Task::BackwardInput(Backward(Call::new(self.work.call))),
                sys::GSEL_BACKWARD_WEIGHT => Task::BackwardWeight(Backward(Call::new(self.work.call))),
                sys::GSEL_BACKWARD => Task::Backward(Backward(Call::new(self.work.call))),
                other => Task::Other(other),
            }
        }
    }
    fn end(&mut self, status: i32, message: &str) -> Result<()> {
        self.is_over = true;
        let (trainer, ticket) = (self.trainer.raw(), self.work.ticket);
        check(|error| unsafe { sys::gsel_trainer_complete(trainer, ticket, status, text::given(message), error) })
    }
    /// Says that the work is done.
    pub fn complete(mut self) -> Result<()> {
        self.end(sys::GSEL_OK, "")
    }
    /// Says of an input that this rank has no samples left: the micro-batch has weight 0.
    pub fn no_samples(mut self) -> Result<()> {
        self.end(sys::GSEL_NO_SAMPLES, "")
    }
    /// Says that the work has failed. The step is over, with this text; on other ranks as where a kernel fails, see
    /// [`Layer`](crate::Layer). Returns that error.
    pub fn fail(mut self, why: &str) -> Result<()> {
        self.end(sys::GSEL_ERR_CALLBACK, why)
    }
}

impl<C: Borrow<Comm>> Drop for Work<'_, C> {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.end(sys::GSEL_ERR_CALLBACK, "the work was dropped before it was completed");
        }
    }
}
