"""test_torch.py: gsel.py beside PyTorch. An MLP on real text, computed layer by layer with torch, trained by the pull
driver under several strategies, against the same MLP in torch alone; and tensors exchanged both ways without a copy.
   GSEL_SOURCE  folder of the source, one of whose documents is the text"""
import os
import unittest

import gsel
import numpy as np
import torch
import train_mlp
from ranks import caught, ranks

torch.set_num_threads(1)
WIDTH, SYMBOLS, HIDDEN, BATCH, STEPS = 4, 27, 48, 32, 30
LAYERS = [("first", WIDTH * SYMBOLS, HIDDEN), ("second", HIDDEN, HIDDEN), ("last", HIDDEN, SYMBOLS)]
TRAIN = f"[train]\noptimizer = \"adamw\"\nlearning_rate = 0.01\nweight_decay = 0.01\nbatch = {BATCH}\nmicrobatch = 8\n"
STRATEGIES = {"dp": 'plugin = "dp"', "ddp": 'plugin = "ddp"',
              **{f"zero{stage}": f'plugin = "zero"\nstage = {stage}' for stage in (1, 2, 3)}}


TEXT = torch.from_numpy(train_mlp.symbols(os.environ["GSEL_SOURCE"] + "/docs/selection.md").astype(np.int64))
torch.manual_seed(1)
FIRST = [t for _, n_in, n_out in LAYERS for t in (torch.randn(n_out, n_in) / n_in ** 0.5, torch.zeros(n_out))]


def samples(ids):
    begin = torch.tensor(ids) * 7919 % (len(TEXT) - WIDTH)
    return TEXT[begin[:, None] + torch.arange(WIDTH + 1)]


def layer(index, x, weight, bias):
    """One layer: of symbols, hidden, or the last."""
    if index == 0:
        x = torch.nn.functional.one_hot(x[:, :WIDTH].long(), SYMBOLS).flatten(1).to(weight.dtype)
    y = torch.nn.functional.linear(x, weight, bias)
    return y if index == 2 else torch.tanh(y)


def loss_sum(logits, text):
    return torch.nn.functional.cross_entropy(logits.double(), text[:, WIDTH].long(), reduction="sum")


def with_torch_alone():
    """Losses, and parameters after all steps."""
    params = [t.clone().requires_grad_() for t in FIRST]
    optimizer = torch.optim.AdamW([{"params": params}], lr=0.01, weight_decay=0.01)
    losses = []
    for step in range(STEPS):
        x = text = samples(range(step * BATCH, (step + 1) * BATCH))
        for i in range(3):
            x = layer(i, x, *params[2 * i:2 * i + 2])
        loss = loss_sum(x, text) / BATCH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [t.detach() for t in params]


def network(dtype):
    m = gsel.Model()
    ids = [m.param(f"{LAYERS[i // 2][0]}.{i % 2}", tuple(first.shape), init=first, dtype=dtype)
           for i, first in enumerate(FIRST)]
    text = x = m.value("text", WIDTH + 1, dtype="i64", flags=gsel.VALUE_INPUT)
    for i, (name, _, n_out) in enumerate(LAYERS):
        y = m.value(name + ".out", n_out, dtype=dtype)
        m.layer(name, [x], [y], ids[2 * i:2 * i + 2])
        x = y
    sums = [m.value(name, dtype="f64", flags=gsel.VALUE_SCALAR) for name in ("loss", "weight")]
    m.layer("loss", [x, text], sums, flags=gsel.LAYER_LOSS)
    return m, ids


def compute(work):
    params, inputs, outputs, d_outputs, d_inputs, d_params = (
        [t and torch.from_dlpack(t) for t in tensors]
        for tensors in (work.params, work.inputs, work.outputs, work.d_outputs, work.d_inputs, work.d_params))
    names = [name for name, *_ in LAYERS]
    learns = work.kind != gsel.FORWARD
    leaves = [t.detach().requires_grad_(learns and t.is_floating_point()) for t in inputs[:1] + params]
    if work.layer == "loss":
        out = loss_sum(leaves[0], inputs[1])
    else:
        out = layer(names.index(work.layer), *leaves)
    if work.kind == gsel.FORWARD:
        outputs[0].copy_(out)
        if work.layer == "loss":
            outputs[1].fill_(len(work.sample_ids))
        return
    out.backward(None if work.layer == "loss" else d_outputs[0])
    if d_inputs[0] is not None:
        d_inputs[0].copy_(leaves[0].grad)
    for mine, leaf in zip(d_params, leaves[1:]):
        mine.copy_(mine + leaf.grad if work.accumulate else leaf.grad)


def with_gsel(comm, strategy, dtype="f32"):
    model, ids = network(dtype)
    config = gsel.Config(text=TRAIN + "[strategy.data]\n" + STRATEGIES[strategy])
    losses, seen = [], set()
    with model, gsel.Trainer(comm, model, config) as trainer:
        for _ in range(STEPS):
            for work in trainer.step():
                if work.kind == gsel.INPUT:
                    torch.from_dlpack(work.dst).copy_(samples(work.sample_ids))
                else:
                    compute(work)
                    seen.update(tensor.dtype for tensor in work.params)
            losses.append(trainer.report().loss)
        params = [trainer.read_param(i, torch.empty_like(first)) for i, first in zip(ids, FIRST)]
    return losses, params, seen


class BesideTorch(unittest.TestCase):
    def test_trains_what_torch_trains(self):
        losses, params = with_torch_alone()
        self.assertLess(losses[-1], 0.85 * losses[0])
        for n, strategies in ((1, ["ddp"]), (2, STRATEGIES)):
            results = {}
            for strategy in strategies:
                of_ranks = ranks(n, lambda comm: with_gsel(comm, strategy))
                for got_losses, got_params, _ in of_ranks:  # the same bits on all ranks
                    self.assertEqual(of_ranks[0][0], got_losses)
                    for one, other in zip(of_ranks[0][1], got_params):
                        self.assertTrue(torch.equal(one, other))
                results[strategy] = of_ranks[0]
                np.testing.assert_allclose(results[strategy][0], losses, rtol=2e-5, err_msg=strategy)
                for got, expected in zip(results[strategy][1], params):
                    torch.testing.assert_close(got, expected, rtol=1e-3, atol=2e-4, msg=lambda m: strategy + ": " + m)
        for one, other in (("ddp", "zero1"), ("zero2", "zero3")):  # docs/equality.md
            self.assertEqual(results[one][0], results[other][0])
            self.assertTrue(all(map(torch.equal, results[one][1], results[other][1])), other)

    def test_bf16(self):
        losses, _ = with_torch_alone()
        for got, _, seen in ranks(2, lambda comm: with_gsel(comm, "zero3", "bf16")):
            self.assertEqual({"bf16"}, seen)
            np.testing.assert_allclose(got, losses, rtol=0.02)

    def test_collectives_take_tensors(self):
        def run(comm):
            for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
                t = torch.full((2, 3), comm.rank + 1, dtype=dtype)
                where = t.data_ptr()
                self.assertIs(t, comm.allreduce(t))
                self.assertEqual(where, t.data_ptr())
                self.assertTrue(torch.equal(torch.full((2, 3), 3, dtype=dtype), t))
            mine, both = torch.tensor([comm.rank], dtype=torch.bfloat16), torch.empty(2, dtype=torch.bfloat16)
            self.assertEqual([0, 1], comm.all_gather(mine, both).tolist())
            self.assertIn("stride 4", str(caught(gsel.ArgError, comm.allreduce, torch.ones(4, 4).t())))
            caught((RuntimeError, BufferError), comm.allreduce, torch.ones(1, requires_grad=True))
            kept = torch.ones(3)
            before = kept._version, kept.storage().data_ptr()
            comm.broadcast(kept)
            self.assertEqual(before, (kept._version, kept.storage().data_ptr()))
        ranks(2, run)

    def test_torch_sees_the_memory_of_the_library(self):
        def run(comm):
            tensor = comm.alloc((2, 2), "bf16")
            t = torch.from_dlpack(tensor)
            self.assertEqual((torch.bfloat16, (2, 2)), (t.dtype, tuple(t.shape)))
            t.fill_(comm.rank + 1)
            comm.allreduce(tensor)
            again = torch.from_dlpack(tensor)
            self.assertEqual(t.data_ptr(), again.data_ptr())
            comm.allreduce(t)  # through torch, and without a copy: it is memory that ranks share
            return t
        kept = ranks(2, run)
        for t in kept:  # lives longer than the communicator
            self.assertEqual([[6.0, 6.0]] * 2, t.tolist())
        del t, kept
        self.assertEqual({}, gsel._exported)


if __name__ == "__main__":
    unittest.main()
