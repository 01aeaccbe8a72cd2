package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// comm.go: making communicators, and what is asked of them.

func commPointer(p unsafe.Pointer) *C.gsel_comm { return (*C.gsel_comm)(p) }

// newComm wraps a communicator that C made; nil if there is none.
func newComm(p *C.gsel_comm, err error) (*Comm, error) {
	if err != nil || p == nil {
		return nil, err
	}
	c := &Comm{rank: int(C.gsel_comm_rank(p)), size: int(C.gsel_comm_world_size(p)), name: text(C.gsel_comm_name(p))}
	c.onUser = func() { C.gsel_comm_abort(p, C.gsel_str{}) }
	own(c, &c.object, "communicator", unsafe.Pointer(p), func(p unsafe.Pointer) { C.gsel_comm_free(commPointer(p)) })
	return c, nil
}

// toC makes the options in C, with a config that is kept open until done is called.
func (o *CommOptions) toC(ctx context.Context) (c *C.gsel_comm_options, done func(), err error) {
	if o == nil {
		o = &CommOptions{}
	}
	var config unsafe.Pointer
	if o.Config != nil {
		if config, err = o.Config.acquire(); err != nil {
			return nil, nil, err
		}
	}
	l, of := &lent{}, o.Config
	done = func() {
		l.free()
		if of != nil {
			of.release()
		}
	}
	c = zeroed[C.gsel_comm_options](l)
	c.struct_size = C.sizeof_gsel_comm_options
	c.rank, c.world_size, c.config = narrow(o.Rank), narrow(o.WorldSize), (*C.gsel_config)(config)
	if o.ID != nil {
		c.id = list[C.gsel_unique_id](l, o.ID[:])
	}
	join, _ := bound(ctx, o.JoinTimeout)
	c.timeout_s, c.join_timeout_s = C.double(o.Timeout.Seconds()), C.double(join)
	if o.NoDeviceCheck {
		c.device = l.text("")
	} else {
		c.device = l.given(o.Device)
	}
	c.order = C.int32_t(o.Order)
	if o.NoThread {
		c.flags |= C.GSEL_COMM_NO_THREAD
	}
	if o.Bitwise {
		c.flags |= C.GSEL_COMM_BITWISE
	}
	if o.NotThroughHost {
		c.flags |= C.GSEL_COMM_NOT_THROUGH_HOST
	}
	c.name, c.accelerator, c.transport = l.given(o.Name), l.given(o.Accelerator), l.given(o.Transport)
	c.rendezvous = l.given(o.Rendezvous)
	return c, done, nil
}

// Join joins a communicator and returns once all ranks have joined. Ranks are processes, or goroutines of one process
// that share a UniqueID. options nil: as the launcher's environment says. The deadline of ctx shortens JoinTimeout; if
// ctx is cancelled, Join returns at once, and this rank leaves again should the others still come.
func Join(ctx context.Context, options *CommOptions) (*Comm, error) {
	if err := before(ctx); err != nil {
		return nil, err
	}
	o, done, err := options.toC(ctx)
	if err != nil {
		return nil, err
	}
	return await(ctx, func() (*Comm, error) {
		defer done()
		return newComm(made(func(out **C.gsel_comm, err **C.gsel_error) C.gsel_status { return C.gsel_comm_init(o, out, err) }))
	}, func(c *Comm) { c.Close() })
}

// Grow makes a larger communicator of c's ranks and new ones, which Join with the same id. Collective over c.
func (c *Comm) Grow(ctx context.Context, options *CommOptions) (*Comm, error) {
	o, done, err := options.toC(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return c.made(ctx, func(p *C.gsel_comm, out **C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_grow(p, o, out, err)
	})
}

// Merge makes one communicator of c and another one, whose ranks merge it with the same id and the sum of both sizes. The
// ranks of the one that is not high keep their numbers, those of the other one follow. Collective over both.
func (c *Comm) Merge(ctx context.Context, high bool, options *CommOptions) (*Comm, error) {
	o, done, err := options.toC(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var follows C.int32_t
	if high {
		follows = 1
	}
	return c.made(ctx, func(p *C.gsel_comm, out **C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_merge(p, follows, o, out, err)
	})
}

// made makes a communicator from this one.
func (c *Comm) made(ctx context.Context, f func(p *C.gsel_comm, out **C.gsel_comm, err **C.gsel_error) C.gsel_status) (other *Comm, err error) {
	err = c.blocking(ctx, func(p unsafe.Pointer) (err error) {
		other, err = newComm(made(func(out **C.gsel_comm, err **C.gsel_error) C.gsel_status { return f(commPointer(p), out, err) }))
		return err
	})
	if err != nil && other != nil { // made as the context ended
		other.Close()
		other = nil
	}
	return other, err
}

func colourAndKey(colour, key int) (toColour, toKey C.int32_t, err error) {
	if toColour, err = number("colour", colour); err == nil {
		toKey, err = number("key", key)
	}
	return toColour, toKey, err
}

// Split makes a communicator of the ranks with the same colour, in order of key and then rank. nil, without an error, for
// a colour below 0. Collective.
func (c *Comm) Split(ctx context.Context, colour, key int) (*Comm, error) {
	toColour, toKey, err := colourAndKey(colour, key)
	if err != nil {
		return nil, err
	}
	return c.made(ctx, func(p *C.gsel_comm, out **C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_split(p, toColour, toKey, out, err)
	})
}

// Dup makes another communicator of the same ranks. Collective.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	return c.made(ctx, func(p *C.gsel_comm, out **C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_dup(p, out, err)
	})
}

// CreateGroup makes a communicator of these ranks, in that order. Only these ranks call it, each with the same list.
func (c *Comm) CreateGroup(ctx context.Context, ranks []int32) (*Comm, error) {
	return c.made(ctx, func(p *C.gsel_comm, out **C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_create_group(p, (*C.int32_t)(first(ranks)), C.size_t(len(ranks)), out, err)
	})
}

// Shrink makes a communicator of the ranks that still answer, in their old order, after a failure. Every survivor calls
// it once. A context that ends leaves out this rank.
func (c *Comm) Shrink(ctx context.Context) (*Comm, error) {
	return c.made(ctx, func(p *C.gsel_comm, out **C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_shrink(p, out, err)
	})
}

// ShrinkWithout is Shrink without these ranks, whether they live or not; they must not call.
func (c *Comm) ShrinkWithout(ctx context.Context, ranks []int32) (*Comm, error) {
	return c.made(ctx, func(p *C.gsel_comm, out **C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_shrink_without(p, (*C.int32_t)(first(ranks)), C.size_t(len(ranks)), out, err)
	})
}

// Resync makes a broken communicator usable again for all its ranks. Every rank calls it.
func (c *Comm) Resync(ctx context.Context) error {
	return c.blocking(ctx, func(p unsafe.Pointer) error {
		var err *C.gsel_error
		status := C.gsel_comm_resync(commPointer(p), &err)
		return check(status, &err)
	})
}

// Synchronize waits until all calls on the stream have ended, and returns what failed.
func (c *Comm) Synchronize(ctx context.Context) error {
	return c.blocking(ctx, func(p unsafe.Pointer) error {
		var err *C.gsel_error
		status := C.gsel_comm_synchronize(commPointer(p), &err)
		return check(status, &err)
	})
}

// SetStream sets the stream of later calls: a CUstream or cudaStream_t as a number; 0: the device's default stream.
func (c *Comm) SetStream(stream uintptr) error {
	return c.blocking(context.Background(), func(p unsafe.Pointer) error {
		var err *C.gsel_error
		status := C.go_set_stream(commPointer(p), C.uintptr_t(stream), &err)
		return check(status, &err)
	})
}

// Abort breaks the communicator on every rank: calls under way and later calls return ErrAborted with the reason. It does
// not block. Nothing happens after Close.
func (c *Comm) Abort(reason string) {
	var l lent
	defer l.free()
	c.look(func(p unsafe.Pointer) { C.gsel_comm_abort(commPointer(p), l.text(reason)) })
}

// query runs a query of C that may overlap calls.
func (c *Comm) query(f func(p *C.gsel_comm, err **C.gsel_error) C.gsel_status) (err error) {
	closed := c.look(func(p unsafe.Pointer) {
		var cerr *C.gsel_error
		status := f(commPointer(p), &cerr)
		err = check(status, &cerr)
	})
	if closed != nil {
		return closed
	}
	return err
}

// SetTimeout sets the bound on each later call, above 0.
func (c *Comm) SetTimeout(timeout time.Duration) error {
	return c.query(func(p *C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_set_timeout(p, C.double(timeout.Seconds()), err)
	})
}

// AsyncError is what failed so far; it does not wait.
func (c *Comm) AsyncError() error {
	return c.query(func(p *C.gsel_comm, err **C.gsel_error) C.gsel_status { return C.gsel_comm_get_async_error(p, err) })
}

// Counts is what this rank has sent in calls of one kind.
func (c *Comm) Counts(kind CollectiveKind) (CommCount, error) {
	count := C.gsel_comm_count{struct_size: C.sizeof_gsel_comm_count}
	err := c.query(func(p *C.gsel_comm, err **C.gsel_error) C.gsel_status {
		return C.gsel_comm_counts(p, C.gsel_collective_kind(kind), &count, err)
	})
	return CommCount{uint64(count.calls), uint64(count.bytes_sent)}, err
}

// Explain says how a call would run, given that the buffers of all ranks are of the same kind.
func (c *Comm) Explain(call *Collective) (CommExplanation, error) {
	var l lent
	defer l.free()
	out := zeroed[C.gsel_comm_explanation](&l)
	out.struct_size = C.sizeof_gsel_comm_explanation
	var e CommExplanation
	err := c.query(func(p *C.gsel_comm, err **C.gsel_error) C.gsel_status {
		status := C.gsel_comm_explain(p, call.toC(&l), out, err)
		if status == C.GSEL_OK {
			e = CommExplanation{
				Protocol: C.GoString(out.protocol), Reason: C.GoString(out.reason), ChunkBytes: uint64(out.chunk_bytes),
				Predicted: seconds(out.seconds), SentBytes: uint64(out.sent_bytes),
				Transport: C.GoString(out.transport), TransportReason: C.GoString(out.transport_reason),
			}
		}
		return status
	})
	return e, err
}

func seconds(s C.double) time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// Trace is the flight recorder, the last calls of every rank, as JSON (docs/trace.md).
func (c *Comm) Trace() (string, error) {
	var trace *C.gsel_trace
	err := c.query(func(p *C.gsel_comm, err **C.gsel_error) C.gsel_status { return C.gsel_comm_trace(p, &trace, err) })
	return traceText(trace), err
}

// TraceProcess is the same of the communicators of another process of this user.
func TraceProcess(pid int) (string, error) {
	var trace *C.gsel_trace
	var err *C.gsel_error
	status := C.gsel_trace_process(narrow(pid), &trace, &err)
	return traceText(trace), check(status, &err)
}

func traceText(trace *C.gsel_trace) string {
	defer C.gsel_trace_free(trace)
	return text(C.gsel_trace_json(trace))
}
