//! Everything that needs no step of training: selection, meshes, schedules, programs, pipelines, checks, DLPack, plugins, log.
mod support;
use gsel::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::ranks;

const MACHINE: &str = r#"{"gsel_inventory": 1, "hosts": [{"name": "node0", "devices": [
  {"vendor": "nvidia", "name": "NVIDIA A100", "uuid": "GPU-aaaa0000-0000-0000-0000-000000000000", "pci": "00000000:01:00.0", "memory_bytes": 42949672960},
  {"vendor": "nvidia", "name": "NVIDIA T4", "uuid": "GPU-bbbb0000-0000-0000-0000-000000000000", "pci": "00000000:02:00.0", "memory_bytes": 16106127360}]}]}"#;

#[test]
fn devices_are_selected_and_explained() {
    let machine = Inventory::parse(MACHINE, "machine.json").unwrap();
    assert_eq!(
        (machine.devices().unwrap().len(), machine.hosts()),
        (2, vec!["node0".to_owned()])
    );
    assert_eq!(
        Inventory::parse(machine.json(), "again").unwrap().json(),
        machine.json()
    );
    let selection = Resolve::new()
        .inventory(&machine)
        .no_env()
        .devices("name:*T4*")
        .select()
        .unwrap();
    let devices = selection.devices().unwrap();
    assert_eq!(
        (devices.len(), devices[0].index, devices[0].vendor.as_str()),
        (1, 1, "nvidia")
    );
    let candidates = selection.candidates().unwrap();
    assert_eq!(
        candidates
            .iter()
            .map(|candidate| candidate.position)
            .collect::<Vec<_>>(),
        [None, Some(0)]
    );
    assert!(candidates.iter().all(|candidate| !candidate.reason.is_empty()));
    assert!(selection.to_string().contains("T4") && selection.json().contains("candidates"));
    let env = selection.env(None).unwrap();
    assert!(
        env.iter()
            .any(|(name, value)| name == "CUDA_VISIBLE_DEVICES" && value.starts_with("GPU-bbbb")),
        "{:?}",
        env
    );
    assert_eq!(selection.host_env("node9", None).unwrap_err().code, Code::UNKNOWN_HOST);
    let masked = Resolve::new()
        .inventory(&machine)
        .env([("CUDA_VISIBLE_DEVICES", "1"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")])
        .select()
        .unwrap();
    assert_eq!(masked.devices().unwrap()[0].index, 1);
    let decisions = masked.decisions().unwrap();
    assert!(
        decisions
            .iter()
            .any(|decision| decision.input == "CUDA_VISIBLE_DEVICES" && decision.token == "1"),
        "{:?}",
        decisions
    );
    let error = Resolve::new()
        .inventory(&machine)
        .no_env()
        .devices("cuda:7")
        .select()
        .unwrap_err();
    assert!(
        error.file.as_deref() == Some("devices") && error.column.is_some() && error.token.is_some(),
        "{:?}",
        error
    );
    assert_eq!((selection.warnings().len(), selection.process_count()), (0, None));
    assert!(compat_systems().iter().any(|(name, _)| name == "lightning"));
    assert!(machine.partition(0, 0).is_err() && machine.interconnects(0).unwrap().len() <= 1);
    assert!(!Inventory::detect().unwrap().devices().unwrap().is_empty());
}

#[test]
fn reservations_exclude_each_other() {
    let folder = std::env::temp_dir().join(format!("gsel-rust-{}", std::process::id()));
    let machine = Inventory::parse(MACHINE, "machine.json").unwrap();
    let one = Resolve::new().inventory(&machine).no_env().devices("name:*T4*");
    let held = one.reserve(Some(&folder), Duration::from_secs(0)).unwrap();
    assert_eq!(held.devices().unwrap().len(), 1);
    assert_eq!(
        one.reserve(Some(&folder), Duration::from_secs(0)).unwrap_err().code,
        Code::BUSY
    );
    drop(held);
    drop(one.reserve(Some(&folder), Duration::from_secs(0)).unwrap());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn meshes_divide_ranks() {
    let config = Config::builder()
        .set("mesh.data", "auto")
        .set("mesh.pipeline", 2)
        .build()
        .unwrap();
    let mesh = Mesh::resolve(Some(&config), 4).unwrap();
    assert_eq!(
        (mesh.world_size(), mesh.size(Axis::DATA), mesh.size(Axis::PIPELINE)),
        (4, 2, 2)
    );
    assert_eq!(
        (mesh.coordinate(3, Axis::PIPELINE), mesh.coordinate(9, Axis::DATA)),
        (Some(1), None)
    );
    assert_eq!(mesh.rank(&[0, 1, 1]), Some(3));
    assert!(Axis::count() >= 4 && Axis::DATA.name() == "data");
    ranks(4, move |comm| {
        let replicas = mesh.split(&comm, &[Axis::DATA]).unwrap();
        assert_eq!((replicas.world_size(), replicas.rank()), (2, comm.rank() % 2));
    });
}

#[test]
fn schedules_are_simulated_and_drawn() {
    let schedule = Schedule::new("1f1b", 4, 8, 0).unwrap();
    assert_eq!(
        (
            schedule.ranks(),
            schedule.stages(),
            schedule.microbatches(),
            schedule.rank_of(3)
        ),
        (4, 4, 8, Some(3))
    );
    assert_eq!(
        Schedule::parse(&schedule.to_string(), "again").unwrap().to_string(),
        schedule.to_string()
    );
    assert_eq!(schedule.actions(0).unwrap()[0].kind, gsel_sys::GSEL_FORWARD);
    let simulation = schedule.simulate(&Times::default()).unwrap();
    assert!((simulation.report().unwrap().bubble_of_makespan - 3.0 / 11.0).abs() < 1e-12);
    let mut timeline = Timeline::new().unwrap();
    timeline.add(simulation.json(), "1f1b").unwrap();
    assert!(timeline.svg().unwrap().contains("<svg") && timeline.chrome().unwrap().starts_with('{'));
    assert_eq!(timeline.add("{}", "nothing").unwrap_err().code, Code::PARSE);
    let error = Schedule::new("2f2b", 2, 2, 0).unwrap_err();
    assert!(
        error.code == Code::CONFIG && error.message.contains("2f2b"),
        "{:?}",
        error
    );
    assert!(schedule
        .simulate(&Times {
            stages: vec![1.0],
            ..Times::default()
        })
        .is_err());
}

/// x -> w * x -> loss (y - 1)^2, with a frozen w.
fn chain(wrong: bool) -> Model {
    let mut model = Model::new().unwrap();
    let w = model.add_param(Param::new("w", &[1]).init(|dst, _, _| {
        dst[0] = 3.0;
        Ok(())
    }));
    let w = w.unwrap();
    let x = model.add_value(Value::input("x", &[1])).unwrap();
    let y = model.add_value(Value::new("y", &[1])).unwrap();
    let sums = [
        model.add_value(Value::scalar("loss")).unwrap(),
        model.add_value(Value::scalar("weight")).unwrap(),
    ];
    let scale = Layer::new("scale", &[x], &[y], &[w]).forward(|call| {
        let (w, x) = (call.param::<f32>(0)[0], call.input::<f32>(0));
        call.output::<f32>(0).iter_mut().zip(x).for_each(|(y, x)| *y = w * x);
        Ok(())
    });
    let scale = scale.backward(move |call| {
        let (x, d) = (call.input::<f32>(0), call.d_output::<f32>(0));
        let sum: f32 = x.iter().zip(d).map(|(x, d)| x * d).sum();
        let gradient = &mut call.d_param(0)[0];
        let sum = if wrong { 2.0 * sum } else { sum };
        *gradient = if call.accumulate() { *gradient + sum } else { sum };
        Ok(())
    });
    model.add_layer(scale).unwrap();
    let loss = Layer::loss("distance", &[y], sums, &[]).forward(|call| {
        let y = call.input::<f32>(0);
        call.output::<f64>(0)[0] = y.iter().map(|y| f64::from((y - 1.0) * (y - 1.0))).sum();
        call.output::<f64>(1)[0] = y.len() as f64;
        Ok(())
    });
    let loss = loss.backward(|call| {
        let y = call.input::<f32>(0);
        if let Some(d) = call.d_input::<f32>(0) {
            d.iter_mut().zip(y).for_each(|(d, y)| *d = 2.0 * (y - 1.0));
        }
        Ok(())
    });
    model.add_layer(loss).unwrap();
    model
}

#[test]
fn kernels_are_checked() {
    let report = chain(false).check(CheckOptions::default()).unwrap();
    assert!(
        report.breaches.is_empty() && report.summary.contains("no breach"),
        "{:?}",
        report
    );
    let report = chain(true).check(CheckOptions::default()).unwrap();
    assert_eq!(report.breaches[0].kind, gsel_sys::GSEL_BREACH_GRADIENT, "{:?}", report);
    let data = |request: &DataRequest<'_>| {
        request.elements::<f32>().fill(0.5);
        Ok(Data::Filled)
    };
    let plain = Optimizer::new(Needs::Elements, 0, |call| {
        call.values()
            .iter_mut()
            .zip(call.gradient())
            .for_each(|(value, gradient)| *value -= *gradient);
        Ok(())
    });
    let report = chain(false)
        .check_with(
            CheckOptions {
                optimizer: Some(plain),
                ..Default::default()
            },
            data,
        )
        .unwrap();
    assert!(report.breaches.is_empty(), "{:?}", report);
}

#[test]
fn pipelines_run_stages_and_programs_are_verified() {
    let texts = ranks(2, |comm| {
        let mut model = Model::new().unwrap();
        let x = model.add_value(Value::input("x", &[1])).unwrap();
        let y = model.add_value(Value::new("y", &[1])).unwrap();
        let z = model.add_value(Value::new("z", &[1])).unwrap();
        let seen = Arc::new(Mutex::new(Vec::<f32>::new()));
        let kept = seen.clone();
        model
            .add_layer(Layer::new("add", &[x], &[y], &[]).forward(|call| {
                call.output::<f32>(0)
                    .iter_mut()
                    .zip(call.input::<f32>(0))
                    .for_each(|(y, x)| *y = x + 1.0);
                Ok(())
            }))
            .unwrap();
        model
            .add_layer(Layer::new("double", &[y], &[z], &[]).forward(move |call| {
                call.output::<f32>(0)
                    .iter_mut()
                    .zip(call.input::<f32>(0))
                    .for_each(|(z, y)| *z = 2.0 * y);
                kept.lock().unwrap().extend(call.input::<f32>(0));
                Ok(())
            }))
            .unwrap();
        let options = PipelineOptions::new(3, 2).schedule("gpipe", 0).data(|request| {
            request
                .elements::<f32>()
                .iter_mut()
                .zip(request.sample_ids())
                .for_each(|(x, id)| *x = *id as f32);
            Ok(Data::Filled)
        });
        let rank = comm.rank();
        let mut pipeline = Pipeline::new(comm, &model, options).unwrap();
        let report = pipeline.forward().unwrap();
        assert_eq!((report.rank, pipeline.stages().unwrap().len()), (rank as i32, 1));
        assert_eq!(
            seen.lock().unwrap().as_slice(),
            [vec![], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]][rank]
        );
        let text = pipeline.program().to_string();
        let length = pipeline.program().len();
        assert!(length > 0 && pipeline.program().instr(length).is_err() && pipeline.program().instr(0).is_ok());
        text
    });
    let programs: Vec<_> = texts.iter().map(|text| Program::parse(text, "rank").unwrap()).collect();
    verify(&programs.iter().collect::<Vec<_>>()).unwrap();
    assert!(verify(&[&programs[0], &programs[0]]).is_err());
    assert!(
        programs[0]
            .traffic(0, gsel_sys::GSEL_INSTR_SEND, Axis::PIPELINE)
            .unwrap()
            .bytes_sent
            > 0
    );
}

#[test]
fn tensors_travel_as_dlpack() {
    let made = dlpack::to_dlpack(vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    let view = unsafe { dlpack::View::from_versioned(made) }.unwrap();
    assert_eq!(
        (view.dims.as_slice(), view.dtype, view.device.kind),
        (&[2i64, 3][..], DType::F32, 1)
    );
    unsafe {
        assert_eq!(view.elements::<f32>().unwrap()[5], 6.0);
        assert!(view.elements::<f64>().is_none());
        // DLManagedTensorVersioned: version (8 bytes), manager_ctx, deleter, ...
        type Deleter = unsafe extern "C" fn(*mut gsel_sys::DLManagedTensorVersioned);
        let deleter = *(made as *const Deleter).add(2);
        deleter(made);
    }
    assert_eq!(dlpack::to_dlpack(vec![1i32; 5], &[2, 3]).unwrap_err().code, Code::ARG);
}

#[test]
fn plugins_are_listed_and_lines_are_logged() {
    let found = plugins().unwrap();
    assert!(
        found
            .iter()
            .any(|plugin| plugin.name == "ddp" && plugin.refusal.is_none()),
        "{:?}",
        found
    );
    let lines = Arc::new(Mutex::new(0));
    let count = lines.clone();
    log::set(log::Level::Debug, move |_, component, line| {
        assert!(!component.is_empty() && !line.is_empty());
        *count.lock().unwrap() += 1;
    });
    plugins().unwrap();
    log::silence();
    assert_eq!(Arc::strong_count(&lines), 1, "the sink is released");
    assert!(version().0 >= 100 && version().1.starts_with("0."));
    assert_eq!((shard_range(10, 3, 0), shard_range(10, 3, 9)), (0..4, 0..0));
    assert_eq!(
        (DType::BF16.bytes(), DType::F32.name(), Code::PEER.name()),
        (2, "f32", "GSEL_ERR_PEER")
    );
    assert!(random_uniform(1, 2) < 1.0 && random_normal(1, 2) == random_normal(1, 2));
}
