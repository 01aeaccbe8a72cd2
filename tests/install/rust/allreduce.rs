//! allreduce.rs: gsel from Rust. Ranks are threads of this process, or processes when a launcher says so; each sums,
//! sees two refusals with their messages, and trains one parameter by pull and then by push.
//!
//! The model is the smallest there is: loss = (w - x)^2 over samples x = 1, 3, 5, ...; with n ranks and n samples per
//! step the mean of x is n, and plain SGD with rate 1/4 halves the distance to it: w = n/2, then 3n/4.

mod gsel;

use gsel::{Call, Comm, Config, DataRequest, Model, Task, Tensor, Trainer};
use std::error::Error;
use std::ffi::c_void;
use std::slice;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, got: T) -> Outcome<()> {
    if expected == got {
        return Ok(());
    }
    Err(format!("{}: expected {:?}, got {:?}", what, expected, got).into())
}

/// Expects a refusal with this code and these words.
fn expect_refusal(status: i32, words: &str, got: Result<(), gsel::Error>) -> Outcome<()> {
    match got {
        Ok(()) => Err(format!("expected a refusal with \"{}\", got success", words).into()),
        Err(e) if e.status == status && e.message.contains(words) => Ok(()),
        Err(e) => Err(format!("expected {} with \"{}\", got {} about rank {}", status, words, e, e.rank).into()),
    }
}

/// The embedder's own kernels and what they keep: the samples of a step, and how often each kernel ran.
struct Distance {
    batch: i64,
    runs: [u32; 3],
}

/// Contents of the i-th tensor of a list, lent for the call.
unsafe fn elements<'a, T>(tensors: *const Tensor, i: usize) -> &'a mut [T] {
    let tensor = &*tensors.add(i);
    slice::from_raw_parts_mut(tensor.data as *mut T, tensor.n_elems as usize)
}

impl Distance {
    unsafe fn input(&mut self, request: &DataRequest) {
        self.runs[0] += 1;
        let ids = slice::from_raw_parts(request.sample_ids, request.n_samples as usize);
        for (x, id) in elements::<f32>(&request.dst, 0).iter_mut().zip(ids) {
            *x = (2 * (id % self.batch) + 1) as f32;
        }
    }
    unsafe fn forward(&mut self, call: &Call) {
        self.runs[1] += 1;
        let (w, x) = (elements::<f32>(call.params, 0)[0], elements::<f32>(call.inputs, 0));
        elements::<f64>(call.outputs, 0)[0] = x.iter().map(|x| f64::from((w - x) * (w - x))).sum();
        elements::<f64>(call.outputs, 1)[0] = x.len() as f64;
    }
    unsafe fn backward(&mut self, call: &Call) {
        self.runs[2] += 1;
        let (w, x) = (elements::<f32>(call.params, 0)[0], elements::<f32>(call.inputs, 0));
        let gradient: f32 = x.iter().map(|x| 2.0 * (w - x)).sum();
        let sum = &mut elements::<f32>(call.d_params, 0)[0];
        *sum = if call.accumulate != 0 { *sum + gradient } else { gradient };
    }
}

// The same kernels as callbacks of a push step; user_data is the Distance.
extern "C" fn input(request: *const DataRequest, user_data: *mut c_void) -> i32 {
    unsafe { (*(user_data as *mut Distance)).input(&*request) };
    0
}
extern "C" fn forward(call: *const Call, user_data: *mut c_void) -> i32 {
    unsafe { (*(user_data as *mut Distance)).forward(&*call) };
    0
}
extern "C" fn backward(call: *const Call, user_data: *mut c_void) -> i32 {
    unsafe { (*(user_data as *mut Distance)).backward(&*call) };
    0
}

/// Trains two steps; the parameter after each.
fn train(comm: &mut Comm) -> Outcome<[f32; 2]> {
    let (rank, n) = (comm.rank(), comm.world_size());
    let mut distance = Distance { batch: i64::from(n), runs: [0; 3] };
    let kernels: *mut Distance = &mut distance;
    let user_data = kernels as *mut c_void;

    let mut model = Model::new()?;
    let w = model.add_param("w", &[1])?;
    let x = model.add_value("x", &[1], gsel::F32, gsel::VALUE_INPUT)?;
    let loss = model.add_value("loss", &[], gsel::F64, gsel::VALUE_SCALAR)?;
    let weight = model.add_value("weight", &[], gsel::F64, gsel::VALUE_SCALAR)?;
    unsafe { model.add_loss("distance", (&[x], &[loss, weight], &[w]), (forward, backward), user_data)? };

    let text = format!("[train]\noptimizer = \"sgd\"\nlearning_rate = 0.25\nweight_decay = 0\nbatch = {}\n", n);
    let config = Config::parse(&text, "allreduce.rs")?;
    let mut trainer = unsafe { Trainer::new(comm, &model, &config, Some(input), user_data)? };
    let report = trainer.pull(|task| {
        match task {
            Task::Input(request) => unsafe { (*kernels).input(request) },
            Task::Forward(call) => unsafe { (*kernels).forward(call) },
            Task::Backward(call) => unsafe { (*kernels).backward(call) },
        }
        Ok(())
    })?;
    let squares: i32 = (0..n).map(|i| (2 * i + 1) * (2 * i + 1)).sum();
    expect("loss of the first step", f64::from(squares) / f64::from(n), report.loss)?;
    let (mut first, mut second) = ([0f32], [0f32]);
    trainer.read_param(w, &mut first)?;
    trainer.push()?;
    trainer.read_param(w, &mut second)?;
    drop(trainer);
    expect("runs of input, forward and backward", [2, 2, 2], distance.runs)?;

    // A kernel that fails on one rank ends the step on all of them, with its own words. The communicator is done then.
    let mut trainer = unsafe { Trainer::new(comm, &model, &config, None, std::ptr::null_mut())? };
    let failed = trainer.pull(|_| if rank == 0 { Err("no more samples".to_owned()) } else { Ok(()) });
    match failed {
        Ok(_) => return Err("expected the failed kernel to end the step".into()),
        Err(e) => expect(&e.to_string(), true, e.message.contains("no more samples"))?,
    }
    Ok([first[0], second[0]])
}

/// What every rank does.
fn rank(mut comm: Comm) -> Outcome<String> {
    let n = comm.world_size();
    let mut x = [comm.rank() + 1, 7];
    comm.allreduce(&mut x[..1], gsel::SUM)?;
    expect("sum of ranks", [n * (n + 1) / 2, 7], x)?;
    expect_refusal(gsel::ERR_ARG, "99", comm.allreduce(&mut x, 99))?;
    let count = if comm.rank() == 0 { 1 } else { 2 };
    expect_refusal(gsel::ERR_MISMATCH, "count 2", comm.allreduce(&mut x[..count], gsel::SUM))?;
    let [first, second] = train(&mut comm)?;
    Ok(format!("{} ranks: sum {}, parameter {} then {}", n, x[0], first, second))
}

fn as_threads(n: i32) -> Outcome<String> {
    let id = gsel::unique_id()?;
    let threads: Vec<_> = (0..n).map(|r| std::thread::spawn(move || rank(Comm::new(r, n, &id)?))).collect();
    let mut lines = Vec::new();
    for thread in threads {
        lines.push(thread.join().map_err(|_| "a rank panicked")??);
    }
    expect("what ranks say", lines[0].clone(), lines[lines.len() - 1].clone())?;
    Ok(lines.swap_remove(0))
}

fn as_process() -> Outcome<Option<String>> {
    let comm = Comm::from_environment()?;
    let speaks = comm.rank() == 0;
    let line = rank(comm)?;
    Ok(if speaks { Some(line) } else { None })
}

fn main() {
    let launched = std::env::var_os("WORLD_SIZE").is_some();
    let outcome = if launched { as_process() } else { as_threads(2).map(Some) };
    match outcome {
        Ok(Some(line)) => println!("{}", line),
        Ok(None) => (),
        Err(e) => {
            eprintln!("allreduce: {}", e);
            std::process::exit(1);
        }
    }
}
