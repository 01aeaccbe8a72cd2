package gsel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// comm_test.go: every call between ranks against its definition, and each way in which one can end early.

func TestCollectivesComputeWhatTheyAreDefinedTo(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		ranks(t, n, func(c *Comm) error {
			me := c.Rank()
			x := func(rank, i int) float32 { return float32(10*rank + i) }
			row := func(rank, count int) []float32 {
				s := make([]float32, count)
				for i := range s {
					s[i] = x(rank, i)
				}
				return s
			}
			sum := func(i int) (s float32) {
				for r := 0; r < n; r++ {
					s += x(r, i)
				}
				return
			}
			var all, sums []float32
			for r := 0; r < n; r++ {
				all = append(all, row(r, 2)...)
			}
			for i := 0; i < 2*n; i++ {
				sums = append(sums, sum(i))
			}
			counts, offsets := make([]uint64, n), make([]uint64, n)
			varied, total := []float32(nil), uint64(0)
			for r := range counts {
				counts[r], offsets[r] = uint64(r+1), total
				total += uint64(r + 1)
				varied = append(varied, row(r, r+1)...)
			}
			in, out := row(me, 2*n), make([]float32, 2*n)
			two, one := make([]float32, 2), make([]float32, total)

			err := firstError(AllReduce(background, c, in, out, Sum), expect("allreduce", sums, out))
			inPlace := row(me, 2*n)
			err = firstError(err, AllReduce(background, c, inPlace, inPlace, Sum), expect("in place", sums, inPlace))
			err = firstError(err, Reduce(background, c, in, out, Max, n-1))
			if me == n-1 {
				err = firstError(err, expect("reduce", row(n-1, 2*n), out))
			}
			err = firstError(err, ReduceScatter(background, c, in, two, Sum), expect("reduce_scatter", sums[2*me:2*me+2], two))
			err = firstError(err, AllGather(background, c, row(me, 2), out), expect("allgather", all, out))
			err = firstError(err, AllGatherV(background, c, row(me, me+1), one, counts, offsets), expect("allgatherv", varied, one))
			err = firstError(err, AllGatherV(background, c, row(me, me+1), one, counts, nil), expect("packed", varied, one))
			buffer := row(me, 2)
			err = firstError(err, Broadcast(background, c, buffer, n-1), expect("broadcast", row(n-1, 2), buffer))
			err = firstError(err, Gather(background, c, row(me, 2), out, 0))
			if me == 0 {
				err = firstError(err, expect("gather", all, out))
			}
			err = firstError(err, GatherV(background, c, row(me, me+1), one, counts, nil, 0))
			if me == 0 {
				err = firstError(err, expect("gatherv", varied, one))
			}
			err = firstError(err, Scatter(background, c, all, two, 0), expect("scatter", row(me, 2), two))
			err = firstError(err, ScatterV(background, c, varied, one[:me+1], counts, nil, 0), expect("scatterv", row(me, me+1), one[:me+1]))
			err = firstError(err, ReduceScatterV(background, c, row(me, int(total)), one[:me+1], counts, nil, Sum))
			for i := 0; i <= me; i++ {
				err = firstError(err, expect("reduce_scatterv", sum(int(offsets[me])+i), one[i]))
			}
			err = firstError(err, AllToAll(background, c, in, out))
			for r := 0; r < n; r++ {
				err = firstError(err, expect("alltoall", []float32{x(r, 2*me), x(r, 2*me+1)}, out[2*r:2*r+2]))
			}
			equal := make([]uint64, n)
			for r := range equal {
				equal[r] = 2
			}
			again := make([]float32, 2*n)
			err = firstError(err, AllToAllV(background, c, in, equal, nil, again, equal, nil), expect("alltoallv", out, again))
			return firstError(err, c.Barrier(background))
		})
	}
}

func reduces[T Element](c *Comm, one, two T) error {
	x := []T{one}
	if err := AllReduce(background, c, x, x, Sum); err != nil {
		return err
	}
	return expect(DTypeOf[T]().String(), two, x[0])
}

func TestEveryElementTypeIsItsOwn(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		return firstError(
			reduces[int8](c, 1, 2), reduces[uint8](c, 1, 2), reduces[int16](c, 1, 2), reduces[uint16](c, 1, 2),
			reduces[int32](c, 1, 2), reduces[uint32](c, 1, 2), reduces[int64](c, 1, 2), reduces[uint64](c, 1, 2),
			reduces[float32](c, 1, 2), reduces[float64](c, 1, 2),
			reduces[Float16](c, 0x3c00, 0x4000), reduces[BFloat16](c, 0x3f80, 0x4000), // 1 and 2
			reduces[Float8E4M3](c, 0x38, 0x40), reduces[Float8E5M2](c, 0x3c, 0x40))
	})
}

func TestMessagesFindTheirReceives(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		peer := 1 - c.Rank()
		got := make([]int64, 3)
		if err := SendRecv(background, c, []int64{int64(c.Rank())}, peer, got[:1], peer); err != nil {
			return err
		}
		if err := expect("sendrecv", peer, got[0]); err != nil {
			return err
		}
		if c.Rank() == 0 {
			return firstError(Send(background, c, []int64{7, 8}, 1, 5), c.Barrier(background))
		}
		m, err := c.Probe(background, AnyRank, AnyTag)
		err = firstError(err, expect("probe", Message{0, 5, I64, 2}, m))
		_, found, probed := c.IProbe(0, 6)
		err = firstError(err, probed, expect("a message with tag 6 is found", false, found))
		m, took := Recv(background, c, got, 0, 5)
		return firstError(err, took, expect("message", Message{0, 5, I64, 2}, m), expect("recv", []int64{7, 8, 0}, got), c.Barrier(background))
	})
}

func TestErrorsCarryCodeRankAndWords(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		x := make([]int32, 1+c.Rank())
		return firstError(
			refused(ErrArg, "99", AllReduce(background, c, x, x, Op(99))),
			refused(ErrMismatch, "count 2", AllReduce(background, c, x, x, Sum)),
			refused(ErrArg, "recv has 0 elements", AllReduce(background, c, x, nil, Sum)),
			refused(ErrArg, "2 ranks", AllGatherV(background, c, x, x, []uint64{1}, nil)))
	})
	var e *Error
	_, err := ParseConfig("[train]\nbatch = \"many\"\n", "small.toml")
	if !errors.As(err, &e) || e.Code != ErrConfig || e.File != "small.toml" || e.Line != 2 || e.Token == "" {
		t.Errorf("expected the place of the wrong value, got %#v", e)
	}
	if errors.Is(err, ErrParse) || ErrPeer.String() != "GSEL_ERR_PEER" || ErrPeer.Error() == "" {
		t.Error("statuses are mixed up")
	}
}

// A goroutine is on another thread after each call: threads are kept busy, and ranks yield between calls.
func TestRanksMoveBetweenThreads(t *testing.T) {
	before := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(before)
	seen := make([]map[int]bool, 2)
	ranks(t, 2, func(c *Comm) error {
		threads := map[int]bool{}
		x := []int32{1}
		for i := 0; i < 200 || (len(threads) < 3 && i < 100000); i++ {
			// The thread that the goroutine leaves stays locked to another one until that has ended, so the rank goes on
			// on another thread.
			hold, held := make(chan bool), make(chan bool)
			go func() {
				runtime.LockOSThread()
				close(held)
				<-hold
			}()
			<-held
			threads[threadID()] = true
			x[0] = 1
			err := AllReduce(background, c, x, x, Sum)
			close(hold)
			if err = firstError(err, expect("sum", 2, x[0])); err != nil {
				return err
			}
			done := []int32{0}
			if len(threads) >= 3 && i >= 199 {
				done[0] = 1
			}
			if err := AllReduce(background, c, done, done, Min); err != nil || done[0] == 1 {
				seen[c.Rank()] = threads
				return err
			}
		}
		return fmt.Errorf("only %d threads were seen", len(threads))
	})
	for rank, threads := range seen {
		t.Logf("rank %d made calls on %d threads", rank, len(threads))
	}
}

// late makes rank 0 wait under ctx for a message that does not come.
func late(c *Comm, ctx context.Context, during func()) error {
	if c.Rank() == 0 {
		if during != nil {
			go during()
		}
	}
	_, err := Recv(ctx, c, make([]int8, 1), 1-c.Rank(), 0)
	return err
}

func TestCancelledContextEndsACall(t *testing.T) {
	before := runtime.NumGoroutine()
	ranks(t, 2, func(c *Comm) error {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		if c.Rank() == 0 {
			err := late(c, ctx, cancel)
			if !errors.Is(err, ErrAborted) || !errors.Is(err, context.Canceled) {
				return fmt.Errorf("expected aborted by a cancelled context, got %v", err)
			}
			// Once more: the communicator is broken, and says so.
			err = refused(ErrAborted, "context canceled", c.Barrier(background))
			return err
		}
		return refused(ErrAborted, "context canceled", late(c, background, nil))
	})
	settled(t, before)
}

func TestDeadlineBecomesTheTimeoutOfTheCall(t *testing.T) {
	before := runtime.NumGoroutine()
	ranks(t, 2, func(c *Comm) error {
		if c.Rank() == 1 {
			return refused(ErrTimeout, "rank 1", late(c, background, nil))
		}
		ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
		defer cancel()
		err := late(c, ctx, nil)
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("expected a timeout by the deadline, got %v", err)
		}
		var e *Error
		errors.As(err, &e)
		return expect("late rank", 1, e.Rank)
	})
	settled(t, before)
}

func TestContextThatHasEndedBreaksTheCommunicator(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		if c.Rank() == 0 {
			ctx, cancel := context.WithCancel(background)
			cancel()
			return refused(ErrAborted, "before the call", c.Barrier(ctx))
		}
		return refused(ErrAborted, "canceled", c.Barrier(background))
	})
}

func TestCallWithoutCancellableContextStartsNoGoroutine(t *testing.T) {
	ranks(t, 1, func(c *Comm) error {
		x := []float32{1}
		allocations := testing.AllocsPerRun(100, func() { AllReduce(background, c, x, x, Sum) })
		return expect("allocations of a call", 0, allocations)
	})
}

func TestCloseDuringACallEndsItOnEveryRank(t *testing.T) {
	before := runtime.NumGoroutine()
	ranks(t, 2, func(c *Comm) error {
		if c.Rank() == 0 {
			waits := make(chan error)
			go func() {
				err := late(c, background, nil)
				for errors.Is(err, ErrState) { // the look below was in its way
					err = late(c, background, nil)
				}
				waits <- err
			}()
			for c.calls.TryLock() { // until the call is under way
				c.calls.Unlock()
				runtime.Gosched()
			}
			c.Close()
			c.Close()
			return firstError(refused(ErrAborted, "", <-waits), expect("a call after Close", ErrClosed, c.Barrier(background)))
		}
		err := late(c, background, nil)
		if !errors.Is(err, ErrAborted) && !errors.Is(err, ErrPeer) {
			return fmt.Errorf("expected aborted or a lost peer, got %v", err)
		}
		return nil
	})
	settled(t, before)
}

func TestRankThatLeavesIsNamed(t *testing.T) {
	ranks(t, 3, func(c *Comm) error {
		if c.Rank() == 1 {
			return c.Close()
		}
		err := c.Barrier(background)
		var e *Error
		if !errors.Is(err, ErrPeer) || !errors.As(err, &e) || e.Rank != 1 {
			return fmt.Errorf("expected rank 1 to be missed, got %v", err)
		}
		smaller, err := c.Shrink(background)
		if err != nil {
			return err
		}
		defer smaller.Close()
		x := []int32{1}
		return firstError(AllReduce(background, smaller, x, x, Sum), expect("survivors", 2, x[0]))
	})
}

func TestOverlappingCallsAreRefused(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		if c.Rank() == 1 {
			_, err := Recv(background, c, make([]int8, 1), 0, 0)
			return err
		}
		if _, err := c.enter(); err != nil {
			return err
		}
		err := refused(ErrState, "another goroutine", c.Barrier(background))
		c.leave()
		return firstError(err, Send(background, c, []int8{1}, 1, 0))
	})
}

func TestJoinEndsWithItsContext(t *testing.T) {
	before := runtime.NumGoroutine()
	id, _ := NewUniqueID()
	ctx, cancel := context.WithCancel(background)
	go cancel()
	_, err := Join(ctx, &CommOptions{Rank: 0, WorldSize: 2, ID: &id, JoinTimeout: 100 * time.Millisecond})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("expected cancelled, got %v", err)
	}
	short, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	id, _ = NewUniqueID()
	_, err = Join(short, &CommOptions{Rank: 0, WorldSize: 2, ID: &id})
	if !errors.Is(err, ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("expected a timeout, got %v", err)
	}
	settled(t, before)
}

func TestCommunicatorsAreMadeFromOthers(t *testing.T) {
	ranks(t, 3, func(c *Comm) error {
		sizeOf := func(made *Comm, err error) (int, error) {
			if err != nil || made == nil {
				return 0, err
			}
			defer made.Close()
			x := []int32{1}
			err = AllReduce(background, made, x, x, Sum)
			return int(x[0]), firstError(err, expect(made.Name(), made.WorldSize(), x[0]))
		}
		n, err := sizeOf(c.Split(background, c.Rank()%2, 0))
		err = firstError(err, expect("split", []int{2, 1, 2}[c.Rank()], n))
		n, made := sizeOf(c.Dup(background))
		err = firstError(err, made, expect("dup", 3, n))
		if c.Rank() != 1 {
			n, made = sizeOf(c.CreateGroup(background, []int32{2, 0}))
			err = firstError(err, made, expect("group", 2, n))
		}
		mesh, made := ResolveMesh(nil, 3)
		err = firstError(err, made, expect("coordinate", c.Rank(), mesh.Coordinate(c.Rank(), AxisData)), expect("rank", 2, mesh.Rank(0, 2)))
		n, made = sizeOf(mesh.Split(background, c, AxisData))
		return firstError(err, made, expect("mesh", 3, n))
	})
}

func TestCommunicatorsAreMadeWhileTheCallerGoesOn(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		split, err := c.StartSplit(7, -c.Rank())
		none, without := c.StartSplit(-1, 0)
		dup, copied := c.StartDup()
		group, grouped := c.StartCreateGroup([]int32{1, 0})
		if err := firstError(err, without, copied, grouped); err != nil {
			return err
		}
		x := []int32{1}
		if err := firstError(AllReduce(background, c, x, x, Sum), expect("sum", int32(2), x[0])); err != nil {
			return err
		}
		for _, m := range []*Making{split, group, dup} {
			defer m.Close()
			made, err := m.Wait(background)
			if err != nil {
				return err
			}
			defer made.Close()
			done, err := m.Test()
			rank := 1 - c.Rank()
			if m == dup {
				rank = c.Rank()
			}
			x := []int32{1}
			err = firstError(err, expect("done", true, done), expect("rank", rank, made.Rank()), AllReduce(background, made, x, x, Sum),
				expect("sum", int32(2), x[0]))
			if err != nil {
				return err
			}
			if again, err := m.Wait(background); again != nil || err != nil {
				return fmt.Errorf("taken twice: %v, %v", again, err)
			}
		}
		defer none.Close()
		if made, err := none.Wait(background); made != nil || err != nil {
			return fmt.Errorf("a rank without a colour got %v, %v", made, err)
		}
		left, err := c.StartDup()
		if err := firstError(err, left.Close()); err != nil { // waits, and leaves it
			return err
		}
		fewer, err := c.StartShrink(nil)
		if err != nil {
			return err
		}
		defer fewer.Close()
		made, err := fewer.Wait(background)
		if err != nil {
			return err
		}
		defer made.Close()
		return firstError(expect("size", 2, made.WorldSize()), refused(ErrState, "shrunk already", shrinkAgain(c)))
	})
}

func shrinkAgain(c *Comm) error {
	made, err := c.StartShrink(nil)
	if err != nil {
		return err
	}
	defer made.Close()
	_, err = made.Wait(background)
	return err
}

func TestQueriesAndRawForm(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		x := []float64{2}
		call := &Collective{Kind: KindAllReduce, DType: F64, Op: ScaledSum, Send: unsafe.Pointer(&x[0]), Recv: unsafe.Pointer(&x[0]),
			Count: 1, Factor: float64(c.Rank() + 1), Label: "scaled"}
		err := firstError(c.Run(background, call), expect("scaled sum", 6, x[0]))
		e, asked := c.Explain(&Collective{Kind: KindBarrier})
		counts, counted := c.Counts(KindAllReduce)
		trace, traced := c.Trace()
		err = firstError(err, asked, counted, traced, c.SetTimeout(50*time.Second), c.AsyncError(), c.Synchronize(background),
			expect("calls", 1, counts.Calls), refused(ErrArg, "accelerator", c.SetStream(0)))
		if e.Protocol == "" || e.Transport != "shm" || len(trace) < 100 {
			return fmt.Errorf("explanation %+v, trace of %d bytes", e, len(trace))
		}
		return err
	})
}

func TestRanksBeyondCAreRefused(t *testing.T) {
	ranks(t, 1, func(comm *Comm) error {
		const far = 1 << 32
		send, recv := make([]int32, 32), make([]int32, 1)
		return firstError(
			refused(ErrArg, "root", Reduce(background, comm, send, recv, Sum, far)),
			refused(ErrArg, "root", Gather(background, comm, send, recv, far)),
			refused(ErrArg, "root", Scatter(background, comm, recv, send, far)),
			refused(ErrArg, "root", Broadcast(background, comm, send, -far)))
	})
}

func TestRequestsOnClosedMemoryAreRefused(t *testing.T) {
	ranks(t, 1, func(comm *Comm) error {
		m, err := Alloc[float32](comm, 16)
		if err != nil {
			return err
		}
		call := Collective{Kind: KindAllReduce, DType: F32, Op: Sum, Send: m.Pointer(), Recv: m.Pointer(), Count: 16}
		m.Close()
		if _, err := comm.Start(call, m); err != ErrClosed {
			return expect("a request on closed memory", ErrClosed, err)
		}
		return nil
	})
}
