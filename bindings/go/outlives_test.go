//go:build cgo

package gsel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// outlives_test.go: what must not outlive a call or an object: who watches a context, and what queues hold. And the sink of
// log lines, which is called once at a time.

func TestAContextEndsAGroup(t *testing.T) {
	for _, how := range []error{context.Canceled, context.DeadlineExceeded} {
		ranks(t, 2, func(c *Comm) error {
			if c.Rank() == 1 {
				err := late(c, background, nil)
				if err == nil {
					return errors.New("expected the group's end here, too")
				}
				return nil
			}
			m, err := Alloc[int8](nil, 1)
			if err != nil {
				return err
			}
			defer m.Close()
			ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
			if how == context.Canceled {
				ctx, cancel = context.WithCancel(background)
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			defer cancel()
			err = RunGroup(ctx, []*Comm{c}, []*Collective{{Kind: KindRecv, DType: I8, Root: 1, Recv: m.Pointer(), Count: 1}})
			if !errors.Is(err, how) || !errors.Is(err, ErrAborted) && !errors.Is(err, ErrTimeout) {
				return fmt.Errorf("expected %v beneath, got %v", how, err)
			}
			return nil
		})
	}
}

func TestARefusedWaitLeavesNobodyWatching(t *testing.T) {
	before := runtime.NumGoroutine()
	ranks(t, 2, func(c *Comm) error {
		m, err := Alloc[int8](nil, 2)
		if err != nil {
			return err
		}
		defer m.Close()
		peer := 1 - c.Rank()
		open, err := c.Start(Collective{Kind: KindRecv, DType: I8, Root: peer, Recv: m.Pointer(), Count: 1}, m)
		if err != nil {
			return err
		}
		defer open.Close()
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		if _, err = WaitAny(ctx, open, &Request{comm: c}); err != ErrClosed {
			return fmt.Errorf("expected %v, got %v", ErrClosed, err)
		}
		cancel()
		time.Sleep(20 * time.Millisecond) // time for a watcher to abort
		err = Send(background, c, []int8{1}, peer, 0)
		return firstError(err, open.Wait(background), c.AsyncError())
	})
	settled(t, before)
}

// Either a call ends well and the communicator is whole, or it tells that its context ended.
func TestACancellationAtTheEndOfACallIsTold(t *testing.T) {
	told := 0
	for i := 0; i < 150; i++ {
		after := time.Duration(i) * time.Microsecond
		ranks(t, 2, func(c *Comm) error {
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			if c.Rank() == 0 {
				go func() {
					for end := time.Now().Add(after); time.Now().Before(end); {
						runtime.Gosched()
					}
					cancel()
				}()
			}
			x := []float32{1}
			err := AllReduce(ctx, c, x, x, Sum)
			if c.Rank() != 0 {
				if err == nil {
					c.Barrier(background)
				}
				return nil
			}
			if err == nil {
				return firstError(c.Barrier(background))
			}
			told++
			if !errors.Is(err, context.Canceled) {
				return fmt.Errorf("expected the cancellation beneath, got %v", err)
			}
			return nil
		})
	}
	t.Logf("%d of 150 calls were ended by their context", told)
}

// A context that ends as a trainer is made: either the trainer is there, or its error tells, and what C made is given back once.
func TestWhatIsMadeAsAContextEndsIsReleased(t *testing.T) {
	told := 0
	for i := 0; i < 200; i++ {
		after := time.Duration(5*i) * time.Microsecond
		ranks(t, 1, func(c *Comm) error {
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			d := &distance{batch: 1}
			m, _, err := d.model(true)
			if err != nil {
				return err
			}
			defer m.Close()
			go func() {
				for end := time.Now().Add(after); time.Now().Before(end); {
					runtime.Gosched()
				}
				cancel()
			}()
			trainer, err := NewTrainer(ctx, c, m, &TrainerOptions{Data: d.input})
			if err == nil {
				_, err = trainer.Step(background)
				return firstError(err, trainer.Close())
			}
			told++
			if trainer != nil || !errors.Is(err, context.Canceled) || !errors.Is(err, ErrAborted) {
				return fmt.Errorf("expected the cancellation, got %v and %v", trainer, err)
			}
			return nil
		})
	}
	t.Logf("%d of 200 were ended by their context", told)
}

// A call that ends well after its context has ended it tells so.
func TestACallThatEndsBesideItsContextTells(t *testing.T) {
	ranks(t, 1, func(c *Comm) error {
		ctx, cancel := context.WithCancel(background)
		err := c.blocking(ctx, func(unsafe.Pointer) error {
			cancel()
			for c.AsyncError() == nil { // the watcher aborts
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrAborted) {
			return fmt.Errorf("expected the cancellation, got %v", err)
		}
		return nil
	})
}

func TestTheSinkOfLogLinesIsCalledOnceAtATime(t *testing.T) {
	var inside, overlaps, mine, others atomic.Int32
	SetLog(LogDebug, func(level LogLevel, component, line string) {
		if inside.Add(1) > 1 {
			overlaps.Add(1)
		}
		if component == "go" {
			mine.Add(1)
		} else {
			others.Add(1)
		}
		time.Sleep(time.Millisecond)
		inside.Add(-1)
	})
	defer SetLog(LogError, nil)
	end := time.Now().Add(20 * time.Second)
	for (mine.Load() < 50 || others.Load() < 50) && time.Now().Before(end) {
		for i := 0; i < 10; i++ {
			if _, err := ParseConfig("", "lost"); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		ranks(t, 2, func(c *Comm) error { return c.Barrier(background) })
	}
	if mine.Load() < 50 || others.Load() < 50 || overlaps.Load() > 0 {
		t.Errorf("%d reports and %d lines of the library, %d at the same time as another", mine.Load(), others.Load(), overlaps.Load())
	}
}

// held counts the requests of a queue that its next end may be of.
func held(q *Queue) (n int) {
	inQueues.Range(func(_, in any) bool {
		if in.(inQueue).queue == q.number {
			n++
		}
		return true
	})
	return
}

func TestQueuesHoldNoRequestThatIsClosed(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		q, err := NewQueue()
		if err != nil {
			return err
		}
		defer q.Close()
		other, err := NewQueue()
		if err != nil {
			return err
		}
		defer other.Close()
		m, err := Alloc[float32](c, 1)
		if err != nil {
			return err
		}
		defer m.Close()
		for i := 0; i < 50; i++ {
			r, err := StartAllReduce(c, m, m, Sum)
			err = firstError(err, r.Notify(other), expect("requests held", 1, held(other)), r.Notify(q), expect("after it went elsewhere", 0, held(other)),
				r.Wait(background), r.Close(), expect("after its close", 0, held(q)))
			if err != nil {
				return err
			}
		}
		if r, err := q.Poll(); r != nil || err != nil {
			return fmt.Errorf("expected nothing, got %v, %v", r, err)
		}
		r, err := StartAllReduce(c, m, m, Sum)
		if err = firstError(err, r.Notify(q), r.Wait(background)); err != nil {
			return err
		}
		defer r.Close()
		ended, err := q.Poll()
		if err = firstError(err, expect("the request that was waited for", true, ended == r), expect("after it was taken", 0, held(q))); err != nil {
			return err
		}
		again, err := StartAllReduce(c, m, m, Sum)
		err = firstError(err, again.Notify(q), again.Wait(background), expect("requests held", 1, held(q)), q.Close(), expect("after the queue's close", 0, held(q)))
		if err != nil {
			return err
		}
		defer again.Close()
		return c.Barrier(background)
	})
}
