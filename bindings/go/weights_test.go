package gsel

import (
	"path/filepath"
	"strings"
	"testing"
)

// weights_test.go: parameters go through a file under the names of a map.

func TestWeightsGoThroughAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights.safetensors")
	ranks(t, 2, func(c *Comm) error {
		d := &distance{}
		return training(c, true, d, func(t *Trainer, w ParamID) error {
			rules, err := ParseConfig("[[weights.map]]\nsource = \"slope\"\ntarget = \"w\"\n", "map")
			if err != nil {
				return err
			}
			defer rules.Close()
			if _, err = t.Step(background); err != nil {
				return err
			}
			written, err := t.ExportWeights(background, path, rules, BF16)
			if err != nil {
				return err
			}
			if _, err = t.Step(background); err != nil {
				return err
			}
			read, err := t.LoadWeights(background, path, rules)
			if err != nil {
				return err
			}
			value := make([]float32, 1)
			err = t.ReadParam(background, w, value)
			_, refused := t.LoadWeights(background, path, nil)
			if refused == nil || !strings.Contains(refused.Error(), "1 tensor without a parameter: \"slope\"") {
				return failed(ErrState, "expected that the tensor has no parameter, got %v", refused)
			}
			return firstError(err, expect("tensors written", 1, written.Tensors), expect("tensors read", 1, read.Tensors),
				expect("widened", 1, read.Widened), expect("bytes", read.NeededBytes, read.Bytes), expect("after the load", float32(1), value[0]))
		})
	})
}
