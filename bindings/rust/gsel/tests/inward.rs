//! A request in the operation that it runs. What is dropped there is leaked, so these are not run under valgrind.
mod support;
use gsel::{Code, Collective, Op, UserOp};
use std::sync::{Arc, Mutex};
use support::ranks;

/// Large, so that it runs on a thread of the library's while this one puts the request where the operation finds it.
#[test]
fn a_request_in_its_own_operation_is_an_error_to_wait_for_and_goes_on_when_dropped() {
    for waits in [true, false] {
        ranks(2, move |comm| {
            let slot = Arc::new(Mutex::new(None::<gsel::Request<(Vec<f32>, UserOp)>>));
            let codes = Arc::new(Mutex::new(Vec::new()));
            let (place, told) = (slot.clone(), codes.clone());
            let op = UserOp::new("inward", 1, move |sum: &mut [f32], next: &[f32]| {
                sum.iter_mut().zip(next).for_each(|(s, n)| *s += n);
                let mut request = None;
                while told.lock().unwrap().is_empty() && request.is_none() {
                    request = place.lock().unwrap().take();
                    std::thread::yield_now();
                }
                let request = match request {
                    Some(request) => request,
                    None => return,
                };
                told.lock().unwrap().push(match waits {
                    true => request.wait().unwrap_err().code,
                    false => Code::STATE, // dropped
                });
            })
            .unwrap();
            let started = comm.start((vec![1f32; 4096], op), |(x, op)| {
                Collective::allreduce_in_place(x, op.op())
            });
            *slot.lock().unwrap() = Some(started.unwrap());
            comm.barrier().unwrap();
            assert_eq!(*codes.lock().unwrap(), [Code::STATE]);
            assert_eq!(comm.allreduce_scalar(1, Op::SUM).unwrap(), 2);
        });
    }
}
