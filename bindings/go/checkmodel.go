package gsel

/*
#include "shim.h"
*/
import "C"

import "runtime/cgo"

// checkmodel.go: runs a model's callbacks against their contracts, before a rank trains with them.

// BreachKind is what a callback did that its contract does not allow.
type BreachKind int32

// Kinds of gsel/check.h.
const (
	BreachOutside        BreachKind = 1
	BreachReadOnly       BreachKind = 2
	BreachUnwritten      BreachKind = 3
	BreachStrayRead      BreachKind = 4
	BreachUnread         BreachKind = 5
	BreachKeptPointer    BreachKind = 6
	BreachNotRepeatable  BreachKind = 7
	BreachNotAccumulated BreachKind = 8
	BreachAlwaysAdded    BreachKind = 9
	BreachWrongSum       BreachKind = 10
	BreachProduced       BreachKind = 11
	BreachBatch          BreachKind = 12
	BreachHalves         BreachKind = 13
	BreachEvaluation     BreachKind = 14
	BreachGradient       BreachKind = 15
	BreachParts          BreachKind = 16
	BreachPieces         BreachKind = 17
)

// BufferKind is the list of Call, or the field of another struct, that a buffer is in.
type BufferKind int32

// Kinds of gsel/check.h.
const (
	BufferParam     BufferKind = 1
	BufferInput     BufferKind = 2
	BufferOutput    BufferKind = 3
	BufferDOutput   BufferKind = 4
	BufferDInput    BufferKind = 5
	BufferDParam    BufferKind = 6
	BufferSaved     BufferKind = 7
	BufferReduction BufferKind = 8
	BufferData      BufferKind = 9
	BufferValues    BufferKind = 10
	BufferGradient  BufferKind = 11
	BufferStates    BufferKind = 12
)

// Breach is one breach; Text is one line with all of it. See gsel_breach.
type Breach struct {
	Kind            BreachKind
	Layer           LayerID // -1: the data or the optimizer
	Callback        WorkKind
	Buffer          BufferKind
	Index           int
	Element         int64
	Coordinates     []int64
	Found, Expected float64
	Text            string
}

// ModelCheckOptions says how a model is checked; zero fields take defaults. See gsel_model_check_options.
type ModelCheckOptions struct {
	Data                 func(*DataRequest) error
	Samples, FirstSample int64
	IndexLimit           int64
	Seed                 uint64
	TensorRanks          int
	Differences          int
	Skip                 []BreachKind
	Optimizer            *OptimizerOptions
}

// ModelCheckReport is what was found.
type ModelCheckReport struct {
	Summary  string
	Notes    []string
	Breaches []Breach
}

// Check runs every layer's callbacks on this goroutine, without a communicator. The report is also filled if a breach was
// found, which is ErrModel with the words of the first.
func (m *Model) Check(options *ModelCheckOptions) (*ModelCheckReport, error) {
	if options == nil {
		options = &ModelCheckOptions{}
	}
	var l lent
	defer l.free()
	o := zeroed[C.gsel_model_check_options](&l)
	o.struct_size = C.sizeof_gsel_model_check_options
	o.n_samples, o.first_sample, o.index_limit = C.int64_t(options.Samples), C.int64_t(options.FirstSample), C.int64_t(options.IndexLimit)
	o.seed, o.tensor_ranks, o.differences = C.uint64_t(options.Seed), narrow(options.TensorRanks), narrow(options.Differences)
	for _, kind := range options.Skip {
		o.skip |= 1 << kind
	}
	if options.Data != nil {
		handle := cgo.NewHandle(&dataCallback{options.Data})
		defer handle.Delete()
		C.go_set_check_data(o, C.uintptr_t(handle))
	}
	if options.Optimizer != nil {
		c := zeroed[C.gsel_optimizer_options](&l)
		handle := options.Optimizer.toC(c)
		defer handle.Delete()
		o.optimizer = c
	}
	d := newDriver()
	defer d.free()
	var report *ModelCheckReport
	err := m.use(func(p *C.gsel_model) error {
		var r *C.gsel_model_check_report
		err := d.drive(nil, func() (err error) {
			r, err = made(func(out **C.gsel_model_check_report, err **C.gsel_error) C.gsel_status {
				return C.gsel_model_check(p, o, out, err)
			})
			return err
		})
		if r != nil {
			defer C.gsel_model_check_free(r)
			report = checkReportFromC(r)
		}
		return err
	})
	return report, err
}

func checkReportFromC(r *C.gsel_model_check_report) *ModelCheckReport {
	report := &ModelCheckReport{Summary: text(C.gsel_model_check_summary(r))}
	report.Notes, _ = each(C.gsel_model_check_note_count(r), func(i C.int32_t, _ **C.gsel_error) (string, C.gsel_status) {
		return text(C.gsel_model_check_note(r, i)), C.GSEL_OK
	})
	report.Breaches, _ = each(C.gsel_model_check_breach_count(r), func(i C.int32_t, err **C.gsel_error) (Breach, C.gsel_status) {
		b := C.gsel_breach{struct_size: C.sizeof_gsel_breach}
		status := C.gsel_model_check_breach(r, i, &b, err)
		coordinates := append([]int64(nil), slice[int64](&b.coordinates[0], b.n_dims)...)
		return Breach{BreachKind(b.kind), LayerID(b.layer), WorkKind(b.callback), BufferKind(b.buffer), int(b.index),
			int64(b.element), coordinates, float64(b.found), float64(b.expected), text(b.text)}, status
	})
	return report
}
