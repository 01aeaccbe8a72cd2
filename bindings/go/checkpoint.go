package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime/cgo"
	"unsafe"
)

// checkpoint.go: checkpoints without a trainer: what is in one, whether it is whole, how two differ, and the same state in
// other files.

// CheckpointOptions says how a trainer is saved.
type CheckpointOptions struct {
	Keep int // so many checkpoints of the folder are left, with the new one; 0: all. The same on all ranks
}

func (o *CheckpointOptions) toC() C.gsel_checkpoint_options {
	out := C.gsel_checkpoint_options{struct_size: C.sizeof_gsel_checkpoint_options}
	if o != nil {
		out.keep = narrow(o.Keep)
	}
	return out
}

// Checkpoint is an open checkpoint. One call at a time.
type Checkpoint struct{ object }

// OpenCheckpoint opens a checkpoint, or the newest whole one of a folder. It reads no tensors.
func OpenCheckpoint(path string) (*Checkpoint, error) {
	var l lent
	defer l.free()
	p, err := made(func(out **C.gsel_checkpoint, err **C.gsel_error) C.gsel_status {
		return C.gsel_checkpoint_open(l.text(path), out, err)
	})
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{}
	own(c, &c.object, "checkpoint", unsafe.Pointer(p), func(p unsafe.Pointer) { C.gsel_checkpoint_free((*C.gsel_checkpoint)(p)) })
	return c, nil
}

// CheckpointInfo is what a checkpoint is of. Path is that of the checkpoint, where a folder was opened as well; Step comes
// next; Updates is steps of the optimizer; a LearningRate of -1 is as configured; Own is the number of states of the
// program's own, and Ranks saved.
type CheckpointInfo struct {
	Path, Optimizer         string
	Step, Updates           int64
	LearningRate, LossScale float64
	Entries, Files          int
	EntryBytes, FileBytes   uint64
	Own, Ranks              int
}

// Info is what the checkpoint is of.
func (c *Checkpoint) Info() (info CheckpointInfo, err error) {
	out := C.gsel_checkpoint_info{struct_size: C.sizeof_gsel_checkpoint_info}
	err = c.with(func(p *C.gsel_checkpoint, err **C.gsel_error) C.gsel_status {
		return C.gsel_checkpoint_inspect(p, &out, err)
	},
		func() {
			info = CheckpointInfo{text(out.path), text(out.optimizer), int64(out.step), int64(out.updates), float64(out.learning_rate),
				float64(out.loss_scale), int(out.n_entries), int(out.n_files), uint64(out.entry_bytes), uint64(out.file_bytes),
				int(out.n_own), int(out.n_ranks)}
		})
	return
}

// CheckpointEntry is a tensor of the state: "param:w", whose Role is "param", or "exp_avg:w". Shape is in the model.
type CheckpointEntry struct {
	Name, Role string
	Shape      []int64
	Bytes      uint64
	Pieces     int
}

// Entry is tensor i.
func (c *Checkpoint) Entry(i int) (entry CheckpointEntry, err error) {
	out := C.gsel_checkpoint_entry{struct_size: C.sizeof_gsel_checkpoint_entry}
	err = c.with(func(p *C.gsel_checkpoint, err **C.gsel_error) C.gsel_status {
		return C.gsel_checkpoint_entry_get(p, narrow(i), &out, err)
	}, func() {
		entry = CheckpointEntry{text(out.name), text(out.role), nil, uint64(out.bytes), int(out.n_pieces)}
		for _, n := range unsafe.Slice(out.shape, int(out.n_dims)) {
			entry.Shape = append(entry.Shape, int64(n))
		}
	})
	return
}

// CheckpointPiece is elements of an entry in a file, Count of them from element First of the whole tensor on.
type CheckpointPiece struct {
	File, Key    string
	First, Count int64
}

// Piece is piece i of an entry.
func (c *Checkpoint) Piece(entry, i int) (piece CheckpointPiece, err error) {
	out := C.gsel_checkpoint_piece{struct_size: C.sizeof_gsel_checkpoint_piece}
	err = c.with(func(p *C.gsel_checkpoint, err **C.gsel_error) C.gsel_status {
		return C.gsel_checkpoint_piece_get(p, narrow(entry), narrow(i), &out, err)
	}, func() { piece = CheckpointPiece{text(out.file), text(out.key), int64(out.first), int64(out.count)} })
	return
}

// CheckpointOwn is a state of the program's own, as a rank has it: Bytes under Key in File.
type CheckpointOwn struct {
	Name  string
	Scope StateScope
	File  string
	Key   string
	Bytes uint64
}

// Own is state i of the program's own, of a rank; of a shared one all ranks have the same. It reads the header of the file.
func (c *Checkpoint) Own(i, rank int) (own CheckpointOwn, err error) {
	out := C.gsel_checkpoint_own{struct_size: C.sizeof_gsel_checkpoint_own}
	err = c.with(func(p *C.gsel_checkpoint, err **C.gsel_error) C.gsel_status {
		return C.gsel_checkpoint_own_get(p, narrow(i), narrow(rank), &out, err)
	}, func() {
		own = CheckpointOwn{text(out.name), StateScope(out.scope), text(out.file), text(out.key), uint64(out.bytes)}
	})
	return
}

// CheckpointFile is a file that the manifest lists. Sum is XXH3 of 128 bits, in hexadecimal digits.
type CheckpointFile struct {
	Name, Sum string
	Bytes     uint64
}

// File is file i.
func (c *Checkpoint) File(i int) (file CheckpointFile, err error) {
	out := C.gsel_checkpoint_file{struct_size: C.sizeof_gsel_checkpoint_file}
	err = c.with(func(p *C.gsel_checkpoint, err **C.gsel_error) C.gsel_status {
		return C.gsel_checkpoint_file_get(p, narrow(i), &out, err)
	}, func() { file = CheckpointFile{text(out.name), text(out.sum), uint64(out.bytes)} })
	return
}

// Verify compares the sums of all files with the manifest's. The error is of the first fault, with file and bytes.
func (c *Checkpoint) Verify(ctx context.Context) error {
	return c.tool(ctx, 0, func(p *C.gsel_checkpoint, options *C.gsel_checkpoint_tool_options, err **C.gsel_error) C.gsel_status {
		return C.gsel_checkpoint_verify(p, options, err)
	})
}

// Kinds of CheckpointDifference.
const (
	CheckpointDiffersNumber     = 1
	CheckpointDiffersOnlyFirst  = 2
	CheckpointDiffersOnlySecond = 3
	CheckpointDiffersShape      = 4
	CheckpointDiffersValues     = 5
	CheckpointDiffersScope      = 6 // of a state of the program's own
	CheckpointDiffersSize       = 7
	CheckpointDiffersBytes      = 8
)

// CheckpointDifference is what differs between two checkpoints; see gsel_checkpoint_difference.
type CheckpointDifference struct {
	Kind                int
	Name, First, Second string
	Element, Count      int64
	Largest             float64
}

// Diff is what differs, whatever layouts the two were saved under; none: nothing.
func (c *Checkpoint) Diff(ctx context.Context, second *Checkpoint) (all []CheckpointDifference, err error) {
	err = second.keepOpen(func(other unsafe.Pointer) error {
		return c.tool(ctx, 0, func(p *C.gsel_checkpoint, options *C.gsel_checkpoint_tool_options, err **C.gsel_error) C.gsel_status {
			var found *C.gsel_checkpoint_differences
			if status := C.gsel_checkpoint_diff(p, (*C.gsel_checkpoint)(other), options, &found, err); status != C.GSEL_OK {
				return status
			}
			defer C.gsel_checkpoint_differences_free(found)
			for i := C.int32_t(0); i < C.gsel_checkpoint_difference_count(found); i++ {
				d := C.gsel_checkpoint_difference{struct_size: C.sizeof_gsel_checkpoint_difference}
				if status := C.gsel_checkpoint_difference_get(found, i, &d, err); status != C.GSEL_OK {
					return status
				}
				all = append(all, CheckpointDifference{int(d.kind), text(d.name), text(d.first), text(d.second),
					int64(d.element), int64(d.count), float64(d.largest)})
			}
			return C.GSEL_OK
		})
	})
	return
}

// Consolidate writes one safetensors file with whole tensors; parameters alone, by their own names, or the states as well,
// also of the program's own.
func (c *Checkpoint) Consolidate(ctx context.Context, path string, paramsOnly bool) error {
	var l lent
	defer l.free()
	flags := C.uint32_t(0)
	if paramsOnly {
		flags = C.GSEL_CHECKPOINT_PARAMS_ONLY
	}
	return c.tool(ctx, flags, func(p *C.gsel_checkpoint, options *C.gsel_checkpoint_tool_options, err **C.gsel_error) C.gsel_status {
		return C.gsel_checkpoint_consolidate(p, l.text(path), options, err)
	})
}

// Reshard writes the checkpoint anew in folder, its elements divided evenly among n files.
func (c *Checkpoint) Reshard(ctx context.Context, folder string, n int) error {
	var l lent
	defer l.free()
	return c.tool(ctx, 0, func(p *C.gsel_checkpoint, options *C.gsel_checkpoint_tool_options, err **C.gsel_error) C.gsel_status {
		return C.gsel_checkpoint_reshard(p, l.text(folder), narrow(n), options, err)
	})
}

// Close releases the checkpoint. The files stay.
func (c *Checkpoint) Close() error {
	return c.close()
}

// with calls, and then takes what the call gave while the checkpoint is open.
func (c *Checkpoint) with(call func(p *C.gsel_checkpoint, err **C.gsel_error) C.gsel_status, take func()) error {
	return c.keepOpen(func(p unsafe.Pointer) error {
		var cerr *C.gsel_error
		status := call((*C.gsel_checkpoint)(p), &cerr)
		if err := check(status, &cerr); err != nil {
			return err
		}
		take()
		return nil
	})
}

// tool calls with options whose progress ends the call when the context does.
func (c *Checkpoint) tool(ctx context.Context, flags C.uint32_t, call func(p *C.gsel_checkpoint, options *C.gsel_checkpoint_tool_options, err **C.gsel_error) C.gsel_status) error {
	if err := before(ctx); err != nil {
		return err
	}
	var l lent
	defer l.free()
	options := zeroed[C.gsel_checkpoint_tool_options](&l)
	options.struct_size, options.flags = C.sizeof_gsel_checkpoint_tool_options, flags
	if ctx.Done() != nil {
		handle := cgo.NewHandle(ctx)
		defer handle.Delete()
		C.go_set_checkpoint_progress(options, C.uintptr_t(handle))
	}
	err := c.with(func(p *C.gsel_checkpoint, err **C.gsel_error) C.gsel_status { return call(p, options, err) }, func() {})
	if e, ok := err.(*Error); ok && e.Code == ErrAborted {
		return beneath(err, ctx.Err())
	}
	return err
}

//export goCheckpointProgress
func goCheckpointProgress(done, total C.uint64_t, handle C.uintptr_t) C.int32_t {
	if handled[context.Context](handle).Err() != nil {
		return 1
	}
	return 0
}
