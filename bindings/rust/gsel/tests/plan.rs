//! Plans: candidates, texts and files, estimates, comparisons, rows of measurements, and how a search is ended.
use gsel::{Code, Config, Inventory, Layer, Model, Param, Plan, PlanOptions, Timeline, Value};
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};

const LLAMA_8B: &str = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192}"#;

fn options(cluster: &str) -> PlanOptions<'static> {
    let options = PlanOptions::new().model(LLAMA_8B).model_name("config.json");
    options.cluster(cluster).batch(256).sequence(4096)
}

#[test]
fn candidates_are_layouts_fastest_first() {
    let plan = options("8xH100").nodes(2).shown(3).search().unwrap();
    let candidates = plan.candidates().unwrap();
    assert!(candidates.len() > 4, "{}", plan);
    for c in &candidates {
        assert_eq!(c.tensor * c.context * c.data * c.pipeline, 16, "{:?}", c);
        assert_eq!(c.microbatch * c.microbatches * c.data, 256, "{:?}", c);
        assert!(c.memory_bytes > 0.0 && c.memory_bytes < 84e9 && c.zero_stage <= 3 && c.chunks >= 1);
        assert!(
            c.mfu > 0.0 && c.mfu <= c.hfu && c.hfu < 1.0 && (0.0..1.0).contains(&c.exposed),
            "{:?}",
            c
        );
        assert!(
            (c.samples_per_s * c.step_s - 256.0).abs() < 1e-6 && !c.name.is_empty(),
            "{:?}",
            c
        );
        assert!(
            (c.tokens_per_s - 4096.0 * c.samples_per_s).abs() < 1e-6 * c.tokens_per_s,
            "{:?}",
            c
        );
    }
    assert!(candidates.windows(2).all(|pair| pair[0].step_s <= pair[1].step_s));
    assert!(plan.json().contains("\"candidates\"") && plan.to_string().contains(&candidates[0].name));
}

#[test]
fn flags_are_those_of_what_is_decided() {
    let best = |fixed: &str| {
        options("8xA100-80GB")
            .fixed(fixed)
            .search()
            .unwrap()
            .candidates()
            .unwrap()[0]
            .clone()
    };
    let plain = best("recompute=none, offload=none, tensor=8, sequence_parallel=false");
    assert!(!(plain.recompute || plain.offload_state || plain.offload_params || plain.sequence_parallel));
    assert!(best("recompute=all").recompute);
    assert!(best("tensor=8, sequence_parallel=true").sequence_parallel);
    let moved = best("offload=all");
    assert!(
        moved.offload_state && moved.offload_params && moved.host_bytes > 0.0,
        "{:?}",
        moved
    );
}

#[test]
fn a_candidate_is_a_configuration_and_a_picture() {
    let options = options("8xH100").fixed("pipeline=4, tensor=1, context=1");
    let mut plan = options.search().unwrap();
    let toml = plan.toml(0).unwrap();
    let config = Config::parse(&toml, "plan.toml").unwrap();
    assert_eq!(
        (config.get("mesh.pipeline"), config.get("train.batch")),
        (Some("4"), Some("256"))
    );
    let other = Config::parse(
        &toml.replace("pipeline = 4\ndata = 2", "pipeline = 2\ndata = 4"),
        "other.toml",
    )
    .unwrap();
    let mut compared = options.compare(&[&config, &other]).unwrap();
    let text = compared.to_string();
    assert!(text.contains("plan.toml") && text.contains("other.toml"), "{}", text);
    assert!(compared.candidates().unwrap().is_empty() && compared.json().starts_with('{'));
    assert_eq!(compared.toml(0).unwrap_err().code, Code::ARG);
    assert_eq!(options.compare(&[]).unwrap_err().code, Code::ARG);
    let mut timeline = Timeline::new().unwrap();
    timeline.add(&plan.simulation(0).unwrap(), "plan").unwrap();
    assert!(timeline.svg().unwrap().contains("<svg"));
    assert!(plan.picture().unwrap().contains("<svg"));
    assert_eq!(compared.picture().unwrap_err().code, Code::ARG);
    let n = plan.candidates().unwrap().len();
    assert_eq!(plan.toml(n).unwrap_err().code, Code::ARG);
}

#[test]
fn estimates_and_rows_are_reports() {
    let estimate = options("8xA100-40GB").memory_bytes(40e9).estimate().unwrap();
    for strategy in ["DDP", "ZeRO-3", "TP 8"] {
        assert!(
            estimate.to_string().contains(strategy) && estimate.json().contains(strategy),
            "{}",
            estimate
        );
    }
    let head = "model\tlayers\thidden\theads\tseq\tvocab\tgbs\tmbs\tgpus\tgpu\tdp\ttp\tpp\tmetric\tvalue\n";
    let row = "GPT\t24\t2048\t16\t2048\t51200\t64\t4\t8\tA100\t4\t2\t1\titeration_s\t1\n";
    let report = Plan::rows(&format!("{}{}", head, row), "rows.tsv").unwrap();
    assert!(report.json().contains("\"forecast\""), "{}", report.json());
    let error = Plan::rows(&format!("{}{}", head, row.replace("\t24\t", "\tmany\t")), "rows.tsv").unwrap_err();
    assert_eq!(
        (error.code, error.file.as_deref(), error.line, error.column),
        (Code::PARSE, Some("rows.tsv"), Some(2), Some(5)),
        "{:?}",
        error
    );
}

#[test]
fn own_measurements_move_the_forecast() {
    let head = concat!(
        "model\tlayers\thidden\tffn\theads\tkv_heads\tseq\tvocab\tgbs\tmbs\tgpus\tgpu\tgpus_per_node\tdp\ttp\tpp\t",
        "zero\trecompute\tprecision\tmetric\tvalue\n"
    );
    let row = concat!(
        "Llama\t32\t4096\t14336\t32\t8\t4096\t128256\t256\t1\t8\tH100-SXM\t8\t8\t1\t1\t1\tfull\tbf16\t",
        "iteration_s\t60\n"
    );
    let options = options("8xH100").fixed("data=8, zero=1");
    let step = |options: &PlanOptions<'_>| options.search().unwrap().candidates().unwrap()[0].step_s;
    let measured = options.clone().measured(&format!("{}{}", head, row));
    assert!(step(&measured) > 1.5 * step(&options));
    assert_eq!(measured.cluster("8xMI300X").search().unwrap_err().code, Code::CONFIG);
}

#[test]
fn the_machine_and_the_model_are_those_of_the_program() {
    let machine = r#"{"gsel_inventory": 1, "hosts": [{"name": "node0", "devices": [
      {"vendor": "nvidia", "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-aaaa0000-0000-0000-0000-000000000000",
       "pci": "00000000:01:00.0", "memory_bytes": 85899345920}]}]}"#;
    let machine = Inventory::parse(machine, "machine.json").unwrap();
    let mut model = Model::new().unwrap();
    let w = model.add_param(Param::new("w", &[1000, 1000])).unwrap();
    let x = model.add_value(Value::input("x", &[1000])).unwrap();
    let y = model.add_value(Value::new("y", &[1000])).unwrap();
    let sums = [
        model.add_value(Value::scalar("loss")).unwrap(),
        model.add_value(Value::scalar("weight")).unwrap(),
    ];
    model
        .add_layer(Layer::new("product", &[x], &[y], &[w]).flop(2e6))
        .unwrap();
    model.add_layer(Layer::loss("loss", &[y], sums, &[])).unwrap();
    let plan = PlanOptions::new()
        .described(&model)
        .inventory(&machine)
        .batch(8)
        .search()
        .unwrap();
    drop(model);
    assert!(
        plan.candidates().unwrap().iter().any(|c| c.data == 1 && c.tensor == 1),
        "{}",
        plan
    );
}

#[test]
fn a_search_is_ended_by_its_caller() {
    let large = options("8xH100").nodes(64).batch(512 * 64);
    let mut seen = Vec::new();
    let error = large.search_with(|tried| {
        seen.push(tried);
        if seen.len() < 2 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    assert_eq!(error.unwrap_err().code, Code::ABORTED);
    assert!(seen.len() == 2 && seen[0] > 0 && seen[0] < seen[1], "{:?}", seen);
    let panicked = catch_unwind(AssertUnwindSafe(|| large.search_with(|_| panic!("no patience"))));
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"no patience"));
    let mut calls = 0;
    let whole = large.search_with(|_| {
        calls += 1;
        ControlFlow::Continue(())
    });
    assert!(!whole.unwrap().candidates().unwrap().is_empty() && calls > 0);
}

#[test]
fn what_is_wrong_is_named() {
    let refused = |options: PlanOptions<'_>| options.search().unwrap_err();
    let error = refused(
        PlanOptions::new()
            .model("{")
            .model_name("config.json")
            .cluster("8xH100"),
    );
    assert_eq!(
        (error.code, error.file.as_deref()),
        (Code::PARSE, Some("config.json")),
        "{:?}",
        error
    );
    let error = refused(options("8xH1000"));
    assert!(
        error.code == Code::ARG && error.message.contains("H1000"),
        "{:?}",
        error
    );
    for (option, wrong) in [
        ("link", options("8xH100").link("-1GB/s")),
        ("network", options("8xH100").nodes(2).network("a lot")),
        ("precision", options("8xH100").precision("fp4")),
        ("tensor=0", options("8xH100").fixed("tensor=0")),
    ] {
        let error = refused(wrong);
        assert!(
            error.code == Code::ARG && error.message.contains(option),
            "{}: {:?}",
            option,
            error
        );
    }
    assert_eq!(refused(PlanOptions::new().cluster("8xH100")).code, Code::ARG);
}
