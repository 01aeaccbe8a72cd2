package main

import (
	"math"

	"gsel"
)

// kernels.go: the program's own kernels. A sample is `width` characters and the one that follows them, as symbols.

const (
	width   = 3
	symbols = 27
	hidden  = 32
)

// symbol counts letters from 1; all else is 0.
func symbol(c byte) int32 {
	switch {
	case 'a' <= c && c <= 'z':
		return int32(c-'a') + 1
	case 'A' <= c && c <= 'Z':
		return int32(c-'A') + 1
	}
	return 0
}

// hiddenForward: out = tanh(bias + the row of each character).
func hiddenForward(c *gsel.Call) {
	text := gsel.Slice[int32](&c.Inputs[0])
	rows, bias, out := c.Params[0].Float32(), c.Params[1].Float32(), c.Outputs[0].Float32()
	for s := 0; s < len(c.SampleIDs); s++ {
		h := out[s*hidden : (s+1)*hidden]
		copy(h, bias)
		for at, symbol := range text[s*(width+1) : s*(width+1)+width] {
			row := (at*symbols + int(symbol)) * hidden
			for j := range h {
				h[j] += rows[row+j]
			}
		}
		for j := range h {
			h[j] = float32(math.Tanh(float64(h[j])))
		}
	}
}

func hiddenBackward(c *gsel.Call) {
	text := gsel.Slice[int32](&c.Inputs[0])
	dRows, dBias := c.DParams[0].Float32(), c.DParams[1].Float32()
	out, dOut := c.Outputs[0].Float32(), c.DOutputs[0].Float32()
	clear(c.Accumulate, dRows, dBias)
	for s := 0; s < len(c.SampleIDs); s++ {
		for j := 0; j < hidden; j++ {
			h := out[s*hidden+j]
			d := dOut[s*hidden+j] * (1 - h*h)
			dBias[j] += d
			for at, symbol := range text[s*(width+1) : s*(width+1)+width] {
				dRows[(at*symbols+int(symbol))*hidden+j] += d
			}
		}
	}
}

// probabilities of the next symbol, given h.
func probabilities(weights, bias, h []float32) (p [symbols]float64) {
	largest, sum := math.Inf(-1), 0.0
	for k := range p {
		p[k] = float64(bias[k])
		for j, x := range h {
			p[k] += float64(weights[k*hidden+j]) * float64(x)
		}
		largest = math.Max(largest, p[k])
	}
	for k := range p {
		p[k] = math.Exp(p[k] - largest)
		sum += p[k]
	}
	for k := range p {
		p[k] /= sum
	}
	return p
}

// lossForward: sum and number of -log of what the model gave the symbol that came.
func lossForward(c *gsel.Call) {
	text, h := gsel.Slice[int32](&c.Inputs[1]), c.Inputs[0].Float32()
	sum := 0.0
	for s := 0; s < len(c.SampleIDs); s++ {
		p := probabilities(c.Params[0].Float32(), c.Params[1].Float32(), h[s*hidden:(s+1)*hidden])
		sum -= math.Log(p[text[s*(width+1)+width]])
	}
	c.Outputs[0].Float64()[0], c.Outputs[1].Float64()[0] = sum, float64(len(c.SampleIDs))
}

func lossBackward(c *gsel.Call) {
	text, h := gsel.Slice[int32](&c.Inputs[1]), c.Inputs[0].Float32()
	weights, bias := c.Params[0].Float32(), c.Params[1].Float32()
	dWeights, dBias, dH := c.DParams[0].Float32(), c.DParams[1].Float32(), c.DInputs[0].Float32()
	clear(c.Accumulate, dWeights, dBias)
	clear(false, dH)
	for s := 0; s < len(c.SampleIDs); s++ {
		of := h[s*hidden : (s+1)*hidden]
		p := probabilities(weights, bias, of)
		p[text[s*(width+1)+width]]--
		for k, d := range p {
			dBias[k] += float32(d)
			for j, x := range of {
				dWeights[k*hidden+j] += float32(d) * x
				dH[s*hidden+j] += float32(d) * weights[k*hidden+j]
			}
		}
	}
}

// clear zeroes gradients that are to be overwritten.
func clear(accumulate bool, gradients ...[]float32) {
	for _, g := range gradients {
		for i := range g {
			if !accumulate {
				g[i] = 0
			}
		}
	}
}
