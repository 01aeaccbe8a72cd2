package gsel

/*
#include <poll.h>
#include "shim.h"

static void wait_readable(int fd, int ms) {
  struct pollfd of = {fd, POLLIN, 0};
  (void)poll(&of, 1, ms);
}
*/
import "C"

import (
	"context"
	"sync"
	"sync/atomic"
	"unsafe"
)

// queue.go: a completion queue. A program waits on one descriptor for the end of many requests.

// Queue is a completion queue: requests that have ended, in the order in which they did, whether somebody waited for them
// meanwhile or not; a closed one is in no queue. Any number of goroutines may use it at the same time. Close it.
type Queue struct {
	object
	number uint64
}

// inQueues finds a request by the number that its queue knows it by, until it is taken out, closed, or given to another
// queue, or its queue is closed. Requests do not hold their queues, nor queues what is lost.
var (
	inQueues    sync.Map // uint64 to inQueue
	lastNumbers struct{ queue, request atomic.Uint64 }
)

type inQueue struct {
	request *Request
	queue   uint64
}

// NewQueue makes an empty queue.
func NewQueue() (*Queue, error) {
	var queue *C.gsel_queue
	var cerr *C.gsel_error
	status := C.gsel_queue_create(&queue, &cerr)
	if err := check(status, &cerr); err != nil {
		return nil, err
	}
	number := lastNumbers.queue.Add(1)
	q := &Queue{number: number}
	own(q, &q.object, "queue", unsafe.Pointer(queue), func(p unsafe.Pointer) {
		C.gsel_queue_free((*C.gsel_queue)(p))
		inQueues.Range(func(request, in any) bool {
			if in.(inQueue).queue == number {
				inQueues.Delete(request)
			}
			return true
		})
	})
	return q, nil
}

// Notify puts the request into the queue when its call ends, at once if it has ended and nobody was told; a persistent one
// at the end of every later start, too. The timeout of a message begins here. A request has one queue.
func (r *Request) Notify(q *Queue) error {
	queue, err := q.enterWaiting()
	if err != nil {
		return err
	}
	defer q.leave()
	return r.with(func(p *C.gsel_request, err **C.gsel_error) C.gsel_status {
		number := lastNumbers.request.Add(1)
		inQueues.Store(number, inQueue{r, q.number})
		status := C.go_request_notify(p, (*C.gsel_queue)(queue), C.uintptr_t(number), err)
		if status == C.GSEL_OK {
			number = r.told.Swap(number)
		}
		inQueues.Delete(number)
		return status
	})
}

// Next takes the first request that has ended; Wait on it returns at once. It returns the context's error once that ends.
func (q *Queue) Next(ctx context.Context) (*Request, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if r, err := q.Poll(); r != nil || err != nil {
			return r, err
		}
		C.wait_readable(C.int(q.Fd()), 50)
	}
}

// Poll is Next without a wait; nil, nil: nothing has ended.
func (q *Queue) Poll() (*Request, error) {
	p, err := q.enterWaiting()
	if err != nil {
		return nil, err
	}
	defer q.leave()
	for {
		var found C.int32_t
		var number C.uintptr_t
		var cerr *C.gsel_error
		status := C.go_queue_next((*C.gsel_queue)(p), &found, &number, &cerr)
		if err := check(status, &cerr); err != nil || found == 0 {
			return nil, err
		}
		if in, ok := inQueues.Load(uint64(number)); ok { // else it is being closed
			if r := in.(inQueue).request; r.again {
				return r, nil
			}
			inQueues.Delete(uint64(number))
			return in.(inQueue).request, nil
		}
	}
}

// Fd is readable while a request is there, for a loop of the program's. It is neither read nor closed.
func (q *Queue) Fd() uintptr {
	p, err := q.enterWaiting()
	if err != nil {
		return ^uintptr(0)
	}
	defer q.leave()
	return uintptr(C.gsel_queue_fd((*C.gsel_queue)(p)))
}

// Close releases the queue; requests go on without it.
func (q *Queue) Close() error {
	return q.close()
}
