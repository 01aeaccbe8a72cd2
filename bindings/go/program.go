package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"unsafe"
)

// program.go: programs, what a strategy compiles a model to.

// Program is one rank's program. Calls on it may overlap. Close one that was parsed; one of a trainer or pipeline lives
// as long as that is open.
type Program struct{ object }

func newProgram(p *C.gsel_program, free func(unsafe.Pointer), needs ...*object) *Program {
	g := &Program{}
	own(g, &g.object, "program", unsafe.Pointer(p), free, needs...)
	return g
}

// program makes the program of a trainer or pipeline: its own life is that of the owner.
func (o *object) program(get func(p unsafe.Pointer) *C.gsel_program) (g *Program, err error) {
	closed := o.look(func(p unsafe.Pointer) {
		g = &Program{}
		g.p, g.what, g.free = unsafe.Pointer(get(p)), "program", func(unsafe.Pointer) {}
		g.owner, g.part = o, func(p unsafe.Pointer) unsafe.Pointer { return unsafe.Pointer(get(p)) }
	})
	return g, closed
}

// Program is this rank's program, for as long as the trainer is open; after a Rebind it is the new one.
func (t *Trainer) Program() (*Program, error) {
	return t.object.program(func(p unsafe.Pointer) *C.gsel_program { return C.gsel_trainer_program((*C.gsel_trainer)(p)) })
}

// ParseProgram reads a program's text; name stands for the file in messages.
func ParseProgram(text, name string) (*Program, error) {
	var l lent
	defer l.free()
	p, err := made(func(out **C.gsel_program, err **C.gsel_error) C.gsel_status {
		return C.gsel_program_parse(l.text(text), l.text(name), out, err)
	})
	if err != nil {
		return nil, err
	}
	return newProgram(p, func(p unsafe.Pointer) { C.gsel_program_free((*C.gsel_program)(p)) }), nil
}

// String is the text form, which ParseProgram reads back; "" when closed.
func (g *Program) String() (s string) {
	g.keepOpen(func(p unsafe.Pointer) error { s = text(C.gsel_program_text((*C.gsel_program)(p))); return nil })
	return
}

// Placements is a table of the placements of parameters and values on the tensor or context axis; "" when closed.
func (g *Program) Placements() (s string) {
	g.keepOpen(func(p unsafe.Pointer) error { s = text(C.gsel_program_placements((*C.gsel_program)(p))); return nil })
	return
}

// Instrs is the instructions of the step.
func (g *Program) Instrs() ([]Instr, error) {
	return listOf(&g.object, func(p *C.gsel_program) C.int32_t { return C.gsel_program_length(p) },
		func(p *C.gsel_program, at C.int32_t, err **C.gsel_error) (i Instr, status C.gsel_status) {
			status = C.gsel_program_instr(p, at, (*C.gsel_instr)(unsafe.Pointer(&i)), err)
			return
		})
}

// Traffic is the bytes that the program's rank sends and the calls that it makes for one kind of instruction on one axis,
// in a step from 0, or in setup for -1.
func (g *Program) Traffic(step int64, kind InstrKind, axis Axis) (CommCount, error) {
	count := C.gsel_comm_count{struct_size: C.sizeof_gsel_comm_count}
	err := g.keepOpen(func(p unsafe.Pointer) error {
		var err *C.gsel_error
		status := C.gsel_program_traffic((*C.gsel_program)(p), C.int64_t(step), C.gsel_instr_kind(kind), C.gsel_axis(axis), &count, &err)
		return check(status, &err)
	})
	return CommCount{uint64(count.calls), uint64(count.bytes_sent)}, err
}

// VerifyPrograms checks the programs of all ranks together, in rank order: ErrProgram names rank, instruction and line.
func VerifyPrograms(programs ...*Program) error {
	var l lent
	defer l.free()
	in := make([]*C.gsel_program, 0, len(programs))
	var verify func(rest []*Program) error
	verify = func(rest []*Program) error { // each is kept open until all are checked
		if len(rest) > 0 {
			return rest[0].keepOpen(func(p unsafe.Pointer) error {
				in = append(in, (*C.gsel_program)(p))
				return verify(rest[1:])
			})
		}
		var err *C.gsel_error
		status := C.gsel_program_verify(list[*C.gsel_program](&l, in), C.int32_t(len(in)), &err)
		return check(status, &err)
	}
	return verify(programs)
}

// Close releases the program.
func (g *Program) Close() error {
	return g.close()
}
