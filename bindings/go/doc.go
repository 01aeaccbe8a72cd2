// Package gsel selects accelerators, plans strategies for machines that need not be there, connects ranks and trains
// models in parallel, through libgsel.
//
// The smallest useful program: every rank adds its number to a sum. Run it under `gsel run -n 4`.
//
//	comm, err := gsel.Join(ctx, nil)
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer comm.Close()
//	x := []float32{float32(comm.Rank())}
//	if err := gsel.AllReduce(ctx, comm, x, x, gsel.Sum); err != nil {
//		log.Fatal(err)
//	}
//
// # Contexts
//
// Calls that can wait for others take a context. A deadline becomes the timeout of the C call where it has one, and is
// found beneath the error, as a cancellation is: errors.Is(err, context.DeadlineExceeded). A context that ends during any
// other call aborts the communicator on every rank, since ranks cannot go on alone. A search for a plan, which concerns no
// other rank, ends alone. A context that cannot end, such as context.Background, costs nothing: no goroutine and no
// allocation. One that can end takes a few microseconds a call, for the goroutine that watches it.
//
// # Errors
//
// A failed call returns an *Error, for errors.As; its Code is for errors.Is(err, gsel.ErrPeer). An error or panic of a
// callback is beneath the error of the call that ran it, and of no other: errors.As finds the *PanicError. runtime.Goexit,
// and with it the Fatal, FailNow and Skip of a test, must not be called in a callback: it ends the goroutine without a
// return to C, whose call then never ends.
//
// # Memory
//
// Slices are borrowed for the call. What C keeps while Go goes on (requests, groups, DLPack) is memory of Alloc or of a
// device.
//
// # Objects
//
// Close releases an object, once, however often it is called, and calls on a closed object return ErrClosed. Objects
// that depend on each other may be closed in any order. In a callback of a call on an object its Close returns ErrState,
// since the call would wait for itself; a goroutine that the callback starts must not close it either while the callback
// waits for that goroutine. An object that is lost without Close is reported to SetLog and not released. No goroutine
// has to stay on its thread.
//
// # One file
//
// With the tag gsel_static a program has libgsel and the strategies in it; it calls RegisterStrategies first.
//
// # Without cgo
//
// With CGO_ENABLED=0 the package and programs that use it build. Every function that makes an object returns ErrNoCgo, so
// that there is none to call a method of.
package gsel
