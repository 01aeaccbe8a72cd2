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

// operation.go: operations of the program's, and their tickets. C knows an operation by its name, so each call gets a
// number of its own for it: a ticket, which keeps what went wrong in that call and in no other.

// userOp is an operation of the program's.
type userOp struct {
	name   string
	record int
	f      func(accumulated, next unsafe.Pointer, count int, dtype DType) error
	mu     sync.Mutex
	unused []*ticket
	closed bool
}

// ticket is an operation of C for one call at a time.
type ticket struct {
	faults
	user *userOp
	op   Op
	base bool // the number that the program has: what takes it without a call, such as a Phase, keeps no errors
}

// userOps finds the operation of the number that the program has.
var userOps sync.Map // Op to *userOp

func (u *userOp) ticket() (*ticket, error) {
	var l lent
	defer l.free()
	t := &ticket{user: u}
	handle := cgo.NewHandle(t)
	var op C.gsel_op
	var err *C.gsel_error
	status := C.go_op_create(l.text(u.name), C.size_t(u.record), C.uintptr_t(handle), &op, &err)
	if err := check(status, &err); err != nil {
		handle.Delete()
		return nil, err
	}
	t.op = Op(op)
	return t, nil
}

// ticketFor is the number to give to C for op in a call on o, and the ticket to give back after the call; nil for what is
// no operation of Go's. ErrNoMem when C has room for no more.
func ticketFor(op Op, o *object) (Op, *ticket, error) {
	if op < firstUser {
		return op, nil, nil
	}
	found, ok := userOps.Load(op)
	if !ok {
		return op, nil, nil
	}
	u := found.(*userOp)
	u.mu.Lock()
	defer u.mu.Unlock()
	var t *ticket
	if last := len(u.unused) - 1; last >= 0 {
		t, u.unused = u.unused[last], u.unused[:last]
	} else {
		var err error
		if t, err = u.ticket(); err != nil {
			return op, nil, err
		}
	}
	t.on(o)
	return t.op, t, nil
}

// ticketsIn gives calls[i] in C, on objects[i], their tickets: all or none.
func ticketsIn(calls []*C.gsel_collective, objects func(i int) *object) ([]*ticket, error) {
	var tickets []*ticket
	for i, call := range calls {
		op, t, err := ticketFor(Op(call.op), objects(i))
		if err != nil {
			giveBack(tickets)
			return nil, err
		}
		call.op = C.gsel_op(op)
		if t != nil {
			tickets = append(tickets, t)
		}
	}
	return tickets, nil
}

// ended releases the ticket and returns its call's error.
func (t *ticket) ended(err error) error {
	if t == nil {
		return err
	}
	err = t.beneath(err)
	t.giveBack()
	return err
}

func (t *ticket) giveBack() {
	if t == nil {
		return
	}
	t.take()
	t.on(nil)
	t.user.mu.Lock()
	defer t.user.mu.Unlock()
	if t.user.closed {
		C.gsel_op_free(C.gsel_op(t.op))
	} else {
		t.user.unused = append(t.user.unused, t)
	}
}

func giveBack(tickets []*ticket) {
	for _, t := range tickets {
		t.giveBack()
	}
}

func (u *userOp) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, t := range u.unused {
		C.gsel_op_free(C.gsel_op(t.op))
	}
	u.unused = nil
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
	state := &userOp{name: name, record: recordElems, f: f}
	base, err := state.ticket()
	if err != nil {
		return nil, err
	}
	base.base = true
	userOps.Store(base.op, state)
	return ownOp(C.gsel_op(base.op), state), nil
}

// NewScaledSum makes ScaledSum with this rank's factor, for calls that take no Collective.
func NewScaledSum(factor float64) (*UserOp, error) {
	var op C.gsel_op
	var err *C.gsel_error
	status := C.gsel_op_create_scaled_sum(C.double(factor), &op, &err)
	if err := check(status, &err); err != nil {
		return nil, err
	}
	return ownOp(op, nil), nil
}

func ownOp(op C.gsel_op, state *userOp) *UserOp {
	u := &UserOp{Op: Op(op)}
	// An operation is a number in C; the object's pointer only says that it lives.
	own(u, &u.object, "operation", unsafe.Pointer(u), func(unsafe.Pointer) {
		if state != nil {
			userOps.Delete(Op(op))
			state.close()
		}
		C.gsel_op_free(op)
	})
	u.p = unsafe.Pointer(&alive)
	return u
}

var alive byte

// Close releases the operation.
func (u *UserOp) Close() error {
	return u.close()
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
	op, t, err := ticketFor(op, nil)
	if err != nil {
		return err
	}
	var cerr *C.gsel_error
	status := C.gsel_reduce_local(list[unsafe.Pointer](l, inputs), C.size_t(len(inputs)), out, C.size_t(count),
		C.gsel_dtype(dtype), C.gsel_op(op), C.int32_t(order), &cerr)
	return t.ended(check(status, &cerr))
}

//export goOp
func goOp(accumulated, next unsafe.Pointer, count C.size_t, dtype C.gsel_dtype, frame *C.go_frame) C.int32_t {
	t := handled[*ticket](frame.ticket)
	returned := false
	defer func() {
		if !returned { // runtime.Goexit leaves this function and C's
			C.go_leave(frame)
		}
	}()
	err := protect(func() error { return t.user.f(accumulated, next, int(count), DType(dtype)) })
	returned = true
	var keep *faults
	if !t.base {
		keep = &t.faults
	}
	return C.int32_t(answer(keep, err, nil, 0))
}
