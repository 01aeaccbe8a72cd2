package gsel

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// elastic_test.go: what a trainer holds: saved in the background and loaded, read and written by name, and taken along to
// other ranks. Steps have 6 samples on any number of ranks, so w is 3 after one step, then 4.5 and 5.25.

const sixSamples = "[train]\noptimizer = \"sgd\"\nlearning_rate = 0.25\nweight_decay = 0\nbatch = 6\n"

// elastic is a model, its configuration, and its data.
type elastic struct {
	model   *Model
	w       ParamID
	options *TrainerOptions
}

func newElastic() (*elastic, error) {
	d := &distance{batch: 6}
	m, w, err := d.model(true)
	if err != nil {
		return nil, err
	}
	config, err := ParseConfig(sixSamples, "test")
	if err != nil {
		m.Close()
		return nil, err
	}
	return &elastic{m, w, &TrainerOptions{Config: config, Data: d.input}}, nil
}

func (e *elastic) Close() {
	e.model.Close()
	e.options.Config.Close()
}

// after makes a step and expects this value of w afterwards.
func (e *elastic) after(t *Trainer, value float32) error {
	_, err := t.Step(background)
	return firstError(err, e.holds(t, value))
}

func (e *elastic) holds(t *Trainer, value float32) error {
	got := make([]float32, 1)
	return firstError(t.ReadParam(background, e.w, got), expect("w", value, got[0]))
}

// withStates makes a trainer with two states of the program's own.
func (e *elastic) withStates(c *Comm, body func(t *Trainer, position, own *Memory[int64]) error) error {
	position, err := Alloc[int64](nil, 2)
	if err != nil {
		return err
	}
	defer position.Close()
	own, err := Alloc[int64](nil, 1)
	if err != nil {
		return err
	}
	t, err := NewTrainer(background, c, e.model, e.options)
	if err != nil {
		return err
	}
	defer t.Close()
	err = firstError(AddState(t, "data/position", position, StateShared), AddState(t, "own", own, StateOfRank),
		refused(ErrArg, "own", AddState(t, "own", own, StateOfRank)), own.Close()) // the trainer keeps it
	if err != nil {
		return err
	}
	return body(t, position, own)
}

// listsOwn expects the two states of withStates, with their memory.
func listsOwn(t *Trainer, position, own *Memory[int64]) error {
	s, err := t.State(background)
	if err != nil {
		return err
	}
	defer s.Close()
	first, err := s.Own(0)
	second, also := s.Own(1)
	_, none := s.Own(2)
	return firstError(err, also, expect("states", 2, s.OwnCount()), expect("name", "data/position", first.Name), expect("scope", StateShared, first.Scope),
		expect("bytes", 16, len(first.Data)), expect("memory", byte(position.Slice()[1]), first.Data[8]), expect("scope", StateOfRank, second.Scope),
		expect("memory", byte(own.Slice()[0]), second.Data[0]), refused(ErrArg, "i is 2", none))
}

// checkpointHasOwn expects them in the checkpoint of two ranks.
func checkpointHasOwn(folder string) error {
	c, err := OpenCheckpoint(folder)
	if err != nil {
		return err
	}
	defer c.Close()
	info, err := c.Info()
	shared, told := c.Own(0, 1)
	own, also := c.Own(1, 1)
	_, none := c.Own(1, 2)
	return firstError(err, told, also, expect("states", 2, info.Own), expect("ranks", 2, info.Ranks),
		expect("shared", CheckpointOwn{"data/position", StateShared, "rank-00000.safetensors", "user:data/position", 16}, shared),
		expect("own", CheckpointOwn{"own", StateOfRank, "rank-00001.safetensors", "user:own", 8}, own), refused(ErrArg, "rank is 2", none))
}

func TestASaveInTheBackgroundIsLoaded(t *testing.T) {
	folder := t.TempDir()
	ranks(t, 2, func(c *Comm) error {
		e, err := newElastic()
		if err != nil {
			return err
		}
		defer e.Close()
		err = e.withStates(c, func(t *Trainer, position, own *Memory[int64]) error {
			position.Slice()[1], own.Slice()[0] = 7, int64(10+c.Rank())
			if err := listsOwn(t, position, own); err != nil {
				return err
			}
			nothing, waited := t.SaveWait(background)
			err := firstError(waited, expect("no save", CheckpointReport{}, nothing), e.after(t, 3), expect("state", SaveNone, t.SaveState()))
			if err != nil {
				return err
			}
			begun, err := t.SaveBegin(background, folder, nil)
			if err != nil {
				return err
			}
			position.Slice()[1] = 8 // the copy is taken
			report, err := t.Step(background)
			if err == nil && report.Save != SaveUnderWay && report.Save != SaveDone {
				err = fmt.Errorf("the step says of the save: %d", report.Save)
			}
			ctx, cancel := context.WithTimeout(background, 60*time.Second) // whose end is not reached
			defer cancel()
			saved, waited := t.SaveWait(ctx)
			if err == nil && (begun.Copy > begun.Blocked || saved.Blocked > saved.Elapsed) {
				err = fmt.Errorf("begun %+v, saved %+v", begun, saved)
			}
			_, refusal := t.SaveBegin(background, "", nil)
			return firstError(err, waited, expect("step", 1, saved.Step), expect("state", SaveNone, t.SaveState()), refused(ErrArg, "", refusal))
		})
		if err != nil {
			return err
		}
		return e.withStates(c, func(t *Trainer, position, own *Memory[int64]) error {
			loaded, err := t.Load(background, folder)
			return firstError(err, expect("step", 1, loaded.Step), expect("position", []int64{0, 7}, position.Slice()),
				expect("own", 10+c.Rank(), own.Slice()[0]), e.holds(t, 3), e.after(t, 4.5), checkpointHasOwn(folder))
		})
	})
}

func TestStateIsReadAndWrittenByName(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		e, err := newElastic()
		if err != nil {
			return err
		}
		defer e.Close()
		t, err := NewTrainer(background, c, e.model, e.options)
		if err != nil {
			return err
		}
		defer t.Close()
		if err = e.after(t, 3); err != nil {
			return err
		}
		s, err := t.State(background)
		if err != nil {
			return err
		}
		defer s.Close()
		i := 0
		entry, err := s.Entry(i)
		for ; err == nil && entry.Name != "param:w"; entry, err = s.Entry(i) {
			i++
		}
		runs, listed := s.Runs(i, 0)
		piece, whole := make([]float32, 1), make([]float32, 1)
		err = firstError(err, listed, expect("entry", StateEntry{"param:w", "param", e.w, F32, []int64{1}, 1}, entry),
			expect("runs", []StateRun{{0, 0, 1}}, runs), s.ReadPiece(i, 0, 0, piece), expect("piece", 3, piece[0]))
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			err = firstError(s.Read(background, i, 0, whole), expect("whole", 3, whole[0]))
		} else {
			err = s.ReadForOthers(background, i, 0, 1)
		}
		_, noPiece := s.Runs(i, 1)
		_, noEntry := s.Entry(s.Count())
		written, wrote := s.Write(i, 0, []float32{2})
		numbers, told := s.Numbers()
		err = firstError(err, refused(ErrArg, "", noPiece), refused(ErrArg, "", noEntry), refused(ErrArg, "", s.Read(background, i, 1, whole)),
			wrote, expect("written", 1, written), told, expect("numbers", TrainingNumbers{Step: 1, Updates: 1, FirstSample: 6, Seed: 1, LossScale: 1, LearningRate: -1}, numbers))
		numbers.Step, numbers.LearningRate = 7, 0
		err = firstError(err, s.SetNumbers(numbers))
		report, stepped := t.Step(background)
		_, gone := s.Entry(0)
		err = firstError(err, stepped, expect("step", 7, report.Step), e.holds(t, 2), refused(ErrState, "open its state again", gone))
		t.Close() // before its state
		_, closed := s.Entry(0)
		if err == nil && !errors.Is(closed, ErrClosed) {
			err = fmt.Errorf("expected the trainer to be closed, got %v", closed)
		}
		return firstError(err, s.Close(), expect("after that", 0, s.Count()))
	})
}

func TestATrainerGoesOnWithFewerRanksAndWithMore(t *testing.T) {
	ranks(t, 3, func(whole *Comm) error {
		e, err := newElastic()
		if err != nil {
			return err
		}
		defer e.Close()
		first, err := whole.Dup(background)
		if err != nil {
			return err
		}
		colour := 0
		if whole.Rank() == 2 {
			colour = -1
		}
		return e.withStates(first, func(t *Trainer, position, own *Memory[int64]) error {
			if err := e.after(t, 3); err != nil {
				return err
			}
			pair, err := whole.Split(background, colour, 0)
			if err != nil {
				return err
			}
			var report RebindReport
			if pair == nil {
				first.Close()
				t.Close()
				if t, report, err = JoinTrainer(background, whole, e.model, e.options, ""); err != nil {
					return err
				}
				defer t.Close()
			} else {
				if report, err = e.toPairAndBack(t, first, pair, whole); err != nil {
					return err
				}
			}
			return firstError(expect("step", 2, report.Step), expect("source", RebindFromRanks, report.Source), e.after(t, 5.25))
		})
	})
}

// toPairAndBack rebinds the trainer to two of three ranks, makes a step, and rebinds it to all three.
func (e *elastic) toPairAndBack(t *Trainer, first, pair, whole *Comm) (RebindReport, error) {
	wrong, err := ParseConfig("[mesh]\ntensor = 5\n"+sixSamples, "wrong")
	if err != nil {
		return RebindReport{}, err
	}
	defer wrong.Close()
	program, err := t.Program()
	if err != nil {
		return RebindReport{}, err
	}
	before := program.String()
	if _, err = t.Rebind(background, pair, &RebindOptions{Config: wrong}); err == nil {
		return RebindReport{}, errors.New("a mesh of 5 ranks was not refused")
	}
	if err = e.holds(t, 3); err != nil { // as it was
		return RebindReport{}, err
	}
	report, err := t.Rebind(background, pair, nil)
	err = firstError(err, expect("step", 1, report.Step), expect("lost", 0, report.LostSteps), first.Close(), e.after(t, 4.5))
	if now := program.String(); err == nil && (now == before || now == "") {
		err = fmt.Errorf("the program did not become that of two ranks: %q", now)
	}
	if err != nil {
		return RebindReport{}, err
	}
	report, err = t.Rebind(background, whole, nil)
	return report, firstError(err, pair.Close())
}
