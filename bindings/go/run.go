package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"math"
	"unsafe"
)

// run.go: collectives handed to C: flat for a call that may use memory of Go, as a struct in C memory for the others.

func runCollective(c *Comm, p unsafe.Pointer, call *Collective, timeoutS float64) error {
	op, t, err := ticketFor(call.Op, &c.object)
	if err != nil {
		return err
	}
	var result C.go_result
	if call.Kind <= KindScatter && call.Tag == 0 && call.Label == "" && call.Factor == 0 && call.Received == nil && call.Stream == 0 {
		result = C.go_run_plain(C.uintptr_t(uintptr(p)), C.gsel_collective_kind(call.Kind), C.gsel_dtype(call.DType), C.gsel_op(op),
			narrow(call.Root), (*C.uchar)(call.Send), (*C.uchar)(call.Recv), C.uint64_t(call.Count), C.double(timeoutS))
	} else {
		result = runWhole(p, call, op, timeoutS)
	}
	if result.status == C.GSEL_OK {
		t.giveBack()
		return nil
	}
	return t.ended(checkResult(result))
}

// narrow is n as C takes ranks and tags; what has no place there becomes a number that no rank has.
func narrow(n int) C.int32_t {
	if n > math.MaxInt32 {
		return math.MaxInt32
	}
	if n < math.MinInt32 {
		return math.MinInt32
	}
	return C.int32_t(n)
}

// number is n as C takes what has no largest value of its own.
func number(what string, n int) (C.int32_t, error) {
	if n > math.MaxInt32 || n < math.MinInt32 {
		return 0, failed(ErrArg, "%s %d has more than 32 bits", what, n)
	}
	return C.int32_t(n), nil
}

func runWhole(p unsafe.Pointer, call *Collective, op Op, timeoutS float64) C.go_result {
	var l lent
	defer l.free()
	label := l.given(call.Label)
	message := call.messageToC(&l)
	result := C.go_run(commPointer(p), C.gsel_collective_kind(call.Kind), C.gsel_dtype(call.DType), C.gsel_op(op),
		narrow(call.Root), narrow(call.Source), call.Send, call.Recv, C.uint64_t(call.Count), C.uint64_t(call.RecvCount),
		(*C.uint64_t)(first(call.SendCounts)), (*C.uint64_t)(first(call.SendOffsets)),
		(*C.uint64_t)(first(call.RecvCounts)), (*C.uint64_t)(first(call.RecvOffsets)),
		C.double(call.Factor), C.double(timeoutS), label.data, label.len,
		narrow(call.Tag), narrow(call.RecvTag), message, C.uintptr_t(call.Stream))
	if result.status == C.GSEL_OK {
		call.messageFromC(message)
	}
	return result
}

func (call *Collective) messageToC(l *lent) *C.gsel_message {
	if call.Received == nil {
		return nil
	}
	message := zeroed[C.gsel_message](l)
	message.struct_size = C.sizeof_gsel_message
	return message
}

func (call *Collective) messageFromC(m *C.gsel_message) {
	if m != nil {
		*call.Received = Message{int(m.source), int(m.tag), DType(m.dtype), int(m.count)}
	}
}

// toC makes the struct of a call whose buffers are not of Go. Counts are copied: C keeps them until the call has ended.
func (call *Collective) toC(l *lent) *C.gsel_collective {
	c := zeroed[C.gsel_collective](l)
	*c = C.go_collective(C.gsel_collective_kind(call.Kind), C.gsel_dtype(call.DType), C.gsel_op(call.Op),
		narrow(call.Root), narrow(call.Source), call.Send, call.Recv, C.uint64_t(call.Count), C.uint64_t(call.RecvCount),
		list[C.uint64_t](l, call.SendCounts), list[C.uint64_t](l, call.SendOffsets),
		list[C.uint64_t](l, call.RecvCounts), list[C.uint64_t](l, call.RecvOffsets),
		C.double(call.Factor), C.double(call.Timeout.Seconds()), nil, 0,
		narrow(call.Tag), narrow(call.RecvTag), call.messageToC(l), C.uintptr_t(call.Stream))
	c.label = l.given(call.Label)
	return c
}

// RunGroup makes several calls together and returns when all have ended, as ncclGroupStart and ncclGroupEnd do: calls[i]
// on comms[i]. Several communicators run at the same time, so that one goroutine can hold several ranks. Buffers are of C
// or of a device. A context that ends aborts all of these communicators.
func RunGroup(ctx context.Context, comms []*Comm, calls []*Collective) error {
	if len(comms) != len(calls) {
		return failed(ErrArg, "%d communicators for %d calls", len(comms), len(calls))
	}
	if len(comms) == 0 {
		return nil
	}
	var l lent
	defer l.free()
	entered := map[*Comm]bool{}
	defer func() {
		for c := range entered {
			c.leave()
		}
	}()
	toComms, toCalls := make([]*C.gsel_comm, len(comms)), make([]*C.gsel_collective, len(comms))
	timed := true // by the deadline of the context, every call
	for i, c := range comms {
		if !entered[c] {
			if _, err := c.enter(); err != nil {
				return err
			}
			entered[c] = true
		}
		toComms[i], toCalls[i] = commPointer(c.p), calls[i].toC(&l)
		seconds, fromContext := bound(ctx, calls[i].Timeout)
		toCalls[i].timeout_s = C.double(seconds)
		timed = timed && fromContext
	}
	tickets, err := ticketsIn(toCalls, func(i int) *object { return &comms[i].object })
	if err != nil {
		return err
	}
	w, err := watchAll(ctx, timed, comms)
	if err != nil {
		giveBack(tickets)
		return err
	}
	var cerr *C.gsel_error
	status := C.gsel_group_run(list[*C.gsel_comm](&l, toComms), list[*C.gsel_collective](&l, toCalls), C.size_t(len(comms)), &cerr)
	if status == C.GSEL_OK {
		for i, call := range calls {
			call.messageFromC(toCalls[i].received)
		}
	}
	err = check(status, &cerr)
	for _, t := range tickets {
		err = t.ended(err)
	}
	err = w.stop(err)
	if e, ok := err.(*Error); ok && timed && e.Code == ErrTimeout {
		return beneath(err, context.DeadlineExceeded)
	}
	return err
}
