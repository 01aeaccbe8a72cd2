package gsel

import "testing"

// sizes_test.go: sizes and numbers beyond what 32 bits hold.

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

// Cut to 32 bits, these are numbers that there are: 0 and -1.
var beyond = []int{1 << 32, 1<<32 - 1, -1 << 32}

func TestNumbersThatCHasNoPlaceForAreRefused(t *testing.T) {
	schedule, err := NewSchedule("1f1b", 2, 4, 0)
	must(t, err)
	defer schedule.Close()
	inventory := machine(t, "a100x8.json")
	defer inventory.Close()
	for _, n := range beyond {
		id, err := NewUniqueID()
		must(t, err)
		_, joined := Join(background, &CommOptions{Rank: n, WorldSize: 1, ID: &id})
		_, resolved := ResolveMesh(nil, n+4)
		_, made := NewSchedule("1f1b", n+2, 4, 0)
		_, connected := inventory.Interconnects(n)
		mesh, alone := ResolveMesh(nil, 1)
		must(t, alone, refused(ErrArg, "", joined), refused(ErrArg, "", resolved), expect("no schedule", true, made != nil),
			refused(ErrArg, "", connected), expect("coordinate", -1, mesh.Coordinate(n, AxisData)),
			expect("rank of a stage", -1, schedule.RankOf(n)))
	}
	ranks(t, 1, func(c *Comm) error {
		mesh, err := ResolveMesh(nil, 1)
		if err != nil {
			return err
		}
		for _, axis := range []Axis{-1, 32, 1 << 20} {
			if _, err := mesh.Split(background, c, axis); refused(ErrArg, "axis", err) != nil {
				return refused(ErrArg, "axis", err)
			}
		}
		_, colour := c.Split(background, 1<<32, 0)
		_, key := c.Split(background, 0, 1<<32)
		return firstError(refused(ErrArg, "colour", colour), refused(ErrArg, "key", key), c.Barrier(background))
	})
}
