package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"
)

// weights.go: parameters from safetensors files of other programs, and to such files.

// WeightsReport is what a load or an export of weights did on this rank.
type WeightsReport struct {
	Tensors, Kept, Ignored, Widened   int    // of the file that parameters are in; optional ones without a tensor; unused; of 16 bits
	Bytes, NeededBytes, ComparedBytes uint64 // of tensors, read or written; that this rank's placement needs; of copies
	Reads                             uint64
	Elapsed                           time.Duration
}

func (t *Trainer) weights(ctx context.Context, path string, rules *Config, f func(p *C.gsel_trainer, path C.gsel_str, rules *C.gsel_config, r *C.gsel_weights_report, err **C.gsel_error) C.gsel_status) (WeightsReport, error) {
	var l lent
	defer l.free()
	var c *C.gsel_config
	if rules != nil {
		p, err := rules.acquire()
		if err != nil {
			return WeightsReport{}, err
		}
		defer rules.release()
		c = (*C.gsel_config)(p)
	}
	text := l.text(path)
	r := C.gsel_weights_report{struct_size: C.sizeof_gsel_weights_report}
	err := t.with(ctx, func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status { return f(p, text, c, &r, err) })
	if err != nil {
		return WeightsReport{}, err
	}
	return WeightsReport{
		Tensors: int(r.n_tensors), Kept: int(r.n_kept), Ignored: int(r.n_ignored), Widened: int(r.n_widened),
		Bytes: uint64(r.bytes), NeededBytes: uint64(r.needed_bytes), ComparedBytes: uint64(r.compared_bytes),
		Reads: uint64(r.reads), Elapsed: seconds(r.seconds),
	}, nil
}

// LoadWeights loads parameters from a safetensors file, or from a folder of a model hub, as [weights] of rules says. rules
// nil: the trainer's own configuration. Collective.
func (t *Trainer) LoadWeights(ctx context.Context, path string, rules *Config) (WeightsReport, error) {
	return t.weights(ctx, path, rules, func(p *C.gsel_trainer, path C.gsel_str, c *C.gsel_config, r *C.gsel_weights_report, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_load_weights(p, path, c, r, err)
	})
}

// ExportWeights writes the parameters as one safetensors file, with the names and the layout of the rules. Collective.
func (t *Trainer) ExportWeights(ctx context.Context, path string, rules *Config, dtype DType) (WeightsReport, error) {
	return t.weights(ctx, path, rules, func(p *C.gsel_trainer, path C.gsel_str, c *C.gsel_config, r *C.gsel_weights_report, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_export_weights(p, path, c, C.gsel_dtype(dtype), r, err)
	})
}
