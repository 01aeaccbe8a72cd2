package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"sync/atomic"
	"time"
	"unsafe"
)

// memory.go: memory of C for requests, and the requests themselves. Go's memory may not be kept by C after a call, so
// what runs while the caller computes takes memory of Alloc or of a device.

// allocate makes zeroed memory of C: shared by the ranks of comm, or this process's own if comm is nil.
func allocate(comm *Comm, bytes int) (unsafe.Pointer, func(unsafe.Pointer), error) {
	if comm == nil {
		p := C.go_zeroed(C.size_t(bytes) + 1)
		if p == nil {
			return nil, nil, failed(ErrNoMem, "no memory for %d bytes", bytes)
		}
		return p, func(p unsafe.Pointer) { C.free(p) }, nil
	}
	var p unsafe.Pointer
	err := comm.query(func(c *C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_mem_alloc(c, C.size_t(bytes), &p, err)
	})
	at := commPointer(comm.p)
	return p, func(p unsafe.Pointer) { C.gsel_mem_free(at, p, nil) }, err
}

// Register makes memory of C accessible to all ranks in place: whole pages of private anonymous memory. Unregister makes
// it private again.
func (c *Comm) Register(memory unsafe.Pointer, bytes int) error {
	return c.query(func(p *C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_mem_register(p, memory, C.size_t(bytes), err)
	})
}

// Unregister ends Register.
func (c *Comm) Unregister(memory unsafe.Pointer) error {
	return c.query(func(p *C.gsel_comm, err **C.gsel_error) C.gsel_status { return C.gsel_mem_unregister(p, memory, err) })
}

// Request is a call that runs while the caller computes. Calls on one request must not overlap; Wait may be called by
// another goroutine than the one that started it. Close it.
type Request struct {
	object
	comm  *Comm
	calls []*Collective
	got   []*C.gsel_message
	again bool           // persistent
	told  *atomic.Uint64 // its number in the queue that it was given to last; 0: in none
	// Of the calls with an operation of Go's. They keep what went wrong until the end is reported.
	tickets []*ticket
}

// Start starts a call. Buffers are of C or of a device and borrowed until the request is done; keep names what must live
// as long, such as the Memory of the buffers.
func (c *Comm) Start(call Collective, keep ...Keeper) (*Request, error) {
	return c.request(call, keep, func(p *C.gsel_comm, call *C.gsel_collective, out **C.gsel_request, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_start(p, call, out, err)
	})
}

// NewRequest makes a persistent request: a call that Start or Run can start any number of times. Buffers are borrowed
// until it is closed.
func (c *Comm) NewRequest(call Collective, keep ...Keeper) (*Request, error) {
	r, err := c.request(call, keep, func(p *C.gsel_comm, call *C.gsel_collective, out **C.gsel_request, err **C.gsel_error) C.gsel_status {
		return C.gsel_request_create(p, call, out, err)
	})
	if err == nil {
		r.again = true
	}
	return r, err
}

// StartGroup starts several calls as one request: its messages run in any order of arrival, its collectives in the order
// given.
func (c *Comm) StartGroup(calls []*Collective, keep ...Keeper) (*Request, error) {
	kept := &lent{}
	inC := make([]*C.gsel_collective, len(calls))
	for i, call := range calls {
		inC[i] = call.toC(kept)
	}
	r := &Request{comm: c, calls: calls}
	return c.own(r, kept, inC, keep, func(p *C.gsel_comm, out **C.gsel_request, err **C.gsel_error) C.gsel_status {
		return C.gsel_group_start(p, list[*C.gsel_collective](kept, inC), C.size_t(len(inC)), out, err)
	})
}

func (c *Comm) request(call Collective, keep []Keeper, make func(*C.gsel_comm, *C.gsel_collective, **C.gsel_request, **C.gsel_error) C.gsel_status) (*Request, error) {
	kept := &lent{}
	inC := call.toC(kept)
	r := &Request{comm: c, calls: []*Collective{&call}}
	return c.own(r, kept, []*C.gsel_collective{inC}, keep, func(p *C.gsel_comm, out **C.gsel_request, err **C.gsel_error) C.gsel_status {
		return make(p, inC, out, err)
	})
}

// own makes the request and ties its life to what it uses.
func (c *Comm) own(r *Request, kept *lent, inC []*C.gsel_collective, keep []Keeper, make func(*C.gsel_comm, **C.gsel_request, **C.gsel_error) C.gsel_status) (*Request, error) {
	for _, k := range keep { // which stay open until the request is tied to them
		if _, err := k.kept().acquire(); err != nil {
			kept.free()
			return nil, err
		}
		defer k.kept().release()
	}
	p, err := c.enter()
	if err != nil {
		kept.free()
		return nil, err
	}
	defer c.leave()
	for _, call := range inC {
		r.got = append(r.got, call.received)
	}
	if r.tickets, err = ticketsIn(inC, func(int) *object { return &r.object }); err != nil {
		kept.free()
		return nil, err
	}
	var request *C.gsel_request
	var cerr *C.gsel_error
	status := make(commPointer(p), &request, &cerr)
	if err := check(status, &cerr); err != nil {
		kept.free()
		giveBack(r.tickets)
		return nil, err
	}
	r.told = &atomic.Uint64{}
	told, tickets := r.told, r.tickets
	needs := []*object{&c.object}
	for _, k := range keep {
		needs = append(needs, k.kept())
	}
	own(r, &r.object, "request", unsafe.Pointer(request), func(p unsafe.Pointer) {
		inQueues.Delete(told.Load())
		C.gsel_request_free((*C.gsel_request)(p))
		kept.free()
		giveBack(tickets)
	}, needs...)
	return r, nil
}

// received fills the messages of calls that have ended.
func (r *Request) received() {
	for i, call := range r.calls {
		if call.Received != nil {
			call.messageFromC(r.got[i])
		}
	}
}

// fault is err as the operation of a call of Go's has it.
func (r *Request) fault(err error) error {
	for _, t := range r.tickets {
		err = t.beneath(err)
	}
	return err
}

// starts makes a call that starts the request again: what an earlier start left is forgotten, unless that still runs.
func (r *Request) starts(f func(p *C.gsel_request, err **C.gsel_error) C.gsel_status) error {
	return r.with(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status {
		before := make([]error, len(r.tickets))
		for i, t := range r.tickets {
			before[i] = t.take()
		}
		status := f(p, err)
		for i, t := range r.tickets {
			if status == C.GSEL_ERR_STATE && before[i] != nil {
				t.put(before[i])
			}
		}
		return status
	})
}

// with makes a call on the request.
func (r *Request) with(f func(p *C.gsel_request, err **C.gsel_error) C.gsel_status) error {
	p, err := r.enter()
	if err != nil {
		return err
	}
	defer r.leave()
	var cerr *C.gsel_error
	status := f((*C.gsel_request)(p), &cerr)
	err = r.fault(check(status, &cerr))
	if err == nil {
		r.received()
	}
	return err
}

// Start starts a persistent request.
func (r *Request) Start() error {
	return r.starts(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status { return C.gsel_request_start(p, err) })
}

// Run runs a persistent request on this goroutine's thread: Start and Wait in one.
func (r *Request) Run(ctx context.Context) error {
	w, err := r.comm.watch(ctx, false)
	if err != nil {
		return err
	}
	return w.stop(r.starts(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status { return C.gsel_request_run(p, err) }))
}

// Test tells whether the call has ended, and its result if so. It never blocks.
func (r *Request) Test() (done bool, err error) {
	var d C.int32_t
	err = r.with(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status { return C.gsel_request_test(p, &d, err) })
	return d != 0, err
}

// Wait waits for the end and returns the result of the call. A context that ends aborts the communicator.
func (r *Request) Wait(ctx context.Context) error {
	if r.shut.Load() {
		return ErrClosed
	}
	w, err := r.comm.watch(ctx, false)
	if err != nil {
		return err
	}
	return w.stop(r.with(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status { return C.gsel_request_wait(p, err) }))
}

// WaitFor waits at most d for the end, and tells whether the call has ended, and its result if so.
func (r *Request) WaitFor(d time.Duration) (done bool, err error) {
	var ended C.int32_t
	err = r.with(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status {
		return C.gsel_request_wait_for(p, C.double(d.Seconds()), &ended, err)
	})
	return ended != 0, err
}

// WaitAny waits until one of the requests has ended, and returns its position and the result of its call. nil requests,
// and those whose end was reported before, are ignored; -1 with ErrArg if none is left. A context that ends aborts the communicator of the first.
func WaitAny(ctx context.Context, requests ...*Request) (index int, err error) {
	var l lent
	defer l.free()
	in := make([]*C.gsel_request, len(requests))
	var watched *Comm
	for i, r := range requests {
		if r == nil {
			continue
		}
		p, err := r.enter()
		if err != nil {
			return -1, err
		}
		defer r.leave()
		in[i] = (*C.gsel_request)(p)
		if watched == nil {
			watched = r.comm
		}
	}
	var w *watch
	if watched != nil { // only now: a request that is refused leaves nobody watching
		if w, err = watched.watch(ctx, false); err != nil {
			return -1, err
		}
	}
	at := C.size_t(len(in)) // which C leaves where no request can be waited for
	var cerr *C.gsel_error
	status := C.gsel_request_wait_any(list[*C.gsel_request](&l, in), C.size_t(len(in)), &at, &cerr)
	err = check(status, &cerr)
	if int(at) >= len(requests) || requests[at] == nil {
		return -1, w.stop(err)
	}
	if err == nil {
		requests[at].received()
	}
	return int(at), w.stop(requests[at].fault(err))
}

// Cancel takes back a call under way if nobody has met it yet, and tells whether; see gsel_request_cancel.
func (r *Request) Cancel() (cancelled bool, err error) {
	var c C.int32_t
	err = r.with(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status { return C.gsel_request_cancel(p, &c, err) })
	return c != 0, err
}

// Event is the event that the call's stream has passed the call, a CUevent as a number, until Test or Wait has told the
// end. The event is reached as well where the communicator breaks, and results are then undefined: AsyncError tells.
func (r *Request) Event() (event uintptr, err error) {
	var e unsafe.Pointer
	err = r.with(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status { return C.gsel_request_event(p, &e, err) })
	return uintptr(e), err
}

// Close waits for the end if the request is under way, and releases it. In a callback of its call: ErrState.
func (r *Request) Close() error {
	return r.close()
}
