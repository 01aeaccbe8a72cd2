//! Awaited requests with wakers of every kind: one that panics, one that owns another awaited request, one whose clone panics.
mod support;
use gsel::{Collective, Comm, Op, Request};
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;
use support::ranks;

/// Much longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn poll<B>(request: &mut Request<B>, waker: &Waker) -> Poll<gsel::Result<B>> {
    Pin::new(request).poll(&mut Context::from_waker(waker))
}

struct Told(Mutex<Sender<()>>);
impl Wake for Told {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

/// What an executor does with one task, if it is woken in time.
fn awaited<B>(mut request: Request<B>) -> gsel::Result<B> {
    let (tell, told) = channel();
    let waker = Waker::from(Arc::new(Told(Mutex::new(tell))));
    loop {
        match poll(&mut request, &waker) {
            Poll::Ready(result) => return result,
            Poll::Pending => told.recv_timeout(LONG).expect("a task is never woken"),
        }
    }
}

fn sum(comm: &Comm) -> Request<[f32; 4]> {
    comm.start([1.0; 4], |x| Collective::allreduce_in_place(x, Op::SUM))
        .unwrap()
}

/// Says that it is woken, then panics.
struct Panics(Mutex<Sender<()>>);
impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
        panic!("the queue of the executor is full");
    }
}

#[test]
fn a_waker_that_panics_leaves_other_tasks_theirs() {
    let started = Arc::new(Barrier::new(2));
    ranks(2, move |comm| {
        if comm.rank() == 0 {
            let (tell, told) = channel();
            let mut request = sum(&comm);
            assert!(poll(&mut request, &Waker::from(Arc::new(Panics(Mutex::new(tell))))).is_pending());
            started.wait();
            told.recv_timeout(LONG).expect("the task is never woken");
        } else {
            started.wait();
            sum(&comm).wait().unwrap();
        }
        // After a request without a task, so that the next one is awaited before its end.
        for _ in 0..20 {
            assert_eq!(awaited(sum(&comm)).unwrap(), [2.0; 4]);
        }
    });
}

/// A waker that is the last owner of a task, which awaits a request.
struct Owner(Mutex<Option<Request<[f32; 4]>>>);
impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[test]
fn a_waker_that_owns_an_awaited_request_is_dropped_with_another_one() {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    std::thread::spawn(move || {
        let done = Arc::new(Barrier::new(2));
        let ended = ranks(2, move |comm| {
            if comm.rank() == 0 {
                let idle = Waker::from(Arc::new(Owner(Mutex::new(None))));
                let awaited = |tag, waker: &Waker| {
                    let call = comm.start([0.0; 4], |x| Collective::recv(x, 1).tag(tag));
                    let mut request = call.unwrap();
                    assert!(poll(&mut request, waker).is_pending());
                    request
                };
                let owner = |tag| Waker::from(Arc::new(Owner(Mutex::new(Some(awaited(tag, &idle))))));
                drop(awaited(1, &owner(2))); // with the request
                let mut request = awaited(3, &owner(4));
                assert!(poll(&mut request, &idle).is_pending()); // by another waker in its place
                drop(request);
            }
            done.wait();
        });
        tell.lock().unwrap().send(ended.len()).unwrap();
    });
    assert_eq!(told.recv_timeout(LONG).expect("the drop of a request hangs"), 2);
}

/// A waker whose clone panics.
fn uncloneable() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        panic!("no more tasks")
    }
    fn nothing(_: *const ()) {}
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
}

#[test]
fn a_waker_whose_clone_panics_leaves_other_tasks_theirs() {
    ranks(2, |comm| {
        let mut request = sum(&comm);
        assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut request, &uncloneable()))).is_err());
        assert_eq!(awaited(request).unwrap(), [2.0; 4]);
        assert_eq!(awaited(sum(&comm)).unwrap(), [2.0; 4]);
    });
}
