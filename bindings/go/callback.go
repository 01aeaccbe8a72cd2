package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"runtime/cgo"
	"runtime/debug"
	"sync"
	"unsafe"
)

// callback.go: functions of Go that C calls, one exported function for each kind. A panic or error of one ends the call
// that ran it with ErrCallback, and is found beneath that error.

// faults keeps the first error of callbacks until the call that ran them takes it.
type faults struct {
	mu  sync.Mutex
	err error
}

func (f *faults) put(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// beneath puts what the callbacks left beneath err, and forgets it.
func (f *faults) beneath(err error) error {
	f.mu.Lock()
	left := f.err
	f.err = nil
	f.mu.Unlock()
	if e, ok := err.(*Error); ok && e.Code == ErrCallback {
		return beneath(err, left)
	}
	return err
}

// protect runs f and turns a panic into an error.
func protect(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
	}()
	return f()
}

// answer is what a callback returns to C for err, with its words in C's place for them.
func answer(f *faults, err error, message *C.char, capacity C.size_t) C.gsel_status {
	if err == nil {
		return C.GSEL_OK
	}
	if err == ErrNoSamples {
		return C.GSEL_NO_SAMPLES
	}
	f.put(err)
	if message != nil && capacity > 0 {
		to := unsafe.Slice((*byte)(unsafe.Pointer(message)), int(capacity))
		to[copy(to[:len(to)-1], err.Error())] = 0
	}
	return C.GSEL_ERR_CALLBACK
}

func handled[T any](handle C.uintptr_t) T { return cgo.Handle(handle).Value().(T) }

//export goReleased
func goReleased(handle C.uintptr_t) {
	h := cgo.Handle(handle)
	if release, ok := h.Value().(func()); ok && release != nil {
		_ = protect(func() error { release(); return nil })
	}
	h.Delete()
}

// ---- log ----

type logSink func(level LogLevel, component, line string)

var leakSink struct {
	sync.Mutex
	sink logSink
}

// SetLog sends the log lines of this process, up to level, to sink; nil: nowhere. The library calls sink on the thread
// that logs, never twice at the same time; it may call nothing of gsel. Objects that were lost without Close are
// reported here, too, as warnings.
func SetLog(level LogLevel, sink func(level LogLevel, component, line string)) {
	leakSink.Lock()
	leakSink.sink = sink
	leakSink.Unlock()
	handle := cgo.Handle(0)
	if sink != nil {
		handle = cgo.NewHandle(logSink(sink))
	}
	C.go_log_set(C.gsel_log_level(level), C.uintptr_t(handle))
}

func reportLeak(what string) {
	leakSink.Lock()
	sink := leakSink.sink
	leakSink.Unlock()
	if sink != nil {
		_ = protect(func() error { sink(LogWarn, "go", "a "+what+" was lost without Close"); return nil })
	}
}

//export goLog
func goLog(level C.gsel_log_level, component, line C.gsel_str, handle C.uintptr_t) {
	_ = protect(func() error { handled[logSink](handle)(LogLevel(level), text(component), text(line)); return nil })
}

// ---- operations ----

// userOp is an operation of the program's.
type userOp struct {
	faults
	f func(accumulated, next unsafe.Pointer, count int, dtype DType) error
}

var userOps sync.Map // Op to *userOp

func withOpFault(err error, op Op) error {
	if op < firstUser {
		return err
	}
	if u, ok := userOps.Load(op); ok {
		return u.(*userOp).beneath(err)
	}
	return err
}

// UserOp is an operation of the program's; pass Op to calls.
type UserOp struct {
	object
	Op Op
}

// NewOpRaw makes an operation that computes accumulated[count] = accumulated op next[count] of dtype. Every rank makes
// its own under the same name. count is a multiple of recordElems, and no record is cut. f may be called by several
// threads at the same time, and its bits may depend only on its arguments. Close it when no call uses it.
func NewOpRaw(name string, recordElems int, f func(accumulated, next unsafe.Pointer, count int, dtype DType) error) (*UserOp, error) {
	var l lent
	defer l.free()
	state := &userOp{f: f}
	handle := cgo.NewHandle(state)
	var op C.gsel_op
	var err *C.gsel_error
	status := C.go_op_create(l.text(name), C.size_t(recordElems), C.uintptr_t(handle), &op, &err)
	if err := check(status, &err); err != nil {
		handle.Delete()
		return nil, err
	}
	userOps.Store(Op(op), state)
	return ownOp(op), nil
}

// NewScaledSum makes ScaledSum with this rank's factor, for calls that take no Collective.
func NewScaledSum(factor float64) (*UserOp, error) {
	var op C.gsel_op
	var err *C.gsel_error
	status := C.gsel_op_create_scaled_sum(C.double(factor), &op, &err)
	if err := check(status, &err); err != nil {
		return nil, err
	}
	return ownOp(op), nil
}

func ownOp(op C.gsel_op) *UserOp {
	u := &UserOp{Op: Op(op)}
	// An operation is a number in C; the object's pointer only says that it lives.
	own(u, &u.object, "operation", unsafe.Pointer(u), func(unsafe.Pointer) {
		userOps.Delete(Op(op))
		C.gsel_op_free(op)
	})
	u.p = unsafe.Pointer(&alive)
	return u
}

var alive byte

// Close releases the operation.
func (u *UserOp) Close() error {
	u.close()
	return nil
}

// ReduceLocal reduces inputs[n] into out on this rank alone, in the order and with the bits of a call between ranks.
// Inputs are copied to C, which is given a list of them.
func ReduceLocal[T Element](inputs [][]T, out []T, op Op, order Order) error {
	var l lent
	defer l.free()
	lists := make([]unsafe.Pointer, len(inputs))
	for i, input := range inputs {
		if len(input) != len(out) {
			return failed(ErrArg, "inputs[%d] has %d elements, out has %d", i, len(input), len(out))
		}
		lists[i] = unsafe.Pointer(list[T](&l, input))
	}
	return reduceLocal(&l, lists, first(out), len(out), DTypeOf[T](), op, order)
}

func reduceLocal(l *lent, inputs []unsafe.Pointer, out unsafe.Pointer, count int, dtype DType, op Op, order Order) error {
	var err *C.gsel_error
	status := C.gsel_reduce_local(list[unsafe.Pointer](l, inputs), C.size_t(len(inputs)), out, C.size_t(count),
		C.gsel_dtype(dtype), C.gsel_op(op), C.int32_t(order), &err)
	return withOpFault(check(status, &err), op)
}

//export goOp
func goOp(accumulated, next unsafe.Pointer, count C.size_t, dtype C.gsel_dtype, handle C.uintptr_t) C.int32_t {
	u := handled[*userOp](handle)
	err := protect(func() error { return u.f(accumulated, next, int(count), DType(dtype)) })
	return C.int32_t(answer(&u.faults, err, nil, 0))
}

// ---- models ----

type layerCallbacks struct {
	*faults
	forward, backwardInput, backwardWeight, backward func(*Call) error
}

//export goLayer
func goLayer(call *C.gsel_call, kind C.int32_t, handle C.uintptr_t) C.gsel_status {
	l := handled[*layerCallbacks](handle)
	f := map[WorkKind]func(*Call) error{WorkForward: l.forward, WorkBackwardInput: l.backwardInput,
		WorkBackwardWeight: l.backwardWeight, WorkBackward: l.backward}[WorkKind(kind)]
	err := protect(func() error {
		var c Call
		c.fromC(call)
		return f(&c)
	})
	return answer(l.faults, err, call.message, call.message_capacity)
}

type dataCallback struct {
	*faults
	f func(*DataRequest) error
}

//export goData
func goData(request *C.gsel_data_request, handle C.uintptr_t) C.gsel_status {
	d := handled[*dataCallback](handle)
	err := protect(func() error {
		var r DataRequest
		r.fromC(request)
		return d.f(&r)
	})
	return answer(d.faults, err, request.message, request.message_capacity)
}

type optimizerCallback struct {
	*faults
	f func(*OptimizerCall) error
}

//export goOptimizer
func goOptimizer(call *C.gsel_optimizer_call, handle C.uintptr_t) C.gsel_status {
	o := handled[*optimizerCallback](handle)
	err := protect(func() error {
		var c OptimizerCall
		c.fromC(call)
		return o.f(&c)
	})
	return answer(o.faults, err, call.message, call.message_capacity)
}

type initCallback struct {
	*faults
	f func(dst []float32, first int64, seed uint64) error
}

//export goParamInit
func goParamInit(dst *C.float, first, count C.int64_t, seed C.uint64_t, handle C.uintptr_t) C.gsel_status {
	i := handled[*initCallback](handle)
	err := protect(func() error {
		return i.f(unsafe.Slice((*float32)(unsafe.Pointer(dst)), int(count)), int64(first), uint64(seed))
	})
	return answer(i.faults, err, nil, 0)
}
