package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"unsafe"
)

// state.go: what a trainer holds between steps, by name, and states of the program's own.

// State is what a trainer holds between steps. It is of use until the trainer's next step, evaluation, load or rebind,
// after which its calls fail with ErrState. Its calls are calls on the trainer, and must not overlap others. Close it.
type State struct {
	object
	trainer *Trainer
}

// State makes the last step final and lists what the trainer holds. Collective, between steps.
func (t *Trainer) State(ctx context.Context) (*State, error) {
	if _, err := t.acquire(); err != nil { // which stays open until the state is tied to it
		return nil, err
	}
	defer t.release()
	var p *C.gsel_state
	err := t.with(ctx, func(trainer *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		return C.gsel_state_open(trainer, &p, err)
	})
	if err != nil {
		C.gsel_state_free(p) // made as the context ended
		return nil, err
	}
	s := &State{trainer: t}
	s.waitsForNothing = true
	own(s, &s.object, "state", unsafe.Pointer(p), func(p unsafe.Pointer) {
		C.gsel_state_free((*C.gsel_state)(p))
	}, &t.object)
	return s, nil
}

// with makes a call on the state, which is one on its trainer.
func (s *State) with(ctx context.Context, f func(p *C.gsel_state, err **C.gsel_error) C.gsel_status) error {
	p, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	return s.trainer.with(ctx, func(_ *C.gsel_trainer, err **C.gsel_error) C.gsel_status { return f((*C.gsel_state)(p), err) })
}

// Count is the number of tensors, the same on every rank; 0 when closed.
func (s *State) Count() (n int) {
	s.look(func(p unsafe.Pointer) { n = int(C.gsel_state_count((*C.gsel_state)(p))) })
	return
}

// StateEntry is a tensor of the state. Elements are float32; of parameters that are kept in 16 bits these are the master
// copies.
type StateEntry struct {
	Name   string // "param:NAME", or of a state of the optimizer such as "exp_avg:NAME"
	Role   string // what is before the colon
	Param  ParamID
	DType  DType
	Shape  []int64 // in the model
	Pieces int     // parts of it that this rank has; 0 where others have it all
}

// Entry is tensor i, from 0.
func (s *State) Entry(i int) (e StateEntry, err error) {
	err = s.with(context.Background(), func(p *C.gsel_state, err **C.gsel_error) C.gsel_status {
		entry := C.gsel_state_entry{struct_size: C.sizeof_gsel_state_entry}
		status := C.gsel_state_entry_at(p, narrow(i), &entry, err)
		if status == C.GSEL_OK {
			e = StateEntry{Name: text(entry.name), Role: text(entry.role), Param: ParamID(entry.param), DType: DType(entry.dtype),
				Shape: append([]int64(nil), slice[int64](&entry.shape[0], entry.n_dims)...), Pieces: int(entry.n_pieces)}
		}
		return status
	})
	return
}

// OwnCount is the number of states of the program's own, which AddState has added; 0 when closed.
func (s *State) OwnCount() (n int) {
	s.look(func(p unsafe.Pointer) { n = int(C.gsel_state_own_count((*C.gsel_state)(p))) })
	return
}

// OwnState is a state of the program's own, as AddState has it. Data is its memory, of use until the trainer is released.
type OwnState struct {
	Name  string
	Scope StateScope
	Data  []byte
}

// Own is state i of the program's own, from 0.
func (s *State) Own(i int) (o OwnState, err error) {
	err = s.with(context.Background(), func(p *C.gsel_state, err **C.gsel_error) C.gsel_status {
		own := C.gsel_state_own{struct_size: C.sizeof_gsel_state_own}
		status := C.gsel_state_own_at(p, narrow(i), &own, err)
		if status == C.GSEL_OK {
			o = OwnState{text(own.name), StateScope(own.scope), unsafe.Slice((*byte)(own.data), int(own.bytes))}
		}
		return status
	})
	return
}

// StateRun is consecutive elements of a piece that are consecutive in the whole tensor, too: Whole and Local are the
// offsets of the first.
type StateRun struct{ Whole, Local, Count int64 }

// Runs is a piece of tensor i as a list of runs, in ascending order of both offsets.
func (s *State) Runs(i, piece int) (runs []StateRun, err error) {
	var n C.int64_t
	list := func(into []C.gsel_state_run) error {
		return s.with(context.Background(), func(p *C.gsel_state, err **C.gsel_error) C.gsel_status {
			return C.gsel_state_runs(p, narrow(i), narrow(piece), (*C.gsel_state_run)(first(into)), C.int64_t(len(into)), &n, err)
		})
	}
	if err = list(nil); err != nil {
		return nil, err
	}
	inC := make([]C.gsel_state_run, n)
	if err = list(inC); err != nil {
		return nil, err
	}
	for _, run := range inC {
		runs = append(runs, StateRun{int64(run.whole), int64(run.local), int64(run.count)})
	}
	return runs, nil
}

// ReadPiece copies the elements of a piece of tensor i from from on to dst. Not collective.
func (s *State) ReadPiece(i, piece int, from int64, dst []float32) error {
	return s.with(context.Background(), func(p *C.gsel_state, err **C.gsel_error) C.gsel_status {
		return C.gsel_state_read_piece(p, narrow(i), narrow(piece), C.int64_t(from), C.int64_t(len(dst)), (*C.float)(first(dst)), err)
	})
}

// Read copies the elements of the whole tensor i from from on to dst, from the ranks that have them. Collective; all
// ranks ask for the same.
func (s *State) Read(ctx context.Context, i int, from int64, dst []float32) error {
	return s.with(ctx, func(p *C.gsel_state, err **C.gsel_error) C.gsel_status {
		return C.gsel_state_read(p, narrow(i), C.int64_t(from), C.int64_t(len(dst)), (*C.float)(first(dst)), err)
	})
}

// ReadForOthers is the part of a rank that does not want the elements that others Read.
func (s *State) ReadForOthers(ctx context.Context, i int, from, count int64) error {
	return s.with(ctx, func(p *C.gsel_state, err **C.gsel_error) C.gsel_status {
		return C.gsel_state_read(p, narrow(i), C.int64_t(from), C.int64_t(count), nil, err)
	})
}

// Write sets the elements of the whole tensor i from from on, as far as this rank has them, and tells how many. Every
// rank makes the call with the same elements. Not collective.
func (s *State) Write(i int, from int64, src []float32) (written int64, err error) {
	var n C.int64_t
	err = s.with(context.Background(), func(p *C.gsel_state, err **C.gsel_error) C.gsel_status {
		return C.gsel_state_write(p, narrow(i), C.int64_t(from), C.int64_t(len(src)), (*C.float)(first(src)), &n, err)
	})
	return int64(n), err
}

// TrainingNumbers is the numbers that training goes on from; see gsel_training_numbers.
type TrainingNumbers struct {
	Step, Updates            int64 // the next step, from 0; steps that were not skipped
	FirstSample, Seed        int64 // number of the next step's first sample; of the random numbers of a step
	LossScale                float64
	GoodSteps, OverflowsLeft int64
	LearningRate             float64 // as set by SetLearningRate; negative: that of the configuration
}

// Numbers is those of the trainer.
func (s *State) Numbers() (TrainingNumbers, error) {
	n := C.gsel_training_numbers{struct_size: C.sizeof_gsel_training_numbers}
	err := s.with(context.Background(), func(p *C.gsel_state, err **C.gsel_error) C.gsel_status {
		return C.gsel_state_numbers(p, &n, err)
	})
	return TrainingNumbers{Step: int64(n.step), Updates: int64(n.updates), FirstSample: int64(n.first_sample),
		Seed: int64(n.seed), LossScale: float64(n.loss_scale),
		GoodSteps: int64(n.good_steps), OverflowsLeft: int64(n.overflows_left), LearningRate: float64(n.learning_rate)}, err
}

// SetNumbers sets them; every rank the same.
func (s *State) SetNumbers(numbers TrainingNumbers) error {
	n := C.gsel_training_numbers{struct_size: C.sizeof_gsel_training_numbers, step: C.int64_t(numbers.Step),
		updates: C.int64_t(numbers.Updates), first_sample: C.int64_t(numbers.FirstSample), seed: C.int64_t(numbers.Seed), loss_scale: C.double(numbers.LossScale), good_steps: C.int64_t(numbers.GoodSteps),
		overflows_left: C.int64_t(numbers.OverflowsLeft), learning_rate: C.double(numbers.LearningRate)}
	return s.with(context.Background(), func(p *C.gsel_state, err **C.gsel_error) C.gsel_status {
		return C.gsel_state_set_numbers(p, &n, err)
	})
}

// Close releases the state, not its trainer.
func (s *State) Close() error {
	return s.close()
}

// StateScope says whose a state of the program's own is.
type StateScope int32

// Scopes of gsel/state.h.
const (
	StateShared StateScope = 0 // the same on every rank: the first rank's is saved, and a load gives it to all
	StateOfRank StateScope = 1 // each rank's own; loads with as many ranks as there were
)

// AddState adds a state of the program's own, which is saved and loaded with the trainer's: a save reads the memory, and a
// load writes it. The memory, which may be closed before, lives until the trainer is released. Every rank adds the same
// entries; see gsel_trainer_add_state for names.
func AddState[T Element](t *Trainer, name string, memory *Memory[T], scope StateScope) error {
	var zero T
	return t.addState(name, memory.Pointer(), memory.Len()*int(unsafe.Sizeof(zero)), &memory.object, scope)
}

func (t *Trainer) addState(name string, data unsafe.Pointer, bytes int, keep *object, scope StateScope) error {
	if _, err := keep.acquire(); err != nil { // which stays open until the trainer is tied to it
		return err
	}
	defer keep.release()
	var l lent
	defer l.free()
	text := l.text(name)
	return t.with(context.Background(), func(p *C.gsel_trainer, err **C.gsel_error) C.gsel_status {
		status := C.gsel_trainer_add_state(p, text, data, C.size_t(bytes), C.int32_t(scope), err)
		if status == C.GSEL_OK {
			t.need(keep, nil)
		}
		return status
	})
}
