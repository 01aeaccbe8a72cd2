package main

/*
#cgo pkg-config: gsel
#include <gsel/gsel.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Error is gsel's, copied; the C object is freed by then.
type Error struct {
	Status  int
	Rank    int
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Status) }

// check turns the result of a call and its error object into a Go error.
// check takes the address of err: Go may read err itself before the call has written it.
func check(status C.gsel_status, at **C.gsel_error) error {
	if status == C.GSEL_OK {
		return nil
	}
	err := *at
	message := C.gsel_error_message(err)
	e := &Error{int(status), int(C.gsel_error_rank(err)), C.GoStringN(message.data, C.int(message.len))}
	C.gsel_error_free(err)
	return e
}

// lent is C memory for one call: Go memory that C is pointed to may not point to Go memory itself, and descriptions
// hold pointers to names and lists.
type lent struct{ blocks []unsafe.Pointer }

func (l *lent) text(s string) C.gsel_str {
	copied := C.CString(s)
	l.blocks = append(l.blocks, unsafe.Pointer(copied))
	return C.gsel_str{data: copied, len: C.size_t(len(s))}
}

func (l *lent) ids(ids []int32) (*C.int32_t, C.int32_t) {
	if len(ids) == 0 {
		return nil, 0
	}
	block := C.malloc(C.size_t(4 * len(ids)))
	l.blocks = append(l.blocks, block)
	copy(unsafe.Slice((*int32)(block), len(ids)), ids)
	return (*C.int32_t)(block), C.int32_t(len(ids))
}

func (l *lent) dims(dims []int64) (*C.int64_t, C.int32_t) {
	if len(dims) == 0 {
		return nil, 0
	}
	block := C.malloc(C.size_t(8 * len(dims)))
	l.blocks = append(l.blocks, block)
	copy(unsafe.Slice((*int64)(block), len(dims)), dims)
	return (*C.int64_t)(block), C.int32_t(len(dims))
}

func (l *lent) free() {
	for _, block := range l.blocks {
		C.free(block)
	}
}

// Comm is this rank's end of a communicator: for one goroutine at a time, on any thread.
type Comm struct{ c *C.gsel_comm }

type UniqueID = C.gsel_unique_id

func NewUniqueID() (*UniqueID, error) {
	id := new(UniqueID)
	var err *C.gsel_error
	return id, check(C.gsel_unique_id_create(id, &err), &err)
}

// Join joins as the launcher's environment says.
func Join() (*Comm, error) {
	comm := new(Comm)
	var err *C.gsel_error
	return comm, check(C.gsel_comm_init(nil, &comm.c, &err), &err)
}

// JoinAs joins as one of worldSize goroutines that share an id.
func JoinAs(rank, worldSize int, id *UniqueID) (*Comm, error) {
	inC := (*C.gsel_unique_id)(C.malloc(C.sizeof_gsel_unique_id))
	defer C.free(unsafe.Pointer(inC))
	*inC = *id
	options := C.gsel_comm_options{rank: C.int32_t(rank), world_size: C.int32_t(worldSize), id: inC}
	options.struct_size = C.sizeof_gsel_comm_options
	comm := new(Comm)
	var err *C.gsel_error
	return comm, check(C.gsel_comm_init(&options, &comm.c, &err), &err)
}

func (comm *Comm) Rank() int      { return int(C.gsel_comm_rank(comm.c)) }
func (comm *Comm) WorldSize() int { return int(C.gsel_comm_world_size(comm.c)) }
func (comm *Comm) Close()         { C.gsel_comm_free(comm.c) }

// Sum sums x over all ranks, in place.
func (comm *Comm) Sum(x []int32) error {
	data := unsafe.Pointer(&x[0])
	var err *C.gsel_error
	return check(C.gsel_allreduce(comm.c, data, data, C.size_t(len(x)), C.GSEL_I32, C.GSEL_SUM, &err), &err)
}

// Model is a description under construction.
type Model struct{ c *C.gsel_model }

func NewModel() (*Model, error) {
	model := new(Model)
	var err *C.gsel_error
	return model, check(C.gsel_model_create(&model.c, &err), &err)
}

func (model *Model) Close() { C.gsel_model_free(model.c) }

func (model *Model) Param(name string, dims ...int64) (int32, error) {
	var l lent
	defer l.free()
	var options C.gsel_param_options
	C.gsel_param_options_init(&options, C.sizeof_gsel_param_options)
	options.name = l.text(name)
	options.dims, options.n_dims = l.dims(dims)
	var id C.int32_t
	var err *C.gsel_error
	status := C.gsel_model_add_param(model.c, &options, &id, &err)
	return int32(id), check(status, &err)
}

func (model *Model) Value(name string, dtype C.gsel_dtype, flags uint32, dims ...int64) (int32, error) {
	var l lent
	defer l.free()
	var options C.gsel_value_options
	C.gsel_value_options_init(&options, C.sizeof_gsel_value_options)
	options.name = l.text(name)
	options.dims, options.n_dims = l.dims(dims)
	options.dtype, options.flags = dtype, C.uint32_t(flags)
	var id C.int32_t
	var err *C.gsel_error
	status := C.gsel_model_add_value(model.c, &options, &id, &err)
	return int32(id), check(status, &err)
}

// Loss adds the layer that ends in the loss, to be driven by pull.
func (model *Model) Loss(name string, inputs, outputs, params []int32) (int32, error) {
	var l lent
	defer l.free()
	var options C.gsel_layer_options
	C.gsel_layer_options_init(&options, C.sizeof_gsel_layer_options)
	options.name = l.text(name)
	options.inputs, options.n_inputs = l.ids(inputs)
	options.outputs, options.n_outputs = l.ids(outputs)
	options.params, options.n_params = l.ids(params)
	options.flags = C.GSEL_LAYER_LOSS
	var id C.int32_t
	var err *C.gsel_error
	status := C.gsel_model_add_layer(model.c, &options, &id, &err)
	return int32(id), check(status, &err)
}

// Kernels does the work of a model; each method gets what gsel lends for the call.
type Kernels interface {
	Input(value int32, ids []int64, x []float32) error
	Forward(layer int32, params, inputs [][]float32, loss, weight *float64) error
	Backward(layer int32, params, inputs, dParams [][]float32, accumulate bool) error
}

// Trainer keeps its communicator busy until it is closed.
type Trainer struct{ c *C.gsel_trainer }

func NewTrainer(comm *Comm, model *Model, toml string) (*Trainer, error) {
	var l lent
	defer l.free()
	var config *C.gsel_config
	var err *C.gsel_error
	if e := check(C.gsel_config_parse(l.text(toml), l.text("go"), &config, &err), &err); e != nil {
		return nil, e
	}
	defer C.gsel_config_free(config)
	options := C.gsel_trainer_options{struct_size: C.sizeof_gsel_trainer_options, config: config}
	trainer := new(Trainer)
	return trainer, check(C.gsel_trainer_create(comm.c, model.c, &options, &trainer.c, &err), &err)
}

func (trainer *Trainer) Close() { C.gsel_trainer_free(trainer.c) }

func floats(tensors *C.gsel_tensor, n C.int32_t) [][]float32 {
	var out [][]float32
	for _, t := range unsafe.Slice(tensors, int(n)) {
		out = append(out, unsafe.Slice((*float32)(t.data), int(t.n_elems)))
	}
	return out
}

func do(work *C.gsel_work, kernels Kernels) error {
	call, input := work.call, work.input
	switch work.kind {
	case C.GSEL_INPUT:
		ids := unsafe.Slice((*int64)(unsafe.Pointer(input.sample_ids)), int(input.n_samples))
		return kernels.Input(int32(input.value), ids, floats(&input.dst, 1)[0])
	case C.GSEL_FORWARD:
		outputs := unsafe.Slice(call.outputs, int(call.n_outputs))
		return kernels.Forward(int32(call.layer), floats(call.params, call.n_params), floats(call.inputs, call.n_inputs),
			(*float64)(outputs[0].data), (*float64)(outputs[1].data))
	case C.GSEL_BACKWARD:
		return kernels.Backward(int32(call.layer), floats(call.params, call.n_params), floats(call.inputs, call.n_inputs),
			floats(call.d_params, call.n_params), call.accumulate != 0)
	}
	return fmt.Errorf("work of kind %d", work.kind)
}

// Step runs one step by pull and returns the loss.
func (trainer *Trainer) Step(kernels Kernels) (float64, error) {
	var err *C.gsel_error
	for {
		var work C.gsel_work
		C.gsel_work_init(&work, C.sizeof_gsel_work)
		if e := check(C.gsel_trainer_next_work(trainer.c, &work, &err), &err); e != nil {
			return 0, e
		}
		if work.kind == C.GSEL_WORK_DONE {
			break
		}
		if e := trainer.complete(work.ticket, do(&work, kernels)); e != nil {
			return 0, e
		}
	}
	report := C.gsel_step_report{struct_size: C.sizeof_gsel_step_report}
	e := check(C.gsel_trainer_report(trainer.c, &report, &err), &err)
	return float64(report.loss), e
}

func (trainer *Trainer) complete(ticket C.uint64_t, failure error) error {
	var l lent
	defer l.free()
	var err *C.gsel_error
	if failure == nil {
		return check(C.gsel_trainer_complete(trainer.c, ticket, C.GSEL_OK, C.gsel_str{}, &err), &err)
	}
	why := l.text(failure.Error())
	return check(C.gsel_trainer_complete(trainer.c, ticket, C.GSEL_ERR_CALLBACK, why, &err), &err)
}

// Param copies a parameter out.
func (trainer *Trainer) Param(id int32, dst []float32) error {
	var err *C.gsel_error
	return check(C.gsel_trainer_read_param(trainer.c, C.int32_t(id), unsafe.Pointer(&dst[0]), C.size_t(4*len(dst)), &err), &err)
}

// Constants of the headers that main uses.
const (
	F32         = C.GSEL_F32
	F64         = C.GSEL_F64
	ValueInput  = C.GSEL_VALUE_INPUT
	ValueScalar = C.GSEL_VALUE_SCALAR
	ErrMismatch = C.GSEL_ERR_MISMATCH
	ErrCallback = C.GSEL_ERR_CALLBACK
)
