package gsel

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// object.go: what all handles have in common: closing, calls that must not overlap, and lifetimes that depend on each
// other. This file needs no cgo.

// object is an object of C. It is released when it is closed and the last object that uses it is released.
type object struct {
	calls           sync.Mutex // held while a call that must not overlap others runs
	life            sync.Mutex // guards the fields below
	shut            atomic.Bool
	ended           bool           // shut, and no call is under way
	p               unsafe.Pointer // nil when released
	users           int            // objects that need this one
	quiet           int            // those of them that wait for nothing
	needs           []*object
	waitsForNothing bool // to be set before own: memory, which no other rank waits for
	free            func(p unsafe.Pointer)
	what            string
	onUser          func()  // called by a close while users are open
	owner           *object // whose part this is: it is open as long as the owner is
	part            func(owner unsafe.Pointer) unsafe.Pointer
	parts           sync.RWMutex // held for writing while a call makes the parts, and what look asks for, anew
}

// own fills an object just made, and watches for its loss: owner holds o.
func own[T any](owner *T, o *object, what string, p unsafe.Pointer, free func(unsafe.Pointer), needs ...*object) {
	o.p, o.free, o.what = p, free, what
	for _, need := range needs {
		if need != nil {
			need.life.Lock()
			need.users++
			if o.waitsForNothing {
				need.quiet++
			}
			need.life.Unlock()
			o.needs = append(o.needs, need)
		}
	}
	// Nothing that C or o keeps may refer to the owner, which is not collected otherwise.
	runtime.SetFinalizer(owner, func(lost *T) {
		if o := any(lost).(Keeper).kept(); !o.shut.Load() {
			reportLeak(o.what)
		}
	})
}

// need ties a further object to the life of o, in a call on o. In place of one from before, which is let go.
func (o *object) need(further, before *object) {
	further.life.Lock()
	further.users++
	further.life.Unlock()
	for i, need := range o.needs {
		if need == before {
			o.needs[i] = further
			before.release()
			return
		}
	}
	o.needs = append(o.needs, further)
}

// enter begins a call that must not overlap others; leave ends it.
func (o *object) enter() (unsafe.Pointer, error) {
	if !o.calls.TryLock() {
		return nil, failed(ErrState, "another goroutine is in a call on this %s", o.what)
	}
	if o.shut.Load() || o.p == nil {
		o.calls.Unlock()
		return nil, ErrClosed
	}
	return o.p, nil
}

func (o *object) leave() { o.calls.Unlock() }

// enterWaiting is enter for objects whose calls are short: overlapping calls take turns.
func (o *object) enterWaiting() (unsafe.Pointer, error) {
	o.calls.Lock()
	if o.shut.Load() || o.p == nil {
		o.calls.Unlock()
		return nil, ErrClosed
	}
	return o.p, nil
}

// steady keeps what is part of the object as it is until o.parts.RUnlock. It is refused while a call makes it anew.
func (o *object) steady() error {
	if !o.parts.TryRLock() {
		return failed(ErrState, "another goroutine is in a call that makes the %s anew", o.what)
	}
	return nil
}

// look runs f, a query that may overlap calls, unless the object is closed.
func (o *object) look(f func(p unsafe.Pointer)) error {
	if err := o.steady(); err != nil {
		return err
	}
	defer o.parts.RUnlock()
	o.life.Lock()
	defer o.life.Unlock()
	if o.shut.Load() || o.p == nil {
		return ErrClosed
	}
	f(o.p)
	return nil
}

// close refuses later calls, waits for the one under way, and releases the object if nobody needs it any more. In a
// callback of the call under way it is refused: it would wait for itself.
func (o *object) close() error {
	if insideCallOf(o) {
		return failed(ErrState, "the %s is closed in a callback of a call on it; close it when that call has returned", o.what)
	}
	o.life.Lock()
	if o.shut.Load() || o.p == nil {
		o.life.Unlock()
		return nil
	}
	busy := o.users > o.quiet
	if !busy {
		if o.calls.TryLock() {
			o.calls.Unlock()
		} else {
			busy = true
		}
	}
	if busy && o.onUser != nil {
		o.onUser()
	}
	o.shut.Store(true)
	o.life.Unlock()
	o.calls.Lock() // the call under way has ended then
	o.calls.Unlock()
	o.life.Lock()
	o.ended = true
	o.life.Unlock()
	o.releaseIfUnused()
	return nil
}

func (o *object) releaseIfUnused() {
	o.life.Lock()
	if o.p == nil || o.users > 0 || !o.ended {
		o.life.Unlock()
		return
	}
	p := o.p
	o.p = nil
	o.life.Unlock()
	o.free(p)
	for _, need := range o.needs {
		need.life.Lock()
		need.users--
		if o.waitsForNothing {
			need.quiet--
		}
		need.life.Unlock()
		need.releaseIfUnused()
	}
}

// keepOpen runs f with the object, which is not released meanwhile. Calls of f may overlap.
func (o *object) keepOpen(f func(p unsafe.Pointer) error) error {
	if o.owner != nil {
		return o.owner.keepOpen(func(p unsafe.Pointer) error {
			if err := o.owner.steady(); err != nil {
				return err
			}
			defer o.owner.parts.RUnlock()
			return f(o.part(p))
		})
	}
	p, err := o.acquire()
	if err != nil {
		return err
	}
	defer o.release()
	return f(p)
}

// acquire keeps the object from being released until release.
func (o *object) acquire() (unsafe.Pointer, error) {
	o.life.Lock()
	defer o.life.Unlock()
	if o.shut.Load() || o.p == nil {
		return nil, ErrClosed
	}
	o.users++
	return o.p, nil
}

func (o *object) release() {
	o.life.Lock()
	o.users--
	o.life.Unlock()
	o.releaseIfUnused()
}

// alone runs f, which must not overlap other uses of the object: it is refused while there is one.
func (o *object) alone(f func(p unsafe.Pointer) error) error {
	o.life.Lock()
	defer o.life.Unlock()
	switch {
	case o.shut.Load() || o.p == nil:
		return ErrClosed
	case o.users > 0:
		return failed(ErrState, "the %s is in use by a call", o.what)
	}
	return f(o.p)
}
