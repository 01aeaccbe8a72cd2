//go:build !cgo

package gsel

import "testing"

// Every way to make an object is refused, and what is plain data still works.
func TestWithoutCgo(t *testing.T) {
	_, joined := Join(background, nil)
	_, resolved := Resolve(background, nil)
	_, parsed := ParseConfig("", "")
	_, made := NewModel()
	_, allocated := Alloc[float32](nil, 1)
	_, planned := NewPlan(background, nil)
	for _, err := range []error{joined, resolved, parsed, made, allocated, planned, AllReduce(background, &Comm{}, []int8{1}, []int8{1}, Sum)} {
		if err != ErrNoCgo && err != ErrClosed {
			t.Errorf("expected ErrNoCgo, got %v", err)
		}
	}
}
