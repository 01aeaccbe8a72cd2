//! Requests that have ended, for programs that wait in an event loop, and what wakes a task that awaits a request.
use crate::error::{check, made};
use crate::Result;
use gsel_sys as sys;
use std::collections::HashMap;
use std::os::raw::c_void;
use std::os::unix::io::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::task::Waker;
use std::time::Duration;

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
    /// The token of the first request that has ended, within so long; `None`: whenever one does.
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

static WAKERS: Mutex<Option<HashMap<u64, Waker>>> = Mutex::new(None);
static REACTOR: Mutex<Option<&'static CompletionQueue>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The queue of all tasks, and the thread that wakes them, from the first one on.
fn reactor() -> Result<&'static CompletionQueue> {
    let mut reactor = REACTOR.lock().unwrap();
    if let Some(queue) = *reactor {
        return Ok(queue);
    }
    let queue: &'static CompletionQueue = Box::leak(Box::new(CompletionQueue::new()?));
    std::thread::Builder::new()
        .name("gsel-wake".to_owned())
        .spawn(move || {
            while let Ok(Some(token)) = queue.next(None) {
                let waker = WAKERS.lock().unwrap().as_mut().and_then(|wakers| wakers.remove(&token));
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        })
        .map_err(|e| crate::Error::new(crate::Code::NOMEM, format!("no thread to wake tasks: {}", e)))?;
    *reactor = Some(queue);
    Ok(queue)
}

/// One awaited request's place among the tasks.
pub(crate) struct Task(u64);

impl Task {
    /// The waker is woken once the request has ended, which may be at once.
    pub(crate) fn add(request: *mut sys::gsel_request, waker: &Waker) -> Result<Task> {
        let queue = reactor()?;
        let task = Task(NEXT.fetch_add(1, Ordering::Relaxed));
        task.set(waker);
        queue.add(request, task.0)?;
        Ok(task)
    }
    /// Another waker in the place of the one that is there.
    pub(crate) fn set(&self, waker: &Waker) {
        let mut wakers = WAKERS.lock().unwrap();
        wakers.get_or_insert_with(HashMap::new).insert(self.0, waker.clone());
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(wakers) = WAKERS.lock().unwrap().as_mut() {
            wakers.remove(&self.0);
        }
    }
}
