// Command average_gradients is a trainer in pure Go, as one writes it without gsel: a network learns the picture of a PNG
// file, brightness by place. The lines marked "gsel" make it data parallel. See README.md.
package main

import (
	"context"
	"fmt"
	"image/color"
	"image/png"
	"log"
	"math"
	"math/rand"
	"os"

	"gsel"
)

const (
	waves  = 16 // inputs: sines and cosines of the place
	hidden = 24
	batch  = 120
	steps  = 400
)

// net is a network with one hidden layer. All its weights are one slice, as are their gradients.
type net struct{ w, g []float64 }

func newNet(random *rand.Rand) *net {
	n := &net{make([]float64, hidden*waves+2*hidden+1), make([]float64, hidden*waves+2*hidden+1)}
	for i := range n.w {
		n.w[i] = random.NormFloat64() * 0.3
	}
	return n
}

// learn adds the gradient of (output - y)^2 and returns that error.
func (n *net) learn(x [waves]float64, y float64) float64 {
	var h [hidden]float64
	bias, top := hidden*waves, hidden*waves+hidden
	out := n.w[top+hidden]
	for j := range h {
		sum := n.w[bias+j]
		for i, v := range x {
			sum += n.w[j*waves+i] * v
		}
		h[j] = math.Tanh(sum)
		out += n.w[top+j] * h[j]
	}
	d := 2 * (out - y)
	n.g[top+hidden] += d
	for j := range h {
		n.g[top+j] += d * h[j]
		dh := d * n.w[top+j] * (1 - h[j]*h[j])
		n.g[bias+j] += dh
		for i, v := range x {
			n.g[j*waves+i] += dh * v
		}
	}
	return (out - y) * (out - y)
}

// place is (u, v), both from 0 to 1, as waves.
func place(u, v float64) (x [waves]float64) {
	for i := 0; i < waves; i += 4 {
		f := math.Pi * float64(i/4+1)
		x[i], x[i+1], x[i+2], x[i+3] = math.Sin(f*u), math.Cos(f*u), math.Sin(f*v), math.Cos(f*v)
	}
	return x
}

func train(file string) error {
	ctx := context.Background()
	comm, err := gsel.Join(ctx, nil) // gsel
	if err != nil {
		return err
	}
	defer comm.Close()                           // gsel
	rank, ranks := comm.Rank(), comm.WorldSize() // gsel

	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		return err
	}
	size := picture.Bounds().Size()

	n := newNet(rand.New(rand.NewSource(int64(rank))))        // each rank begins elsewhere
	if err := gsel.Broadcast(ctx, comm, n.w, 0); err != nil { // gsel: and then as rank 0
		return err
	}
	samples := rand.New(rand.NewSource(1)) // every rank draws the same batch and computes its part
	for step := 1; step <= steps; step++ {
		sums := []float64{0}
		for i := range n.g {
			n.g[i] = 0
		}
		for s := 0; s < batch; s++ {
			px, py := samples.Intn(size.X), samples.Intn(size.Y)
			if s%ranks != rank { // gsel: the part of another rank
				continue
			}
			at := picture.Bounds().Min
			gray := color.GrayModel.Convert(picture.At(at.X+px, at.Y+py)).(color.Gray)
			sums[0] += n.learn(place(float64(px)/float64(size.X), float64(py)/float64(size.Y)), float64(gray.Y)/255)
		}
		if err := gsel.AllReduce(ctx, comm, n.g, n.g, gsel.Sum); err != nil { // gsel
			return err
		}
		if err := gsel.AllReduce(ctx, comm, sums, sums, gsel.Sum); err != nil { // gsel
			return err
		}
		for i, g := range n.g {
			n.w[i] -= 0.02 * g / batch
		}
		if rank == 0 && (step == 1 || step%100 == 0) {
			fmt.Printf("step %3d: error %.6f\n", step, sums[0]/batch)
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: average_gradients PICTURE.png")
	}
	if err := train(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
