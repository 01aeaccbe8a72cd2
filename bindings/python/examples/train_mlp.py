"""Trains a small network to tell the next letter of a text from the three before it, on any number of ranks, under the
strategy that the configuration names: gsel run -n 2 --config train_mlp.toml -- python3 train_mlp.py TEXT [STEPS]
The trainer hands out work, and the program computes it with its own kernels, here in NumPy."""
import sys

import numpy as np

import gsel

WIDTH, SYMBOLS, HIDDEN = 3, 27, 32


def network():
    """The model, described once for every strategy."""
    m = gsel.Model()
    rows = m.param("rows", (WIDTH * SYMBOLS, HIDDEN), init="normal", scale=0.1)
    bias = m.param("bias", HIDDEN, flags=gsel.PARAM_NO_DECAY)
    weights = m.param("weights", (SYMBOLS, HIDDEN), init="normal", scale=0.1)
    offsets = m.param("offsets", SYMBOLS, flags=gsel.PARAM_NO_DECAY)
    text = m.value("text", WIDTH + 1, dtype="i32", flags=gsel.VALUE_INPUT)
    h = m.value("h", HIDDEN)
    sums = [m.value(name, dtype="f64", flags=gsel.VALUE_SCALAR) for name in ("loss", "weight")]
    m.layer("hidden", [text], [h], [rows, bias])
    m.layer("loss", [h, text], sums, [weights, offsets], flags=gsel.LAYER_LOSS)
    return m


def symbols(path):
    """The letters of a file, counted from 1; all else is 0."""
    lower = np.fromfile(path, np.uint8) | 32
    return np.where((lower >= ord("a")) & (lower <= ord("z")), lower - ord("a") + 1, 0).astype(np.int32)


def one_hot(s):
    return np.eye(WIDTH * SYMBOLS, dtype=np.float32)[s[:, :WIDTH] + SYMBOLS * np.arange(WIDTH)].sum(axis=1)


def softmax(weights, offsets, h):
    z = h @ weights.T + offsets
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def compute(work):
    params, inputs, outputs, d_outputs, d_inputs, d_params = (
        [t and np.asarray(t) for t in tensors]
        for tensors in (work.params, work.inputs, work.outputs, work.d_outputs, work.d_inputs, work.d_params))
    if work.layer == "hidden":
        x = one_hot(inputs[0])
        if work.kind == gsel.FORWARD:
            outputs[0][:] = np.tanh(x @ params[0] + params[1])
            return
        d = d_outputs[0] * (1 - outputs[0] ** 2)
        gradients = x.T @ d, d.sum(axis=0)
    else:
        h, target = inputs[0], inputs[1][:, WIDTH]
        p, chosen = softmax(*params, h), (np.arange(len(h)), target)
        if work.kind == gsel.FORWARD:
            outputs[0][...], outputs[1][...] = -np.log(p[chosen].astype(np.float64)).sum(), len(h)
            return
        p[chosen] -= 1
        d_inputs[0][:] = p @ params[0]
        gradients = p.T @ h, p.sum(axis=0)
    for mine, gradient in zip(d_params, gradients):
        mine[:] = mine + gradient if work.accumulate else gradient


def main(path, steps=300):
    data = symbols(path)
    with gsel.Communicator() as comm, network() as model, gsel.Trainer(comm, model) as trainer:
        for step in range(int(steps)):
            for work in trainer.step():
                if work.kind == gsel.INPUT:
                    begin = np.array(work.sample_ids) * 7919 % (len(data) - WIDTH)
                    np.asarray(work.dst)[:] = data[begin[:, None] + np.arange(WIDTH + 1)]
                else:
                    compute(work)
            if comm.rank == 0 and (step == 0 or step % 50 == 49):
                print(f"step {step + 1:3}: loss {trainer.report().loss:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
