package gsel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// request_test.go: calls that run while Go computes, and objects that are lost.

func TestRequestsRunOnMemoryOfC(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		for _, of := range []*Comm{nil, c} {
			m, err := Alloc[float32](of, 1000)
			if err != nil {
				return err
			}
			m.Slice()[999] = float32(c.Rank() + 1)
			r, err := StartAllReduce(c, m, m, Sum)
			if err != nil {
				return err
			}
			m.Close() // the request keeps it
			err = firstError(r.Wait(background), expect("sum", 3, m.Slice()[999]))
			done, tested := r.Test()
			if err = firstError(err, tested, expect("done", true, done), r.Close(), r.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestPersistentRequestsAndWaitAny(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		m, err := Alloc[int64](c, 2)
		if err != nil {
			return err
		}
		defer m.Close()
		call := Collective{Kind: KindAllGather, DType: I64, Send: first(m.Slice()[c.Rank() : c.Rank()+1]), Recv: m.Pointer(), Count: 1}
		r, err := c.NewRequest(call, m)
		if err != nil {
			return err
		}
		defer r.Close()
		for i := 0; i < 3; i++ {
			m.Slice()[c.Rank()] = int64(10*i + c.Rank())
			if i == 0 {
				err = r.Run(background)
			} else {
				err = r.Start()
				at, waited := WaitAny(background, nil, r)
				err = firstError(err, waited, expect("position", 1, at))
			}
			if err = firstError(err, expect("gathered", []int{10 * i, 10*i + 1}, m.Slice())); err != nil {
				return err
			}
		}
		if c.Rank() == 0 { // nobody sends this
			lost, err := c.Start(Collective{Kind: KindRecv, DType: I64, Root: 1, Tag: 9, Recv: m.Pointer(), Count: 1, Received: &Message{}}, m)
			if err != nil {
				return err
			}
			cancelled, err := lost.Cancel()
			if err = firstError(err, expect("cancelled", true, cancelled), lost.Close()); err != nil {
				return err
			}
		}
		return c.Barrier(background)
	})
}

func TestGroupsRunSeveralRanksOnOneGoroutine(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		m, err := Alloc[int32](nil, 2)
		if err != nil {
			return err
		}
		defer m.Close()
		m.Slice()[0] = int32(c.Rank() + 5)
		peer := 1 - c.Rank()
		err = RunGroup(background, []*Comm{c, c}, []*Collective{
			{Kind: KindSend, DType: I32, Root: peer, Send: m.Pointer(), Count: 1},
			{Kind: KindRecv, DType: I32, Root: peer, Recv: first(m.Slice()[1:]), Count: 1}})
		return firstError(err, expect("received", peer+5, m.Slice()[1]), RunGroup(background, nil, nil))
	})
}

func TestContextEndsAWait(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		if c.Rank() == 1 {
			return refused(ErrAborted, "deadline", late(c, background, nil))
		}
		m, err := Alloc[int8](nil, 1)
		if err != nil {
			return err
		}
		defer m.Close()
		r, err := c.Start(Collective{Kind: KindRecv, DType: I8, Root: 1, Recv: m.Pointer(), Count: 1}, m)
		if err != nil {
			return err
		}
		defer r.Close()
		ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
		defer cancel()
		if err := r.Wait(ctx); !errors.Is(err, ErrAborted) || !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("expected aborted by the deadline, got %v", err)
		}
		return nil
	})
}

func TestCloseWithARequestUnderWay(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		if c.Rank() == 1 {
			return refused(ErrAborted, "", late(c, background, nil))
		}
		m, err := Alloc[int8](c, 1)
		if err != nil {
			return err
		}
		r, err := c.Start(Collective{Kind: KindRecv, DType: I8, Root: 1, Recv: m.Pointer(), Count: 1}, m)
		if err != nil {
			return err
		}
		c.Close()
		m.Close()
		if c.p == nil || m.p == nil {
			return errors.New("released under a request")
		}
		if err = refused(ErrAborted, "", r.Wait(background)); err != nil {
			return err
		}
		r.Close()
		if c.p != nil || m.p != nil {
			return errors.New("not released with the last request")
		}
		return nil
	})
}

func TestLostObjectsAreReportedAndNotReleased(t *testing.T) {
	var lines atomic.Int32
	SetLog(LogWarn, func(level LogLevel, component, line string) {
		if level == LogWarn && component == "go" && strings.Contains(line, "was lost without Close") {
			lines.Add(1)
		}
	})
	defer SetLog(LogError, nil)
	func() {
		if _, err := ParseConfig("", "lost"); err != nil {
			t.Fatal(err)
		}
		closed, err := ParseConfig("", "closed")
		if err != nil {
			t.Fatal(err)
		}
		closed.Close()
		// A model and a trainer whose callbacks C keeps, and a request.
		id, _ := NewUniqueID()
		c, err := Join(background, &CommOptions{WorldSize: 1, ID: &id})
		if err != nil {
			t.Fatal(err)
		}
		d := &distance{batch: 1}
		m, _, err := d.model(true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = NewTrainer(background, c, m, &TrainerOptions{Data: d.input}); err != nil {
			t.Fatal(err)
		}
		memory, err := Alloc[int8](nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = StartAllReduce(c, memory, memory, Sum); err != nil {
			t.Fatal(err)
		}
	}()
	collect(func() bool { return lines.Load() >= 6 })
	if n := lines.Load(); n != 6 { // config, communicator, model, trainer, memory, request
		t.Errorf("expected six reports, got %d", n)
	}
}

func TestEndsComeThroughAQueue(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		q, err := NewQueue()
		if err != nil {
			return err
		}
		defer q.Close()
		none, err := q.Poll()
		if err = firstError(err, expect("nothing", true, none == nil)); err != nil {
			return err
		}
		const n = 20
		m, err := Alloc[int32](c, n+1)
		if err != nil {
			return err
		}
		defer m.Close()
		var started []*Request
		for i := 0; i < n; i++ {
			m.Slice()[i] = int32(i)
			at := first(m.Slice()[i : i+1])
			r, err := c.Start(Collective{Kind: KindAllReduce, DType: I32, Op: Sum, Send: at, Recv: at, Count: 1}, m)
			if err = firstError(err, r.Notify(q)); err != nil {
				return err
			}
			started = append(started, r)
		}
		for i, r := range started {
			ended, err := q.Next(background)
			if err = firstError(err, expect("order", true, ended == r), r.Wait(background), expect("sum", 2*i, int(m.Slice()[i])), r.Close()); err != nil {
				return err
			}
		}
		at := first(m.Slice()[n:])
		again, err := c.NewRequest(Collective{Kind: KindAllReduce, DType: I32, Op: Sum, Send: at, Recv: at, Count: 1}, m)
		if err = firstError(err, again.Notify(q)); err != nil {
			return err
		}
		defer again.Close()
		for i := 0; i < 3; i++ {
			err := again.Start()
			ended, next := q.Next(background)
			done, waited := again.WaitFor(0)
			if err = firstError(err, next, waited, expect("request", true, ended == again), expect("done", true, done)); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
		defer cancel()
		if _, err = q.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("expected the deadline, got %v", err)
		}
		return nil
	})
}

func TestAGroupIsOneRequest(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		m, err := Alloc[int32](c, 3)
		if err != nil {
			return err
		}
		defer m.Close()
		x, peer := m.Slice(), 1-c.Rank()
		x[0], x[1], x[2] = int32(c.Rank()), -1, 1
		var got Message
		r, err := c.StartGroup([]*Collective{
			{Kind: KindRecv, DType: I32, Root: peer, Recv: first(x[1:]), Count: 1, Received: &got},
			{Kind: KindAllReduce, DType: I32, Op: Sum, Send: first(x[2:]), Recv: first(x[2:]), Count: 1},
			{Kind: KindSend, DType: I32, Root: peer, Send: first(x), Count: 1}}, m)
		if err = firstError(err, r.Wait(background), r.Close()); err != nil {
			return err
		}
		_, none := c.StartGroup(nil)
		return firstError(expect("received", peer, x[1]), expect("sum", 2, x[2]), expect("source", peer, got.Source), refused(ErrArg, "n is 0", none))
	})
}

func TestMemoryThatIsNotThereIsAnError(t *testing.T) {
	for _, n := range []int{1 << 45, 1 << 62} {
		m, err := Alloc[float32](nil, n)
		if err == nil {
			m.Close()
			t.Fatalf("memory for %d elements was made", n)
		}
		if !errors.Is(err, ErrNoMem) && !errors.Is(err, ErrArg) {
			t.Fatal(err)
		}
	}
}

func TestAWaitForAClosedRequestLeavesTheCommunicatorAlone(t *testing.T) {
	ranks(t, 1, func(c *Comm) error {
		m, err := Alloc[float32](c, 1)
		if err != nil {
			return err
		}
		defer m.Close()
		r, err := StartAllReduce(c, m, m, Sum)
		if err != nil {
			return err
		}
		if err := firstError(r.Wait(background), r.Close()); err != nil {
			return err
		}
		ended, end := context.WithCancel(background)
		end()
		return firstError(expect("wait", true, errors.Is(r.Wait(ended), ErrClosed)), c.Barrier(background))
	})
}

func TestALostObjectIsAWarning(t *testing.T) {
	var lines int
	sink := func(LogLevel, string, string) { lines++ }
	for _, of := range []struct {
		level LogLevel
		lines int
	}{{LogError, 0}, {LogWarn, 1}} {
		SetLog(of.level, sink)
		lines = 0
		reportLeak("thing")
		SetLog(LogError, nil)
		if lines != of.lines {
			t.Errorf("level %d: expected %d lines, got %d", of.level, of.lines, lines)
		}
	}
}

func TestWaitAnyOfReportedRequestsHasNoPosition(t *testing.T) {
	ranks(t, 1, func(c *Comm) error {
		m, err := Alloc[float32](c, 1)
		if err != nil {
			return err
		}
		defer m.Close()
		r, err := StartAllReduce(c, m, m, Sum)
		if err != nil {
			return err
		}
		defer r.Close()
		waited := r.Wait(background)
		at, none := WaitAny(background, r, nil)
		return firstError(waited, expect("position", -1, at), refused(ErrArg, "", none))
	})
}
