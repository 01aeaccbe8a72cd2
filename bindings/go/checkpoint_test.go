package gsel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// checkpoint_test.go: a saved trainer loads, and a checkpoint is looked into and rewritten without one.

func TestCheckpointIsSavedKeptAndLoaded(t *testing.T) {
	folder := t.TempDir()
	ranks(t, 2, func(c *Comm) error {
		return training(c, true, &distance{}, func(t *Trainer, w ParamID) error {
			for i := 0; i < 3; i++ {
				if _, err := t.Step(background); err != nil {
					return err
				}
				if _, err := t.Save(background, folder, &CheckpointOptions{Keep: 2}); err != nil {
					return err
				}
			}
			saved, value := make([]float32, 1), make([]float32, 1)
			err := t.ReadParam(background, w, saved)
			_, stepped := t.Step(background)
			report, loaded := t.Load(background, folder)
			return firstError(err, stepped, loaded, t.ReadParam(background, w, value), expect("step", int64(3), report.Step), expect("parameter", saved[0], value[0]))
		})
	})
	if steps, _ := filepath.Glob(folder + "/step-*"); len(steps) != 2 {
		t.Fatalf("%v are left", steps)
	}
	if err := lookInto(folder); err != nil {
		t.Fatal(err)
	}
}

func lookInto(folder string) error {
	c, err := OpenCheckpoint(folder)
	if err != nil {
		return err
	}
	defer c.Close()
	info, err := c.Info()
	if err = firstError(err, expect("step", int64(3), info.Step), expect("entries", 1, info.Entries), expect("optimizer", "sgd", info.Optimizer)); err != nil {
		return err
	}
	entry, err := c.Entry(0)
	piece, placed := c.Piece(0, 0)
	file, listed := c.File(0)
	err = firstError(err, placed, listed, expect("name", "param:w", entry.Name), expect("role", "param", entry.Role), expect("elements", int64(1), piece.Count),
		expect("file", piece.File, file.Name), c.Verify(background))
	if err != nil {
		return err
	}
	if err := firstError(c.Reshard(background, folder+"/anew", 2), c.Consolidate(background, folder+"/model.safetensors", true)); err != nil {
		return err
	}
	anew, err := OpenCheckpoint(folder + "/anew")
	if err != nil {
		return err
	}
	defer anew.Close()
	differences, err := c.Diff(background, anew)
	ended, cancel := context.WithCancel(background)
	cancel()
	if !errors.Is(c.Verify(ended), context.Canceled) {
		return errors.New("a context that has ended does not end a call")
	}
	_, missing := os.Stat(folder + "/model.safetensors")
	return firstError(err, missing, expect("differences", 0, len(differences)))
}
