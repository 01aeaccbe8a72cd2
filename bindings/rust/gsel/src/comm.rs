//! Communicators: how ranks join, what ends one, and how more are made. The calls themselves are in calls.rs.
use crate::error::{check, filled, made, Code, Error};
use crate::{number, text, Collective, Config, Order, Result};
use gsel_sys as sys;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// Identifies a communicator that is to be made. One rank creates it; the program passes it to the others.
#[derive(Clone, Copy)]
pub struct UniqueId(pub(crate) sys::gsel_unique_id);

impl UniqueId {
    /// A fresh random id.
    pub fn create() -> Result<UniqueId> {
        let mut id = sys::gsel_unique_id { bytes: [0; 128] };
        check(|error| unsafe { sys::gsel_unique_id_create(&mut id, error) })?;
        Ok(UniqueId(id))
    }
    /// An id by which ranks on several hosts meet: this process listens from now on, and joins as rank 0 with it.
    pub fn listen() -> Result<UniqueId> {
        let mut id = sys::gsel_unique_id { bytes: [0; 128] };
        check(|error| unsafe { sys::gsel_unique_id_listen(&mut id, error) })?;
        Ok(UniqueId(id))
    }
    /// The id as bytes, to be passed to other processes.
    pub fn to_bytes(self) -> [u8; 128] {
        self.0.bytes
    }
    /// The id that another rank created.
    pub fn from_bytes(bytes: [u8; 128]) -> UniqueId {
        UniqueId(sys::gsel_unique_id { bytes })
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({:02x?}...)", &self.0.bytes[..4])
    }
}

/// Seconds of a bound on a call. C takes 0 as its default, so zero becomes the shortest time that a `Duration` tells apart.
pub(crate) fn bound(time: Duration) -> f64 {
    time.max(Duration::from_nanos(1)).as_secs_f64()
}

/// How to join. What is not set takes its default; without rank and size both come from the environment, as `gsel run`,
/// torchrun, mpirun and srun set it.
#[derive(Clone, Debug, Default)]
pub struct CommBuilder<'a> {
    rank: usize,
    world_size: usize,
    id: Option<UniqueId>,
    timeout: f64,
    join_timeout: f64,
    config: Option<&'a Config>,
    device: Option<&'a str>,
    tree: bool,
    flags: u32,
    name: Option<&'a str>,
    accelerator: Option<&'a str>,
    transport: Option<&'a str>,
    rendezvous: Option<&'a str>,
}

impl<'a> CommBuilder<'a> {
    /// This rank, the number of ranks, and the id that one of them created.
    pub fn ranks(mut self, rank: usize, world_size: usize, id: UniqueId) -> Self {
        self.rank = rank;
        self.world_size = world_size;
        self.id = Some(id);
        self
    }
    /// Bound on each later call; default: `comm.timeout_s` of the configuration. Zero is the shortest bound that there is, a
    /// nanosecond, and not the default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = bound(timeout);
        self
    }
    /// Bound on joining; default 60 s. Zero is a nanosecond.
    pub fn join_timeout(mut self, timeout: Duration) -> Self {
        self.join_timeout = bound(timeout);
        self
    }
    /// The configuration; default: the file that GSEL_CONFIG names, if any.
    pub fn config(mut self, config: &'a Config) -> Self {
        self.config = Some(config);
        self
    }
    /// Identity of the device that this rank computes on, such as its uuid. Two ranks on one device are refused.
    pub fn device(mut self, device: &'a str) -> Self {
        self.device = Some(device);
        self
    }
    /// Order of reductions, the same on every rank; default [`Order::Ranks`].
    pub fn order(mut self, order: Order) -> Self {
        self.tree = order == Order::Tree;
        self
    }
    /// The library starts no thread: only ranks that wait notice a death, and requests are refused.
    pub fn no_thread(mut self) -> Self {
        self.flags |= sys::GSEL_COMM_NO_THREAD;
        self
    }
    /// Results are the same bits in every run; a transport that does not promise this is refused. On any rank, this counts
    /// for all.
    pub fn bitwise(mut self) -> Self {
        self.flags |= sys::GSEL_COMM_BITWISE;
        self
    }
    /// Memory of the accelerator never goes through host memory; where only that way is left, joining or the call is
    /// refused. On any rank, this counts for all.
    pub fn not_through_host(mut self) -> Self {
        self.flags |= sys::GSEL_COMM_NOT_THROUGH_HOST;
        self
    }
    /// Name in errors and recordings, at most 31 bytes of printable ASCII; that of rank 0 counts.
    pub fn name(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }
    /// The device whose memory the calls take, such as "cuda:1", or "cuda | cpu" for the host where no rank has one, and how its memory travels: a transport plugin such as
    /// "nccl", "host", or "auto". Calls on slices then wait for the device's stream; device memory is passed by
    /// [`Source::device`](crate::Source::device) and [`Target::device`](crate::Target::device).
    pub fn accelerator(mut self, device: &'a str, transport: &'a str) -> Self {
        self.accelerator = Some(device);
        self.transport = Some(transport);
        self
    }
    /// Where ranks meet that are in several containers or network namespaces: "tcp://HOST:PORT" of rank 0's host. The id is
    /// the token that every rank has to know, or the content of the file that GSEL_TOKEN_FILE names.
    pub fn rendezvous(mut self, place: &'a str) -> Self {
        self.rendezvous = Some(place);
        self
    }

    fn options(&self, id: &'a Option<UniqueId>) -> sys::gsel_comm_options {
        let mut options = sys::sized::<sys::gsel_comm_options>();
        options.rank = i32::try_from(self.rank).unwrap_or(-1);
        options.world_size = number(self.world_size);
        options.id = id.as_ref().map_or(std::ptr::null(), |id| &id.0);
        options.timeout_s = self.timeout;
        options.join_timeout_s = self.join_timeout;
        options.config = self.config.map_or(std::ptr::null(), |config| config.raw());
        options.device = text::optional(self.device);
        options.order = if self.tree {
            sys::GSEL_ORDER_TREE
        } else {
            sys::GSEL_ORDER_RANKS
        };
        options.flags = self.flags;
        options.name = text::optional(self.name);
        options.accelerator = text::optional(self.accelerator);
        options.rendezvous = text::optional(self.rendezvous);
        options.transport = text::optional(self.transport);
        options
    }

    /// Joins; returns once all ranks have. Ranks that are threads of one process call it concurrently.
    ///
    /// Errors: [`Code::TIMEOUT`](crate::Code::TIMEOUT) names the ranks that are missing; see `gsel_comm_init` for the others.
    pub fn join(self) -> Result<Comm> {
        let options = self.options(&self.id);
        let asked = self.accelerator.map_or(false, |name| !name.is_empty() && name != "cpu");
        made(|out, error| unsafe { sys::gsel_comm_init(&options, out, error) }).map(|comm| {
            // The host may stand in for a device; then there is no stream to set.
            let none = std::ptr::null_mut;
            let has_device = asked && unsafe { sys::gsel_comm_set_stream(comm, none(), std::ptr::null_mut()) } == 0;
            Comm::owned(comm, has_device)
        })
    }
}

/// The handle, which lives until the communicator and everything that uses it (requests, memory) is gone.
pub(crate) struct Shared {
    pub(crate) comm: NonNull<sys::gsel_comm>,
    /// The same for aborters, which must not touch it once it is freed.
    abortable: Arc<RwLock<Option<Alive>>>,
    /// Requests that have not been waited for.
    pub(crate) under_way: AtomicUsize,
}
struct Alive(NonNull<sys::gsel_comm>);
// gsel_comm_abort may be called from any thread until the communicator is freed, which the lock keeps apart.
unsafe impl Send for Alive {}
unsafe impl Sync for Alive {}
// What other threads do with a Shared is allowed to any thread: to free, to abort, and to count.
unsafe impl Send for Shared {}
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        *self.abortable.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
        unsafe { sys::gsel_comm_free(self.comm.as_ptr()) }
    }
}

/// A colour as C has it.
pub(crate) fn as_colour(colour: Option<u32>) -> Result<i32> {
    colour.map_or(Ok(-1), i32::try_from).map_err(|_| {
        let text = format!("colour {:?} was given, the largest is {}", colour, i32::MAX);
        Error::new(Code::ARG, text)
    })
}

/// Breaks a communicator from any thread; survives the communicator, and then does nothing.
#[derive(Clone)]
pub struct Aborter(Arc<RwLock<Option<Alive>>>);

impl Aborter {
    /// Breaks the communicator on every rank: calls under way and later calls return [`Code::ABORTED`](crate::Code::ABORTED)
    /// with the reason (cut to 1900 bytes). Does not wait for them. Returns whether the communicator was still there.
    pub fn abort(&self, reason: &str) -> bool {
        let alive = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(comm) = &*alive {
            unsafe { sys::gsel_comm_abort(comm.0.as_ptr(), text::given(reason)) }
        }
        alive.is_some()
    }
}

impl fmt::Debug for Aborter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aborter")
    }
}

/// A communicator: `world_size` ranks, which are processes or threads of one host.
///
/// It is `Send`, not `Sync`: one thread at a time makes calls. [`Aborter`] is for the other threads. Dropping it leaves the
/// communicator without waiting; ranks that wait for this one get [`Code::PEER`](crate::Code::PEER). A request that is still
/// under way is aborted then, on every rank, and its `wait` says so.
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<gsel::Comm>();
/// ```
/// ```
/// fn sent<T: Send>() {}
/// fn both<T: Send + Sync>() {}
/// sent::<gsel::Comm>();
/// both::<gsel::Aborter>();
/// ```
pub struct Comm {
    pub(crate) shared: Arc<Shared>,
    /// Slices of page-locked memory would be used after the call, so calls on slices wait for the stream.
    pub(crate) has_device: bool,
    rank: usize,
    world_size: usize,
    not_sync: PhantomData<Cell<()>>,
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Comm({}, rank {} of {})",
            self.name(),
            self.rank(),
            self.world_size()
        )
    }
}

impl Comm {
    pub(crate) fn maybe(comm: *mut sys::gsel_comm, has_device: bool) -> Option<Comm> {
        (!comm.is_null()).then(|| Comm::owned(comm, has_device))
    }
    pub(crate) fn owned(comm: *mut sys::gsel_comm, has_device: bool) -> Comm {
        let comm = NonNull::new(comm).expect("a call that succeeds gives an object");
        let (rank, world_size) = unsafe {
            (
                sys::gsel_comm_rank(comm.as_ptr()),
                sys::gsel_comm_world_size(comm.as_ptr()),
            )
        };
        let shared = Shared {
            comm,
            abortable: Arc::new(RwLock::new(Some(Alive(comm)))),
            under_way: AtomicUsize::new(0),
        };
        Comm {
            shared: Arc::new(shared),
            has_device,
            rank: rank as usize,
            world_size: world_size as usize,
            not_sync: PhantomData,
        }
    }

    /// Joins the ranks that the environment names; without a launcher the communicator has one rank.
    pub fn from_env() -> Result<Comm> {
        Comm::builder().join()
    }
    /// How to join otherwise.
    pub fn builder<'a>() -> CommBuilder<'a> {
        CommBuilder::default()
    }

    /// The handle of C, for calls that this crate does not have; it stays owned by this communicator.
    pub fn as_raw(&self) -> *mut sys::gsel_comm {
        self.raw()
    }
    #[inline]
    pub(crate) fn raw(&self) -> *mut sys::gsel_comm {
        self.shared.comm.as_ptr()
    }
    /// Rank of the caller, from 0.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank
    }
    /// Number of ranks.
    #[inline]
    pub fn world_size(&self) -> usize {
        self.world_size
    }
    /// Name, the same on every rank, such as "world".
    pub fn name(&self) -> &str {
        text::borrowed(self, unsafe { sys::gsel_comm_name(self.raw()) })
    }
    /// What breaks the communicator from another thread.
    pub fn aborter(&self) -> Aborter {
        Aborter(self.shared.abortable.clone())
    }
    /// Sets the bound on each later call. Zero is a nanosecond.
    pub fn set_timeout(&self, timeout: Duration) -> Result<()> {
        check(|error| unsafe { sys::gsel_comm_set_timeout(self.raw(), bound(timeout), error) })
    }

    fn another(&self, call: impl FnOnce(*mut *mut sys::gsel_comm, *mut *mut sys::gsel_error) -> i32) -> Result<Comm> {
        made(call).map(|comm| Comm::owned(comm, self.has_device))
    }
    /// Makes a communicator of the ranks that gave this colour, ordered by (key, rank); `None` for a rank without a colour.
    /// Collective.
    pub fn split(&self, colour: Option<u32>, key: i32) -> Result<Option<Comm>> {
        let colour = as_colour(colour)?;
        let out = made(|out, error| unsafe { sys::gsel_comm_split(self.raw(), colour, key, out, error) })?;
        Ok(Comm::maybe(out, self.has_device))
    }
    /// Makes a communicator of these ranks, in that order. Only they call it, each with the same list.
    pub fn create_group(&self, ranks: &[i32]) -> Result<Comm> {
        self.another(|out, error| unsafe {
            sys::gsel_comm_create_group(self.raw(), ranks.as_ptr(), ranks.len(), out, error)
        })
    }
    /// Makes another communicator of the same ranks. Collective.
    pub fn dup(&self) -> Result<Comm> {
        self.another(|out, error| unsafe { sys::gsel_comm_dup(self.raw(), out, error) })
    }
    /// After a failure, makes a communicator of the ranks that still answer. Every survivor calls it once.
    pub fn shrink(&self) -> Result<Comm> {
        self.another(|out, error| unsafe { sys::gsel_comm_shrink(self.raw(), out, error) })
    }
    /// The same without these ranks, whether they live or not.
    pub fn shrink_without(&self, ranks: &[i32]) -> Result<Comm> {
        self.another(|out, error| unsafe {
            sys::gsel_comm_shrink_without(self.raw(), ranks.as_ptr(), ranks.len(), out, error)
        })
    }
    /// Makes a larger communicator: these ranks keep their numbers, new ones join with the id and size of `options`.
    pub fn grow(&self, options: &CommBuilder<'_>) -> Result<Comm> {
        let raw = options.options(&options.id);
        self.another(|out, error| unsafe { sys::gsel_comm_grow(self.raw(), &raw, out, error) })
    }
    /// Makes one communicator of this one and another one, whose ranks merge it with the same id and the sum of both
    /// sizes. The ranks of the one that is not high keep their numbers, those of the other one follow.
    pub fn merge(&self, high: bool, options: &CommBuilder<'_>) -> Result<Comm> {
        let raw = options.options(&options.id);
        self.another(|out, error| unsafe { sys::gsel_comm_merge(self.raw(), high.into(), &raw, out, error) })
    }
    /// Makes the communicator usable again for all its ranks after a mismatch, timeout or abort. Every rank calls it.
    pub fn resync(&self) -> Result<()> {
        check(|error| unsafe { sys::gsel_comm_resync(self.raw(), error) })
    }

    /// Sets the stream of later calls: a CUstream or cudaStream_t; null: the device's default stream.
    ///
    /// # Safety
    /// The stream is one of the communicator's device, and lives until another is set or the communicator is dropped.
    pub unsafe fn set_stream(&self, stream: *mut std::os::raw::c_void) -> Result<()> {
        check(|error| sys::gsel_comm_set_stream(self.raw(), stream, error))
    }
    /// Waits until all calls on the communicator's stream have ended, and returns what failed.
    pub fn synchronize(&self) -> Result<()> {
        check(|error| unsafe { sys::gsel_comm_synchronize(self.raw(), error) })
    }
    /// What failed so far on the stream; does not wait.
    pub fn async_error(&self) -> Result<()> {
        check(|error| unsafe { sys::gsel_comm_get_async_error(self.raw(), error) })
    }

    /// How a call would run on this rank, without running it.
    pub fn explain(&self, call: Collective<'_>) -> Result<Explanation> {
        let call = call.finish(self.rank, self.world_size)?;
        let out = filled::<sys::gsel_comm_explanation>(|out, error| unsafe {
            sys::gsel_comm_explain(self.raw(), &call, out, error)
        })?;
        Ok(Explanation {
            protocol: text::fixed(out.protocol).to_owned(),
            reason: text::fixed(out.reason).to_owned(),
            chunk_bytes: out.chunk_bytes,
            seconds: out.seconds,
            sent_bytes: out.sent_bytes,
            transport: text::fixed(out.transport).to_owned(),
            transport_reason: text::fixed(out.transport_reason).to_owned(),
        })
    }
    /// Calls of one kind (`gsel::sys::GSEL_COLLECTIVE_*`) that this rank has made, and payload bytes that it has sent.
    pub fn counts(&self, kind: i32) -> Result<Counts> {
        filled(|out, error| unsafe { sys::gsel_comm_counts(self.raw(), kind, out, error) }).map(|out| Counts::of(&out))
    }
    /// The last 256 calls of every rank, with times, as JSON (`docs/trace.md`). Stops no rank.
    pub fn trace(&self) -> Result<String> {
        made(|out, error| unsafe { sys::gsel_comm_trace(self.raw(), out, error) }).map(trace_text)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.shared.under_way.load(Ordering::Acquire) > 0 {
            self.aborter()
                .abort("the communicator was dropped while a request was under way");
        }
    }
}

/// The same of the communicators of another process of this user.
pub fn trace_process(pid: u32) -> Result<String> {
    let pid = i32::try_from(pid).unwrap_or(i32::MAX);
    made(|out, error| unsafe { sys::gsel_trace_process(pid, out, error) }).map(trace_text)
}

fn trace_text(trace: *mut sys::gsel_trace) -> String {
    unsafe {
        let json = text::owned(sys::gsel_trace_json(trace));
        sys::gsel_trace_free(trace);
        json
    }
}

/// How a call would run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// "alone", "line", "slots", "staged", "direct", "single copy" or "stream" (`docs/communicator.md`).
    pub protocol: String,
    /// Why this protocol.
    pub reason: String,
    /// Bytes that are processed at a time; 0: the whole.
    pub chunk_bytes: u64,
    /// Predicted from the tuning file; 0: not known.
    pub seconds: f64,
    /// Payload bytes that this rank sends.
    pub sent_bytes: u64,
    /// "shm", "host", or a transport plugin such as "nccl".
    pub transport: String,
    /// Why this transport.
    pub transport_reason: String,
}

/// Numbers of calls made and of payload bytes sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Calls made.
    pub calls: u64,
    /// Payload bytes sent.
    pub bytes_sent: u64,
}

impl Counts {
    pub(crate) fn of(count: &sys::gsel_comm_count) -> Counts {
        Counts {
            calls: count.calls,
            bytes_sent: count.bytes_sent,
        }
    }
}
