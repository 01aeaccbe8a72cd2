package gsel

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// operation_test.go: operations of Go's in collectives.

// withOp runs body with an operation and n elements, and closes both afterwards.
func withOp(name string, fold func(accumulated, next []float32) error, n int, body func(op Op, m *Memory[float32]) error) error {
	op, err := NewOp(name, 1, fold)
	if err != nil {
		return err
	}
	defer op.Close()
	m, err := Alloc[float32](nil, n)
	if err != nil {
		return err
	}
	defer m.Close()
	return body(op.Op, m)
}

func TestOperationsOfGo(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		op, err := NewOp("max_abs", 1, func(accumulated, next []float32) error {
			for i, x := range next {
				if x < 0 {
					x = -x
				}
				if x > accumulated[i] {
					accumulated[i] = x
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		defer op.Close()
		x := []float32{1, float32(-5 * c.Rank())}
		if err := firstError(AllReduce(background, c, x, x, op.Op), expect("largest", []float32{1, 5}, x)); err != nil {
			return err
		}
		scaled, err := NewScaledSum(float64(c.Rank() + 1))
		if err != nil {
			return err
		}
		defer scaled.Close()
		return firstError(AllReduce(background, c, x, x, scaled.Op), expect("scaled", []float32{3, 15}, x))
	})
}

func TestPanicInAnOperationIsAnErrorOfTheCall(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		op, err := NewOp("fails", 1, func(accumulated, next []float32) error { panic("no such sum") })
		if err != nil {
			return err
		}
		defer op.Close()
		x := []float32{1}
		err = AllReduce(background, c, x, x, op.Op)
		var p *PanicError
		if !errors.Is(err, ErrCallback) || !errors.As(err, &p) || p.Value != "no such sum" || !strings.Contains(string(p.Stack), "operation_test.go") {
			return fmt.Errorf("expected the panic beneath %v, got %+v", err, p)
		}
		return nil
	})
}

// Requests hold an operation each, of which C has so many at a time.
func TestMoreOperationsThanThereAreIsAnError(t *testing.T) {
	fold := func(accumulated, next []float32) error { return nil }
	ranks(t, 1, func(c *Comm) error {
		return withOp("of_many", fold, 1, func(op Op, m *Memory[float32]) error {
			call := Collective{Kind: KindAllReduce, DType: F32, Op: op, Send: m.Pointer(), Recv: m.Pointer(), Count: 1}
			var held []*Request
			defer func() {
				for _, r := range held {
					r.Close()
				}
			}()
			var err error
			for len(held) < 5000 && err == nil {
				var r *Request
				if r, err = c.NewRequest(call, m); err == nil {
					held = append(held, r)
				}
			}
			const words = "operations"
			x := []float32{1}
			if err = firstError(refused(ErrNoMem, words, err), refused(ErrNoMem, words, AllReduce(background, c, x, x, op)),
				refused(ErrNoMem, words, RunGroup(background, []*Comm{c, c}, []*Collective{&call, &call})),
				refused(ErrNoMem, words, ReduceLocal([][]float32{{1}, {2}}, x, op, OrderRanks))); err != nil {
				return err
			}
			last := len(held) - 1
			held[last].Close() // a group of two then has one of its two
			_, err = c.StartGroup([]*Collective{&call, &call}, m)
			return firstError(refused(ErrNoMem, words, err), AllReduce(background, c, x, x, op))
		})
	})
}
