//! Calls that run while the program computes.
//!
//! The library reads and writes the buffers of a request until it has ended, and a value in Rust can be forgotten without
//! being dropped. So a request never holds a plain borrow. A [`Request`] owns its buffers and gives them back with `wait`;
//! forgotten, it leaks them and the communicator. [`Comm::scope`] lends slices for a closure and returns after all its
//! requests have ended. A [`Persistent`] request owns its buffers, too, and can be started any number of times.
//!
//! A request runs on any thread, so an operation of the program's that panics in one is an error of the request,
//! [`Code::CALLBACK`]; [`UserOp::new`](crate::UserOp::new) says when other ranks get it. The panic continues nowhere, except
//! from [`Persistent::run`], which is a call.
use crate::comm::{as_colour, Shared};
use crate::error::{check, made, Code, Error};
use crate::queue::Task;
use crate::{guard, Collective, Comm, CompletionQueue, Result};
use gsel_sys as sys;
use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A request's handle: ended or not, it is released once, and counted while it is under way.
struct Handle {
    request: *mut sys::gsel_request,
    is_message: bool,
    under_way: AtomicBool,
    comm: Arc<Shared>,
}
// A request may be waited for on another thread than the one that started it.
unsafe impl Send for Handle {}

impl Handle {
    fn new(request: *mut sys::gsel_request, is_message: bool, comm: &Comm) -> Handle {
        Handle {
            request,
            is_message,
            under_way: AtomicBool::new(false),
            comm: comm.shared.clone(),
        }
    }
    fn begun(&self) {
        if !self.under_way.swap(true, Ordering::AcqRel) {
            self.comm.under_way.fetch_add(1, Ordering::AcqRel);
        }
    }
    fn ended(&self) {
        if self.under_way.swap(false, Ordering::AcqRel) {
            self.comm.under_way.fetch_sub(1, Ordering::AcqRel);
        }
    }
    fn test(&self) -> Result<bool> {
        let mut done = 0;
        let result = check(|error| unsafe { sys::gsel_request_test(self.request, &mut done, error) });
        if done == 1 {
            self.ended();
        }
        result.map(|()| done == 1)
    }
    fn wait(&self) -> Result<()> {
        let result = check(|error| unsafe { sys::gsel_request_wait(self.request, error) });
        if result.is_ok() || self.test().is_err() {
            self.ended(); // and not where nobody can wait: in an operation that the call runs
        }
        result
    }
    fn wait_for(&self, time: Duration) -> Result<bool> {
        let mut done = 0;
        let seconds = time.as_secs_f64();
        let result = check(|error| unsafe { sys::gsel_request_wait_for(self.request, seconds, &mut done, error) });
        if done == 1 {
            self.ended();
        }
        result.map(|()| done == 1)
    }
    /// Whether this thread is in an operation that runs before the end of the call, which nothing here can await.
    fn is_around_this(&self) -> bool {
        let is_open = || self.under_way.load(Ordering::Acquire);
        is_open() && self.wait_for(Duration::from_nanos(1)).is_err() && is_open()
    }
    fn event(&self) -> Result<*mut c_void> {
        made(|out, error| unsafe { sys::gsel_request_event(self.request, out, error) })
    }
    fn cancel(&self) -> Result<bool> {
        let mut cancelled = 0;
        check(|error| unsafe { sys::gsel_request_cancel(self.request, &mut cancelled, error) })?;
        if cancelled == 1 {
            self.ended();
        }
        Ok(cancelled == 1)
    }
}

impl Drop for Handle {
    /// A message that nobody has met is taken back; a collective is waited for, at most as long as its timeout.
    fn drop(&mut self) {
        if self.is_message && self.under_way.load(Ordering::Acquire) {
            let _ = self.cancel();
        }
        unsafe { sys::gsel_request_free(self.request) }
        self.ended();
    }
}

/// Buffers that a request uses, on the heap, where they stay while the value moves.
struct Buffers<B>(*mut B);
unsafe impl<B: Send> Send for Buffers<B> {}

impl<B> Drop for Buffers<B> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

impl<B> Buffers<B> {
    /// Leaks the buffers of a call that is still running, since they are dropped in an operation of its own.
    fn leak_around(&mut self, handle: &Handle) {
        if handle.is_around_this() {
            self.0 = std::ptr::null_mut();
        }
    }
}

/// A call under way, with the buffers that it uses: a vector, an array, a tuple of them with counts, or any value of the
/// program's. Dropped before its end, it takes a message back, or waits for a collective, at most as long as its timeout.
/// Dropped in an operation that the call runs, it leaks its buffers, and the log says so; to wait for it there is
/// [`Code::STATE`].
///
/// It is a [`Future`] of what [`wait`](Request::wait) returns, for any executor: a thread of this crate's wakes the tasks. A
/// panic of a waker is swallowed there. A forked child has a thread of its own, from its first task on.
pub struct Request<B> {
    handle: Handle, // dropped first: its buffers are used until then
    buffers: Buffers<B>,
    task: Option<Task>,
}

impl<B> Request<B> {
    /// Whether the call has ended; its error, if it has ended with one. Never blocks.
    pub fn test(&mut self) -> Result<bool> {
        self.handle.test()
    }
    /// Waits for the end and gives the buffers back. Any thread.
    pub fn wait(mut self) -> Result<B> {
        self.handle.wait()?;
        Ok(self.take_buffers())
    }
    /// Waits at most `time` for the end: whether the call has ended, or its error if it has ended with one. Zero looks
    /// and does not wait.
    pub fn wait_for(&mut self, time: Duration) -> Result<bool> {
        self.handle.wait_for(time)
    }
    /// Puts the token into the queue when the call ends, or at once if it has. A request has one queue, and awaiting it
    /// needs it for itself.
    pub fn notify(&mut self, queue: &CompletionQueue, token: u64) -> Result<()> {
        self.task = None;
        queue.add(self.handle.request, token)
    }
    /// Once the call has ended.
    fn take_buffers(&mut self) -> B {
        let pointer = std::mem::replace(&mut self.buffers.0, std::ptr::null_mut());
        assert!(!pointer.is_null(), "a request was polled after completion");
        *unsafe { Box::from_raw(pointer) }
    }
    /// The event that the call's stream has passed the call, such as a `CUevent`, until a test or wait has told the end.
    /// The event is reached as well where the communicator breaks, and results are then undefined:
    /// [`Comm::async_error`](crate::Comm::async_error) tells.
    pub fn event(&self) -> Result<*mut c_void> {
        self.handle.event()
    }
    /// Takes the call back if nobody has met it yet, and gives the buffers back; else the request, which goes on.
    pub fn cancel(self) -> Result<std::result::Result<B, Request<B>>> {
        if self.handle.cancel()? {
            return self.wait().map(Ok);
        }
        Ok(Err(self))
    }
}

impl<B> Drop for Request<B> {
    fn drop(&mut self) {
        self.buffers.leak_around(&self.handle);
    }
}

// The buffers are on the heap.
impl<B> Unpin for Request<B> {}

impl<B> Future for Request<B> {
    type Output = Result<B>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<B>> {
        let is_added = self.task.as_ref().map_or(false, |task| task.set(context.waker()));
        if !is_added {
            match Task::add(self.handle.request, context.waker()) {
                Ok(task) => self.task = Some(task),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        match self.handle.test() {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(Ok(self.take_buffers())),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// Waits until one of the requests has ended: its position, and how it ended.
/// [`Code::ARG`] if there is none whose end has not been reported.
pub fn wait_any<B>(requests: &mut [Request<B>]) -> Result<(usize, Result<()>)> {
    let raw: Vec<_> = requests.iter().map(|request| request.handle.request).collect();
    let mut index = usize::MAX;
    let result = check(|error| unsafe { sys::gsel_request_wait_any(raw.as_ptr(), raw.len(), &mut index, error) });
    if index >= raw.len() {
        return Err(result
            .err()
            .unwrap_or_else(|| Error::new(Code::ARG, "no request is left".to_owned())));
    }
    requests[index].handle.ended();
    Ok((index, result))
}

/// A call that can be started any number of times; its arguments are checked once. It borrows the communicator, since to
/// start it is a call.
pub struct Persistent<'c, B> {
    handle: Handle,
    buffers: Buffers<B>,
    comm: PhantomData<&'c Comm>,
}

impl<B> Persistent<'_, B> {
    /// Starts the call. [`Code::STATE`] if it is under way.
    pub fn start(&mut self) -> Result<()> {
        check(|error| unsafe { sys::gsel_request_start(self.handle.request, error) })?;
        self.handle.begun();
        Ok(())
    }
    /// Runs the call on this thread: start and wait without a second thread.
    pub fn run(&mut self) -> Result<()> {
        guard::resuming(|| check(|error| unsafe { sys::gsel_request_run(self.handle.request, error) }))
    }
    /// Whether the call has ended, or was never started. Never blocks.
    pub fn test(&mut self) -> Result<bool> {
        self.handle.test()
    }
    /// Waits for the end.
    pub fn wait(&mut self) -> Result<()> {
        self.handle.wait()
    }
    /// Waits for the end, so long at most: whether it has come; its error, if the call has ended with one. Zero looks and
    /// does not wait.
    pub fn wait_for(&mut self, time: Duration) -> Result<bool> {
        self.handle.wait_for(time)
    }
    /// Puts the token into the queue at the end of the call and of every later one that is started.
    pub fn notify(&mut self, queue: &CompletionQueue, token: u64) -> Result<()> {
        queue.add(self.handle.request, token)
    }
    /// The event that the call's stream has passed the call, such as a `CUevent`, until a test or wait has told the end.
    /// The event is reached as well where the communicator breaks, and results are then undefined:
    /// [`Comm::async_error`](crate::Comm::async_error) tells.
    pub fn event(&self) -> Result<*mut c_void> {
        self.handle.event()
    }
    /// Takes the call back if nobody has met it yet; it can be started again.
    pub fn cancel(&mut self) -> Result<bool> {
        self.handle.cancel()
    }
    /// The buffers, between calls. [`Code::STATE`] while one is under way: a test or wait has to report its end first.
    ///
    /// # Safety
    /// The call keeps the addresses that its buffers had when it was made. Elements may be read and written; a buffer may
    /// not be replaced, grown, or moved elsewhere.
    pub unsafe fn buffers(&mut self) -> Result<&mut B> {
        if self.handle.under_way.load(Ordering::Acquire) {
            return Err(Error::new(
                Code::STATE,
                "the request is under way; wait for it first".to_owned(),
            ));
        }
        Ok(&mut *self.buffers.0)
    }
}

impl<B> Drop for Persistent<'_, B> {
    fn drop(&mut self) {
        self.buffers.leak_around(&self.handle);
    }
}

/// A communicator in the making. Dropped, it waits for the end, and leaves what was made.
pub struct Making {
    handle: Handle,
    has_device: bool,
}

impl Making {
    /// Whether it has ended; its error, if it has ended with one. Never blocks.
    pub fn test(&mut self) -> Result<bool> {
        self.handle.test()
    }
    /// Waits for the end, so long at most: whether it has come.
    pub fn wait_for(&mut self, time: Duration) -> Result<bool> {
        self.handle.wait_for(time)
    }
    /// Puts the token into the queue at the end.
    pub fn notify(&mut self, queue: &CompletionQueue, token: u64) -> Result<()> {
        queue.add(self.handle.request, token)
    }
    /// Waits for the end: the communicator; `None` where a split has none for this rank.
    pub fn wait(self) -> Result<Option<Comm>> {
        self.handle.wait()?;
        let made = made(|out, error| unsafe { sys::gsel_request_take_comm(self.handle.request, out, error) })?;
        Ok(Comm::maybe(made, self.has_device))
    }
}

/// Where requests on borrowed slices are started, see [`Comm::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    comm: &'scope Comm,
    handles: RefCell<Vec<Rc<Handle>>>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A request of a scope. Dropped or forgotten, it goes on, and the scope waits for it.
pub struct Scoped<'scope> {
    handle: Rc<Handle>,
    scope: PhantomData<&'scope ()>,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts a call on slices that live longer than the scope.
    pub fn start(&'scope self, call: Collective<'env>) -> Result<Scoped<'scope>> {
        let is_message = call.is_message();
        let call = call.finish(self.comm.rank(), self.comm.world_size())?;
        let request = made(|out, error| unsafe { sys::gsel_comm_start(self.comm.raw(), &call, out, error) })?;
        Ok(self.begun(request, is_message))
    }
    /// Starts several calls as one request: its messages run in any order of arrival, its collectives in the order given.
    pub fn start_group(&'scope self, calls: impl IntoIterator<Item = Collective<'env>>) -> Result<Scoped<'scope>> {
        let (rank, ranks) = (self.comm.rank(), self.comm.world_size());
        let calls = calls
            .into_iter()
            .map(|call| call.finish(rank, ranks))
            .collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const sys::gsel_collective> = calls.iter().map(|call| call as *const _).collect();
        let request = made(|out, error| unsafe {
            sys::gsel_group_start(self.comm.raw(), pointers.as_ptr(), pointers.len(), out, error)
        })?;
        Ok(self.begun(request, false))
    }
    fn begun(&'scope self, request: *mut sys::gsel_request, is_message: bool) -> Scoped<'scope> {
        let handle = Rc::new(Handle::new(request, is_message, self.comm));
        handle.begun();
        self.handles.borrow_mut().push(handle.clone());
        Scoped {
            handle,
            scope: PhantomData,
        }
    }
}

impl Scoped<'_> {
    /// Whether the call has ended; its error, if it has ended with one. Never blocks.
    pub fn test(&mut self) -> Result<bool> {
        self.handle.test()
    }
    /// Waits for the end.
    pub fn wait(self) -> Result<()> {
        self.handle.wait()
    }
    /// Takes the call back if nobody has met it yet.
    pub fn cancel(&mut self) -> Result<bool> {
        self.handle.cancel()
    }
}

/// Ends every request of a scope, also when its closure panics.
struct End<'a>(&'a RefCell<Vec<Rc<Handle>>>);
impl Drop for End<'_> {
    fn drop(&mut self) {
        for handle in self.0.borrow_mut().drain(..) {
            if handle.under_way.load(Ordering::Acquire) {
                if handle.is_message && std::thread::panicking() {
                    let _ = handle.cancel();
                }
                let _ = handle.wait();
            }
        }
    }
}

impl Comm {
    /// Starts a call on buffers that the request owns until its end:
    ///
    /// ```
    /// # fn main() -> gsel::Result<()> {
    /// # let comm = gsel::Comm::builder().ranks(0, 1, gsel::UniqueId::create()?).join()?;
    /// let gradients = vec![1f32; 1000];
    /// let request = comm.start(gradients, |g| gsel::Collective::allreduce_in_place(g, gsel::Op::SUM))?;
    /// // ... compute ...
    /// let gradients = request.wait()?;
    /// # assert_eq!(gradients[0], 1.0);
    /// # Ok(()) }
    /// ```
    pub fn start<B: Send + 'static>(
        &self,
        buffers: B,
        call: impl for<'a> FnOnce(&'a mut B) -> Collective<'a>,
    ) -> Result<Request<B>> {
        let buffers = Buffers(Box::into_raw(Box::new(buffers)));
        let call = call(unsafe { &mut *buffers.0 });
        let is_message = call.is_message();
        let call = call.finish(self.rank(), self.world_size())?;
        let request = made(|out, error| unsafe { sys::gsel_comm_start(self.raw(), &call, out, error) })?;
        let handle = Handle::new(request, is_message, self);
        handle.begun();
        Ok(Request {
            handle,
            buffers,
            task: None,
        })
    }

    fn making(
        &self,
        start: impl FnOnce(*mut *mut sys::gsel_request, *mut *mut sys::gsel_error) -> i32,
    ) -> Result<Making> {
        let handle = Handle::new(made(start)?, false, self);
        handle.begun();
        Ok(Making {
            handle,
            has_device: self.has_device,
        })
    }
    /// [`Comm::split`] while the caller goes on, at its place among the collectives that are started.
    pub fn start_split(&self, colour: Option<u32>, key: i32) -> Result<Making> {
        let colour = as_colour(colour)?;
        self.making(|out, error| unsafe { sys::gsel_comm_start_split(self.raw(), colour, key, out, error) })
    }
    /// [`Comm::dup`] while the caller goes on, at its place among the collectives that are started.
    pub fn start_dup(&self) -> Result<Making> {
        self.making(|out, error| unsafe { sys::gsel_comm_start_dup(self.raw(), out, error) })
    }
    /// [`Comm::create_group`] while the caller goes on.
    pub fn start_create_group(&self, ranks: &[i32]) -> Result<Making> {
        self.making(|out, error| unsafe {
            sys::gsel_comm_start_create_group(self.raw(), ranks.as_ptr(), ranks.len(), out, error)
        })
    }
    /// [`Comm::shrink_without`] while the caller goes on; of no ranks it is [`Comm::shrink`].
    pub fn start_shrink(&self, without: &[i32]) -> Result<Making> {
        self.making(|out, error| unsafe {
            sys::gsel_comm_start_shrink(self.raw(), without.as_ptr(), without.len(), out, error)
        })
    }

    /// Makes a call that can be started any number of times, on buffers that it owns.
    pub fn persistent<B: Send + 'static>(
        &self,
        buffers: B,
        call: impl for<'a> FnOnce(&'a mut B) -> Collective<'a>,
    ) -> Result<Persistent<'_, B>> {
        let buffers = Buffers(Box::into_raw(Box::new(buffers)));
        let call = call(unsafe { &mut *buffers.0 });
        let is_message = call.is_message();
        let call = call.finish(self.rank(), self.world_size())?;
        let request = made(|out, error| unsafe { sys::gsel_request_create(self.raw(), &call, out, error) })?;
        Ok(Persistent {
            handle: Handle::new(request, is_message, self),
            buffers,
            comm: PhantomData,
        })
    }

    /// Runs a closure that starts requests on slices of its surroundings; returns when all of them have ended. The errors
    /// of requests that the closure did not wait for are lost; a blocking call on the communicator tells them again if they
    /// broke it.
    ///
    /// ```
    /// # fn main() -> gsel::Result<()> {
    /// # let comm = gsel::Comm::builder().ranks(0, 1, gsel::UniqueId::create()?).join()?;
    /// let (mut a, mut b) = ([1f32; 4], [2f32; 4]);
    /// comm.scope(|scope| {
    ///     let first = scope.start(gsel::Collective::allreduce_in_place(&mut a, gsel::Op::SUM))?;
    ///     let second = scope.start(gsel::Collective::allreduce_in_place(&mut b, gsel::Op::SUM))?;
    ///     first.wait()?;
    ///     second.wait()
    /// })?;
    /// # Ok(()) }
    /// ```
    pub fn scope<'env, R>(&self, body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
        let scope = Scope {
            comm: self,
            handles: RefCell::new(Vec::new()),
            env: PhantomData,
        };
        let _end = End(unsafe { &*(&scope.handles as *const _) });
        body(unsafe { &*(&scope as *const Scope<'_, 'env>) })
    }
}
