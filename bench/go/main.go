// Command overhead measures what a call costs over C: an allreduce of 8 B from a loop in Go and from a loop in C, in one
// process on one rank, in turns. Printed are medians over the pairs, and their quartiles. run.sh runs it.
package main

/*
#cgo pkg-config: gsel
#include <gsel/gsel.h>

static gsel_comm *comm;
static int join(void) {
  gsel_unique_id id;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  if (gsel_unique_id_create(&id, NULL)) return 1;
  options.world_size = 1;
  options.id = &id;
  return gsel_comm_init(&options, &comm, NULL);
}
static int calls(int n) {
  float x[2] = {1, 2};
  for (int i = 0; i < n; ++i)
    if (gsel_allreduce(comm, x, x, 2, GSEL_F32, GSEL_SUM, NULL)) return 1;
  return 0;
}
static int leave(void) {
  gsel_comm_free(comm);
  return 0;
}
*/
import "C"

import (
	"context"
	"fmt"
	"log"
	"sort"
	"time"

	"gsel"
)

const (
	pairs = 301
	calls = 20000
)

// per is the nanoseconds of one call of f's.
func per(f func()) float64 {
	begin := time.Now()
	f()
	return float64(time.Since(begin).Nanoseconds()) / calls
}

func quartiles(x []float64) string {
	sort.Float64s(x)
	return fmt.Sprintf("%.1f | %.1f to %.1f", x[len(x)/2], x[len(x)/4], x[3*len(x)/4])
}

func main() {
	log.SetFlags(0)
	id, err := gsel.NewUniqueID()
	if err != nil {
		log.Fatal(err)
	}
	comm, err := gsel.Join(context.Background(), &gsel.CommOptions{WorldSize: 1, ID: &id})
	if err != nil {
		log.Fatal(err)
	}
	defer comm.Close()
	if C.join() != 0 {
		log.Fatal("C could not join")
	}
	defer C.leave()

	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	x := []float32{1, 2}
	inGo := func(ctx context.Context, n int) {
		for i := 0; i < n; i++ {
			if err := gsel.AllReduce(ctx, comm, x, x, gsel.Sum); err != nil {
				log.Fatal(err)
			}
		}
	}
	inC := func() {
		if C.calls(calls) != 0 {
			log.Fatal("a call failed")
		}
	}
	var c, g, over, watched, nothing []float64
	for i := 0; i < pairs; i++ {
		ofC := per(inC)
		ofGo := per(func() { inGo(context.Background(), calls) })
		c, g, over = append(c, ofC), append(g, ofGo), append(over, ofGo-ofC)
		nothing = append(nothing, per(func() {
			for i := 0; i < calls; i++ {
				gsel.VersionNumber()
			}
		}))
		watched = append(watched, per(func() { inGo(cancellable, calls/100) })*100)
	}
	fmt.Println("| ns per call | median | quartiles |")
	fmt.Println("|---|---|---|")
	fmt.Printf("| C | %s |\n", quartiles(c))
	fmt.Printf("| Go | %s |\n", quartiles(g))
	fmt.Printf("| Go adds, paired | %s |\n", quartiles(over))
	fmt.Printf("| a call of C that does nothing, from Go | %s |\n", quartiles(nothing))
	fmt.Printf("| Go with a context that can be cancelled | %s |\n", quartiles(watched))
}
