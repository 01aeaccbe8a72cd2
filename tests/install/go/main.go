// Command guest is gsel from Go. Ranks are goroutines, or processes when a launcher says so; each sums, sees a refusal
// with its message, and trains one parameter by pull.
//
// The model is the smallest there is: loss = (w - x)^2 over samples x = 1, 3, 5, ...; with n ranks and n samples per
// step the mean of x is n, and plain SGD with rate 1/4 halves the distance to it: w = n/2.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// distance is the embedder's own: its kernels by layer, and what they keep.
type distance struct {
	batch int64
	runs  [3]int
	fails bool
}

func (d *distance) Input(value int32, ids []int64, x []float32) error {
	d.runs[0]++
	if d.fails {
		return errors.New("no more samples")
	}
	for i, id := range ids {
		x[i] = float32(2*(id%d.batch) + 1)
	}
	return nil
}

func (d *distance) Forward(layer int32, params, inputs [][]float32, loss, weight *float64) error {
	d.runs[1]++
	*loss, *weight = 0, float64(len(inputs[0]))
	for _, x := range inputs[0] {
		*loss += float64((params[0][0] - x) * (params[0][0] - x))
	}
	return nil
}

func (d *distance) Backward(layer int32, params, inputs, dParams [][]float32, accumulate bool) error {
	d.runs[2]++
	if !accumulate {
		dParams[0][0] = 0
	}
	for _, x := range inputs[0] {
		dParams[0][0] += 2 * (params[0][0] - x)
	}
	return nil
}

// refused expects err to be gsel's, with this code and these words.
func refused(status int, words string, err error) error {
	var e *Error
	if errors.As(err, &e) && e.Status == status && strings.Contains(e.Message, words) {
		return nil
	}
	return fmt.Errorf("expected %d with %q, got %v", status, words, err)
}

func smallModel() (model *Model, w int32, err error) {
	if model, err = NewModel(); err != nil {
		return
	}
	var x, loss, weight int32
	if w, err = model.Param("w", 1); err != nil {
		return
	}
	if x, err = model.Value("x", F32, ValueInput, 1); err != nil {
		return
	}
	if loss, err = model.Value("loss", F64, ValueScalar); err != nil {
		return
	}
	if weight, err = model.Value("weight", F64, ValueScalar); err != nil {
		return
	}
	_, err = model.Loss("distance", []int32{x}, []int32{loss, weight}, []int32{w})
	return
}

// train runs one step and returns the parameter; a second step fails in a kernel of rank 0.
func train(comm *Comm) (float32, error) {
	n := comm.WorldSize()
	model, w, err := smallModel()
	if err != nil {
		return 0, err
	}
	defer model.Close()
	toml := fmt.Sprintf("[train]\noptimizer = \"sgd\"\nlearning_rate = 0.25\nweight_decay = 0\nbatch = %d\n", n)
	trainer, err := NewTrainer(comm, model, toml)
	if err != nil {
		return 0, err
	}
	defer trainer.Close()

	kernels := &distance{batch: int64(n)}
	loss, err := trainer.Step(kernels)
	if err != nil {
		return 0, err
	}
	expected := float64(4*n*n-1) / 3
	if loss-expected > 1e-9 || expected-loss > 1e-9 || kernels.runs != [3]int{1, 1, 1} {
		return 0, fmt.Errorf("expected loss %g after one run of each kernel, got %g after %v", expected, loss, kernels.runs)
	}
	var after [1]float32
	if err := trainer.Param(w, after[:]); err != nil {
		return 0, err
	}

	kernels.fails = comm.Rank() == 0
	_, err = trainer.Step(kernels)
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, "no more samples") {
		return 0, fmt.Errorf("expected the failed kernel to end the step with its words, got %v", err)
	}
	return after[0], nil
}

// rank is what every rank does; the line says what came out.
func rank(comm *Comm) (string, error) {
	defer comm.Close()
	n := comm.WorldSize()
	x := []int32{int32(comm.Rank() + 1)}
	if err := comm.Sum(x); err != nil {
		return "", err
	}
	if int(x[0]) != n*(n+1)/2 {
		return "", fmt.Errorf("expected a sum of %d, got %d", n*(n+1)/2, x[0])
	}
	unlike := make([]int32, 1+comm.Rank())
	if err := refused(ErrMismatch, "count 2", comm.Sum(unlike)); err != nil {
		return "", err
	}
	w, err := train(comm)
	return fmt.Sprintf("%d ranks: sum %d, parameter %g", n, x[0], w), err
}

func goroutines(n int) (string, error) {
	id, err := NewUniqueID()
	if err != nil {
		return "", err
	}
	type result struct {
		line string
		err  error
	}
	results := make(chan result, n)
	for r := 0; r < n; r++ {
		go func(r int) {
			if r%2 == 1 { // a rank may stay on its thread, or move between calls
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			comm, err := JoinAs(r, n, id)
			if err != nil {
				results <- result{"", err}
				return
			}
			line, err := rank(comm)
			results <- result{line, err}
		}(r)
	}
	var line string
	for r := 0; r < n; r++ {
		result := <-results
		if result.err != nil {
			return "", result.err
		}
		line = result.line
	}
	return line, nil
}

func process() (string, error) {
	comm, err := Join()
	if err != nil {
		return "", err
	}
	speaks := comm.Rank() == 0
	line, err := rank(comm)
	if !speaks {
		line = ""
	}
	return line, err
}

func main() {
	run := func() (string, error) { return goroutines(2) }
	if os.Getenv("WORLD_SIZE") != "" {
		run = process
	}
	line, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
	if line != "" {
		fmt.Println(line)
	}
}
