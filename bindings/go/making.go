package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"unsafe"
)

// making.go: communicators that are made while their callers go on.

// Making is a communicator in the making. Calls on one must not overlap; Wait may be called by another goroutine than the
// one that started it. Close it.
type Making struct {
	object
	comm *Comm
}

func (c *Comm) making(start func(p *C.gsel_comm, out **C.gsel_request, err **C.gsel_error) C.gsel_status) (*Making, error) {
	p, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.leave()
	var request *C.gsel_request
	var cerr *C.gsel_error
	status := start(commPointer(p), &request, &cerr)
	if err := check(status, &cerr); err != nil {
		return nil, err
	}
	m := &Making{comm: c}
	own(m, &m.object, "communicator in the making", unsafe.Pointer(request), func(p unsafe.Pointer) {
		C.gsel_request_free((*C.gsel_request)(p))
	}, &c.object)
	return m, nil
}

// StartSplit is Split while the caller goes on, at its place among the collectives that are started.
func (c *Comm) StartSplit(colour, key int) (*Making, error) {
	toColour, toKey, err := colourAndKey(colour, key)
	if err != nil {
		return nil, err
	}
	return c.making(func(p *C.gsel_comm, out **C.gsel_request, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_start_split(p, toColour, toKey, out, err)
	})
}

// StartDup is Dup while the caller goes on, at its place among the collectives that are started.
func (c *Comm) StartDup() (*Making, error) {
	return c.making(func(p *C.gsel_comm, out **C.gsel_request, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_start_dup(p, out, err)
	})
}

// StartCreateGroup is CreateGroup while the caller goes on.
func (c *Comm) StartCreateGroup(ranks []int32) (*Making, error) {
	return c.making(func(p *C.gsel_comm, out **C.gsel_request, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_start_create_group(p, (*C.int32_t)(first(ranks)), C.size_t(len(ranks)), out, err)
	})
}

// StartShrink is ShrinkWithout while the caller goes on; without nobody it is Shrink.
func (c *Comm) StartShrink(without []int32) (*Making, error) {
	return c.making(func(p *C.gsel_comm, out **C.gsel_request, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_start_shrink(p, (*C.int32_t)(first(without)), C.size_t(len(without)), out, err)
	})
}

func (m *Making) with(f func(p *C.gsel_request, err **C.gsel_error) C.gsel_status) error {
	p, err := m.enter()
	if err != nil {
		return err
	}
	defer m.leave()
	var cerr *C.gsel_error
	status := f((*C.gsel_request)(p), &cerr)
	return check(status, &cerr)
}

// Test tells whether it has ended, and how. It never blocks.
func (m *Making) Test() (done bool, err error) {
	var d C.int32_t
	err = m.with(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status { return C.gsel_request_test(p, &d, err) })
	return d != 0, err
}

// Wait waits for the end and gives the communicator, once; nil, without an error, where a split has none for this rank. A
// context that ends aborts the communicator that it comes of.
func (m *Making) Wait(ctx context.Context) (*Comm, error) {
	if m.shut.Load() {
		return nil, ErrClosed
	}
	w, err := m.comm.watch(ctx, false)
	if err != nil {
		return nil, err
	}
	err = w.stop(m.with(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status { return C.gsel_request_wait(p, err) }))
	if err != nil {
		return nil, err
	}
	var out *C.gsel_comm
	err = m.with(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status {
		return C.gsel_request_take_comm(p, &out, err)
	})
	return newComm(out, err)
}

// Close waits for the end, and leaves a communicator that was not taken.
func (m *Making) Close() error {
	return m.close()
}
