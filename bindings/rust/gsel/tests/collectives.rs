//! Collectives, messages and groups give what C gives, on ranks that are threads; wrong lengths are refused before C.
mod support;
use gsel::{group, Code, Collective, CompletionQueue, Op, Parts, UserOp, ANY_RANK, ANY_TAG, BF16};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::Duration;
use support::ranks;

#[test]
fn reductions_of_every_form() {
    ranks(3, |comm| {
        let r = comm.rank() as i32;
        let mut x = [r + 1, 7];
        comm.allreduce(&mut x, Op::SUM).unwrap();
        assert_eq!(x, [6, 21]);
        let mut to = [0i32; 2];
        comm.allreduce_to(&[r, -r], &mut to, Op::MAX).unwrap();
        assert_eq!(to, [2, 0]);
        assert_eq!(comm.allreduce_scalar(0.5f64, Op::SUM).unwrap(), 1.5);
        let mut half = [BF16::from(1.5)];
        comm.allreduce(&mut half, Op::SUM).unwrap();
        assert_eq!(f32::from(half[0]), 4.5);
        let mut root = [0i32; 2];
        let recv = if r == 1 { &mut root[..] } else { &mut [] };
        comm.reduce(&[r, 1], recv, Op::SUM, 1).unwrap();
        assert_eq!(root, if r == 1 { [3, 3] } else { [0, 0] });
        let mut row = [0i32];
        comm.reduce_scatter(&[1, 2, 3], &mut row, Op::SUM).unwrap();
        assert_eq!(row, [3 * (r + 1)]);
        let counts = [2, 0, 1];
        let mut part = vec![0i32; counts[comm.rank()] as usize];
        comm.reduce_scatterv(&[1, 2, 3], Parts::packed(&counts), &mut part, Op::SUM)
            .unwrap();
        assert_eq!(part, [vec![3, 6], vec![], vec![9]][comm.rank()]);
        let mut rows = [10 + r, 20 + r, 30 + r];
        comm.run(Collective::reduce_scatter_in_place(&mut rows, Op::MIN).label("rows"))
            .unwrap();
        assert_eq!(rows[comm.rank()], 10 * (r + 1));
        comm.barrier().unwrap();
    });
}

#[test]
fn gathers_scatters_and_exchanges() {
    ranks(3, |comm| {
        let r = comm.rank();
        let mine = [r as u16 * 10];
        let mut all = [0u16; 3];
        comm.allgather(&mine, &mut all).unwrap();
        assert_eq!(all, [0, 10, 20]);
        let mut in_place = [9u16; 3];
        in_place[r] = mine[0];
        comm.run(Collective::allgather_in_place(&mut in_place)).unwrap();
        assert_eq!(in_place, all);
        let counts = [1, 2, 0];
        let send = vec![r as u16; counts[r] as usize];
        let mut parts = [7u16; 4];
        comm.allgatherv(
            &send,
            &mut parts,
            Parts {
                counts: &counts,
                offsets: Some(&[3, 0, 0]),
            },
        )
        .unwrap();
        assert_eq!(parts, [1, 1, 7, 0]);
        let mut on_root = if r == 2 { vec![0u16; 3] } else { vec![] };
        comm.gather(&mine, &mut on_root, 2).unwrap();
        let mut back = [0u16];
        comm.scatter(&on_root, &mut back, 2).unwrap();
        assert_eq!(back, mine);
        let mut packed = if r == 0 { vec![0u16; 3] } else { vec![] };
        comm.gatherv(&send, &mut packed, Parts::packed(&counts), 0).unwrap();
        let mut again = vec![0u16; counts[r] as usize];
        comm.scatterv(&packed, Parts::packed(&counts), &mut again, 0).unwrap();
        assert_eq!(again, send);
        let mut told = if r == 1 { [5u8; 4] } else { [0; 4] };
        comm.broadcast(&mut told, 1).unwrap();
        assert_eq!(told, [5; 4]);
        let out: Vec<u64> = (0..3).map(|q| (10 * r + q) as u64).collect();
        let mut got = [0u64; 3];
        comm.alltoall(&out, &mut got).unwrap();
        assert_eq!(got.to_vec(), (0..3).map(|q| (10 * q + r) as u64).collect::<Vec<_>>());
        let (one, mut other) = ([1u64, 1, 1], [0u64; 3]);
        comm.alltoallv(&out, Parts::packed(&one), &mut other, Parts::packed(&one))
            .unwrap();
        assert_eq!(other, got);
    });
}

#[test]
fn messages_probes_and_groups() {
    ranks(2, |comm| {
        let (r, peer) = (comm.rank(), 1 - comm.rank());
        let mut got = [0f64; 3];
        comm.sendrecv(&[r as f64; 2], peer, &mut got, peer).unwrap();
        assert_eq!(got, [peer as f64, peer as f64, 0.0]);
        if r == 0 {
            comm.send(&[1i8], 1).unwrap();
            comm.send_tag(&[4i8, 5], 1, 9).unwrap();
            assert_eq!(comm.iprobe(ANY_RANK, 77).unwrap(), None);
        } else {
            let mut first = [0i8];
            comm.recv(&mut first, 0).unwrap();
            let seen = comm.probe(ANY_RANK, ANY_TAG).unwrap();
            assert_eq!((seen.source, seen.tag, seen.count), (0, 9, 2));
            let mut second = [0i8; 5];
            assert_eq!(comm.recv_tag(&mut second, ANY_RANK, 9).unwrap(), seen);
            assert_eq!((first[0], second), (1, [4, 5, 0, 0, 0]));
        }
        let (mut sum, mut rows) = ([1u32], [r as u32; 2]);
        group([
            (&comm, Collective::allreduce_in_place(&mut sum, Op::SUM)),
            (&comm, Collective::allgather_in_place(&mut rows)),
        ])
        .unwrap();
        assert_eq!((sum, rows), ([2], [0, 1]));
    });
}

#[test]
fn closures_reduce_records() {
    ranks(3, |comm| {
        // The value and its index of the greatest value.
        let greatest = UserOp::new("greatest", 2, |a: &mut [f32], b: &[f32]| {
            for (a, b) in a.chunks_mut(2).zip(b.chunks(2)) {
                if b[0] > a[0] {
                    a.copy_from_slice(b);
                }
            }
        })
        .unwrap();
        let mut x = [[3.0, 9.0, 5.0][comm.rank()], comm.rank() as f32];
        comm.allreduce(&mut x, greatest.op()).unwrap();
        assert_eq!(x, [9.0, 1.0]);
        let scaled = UserOp::scaled_sum(0.5).unwrap();
        assert_eq!(comm.allreduce_scalar(4f32, scaled.op()).unwrap(), 6.0);
        let mut out = [0i64; 2];
        gsel::reduce_local(&[&[1, 2], &[3, 4]], &mut out, Op::PROD, gsel::Order::Tree).unwrap();
        assert_eq!(out, [3, 8]);
    });
}

#[test]
fn wrong_lengths_and_calls_are_refused() {
    ranks(2, |comm| {
        let refused = |result: gsel::Result<()>, code: Code, words: &str| {
            let error = result.unwrap_err();
            assert!(error.code == code && error.message.contains(words), "{:?}", error);
        };
        let mut x = [0f32; 3];
        refused(
            comm.allreduce_to(&[0.0], &mut x, Op::SUM),
            Code::ARG,
            "3 elements, expected 1",
        );
        refused(comm.allgather(&[0f32; 2], &mut x), Code::ARG, "expected 4");
        refused(
            comm.run(Collective::allgather_in_place(&mut x)),
            Code::ARG,
            "multiple of the 2 ranks",
        );
        refused(
            comm.allgatherv(&[0.0; 4], &mut x, Parts::packed(&[4, 4])),
            Code::ARG,
            "not within 3 elements",
        );
        refused(
            comm.run(Collective::allreduce(&[1i32; 3], &mut x, Op::SUM)),
            Code::ARG,
            "f32",
        );
        refused(comm.allreduce(&mut x, Op::BXOR), Code::ARG, "");
        // The ranks disagree: both calls are quoted, and the communicator goes on.
        let count = comm.rank() + 1;
        refused(comm.allreduce(&mut x[..count], Op::SUM), Code::MISMATCH, "count 2");
        comm.barrier().unwrap();
    });
}

#[test]
fn memory_and_queries() {
    ranks(2, |comm| {
        let mut shared = comm.alloc::<f32>(1000).unwrap();
        shared.iter_mut().for_each(|x| *x = 1.0);
        comm.allreduce(&mut shared, Op::SUM).unwrap();
        assert!(shared.iter().all(|&x| x == 2.0));
        let how = comm
            .explain(Collective::allreduce_in_place(&mut shared[..], Op::SUM))
            .unwrap();
        assert!(!how.protocol.is_empty() && how.transport == "shm", "{:?}", how);
        assert!(comm.counts(gsel_sys::GSEL_COLLECTIVE_ALLREDUCE).unwrap().bytes_sent >= 4000);
        assert!(comm.trace().unwrap().contains("allreduce"));
        assert!(gsel::trace_process(std::process::id()).unwrap().contains("allreduce"));
        let half = comm.split(Some(comm.rank() as u32), 0).unwrap().unwrap();
        assert_eq!((half.world_size(), half.rank()), (1, 0));
        assert!(comm.split(None, 0).unwrap().is_none());
        assert_eq!(comm.dup().unwrap().allreduce_scalar(1u8, Op::SUM).unwrap(), 2);
        let turned = comm.create_group(&[1, 0]).unwrap();
        assert_eq!(turned.rank(), 1 - comm.rank());
        comm.synchronize().unwrap();
        comm.async_error().unwrap();
        assert!(comm.alloc_device::<f32>(1).is_err());
    });
}

#[test]
fn communicators_are_made_while_the_caller_goes_on() {
    ranks(2, |comm| {
        let queue = CompletionQueue::new().unwrap();
        let mut split = comm.start_split(Some(7), -(comm.rank() as i32)).unwrap();
        let none = comm.start_split(None, 0).unwrap();
        let dup = comm.start_dup().unwrap();
        let group = comm.start_create_group(&[1, 0]).unwrap();
        split.notify(&queue, 3).unwrap();
        assert_eq!(comm.allreduce_scalar(1u8, Op::SUM).unwrap(), 2);
        assert_eq!(queue.next(None).unwrap(), Some(3));
        assert!(split.test().unwrap() && split.wait_for(Duration::ZERO).unwrap());
        for made in [split, group] {
            let turned = made.wait().unwrap().unwrap();
            assert_eq!(turned.rank(), 1 - comm.rank());
            assert_eq!(turned.allreduce_scalar(1u8, Op::SUM).unwrap(), 2);
        }
        assert!(none.wait().unwrap().is_none());
        let dup = dup.wait().unwrap().unwrap();
        assert_eq!(dup.rank(), comm.rank());
        drop(comm.start_dup().unwrap()); // waits, and leaves it
        let shrunk = dup.start_shrink(&[]).unwrap().wait().unwrap().unwrap();
        assert_eq!(shrunk.allreduce_scalar(1u8, Op::SUM).unwrap(), 2);
    });
}

#[test]
fn ends_come_through_a_queue() {
    ranks(2, |comm| {
        let queue = CompletionQueue::new().unwrap();
        assert_eq!(queue.next(Some(Duration::ZERO)).unwrap(), None);
        let mut requests = Vec::new();
        for token in 0..20u64 {
            let mut request = comm
                .start([token], |x| Collective::allreduce_in_place(x, Op::SUM))
                .unwrap();
            request.notify(&queue, token).unwrap();
            requests.push(request);
        }
        for (token, request) in requests.into_iter().enumerate() {
            assert_eq!(queue.next(None).unwrap(), Some(token as u64));
            assert_eq!(request.wait().unwrap(), [2 * token as u64]);
        }
        let mut again = comm
            .persistent([1i32], |x| Collective::allreduce_in_place(x, Op::SUM))
            .unwrap();
        again.notify(&queue, 99).unwrap();
        for round in 1..4 {
            again.start().unwrap();
            assert_eq!(queue.next(Some(Duration::from_secs(20))).unwrap(), Some(99));
            assert!(again.wait_for(Duration::ZERO).unwrap());
            assert_eq!(unsafe { *again.buffers().unwrap() }, [1 << round]);
        }
    });
}

#[test]
fn a_group_is_one_request() {
    ranks(2, |comm| {
        let peer = 1 - comm.rank();
        let (out, mut got, mut sum) = ([comm.rank() as i32], [-1i32], [1i32]);
        comm.scope(|scope| {
            let calls = [
                Collective::recv(&mut got, peer as i32),
                Collective::allreduce_in_place(&mut sum, Op::SUM),
                Collective::send(&out, peer),
            ];
            scope.start_group(calls).unwrap().wait().unwrap();
            assert!(scope.start_group([]).is_err());
        });
        assert_eq!((got, sum), ([peer as i32], [2]));
    });
}

struct Unpark(std::thread::Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What an executor does with one task.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match Pin::new(&mut future).poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(20)),
        }
    }
}

#[test]
fn requests_are_awaited() {
    ranks(2, |comm| {
        if comm.rank() == 1 {
            std::thread::sleep(Duration::from_millis(30));
            comm.send(&[7i32], 0).unwrap();
        } else {
            let mut request = comm.start([0i32], |x| Collective::recv(x, 1)).unwrap();
            assert!(!request.wait_for(Duration::from_millis(1)).unwrap());
            assert_eq!(block_on(request).unwrap(), [7]);
        }
        for round in 0..50 {
            let request = comm
                .start([round], |x| Collective::allreduce_in_place(x, Op::SUM))
                .unwrap();
            assert_eq!(block_on(request).unwrap(), [2 * round]);
        }
    });
}

/// Two impls for what is `Sync`, so that to name the item of it is ambiguous and does not compile.
trait NotSync<A> {
    const IS: () = ();
}
impl<T: ?Sized> NotSync<()> for T {}
impl<T: ?Sized + Sync> NotSync<u8> for T {}

/// Compiled is shown.
#[test]
fn handles_are_send_and_shared_where_c_allows_any_thread() {
    fn sent<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    macro_rules! sent_alone {
        ($($handle:ty),*) => {
            $(sent::<$handle>(); let () = <$handle as NotSync<_>>::IS;)*
        };
    }
    sent_alone!(
        gsel::Comm,
        gsel::Request<Vec<f32>>,
        gsel::Model,
        gsel::Trainer,
        gsel::Pipeline,
        gsel::Timeline
    );
    shared::<gsel::Aborter>();
    shared::<CompletionQueue>();
    shared::<gsel::Config>();
    shared::<gsel::Error>();
    shared::<gsel::Inventory>();
    shared::<gsel::Plan>();
    shared::<gsel::Program>();
    shared::<gsel::Schedule>();
    shared::<gsel::Selection>();
    shared::<UserOp>();
}
