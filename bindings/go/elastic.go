package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// elastic.go: training that goes on with other ranks.

// RebindSource is where a rebind took the state from.
type RebindSource int32

// Sources of gsel/state.h.
const (
	RebindFromRanks      RebindSource = 1 // what ranks hold, or keep for each other
	RebindFromCheckpoint RebindSource = 2
)

// RebindOptions says how a trainer is moved. Config nil: as before. Folder is one of checkpoints, in case the ranks do not
// have the state; "": none.
type RebindOptions struct {
	Config *Config
	Folder string
}

// RebindReport is what a rebind did on this rank.
type RebindReport struct {
	Source        RebindSource
	Step          int64 // that comes next
	LostSteps     int64 // that some rank had completed, and that are trained again
	BytesMoved    uint64
	Elapsed, Move time.Duration // Move: of Elapsed, for the state alone
}

func rebindFromC(r *C.gsel_rebind_report) RebindReport {
	return RebindReport{Source: RebindSource(r.source), Step: int64(r.step), LostSteps: int64(r.lost_steps),
		BytesMoved: uint64(r.bytes_moved), Elapsed: seconds(r.seconds), Move: seconds(r.move_seconds)}
}

// Rebind moves the trainer to another communicator, such as one of Shrink or Grow, and takes the newest state that its
// ranks have whole together. Collective over comm, also after the trainer's communicator broke; ranks that are new call
// JoinTrainer. The communicator from before stays the caller's to close. After an error the trainer is what it was. A
// context that ends aborts comm.
func (t *Trainer) Rebind(ctx context.Context, comm *Comm, options *RebindOptions) (RebindReport, error) {
	if comm == nil {
		return RebindReport{}, failed(ErrArg, "comm is nil")
	}
	if options == nil {
		options = &RebindOptions{}
	}
	if _, err := comm.acquire(); err != nil { // which stays open until the trainer is tied to it
		return RebindReport{}, err
	}
	defer comm.release()
	var l lent
	defer l.free()
	o := zeroed[C.gsel_rebind_options](&l)
	o.struct_size, o.folder = C.sizeof_gsel_rebind_options, l.given(options.Folder)
	if options.Config != nil {
		config, err := options.Config.acquire()
		if err != nil {
			return RebindReport{}, err
		}
		defer options.Config.release()
		o.config = (*C.gsel_config)(config)
	}
	p, err := t.enter()
	if err != nil {
		return RebindReport{}, err
	}
	defer t.leave()
	before := t.comm
	t.abortOnClose(before, comm)
	defer func() { t.abortOnClose(t.comm) }()
	r := C.gsel_rebind_report{struct_size: C.sizeof_gsel_rebind_report}
	err = comm.blocking(ctx, func(c unsafe.Pointer) error {
		t.parts.Lock()
		defer t.parts.Unlock()
		return t.driver.drive(&t.object, func() error {
			var err *C.gsel_error
			status := C.gsel_trainer_rebind((*C.gsel_trainer)(p), commPointer(c), o, &r, &err)
			if status == C.GSEL_OK { // also if the context ends now
				t.comm = comm
				t.need(&comm.object, &before.object)
			}
			return check(status, &err)
		})
	})
	if err != nil {
		return RebindReport{}, err
	}
	return rebindFromC(&r), nil
}

// abortOnClose says which communicators a Close ends the trainer's call by.
func (t *Trainer) abortOnClose(comms ...*Comm) {
	t.life.Lock()
	defer t.life.Unlock()
	t.onUser = func() {
		for _, comm := range comms {
			comm.Abort("the trainer was closed")
		}
	}
}

// JoinTrainer is the part of a rank that had no trainer in Rebind of the others: it makes one, which takes the state that
// they have. folder: as theirs.
func JoinTrainer(ctx context.Context, comm *Comm, model *Model, options *TrainerOptions, folder string) (*Trainer, RebindReport, error) {
	var l lent
	defer l.free()
	rebind := zeroed[C.gsel_rebind_options](&l)
	rebind.struct_size, rebind.folder = C.sizeof_gsel_rebind_options, l.given(folder)
	r := C.gsel_rebind_report{struct_size: C.sizeof_gsel_rebind_report}
	t, err := newTrainer(ctx, comm, model, options, func(c *C.gsel_comm, m *C.gsel_model, o *C.gsel_trainer_options, out **C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_join(c, m, o, rebind, out, &r, err)
	})
	if err != nil {
		return nil, RebindReport{}, err
	}
	return t, rebindFromC(&r), nil
}
