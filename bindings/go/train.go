package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"io"
	"runtime/cgo"
	"time"
	"unsafe"
)

// train.go: the trainer. Pull is the natural way in Go: NextWork hands out what is to be computed, Work.Complete says
// that it is done, and io.EOF ends the step.

// Call is what a layer computes on. All of it is borrowed until the callback returns or the work is complete. Which lists
// are read and written by which kind of work, see gsel_call. A gradient whose Data is nil is not needed.
type Call struct {
	Layer                                  LayerID
	Microbatch                             int
	SampleIDs                              []int64
	Params, Inputs, Outputs                []Tensor
	DOutputs, DInputs, DParams             []Tensor
	Accumulate                             bool // add to DParams rather than overwrite them
	Saved                                  []byte
	RNGKey                                 uint64
	DeviceRNGKey                           uintptr // memory of the device with the RNGKey of the step whose work reads it; 0: steps are no graphs
	Stream                                 uintptr
	Step                                   int64
	Evaluating                             bool
	Phase                                  int
	Reductions                             []Tensor
	Produced                               []uint8 // set [i] to 0 to leave DParams[i] unwritten: it counts as 0
	ParamShards, InputShards, OutputShards []Shard
	ShardIndex, ShardCount                 int
}

// slice views n elements of C as Go's mirror of them.
func slice[T, F any, N ~int32 | ~int64 | ~uint64](from *F, n N) []T {
	if from == nil || n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(from)), int(n))
}

func (c *Call) fromC(from *C.gsel_call) {
	*c = Call{
		Layer: LayerID(from.layer), Microbatch: int(from.microbatch),
		SampleIDs: slice[int64](from.sample_ids, from.n_samples),
		Params:    slice[Tensor](from.params, from.n_params), Inputs: slice[Tensor](from.inputs, from.n_inputs),
		Outputs: slice[Tensor](from.outputs, from.n_outputs), DOutputs: slice[Tensor](from.d_outputs, from.n_outputs),
		DInputs: slice[Tensor](from.d_inputs, from.n_inputs), DParams: slice[Tensor](from.d_params, from.n_params),
		Accumulate: from.accumulate != 0,
		Saved:      slice[byte]((*byte)(from.saved), from.saved_bytes),
		RNGKey:     uint64(from.rng_key), Stream: uintptr(from.stream),
		Step: int64(from.step), Evaluating: from.evaluating != 0, Phase: int(from.phase),
		Reductions:  slice[Tensor](from.reductions, from.n_reductions),
		Produced:    slice[uint8](from.produced, from.n_params),
		ParamShards: slice[Shard](from.param_shards, from.n_params), InputShards: slice[Shard](from.input_shards, from.n_inputs),
		OutputShards: slice[Shard](from.output_shards, from.n_outputs),
		ShardIndex:   int(from.shard_index), ShardCount: int(from.shard_count),
		DeviceRNGKey: uintptr(unsafe.Pointer(from.device_rng_key)),
	}
}

// DataRequest asks for an input: all of Dst, [len(SampleIDs)][the value's shape]. Sample ids are global.
type DataRequest struct {
	Value      ValueID
	Microbatch int
	SampleIDs  []int64
	Dst        Tensor
	Stream     uintptr // of the device; 0 for memory of the host
}

func (r *DataRequest) fromC(from *C.gsel_data_request) {
	*r = DataRequest{ValueID(from.value), int(from.microbatch), slice[int64](from.sample_ids, from.n_samples),
		*(*Tensor)(unsafe.Pointer(&from.dst)), uintptr(from.stream)}
}

// OptimizerNeeds is what an optimizer needs of a parameter.
type OptimizerNeeds int32

// Needs of gsel/train.h.
const (
	NeedsElements   OptimizerNeeds = 0
	NeedsParamNorm  OptimizerNeeds = 1
	NeedsWholeParam OptimizerNeeds = 2
)

// OptimizerCall is a call of an optimizer of the program's; see gsel_optimizer_call.
type OptimizerCall struct {
	Phase                                            int
	Param                                            ParamID
	Flags                                            ParamFlags
	Shape                                            []int64
	First                                            int64
	Values, Gradient                                 []float32
	States                                           [][]float32
	T                                                int64
	LearningRate, WeightDecay, ParamNorm, UpdateNorm float64
	Stream                                           uintptr // of the device; 0 for memory of the host
}

func (c *OptimizerCall) fromC(from *C.gsel_optimizer_call) {
	n := from.count
	*c = OptimizerCall{Phase: int(from.phase), Param: ParamID(from.param), Flags: ParamFlags(from.flags),
		Shape: slice[int64](from.dims, from.n_dims), First: int64(from.first),
		Values: slice[float32](from.values, n), Gradient: slice[float32](from.gradient, n), T: int64(from.t),
		LearningRate: float64(from.learning_rate), WeightDecay: float64(from.weight_decay),
		ParamNorm: float64(from.param_norm), UpdateNorm: float64(from.update_norm), Stream: uintptr(from.stream)}
	for _, state := range slice[*C.float](from.states, from.n_states) {
		c.States = append(c.States, slice[float32](state, n))
	}
}

// OptimizerOptions is an optimizer of the program's, which replaces train.optimizer.
type OptimizerOptions struct {
	Needs  OptimizerNeeds
	States int // 0 to 4 arrays, zero before the first step
	Step   func(*OptimizerCall) error
}

// TrainerOptions says how a trainer is made. Config nil: all defaults. Data fills inputs when steps are pushed.
type TrainerOptions struct {
	Config    *Config
	Data      func(*DataRequest) error
	Optimizer *OptimizerOptions
}

// Trainer trains a model on the ranks of a communicator. One goroutine at a time makes calls, on whatever thread it is.
// Close it.
type Trainer struct {
	object
	comm   *Comm
	driver *driver
	work   Work
}

// NewTrainer compiles the model under the configuration's strategy and initialises the parameters. Collective.
func NewTrainer(ctx context.Context, comm *Comm, model *Model, options *TrainerOptions) (*Trainer, error) {
	return newTrainer(ctx, comm, model, options, func(c *C.gsel_comm, m *C.gsel_model, o *C.gsel_trainer_options, out **C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_create(c, m, o, out, err)
	})
}

// newTrainer is the trainer that create makes.
func newTrainer(ctx context.Context, comm *Comm, model *Model, options *TrainerOptions, create func(*C.gsel_comm, *C.gsel_model, *C.gsel_trainer_options, **C.gsel_trainer, **C.gsel_error) C.gsel_status) (*Trainer, error) {
	if options == nil {
		options = &TrainerOptions{}
	}
	if comm != nil { // which stays open until the trainer is tied to it
		if _, err := comm.acquire(); err != nil {
			return nil, err
		}
		defer comm.release()
	}
	t := &Trainer{comm: comm}
	var l lent
	defer l.free()
	o := zeroed[C.gsel_trainer_options](&l)
	o.struct_size = C.sizeof_gsel_trainer_options
	if options.Config != nil {
		config, err := options.Config.acquire()
		if err != nil {
			return nil, err
		}
		defer options.Config.release()
		o.config = (*C.gsel_config)(config)
	}
	d, data, optimizer := newDriver(), cgo.Handle(0), cgo.Handle(0)
	if options.Data != nil {
		data = cgo.NewHandle(&dataCallback{options.Data})
		C.go_set_data(o, C.uintptr_t(data))
	}
	if options.Optimizer != nil {
		c := zeroed[C.gsel_optimizer_options](&l)
		optimizer = options.Optimizer.toC(c)
		o.optimizer = c
	}
	var p *C.gsel_trainer
	err := model.use(func(m *C.gsel_model) error {
		return comm.blocking(ctx, func(c unsafe.Pointer) error {
			return d.drive(&comm.object, func() error {
				var err *C.gsel_error
				status := create(commPointer(c), m, o, &p, &err)
				return check(status, &err)
			})
		})
	})
	if err != nil {
		if p != nil { // made as the context ended
			C.gsel_trainer_free(p)
			data = 0
		}
		d.free()
		for _, h := range []cgo.Handle{data, optimizer} {
			if h != 0 {
				h.Delete()
			}
		}
		return nil, err
	}
	t.driver = d
	own(t, &t.object, "trainer", unsafe.Pointer(p), func(p unsafe.Pointer) {
		C.gsel_trainer_free((*C.gsel_trainer)(p))
		d.free()
		if optimizer != 0 {
			optimizer.Delete()
		}
	}, &comm.object)
	t.onUser = func() { comm.Abort("the trainer was closed") }
	return t, nil
}

func (o *OptimizerOptions) toC(c *C.gsel_optimizer_options) cgo.Handle {
	c.struct_size = C.sizeof_gsel_optimizer_options
	c.needs, c.n_states = C.int32_t(o.Needs), narrow(o.States)
	handle := cgo.NewHandle(&optimizerCallback{o.Step})
	C.go_set_optimizer(c, C.uintptr_t(handle))
	return handle
}

// with makes a call that may wait for other ranks. A context that ends aborts the communicator.
func (t *Trainer) with(ctx context.Context, f func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status) error {
	p, err := t.enter()
	if err != nil {
		return err
	}
	defer t.leave()
	w, err := t.comm.watch(ctx, false)
	if err != nil {
		return err
	}
	return w.stop(t.driver.drive(&t.object, func() error {
		var cerr *C.gsel_error
		status := f((*C.gsel_trainer)(p), &cerr)
		return check(status, &cerr)
	}))
}

// StepReport is what a step did on this rank; see gsel_step_report.
type StepReport struct {
	Step                               int64
	Loss, LossSum, Weight              float64
	GradientNorm                       float64
	Elapsed, Compute, ExposedComm      time.Duration
	Optimizer                          time.Duration
	BytesSent                          uint64
	Reduces, Overlapped, AllGathers    int
	Skipped                            bool
	AllGather, ExposedAllGather        time.Duration
	LearningRate, LossScale            float64
	PeakBytes                          uint64
	OffloadBytesIn, OffloadBytesOut    uint64
	ValidatedStep                      int64
	Restarts                           int
	NonFiniteRank, NonFiniteMicrobatch int
	NonFiniteLayer                     LayerID
	NonFiniteParam                     ParamID
	NonFiniteValue                     ValueID
	Save                               SaveState // what had become of a save in the background
}

func reportFromC(r *C.gsel_step_report) StepReport {
	return StepReport{Step: int64(r.step), Loss: float64(r.loss), LossSum: float64(r.loss_sum), Weight: float64(r.weight),
		GradientNorm: float64(r.gradient_norm), Elapsed: seconds(r.seconds), Compute: seconds(r.compute_s),
		ExposedComm: seconds(r.exposed_comm_s), Optimizer: seconds(r.optimizer_s), BytesSent: uint64(r.bytes_sent),
		Reduces: int(r.n_reduces), Overlapped: int(r.n_overlapped), AllGathers: int(r.n_allgathers), Skipped: r.skipped != 0,
		AllGather: seconds(r.allgather_s), ExposedAllGather: seconds(r.exposed_allgather_s),
		LearningRate: float64(r.learning_rate), LossScale: float64(r.loss_scale), PeakBytes: uint64(r.peak_bytes),
		OffloadBytesIn: uint64(r.offload_bytes_in), OffloadBytesOut: uint64(r.offload_bytes_out),
		ValidatedStep: int64(r.validated_step), Restarts: int(r.restarts), NonFiniteRank: int(r.non_finite_rank),
		NonFiniteMicrobatch: int(r.non_finite_microbatch), NonFiniteLayer: LayerID(r.non_finite_layer),
		NonFiniteParam: ParamID(r.non_finite_param), NonFiniteValue: ValueID(r.non_finite_value),
		Save: SaveState(r.save)}
}

// reporting makes a call that fills a report.
func (t *Trainer) reporting(ctx context.Context, f func(p *C.gsel_trainer, r *C.gsel_step_report, err **C.gsel_error) C.gsel_status) (StepReport, error) {
	r := C.gsel_step_report{struct_size: C.sizeof_gsel_step_report}
	err := t.with(ctx, func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status { return f(p, &r, err) })
	if err != nil {
		return StepReport{}, err
	}
	return reportFromC(&r), nil
}

// Step runs one step with the callbacks of the model. An error of a callback is found beneath the error; other ranks get
// ErrAborted with its words.
func (t *Trainer) Step(ctx context.Context) (StepReport, error) {
	return t.reporting(ctx, func(p *C.gsel_trainer, r *C.gsel_step_report, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_step(p, r, err)
	})
}

// Work is a piece of work of a step, borrowed until Complete or Fail. Kind WorkInput asks for Input; the other kinds are
// to be computed on Call.
type Work struct {
	Kind    WorkKind
	Input   *DataRequest // nil for other kinds
	Call    *Call        // nil for WorkInput
	trainer *Trainer
	ctx     context.Context
	ticket  uint64
	call    Call
	input   DataRequest
}

// NextWork returns the next work of the step, and begins a step when none is under way. io.EOF says that the step is
// over. The work before must be complete. The Work is the trainer's and lent until it is complete.
func (t *Trainer) NextWork(ctx context.Context) (*Work, error) {
	work := C.gsel_work{struct_size: C.sizeof_gsel_work}
	err := t.with(ctx, func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_next_work(p, &work, err)
	})
	if err != nil {
		return nil, err
	}
	if WorkKind(work.kind) == workDone {
		return nil, io.EOF
	}
	w := &t.work
	w.Kind, w.trainer, w.ctx, w.ticket, w.Call, w.Input = WorkKind(work.kind), t, ctx, uint64(work.ticket), nil, nil
	if work.input != nil {
		w.input.fromC(work.input)
		w.Input = &w.input
	}
	if work.call != nil {
		w.call.fromC(work.call)
		w.Call = &w.call
	}
	return w, nil
}

// Complete says that the work is done.
func (w *Work) Complete() error { return w.complete(C.GSEL_OK, "") }

// Fail says that the work cannot be done: the step ends on every rank, with cause beneath the error returned here. With
// ErrNoSamples, for WorkInput, this rank has no samples left, and that is no error.
func (w *Work) Fail(cause error) error {
	if cause == ErrNoSamples && w.Kind == WorkInput {
		return w.complete(C.GSEL_NO_SAMPLES, "")
	}
	text, cause := words(cause)
	return beneath(w.complete(C.GSEL_ERR_CALLBACK, text), cause)
}

func (w *Work) complete(status C.gsel_status, why string) error {
	var l lent
	defer l.free()
	var message C.gsel_str
	if why != "" {
		message = l.text(why)
	}
	ticket := w.ticket
	return w.trainer.with(w.ctx, func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_complete(p, C.uint64_t(ticket), status, message, err)
	})
}

// Pull runs one step (or the evaluation that was begun) by pull: do computes each work. An error or panic of do ends the
// step on every rank and is found beneath the error.
func (t *Trainer) Pull(ctx context.Context, do func(*Work) error) (StepReport, error) {
	for {
		work, err := t.NextWork(ctx)
		if err == io.EOF {
			return t.Report()
		}
		if err != nil {
			return StepReport{}, err
		}
		if cause := protect(func() error { return do(work) }); cause != nil {
			err = work.Fail(cause)
		} else {
			err = work.Complete()
		}
		if err != nil {
			return StepReport{}, err
		}
	}
}

// Report is that of the last finished step.
func (t *Trainer) Report() (StepReport, error) {
	return t.reporting(context.Background(), func(p *C.gsel_trainer, r *C.gsel_step_report, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_report(p, r, err)
	})
}

// withData makes a call with a data callback of its own; nil: the trainer's.
func (t *Trainer) withData(data func(*DataRequest) error, f func(handle C.uintptr_t)) {
	if data == nil {
		f(0)
		return
	}
	handle := cgo.NewHandle(&dataCallback{data})
	defer handle.Delete()
	f(C.uintptr_t(handle))
}

// Evaluate runs forward and loss on one batch from firstSample on. Collective. data nil: that of the trainer.
func (t *Trainer) Evaluate(ctx context.Context, firstSample int64, data func(*DataRequest) error) (report StepReport, err error) {
	t.withData(data, func(handle C.uintptr_t) {
		report, err = t.reporting(ctx, func(p *C.gsel_trainer, r *C.gsel_step_report, err **C.gsel_error) C.gsel_status {
			return C.go_evaluate(p, C.int64_t(firstSample), handle, r, err)
		})
	})
	return
}

// BeginEvaluation begins an evaluation by pull: NextWork hands out its work.
func (t *Trainer) BeginEvaluation(firstSample int64) error {
	return t.with(context.Background(), func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_begin_evaluation(p, C.int64_t(firstSample), err)
	})
}

// HoldsParams tells whether this rank has every parameter whole between steps. If not, Infer and ReadParam are
// collectives.
func (t *Trainer) HoldsParams() (holds bool) {
	t.look(func(p unsafe.Pointer) { holds = C.gsel_trainer_holds_params((*C.gsel_trainer)(p)) != 0 })
	return
}

// InferRaw computes value for samples 0 to nSamples-1 into bytes at dst. Infer is its form for slices.
func (t *Trainer) InferRaw(ctx context.Context, value ValueID, nSamples int, data func(*DataRequest) error, dst unsafe.Pointer, bytes int) (err error) {
	t.withData(data, func(handle C.uintptr_t) {
		err = t.with(ctx, func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
			return C.go_infer(p, C.int32_t(value), C.int64_t(nSamples), handle, dst, C.size_t(bytes), err)
		})
	})
	return
}

// Infer runs forward callbacks until value is written, and copies it to dst, [nSamples][the value's shape].
func Infer[T Element](ctx context.Context, t *Trainer, value ValueID, nSamples int, data func(*DataRequest) error, dst []T) error {
	var zero T
	return t.InferRaw(ctx, value, nSamples, data, first(dst), len(dst)*int(unsafe.Sizeof(zero)))
}

// ReadParam copies a whole parameter to dst.
func (t *Trainer) ReadParam(ctx context.Context, param ParamID, dst []float32) error {
	return t.with(ctx, func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_read_param(p, C.int32_t(param), first(dst), C.size_t(4*len(dst)), err)
	})
}

// ReadGradient copies the gradient of the mean loss in the last step to dst. Collective.
func (t *Trainer) ReadGradient(ctx context.Context, param ParamID, dst []float32) error {
	return t.with(ctx, func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_read_gradient(p, C.int32_t(param), first(dst), C.size_t(4*len(dst)), err)
	})
}

// SetLearningRate sets that of the next step and of those that follow. All ranks set the same.
func (t *Trainer) SetLearningRate(rate float64) error {
	return t.with(context.Background(), func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_set_learning_rate(p, C.double(rate), err)
	})
}

// ParamUsed tells whether any backward of the last step produced this parameter's gradient on this rank.
func (t *Trainer) ParamUsed(param ParamID) (used bool, err error) {
	closed := t.look(func(p unsafe.Pointer) {
		n := C.gsel_trainer_param_used((*C.gsel_trainer)(p), C.int32_t(param))
		if used = n > 0; n < 0 {
			err = failed(Status(n), "there is no parameter %d", param)
		}
	})
	if closed != nil {
		err = closed
	}
	return
}

// Counts is what this rank's trainer has sent for one kind of instruction on one axis.
func (t *Trainer) Counts(kind InstrKind, axis Axis) (CommCount, error) {
	count := C.gsel_comm_count{struct_size: C.sizeof_gsel_comm_count}
	err := t.with(context.Background(), func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_counts(p, C.gsel_instr_kind(kind), C.gsel_axis(axis), &count, err)
	})
	return CommCount{uint64(count.calls), uint64(count.bytes_sent)}, err
}

// MemoryPart is one part of the trainer's memory: bytes forecast from the program, and the most allocated.
type MemoryPart struct {
	Name                     string
	Offloaded                bool
	ForecastBytes, PeakBytes uint64
}

// Memory is the parts of the memory of this rank's trainer.
func (t *Trainer) Memory() (parts []MemoryPart, err error) {
	err = t.with(context.Background(), func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		for i := C.int32_t(0); i < C.gsel_trainer_memory_count(p); i++ {
			part := C.gsel_memory_part{struct_size: C.sizeof_gsel_memory_part}
			if status := C.gsel_trainer_memory(p, i, &part, err); status != C.GSEL_OK {
				return status
			}
			parts = append(parts, MemoryPart{C.GoString(part.name), part.offloaded != 0, uint64(part.forecast_bytes), uint64(part.peak_bytes)})
		}
		return C.GSEL_OK
	})
	return
}

// StepJSON is the last step as JSON (docs/step.md).
func (t *Trainer) StepJSON() (json string, err error) {
	err = t.with(context.Background(), func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		var out C.gsel_str
		status := C.gsel_trainer_step_json(p, &out, err)
		json = text(out)
		return status
	})
	return
}

// Close releases the trainer, not its communicator. A step under way ends on every rank with ErrAborted. In a callback of
// a call on the trainer: ErrState.
func (t *Trainer) Close() error {
	return t.close()
}
