//! What a trainer holds between steps, by name, and states of the program's own that checkpoints hold beside it.
use crate::error::{check, filled, made};
use crate::{number, text, Comm, DType, ParamId, Result, Trainer};
use gsel_sys as sys;
use std::borrow::Borrow;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr::NonNull;

/// A count of elements as C takes it; what has no place there is more than any tensor has.
fn elements(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The state of a trainer between steps. It borrows the trainer: no step is made while it lives.
///
/// ```compile_fail
/// fn overlap(mut trainer: gsel::Trainer) -> gsel::Result<()> {
///     let state = trainer.state()?;
///     trainer.step()?;
///     println!("{}", state.count());
///     Ok(())
/// }
/// ```
pub struct State<'t> {
    state: NonNull<sys::gsel_state>,
    trainer: PhantomData<&'t mut ()>,
}

/// A tensor of the state. Elements are `f32`; of parameters that are kept in 16 bits these are the master copies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StateEntry<'s> {
    /// "param:NAME", or of a state of the optimizer such as "exp_avg:NAME".
    pub name: &'s str,
    /// What is before the colon.
    pub role: &'s str,
    /// The parameter.
    pub param: ParamId,
    /// Type of the elements.
    pub dtype: DType,
    /// Shape in the model.
    pub shape: Vec<usize>,
    /// Parts of it that this rank has; 0 where others have it all.
    pub pieces: usize,
}

impl StateEntry<'_> {
    /// Elements of the whole tensor.
    pub fn element_count(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Consecutive elements of a piece that are consecutive in the whole tensor, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRun {
    /// The first in the whole tensor.
    pub whole: usize,
    /// The first in the piece.
    pub local: usize,
    /// How many.
    pub count: usize,
}

/// A state of the program's own, as [`Trainer::add_state`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnState<'s> {
    /// As it was added.
    pub name: &'s str,
    /// Whose it is.
    pub scope: StateScope,
    /// What a save would write.
    pub data: &'s [u8],
}

/// The numbers that training goes on from; see `gsel_training_numbers`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrainingNumbers {
    /// The next step, from 0.
    pub step: i64,
    /// Steps that were not skipped.
    pub updates: i64,
    /// Number of the next step's first sample.
    pub first_sample: i64,
    /// Seed of the random numbers of a step.
    pub seed: i64,
    /// Loss scale of the next step.
    pub loss_scale: f64,
    /// Steps since the loss scale changed.
    pub good_steps: i64,
    /// Overflows until the loss scale is lowered.
    pub overflows_left: i64,
    /// As set by [`Trainer::set_learning_rate`]; `None`: that of the configuration.
    pub learning_rate: Option<f64>,
}

impl<'t> State<'t> {
    /// Number of tensors, the same on every rank.
    pub fn count(&self) -> usize {
        unsafe { sys::gsel_state_count(self.state.as_ptr()) as usize }
    }
    /// A tensor, from 0.
    pub fn entry(&self, i: usize) -> Result<StateEntry<'_>> {
        let entry = filled::<sys::gsel_state_entry>(|out, error| unsafe {
            sys::gsel_state_entry_at(self.state.as_ptr(), number(i), out, error)
        })?;
        Ok(StateEntry {
            name: text::borrowed(self, entry.name),
            role: text::borrowed(self, entry.role),
            param: ParamId(entry.param),
            dtype: DType(entry.dtype),
            shape: entry.shape[..entry.n_dims as usize]
                .iter()
                .map(|&size| size as usize)
                .collect(),
            pieces: entry.n_pieces as usize,
        })
    }
    /// All tensors.
    pub fn entries(&self) -> Result<Vec<StateEntry<'_>>> {
        (0..self.count()).map(|i| self.entry(i)).collect()
    }
    /// All states of the program's own, in the order in which they were added.
    pub fn own(&self) -> Result<Vec<OwnState<'_>>> {
        let n = unsafe { sys::gsel_state_own_count(self.state.as_ptr()) };
        (0..n)
            .map(|i| {
                let own = filled::<sys::gsel_state_own>(|out, error| unsafe {
                    sys::gsel_state_own_at(self.state.as_ptr(), i, out, error)
                })?;
                // The memory is the trainer's, which this borrows.
                let data = unsafe { std::slice::from_raw_parts(own.data as *const u8, own.bytes as usize) };
                Ok(OwnState {
                    name: text::borrowed(self, own.name),
                    scope: StateScope::of(own.scope),
                    data,
                })
            })
            .collect()
    }
    /// A piece as a list of runs, in ascending order of both offsets.
    pub fn runs(&self, i: usize, piece: usize) -> Result<Vec<StateRun>> {
        let (i, piece, mut total) = (number(i), number(piece), 0);
        let mut runs: Vec<sys::gsel_state_run> = Vec::new();
        loop {
            let room = runs.capacity();
            check(|error| unsafe {
                let out = runs.as_mut_ptr();
                sys::gsel_state_runs(self.state.as_ptr(), i, piece, out, elements(room), &mut total, error)
            })?;
            let n = total as usize;
            if n <= room {
                unsafe { runs.set_len(n) } // C has written as many
                break;
            }
            runs.reserve_exact(n);
        }
        Ok(runs
            .iter()
            .map(|run| StateRun {
                whole: run.whole as usize,
                local: run.local as usize,
                count: run.count as usize,
            })
            .collect())
    }
    /// Copies the elements of a piece from `first` on to `dst`. Not a collective.
    pub fn read_piece(&mut self, i: usize, piece: usize, first: usize, dst: &mut [f32]) -> Result<()> {
        let (at, count, out) = (elements(first), elements(dst.len()), dst.as_mut_ptr());
        check(|error| unsafe {
            sys::gsel_state_read_piece(self.state.as_ptr(), number(i), number(piece), at, count, out, error)
        })
    }
    /// Copies the elements of the whole tensor from `first` on to `dst`, from the ranks that have them. A collective; all ranks
    /// ask for the same.
    pub fn read(&mut self, i: usize, first: usize, dst: &mut [f32]) -> Result<()> {
        let (count, out) = (elements(dst.len()), dst.as_mut_ptr());
        check(|error| unsafe {
            sys::gsel_state_read(self.state.as_ptr(), number(i), elements(first), count, out, error)
        })
    }
    /// The part of a rank that does not want the elements that the others [`read`](State::read).
    pub fn read_for_others(&mut self, i: usize, first: usize, count: usize) -> Result<()> {
        let (first, count, none) = (elements(first), elements(count), std::ptr::null_mut());
        check(|error| unsafe { sys::gsel_state_read(self.state.as_ptr(), number(i), first, count, none, error) })
    }
    /// Sets the elements of the whole tensor from `first` on, as far as this rank has them, and tells how many. Every rank makes
    /// the call with the same elements. Not a collective.
    pub fn write(&mut self, i: usize, first: usize, src: &[f32]) -> Result<usize> {
        let (at, count, mut written) = (elements(first), elements(src.len()), 0);
        check(|error| unsafe {
            let from = src.as_ptr();
            sys::gsel_state_write(self.state.as_ptr(), number(i), at, count, from, &mut written, error)
        })?;
        Ok(written as usize)
    }
    /// The numbers that training goes on from.
    pub fn numbers(&self) -> Result<TrainingNumbers> {
        let out = filled::<sys::gsel_training_numbers>(|out, error| unsafe {
            sys::gsel_state_numbers(self.state.as_ptr(), out, error)
        })?;
        Ok(TrainingNumbers {
            step: out.step,
            updates: out.updates,
            first_sample: out.first_sample,
            seed: out.seed,
            loss_scale: out.loss_scale,
            good_steps: out.good_steps,
            overflows_left: out.overflows_left,
            learning_rate: Some(out.learning_rate).filter(|rate| *rate >= 0.0),
        })
    }
    /// Sets them; every rank the same.
    pub fn set_numbers(&mut self, numbers: &TrainingNumbers) -> Result<()> {
        let mut raw = sys::sized::<sys::gsel_training_numbers>();
        raw.step = numbers.step;
        raw.updates = numbers.updates;
        raw.first_sample = numbers.first_sample;
        raw.seed = numbers.seed;
        raw.loss_scale = numbers.loss_scale;
        raw.good_steps = numbers.good_steps;
        raw.overflows_left = numbers.overflows_left;
        raw.learning_rate = numbers.learning_rate.unwrap_or(-1.0);
        check(|error| unsafe { sys::gsel_state_set_numbers(self.state.as_ptr(), &raw, error) })
    }
}

impl Drop for State<'_> {
    fn drop(&mut self) {
        unsafe { sys::gsel_state_free(self.state.as_ptr()) }
    }
}

/// Whose a state of the program's own is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateScope {
    /// The same on every rank: the first rank's is saved, and a load gives it to all.
    Shared,
    /// Each rank's own; loads with as many ranks as there were.
    OfRank,
}

impl StateScope {
    fn raw(self) -> i32 {
        match self {
            StateScope::Shared => sys::GSEL_STATE_SHARED,
            StateScope::OfRank => sys::GSEL_STATE_OF_RANK,
        }
    }
    pub(crate) fn of(raw: i32) -> StateScope {
        match raw {
            sys::GSEL_STATE_OF_RANK => StateScope::OfRank,
            _ => StateScope::Shared,
        }
    }
}

/// Memory that C reads and writes in saves and loads, until the trainer is freed. No reference to it is kept, only the pointer
/// that C has as well.
pub(crate) struct AddedState {
    name: String,
    data: NonNull<[u8]>,
}

impl Drop for AddedState {
    fn drop(&mut self) {
        drop(unsafe { Box::from_raw(self.data.as_ptr()) })
    }
}

impl<C: Borrow<Comm>> Trainer<C> {
    /// Makes the last step final and lists the state. A collective between steps.
    pub fn state(&mut self) -> Result<State<'_>> {
        let state = made(|out, error| unsafe { sys::gsel_state_open(self.raw(), out, error) })?;
        Ok(State {
            state: NonNull::new(state).expect("a call that succeeds gives an object"),
            trainer: PhantomData,
        })
    }
    /// Adds a state of the program's own, which is saved and loaded with the trainer's. The trainer keeps the bytes, also when
    /// it is moved by [`rebind`](Trainer::rebind): [`added_state`](Trainer::added_state) and
    /// [`added_state_mut`](Trainer::added_state_mut) give them. Every rank adds the same entries; see
    /// `gsel_trainer_add_state` for names.
    pub fn add_state(&mut self, name: &str, data: impl Into<Box<[u8]>>, scope: StateScope) -> Result<()> {
        let added = AddedState {
            name: name.to_owned(),
            data: NonNull::from(Box::leak(data.into())),
        };
        let (at, bytes) = (added.data.as_ptr() as *mut c_void, added.data.len());
        check(|error| unsafe {
            sys::gsel_trainer_add_state(self.raw(), text::given(name), at, bytes, scope.raw(), error)
        })?;
        self.added.push(added);
        Ok(())
    }
    /// The bytes that were added under this name.
    pub fn added_state(&self, name: &str) -> Option<&[u8]> {
        let added = self.added.iter().find(|added| added.name == name)?;
        Some(unsafe { added.data.as_ref() })
    }
    /// The same, to be changed; what stands there is saved.
    pub fn added_state_mut(&mut self, name: &str) -> Option<&mut [u8]> {
        let added = self.added.iter_mut().find(|added| added.name == name)?;
        Some(unsafe { added.data.as_mut() })
    }
}
