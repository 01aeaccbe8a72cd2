// Command allreduce sums the numbers of all ranks, in memory of Go and, while the rank computes, in memory of C.
//
//	gsel run -n 4 -- ./allreduce
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"gsel"
)

func sum(ctx context.Context) error {
	comm, err := gsel.Join(ctx, nil)
	if err != nil {
		return err
	}
	defer comm.Close()

	x := []float32{float32(comm.Rank())}
	if err := gsel.AllReduce(ctx, comm, x, x, gsel.Sum); err != nil {
		return err
	}

	// All ranks can access this memory: nothing is copied on the way.
	gradients, err := gsel.Alloc[float32](comm, 1<<20)
	if err != nil {
		return err
	}
	defer gradients.Close()
	for i := range gradients.Slice() {
		gradients.Slice()[i] = 1
	}
	request, err := gsel.StartAllReduce(comm, gradients, gradients, gsel.Sum)
	if err != nil {
		return err
	}
	defer request.Close()
	// Here the rank computes something else.
	if err := request.Wait(ctx); err != nil {
		return err
	}
	if comm.Rank() == 0 {
		fmt.Printf("%d ranks: sum of ranks %g, of ones %g\n", comm.WorldSize(), x[0], gradients.Slice()[1<<20-1])
	}
	return nil
}

func main() {
	log.SetFlags(0)
	// An interrupt ends the calls of every rank.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := sum(ctx)
	var e *gsel.Error
	if errors.As(err, &e) && errors.Is(err, gsel.ErrPeer) {
		log.Fatalf("rank %d is gone: %v", e.Rank, err)
	}
	if err != nil {
		log.Fatal(err)
	}
}
