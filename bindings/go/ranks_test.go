package gsel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// ranks_test.go: ranks of tests are goroutines, with a bound on each call so that a hang is a failure.

var background = context.Background()

// ranks runs body on n ranks and fails with the first error of each.
func ranks(t *testing.T, n int, body func(c *Comm) error) {
	t.Helper()
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	errs := make([]error, n)
	for r := 0; r < n; r++ {
		all.Add(1)
		go func(r int) {
			defer all.Done()
			c, err := Join(background, &CommOptions{Rank: r, WorldSize: n, ID: &id, Timeout: 60 * time.Second})
			if err != nil {
				errs[r] = err
				return
			}
			errs[r] = body(c)
			c.Close()
		}(r)
	}
	all.Wait()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d of %d: %v", r, n, err)
		}
	}
}

// expect compares what is printed alike.
func expect(what string, expected, got any) error {
	if e, g := fmt.Sprint(expected), fmt.Sprint(got); e != g {
		return fmt.Errorf("%s: expected %s, got %s", what, e, g)
	}
	return nil
}

// refused expects err to be an *Error with this code and these words.
func refused(code Status, words string, err error) error {
	var e *Error
	if errors.As(err, &e) && errors.Is(err, code) && strings.Contains(err.Error(), words) {
		return nil
	}
	return fmt.Errorf("expected %v with %q, got %v", code, words, err)
}

// firstError returns the first that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// settled waits until no more goroutines than before run: those that end need a moment to be gone.
func settled(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d left:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
		runtime.Gosched()
	}
}

// collect runs the garbage collector until done, or long enough.
func collect(done func() bool) {
	for i := 0; i < 1000 && !done(); i++ {
		runtime.GC()
		runtime.Gosched()
	}
}
