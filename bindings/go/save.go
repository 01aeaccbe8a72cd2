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

// save.go: a trainer is saved and loaded.

// SaveState is what became of a save in the background: the same on all ranks, though not at one moment.
type SaveState int32

// States of gsel/checkpoint.h.
const (
	SaveNone     SaveState = 0 // none was begun, or its outcome was taken
	SaveUnderWay SaveState = 1
	SaveDone     SaveState = 2
	SaveFailed   SaveState = 3 // SaveWait says why
)

// CheckpointReport is what a save or a load did on this rank.
type CheckpointReport struct {
	Step               int64         // that comes next
	Bytes, NeededBytes uint64        // of tensors, written or read; that this rank's placement needs
	ComparedBytes      uint64        // of a load: read besides, for the sums of blocks that no rank needs as a whole
	Elapsed            time.Duration // of a save in the background: until all was on the disk
	Blocked            time.Duration // that training waited
	Copy               time.Duration // of a save in the background: the copy of the state, in Blocked
}

func checkpointFromC(r *C.gsel_checkpoint_report) CheckpointReport {
	return CheckpointReport{Step: int64(r.step), Bytes: uint64(r.bytes), NeededBytes: uint64(r.needed_bytes),
		ComparedBytes: uint64(r.compared_bytes),
		Elapsed:       seconds(r.seconds), Blocked: seconds(r.blocked_seconds), Copy: seconds(r.copy_seconds)}
}

func (t *Trainer) checkpoint(ctx context.Context, path string, f func(p *C.gsel_trainer, path C.gsel_str, r *C.gsel_checkpoint_report, err **C.gsel_error) C.gsel_status) (CheckpointReport, error) {
	var l lent
	defer l.free()
	text := l.text(path)
	r := C.gsel_checkpoint_report{struct_size: C.sizeof_gsel_checkpoint_report}
	err := t.with(ctx, func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status { return f(p, text, &r, err) })
	if err != nil {
		return CheckpointReport{}, err
	}
	return checkpointFromC(&r), nil
}

// Save saves the trainer between steps as folder/step-NNNNNNNNNNNN. options may be nil. Collective.
func (t *Trainer) Save(ctx context.Context, folder string, options *CheckpointOptions) (CheckpointReport, error) {
	o := options.toC()
	return t.checkpoint(ctx, folder, func(p *C.gsel_trainer, path C.gsel_str, r *C.gsel_checkpoint_report, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_save(p, path, &o, r, err)
	})
}

// SaveBegin is Save in the background: it returns when the state of this rank is copied to memory of the host, and a
// thread of C writes the copy while training goes on. One at a time. Collective.
func (t *Trainer) SaveBegin(ctx context.Context, folder string, options *CheckpointOptions) (CheckpointReport, error) {
	o := options.toC()
	return t.checkpoint(ctx, folder, func(p *C.gsel_trainer, path C.gsel_str, r *C.gsel_checkpoint_report, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_save_begin(p, path, &o, r, err)
	})
}

// SaveState is what became of SaveBegin. It may be asked at any time; SaveNone when closed.
func (t *Trainer) SaveState() (state SaveState) {
	t.look(func(p unsafe.Pointer) { state = SaveState(C.gsel_trainer_save_state((*C.gsel_trainer)(p))) })
	return
}

// SaveWait waits until the save in the background has ended, and takes its outcome; of no save the report is zero. Not
// collective. A context that ends ends the wait alone: the save goes on. Close waits, too.
func (t *Trainer) SaveWait(ctx context.Context) (CheckpointReport, error) {
	for ctx.Done() != nil && t.SaveState() == SaveUnderWay {
		select {
		case <-ctx.Done():
			return CheckpointReport{}, beneath(failed(ErrAborted, "%s while the save went on", ctx.Err()), ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	r := C.gsel_checkpoint_report{struct_size: C.sizeof_gsel_checkpoint_report}
	err := t.with(context.Background(), func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_save_wait(p, &r, err)
	})
	if err != nil {
		return CheckpointReport{}, err
	}
	return checkpointFromC(&r), nil
}

// Load loads a checkpoint, or the newest of a folder of checkpoints, whatever strategy and number of ranks saved it. Collective.
func (t *Trainer) Load(ctx context.Context, path string) (CheckpointReport, error) {
	return t.checkpoint(ctx, path, func(p *C.gsel_trainer, path C.gsel_str, r *C.gsel_checkpoint_report, err **C.gsel_error) C.gsel_status {
		return C.gsel_trainer_load(p, path, r, err)
	})
}
