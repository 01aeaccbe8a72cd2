//! Checkpoints without a trainer: what is in one, whether it is whole, how two differ, and the same state in other files.
use crate::error::{check, filled, made};
use crate::{guard, number, text, Result, StateScope};
use gsel_sys as sys;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::ptr::NonNull;

/// How a trainer is saved.
#[derive(Clone, Debug, Default)]
pub struct CheckpointOptions {
    keep: usize,
}

impl CheckpointOptions {
    /// A save that removes nothing.
    pub fn new() -> CheckpointOptions {
        CheckpointOptions::default()
    }
    /// So many checkpoints of the folder are left, with the new one; 0: all. The same on all ranks.
    pub fn keep(mut self, n: usize) -> CheckpointOptions {
        self.keep = n;
        self
    }
    pub(crate) fn raw(&self) -> sys::gsel_checkpoint_options {
        let mut options: sys::gsel_checkpoint_options = sys::sized();
        options.keep = number(self.keep);
        options
    }
}

/// What a checkpoint is of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointInfo {
    /// Of the checkpoint, where a folder was opened as well.
    pub path: String,
    /// As configured.
    pub optimizer: String,
    /// The step that comes next.
    pub step: i64,
    /// Steps of the optimizer.
    pub updates: i64,
    /// `None`: as configured.
    pub learning_rate: Option<f64>,
    /// For 16-bit gradients.
    pub loss_scale: f64,
    /// Bytes of the tensors.
    pub entry_bytes: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// That saved.
    pub ranks: usize,
}

/// A tensor of the state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointEntry {
    /// "param:w", "exp_avg:w".
    pub name: String,
    /// "param", or the state's name.
    pub role: String,
    /// In the model.
    pub shape: Vec<i64>,
    /// Of all elements.
    pub bytes: u64,
    /// Where the elements are stored.
    pub pieces: Vec<CheckpointPiece>,
}

/// Elements of an entry in a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointPiece {
    /// Name of the file.
    pub file: String,
    /// Of the tensor in the file.
    pub key: String,
    /// Element of the whole tensor, in row-major order.
    pub first: i64,
    /// Number of elements.
    pub count: i64,
}

/// A state of the program's own; see [`Trainer::add_state`](crate::Trainer::add_state).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointOwn {
    /// As it was added.
    pub name: String,
    /// Whose it is.
    pub scope: StateScope,
    /// By rank; one if it is shared.
    pub pieces: Vec<CheckpointOwnPiece>,
}

/// A state of the program's own in a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointOwnPiece {
    /// Name of the file.
    pub file: String,
    /// Of the tensor in the file.
    pub key: String,
    /// Of this rank's.
    pub bytes: u64,
}

/// A file that the manifest lists.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointFile {
    /// In the checkpoint's folder.
    pub name: String,
    /// XXH3 of 128 bits, in hexadecimal digits.
    pub sum: String,
    /// Of the whole file.
    pub bytes: u64,
}

/// What differs between two checkpoints.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CheckpointDifference {
    /// A number, such as "step", as text in each.
    Number(String, String, String),
    /// An entry, or a state of the program's own, that the second has not.
    OnlyFirst(String),
    /// One that the first has not.
    OnlySecond(String),
    /// An entry, and its shape in each.
    Shape(String, String, String),
    /// Elements of an entry.
    Values {
        /// Of the entry.
        name: String,
        /// The first element that differs, in row-major order.
        element: i64,
        /// How many differ, by their bits.
        count: i64,
        /// Largest absolute difference; infinite where one of two elements is no number.
        largest: f64,
    },
    /// A state of the program's own, "user:NAME", and its scope in each, as text.
    Scope(String, String, String),
    /// The same, of one of the ranks that have their own "user:NAME@RANK", and its size in each, bytes as text.
    Size(String, String, String),
    /// Bytes of such a state.
    Bytes {
        /// "user:NAME" or "user:NAME@RANK".
        name: String,
        /// The first byte that differs.
        first: i64,
        /// How many differ.
        count: i64,
    },
}

/// An open checkpoint.
///
/// ```no_run
/// let mut checkpoint = gsel::Checkpoint::open("run7")?;
/// checkpoint.verify()?;
/// println!("step {}, {} tensors", checkpoint.info()?.step, checkpoint.entries()?.len());
/// checkpoint.consolidate("model.safetensors", true)?;
/// # Ok::<(), gsel::Error>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint(NonNull<sys::gsel_checkpoint>);
// C allows any thread, one at a time.
unsafe impl Send for Checkpoint {}

impl Checkpoint {
    /// A checkpoint, or the newest whole one of a folder. Reads no tensors.
    pub fn open(path: &str) -> Result<Checkpoint> {
        made(|out, error| unsafe { sys::gsel_checkpoint_open(text::given(path), out, error) })
            .map(|opened| Checkpoint(NonNull::new(opened).expect("a call that succeeds gives an object")))
    }
    fn raw(&self) -> *mut sys::gsel_checkpoint {
        self.0.as_ptr()
    }
    fn counts(&self) -> Result<sys::gsel_checkpoint_info> {
        filled(|out, error| unsafe { sys::gsel_checkpoint_inspect(self.raw(), out, error) })
    }
    /// What it is of.
    pub fn info(&self) -> Result<CheckpointInfo> {
        self.counts().map(|out| CheckpointInfo {
            path: text::owned(out.path),
            optimizer: text::owned(out.optimizer),
            step: out.step,
            updates: out.updates,
            learning_rate: (out.learning_rate >= 0.0).then_some(out.learning_rate),
            loss_scale: out.loss_scale,
            entry_bytes: out.entry_bytes,
            file_bytes: out.file_bytes,
            ranks: out.n_ranks as usize,
        })
    }
    /// The tensors of the state.
    pub fn entries(&self) -> Result<Vec<CheckpointEntry>> {
        (0..self.counts()?.n_entries).map(|i| self.entry(i)).collect()
    }
    fn entry(&self, i: i32) -> Result<CheckpointEntry> {
        let out = filled::<sys::gsel_checkpoint_entry>(|out, error| unsafe {
            sys::gsel_checkpoint_entry_get(self.raw(), i, out, error)
        })?;
        let pieces = (0..out.n_pieces).map(|piece| {
            let out = filled::<sys::gsel_checkpoint_piece>(|out, error| unsafe {
                sys::gsel_checkpoint_piece_get(self.raw(), i, piece, out, error)
            })?;
            Ok(CheckpointPiece {
                file: text::owned(out.file),
                key: text::owned(out.key),
                first: out.first,
                count: out.count,
            })
        });
        let shape = match out.n_dims {
            0 => Vec::new(), // a scalar's shape may be NULL
            n => unsafe { std::slice::from_raw_parts(out.shape, n as usize) }.to_vec(),
        };
        Ok(CheckpointEntry {
            name: text::owned(out.name),
            role: text::owned(out.role),
            shape,
            bytes: out.bytes,
            pieces: pieces.collect::<Result<_>>()?,
        })
    }
    /// States of the program's own. Reads the headers of the files that have them.
    pub fn own(&mut self) -> Result<Vec<CheckpointOwn>> {
        let counts = self.counts()?;
        (0..counts.n_own).map(|i| self.own_at(i, counts.n_ranks)).collect()
    }
    fn own_at(&mut self, i: i32, ranks: i32) -> Result<CheckpointOwn> {
        let of = |rank| {
            filled::<sys::gsel_checkpoint_own>(|out, error| unsafe {
                sys::gsel_checkpoint_own_get(self.raw(), i, rank, out, error)
            })
        };
        let first = of(0)?;
        let scope = StateScope::of(first.scope);
        let n = if scope == StateScope::OfRank { ranks } else { 1 };
        let pieces = (0..n).map(|rank| {
            of(rank).map(|out| CheckpointOwnPiece {
                file: text::owned(out.file),
                key: text::owned(out.key),
                bytes: out.bytes,
            })
        });
        Ok(CheckpointOwn {
            name: text::owned(first.name),
            scope,
            pieces: pieces.collect::<Result<_>>()?,
        })
    }
    /// The files that the manifest lists.
    pub fn files(&self) -> Result<Vec<CheckpointFile>> {
        (0..self.counts()?.n_files)
            .map(|i| {
                let out = filled::<sys::gsel_checkpoint_file>(|out, error| unsafe {
                    sys::gsel_checkpoint_file_get(self.raw(), i, out, error)
                })?;
                Ok(CheckpointFile {
                    name: text::owned(out.name),
                    sum: text::owned(out.sum),
                    bytes: out.bytes,
                })
            })
            .collect()
    }
    /// Compares the sums of all files with the manifest's.
    pub fn verify(&mut self) -> Result<()> {
        self.verify_with(|_, _| ControlFlow::Continue(()))
    }
    /// The same. `progress` is called on this thread now and then with the bytes that are done, of all. A break ends the
    /// call with [`Code::ABORTED`](crate::Code::ABORTED).
    pub fn verify_with<F: FnMut(u64, u64) -> ControlFlow<()>>(&mut self, mut progress: F) -> Result<()> {
        let options = told(&mut progress, 0);
        guard::resuming(|| check(|error| unsafe { sys::gsel_checkpoint_verify(self.raw(), &options, error) }))
    }
    /// What differs, whatever layouts the two were saved under; empty: nothing.
    pub fn diff(&mut self, second: &mut Checkpoint) -> Result<Vec<CheckpointDifference>> {
        let found = Differences(made(|out, error| unsafe {
            sys::gsel_checkpoint_diff(self.raw(), second.raw(), std::ptr::null(), out, error)
        })?);
        (0..unsafe { sys::gsel_checkpoint_difference_count(found.0) })
            .map(|i| {
                filled(|out, error| unsafe { sys::gsel_checkpoint_difference_get(found.0, i, out, error) })
                    .map(CheckpointDifference::of)
            })
            .collect()
    }
    /// Writes one safetensors file with whole tensors; parameters alone, by their own names, or the states as
    /// well, also of the program's own.
    pub fn consolidate(&mut self, path: &str, params_only: bool) -> Result<()> {
        self.consolidate_with(path, params_only, |_, _| ControlFlow::Continue(()))
    }
    /// The same, with a progress as of [`Checkpoint::verify_with`].
    pub fn consolidate_with<F: FnMut(u64, u64) -> ControlFlow<()>>(
        &mut self,
        path: &str,
        params_only: bool,
        mut progress: F,
    ) -> Result<()> {
        let flags = if params_only {
            sys::GSEL_CHECKPOINT_PARAMS_ONLY
        } else {
            0
        };
        let options = told(&mut progress, flags);
        guard::resuming(|| {
            check(|error| unsafe { sys::gsel_checkpoint_consolidate(self.raw(), text::given(path), &options, error) })
        })
    }
    /// Writes the checkpoint anew in `folder`, its elements divided evenly among `n` files.
    pub fn reshard(&mut self, folder: &str, n: usize) -> Result<()> {
        self.reshard_with(folder, n, |_, _| ControlFlow::Continue(()))
    }
    /// The same, with a progress as of [`Checkpoint::verify_with`].
    pub fn reshard_with<F: FnMut(u64, u64) -> ControlFlow<()>>(
        &mut self,
        folder: &str,
        n: usize,
        mut progress: F,
    ) -> Result<()> {
        let options = told(&mut progress, 0);
        guard::resuming(|| {
            check(|error| unsafe {
                sys::gsel_checkpoint_reshard(self.raw(), text::given(folder), number(n), &options, error)
            })
        })
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        unsafe { sys::gsel_checkpoint_free(self.raw()) }
    }
}

struct Differences(*mut sys::gsel_checkpoint_differences);

impl Drop for Differences {
    fn drop(&mut self) {
        unsafe { sys::gsel_checkpoint_differences_free(self.0) }
    }
}

impl CheckpointDifference {
    fn of(out: sys::gsel_checkpoint_difference) -> CheckpointDifference {
        let name = text::owned(out.name);
        let (first, second) = (text::owned(out.first), text::owned(out.second));
        match out.kind as _ {
            sys::GSEL_CHECKPOINT_DIFFERS_ONLY_FIRST => CheckpointDifference::OnlyFirst(name),
            sys::GSEL_CHECKPOINT_DIFFERS_ONLY_SECOND => CheckpointDifference::OnlySecond(name),
            sys::GSEL_CHECKPOINT_DIFFERS_SHAPE => CheckpointDifference::Shape(name, first, second),
            sys::GSEL_CHECKPOINT_DIFFERS_VALUES => CheckpointDifference::Values {
                name,
                element: out.element,
                count: out.count,
                largest: out.largest,
            },
            sys::GSEL_CHECKPOINT_DIFFERS_SCOPE => CheckpointDifference::Scope(name, first, second),
            sys::GSEL_CHECKPOINT_DIFFERS_SIZE => CheckpointDifference::Size(name, first, second),
            sys::GSEL_CHECKPOINT_DIFFERS_BYTES => CheckpointDifference::Bytes {
                name,
                first: out.element,
                count: out.count,
            },
            _ => CheckpointDifference::Number(name, first, second),
        }
    }
}

fn told<F: FnMut(u64, u64) -> ControlFlow<()>>(progress: &mut F, flags: u32) -> sys::gsel_checkpoint_tool_options {
    let mut options: sys::gsel_checkpoint_tool_options = sys::sized();
    options.flags = flags;
    options.progress = Some(tell::<F>);
    options.user_data = progress as *mut F as *mut c_void;
    options
}

unsafe extern "C" fn tell<F: FnMut(u64, u64) -> ControlFlow<()>>(done: u64, total: u64, user: *mut c_void) -> i32 {
    guard::status(std::ptr::null_mut(), 0, || {
        Ok((*(user as *mut F))(done, total).is_break() as i32)
    })
}
