package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime/cgo"
	"unsafe"
)

// plan.go: which strategy, will it fit, how fast, and why: answered from descriptions of a model and of devices.

// PlanOptions says what is to be planned; zero fields take defaults. See gsel_plan_options.
//
// Model is JSON: a config.json of the Hugging Face hub, or a list of layers; ModelName stands for it in messages. Without
// it, Described is planned, a model of this program whose layers say FLOPPerSample. Cluster is the devices of one node,
// such as "8xH100" or "2xA100-80GB+1xRTX4090"; without it, Inventory is planned for, or this machine.
type PlanOptions struct {
	Model, ModelName string
	Described        *Model
	Cluster          string
	Inventory        *Inventory
	Nodes            int     // 0 means 1
	Link             string  // between two devices of a node: "NV4", "PHB", "p2p-off", "300GB/s"
	Network          string  // of each node: "8x400Gb/s"
	MemoryBytes      float64 // of each device; 0: as the cluster or inventory says
	Batch            int64   // samples of a step over all ranks; 0: one for each device
	Sequence         int64   // tokens of a sample; 0: the model's own
	Precision        string  // "": "gsel-bf16"
	Fixed            string  // what is decided already: "tensor=2, zero=1, recompute=all"
	Measured         string  // own measurements, as PlanRows reads them: one scalar for the class of device is fitted to them
	Shown            int     // candidates in the text; 0 means 10
	// Progress is called now and then by NewPlan, on its goroutine, with how many layouts were tried. An error ends the
	// search, and is found beneath ErrAborted.
	Progress func(tried int64) error
}

// PlanCandidate is a layout and its forecast. MFU and HFU are shares of the dense 16-bit peak, without and with
// recomputation; Bubble and Exposed are shares of the step: waiting in the pipeline, and communication that nothing
// hides. MemoryBytes is of the rank that needs most, HostBytes of the memory of its host.
type PlanCandidate struct {
	Name             string  `json:"name"`
	Tensor           int     `json:"tensor"`
	Context          int     `json:"context"`
	Data             int     `json:"data"`
	Pipeline         int     `json:"pipeline"`
	ZeROStage        int     `json:"zero_stage"`
	Chunks           int     `json:"chunks"` // stages of a rank
	Microbatch       int64   `json:"microbatch"`
	Microbatches     int64   `json:"microbatches"` // of one replica and step
	SequenceParallel bool    `json:"sequence_parallel"`
	Recompute        bool    `json:"recompute"`      // all layers that may
	OffloadState     bool    `json:"offload_state"`  // optimizer state in the memory of the host
	OffloadParams    bool    `json:"offload_params"` // and parameters
	StepSeconds      float64 `json:"step_s"`
	SamplesPerSecond float64 `json:"samples_per_s"` // over all ranks
	TokensPerSecond  float64 `json:"tokens_per_s"`
	MFU              float64 `json:"mfu"`
	HFU              float64 `json:"hfu"`
	Bubble           float64 `json:"bubble"`
	Exposed          float64 `json:"exposed"`
	MemoryBytes      float64 `json:"memory_bytes"`
	HostBytes        float64 `json:"host_bytes"`
}

// Plan is the layouts that fit, fastest first, at most 32; or a report without candidates. Candidates stay after Close.
// Calls on it may overlap.
type Plan struct {
	object
	Candidates []PlanCandidate
}

func newPlan(p *C.gsel_plan, err error) (*Plan, error) {
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	own(plan, &plan.object, "plan", unsafe.Pointer(p), func(p unsafe.Pointer) { C.gsel_plan_free((*C.gsel_plan)(p)) })
	plan.Candidates, err = each(C.gsel_plan_candidate_count(p), func(i C.int32_t, err **C.gsel_error) (PlanCandidate, C.gsel_status) {
		c := C.gsel_plan_candidate{struct_size: C.sizeof_gsel_plan_candidate}
		status := C.gsel_plan_candidate_get(p, i, &c, err)
		return planCandidateFromC(&c), status
	})
	if err != nil {
		plan.Close()
		return nil, err
	}
	return plan, nil
}

func planCandidateFromC(c *C.gsel_plan_candidate) PlanCandidate {
	has := func(flag C.uint32_t) bool { return c.flags&flag != 0 }
	return PlanCandidate{Name: text(c.name), Tensor: int(c.tensor), Context: int(c.context), Data: int(c.data),
		Pipeline: int(c.pipeline), ZeROStage: int(c.zero_stage), Chunks: int(c.chunks), Microbatch: int64(c.microbatch),
		Microbatches: int64(c.microbatches), SequenceParallel: has(C.GSEL_PLAN_SEQUENCE_PARALLEL),
		Recompute: has(C.GSEL_PLAN_RECOMPUTE), OffloadState: has(C.GSEL_PLAN_OFFLOAD_STATE),
		OffloadParams: has(C.GSEL_PLAN_OFFLOAD_PARAMS), StepSeconds: float64(c.step_s),
		SamplesPerSecond: float64(c.samples_per_s), TokensPerSecond: float64(c.tokens_per_s), MFU: float64(c.mfu),
		HFU: float64(c.hfu), Bubble: float64(c.bubble), Exposed: float64(c.exposed),
		MemoryBytes: float64(c.memory_bytes), HostBytes: float64(c.host_bytes)}
}

// use makes the options in C for a call of f. What they name is kept open meanwhile.
func (o *PlanOptions) use(ctx context.Context, f func(c *C.gsel_plan_options) error) error {
	if err := before(ctx); err != nil {
		return err
	}
	if o == nil {
		o = &PlanOptions{}
	}
	var l lent
	defer l.free()
	c := zeroed[C.gsel_plan_options](&l)
	c.struct_size = C.sizeof_gsel_plan_options
	c.model, c.model_name, c.cluster = l.given(o.Model), l.given(o.ModelName), l.given(o.Cluster)
	c.link, c.network = l.given(o.Link), l.given(o.Network)
	c.precision, c.fixed, c.measured = l.given(o.Precision), l.given(o.Fixed), l.given(o.Measured)
	c.memory_bytes, c.batch, c.sequence = C.double(o.MemoryBytes), C.int64_t(o.Batch), C.int64_t(o.Sequence)
	c.nodes, c.n_shown = narrow(o.Nodes), narrow(o.Shown)
	inventory := o.Inventory
	if inventory == nil && o.Cluster == "" { // this machine, whose drivers may not answer
		detected, err := DetectInventory(ctx)
		if err != nil {
			return err
		}
		defer detected.Close()
		inventory = detected
	}
	withModel := func() error {
		if o.Described == nil {
			return f(c)
		}
		return o.Described.use(func(p *C.gsel_model) error { c.described = p; return f(c) })
	}
	if inventory == nil {
		return withModel()
	}
	return inventory.keepOpen(func(p unsafe.Pointer) error { c.inventory = (*C.gsel_inventory)(p); return withModel() })
}

// planProgress is what a search under way asks whether to go on.
type planProgress struct {
	faults
	ctx context.Context
	f   func(tried int64) error
}

func (p *planProgress) report(tried int64) error {
	if err := p.ctx.Err(); err != nil || p.f == nil {
		return err
	}
	return protect(func() error { return p.f(tried) })
}

//export goPlanProgress
func goPlanProgress(tried C.int64_t, handle C.uintptr_t) C.int32_t {
	p := handled[*planProgress](handle)
	if err := p.report(int64(tried)); err != nil {
		p.put(err)
		return 1
	}
	return 0
}

// NewPlan searches. A plan without candidates is no error: its text says what is short and which change fits. Errors have
// the token, or file and key of the model, and what is accepted. A context that ends stops the search.
func NewPlan(ctx context.Context, options *PlanOptions) (plan *Plan, err error) {
	progress := &planProgress{ctx: ctx}
	if options != nil {
		progress.f = options.Progress
	}
	err = options.use(ctx, func(c *C.gsel_plan_options) error {
		if progress.f != nil || ctx.Done() != nil {
			handle := cgo.NewHandle(progress)
			defer handle.Delete()
			C.go_set_plan_progress(c, C.uintptr_t(handle))
		}
		plan, err = newPlan(made(func(out **C.gsel_plan, err **C.gsel_error) C.gsel_status { return C.gsel_plan_create(c, out, err) }))
		return err
	})
	if e, ok := err.(*Error); ok && e.Code == ErrAborted {
		return nil, beneath(err, progress.err)
	}
	return plan, err
}

// PlanEstimate is the memory of a rank under each strategy, whether it fits or not, without a search: a plan without
// candidates.
func PlanEstimate(ctx context.Context, options *PlanOptions) (plan *Plan, err error) {
	err = options.use(ctx, func(c *C.gsel_plan_options) error {
		plan, err = newPlan(made(func(out **C.gsel_plan, err **C.gsel_error) C.gsel_status { return C.gsel_plan_estimate(c, out, err) }))
		return err
	})
	return
}

// PlanCompare sets configurations beside each other, in columns named by their files: the forecast of each by part,
// whether it fits or not, as a plan without candidates. ErrConfig where one asks for what has no price.
func PlanCompare(ctx context.Context, options *PlanOptions, configs ...*Config) (plan *Plan, err error) {
	var l lent
	defer l.free()
	open := make([]*C.gsel_config, len(configs))
	for i, config := range configs {
		p, err := config.acquire()
		if err != nil {
			return nil, err
		}
		defer config.release()
		open[i] = (*C.gsel_config)(p)
	}
	err = options.use(ctx, func(c *C.gsel_plan_options) error {
		plan, err = newPlan(made(func(out **C.gsel_plan, err **C.gsel_error) C.gsel_status {
			return C.gsel_plan_compare(c, list[*C.gsel_config](&l, open), C.int32_t(len(open)), out, err)
		}))
		return err
	})
	return
}

// PlanRows forecasts a table of measurements, with the errors before and after one scalar for each class of device is
// fitted: a plan without candidates. rows is tab-separated, and its first line names the columns; name stands for it in
// messages.
func PlanRows(rows, name string) (*Plan, error) {
	var l lent
	defer l.free()
	return newPlan(made(func(out **C.gsel_plan, err **C.gsel_error) C.gsel_status {
		return C.gsel_plan_rows(l.text(rows), l.text(name), out, err)
	}))
}

// String is the plan for people: the questions that decide, the ranked list, and the first choice in parts. It is the
// same for the same options on every machine; "" after Close.
func (p *Plan) String() (t string) {
	p.keepOpen(func(at unsafe.Pointer) error { t = text(C.gsel_plan_text((*C.gsel_plan)(at))); return nil })
	return
}

// JSON is the plan with all candidates; "" after Close.
func (p *Plan) JSON() (json string) {
	p.keepOpen(func(at unsafe.Pointer) error { json = text(C.gsel_plan_json((*C.gsel_plan)(at))); return nil })
	return
}

// TOML is candidate i as gsel.toml, which gsel run and ParseConfig take as it is.
func (p *Plan) TOML(i int) (string, error) {
	return p.lend(func(p *C.gsel_plan, out *C.gsel_str, err **C.gsel_error) C.gsel_status {
		return C.gsel_plan_toml(p, C.int32_t(i), out, err)
	})
}

// Simulation is the simulated schedule of candidate i, which has a pipeline, as JSON that Timeline.Add takes.
func (p *Plan) Simulation(i int) (string, error) {
	return p.lend(func(p *C.gsel_plan, out *C.gsel_str, err **C.gsel_error) C.gsel_status {
		return C.gsel_plan_simulation(p, C.int32_t(i), out, err)
	})
}

// Picture is the parts of a step of the candidates that the text shows, as bars one below the other: an SVG that needs
// nothing else.
func (p *Plan) Picture() (string, error) {
	return p.lend(func(p *C.gsel_plan, out *C.gsel_str, err **C.gsel_error) C.gsel_status {
		return C.gsel_plan_picture(p, out, err)
	})
}

func (p *Plan) lend(f func(p *C.gsel_plan, out *C.gsel_str, err **C.gsel_error) C.gsel_status) (string, error) {
	at, err := p.enterWaiting()
	if err != nil {
		return "", err
	}
	defer p.leave()
	var out C.gsel_str
	var cerr *C.gsel_error
	status := f((*C.gsel_plan)(at), &out, &cerr)
	if err := check(status, &cerr); err != nil {
		return "", err
	}
	return text(out), nil
}

// Close releases the plan.
func (p *Plan) Close() error {
	return p.close()
}
