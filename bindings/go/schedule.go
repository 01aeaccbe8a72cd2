package gsel

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// schedule.go: pipeline schedules and their simulation, timelines, and the list of plugins.

// Schedule says in which order each rank of a pipeline runs its stages. Calls on it may overlap.
type Schedule struct{ object }

func newSchedule(p *C.gsel_schedule, err error) (*Schedule, error) {
	if err != nil {
		return nil, err
	}
	s := &Schedule{}
	own(s, &s.object, "schedule", unsafe.Pointer(p), func(p unsafe.Pointer) { C.gsel_schedule_free((*C.gsel_schedule)(p)) })
	return s, nil
}

// NewSchedule makes a schedule by name, such as "1f1b"; chunks 0: what the schedule needs.
func NewSchedule(name string, ranks, microbatches, chunks int) (*Schedule, error) {
	var l lent
	defer l.free()
	return newSchedule(made(func(out **C.gsel_schedule, err **C.gsel_error) C.gsel_status {
		return C.gsel_schedule_create(l.text(name), narrow(ranks), narrow(microbatches), narrow(chunks), out, err)
	}))
}

// ParseSchedule reads a schedule: a row for each rank, actions such as 2F0 separated by commas.
func ParseSchedule(text, name string) (*Schedule, error) {
	var l lent
	defer l.free()
	return newSchedule(made(func(out **C.gsel_schedule, err **C.gsel_error) C.gsel_status {
		return C.gsel_schedule_parse(l.text(text), l.text(name), out, err)
	}))
}

// number asks for a number; 0 after Close.
func (s *Schedule) number(f func(p *C.gsel_schedule) C.int32_t) (n int) {
	s.keepOpen(func(p unsafe.Pointer) error { n = int(f((*C.gsel_schedule)(p))); return nil })
	return
}

// Ranks is the number of ranks.
func (s *Schedule) Ranks() int {
	return s.number(func(p *C.gsel_schedule) C.int32_t { return C.gsel_schedule_ranks(p) })
}

// Stages is the number of stages.
func (s *Schedule) Stages() int {
	return s.number(func(p *C.gsel_schedule) C.int32_t { return C.gsel_schedule_stages(p) })
}

// Microbatches is the number of micro-batches.
func (s *Schedule) Microbatches() int {
	return s.number(func(p *C.gsel_schedule) C.int32_t { return C.gsel_schedule_microbatches(p) })
}

// RankOf is the rank of a stage; -1: no such stage.
func (s *Schedule) RankOf(stage int) int {
	return s.number(func(p *C.gsel_schedule) C.int32_t { return C.gsel_schedule_rank_of(p, narrow(stage)) })
}

// Actions is what a rank does, in order.
func (s *Schedule) Actions(rank int) ([]Action, error) {
	return listOf(&s.object, func(p *C.gsel_schedule) C.int32_t { return C.gsel_schedule_length(p, narrow(rank)) },
		func(p *C.gsel_schedule, at C.int32_t, err **C.gsel_error) (a Action, status C.gsel_status) {
			status = C.gsel_schedule_action(p, narrow(rank), at, (*C.gsel_action)(unsafe.Pointer(&a)), err)
			return
		})
}

// String is the text form, which ParseSchedule reads back; "" after Close.
func (s *Schedule) String() (t string) {
	s.keepOpen(func(p unsafe.Pointer) error { t = text(C.gsel_schedule_text((*C.gsel_schedule)(p))); return nil })
	return
}

// Close releases the schedule.
func (s *Schedule) Close() error {
	return s.close()
}

// ScheduleTimes is durations of actions, all in the same unit. StageTimes, [3 * stages], replaces the first three.
type ScheduleTimes struct {
	Forward, BackwardInput, BackwardWeight float64
	Hop                                    float64
	StageTimes                             []float64
}

// Simulation is the result of a simulation; see gsel_simulation_report. JSON has every action with its begin and end.
type Simulation struct {
	Makespan, Ideal                 float64
	BubbleOfMakespan, BubbleOfIdeal float64
	LongestRankSpan                 float64
	JSON                            string
}

// Simulate runs the schedule on paper. times nil: forward, backward input and backward weight take 1, and there is no hop.
func (s *Schedule) Simulate(times *ScheduleTimes) (result Simulation, err error) {
	var l lent
	defer l.free()
	var t *C.gsel_schedule_times
	if times != nil {
		if n := 3 * s.Stages(); times.StageTimes != nil && len(times.StageTimes) != n {
			return result, failed(ErrArg, "%d stage times, expected %d", len(times.StageTimes), n)
		}
		t = zeroed[C.gsel_schedule_times](&l)
		t.struct_size = C.sizeof_gsel_schedule_times
		t.forward, t.backward_input, t.backward_weight = C.double(times.Forward), C.double(times.BackwardInput), C.double(times.BackwardWeight)
		t.hop, t.stage_times = C.double(times.Hop), list[C.double](&l, times.StageTimes)
	}
	err = s.keepOpen(func(p unsafe.Pointer) error {
		simulation, err := made(func(out **C.gsel_simulation, err **C.gsel_error) C.gsel_status {
			return C.gsel_schedule_simulate((*C.gsel_schedule)(p), t, out, err)
		})
		if err != nil {
			return err
		}
		defer C.gsel_simulation_free(simulation)
		r := C.gsel_simulation_report{struct_size: C.sizeof_gsel_simulation_report}
		var cerr *C.gsel_error
		status := C.gsel_simulation_get(simulation, &r, &cerr)
		result = Simulation{float64(r.makespan), float64(r.ideal), float64(r.bubble_of_makespan), float64(r.bubble_of_ideal),
			float64(r.longest_rank_span), text(C.gsel_simulation_json(simulation))}
		return check(status, &cerr)
	})
	return
}

// TimelineFormat is what a timeline is drawn as.
type TimelineFormat int32

// Formats of gsel/timeline.h: a picture that needs nothing else, and JSON for chrome://tracing and Perfetto.
const (
	TimelineSVG    TimelineFormat = 1
	TimelineChrome TimelineFormat = 2
)

// Timeline draws what ranks did at what time. One goroutine at a time.
type Timeline struct{ object }

// NewTimeline makes an empty timeline.
func NewTimeline() (*Timeline, error) {
	p, err := made(func(out **C.gsel_timeline, err **C.gsel_error) C.gsel_status { return C.gsel_timeline_create(out, err) })
	if err != nil {
		return nil, err
	}
	t := &Timeline{}
	own(t, &t.object, "timeline", unsafe.Pointer(p), func(p unsafe.Pointer) { C.gsel_timeline_free((*C.gsel_timeline)(p)) })
	return t, nil
}

// Add adds a document: JSON of Trainer.StepJSON, Comm.Trace or Simulation. name stands for it in messages.
func (t *Timeline) Add(json, name string) error {
	var l lent
	defer l.free()
	p, err := t.enterWaiting()
	if err != nil {
		return err
	}
	defer t.leave()
	var cerr *C.gsel_error
	status := C.gsel_timeline_add((*C.gsel_timeline)(p), l.text(json), l.text(name), &cerr)
	return check(status, &cerr)
}

// Draw is the timeline as text.
func (t *Timeline) Draw(format TimelineFormat) (string, error) {
	p, err := t.enterWaiting()
	if err != nil {
		return "", err
	}
	defer t.leave()
	var out C.gsel_str
	var cerr *C.gsel_error
	status := C.gsel_timeline_draw((*C.gsel_timeline)(p), C.int32_t(format), &out, &cerr)
	if err := check(status, &cerr); err != nil {
		return "", err
	}
	return text(out), nil
}

// Close releases the timeline.
func (t *Timeline) Close() error {
	return t.close()
}

// RegisterPlugin registers a plugin that is linked into the program, before all files of its kind and name: the address
// of its gsel_plugin_v1 in C. One that is registered already is left as it is.
func RegisterPlugin(plugin unsafe.Pointer) error {
	var err *C.gsel_error
	return check(C.go_plugin_register(plugin, &err), &err)
}

// RegisterStrategies registers the strategies that are linked into the program: all of them in a build with the tag
// gsel_static, which then needs no plugin file. Else there are none, and libgsel finds the files of those that are used.
func RegisterStrategies() error {
	var err *C.gsel_error
	return check(C.go_register_strategies(&err), &err)
}

// PluginInfo is a plugin that was found. Path is "" for one that the program registered; Refusal says why it cannot be
// used, "" when it can; Note says what the library has that it wraps, such as NCCL.
type PluginInfo struct {
	Path    string `json:"path"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Refusal string `json:"refusal,omitempty"`
	Note    string `json:"note,omitempty"`
}

// Plugins looks at every candidate on the search path. The probes of "cuda" and "nccl" start the driver, which stays.
func Plugins() ([]PluginInfo, error) {
	plugins, err := made(func(out **C.gsel_plugin_list, err **C.gsel_error) C.gsel_status {
		return C.gsel_plugin_list_create(out, err)
	})
	if err != nil {
		return nil, err
	}
	defer C.gsel_plugin_list_free(plugins)
	return each(C.gsel_plugin_list_count(plugins), func(i C.int32_t, err **C.gsel_error) (PluginInfo, C.gsel_status) {
		info := C.gsel_plugin_info{struct_size: C.sizeof_gsel_plugin_info}
		status := C.gsel_plugin_list_get(plugins, i, &info, err)
		return PluginInfo{text(info.path), text(info.kind), text(info.name), text(info.version), text(info.refusal), text(info.note)}, status
	})
}
