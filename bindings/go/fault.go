package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"runtime/cgo"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unicode/utf8"
	"unsafe"
)

// fault.go: what went wrong in callbacks, kept for the one call that ran them. Callbacks of a model run on the thread of
// the call that drives them: a frame of that thread names the call. Those of an operation have a ticket for each call
// (operation.go). Does not know what callbacks compute.

// faults keeps the first error of the callbacks of one call.
type faults struct {
	mu  sync.Mutex
	err error
	of  atomic.Uintptr // address of the object that the call is on: a callback cannot close it
}

func (f *faults) kept() *faults { return f }

// keeping is what the number in a frame stands for.
type keeping interface{ kept() *faults }

func (f *faults) put(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// take forgets what was kept, and returns it.
func (f *faults) take() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.err
	f.err = nil
	return err
}

// beneath puts what the callbacks left beneath err, if err is that a callback failed.
func (f *faults) beneath(err error) error {
	if e, ok := err.(*Error); ok && e.Code == ErrCallback {
		return beneath(err, f.take())
	}
	return err
}

// on says which object the call is on; nil: none any more. The address does not keep the object alive.
func (f *faults) on(o *object) { f.of.Store(uintptr(unsafe.Pointer(o))) }

// driver makes calls that run callbacks on the thread of the caller, one call at a time.
type driver struct {
	faults
	frame  *C.go_frame
	handle cgo.Handle
}

func newDriver() *driver {
	d := &driver{frame: (*C.go_frame)(C.calloc(1, C.sizeof_go_frame))}
	d.handle = cgo.NewHandle(&d.faults)
	d.frame.ticket = C.uintptr_t(d.handle)
	return d
}

func (d *driver) free() {
	d.handle.Delete()
	C.free(unsafe.Pointer(d.frame))
}

// drive makes a call on o, or on nothing, and puts what its callbacks left beneath its error. No error outlives the call.
func (d *driver) drive(o *object, call func() error) error {
	d.on(o)
	runtime.LockOSThread()
	C.go_enter(d.frame)
	defer func() {
		C.go_leave(d.frame)
		runtime.UnlockOSThread()
		d.on(nil)
		d.take()
	}()
	return d.beneath(call())
}

// driving is where callbacks of a model leave their errors; nil: nowhere.
func driving(frame *C.go_frame) *faults {
	if frame == nil {
		return nil
	}
	return handled[keeping](frame.ticket).kept()
}

// insideCallOf tells whether this goroutine is in a callback of a call on o. A goroutine stays on its thread in callbacks.
func insideCallOf(o *object) bool {
	for frame := C.go_inner(); frame != nil; frame = frame.outer {
		if f := driving(frame); f != nil && f.of.Load() == uintptr(unsafe.Pointer(o)) {
			return true
		}
	}
	return false
}

// protect runs f and turns a panic into an error, panic(nil) too, which recover does not tell from none.
func protect(f func() error) (err error) {
	returned := false
	defer func() {
		if value := recover(); !returned {
			err = &PanicError{value, debug.Stack()}
		}
	}()
	err = f()
	returned = true
	return
}

// words is err and what it says. An Error method that panics, such as that of a nil pointer in an error, is a panic of the
// callback that returned err.
func words(err error) (string, error) {
	var text string
	if failed := protect(func() error { text = err.Error(); return nil }); failed != nil {
		return failed.Error(), failed
	}
	return text, err
}

// write puts text in C's place for it, cut between runes if it is too long.
func write(text string, message *C.char, capacity C.size_t) {
	if message == nil || capacity == 0 {
		return
	}
	to := unsafe.Slice((*byte)(unsafe.Pointer(message)), int(capacity))
	n := len(to) - 1
	if n >= len(text) {
		n = len(text)
	} else {
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
	}
	to[copy(to, text[:n])] = 0
}

// answer is what a callback returns to C for err, with its words in C's place for them.
func answer(f *faults, err error, message *C.char, capacity C.size_t) C.gsel_status {
	if err == nil {
		return C.GSEL_OK
	}
	text, err := words(err)
	if f != nil {
		f.put(err)
	}
	write(text, message, capacity)
	return C.GSEL_ERR_CALLBACK
}
