package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"runtime/cgo"
	"sync"
	"unsafe"
)

// callback.go: functions of Go that C calls, one exported function for each kind. A panic or error of one ends the call
// that ran it with ErrCallback, and is found beneath that error (fault.go).

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

// logging is held while a sink runs, be it for a line of the library or of this package.
var logging struct {
	sync.Mutex
	sink  logSink
	level LogLevel
}

// SetLog sends the log lines of this process, up to level, to sink; nil: nowhere. The library calls sink on the thread
// that logs, never twice at the same time; it may call nothing of gsel, since a call that logs waits for the sink to
// return. Objects that were lost without Close are reported here, too, as warnings. SetLog returns after the sink before
// has finished its line.
func SetLog(level LogLevel, sink func(level LogLevel, component, line string)) {
	logging.Lock()
	logging.sink, logging.level = sink, level
	logging.Unlock() // C waits for its sink, which may wait for logging
	handle := cgo.Handle(0)
	if sink != nil {
		handle = cgo.NewHandle(logSink(sink))
	}
	C.go_log_set(C.gsel_log_level(level), C.uintptr_t(handle))
}

func reportLeak(what string) {
	logging.Lock()
	defer logging.Unlock()
	if sink := logging.sink; sink != nil && logging.level >= LogWarn {
		_ = protect(func() error { sink(LogWarn, "go", "a "+what+" was lost without Close"); return nil })
	}
}

//export goLog
func goLog(level C.gsel_log_level, component, line C.gsel_str, handle C.uintptr_t) {
	logging.Lock()
	defer logging.Unlock()
	_ = protect(func() error { handled[logSink](handle)(LogLevel(level), text(component), text(line)); return nil })
}

// ---- models ----

type layerCallbacks struct {
	forward, backwardInput, backwardWeight, backward func(*Call) error
}

//export goLayer
func goLayer(call *C.gsel_call, kind C.int32_t, handle C.uintptr_t, frame *C.go_frame) C.gsel_status {
	l := handled[*layerCallbacks](handle)
	f := map[WorkKind]func(*Call) error{WorkForward: l.forward, WorkBackwardInput: l.backwardInput,
		WorkBackwardWeight: l.backwardWeight, WorkBackward: l.backward}[WorkKind(kind)]
	err := protect(func() error {
		var c Call
		c.fromC(call)
		return f(&c)
	})
	return answer(driving(frame), err, call.message, call.message_capacity)
}

type dataCallback struct {
	f func(*DataRequest) error
}

//export goData
func goData(request *C.gsel_data_request, handle C.uintptr_t, frame *C.go_frame) C.gsel_status {
	d := handled[*dataCallback](handle)
	err := protect(func() error {
		var r DataRequest
		r.fromC(request)
		return d.f(&r)
	})
	if err == ErrNoSamples {
		return C.GSEL_NO_SAMPLES
	}
	return answer(driving(frame), err, request.message, request.message_capacity)
}

type optimizerCallback struct {
	f func(*OptimizerCall) error
}

//export goOptimizer
func goOptimizer(call *C.gsel_optimizer_call, handle C.uintptr_t, frame *C.go_frame) C.gsel_status {
	o := handled[*optimizerCallback](handle)
	err := protect(func() error {
		var c OptimizerCall
		c.fromC(call)
		return o.f(&c)
	})
	return answer(driving(frame), err, call.message, call.message_capacity)
}

type initCallback struct {
	f func(dst []float32, first int64, seed uint64) error
}

//export goParamInit
func goParamInit(dst *C.float, first, count C.int64_t, seed C.uint64_t, handle C.uintptr_t, frame *C.go_frame) C.gsel_status {
	i := handled[*initCallback](handle)
	err := protect(func() error {
		return i.f(unsafe.Slice((*float32)(unsafe.Pointer(dst)), int(count)), int64(first), uint64(seed))
	})
	return answer(driving(frame), err, nil, 0)
}
