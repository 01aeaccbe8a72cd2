package gsel

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// plan_test.go: plans, estimates, comparisons, rows of measurements, and how a search is ended.

const llama8B = `{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
	"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192}`

func planOptions(cluster string) *PlanOptions {
	return &PlanOptions{Model: llama8B, ModelName: "config.json", Cluster: cluster, Batch: 256, Sequence: 4096}
}

func planned(t *testing.T, options *PlanOptions) *Plan {
	t.Helper()
	plan, err := NewPlan(background, options)
	must(t, err)
	t.Cleanup(func() { plan.Close() })
	return plan
}

func TestPlanRanksLayouts(t *testing.T) {
	options := planOptions("8xH100")
	options.Nodes, options.Shown = 2, 3
	plan := planned(t, options)
	if len(plan.Candidates) < 5 {
		t.Fatalf("%d candidates: %s", len(plan.Candidates), plan)
	}
	before := 0.0
	for _, c := range plan.Candidates {
		must(t, expect("ranks", 16, c.Tensor*c.Context*c.Data*c.Pipeline),
			expect("samples", int64(256), c.Microbatch*c.Microbatches*int64(c.Data)))
		if c.StepSeconds < before || c.MemoryBytes <= 0 || c.MemoryBytes > 84e9 || c.MFU <= 0 || c.MFU > c.HFU || c.HFU >= 1 ||
			c.Name == "" || c.ZeROStage > 3 || c.Chunks < 1 || c.TokensPerSecond <= c.SamplesPerSecond {
			t.Errorf("after %g s: %+v", before, c)
		}
		before = c.StepSeconds
	}
	if !json.Valid([]byte(plan.JSON())) || !strings.Contains(plan.String(), plan.Candidates[0].Name) {
		t.Errorf("text:\n%s\nJSON: %s", plan, plan.JSON())
	}
	plan.Close()
	_, err := plan.TOML(0)
	must(t, expect("after Close", ErrClosed, err), expect("text after Close", "", plan.String()))
}

func TestPlanFlagsAreThoseOfWhatIsDecided(t *testing.T) {
	best := func(fixed string) PlanCandidate {
		options := planOptions("8xA100-80GB")
		options.Fixed = fixed
		return planned(t, options).Candidates[0]
	}
	c := best("recompute=none, offload=none, tensor=8, sequence_parallel=false")
	must(t, expect("plain", [4]bool{}, [4]bool{c.Recompute, c.OffloadState, c.OffloadParams, c.SequenceParallel}),
		expect("recompute", true, best("recompute=all").Recompute),
		expect("sequence_parallel", true, best("tensor=8, sequence_parallel=true").SequenceParallel))
	c = best("offload=all")
	must(t, expect("offload", [2]bool{true, true}, [2]bool{c.OffloadState, c.OffloadParams}))
	if c.HostBytes <= 0 {
		t.Errorf("no memory of the host: %+v", c)
	}
}

func TestPlanCandidateIsAConfigurationAndAPicture(t *testing.T) {
	options := planOptions("8xH100")
	options.Fixed = "pipeline=4, tensor=1, context=1"
	plan := planned(t, options)
	toml, err := plan.TOML(0)
	must(t, err)
	config, err := ParseConfig(toml, "plan.toml")
	must(t, err)
	defer config.Close()
	stages, _ := config.Get("mesh.pipeline")
	must(t, expect("mesh.pipeline", "4", stages))
	other, err := ParseConfig(strings.Replace(toml, "pipeline = 4\ndata = 2", "pipeline = 2\ndata = 4", 1), "other.toml")
	must(t, err)
	defer other.Close()
	compared, err := PlanCompare(background, options, config, other)
	must(t, err)
	defer compared.Close()
	if said := compared.String(); !strings.Contains(said, "plan.toml") || !strings.Contains(said, "other.toml") {
		t.Errorf("expected both files, got %s", said)
	}
	must(t, expect("candidates", 0, len(compared.Candidates)))
	_, err = compared.TOML(0)
	must(t, expect("code", true, errors.Is(err, ErrArg)))
	_, err = PlanCompare(background, options)
	must(t, expect("without any", true, errors.Is(err, ErrArg)))
	timeline, err := NewTimeline()
	must(t, err)
	defer timeline.Close()
	simulation, err := plan.Simulation(0)
	must(t, err, timeline.Add(simulation, "plan"))
	_, err = timeline.Draw(TimelineSVG)
	must(t, err)
	picture, err := plan.Picture()
	must(t, err, expect("picture", true, strings.Contains(picture, "<svg")))
	_, err = compared.Picture()
	must(t, expect("picture of none", true, errors.Is(err, ErrArg)))
	_, err = plan.TOML(len(plan.Candidates))
	must(t, expect("index", true, errors.Is(err, ErrArg)))
}

func TestPlanEstimatesAndForecastsRows(t *testing.T) {
	options := planOptions("8xA100-40GB")
	options.MemoryBytes = 40e9
	estimate, err := PlanEstimate(background, options)
	must(t, err)
	defer estimate.Close()
	for _, strategy := range []string{"DDP", "ZeRO-3", "TP 8"} {
		if !strings.Contains(estimate.String(), strategy) || !strings.Contains(estimate.JSON(), strategy) {
			t.Errorf("no %s in %s", strategy, estimate)
		}
	}
	head := "model\tlayers\thidden\theads\tseq\tvocab\tgbs\tmbs\tgpus\tgpu\tdp\ttp\tpp\tmetric\tvalue\n"
	row := "GPT\t24\t2048\t16\t2048\t51200\t64\t4\t8\tA100\t4\t2\t1\titeration_s\t1\n"
	report, err := PlanRows(head+row, "rows.tsv")
	must(t, err)
	defer report.Close()
	if !strings.Contains(report.JSON(), `"forecast"`) {
		t.Errorf("no forecast in %s", report.JSON())
	}
	var e *Error
	_, err = PlanRows(head+strings.Replace(row, "\t24\t", "\tmany\t", 1), "rows.tsv")
	if !errors.As(err, &e) || e.Code != ErrParse || e.File != "rows.tsv" || e.Line != 2 || e.Column != 5 {
		t.Errorf("expected the place of \"many\", got %#v", e)
	}
}

func TestPlanForecastMovesByOwnMeasurements(t *testing.T) {
	options := planOptions("8xH100")
	options.Fixed = "data=8, zero=1"
	before := planned(t, options).Candidates[0].StepSeconds
	options.Measured = "model\tlayers\thidden\tffn\theads\tkv_heads\tseq\tvocab\tgbs\tmbs\tgpus\tgpu\tgpus_per_node\tdp\t" +
		"tp\tpp\tzero\trecompute\tprecision\tmetric\tvalue\nLlama\t32\t4096\t14336\t32\t8\t4096\t128256\t256\t1\t8\t" +
		"H100-SXM\t8\t8\t1\t1\t1\tfull\tbf16\titeration_s\t60\n"
	if after := planned(t, options).Candidates[0].StepSeconds; after < 1.5*before {
		t.Errorf("%g s before, %g s after", before, after)
	}
	options.Cluster = "8xMI300X"
	_, err := NewPlan(background, options)
	must(t, expect("another device", true, errors.Is(err, ErrConfig)))
}

func TestPlanTakesTheMachineAndTheModelOfTheProgram(t *testing.T) {
	m, err := NewModel()
	must(t, err)
	defer m.Close()
	w := m.AddParam(ParamOptions{Name: "w", Shape: []int64{1000, 1000}})
	x := m.AddValue(ValueOptions{Name: "x", Shape: []int64{1000}, Flags: ValueInput})
	y := m.AddValue(ValueOptions{Name: "y", Shape: []int64{1000}})
	loss := m.AddValue(ValueOptions{Name: "loss", DType: F64, Flags: ValueScalar})
	weight := m.AddValue(ValueOptions{Name: "weight", DType: F64, Flags: ValueScalar})
	m.AddLayer(LayerOptions{Name: "product", Inputs: []ValueID{x}, Outputs: []ValueID{y}, Params: []ParamID{w}, FLOPPerSample: 2e6})
	m.AddLayer(LayerOptions{Name: "loss", Inputs: []ValueID{y}, Outputs: []ValueID{loss, weight}, Flags: LayerLoss})
	plan := planned(t, &PlanOptions{Described: m, Inventory: machine(t, "a100x8.json"), Batch: 64})
	if len(plan.Candidates) == 0 {
		t.Errorf("no layout of one layer fits: %s", plan)
	}
}

func TestPlanSearchIsEndedByItsCaller(t *testing.T) {
	large := planOptions("8xH100")
	large.Nodes, large.Batch = 64, 512*64
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	large.Progress = func(tried int64) error { cancel(); return nil }
	_, err := NewPlan(ctx, large)
	must(t, expect("canceled", true, errors.Is(err, context.Canceled)), expect("code", true, errors.Is(err, ErrAborted)))
	_, err = NewPlan(ctx, large)
	must(t, expect("canceled before", true, errors.Is(err, context.Canceled)))
	_, err = PlanEstimate(ctx, large)
	must(t, expect("estimate", true, errors.Is(err, context.Canceled)))
	_, err = PlanCompare(ctx, large)
	must(t, expect("compare", true, errors.Is(err, context.Canceled)))

	late, end := context.WithDeadline(background, time.Now().Add(20*time.Millisecond))
	defer end()
	large.Progress = func(int64) error { <-late.Done(); return nil }
	_, err = NewPlan(late, large)
	must(t, expect("deadline", true, errors.Is(err, context.DeadlineExceeded)))

	patience := errors.New("no patience")
	large.Progress = func(int64) error { return patience }
	_, err = NewPlan(background, large)
	must(t, expect("its error", true, errors.Is(err, patience)), expect("code", true, errors.Is(err, ErrAborted)))
	large.Progress = func(int64) error { panic("no patience") }
	_, err = NewPlan(background, large)
	var p *PanicError
	if !errors.As(err, &p) || p.Value != "no patience" {
		t.Errorf("expected the panic, got %v", err)
	}
	calls := 0
	large.Progress = func(tried int64) error { calls++; return nil }
	if planned(t, large); calls < 2 {
		t.Errorf("progress was called %d times", calls)
	}
}

func TestPlanNamesWhatIsWrong(t *testing.T) {
	var e *Error
	_, err := NewPlan(background, &PlanOptions{Model: "{", ModelName: "config.json", Cluster: "8xH100"})
	if !errors.As(err, &e) || e.Code != ErrParse || e.File != "config.json" {
		t.Errorf("expected the place, got %#v", e)
	}
	_, err = NewPlan(background, &PlanOptions{Cluster: "8xH100"})
	must(t, expect("no model", true, errors.Is(err, ErrArg)))
	for word, change := range map[string]func(*PlanOptions){
		"H1000":     func(o *PlanOptions) { o.Cluster = "8xH1000" },
		"link":      func(o *PlanOptions) { o.Link = "-1GB/s" },
		"network":   func(o *PlanOptions) { o.Nodes, o.Network = 2, "a lot" },
		"precision": func(o *PlanOptions) { o.Precision = "fp4" },
		"tensor=0":  func(o *PlanOptions) { o.Fixed = "tensor=0" },
	} {
		options := planOptions("8xH100")
		change(options)
		if _, err := NewPlan(background, options); !errors.Is(err, ErrArg) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: got %v", word, err)
		}
	}
}
