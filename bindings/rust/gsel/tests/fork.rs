//! A forked child awaits requests of a communicator of its own, and gets an error for those of its parent. The only test of
//! its program, so that the child is a copy of nothing else.
use gsel::{Code, Collective, Comm, Op, Request, UniqueId};
use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

struct Told(Mutex<Sender<()>>);
impl Wake for Told {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

/// How the request ends, in words.
fn awaited(request: &mut Request<[f32; 4]>) -> String {
    let (tell, told) = channel();
    let waker = Waker::from(Arc::new(Told(Mutex::new(tell))));
    loop {
        match Pin::new(&mut *request).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(x)) => return format!("{}", x[0]),
            Poll::Ready(Err(error)) => return error.code.name().to_owned(),
            Poll::Pending if told.recv_timeout(Duration::from_secs(20)).is_err() => return "never woken".to_owned(),
            Poll::Pending => {}
        }
    }
}

fn alone() -> Comm {
    Comm::builder().ranks(0, 1, UniqueId::create().unwrap()).join().unwrap()
}
fn sum(comm: &Comm) -> Request<[f32; 4]> {
    comm.start([1.0; 4], |x| Collective::allreduce_in_place(x, Op::SUM))
        .unwrap()
}

extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

#[test]
fn a_forked_child_awaits_requests_of_its_own() {
    let id = UniqueId::create().unwrap();
    let other = std::thread::spawn(move || Comm::builder().ranks(1, 2, id).join().unwrap());
    let comm = Comm::builder().ranks(0, 2, id).join().unwrap();
    let other = other.join().unwrap();
    let both = || {
        let (mut here, mut there) = (sum(&comm), sum(&other));
        assert_eq!(
            (awaited(&mut here), awaited(&mut there)),
            ("2".to_owned(), "2".to_owned())
        );
    };
    both(); // there is a thread that wakes tasks
    let mut of_parent = comm.start([0.0; 4], |x| Collective::recv(x, 1)).unwrap();
    let waker = Waker::from(Arc::new(Told(Mutex::new(channel().0))));
    assert!(Pin::new(&mut of_parent)
        .poll(&mut Context::from_waker(&waker))
        .is_pending());

    let (mut here, mut there) = UnixStream::pair().unwrap();
    let child = unsafe { fork() };
    if child == 0 {
        let comm = alone();
        let (own, again) = (awaited(&mut sum(&comm)), awaited(&mut sum(&comm)));
        let _ = write!(there, "{} {} {};", own, again, awaited(&mut of_parent));
        unsafe { _exit(0) }
    }
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    drop(there);
    let mut said = String::new();
    here.read_to_string(&mut said).unwrap();
    assert_eq!(unsafe { waitpid(child, std::ptr::null_mut(), 0) }, child);
    assert_eq!(said, format!("1 1 {};", Code::FORKED.name()));
    assert!(of_parent.cancel().unwrap().is_ok());
    both();
}
