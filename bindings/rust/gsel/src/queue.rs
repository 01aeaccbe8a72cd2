//! Requests that have ended, for programs that wait in an event loop, and what wakes a task that awaits a request.
use crate::error::{check, made};
use crate::{guard, Result};
use gsel_sys as sys;
use std::collections::HashMap;
use std::os::raw::c_void;
use std::os::unix::io::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;
use std::{process, ptr};

/// A completion queue: the tokens of requests that have ended, in the order in which they did, behind a file descriptor
/// that an event loop waits for. [`Request::notify`](crate::Request::notify) adds a request.
///
/// ```
/// # fn main() -> gsel::Result<()> {
/// # let comm = gsel::Comm::builder().ranks(0, 1, gsel::UniqueId::create()?).join()?;
/// let queue = gsel::CompletionQueue::new()?;
/// let mut request = comm.start([1f32; 4], |x| gsel::Collective::allreduce_in_place(x, gsel::Op::SUM))?;
/// request.notify(&queue, 7)?; // poll(queue.as_raw_fd(), POLLIN) says when there is something
/// assert_eq!(queue.next(None)?, Some(7));
/// request.wait()?; // returns at once
/// # Ok(()) }
/// ```
pub struct CompletionQueue {
    queue: *mut sys::gsel_queue,
}
// Any number of threads may use a queue at the same time.
unsafe impl Send for CompletionQueue {}
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// An empty queue.
    pub fn new() -> Result<CompletionQueue> {
        let queue = made(|out, error| unsafe { sys::gsel_queue_create(out, error) })?;
        Ok(CompletionQueue { queue })
    }
    /// The token of the first request that has ended, within so long; zero looks and does not wait; `None`: whenever one does.
    pub fn next(&self, within: Option<Duration>) -> Result<Option<u64>> {
        let (mut found, mut user) = (0, std::ptr::null_mut());
        let seconds = within.map_or(-1.0, |time| time.as_secs_f64());
        check(|error| unsafe { sys::gsel_queue_next(self.queue, seconds, &mut found, &mut user, error) })?;
        Ok(if found == 0 { None } else { Some(user as u64) })
    }
    pub(crate) fn add(&self, request: *mut sys::gsel_request, token: u64) -> Result<()> {
        check(|error| unsafe { sys::gsel_request_notify(request, self.queue, token as *mut c_void, error) })
    }
}

impl AsRawFd for CompletionQueue {
    /// Readable while there is a token. Neither to be read nor closed.
    fn as_raw_fd(&self) -> RawFd {
        unsafe { sys::gsel_queue_fd(self.queue) }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        unsafe { sys::gsel_queue_free(self.queue) }
    }
}

// ---- tasks --------------------------------------------------------------------------------------------------------

/// What wakes the tasks of one process. A forked child makes its own: the parent's thread is not there, and another thread of
/// the parent may have held the parent's locks. A waker is code of the program, so it is cloned, woken and dropped outside of
/// the locks; it may own tasks whose drop takes them.
struct Reactor {
    process: u32,
    queue: CompletionQueue,
    has_thread: Mutex<bool>,
    wakers: Mutex<HashMap<u64, Waker>>,
    /// Kept, since objects of the parent may refer to it.
    _of_parent: *const Reactor,
}
// _of_parent is never read.
unsafe impl Send for Reactor {}
unsafe impl Sync for Reactor {}

static REACTOR: AtomicPtr<Reactor> = AtomicPtr::new(ptr::null_mut());
static NEXT: AtomicU64 = AtomicU64::new(1);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Reactor {
    /// That of this process, with its thread, from the first task on.
    fn running() -> Result<&'static Reactor> {
        let mut found = REACTOR.load(Ordering::Acquire);
        loop {
            match unsafe { found.as_ref() } {
                Some(reactor) if reactor.is_of_this_process() => {
                    reactor.start_thread()?;
                    return Ok(reactor);
                }
                _ => {}
            }
            let made = Box::into_raw(Box::new(Reactor {
                process: process::id(),
                queue: CompletionQueue::new()?,
                has_thread: Mutex::new(false),
                wakers: Mutex::new(HashMap::new()),
                _of_parent: found,
            }));
            found = match REACTOR.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => made,
                Err(of_another_thread) => {
                    drop(unsafe { Box::from_raw(made) });
                    of_another_thread
                }
            };
        }
    }
    fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }
    fn start_thread(&'static self) -> Result<()> {
        let mut has_thread = locked(&self.has_thread);
        if !*has_thread {
            std::thread::Builder::new()
                .name("gsel-wake".to_owned())
                .spawn(move || self.wake_tasks())
                .map_err(|e| crate::Error::new(crate::Code::NOMEM, format!("no thread to wake tasks: {}", e)))?;
            *has_thread = true;
        }
        Ok(())
    }
    fn wake_tasks(&self) {
        while let Ok(Some(token)) = self.queue.next(None) {
            let waker = locked(&self.wakers).remove(&token);
            guard::quiet(|| waker.into_iter().for_each(Waker::wake)); // a panic of one waker leaves the others theirs
        }
    }
}

/// One awaited request's place among the tasks.
pub(crate) struct Task {
    reactor: &'static Reactor,
    token: u64,
}

impl Task {
    /// The waker is woken once the request has ended, which may be at once.
    pub(crate) fn add(request: *mut sys::gsel_request, waker: &Waker) -> Result<Task> {
        let task = Task {
            reactor: Reactor::running()?,
            token: NEXT.fetch_add(1, Ordering::Relaxed),
        };
        task.set(waker);
        task.reactor.queue.add(request, task.token)?;
        Ok(task)
    }
    /// Another waker in the place of the one that is there. False in a child of the process that added the task: nothing
    /// wakes it there.
    pub(crate) fn set(&self, waker: &Waker) -> bool {
        if !self.reactor.is_of_this_process() {
            return false;
        }
        let waker = waker.clone();
        let earlier = locked(&self.reactor.wakers).insert(self.token, waker);
        guard::quiet(|| drop(earlier));
        true
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.reactor.is_of_this_process() {
            let waker = locked(&self.reactor.wakers).remove(&self.token);
            guard::quiet(|| drop(waker));
        }
    }
}
