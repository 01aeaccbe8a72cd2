package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// model.go: a model, described once, and what its callbacks get.

// ParamID, ValueID and LayerID count the parts of a model from 0.
type (
	ParamID int32
	ValueID int32
	LayerID int32
)

// Model is a description under construction: parameters, values, and layers in execution order, the same on every rank.
// The first error of an Add method stays: Finish and what is made from the model return it, as bufio.Writer does. One
// goroutine at a time. Close it; trainers keep what they need.
type Model struct {
	object
	err error
}

// Init is how a parameter begins.
type Init int32

// Initialisers of gsel/model.h. InitFunc is implied by ParamOptions.InitFunc.
const (
	InitZeros  Init = 0
	InitOnes   Init = 1
	InitNormal Init = 2 // mean 0, deviation InitScale
	initFunc   Init = 3
)

// ParamFlags of a parameter.
type ParamFlags uint32

// Flags of gsel/model.h.
const (
	ParamNoDecay        ParamFlags = 1 // weight decay does not apply
	ParamFrozen         ParamFlags = 2 // no gradient, never updated
	ParamNoClip         ParamFlags = 4 // not counted in the gradient norm, not scaled by clipping
	ParamReplicateIfFew ParamFlags = 8 // replicated if it cannot be split into as many shards as the axis has ranks
)

// ParamOptions describes a parameter. Shape is in elements. DType 0 is F32. Sharded says that ranks that share layers
// split it along ShardDim, in ShardBlocks blocks at multiples of ShardGranularity. InitFunc fills elements [first,
// first+len(dst)) of the initial value, the same bits for the same arguments.
type ParamOptions struct {
	Name                                    string
	Shape                                   []int64
	DType                                   DType
	Flags                                   ParamFlags
	Init                                    Init
	InitScale                               float64
	InitFunc                                func(dst []float32, first int64, seed uint64) error
	Sharded                                 bool
	ShardDim, ShardBlocks, ShardGranularity int
	LRFactor                                float64 // 0 means 1
}

// ValueFlags of a value.
type ValueFlags uint32

// Flags of gsel/model.h.
const (
	ValueInput             ValueFlags = 1 // supplied by the program per micro-batch
	ValueNotDifferentiable ValueFlags = 2
	ValueScalar            ValueFlags = 4 // one number per micro-batch: loss sum and weight sum, F64
	ValueReplicateIfFew    ValueFlags = 8
)

// Placement of a value on ranks that share its layer.
type Placement int32

// Placements of gsel/model.h.
const (
	PlacementReplicate Placement = 0
	PlacementShard     Placement = 1
	PlacementPartial   Placement = 2
)

// ValueOptions describes a tensor between layers. Shape is that of one sample.
type ValueOptions struct {
	Name                                    string
	Shape                                   []int64
	DType                                   DType
	Flags                                   ValueFlags
	Placement                               Placement
	ShardDim, ShardBlocks, ShardGranularity int
	SequenceDim                             int
}

// LayerFlags of a layer.
type LayerFlags uint32

// Flags of gsel/model.h.
const (
	LayerLoss              LayerFlags = 1 // outputs are two F64 scalars: sum of losses, sum of weights
	LayerNoCutAfter        LayerFlags = 2
	LayerRecomputable      LayerFlags = 4
	LayerOwnParams         LayerFlags = 8
	LayerPositionwise      LayerFlags = 16
	LayerSavesWhole        LayerFlags = 32
	LayerAlwaysAccumulates LayerFlags = 64
	LayerWeightReadsParams LayerFlags = 128
)

// PhaseFlags of a phase.
type PhaseFlags uint32

// Flags of gsel/model.h.
const (
	PhaseRingShift PhaseFlags = 1
	PhaseHome      PhaseFlags = 2
)

// Phase is a collective in the middle of a callback; see gsel_phase.
type Phase struct {
	Axis                  Axis
	Op                    Op
	DType                 DType
	Flags                 PhaseFlags
	Elems, ElemsPerSample int64
}

// UnreadInput, UnreadOutput and UnreadSaved are bits of what a backward does not read.
func UnreadInput(i int) uint64  { return 1 << i }
func UnreadOutput(i int) uint64 { return 1 << (32 + i) }

// UnreadSaved: the saved bytes.
const UnreadSaved uint64 = 1 << 63

// LayerOptions describes a layer. Without callbacks it can only be driven by pull (Trainer.NextWork). Otherwise it has
// Forward, and Backward or both of its halves. A callback runs on the thread of the call that drives the trainer, must
// not keep what it gets, and ends the step on every rank if it returns an error or panics.
type LayerOptions struct {
	Name                                             string
	Inputs, Outputs                                  []ValueID
	Params                                           []ParamID
	Flags                                            LayerFlags
	SavedBytesPerSample                              uint64
	FLOPPerSample                                    float64
	Forward, BackwardInput, BackwardWeight, Backward func(*Call) error
	BackwardInputUnread, BackwardWeightUnread        uint64
	BackwardUnreadParams                             uint64
	ForwardPhases, BackwardPhases                    []Phase
}

// NewModel makes an empty description.
func NewModel() (*Model, error) {
	var p *C.gsel_model
	var err *C.gsel_error
	status := C.gsel_model_create(&p, &err)
	if err := check(status, &err); err != nil {
		return nil, err
	}
	m := &Model{}
	own(m, &m.object, "model", unsafe.Pointer(p), func(p unsafe.Pointer) { C.gsel_model_free((*C.gsel_model)(p)) })
	return m, nil
}

// Close releases the description; trainers made from it keep theirs.
func (m *Model) Close() error {
	return m.close()
}

// add runs one addition, unless an earlier one failed. release is deleted if C did not keep it.
func (m *Model) add(handle cgo.Handle, f func(p *C.gsel_model, id *C.int32_t, err **C.gsel_error) C.gsel_status) int32 {
	id := C.int32_t(-1)
	err := m.err
	if err == nil {
		var p unsafe.Pointer
		if p, err = m.enter(); err == nil {
			var cerr *C.gsel_error
			status := f((*C.gsel_model)(p), &id, &cerr)
			err = check(status, &cerr)
			m.leave()
		}
	}
	if err != nil {
		m.err = err
		if handle != 0 {
			handle.Delete()
		}
		return -1
	}
	return int32(id)
}

// AddParam adds a parameter.
func (m *Model) AddParam(o ParamOptions) ParamID {
	var l lent
	defer l.free()
	c := zeroed[C.gsel_param_options](&l)
	c.struct_size = C.sizeof_gsel_param_options
	c.name, c.dims, c.n_dims = l.text(o.Name), list[C.int64_t](&l, o.Shape), C.int32_t(len(o.Shape))
	c.dtype, c.flags = C.gsel_dtype(o.DType), C.uint32_t(o.Flags)
	c.init, c.init_scale = C.int32_t(o.Init), C.double(o.InitScale)
	if o.Sharded {
		c.shard = C.GSEL_SHARD_DIM
	}
	c.shard_dim, c.shard_blocks = narrow(o.ShardDim), narrow(o.ShardBlocks)
	c.shard_granularity, c.lr_factor = narrow(o.ShardGranularity), C.double(o.LRFactor)
	handle := cgo.Handle(0)
	if o.InitFunc != nil {
		c.init = C.int32_t(initFunc)
		handle = cgo.NewHandle(&initCallback{o.InitFunc})
		C.go_set_param_init(c, C.uintptr_t(handle))
	}
	return ParamID(m.add(handle, func(p *C.gsel_model, id *C.int32_t, err **C.gsel_error) C.gsel_status {
		return C.gsel_model_add_param(p, c, id, err)
	}))
}

// AddValue adds a value.
func (m *Model) AddValue(o ValueOptions) ValueID {
	var l lent
	defer l.free()
	c := zeroed[C.gsel_value_options](&l)
	c.struct_size = C.sizeof_gsel_value_options
	c.name, c.dims, c.n_dims = l.text(o.Name), list[C.int64_t](&l, o.Shape), C.int32_t(len(o.Shape))
	c.dtype, c.flags, c.placement = C.gsel_dtype(o.DType), C.uint32_t(o.Flags), C.int32_t(o.Placement)
	c.shard_dim, c.shard_blocks = narrow(o.ShardDim), narrow(o.ShardBlocks)
	c.shard_granularity, c.sequence_dim = narrow(o.ShardGranularity), narrow(o.SequenceDim)
	return ValueID(m.add(0, func(p *C.gsel_model, id *C.int32_t, err **C.gsel_error) C.gsel_status {
		return C.gsel_model_add_value(p, c, id, err)
	}))
}

// AddLayer appends a layer.
func (m *Model) AddLayer(o LayerOptions) LayerID {
	var l lent
	defer l.free()
	c := zeroed[C.gsel_layer_options](&l)
	c.struct_size = C.sizeof_gsel_layer_options
	c.name = l.text(o.Name)
	c.inputs, c.n_inputs = list[C.int32_t](&l, o.Inputs), C.int32_t(len(o.Inputs))
	c.outputs, c.n_outputs = list[C.int32_t](&l, o.Outputs), C.int32_t(len(o.Outputs))
	c.params, c.n_params = list[C.int32_t](&l, o.Params), C.int32_t(len(o.Params))
	c.flags = C.uint32_t(o.Flags)
	c.saved_bytes_per_sample, c.flop_per_sample = C.uint64_t(o.SavedBytesPerSample), C.double(o.FLOPPerSample)
	c.backward_input_unread = C.uint64_t(o.BackwardInputUnread)
	c.backward_weight_unread = C.uint64_t(o.BackwardWeightUnread)
	c.backward_unread_params = C.uint64_t(o.BackwardUnreadParams)
	c.forward_phases, c.n_forward_phases = phasesToC(&l, o.ForwardPhases), C.int32_t(len(o.ForwardPhases))
	c.backward_phases, c.n_backward_phases = phasesToC(&l, o.BackwardPhases), C.int32_t(len(o.BackwardPhases))
	handle := cgo.Handle(0)
	if o.Forward != nil || o.BackwardInput != nil || o.BackwardWeight != nil || o.Backward != nil {
		handle = cgo.NewHandle(&layerCallbacks{o.Forward, o.BackwardInput, o.BackwardWeight, o.Backward})
		C.go_set_layer(c, C.uintptr_t(handle), has(o.Forward), has(o.BackwardInput), has(o.BackwardWeight), has(o.Backward))
	}
	return LayerID(m.add(handle, func(p *C.gsel_model, id *C.int32_t, err **C.gsel_error) C.gsel_status {
		return C.gsel_model_add_layer(p, c, id, err)
	}))
}

func has(f func(*Call) error) C.int {
	if f == nil {
		return 0
	}
	return 1
}

func phasesToC(l *lent, phases []Phase) *C.gsel_phase {
	in := make([]C.gsel_phase, len(phases))
	for i, p := range phases {
		in[i] = C.gsel_phase{struct_size: C.sizeof_gsel_phase, axis: C.gsel_axis(p.Axis), op: C.gsel_op(p.Op),
			dtype: C.gsel_dtype(p.DType), flags: C.uint32_t(p.Flags), elems: C.int64_t(p.Elems),
			elems_per_sample: C.int64_t(p.ElemsPerSample)}
	}
	return list[C.gsel_phase](l, in)
}

// Finish checks the whole model and freezes it. What is made from a model does so, too.
func (m *Model) Finish() error {
	if m.err != nil {
		return m.err
	}
	p, err := m.enter()
	if err != nil {
		return err
	}
	defer m.leave()
	var cerr *C.gsel_error
	status := C.gsel_model_finish((*C.gsel_model)(p), &cerr)
	return check(status, &cerr)
}

// use hands the model to a call that makes something from it.
func (m *Model) use(f func(p *C.gsel_model) error) error {
	if m.err != nil {
		return m.err
	}
	return m.keepOpen(func(p unsafe.Pointer) error { return f((*C.gsel_model)(p)) })
}

// ParamCount, ValueCount and LayerCount are what was added; ElementCount is the elements of all parameters. 0 after
// Close.
func (m *Model) ParamCount() (n int) {
	m.look(func(p unsafe.Pointer) { n = int(C.gsel_model_param_count((*C.gsel_model)(p))) })
	return
}
func (m *Model) ValueCount() (n int) {
	m.look(func(p unsafe.Pointer) { n = int(C.gsel_model_value_count((*C.gsel_model)(p))) })
	return
}
func (m *Model) LayerCount() (n int) {
	m.look(func(p unsafe.Pointer) { n = int(C.gsel_model_layer_count((*C.gsel_model)(p))) })
	return
}
func (m *Model) ElementCount() (n int64) {
	m.look(func(p unsafe.Pointer) { n = int64(C.gsel_model_element_count((*C.gsel_model)(p))) })
	return
}
