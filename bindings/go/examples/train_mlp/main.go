// Command train_mlp trains a small network to tell the next letter of a text from the three before it, on any number of
// ranks, under the strategy that a config file names. The trainer is driven by pull: it hands out work, and the program
// runs its own kernels.
//
//	gsel run -n 2 -- ./train_mlp -config gsel.toml TEXT
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"gsel"
)

// network describes the model, once, for every strategy. It has no callbacks, since the program pulls.
func network() (*gsel.Model, error) {
	m, err := gsel.NewModel()
	if err != nil {
		return nil, err
	}
	rows := m.AddParam(gsel.ParamOptions{Name: "rows", Shape: []int64{width * symbols, hidden}, Init: gsel.InitNormal, InitScale: 0.1})
	bias := m.AddParam(gsel.ParamOptions{Name: "bias", Shape: []int64{hidden}, Flags: gsel.ParamNoDecay})
	weights := m.AddParam(gsel.ParamOptions{Name: "weights", Shape: []int64{symbols, hidden}, Init: gsel.InitNormal, InitScale: 0.1})
	offsets := m.AddParam(gsel.ParamOptions{Name: "offsets", Shape: []int64{symbols}, Flags: gsel.ParamNoDecay})
	text := m.AddValue(gsel.ValueOptions{Name: "text", Shape: []int64{width + 1}, DType: gsel.I32, Flags: gsel.ValueInput})
	h := m.AddValue(gsel.ValueOptions{Name: "h", Shape: []int64{hidden}})
	loss := m.AddValue(gsel.ValueOptions{Name: "loss", DType: gsel.F64, Flags: gsel.ValueScalar})
	weight := m.AddValue(gsel.ValueOptions{Name: "weight", DType: gsel.F64, Flags: gsel.ValueScalar})
	m.AddLayer(gsel.LayerOptions{Name: "hidden", Inputs: []gsel.ValueID{text}, Outputs: []gsel.ValueID{h}, Params: []gsel.ParamID{rows, bias}})
	m.AddLayer(gsel.LayerOptions{Name: "loss", Inputs: []gsel.ValueID{h, text}, Outputs: []gsel.ValueID{loss, weight},
		Params: []gsel.ParamID{weights, offsets}, Flags: gsel.LayerLoss})
	return m, m.Finish()
}

// fill reads samples by their global ids, which are the same under every strategy.
func fill(text []byte, r *gsel.DataRequest) {
	dst := gsel.Slice[int32](&r.Dst)
	for s, id := range r.SampleIDs {
		at := int(id * 7919 % int64(len(text)-width))
		for i := range dst[s*(width+1) : (s+1)*(width+1)] {
			dst[s*(width+1)+i] = symbol(text[at+i])
		}
	}
}

// step runs one step by pull.
func step(ctx context.Context, trainer *gsel.Trainer, text []byte) (gsel.StepReport, error) {
	for {
		work, err := trainer.NextWork(ctx)
		if err == io.EOF {
			return trainer.Report()
		}
		if err != nil {
			return gsel.StepReport{}, err
		}
		switch {
		case work.Kind == gsel.WorkInput:
			fill(text, work.Input)
		case work.Kind == gsel.WorkForward && work.Call.Layer == 0:
			hiddenForward(work.Call)
		case work.Kind == gsel.WorkForward:
			lossForward(work.Call)
		case work.Call.Layer == 0:
			hiddenBackward(work.Call)
		default:
			lossBackward(work.Call)
		}
		if err := work.Complete(); err != nil {
			return gsel.StepReport{}, err
		}
	}
}

func train(ctx context.Context, configFile, textFile string, steps int) error {
	text, err := os.ReadFile(textFile)
	if err != nil {
		return err
	}
	config, err := gsel.LoadConfig(configFile)
	if err != nil {
		return err
	}
	defer config.Close()
	comm, err := gsel.Join(ctx, &gsel.CommOptions{Config: config})
	if err != nil {
		return err
	}
	defer comm.Close()
	model, err := network()
	if err != nil {
		return err
	}
	defer model.Close()
	trainer, err := gsel.NewTrainer(ctx, comm, model, &gsel.TrainerOptions{Config: config})
	if err != nil {
		return err
	}
	defer trainer.Close()
	for i := 0; i < steps; i++ {
		report, err := step(ctx, trainer, text)
		if err != nil {
			return err
		}
		if comm.Rank() == 0 && (i == 0 || (i+1)%100 == 0) {
			fmt.Printf("step %3d: loss %.6f\n", i+1, report.Loss)
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	config := flag.String("config", "", "gsel.toml; empty: what GSEL_CONFIG names, or the defaults")
	steps := flag.Int("steps", 300, "steps")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: train_mlp [-config FILE] [-steps N] TEXT")
	}
	if err := gsel.RegisterStrategies(); err != nil { // those that are linked in, with the tag gsel_static
		log.Fatal(err)
	}
	if err := train(context.Background(), *config, flag.Arg(0), *steps); err != nil {
		log.Fatal(err)
	}
}
