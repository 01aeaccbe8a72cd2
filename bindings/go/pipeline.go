package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime/cgo"
	"time"
	"unsafe"
)

// pipeline.go: stages of any computation as a pipeline over ranks, without a trainer.

// PipelineOptions says how stages are run; see gsel_pipeline_options. Schedule "" is 1f1b. Data fills inputs.
type PipelineOptions struct {
	Schedule          string
	Chunks            int
	Microbatches      int // of one run
	MicrobatchSamples int // of each micro-batch
	FirstLayers       []LayerID
	Data              func(*DataRequest) error
	Timeline          string // folder of step-RANK.json
	TensorRanks       int
}

// Pipeline is this rank's end of a pipeline. One goroutine at a time.
type Pipeline struct {
	object
	comm   *Comm
	driver *driver
}

// NewPipeline cuts the model's layers into stages, one or more per rank. Collective.
func NewPipeline(ctx context.Context, comm *Comm, model *Model, options *PipelineOptions) (*Pipeline, error) {
	if comm != nil { // which stays open until the pipeline is tied to it
		if _, err := comm.acquire(); err != nil {
			return nil, err
		}
		defer comm.release()
	}
	l := &Pipeline{comm: comm}
	var m lent
	defer m.free()
	o := zeroed[C.gsel_pipeline_options](&m)
	o.struct_size = C.sizeof_gsel_pipeline_options
	o.schedule, o.timeline = m.given(options.Schedule), m.given(options.Timeline)
	o.chunks, o.microbatches, o.tensor_ranks = narrow(options.Chunks), narrow(options.Microbatches), narrow(options.TensorRanks)
	o.microbatch_samples = C.int64_t(options.MicrobatchSamples)
	o.first_layers, o.n_first_layers = list[C.int32_t](&m, options.FirstLayers), C.int32_t(len(options.FirstLayers))
	d, data := newDriver(), cgo.Handle(0)
	if options.Data != nil {
		data = cgo.NewHandle(&dataCallback{options.Data})
		C.go_set_pipeline_data(o, C.uintptr_t(data))
	}
	var p *C.gsel_pipeline
	err := model.use(func(m *C.gsel_model) error {
		return comm.blocking(ctx, func(c unsafe.Pointer) error {
			return d.drive(&comm.object, func() (err error) {
				p, err = made(func(out **C.gsel_pipeline, err **C.gsel_error) C.gsel_status {
					return C.gsel_pipeline_create(commPointer(c), m, o, out, err)
				})
				return err
			})
		})
	})
	if err != nil {
		if p != nil { // made as the context ended
			C.gsel_pipeline_free(p)
			data = 0
		}
		d.free()
		if data != 0 {
			data.Delete()
		}
		return nil, err
	}
	l.driver = d
	own(l, &l.object, "pipeline", unsafe.Pointer(p), func(p unsafe.Pointer) {
		C.gsel_pipeline_free((*C.gsel_pipeline)(p))
		d.free()
	}, &comm.object)
	l.onUser = func() { comm.Abort("the pipeline was closed") }
	return l, nil
}

// RunKind is what a run of a pipeline computes.
type RunKind int32

// Kinds of runs: forward alone, or forward and backward.
const (
	RunForward         RunKind = 2
	RunForwardBackward RunKind = 6
)

// PipelineReport is where this rank's time went: Elapsed is the sum of Busy, Idle, Comm and Overhead.
type PipelineReport struct {
	Rank                                int
	Elapsed, Busy, Idle, Comm, Overhead time.Duration
	MessagesSent, BytesSent, PeakBytes  uint64
	LossSum, LossWeight                 float64
}

// Run runs all micro-batches. Collective. A context that ends aborts the communicator.
func (l *Pipeline) Run(ctx context.Context, what RunKind) (PipelineReport, error) {
	p, err := l.enter()
	if err != nil {
		return PipelineReport{}, err
	}
	defer l.leave()
	w, err := l.comm.watch(ctx, false)
	if err != nil {
		return PipelineReport{}, err
	}
	r := C.gsel_pipeline_report{struct_size: C.sizeof_gsel_pipeline_report}
	err = w.stop(l.driver.drive(&l.object, func() error {
		var cerr *C.gsel_error
		status := C.gsel_pipeline_run((*C.gsel_pipeline)(p), C.int32_t(what), &r, &cerr)
		return check(status, &cerr)
	}))
	return PipelineReport{int(r.rank), seconds(r.elapsed_s), seconds(r.busy_s), seconds(r.idle_s), seconds(r.comm_s),
		seconds(r.overhead_s), uint64(r.messages_sent), uint64(r.bytes_sent), uint64(r.peak_bytes), float64(r.loss_sum),
		float64(r.loss_weight)}, err
}

// PipelineStage is one of this rank's stages, with its time in the last run.
type PipelineStage struct {
	Stage                                  int
	FirstLayer                             LayerID
	Layers                                 int
	Forward, BackwardInput, BackwardWeight time.Duration
}

// Stages is this rank's stages, in ascending order.
func (l *Pipeline) Stages() ([]PipelineStage, error) {
	return listOf(&l.object, func(p *C.gsel_pipeline) C.int32_t { return C.gsel_pipeline_stage_count(p) },
		func(p *C.gsel_pipeline, i C.int32_t, err **C.gsel_error) (PipelineStage, C.gsel_status) {
			s := C.gsel_pipeline_stage{struct_size: C.sizeof_gsel_pipeline_stage}
			status := C.gsel_pipeline_stage_get(p, i, &s, err)
			return PipelineStage{int(s.stage), LayerID(s.first_layer), int(s.n_layers), seconds(s.forward_s),
				seconds(s.backward_input_s), seconds(s.backward_weight_s)}, status
		})
}

// Program is this rank's program, for as long as the pipeline is open.
func (l *Pipeline) Program() (*Program, error) {
	return l.object.program(func(p unsafe.Pointer) *C.gsel_program { return C.gsel_pipeline_program((*C.gsel_pipeline)(p)) })
}

// Close releases the pipeline, not its communicator. In a callback of a call on the pipeline: ErrState.
func (l *Pipeline) Close() error {
	return l.close()
}
