package gsel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// train_test.go: a model of one parameter, loss = (w - x)^2 over samples x = 1, 3, 5, ... With n ranks and n samples per
// step the mean of x is n, and plain SGD with rate 1/4 halves the distance to it: w = n/2, then 3n/4.

type distance struct {
	batch   int64
	runs    [3]int
	forward func() error // what goes wrong in forward
}

func (d *distance) input(r *DataRequest) error {
	d.runs[0]++
	for i, id := range r.SampleIDs {
		r.Dst.Float32()[i] = float32(2*(id%d.batch) + 1)
	}
	return nil
}

func (d *distance) lossOf(c *Call) error {
	d.runs[1]++
	if d.forward != nil {
		if err := d.forward(); err != nil {
			return err
		}
	}
	w, x := c.Params[0].Float32()[0], c.Inputs[0].Float32()
	sum := 0.0
	for _, x := range x {
		sum += float64((w - x) * (w - x))
	}
	c.Outputs[0].Float64()[0], c.Outputs[1].Float64()[0] = sum, float64(len(x))
	return nil
}

func (d *distance) gradient(c *Call) error {
	d.runs[2]++
	w, dw := c.Params[0].Float32()[0], c.DParams[0].Float32()
	if !c.Accumulate {
		dw[0] = 0
	}
	for _, x := range c.Inputs[0].Float32() {
		dw[0] += 2 * (w - x)
	}
	return nil
}

// lossModel is a model of one layer, which is its loss and has the parameter w; without functions it is pulled.
func lossModel(forward, backward func(c *Call) error) (*Model, ParamID, error) {
	m, err := NewModel()
	if err != nil {
		return nil, 0, err
	}
	w := m.AddParam(ParamOptions{Name: "w", Shape: []int64{1}})
	x := m.AddValue(ValueOptions{Name: "x", Shape: []int64{1}, Flags: ValueInput})
	loss := m.AddValue(ValueOptions{Name: "loss", DType: F64, Flags: ValueScalar})
	weight := m.AddValue(ValueOptions{Name: "weight", DType: F64, Flags: ValueScalar})
	m.AddLayer(LayerOptions{Name: "distance", Inputs: []ValueID{x}, Outputs: []ValueID{loss, weight}, Params: []ParamID{w}, Flags: LayerLoss,
		Forward: forward, Backward: backward})
	return m, w, m.Finish()
}

func (d *distance) model(pushed bool) (*Model, ParamID, error) {
	if !pushed {
		return lossModel(nil, nil)
	}
	return lossModel(d.lossOf, d.gradient)
}

// training makes a trainer and runs body with it.
func training(c *Comm, pushed bool, d *distance, body func(t *Trainer, w ParamID) error) error {
	n := c.WorldSize()
	d.batch = int64(n)
	m, w, err := d.model(pushed)
	if err != nil {
		return err
	}
	defer m.Close()
	config, err := ParseConfig(fmt.Sprintf("[train]\noptimizer = \"sgd\"\nlearning_rate = 0.25\nweight_decay = 0\nbatch = %d\n", n), "test")
	if err != nil {
		return err
	}
	defer config.Close()
	t, err := NewTrainer(background, c, m, &TrainerOptions{Config: config, Data: d.input})
	if err != nil {
		return err
	}
	defer t.Close()
	return body(t, w)
}

func TestPullAndPushTrainAlike(t *testing.T) {
	for _, n := range []int{1, 2} {
		ranks(t, n, func(c *Comm) error {
			d := &distance{}
			return training(c, true, d, func(t *Trainer, w ParamID) error {
				value := make([]float32, 1)
				for { // a step by pull, as programs write it
					work, err := t.NextWork(background)
					if err == io.EOF {
						break
					}
					if err != nil {
						return err
					}
					switch work.Kind {
					case WorkInput:
						err = d.input(work.Input)
					case WorkForward:
						err = d.lossOf(work.Call)
					case WorkBackward:
						err = d.gradient(work.Call)
					default:
						err = fmt.Errorf("work of kind %d", work.Kind)
					}
					if err = firstError(err, work.Complete()); err != nil {
						return err
					}
				}
				report, err := t.Report()
				err = firstError(err, t.ReadParam(background, w, value), expect("loss", float64(4*n*n-1)/3, report.Loss), expect("after one step", float32(n)/2, value[0]))
				if _, stepped := t.Step(background); err == nil {
					err = stepped
				}
				err = firstError(err, t.ReadParam(background, w, value), expect("after two", 3*float32(n)/4, value[0]),
					t.ReadGradient(background, w, value), expect("gradient", -float32(n), value[0]), expect("runs", [3]int{2, 2, 2}, d.runs))
				if err != nil {
					return err
				}
				evaluated, err := t.Evaluate(background, 0, nil)
				err = firstError(err, t.BeginEvaluation(0))
				pulled, again := t.Pull(background, func(work *Work) error {
					if work.Kind == WorkInput {
						return d.input(work.Input)
					}
					return d.lossOf(work.Call)
				})
				err = firstError(err, again, expect("evaluated", evaluated.Loss, pulled.Loss), t.SetLearningRate(0.5))
				program, got := t.Program()
				if err = firstError(err, got); err != nil {
					return err
				}
				instrs, err := program.Instrs()
				parsed, reread := ParseProgram(program.String(), "again")
				counts, counted := t.Counts(InstrAllReduce, AxisData)
				memory, measured := t.Memory()
				json, told := t.StepJSON()
				used, asked := t.ParamUsed(w)
				traffic, forecast := program.Traffic(0, InstrAllReduce, AxisData)
				err = firstError(err, reread, counted, measured, told, asked, forecast, expect("used", true, used), expect("holds", true, t.HoldsParams()),
					expect("text", program.String(), parsed.String()), expect("sent", 2*traffic.BytesSent, counts.BytesSent))
				parsed.Close()
				if len(instrs) < 4 || len(memory) == 0 || !strings.Contains(json, "loss") {
					return fmt.Errorf("%d instructions, memory %v, step %.60s", len(instrs), memory, json)
				}
				t.Close()
				return firstError(err, expect("program of a closed trainer", "", program.String()))
			})
		})
	}
}

func TestFailedWorkEndsTheStepOnEveryRank(t *testing.T) {
	mine := errors.New("no kernel for this")
	ranks(t, 2, func(c *Comm) error {
		d := &distance{}
		return training(c, false, d, func(t *Trainer, w ParamID) error {
			_, err := t.Pull(background, func(work *Work) error {
				if work.Kind == WorkInput {
					return d.input(work.Input)
				}
				if c.Rank() == 0 {
					return mine
				}
				if work.Kind == WorkForward {
					return d.lossOf(work.Call)
				}
				return d.gradient(work.Call)
			})
			if c.Rank() == 0 && (!errors.Is(err, mine) || !errors.Is(err, ErrCallback)) {
				return fmt.Errorf("expected the kernel's error beneath, got %v", err)
			}
			if !strings.Contains(fmt.Sprint(err), "no kernel for this") {
				return fmt.Errorf("expected its words on every rank, got %v", err)
			}
			return nil
		})
	})
}

func TestPanicInALayerIsAnErrorOfTheStep(t *testing.T) {
	before := runtime.NumGoroutine()
	ranks(t, 2, func(c *Comm) error {
		d := &distance{}
		if c.Rank() == 1 {
			d.forward = func() error { return []error{}[d.runs[1]] }
		}
		return training(c, true, d, func(t *Trainer, w ParamID) error {
			_, err := t.Step(background)
			var p *PanicError
			var e runtime.Error
			if c.Rank() == 1 && (!errors.Is(err, ErrCallback) || !errors.As(err, &p) || !errors.As(err, &e) || len(p.Stack) == 0) {
				return fmt.Errorf("expected the panic beneath, got %v", err)
			}
			if !strings.Contains(fmt.Sprint(err), "index out of range") {
				return fmt.Errorf("expected its words on every rank, got %v", err)
			}
			return nil
		})
	})
	settled(t, before)
}

func TestCancelledContextEndsAStep(t *testing.T) {
	before := runtime.NumGoroutine()
	ranks(t, 2, func(c *Comm) error {
		d := &distance{}
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		if c.Rank() == 1 {
			d.forward = func() error { cancel(); return nil }
		}
		return training(c, true, d, func(t *Trainer, w ParamID) error {
			var err error
			for i := 0; i < 100 && err == nil; i++ {
				_, err = t.Step(ctx)
			}
			if err == nil {
				return errors.New("the steps went on")
			}
			if c.Rank() == 1 && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("expected cancelled, got %v", err)
			}
			return nil
		})
	})
	settled(t, before)
}

func TestTrainerDroppedInAStep(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		d := &distance{}
		return training(c, false, d, func(t *Trainer, w ParamID) error {
			if c.Rank() == 0 {
				if _, err := t.NextWork(background); err != nil {
					return err
				}
				c.Close() // before its trainer
				t.Close()
				return nil
			}
			_, err := t.Pull(background, func(work *Work) error {
				switch work.Kind {
				case WorkInput:
					return d.input(work.Input)
				case WorkForward:
					return d.lossOf(work.Call)
				}
				return d.gradient(work.Call)
			})
			if !errors.Is(err, ErrAborted) && !errors.Is(err, ErrPeer) {
				return fmt.Errorf("expected the step to end, got %v", err)
			}
			return nil
		})
	})
}

func TestOptimizerOfGo(t *testing.T) {
	ranks(t, 1, func(c *Comm) error {
		d := &distance{batch: 1}
		m, w, err := d.model(true)
		if err != nil {
			return err
		}
		defer m.Close()
		steps := 0
		trainer, err := NewTrainer(background, c, m, &TrainerOptions{Data: d.input, Optimizer: &OptimizerOptions{States: 1, Step: func(o *OptimizerCall) error {
			steps++
			o.States[0][0] += o.Gradient[0]
			o.Values[0] -= 0.5 * o.Gradient[0]
			return expect("sum of gradients", -2, o.States[0][0])
		}}})
		if err != nil {
			return err
		}
		defer trainer.Close()
		_, err = trainer.Step(background)
		value := make([]float32, 1)
		err = firstError(err, trainer.ReadParam(background, w, value), expect("value", 1, value[0]), expect("steps", 1, steps))
		if err != nil {
			return err
		}
		_, err = trainer.Step(background) // the gradient is 0 now, as is what is expected
		return err
	})
}

func TestModelErrorsStay(t *testing.T) {
	m, err := NewModel()
	must(t, err)
	defer m.Close()
	m.AddParam(ParamOptions{Name: "w", Shape: []int64{2}})
	m.AddParam(ParamOptions{Name: "w", Shape: []int64{2}, InitFunc: func([]float32, int64, uint64) error { return nil }})
	m.AddValue(ValueOptions{Name: "x", Flags: ValueInput})
	must(t, refused(ErrModel, "w", m.Finish()), expect("params", 1, m.ParamCount()), expect("values", 0, m.ValueCount()),
		expect("layers", 0, m.LayerCount()), expect("elements", 2, m.ElementCount()))
}

func TestInitialiserOfGo(t *testing.T) {
	ranks(t, 1, func(c *Comm) error {
		d := &distance{batch: 1}
		m, err := NewModel()
		if err != nil {
			return err
		}
		defer m.Close()
		w := m.AddParam(ParamOptions{Name: "w", Shape: []int64{1}, InitFunc: func(dst []float32, first int64, seed uint64) error { dst[0] = 7; return nil }})
		x := m.AddValue(ValueOptions{Name: "x", Shape: []int64{1}, Flags: ValueInput})
		loss := m.AddValue(ValueOptions{Name: "loss", DType: F64, Flags: ValueScalar})
		weight := m.AddValue(ValueOptions{Name: "weight", DType: F64, Flags: ValueScalar})
		m.AddLayer(LayerOptions{Name: "distance", Inputs: []ValueID{x}, Outputs: []ValueID{loss, weight}, Params: []ParamID{w}, Flags: LayerLoss,
			Forward: d.lossOf, Backward: d.gradient})
		report, err := m.Check(&ModelCheckOptions{Data: d.input})
		if err != nil || report.Summary == "" || len(report.Breaches) != 0 {
			return fmt.Errorf("check: %v, %+v", err, report)
		}
		trainer, err := NewTrainer(background, c, m, nil)
		if err != nil {
			return err
		}
		defer trainer.Close()
		value := make([]float32, 1)
		return firstError(trainer.ReadParam(background, w, value), expect("initial value", 7, value[0]))
	})
}

func TestCheckFindsAKernelThatDoesNotAdd(t *testing.T) {
	d := &distance{batch: 1}
	wrong := &distance{batch: 1}
	m, _, err := lossModel(wrong.lossOf, func(c *Call) error { c.Accumulate = false; return wrong.gradient(c) })
	must(t, err)
	defer m.Close()
	report, err := m.Check(&ModelCheckOptions{Data: d.input})
	if !errors.Is(err, ErrModel) || report == nil || len(report.Breaches) == 0 || report.Breaches[0].Kind != BreachNotAccumulated {
		t.Errorf("expected a gradient that is not accumulated, got %v and %+v", err, report)
	}
}

func TestPipelineRunsStages(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		m, err := NewModel()
		if err != nil {
			return err
		}
		defer m.Close()
		x := m.AddValue(ValueOptions{Name: "x", Shape: []int64{4}, Flags: ValueInput})
		y := m.AddValue(ValueOptions{Name: "y", Shape: []int64{4}})
		z := m.AddValue(ValueOptions{Name: "z", Shape: []int64{4}})
		var last []float32
		add := func(call *Call) error {
			for i, v := range call.Inputs[0].Float32() {
				call.Outputs[0].Float32()[i] = v + 1
			}
			last = append([]float32(nil), call.Outputs[0].Float32()...)
			return nil
		}
		back := func(call *Call) error { copy(call.DInputs[0].Float32(), call.DOutputs[0].Float32()); return nil }
		m.AddLayer(LayerOptions{Name: "a", Inputs: []ValueID{x}, Outputs: []ValueID{y}, Forward: add, Backward: back})
		m.AddLayer(LayerOptions{Name: "b", Inputs: []ValueID{y}, Outputs: []ValueID{z}, Forward: add, Backward: back})
		p, err := NewPipeline(background, c, m, &PipelineOptions{Microbatches: 3, MicrobatchSamples: 1, Data: func(r *DataRequest) error {
			for i := range r.Dst.Float32() {
				r.Dst.Float32()[i] = float32(r.SampleIDs[0])
			}
			return nil
		}})
		if err != nil {
			return err
		}
		defer p.Close()
		report, err := p.Run(background, RunForward)
		stages, staged := p.Stages()
		program, got := p.Program()
		if err = firstError(err, staged, got, expect("stages", 1, len(stages)), expect("rank", c.Rank(), report.Rank),
			expect("the last micro-batch", 2+1+c.Rank(), last[0])); err != nil {
			return err
		}
		if program.String() == "" {
			return errors.New("the program is empty")
		}
		return refused(ErrState, "", func() error { _, err := p.Run(background, RunForwardBackward); return err }())
	})
}
