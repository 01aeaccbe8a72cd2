package gsel

import (
	"math"
	"unsafe"
)

// buffer.go: Memory, a slice that lives in C. This file needs no cgo.

// Keeper is an object that can be kept alive by another.
type Keeper interface{ kept() *object }

func (o *object) kept() *object { return o }

// Memory is n elements in memory of C: it may be used by requests, and lives until Close.
type Memory[T Element] struct {
	object
	elems []T
}

// Alloc makes memory for n elements, zeroed. With a communicator all its ranks can access it: calls on it copy nothing
// on the way. With nil it is memory of this process.
func Alloc[T Element](c *Comm, n int) (*Memory[T], error) {
	var zero T
	if n < 0 || n > math.MaxInt/2/int(unsafe.Sizeof(zero)) {
		return nil, failed(ErrArg, "%d elements", n)
	}
	if c != nil { // which stays open until the memory is tied to it
		if _, err := c.acquire(); err != nil {
			return nil, err
		}
		defer c.release()
	}
	p, free, err := allocate(c, n*int(unsafe.Sizeof(zero)))
	if err != nil {
		return nil, err
	}
	m := &Memory[T]{}
	m.waitsForNothing = true
	if n > 0 {
		m.elems = unsafe.Slice((*T)(p), n)
	}
	if c == nil {
		own(m, &m.object, "memory", p, free)
	} else {
		own(m, &m.object, "memory", p, free, &c.object)
	}
	return m, nil
}

// Slice is the elements. It must not be used after Close.
func (m *Memory[T]) Slice() []T { return m.elems }

// Len is the number of elements.
func (m *Memory[T]) Len() int { return len(m.elems) }

// Pointer is the address of the elements, for Collective.
func (m *Memory[T]) Pointer() unsafe.Pointer { return first(m.elems) }

// Close frees the memory, once no open request uses it. No call on it may be under way on any rank.
func (m *Memory[T]) Close() error {
	return m.close()
}

// StartAllReduce starts AllReduce of memory of C. send and recv may be the same.
func StartAllReduce[T Element](c *Comm, send, recv *Memory[T], op Op) (*Request, error) {
	if send.Len() != recv.Len() {
		return nil, failed(ErrArg, "recv has %d elements, send has %d", recv.Len(), send.Len())
	}
	return c.Start(Collective{Kind: KindAllReduce, DType: DTypeOf[T](), Op: op, Send: send.Pointer(), Recv: recv.Pointer(), Count: send.Len()}, send, recv)
}

// NewOp makes an operation on elements of type T: accumulated = accumulated op next, element by element in records of
// recordElems. Calls with other types fail. See NewOpRaw.
func NewOp[T Element](name string, recordElems int, f func(accumulated, next []T) error) (*UserOp, error) {
	return NewOpRaw(name, recordElems, func(accumulated, next unsafe.Pointer, count int, dtype DType) error {
		if dtype != DTypeOf[T]() {
			return failed(ErrType, "%s is for %s, not %s", name, DTypeOf[T](), dtype)
		}
		return f(unsafe.Slice((*T)(accumulated), count), unsafe.Slice((*T)(next), count))
	})
}
