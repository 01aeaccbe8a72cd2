// Command devices tells which devices a spec selects and why, as a server would log it.
//
//	devices [-inventory FILE] [-json] [SPEC]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"gsel"
)

func main() {
	log.SetFlags(0)
	file := flag.String("inventory", "", "a recorded machine; empty: this one")
	asJSON := flag.Bool("json", false, "print data rather than text")
	flag.Parse()

	// A driver that hangs does not hang the server.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	options := &gsel.ResolveOptions{Devices: flag.Arg(0)}
	if *file != "" {
		inventory, err := gsel.LoadInventory(*file)
		if err != nil {
			log.Fatal(err)
		}
		defer inventory.Close()
		options.Inventory, options.NoEnv = inventory, true
	}
	selection, err := gsel.Resolve(ctx, options)
	var e *gsel.Error
	switch {
	case errors.Is(err, gsel.ErrNoDevices):
		log.Fatalf("%v; the model will run on the CPU", err)
	case errors.As(err, &e) && e.Column > 0:
		log.Fatalf("%s, column %d: %v", e.File, e.Column, err)
	case err != nil:
		log.Fatal(err)
	}
	defer selection.Close()

	if *asJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(selection); err != nil {
			log.Fatal(err)
		}
		return
	}
	for _, candidate := range selection.Candidates {
		fmt.Printf("device %d: position %d, %s\n", candidate.Index, candidate.Position, candidate.Reason)
	}
	env, err := selection.Env(-1)
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range env {
		fmt.Printf("%s=%s\n", v.Name, v.Value)
	}
}
