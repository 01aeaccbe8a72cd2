package gsel

import (
	"context"
	"sync/atomic"
	"time"
	"unsafe"
)

// handles.go: communicators as Go sees them: the types, how a context ends a call, and options. This file needs no cgo.

// Comm is this rank's end of a communicator. One goroutine at a time makes calls, on whatever thread it is; a call that
// overlaps another is refused with ErrState. Abort and the queries may be called by any goroutine at any time.
type Comm struct {
	object
	rank, size int
	name       string
}

// Order is the order in which reductions take the inputs of ranks.
type Order int32

// Orders of gsel/comm.h: from the first rank to the last, or pairs of neighbours, level by level.
const (
	OrderRanks Order = 0
	OrderTree  Order = 1
)

// CommOptions says how to join. Zero fields take defaults.
//
// With WorldSize 0, rank and size are those of the launcher's environment (gsel run, torchrun, mpirun, srun), or one
// rank without any. Timeout bounds each later call; it is that of Config if 0. Device is the identity of the device that
// this rank computes on: two ranks that name the same are refused; NoDeviceCheck ignores the environment's GSEL_DEVICE.
// Accelerator is the device whose memory calls take, such as "cuda:1", or "cuda | cpu" for the host where no rank has one;
// Transport is how its memory travels.
// Rendezvous is where ranks of several network namespaces meet, "tcp://HOST:PORT".
type CommOptions struct {
	Rank, WorldSize int
	ID              *UniqueID // nil: from the environment
	Timeout         time.Duration
	JoinTimeout     time.Duration // 0: 60 s. The deadline of the context shortens it
	Config          *Config       // nil: the file that GSEL_CONFIG names, if any
	Device          string
	NoDeviceCheck   bool
	Order           Order
	NoThread        bool   // the library starts no thread: no requests, and only waiting ranks notice a death
	Bitwise         bool   // results are the same bits in every run; other transports are refused
	NotThroughHost  bool   // memory of the accelerator never goes through host memory
	Name            string // shown in errors, at most 31 bytes of printable ASCII
	Accelerator     string
	Transport       string
	Rendezvous      string
}

// CommExplanation is how a call would run; see gsel_comm_explanation.
type CommExplanation struct {
	Protocol, Reason           string
	ChunkBytes                 uint64
	Predicted                  time.Duration // 0: not known
	SentBytes                  uint64
	Transport, TransportReason string
}

// Rank is the number of this rank, from 0.
func (c *Comm) Rank() int { return c.rank }

// WorldSize is the number of ranks.
func (c *Comm) WorldSize() int { return c.size }

// Name is shown in errors and recordings; the same on every rank.
func (c *Comm) Name() string { return c.name }

// Close leaves the communicator. It does not wait for other ranks: those that wait for this one get ErrPeer. A call under
// way, and whatever waits for a request, trainer or pipeline of it that is still open, ends with ErrAborted on every
// rank; the communicator is released with the last of these. Close may be called again, and by any goroutine, but not in
// a callback of a call on the communicator: ErrState.
func (c *Comm) Close() error {
	return c.close()
}

// bound is the C timeout of a call under ctx, in seconds, and whether it comes from the context.
func bound(ctx context.Context, own time.Duration) (seconds float64, fromContext bool) {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left < time.Microsecond {
			left = time.Microsecond
		}
		if own <= 0 || left < own {
			return left.Seconds(), true
		}
	}
	return own.Seconds(), false
}

// watch aborts communicators when a context ends during a call.
type watch struct {
	ctx         context.Context
	decided     atomic.Bool // that the call has ended, or that the communicators are aborted: whichever came first
	done, ended chan struct{}
}

// watch begins to watch ctx; no goroutine if it cannot end. If C has the deadline as the call's timeout, timed is true
// and only a cancellation aborts.
func (c *Comm) watch(ctx context.Context, timed bool) (*watch, error) {
	if ctx.Done() == nil {
		return nil, nil
	}
	return watchAll(ctx, timed, []*Comm{c})
}

// watchAll is watch for a call on several communicators.
func watchAll(ctx context.Context, timed bool, comms []*Comm) (*watch, error) {
	if ctx.Done() == nil {
		return nil, nil
	}
	abort := func() {
		for _, c := range comms {
			c.Abort(ctx.Err().Error())
		}
	}
	if err := before(ctx); err != nil {
		abort()
		return nil, err
	}
	w := &watch{ctx: ctx, done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		select {
		case <-w.done:
		case <-ctx.Done():
			if (!timed || ctx.Err() != context.DeadlineExceeded) && w.decided.CompareAndSwap(false, true) {
				abort()
			}
		}
	}()
	return w, nil
}

// stop ends the watching, and puts the context's error beneath that of the call if the context ended it. No abort comes
// after stop, and a call that ended well while one came is a failure: the communicator cannot be used any more.
func (w *watch) stop(err error) error {
	if w == nil {
		return err
	}
	aborted := !w.decided.CompareAndSwap(false, true)
	close(w.done)
	<-w.ended
	if aborted && err == nil {
		err = failed(ErrAborted, "%s as the call ended", w.ctx.Err())
	}
	if aborted {
		return beneath(err, w.ctx.Err())
	}
	if e, ok := err.(*Error); ok && (e.Code == ErrAborted || e.Code == ErrTimeout || e.Code == ErrPeer) {
		return beneath(err, w.ctx.Err())
	}
	return err
}

// blocking makes a call of C that has no timeout of its own on the comm, under ctx.
func (c *Comm) blocking(ctx context.Context, call func(p unsafe.Pointer) error) error {
	p, err := c.enter()
	if err != nil {
		return err
	}
	defer c.leave()
	w, err := c.watch(ctx, false)
	if err != nil {
		return err
	}
	return w.stop(call(p))
}

// run makes a collective under ctx. It is the way of every call on slices.
func (c *Comm) run(ctx context.Context, call *Collective) error {
	p, err := c.enter()
	if err != nil {
		return err
	}
	if ctx.Done() == nil { // nothing to watch
		err = runCollective(c, p, call, call.Timeout.Seconds())
		c.leave()
		return err
	}
	defer c.leave()
	seconds, fromContext := bound(ctx, call.Timeout)
	w, err := c.watch(ctx, fromContext)
	if err != nil {
		return err
	}
	err = w.stop(runCollective(c, p, call, seconds))
	if e, ok := err.(*Error); ok && fromContext && e.Code == ErrTimeout {
		return beneath(err, context.DeadlineExceeded)
	}
	return err
}

// outcome is what a call made.
type outcome[T any] struct {
	made T
	err  error
}

// before refuses a call whose context has ended.
func before(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return beneath(failed(ErrAborted, "%s before the call", err), err)
	}
	return nil
}

// await runs f, which ends by itself but cannot be told to; if ctx ends first, undo releases what f still makes. So f uses
// nothing of the caller's, who goes on then.
func await[T any](ctx context.Context, f func() (T, error), undo func(T)) (T, error) {
	if ctx.Done() == nil {
		return f()
	}
	var nothing T
	ended := make(chan outcome[T], 1)
	go func() {
		made, err := f()
		ended <- outcome[T]{made, err}
	}()
	select {
	case o := <-ended:
		if e, ok := o.err.(*Error); ok && e.Code == ErrTimeout {
			return o.made, beneath(o.err, ctx.Err())
		}
		return o.made, o.err
	case <-ctx.Done():
		go func() {
			if o := <-ended; o.err == nil {
				undo(o.made)
			}
		}()
		return nothing, beneath(failed(ErrAborted, "%s while the call waited", ctx.Err()), ctx.Err())
	}
}
