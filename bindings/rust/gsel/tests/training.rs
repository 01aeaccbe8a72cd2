//! Trainers, driven by push and by pull: the same parameter by both, on 1 to 3 ranks, and failures that reach every rank.
//!
//! With n ranks and n samples per step w = n/2 after a step, then 3n/4.
#[path = "support/distance.rs"]
mod distance;
mod support;
use distance::*;
use gsel::*;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use support::ranks;

/// Drops are counted: what a closure holds is released once.
struct Counted(Arc<AtomicUsize>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn push_and_pull_train_the_same() {
    for n in 1..=3 {
        let dropped = Arc::new(AtomicUsize::new(0));
        let count = dropped.clone();
        ranks(n, move |comm| {
            let held = Counted(count.clone());
            let (model, w, _) = described(move |call| {
                let _keep = &held;
                forward(call)
            })
            .unwrap();
            let also = Counted(count.clone());
            let config = config(n);
            let options = TrainerOptions::new().config(&config).data(move |request| {
                let _keep = &also;
                fill(request, n)
            });
            let mut trainer = Trainer::new(comm, &model, options).unwrap();
            drop(model);
            let report = trainer
                .pull(|task| match task {
                    Task::Input(request) => fill(&request, n).map(|_| ()),
                    Task::Forward(call) => forward(&call),
                    Task::Backward(call) => backward(&call),
                    _ => Err("unexpected".into()),
                })
                .unwrap();
            let squares: i32 = (0..n as i32).map(|i| (2 * i + 1) * (2 * i + 1)).sum();
            assert_eq!(report.loss, f64::from(squares) / n as f64);
            let mut value = [0f32];
            trainer.read_param(w, &mut value).unwrap();
            assert_eq!(value[0], n as f32 / 2.0);
            trainer.step().unwrap();
            trainer.read_param(w, &mut value).unwrap();
            assert_eq!(value[0], n as f32 * 0.75);
            let mut gradient = [0f32];
            trainer.read_gradient(w, &mut gradient).unwrap();
            assert_eq!(gradient[0], -(n as f32));
            assert!(trainer.param_used(w) && trainer.holds_params());
            assert_eq!(trainer.comm().allreduce_scalar(1i32, Op::SUM).unwrap(), n as i32);
            assert!(trainer.evaluate(0).unwrap().loss >= 0.0);
            assert!(trainer.evaluate_with(0, |request| fill(request, n)).unwrap().weight == n as f64);
            trainer.set_learning_rate(0.0).unwrap();
            trainer.step().unwrap();
            trainer.read_param(w, &mut value).unwrap();
            assert_eq!(value[0], n as f32 * 0.75);
            assert!(trainer.program().text().contains("forward") && trainer.program().len() > 3);
            assert!(trainer.step_json().unwrap().contains("\"loss\""));
            assert!(trainer
                .memory()
                .unwrap()
                .iter()
                .any(|part| part.name == "parameters" && part.peak_bytes > 0));
        });
        assert_eq!(dropped.load(Ordering::SeqCst), 2 * n, "closures dropped on {} ranks", n);
    }
}

#[test]
fn weights_go_through_a_file() {
    let path = std::env::temp_dir().join(format!("gsel-weights-{}.safetensors", std::process::id()));
    let file = path.to_str().unwrap().to_string();
    ranks(2, move |comm| {
        let (model, w, _) = described(forward).unwrap();
        let config = config(2);
        let map = Config::parse("[[weights.map]]\nsource = \"slope\"\ntarget = \"w\"\n", "map").unwrap();
        let options = TrainerOptions::new().config(&config).data(|request| fill(request, 2));
        let mut trainer = Trainer::new(comm, &model, options).unwrap();
        trainer.step().unwrap();
        let written = trainer.export_weights(&file, Some(&map), DType::BF16).unwrap();
        assert_eq!(written.tensors, 1);
        assert_eq!(written.bytes, if trainer.comm().rank() == 0 { 2 } else { 0 });
        trainer.step().unwrap();
        let read = trainer.load_weights(&file, Some(&map)).unwrap();
        assert_eq!(
            (read.tensors, read.widened, read.bytes, read.needed_bytes),
            (1, 1, 2, 2)
        );
        let mut value = [0f32];
        trainer.read_param(w, &mut value).unwrap();
        assert_eq!(value[0], 1.0);
        let refused = trainer.load_weights(&file, None).unwrap_err();
        assert_eq!(refused.code, Code::MISMATCH);
    });
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_checkpoint_is_saved_loaded_and_rewritten() {
    let folder = std::env::temp_dir().join(format!("gsel-rust-checkpoint-{}", std::process::id()));
    let path = folder.to_str().unwrap().to_string();
    let run = path.clone();
    ranks(2, move |comm| {
        let (model, w, _) = described(forward).unwrap();
        let config = config(2);
        let options = TrainerOptions::new().config(&config).data(|request| fill(request, 2));
        let mut trainer = Trainer::new(comm, &model, options).unwrap();
        let (mut saved, mut value) = ([0f32], [0f32]);
        for _ in 0..3 {
            trainer.step().unwrap();
            trainer.save(&run, &CheckpointOptions::new().keep(2)).unwrap();
        }
        trainer.read_param(w, &mut saved).unwrap();
        trainer.step().unwrap();
        assert_eq!(trainer.load(&run).unwrap().step, 3);
        trainer.read_param(w, &mut value).unwrap();
        assert_eq!(saved, value);
    });
    let steps = std::fs::read_dir(&folder).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_str().unwrap().starts_with("step-")
    });
    assert_eq!(steps.count(), 2);
    let mut checkpoint = Checkpoint::open(&path).unwrap();
    checkpoint.verify().unwrap();
    let (info, entries) = (checkpoint.info().unwrap(), checkpoint.entries().unwrap());
    assert_eq!((info.step, info.learning_rate), (3, None));
    assert_eq!((entries[0].name.as_str(), entries[0].pieces[0].count), ("param:w", 1));
    assert_eq!(checkpoint.files().unwrap()[0].name, entries[0].pieces[0].file);
    checkpoint.reshard(&format!("{}/anew", path), 2).unwrap();
    let mut anew = Checkpoint::open(&format!("{}/anew", path)).unwrap();
    assert_eq!(checkpoint.diff(&mut anew).unwrap(), []);
    let file = format!("{}/model.safetensors", path);
    let ended = checkpoint.consolidate_with(&file, true, |_, _| ControlFlow::Break(()));
    assert_eq!(ended.unwrap_err().code, Code::ABORTED);
    checkpoint.consolidate(&file, true).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn failures_of_kernels_reach_every_rank() {
    let errors = ranks(2, |comm| {
        let rank = comm.rank();
        let (model, ..) = described(move |call| {
            if rank == 0 {
                Err("no more memory".into())
            } else {
                forward(call)
            }
        })
        .unwrap();
        let config = config(2);
        let options = TrainerOptions::new().config(&config).data(|request| fill(request, 2));
        Trainer::new(comm, &model, options).unwrap().step().unwrap_err()
    });
    assert_eq!(errors[0].code, Code::CALLBACK);
    for error in &errors {
        assert!(
            error.message.contains("no more memory") && error.message.contains("distance"),
            "{:?}",
            error
        );
    }
}

#[test]
fn a_panic_of_a_kernel_continues_where_it_was_and_is_an_error_elsewhere() {
    let ended = ranks(2, |comm| {
        let rank = comm.rank();
        let (model, ..) = described(move |call| {
            if rank == 1 {
                panic!("division by zero")
            } else {
                forward(call)
            }
        })
        .unwrap();
        let config = config(2);
        let options = TrainerOptions::new().config(&config).data(|request| fill(request, 2));
        let mut trainer = Trainer::new(comm, &model, options).unwrap();
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trainer.step().map(|_| ()))) {
            Ok(result) => result.unwrap_err().to_string(),
            Err(payload) => format!("panicked: {}", payload.downcast_ref::<&str>().unwrap()),
        }
    });
    assert!(
        ended[0].contains("panic: division by zero") && ended[0].contains("rank 1"),
        "{:?}",
        ended
    );
    assert_eq!(ended[1], "panicked: division by zero");
}

#[test]
fn work_that_is_dropped_ends_the_step_on_every_rank() {
    let errors = ranks(2, |comm| {
        let (model, ..) = described(forward).unwrap();
        let mut trainer = Trainer::new(&comm, &model, TrainerOptions::new().config(&config(2))).unwrap();
        if comm.rank() == 0 {
            drop(trainer.next_work().unwrap().unwrap());
            return trainer.next_work().map(|_| ()).unwrap_err();
        }
        trainer
            .pull(|task| match task {
                Task::Input(request) => fill(&request, 2).map(|_| ()),
                Task::Forward(call) => forward(&call),
                Task::Backward(call) => backward(&call),
                _ => Err("unexpected".into()),
            })
            .unwrap_err()
    });
    assert!(
        errors[1].message.contains("dropped before it was completed"),
        "{:?}",
        errors
    );
}

#[test]
fn optimizers_are_closures() {
    ranks(2, |comm| {
        let (model, w, _) = described(forward).unwrap();
        let momentum = Optimizer::new(Needs::Elements, 1, |call| {
            let rate = call.raw().learning_rate as f32;
            for ((value, gradient), state) in call.values().iter_mut().zip(call.gradient()).zip(call.state(0)) {
                *state = *state * 0.5 + *gradient;
                *value -= rate * *state;
            }
            Ok(())
        });
        let config = config(2);
        let options = TrainerOptions::new()
            .config(&config)
            .data(|request| fill(request, 2))
            .optimizer(momentum);
        let mut trainer = Trainer::new(comm, &model, options).unwrap();
        trainer.step().unwrap();
        trainer.step().unwrap();
        let mut value = [0f32];
        trainer.read_param(w, &mut value).unwrap();
        // Gradients -4 and 2 * (1 - 2) = -2; states -4 and -4; so 0 -> 1 -> 2.
        assert_eq!(value[0], 2.0);
    });
}

#[test]
fn wrong_descriptions_and_keys_are_refused() {
    let (mut model, ..) = described(forward).unwrap();
    let error = model
        .add_param(Param::new("w", &[1]).init(|_, _, _| Ok(())))
        .unwrap_err();
    assert_eq!(error.code, Code::MODEL);
    model.finish().unwrap();
    assert_eq!(
        (
            model.param_count(),
            model.value_count(),
            model.layer_count(),
            model.element_count()
        ),
        (1, 3, 1, 1)
    );
    let error = Config::parse("[train]\nbatchh = 3\n", "gsel.toml").unwrap_err();
    assert_eq!(
        (error.code, error.file.as_deref(), error.line),
        (Code::CONFIG, Some("gsel.toml"), Some(2))
    );
    assert!(config(3).get("train.batch") == Some("3") && config(3).get("train.none").is_none());
}

#[test]
fn an_error_has_its_causes_beneath() {
    ranks(2, |comm| {
        let (mut model, ..) = described(forward).unwrap();
        let text = "[strategy.data]\nplugin = \"nosuch\"\n[train]\nbatch = 2\n";
        let config = Config::parse(text, "gsel.toml").unwrap();
        let options = TrainerOptions::new().config(&config).data(|request| fill(request, 2));
        let error = Trainer::new(&comm, &mut model, options).err().unwrap();
        let cause = std::error::Error::source(&error).map(|cause| cause.downcast_ref::<Error>().unwrap());
        let cause = cause.unwrap_or_else(|| panic!("{:?} has no cause", error));
        assert!(error.message.contains("could not be loaded") && cause.code == Code::NOT_FOUND);
    });
}
