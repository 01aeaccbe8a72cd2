//! What goes wrong ends in an error value on every rank: aborts, dropped communicators, ranks that leave, panics in closures.
mod support;
use gsel::{wait_any, Code, Collective, Comm, Op, UniqueId, UserOp};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use support::ranks;

#[test]
fn an_aborter_ends_a_call_from_another_thread() {
    let aborted = Arc::new(Barrier::new(2));
    let errors = ranks(2, move |comm| {
        if comm.rank() == 0 {
            aborted.wait();
            return comm.barrier().unwrap_err();
        }
        // Waits for rank 0, which does not come before the call has ended.
        let aborter = comm.aborter();
        let thread = std::thread::spawn(move || aborter.abort("enough"));
        let error = comm.barrier().unwrap_err();
        aborted.wait();
        assert!(thread.join().unwrap());
        let aborter = comm.aborter();
        drop(comm);
        assert!(!aborter.abort("too late"));
        error
    });
    for error in errors {
        assert!(
            error.code == Code::ABORTED && error.message.contains("enough"),
            "{:?}",
            error
        );
    }
}

#[test]
fn a_communicator_dropped_in_mid_flight_is_an_error_of_its_requests_and_of_the_other_ranks() {
    let errors = ranks(2, |comm| {
        if comm.rank() == 0 {
            let request = comm
                .start(vec![1f32; 5000], |x| Collective::allreduce_in_place(x, Op::SUM))
                .unwrap();
            drop(comm);
            return request.wait().unwrap_err();
        }
        comm.recv(&mut [0u8], 0).unwrap_err()
    });
    assert_eq!(errors[0].code, Code::ABORTED);
    assert!(
        errors[0].message.contains("dropped while a request was under way"),
        "{:?}",
        errors[0]
    );
    assert!(
        errors[1].code == Code::ABORTED || errors[1].code == Code::PEER,
        "{:?}",
        errors[1]
    );
}

#[test]
fn a_rank_that_leaves_is_named_and_the_others_go_on() {
    ranks(3, |comm| {
        if comm.rank() == 1 {
            return;
        }
        let error = comm.barrier().unwrap_err();
        assert_eq!((error.code, error.rank), (Code::PEER, Some(1)), "{:?}", error);
        let smaller = comm.shrink().unwrap();
        assert_eq!(smaller.world_size(), 2);
        assert_eq!(smaller.allreduce_scalar(1i32, Op::SUM).unwrap(), 2);
    });
}

#[test]
fn a_communicator_is_usable_again_after_a_timeout() {
    let seen = Arc::new(Barrier::new(2));
    ranks(2, move |comm| {
        if comm.rank() == 0 {
            let late = comm.run(Collective::recv(&mut [0i32], 1).timeout(Duration::from_millis(20)));
            let error = late.unwrap_err();
            assert_eq!((error.code, error.rank), (Code::TIMEOUT, Some(1)), "{:?}", error);
        }
        seen.wait();
        comm.resync().unwrap();
        comm.barrier().unwrap();
    });
}

#[test]
fn a_timeout_of_zero_is_the_shortest_and_not_the_default() {
    let begin = Instant::now();
    let seen = Arc::new(Barrier::new(2));
    ranks(2, move |comm| {
        if comm.rank() == 0 {
            let late = |comm: &Comm, call: Collective<'_>| {
                assert_eq!(comm.run(call).unwrap_err().code, Code::TIMEOUT);
            };
            late(&comm, Collective::recv(&mut [0i32], 1).timeout(Duration::ZERO));
            comm.set_timeout(Duration::ZERO).unwrap();
            late(&comm, Collective::recv(&mut [0i32], 1));
            comm.set_timeout(Duration::from_secs(60)).unwrap();
        }
        seen.wait();
        let joined = Comm::builder().ranks(0, 2, UniqueId::create().unwrap());
        let error = joined.join_timeout(Duration::ZERO).join().unwrap_err();
        assert_eq!(error.code, Code::TIMEOUT, "{:?}", error);
    });
    let id = UniqueId::create().unwrap();
    let join = move |rank| {
        let joined = Comm::builder().ranks(rank, 2, id).timeout(Duration::ZERO).join();
        joined.unwrap()
    };
    let other = std::thread::spawn(move || join(1));
    let (comm, _other) = (join(0), other.join().unwrap());
    assert_eq!(comm.recv(&mut [0i32], 1).unwrap_err().code, Code::TIMEOUT);
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    // defaults are 60 s
}

#[test]
fn a_panic_of_an_operation_is_an_error_or_continues() {
    let ended = ranks(2, |comm| {
        let rank = comm.rank();
        let op = UserOp::new("picky", 1, move |_: &mut [i32], _: &[i32]| {
            panic!("cannot fold on {}", rank)
        })
        .unwrap();
        match catch_unwind(AssertUnwindSafe(|| comm.allreduce(&mut [1, 2], op.op()))) {
            Ok(result) => format!("{:?}", result.unwrap_err().code),
            Err(payload) => payload.downcast_ref::<String>().unwrap().clone(),
        }
    });
    for (rank, end) in ended.iter().enumerate() {
        assert!(
            end.contains("GSEL_ERR_CALLBACK") || *end == format!("cannot fold on {}", rank),
            "{:?}",
            ended
        );
    }
    assert!(ended.iter().any(|end| end.contains("cannot fold")), "{:?}", ended);
}

/// Reduces with the operation in a request that ends in one of five ways.
fn ended(comm: &Comm, way: usize, op: UserOp) -> gsel::Result<()> {
    let mut x = vec![1i32; 100_000];
    if way == 0 {
        return comm.scope(|scope| scope.start(Collective::allreduce_in_place(&mut x, op.op()))?.wait());
    }
    let mut request = comm.start((x, op), |(x, op)| Collective::allreduce_in_place(x, op.op()))?;
    match way {
        1 => while !request.test()? {},
        2 => while !request.wait_for(Duration::from_millis(1))? {},
        3 => return wait_any(std::slice::from_mut(&mut request))?.1,
        _ => return request.wait().map(|_| ()),
    }
    Ok(())
}

#[test]
fn a_panic_of_an_operation_in_a_request_is_the_error_of_the_request_alone() {
    for way in 0..5 {
        ranks(2, move |comm| {
            let other = comm.dup().unwrap();
            let op = UserOp::new("picky", 1, |_: &mut [i32], _: &[i32]| panic!("cannot fold")).unwrap();
            assert_eq!(ended(&comm, way, op).unwrap_err().code, Code::CALLBACK);
            // A later call that fails has nothing to do with it.
            let mut x = [0i32];
            let late = Collective::recv(&mut x, 1 - comm.rank() as i32).timeout(Duration::from_millis(20));
            assert_eq!(other.run(late).unwrap_err().code, Code::TIMEOUT);
        });
    }
}

#[test]
fn requests_own_buffers_are_polled_and_started_again() {
    ranks(2, |comm| {
        let peer = 1 - comm.rank();
        let mut request = comm
            .start([comm.rank() as f64; 8], |x| Collective::allreduce_in_place(x, Op::SUM))
            .unwrap();
        while !request.test().unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(request.wait().unwrap(), [1.0; 8]);
        // On another thread, with two buffers.
        let both = (vec![comm.rank() as i32; 3], vec![0i32; 6]);
        let request = comm
            .start(both, |(send, recv)| Collective::allgather(&*send, recv))
            .unwrap();
        let (_, rows) = std::thread::spawn(move || request.wait().unwrap()).join().unwrap();
        assert_eq!(rows, [0, 0, 0, 1, 1, 1]);
        let mut again = comm
            .persistent(vec![1i64], |x| Collective::allreduce_in_place(x, Op::SUM))
            .unwrap();
        again.run().unwrap();
        again.start().unwrap();
        assert_eq!(unsafe { again.buffers() }.unwrap_err().code, Code::STATE);
        again.wait().unwrap();
        assert_eq!(unsafe { again.buffers() }.unwrap(), &[4]);
        drop(again);
        let mut pair = vec![
            comm.start(vec![7u8], |x| Collective::send(&*x, peer)).unwrap(),
            comm.start(vec![0u8], |x| Collective::recv(x, peer as i32)).unwrap(),
        ];
        let (first, result) = wait_any(&mut pair).unwrap();
        result.unwrap();
        let (second, result) = wait_any(&mut pair).unwrap();
        result.unwrap();
        assert_eq!(first + second, 1);
        assert_eq!(wait_any(&mut pair).unwrap_err().code, Code::ARG);
        assert_eq!(pair.pop().unwrap().wait().unwrap(), [7]);
        comm.barrier().unwrap();
        let receive = comm.start([0u8], |x| Collective::recv(x, peer as i32).tag(5)).unwrap();
        assert!(receive.cancel().unwrap().is_ok());
        comm.barrier().unwrap();
    });
}

#[test]
fn scopes_lend_slices_and_end_what_a_panic_leaves() {
    ranks(2, |comm| {
        let (mut a, mut b) = ([1f32; 100], vec![2i32; 5]);
        comm.scope(|scope| {
            let first = scope.start(Collective::allreduce_in_place(&mut a, Op::SUM)).unwrap();
            scope.start(Collective::allreduce_in_place(&mut b, Op::MAX)).unwrap(); // waited for by the scope
            first.wait().unwrap();
        });
        assert_eq!((a[99], b[4]), (2.0, 2));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            comm.scope(|scope| {
                let _ = scope.start(Collective::allreduce_in_place(&mut a, Op::SUM)).unwrap();
                panic!("between start and wait");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(a[0], 4.0);
    });
}

#[test]
fn a_missing_rank_is_named_when_joining() {
    let id = UniqueId::from_bytes(UniqueId::create().unwrap().to_bytes());
    let error = Comm::builder()
        .ranks(0, 2, id)
        .join_timeout(Duration::from_millis(50))
        .join()
        .unwrap_err();
    assert!(
        error.code == Code::TIMEOUT && error.message.contains("rank 1"),
        "{:?}",
        error
    );
    assert!(std::error::Error::source(&error).map_or(true, |cause| !cause.to_string().is_empty()));
}
