package gsel

import "testing"

// saved_test.go: sizes beyond what 32 bits hold.

func TestSavedBytesBeyond32Bits(t *testing.T) {
	const bytes = 1<<32 + 64 // only one page of it is touched
	ranks(t, 1, func(c *Comm) error {
		d := &distance{batch: 1}
		m, err := NewModel()
		if err != nil {
			return err
		}
		defer m.Close()
		w := m.AddParam(ParamOptions{Name: "w", Shape: []int64{1}})
		x := m.AddValue(ValueOptions{Name: "x", Shape: []int64{1}, Flags: ValueInput})
		loss := m.AddValue(ValueOptions{Name: "loss", DType: F64, Flags: ValueScalar})
		weight := m.AddValue(ValueOptions{Name: "weight", DType: F64, Flags: ValueScalar})
		var saved [2]int
		m.AddLayer(LayerOptions{Name: "saves", Inputs: []ValueID{x}, Outputs: []ValueID{loss, weight}, Params: []ParamID{w}, Flags: LayerLoss,
			SavedBytesPerSample: bytes,
			Forward: func(call *Call) error {
				if saved[0] = len(call.Saved); saved[0] > 0 {
					call.Saved[saved[0]-1] = 7
				}
				return d.lossOf(call)
			},
			Backward: func(call *Call) error {
				if saved[1] = len(call.Saved); saved[1] > 0 {
					saved[1] += int(call.Saved[saved[1]-1])
				}
				return d.gradient(call)
			}})
		config, err := ParseConfig("[train]\nbatch = 1\n", "test")
		if err != nil {
			return err
		}
		defer config.Close()
		trainer, err := NewTrainer(background, c, m, &TrainerOptions{Config: config, Data: d.input})
		if err != nil {
			return err
		}
		defer trainer.Close()
		_, err = trainer.Step(background)
		return firstError(err, expect("bytes saved and bytes found, with the last byte", [2]int{bytes, bytes + 7}, saved))
	})
}
