//go:build cgo

package gsel

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
)

// fault_test.go: what goes wrong in a callback is beneath the error of the call that ran it, and of no other.

// unsaid is an error whose Error method panics where the pointer is nil.
type unsaid struct{ words string }

func (u *unsaid) Error() string { return u.words }

func returnsNilPointer() error {
	var u *unsaid
	return u
}

// panicked expects ErrCallback with a panic of this value beneath.
func panicked(value string, err error) error {
	var p *PanicError
	if !errors.Is(err, ErrCallback) || !errors.As(err, &p) || !strings.Contains(fmt.Sprint(p.Value), value) {
		return fmt.Errorf("expected a panic with %q beneath, got %v", value, err)
	}
	return nil
}

// reducing calls f as an operation on this goroutine.
func reducing(f func(accumulated, next []float32) error) error {
	op, err := NewOp("local", 1, f)
	if err != nil {
		return err
	}
	defer op.Close()
	return ReduceLocal([][]float32{{1}, {2}}, []float32{0}, op.Op, OrderRanks)
}

func TestAnErrorThatCannotBeSaidIsAPanic(t *testing.T) {
	const value = "nil pointer dereference"
	must(t, panicked(value, reducing(func(accumulated, next []float32) error { return returnsNilPointer() })))
	ranks(t, 2, func(c *Comm) error {
		op, err := NewOp("unsaid", 1, func(accumulated, next []float32) error { return returnsNilPointer() })
		if err != nil {
			return err
		}
		defer op.Close()
		x := []float32{1}
		return panicked(value, AllReduce(background, c, x, x, op.Op))
	})
	for _, pushed := range []bool{true, false} {
		ranks(t, 2, func(c *Comm) error {
			d := &distance{forward: returnsNilPointer}
			return training(c, pushed, d, func(t *Trainer, w ParamID) (err error) {
				if pushed {
					_, err = t.Step(background)
				} else {
					_, err = t.Pull(background, func(work *Work) error { return returnsNilPointer() })
				}
				if errors.Is(err, ErrAborted) { // the other rank was first
					return refused(ErrAborted, value, err)
				}
				return panicked(value, err)
			})
		})
	}
}

func TestPanicOfNilIsAnError(t *testing.T) {
	err := reducing(func(accumulated, next []float32) error { panic(nil) })
	var p *PanicError
	if !errors.Is(err, ErrCallback) || !errors.As(err, &p) {
		t.Errorf("expected the panic beneath, got %v", err)
	}
}

func TestAPanicBelongsToTheGroupThatRanIt(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		panics := func(accumulated, next []float32) error { panic("in a group") }
		return withOp("of_a_group", panics, 1, func(op Op, m *Memory[float32]) error {
			return panicked("in a group", RunGroup(background, []*Comm{c}, []*Collective{
				{Kind: KindAllReduce, DType: F32, Op: op, Send: m.Pointer(), Recv: m.Pointer(), Count: 1}}))
		})
	})
}

// A request that is closed without a wait takes its panic with it.
func TestAPanicEndsWithItsRequest(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		calls := int32(0)
		fold := func(accumulated, next []float32) error {
			if atomic.AddInt32(&calls, 1) == 1 {
				panic("of the request")
			}
			return errors.New("later")
		}
		return withOp("twice", fold, 1, func(op Op, m *Memory[float32]) error {
			r, err := StartAllReduce(c, m, m, op)
			if err != nil {
				return err
			}
			for atomic.LoadInt32(&calls) == 0 && c.AsyncError() == nil {
				time.Sleep(time.Millisecond)
			}
			r.Close()
			atomic.CompareAndSwapInt32(&calls, 0, 1) // where the other rank was first
			err = ReduceLocal([][]float32{{1}, {2}}, []float32{0}, op, OrderRanks)
			var p *PanicError
			if !errors.Is(err, ErrCallback) || errors.As(err, &p) || !strings.Contains(fmt.Sprint(errors.Unwrap(err)), "later") {
				return fmt.Errorf("expected the error of this call alone beneath, got %v with %v", err, errors.Unwrap(err))
			}
			return nil
		})
	})
}

// Ranks that are goroutines share a model, and one of them panics.
func TestAPanicInASharedModelBelongsToItsRank(t *testing.T) {
	for i := 0; i < 60; i++ {
		d := &distance{batch: 2}
		var calls, found atomic.Int32
		d.forward = func() error { panic(fmt.Sprint("call ", calls.Add(1))) }
		m, _, err := lossModel(func(call *Call) error { return d.forward() }, func(call *Call) error { return nil })
		must(t, err)
		ranks(t, 2, func(c *Comm) error {
			config, err := ParseConfig("[train]\nbatch = 2\n", "test")
			if err != nil {
				return err
			}
			defer config.Close()
			trainer, err := NewTrainer(background, c, m, &TrainerOptions{Config: config, Data: func(*DataRequest) error { return nil }})
			if err != nil {
				return err
			}
			defer trainer.Close()
			_, err = trainer.Step(background)
			if errors.Is(err, ErrCallback) {
				found.Add(1)
				var p *PanicError
				if !errors.As(err, &p) || !strings.Contains(err.Error(), fmt.Sprint(p.Value)) {
					return fmt.Errorf("expected this rank's panic beneath %v, got %v", err, p)
				}
				return nil
			}
			return refused(ErrAborted, "", err)
		})
		must(t, expect("a rank with the panic", true, found.Load() > 0), m.Close())
	}
}

func TestCloseInACallbackIsRefused(t *testing.T) {
	const words = "in a callback of a call on it"
	ranks(t, 2, func(c *Comm) error {
		var refusals atomic.Int32
		op, err := NewOp("closes", 1, func(accumulated, next []float32) error {
			if err := c.Close(); refused(ErrState, words, err) == nil {
				refusals.Add(1)
			}
			return nil
		})
		if err != nil {
			return err
		}
		defer op.Close()
		x := make([]float32, 1000)
		if err = AllReduce(background, c, x, x, op.Op); err != nil {
			return err
		}
		if refusals.Load() == 0 {
			return errors.New("no close was refused")
		}
		closes := make(chan *Request, 1)
		fold := func(accumulated, next []float32) error {
			r := <-closes
			closes <- r
			return refused(ErrState, words, r.Close())
		}
		return withOp("closes_request", fold, 2, func(op Op, m *Memory[float32]) error {
			r, err := StartAllReduce(c, m, m, op)
			if err != nil {
				return err
			}
			closes <- r
			return firstError(r.Wait(background), r.Close(), c.Barrier(background))
		})
	})
	ranks(t, 1, func(c *Comm) error {
		d := &distance{}
		var trainer *Trainer
		d.forward = func() error { return refused(ErrState, words, trainer.Close()) }
		return training(c, true, d, func(t *Trainer, w ParamID) error {
			trainer = t
			_, err := t.Step(background)
			return firstError(err, t.Close(), refusedClosed(t))
		})
	})
}

func refusedClosed(t *Trainer) error {
	if _, err := t.Step(background); err != ErrClosed {
		return fmt.Errorf("expected %v, got %v", ErrClosed, err)
	}
	return nil
}

// ErrNoSamples is for callbacks of data alone; of any other callback it is an error like the others.
func TestNoSamplesIsAnErrorOutsideOfData(t *testing.T) {
	none := func(what string, err error) error {
		if !errors.Is(err, ErrCallback) || !errors.Is(err, ErrNoSamples) {
			return fmt.Errorf("%s: expected a callback that failed with ErrNoSamples beneath, got %v", what, err)
		}
		return nil
	}
	for _, pushed := range []bool{true, false} {
		ranks(t, 1, func(c *Comm) error {
			d := &distance{forward: func() error { return ErrNoSamples }}
			return training(c, pushed, d, func(t *Trainer, w ParamID) (err error) {
				if pushed {
					_, err = t.Step(background)
					return none("a layer", err)
				}
				_, err = t.Pull(background, func(work *Work) error {
					if work.Kind == WorkInput {
						return d.input(work.Input)
					}
					return ErrNoSamples
				})
				return none("work", err)
			})
		})
	}
	must(t, none("an operation", reducing(func(accumulated, next []float32) error { return ErrNoSamples })))
}

// The words of an error have a place of a certain size in C, and are cut between runes.
func TestWordsAreCutBetweenRunes(t *testing.T) {
	for shift := 0; shift < 4; shift++ {
		words := strings.Repeat("x", shift) + strings.Repeat("\U0001F600", 5000)
		ranks(t, 1, func(c *Comm) error {
			d := &distance{forward: func() error { return errors.New(words) }}
			return training(c, true, d, func(t *Trainer, w ParamID) error {
				_, err := t.Step(background)
				if !errors.Is(err, ErrCallback) || !utf8.ValidString(err.Error()) || strings.ContainsRune(err.Error(), utf8.RuneError) {
					return fmt.Errorf("shifted by %d: expected whole runes, got %q", shift, err)
				}
				return nil
			})
		})
	}
}
