//! Closures of a program that fail in every way that Rust has: their errors cannot be shown or dropped, their panics carry
//! values whose drop panics, their state panics when it is dropped. The process goes on and nothing is lost.
use gsel::{log, random_uniform, reduce_local};
use gsel::{
    Backward, Code, Comm, Config, Data, DataOutcome, DataRequest, Error, Forward, Layer, Model, Needs, Optimizer,
};
use gsel::{Order, Outcome, Param, StepReport, Task, Trainer, TrainerOptions, UniqueId, UserOp, Value, ValueId};
use std::fmt;
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How an error of a closure is faulty.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    DisplayPanics,
    DisplayFails,
    DropPanics,
}

#[derive(Debug)]
struct Faulty(Fault);

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no data")?;
        match self.0 {
            Fault::DisplayPanics => panic!("nothing to show"),
            Fault::DisplayFails => Err(fmt::Error),
            Fault::DropPanics => Ok(()),
        }
    }
}
impl std::error::Error for Faulty {}
impl Drop for Faulty {
    fn drop(&mut self) {
        if self.0 == Fault::DropPanics {
            panic!("cannot be dropped");
        }
    }
}

fn forward(call: &Forward<'_>) -> Outcome {
    call.output::<f64>(0)[0] = 1.0;
    call.output::<f64>(1)[0] = call.samples() as f64;
    Ok(())
}
fn backward(call: &Backward<'_>) -> Outcome {
    call.d_param(0).fill(0.0);
    Ok(())
}
fn data(request: &DataRequest<'_>) -> DataOutcome {
    request.elements::<f32>().fill(1.0);
    Ok(Data::Filled)
}

/// One step on one rank; the closure of this place ends with a faulty error.
fn step(place: &'static str, fault: Fault) -> gsel::Result<StepReport> {
    let fails = move |at: &str| if at == place { Err(Faulty(fault)) } else { Ok(()) };
    let mut model = Model::new()?;
    let init = move |dst: &mut [f32], _: usize, seed: u64| {
        dst.fill(random_uniform(seed, 0));
        Ok(fails("init")?)
    };
    let param = model.add_param(Param::new("p", &[2]).init(init))?;
    let input = model.add_value(Value::input("x", &[1]))?;
    let sums = [
        model.add_value(Value::scalar("loss"))?,
        model.add_value(Value::scalar("samples"))?,
    ];
    let layer = Layer::loss("l", &[input], sums, &[param])
        .forward(move |call| fails("forward").map_err(Into::into).and_then(|()| forward(call)))
        .backward(move |call| fails("backward").map_err(Into::into).and_then(|()| backward(call)));
    model.add_layer(layer)?;
    let text = "[strategy.data]\nplugin = \"ddp\"\n[train]\noptimizer = \"sgd\"\nlearning_rate = 0.1\nbatch = 4\n";
    let config = Config::parse(text, "test.toml")?;
    let options = TrainerOptions::new()
        .config(&config)
        .data(move |request| fails("data").map_err(Into::into).and_then(|()| data(request)))
        .optimizer(Optimizer::new(Needs::Elements, 0, move |_| Ok(fails("optimizer")?)));
    let comm = Comm::builder().ranks(0, 1, UniqueId::create()?).join()?;
    let mut trainer = Trainer::new(comm, &model, options)?;
    if place != "pull" {
        return trainer.step();
    }
    trainer.pull(|task| {
        fails("pull")?;
        match task {
            Task::Input(request) => data(&request).map(|_| ()),
            Task::Forward(call) => forward(&call),
            Task::Backward(call) => backward(&call),
            _ => Ok(()),
        }
    })
}

#[test]
fn an_error_that_cannot_be_shown_or_dropped_is_an_error_of_the_call() {
    step("nowhere", Fault::DropPanics).unwrap();
    for &fault in &[Fault::DisplayPanics, Fault::DisplayFails, Fault::DropPanics] {
        for place in ["forward", "backward", "data", "optimizer", "init", "pull"] {
            let error: Error = step(place, fault).unwrap_err();
            assert_eq!(error.code, Code::CALLBACK, "{:?} in {}: {:?}", fault, place, error);
            let parts: &[&str] = match (place, fault) {
                ("init", _) => &["\"p\""], // a place without text
                (_, Fault::DisplayPanics) => &["no data; ", "panics: ", "nothing to show"],
                (_, Fault::DisplayFails) => &["no data; ", "Display of this error fails"],
                (_, Fault::DropPanics) => &["no data"],
            };
            for part in parts {
                assert!(error.message.contains(part), "{:?} in {}: {:?}", fault, place, error);
            }
        }
    }
}

/// Counts its values that are alive.
struct Counted(&'static AtomicUsize);
impl Counted {
    fn new(alive: &'static AtomicUsize) -> Counted {
        alive.fetch_add(1, Ordering::Relaxed);
        Counted(alive)
    }
}
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A payload whose drop panics with another one.
struct Nasty(&'static AtomicUsize);
impl Drop for Nasty {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("the payload cannot be dropped");
    }
}

#[test]
fn the_payload_of_a_sink_that_panics_is_dropped() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    static LINES: AtomicUsize = AtomicUsize::new(0);
    static NASTY: AtomicUsize = AtomicUsize::new(0);
    log::set(log::Level::Debug, |_, _, _| {
        LINES.fetch_add(1, Ordering::Relaxed);
        panic_any(Counted::new(&ALIVE))
    });
    step("nowhere", Fault::DropPanics).unwrap();
    log::set(log::Level::Debug, |_, _, _| panic_any(Nasty(&NASTY)));
    assert!(LINES.load(Ordering::Relaxed) > 0, "no line was logged");
    assert_eq!(ALIVE.load(Ordering::Relaxed), 0, "payloads are left");
    step("nowhere", Fault::DropPanics).unwrap();
    log::silence();
    assert!(NASTY.load(Ordering::Relaxed) > 0, "no line was logged");
}

/// State of a closure, whose drop panics.
struct State;
impl Drop for State {
    fn drop(&mut self) {
        panic!("the state of a closure cannot be dropped");
    }
}

#[test]
fn closures_whose_state_cannot_be_dropped_are_dropped() {
    // By the library, with the object that has them.
    let state = State;
    let keep = move |_: &mut [i32], _: &[i32]| {
        let _ = &state;
    };
    let op = UserOp::new("first", 1, keep).unwrap();
    let mut out = [0];
    reduce_local(&[&[1], &[2]], &mut out, op.op(), Order::Ranks).unwrap();
    drop(op);
    // By this crate, for a call that fails has kept nothing.
    let state = State;
    let layer = Layer::new("l", &[ValueId(77)], &[], &[]).forward(move |_| {
        let _ = &state;
        Ok(())
    });
    let error = Model::new().unwrap().add_layer(layer).unwrap_err();
    assert_eq!(error.code, Code::MODEL, "{:?}", error);
    let state = State;
    let keep = move |_: &mut [i32], _: &[i32]| {
        let _ = &state;
    };
    assert_eq!(UserOp::new("first", 0, keep).unwrap_err().code, Code::ARG);
}
