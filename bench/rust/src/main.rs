//! What Comm::allreduce costs over gsel_allreduce: 8 bytes, one rank and two. Blocks of calls in C and in Rust alternate, the
//! one first that was second before; the difference is taken pair by pair, and its median and quartiles are shown.
use gsel::{Comm, Op, UniqueId};
use std::time::Instant;

extern "C" {
    fn calls_in_c(comm: *mut gsel_sys::gsel_comm, x: *mut f64, n: u64) -> i32;
}

const CALLS: u64 = 1000;

fn in_c(comm: *mut gsel_sys::gsel_comm, x: &mut [f64; 1]) -> f64 {
    let begin = Instant::now();
    let status = unsafe { calls_in_c(comm, x.as_mut_ptr(), CALLS) };
    assert_eq!(status, 0);
    begin.elapsed().as_nanos() as f64 / CALLS as f64
}

fn in_rust(comm: &Comm, x: &mut [f64; 1]) -> f64 {
    let begin = Instant::now();
    for _ in 0..CALLS {
        comm.allreduce(&mut x[..], Op::MAX).expect("the call succeeds");
    }
    begin.elapsed().as_nanos() as f64 / CALLS as f64
}

/// Nanoseconds of a call in C, and what Rust adds, of each pair.
fn measure(comm: Comm, pairs: usize) -> Vec<(f64, f64)> {
    // The handle of a communicator made by C itself has the same path; the crate lends its own.
    let raw = comm.as_raw();
    let mut x = [comm.rank() as f64];
    (0..pairs)
        .map(|i| {
            let (c, rust);
            if i % 2 == 0 {
                c = in_c(raw, &mut x);
                rust = in_rust(&comm, &mut x);
            } else {
                rust = in_rust(&comm, &mut x);
                c = in_c(raw, &mut x);
            }
            (c, rust - c)
        })
        .collect()
}

fn main() {
    let pairs = std::env::args()
        .nth(1)
        .map_or(1001, |pairs| pairs.parse().expect("a number of pairs"));
    println!("| ranks | C, ns per call | Rust adds, ns: median | quartiles |\n|---|---|---|---|");
    for ranks in 1..=2 {
        let id = UniqueId::create().expect("an id");
        let join = move |rank| {
            measure(
                Comm::builder().ranks(rank, ranks, id).join().expect("ranks join"),
                pairs,
            )
        };
        let threads: Vec<_> = (1..ranks).map(|rank| std::thread::spawn(move || join(rank))).collect();
        let times = join(0);
        threads.into_iter().for_each(|thread| drop(thread.join()));
        let sorted = |of: fn(&(f64, f64)) -> f64| {
            let mut numbers: Vec<f64> = times.iter().map(of).collect();
            numbers.sort_by(f64::total_cmp);
            numbers
        };
        let (c, added) = (sorted(|pair| pair.0), sorted(|pair| pair.1));
        let at = |numbers: &[f64], part: usize| numbers[numbers.len() * part / 4];
        println!(
            "| {} | {:.1} | {:.1} | {:.1} to {:.1} |",
            ranks,
            at(&c, 2),
            at(&added, 2),
            at(&added, 1),
            at(&added, 3)
        );
    }
}
