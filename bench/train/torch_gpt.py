"""torch_gpt.py: the GPT of examples/gpt written for PyTorch: the same parameters from the same seed, the same samples of
the same text, AdamW and clipping with the settings of a gsel.toml. One rank without torch.distributed, or several over
Gloo with DistributedDataParallel and, with --mode zero, ZeroRedundancyOptimizer. Writes JSON with the fields of
`gpt --json` that run.py reads.

    torch_gpt.py --config gsel.toml --data kjv.txt --steps 20 --mode ddp --ranks 2 --json out.json

It refuses to run on the reference BLAS, which is many times slower and would make any comparison worthless."""
import argparse
import json
import math
import os
import resource
import sys
import time

import numpy as np

LAYERS, WIDTH, HEADS, CONTEXT, VOCAB = 4, 256, 4, 128, 256  # but for VOCAB, what --sizes says


# ---- gsel's random numbers: Philox 4x32-10, keyed by (seed, name, element); lib/base/random.cc ----


def philox(key, counters):
    """[4][n] words of 32 bits for each counter."""
    counters = np.asarray(counters, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    x = [counters & low, counters >> half, np.zeros_like(counters), np.zeros_like(counters)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = [(p1 >> half) ^ x[1] ^ np.uint64(k0), p1 & low, (p0 >> half) ^ x[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return x


def unit(words):
    return (words >> np.uint64(8)).astype(np.float32) * np.float32(1 / 16777216)


def uniform(key, counters):
    return unit(philox(key, counters)[0])


def normal(key, n):
    block = philox(key, np.arange(n))
    radius = np.sqrt(np.float32(-2) * np.log(np.float32(1) - unit(block[0])))
    return radius * np.cos(np.float32(2 * math.pi) * unit(block[1]))


def key_of(key, name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    block = philox(key, [value])
    return int(block[1][0]) << 32 | int(block[0][0])


class Text:
    """A sample id is a place in the text: examples/gpt/data.c."""

    def __init__(self, path, seed):
        self.bytes = np.fromfile(path, dtype=np.uint8)
        self.seed = seed

    def samples(self, first, n):
        ids = np.arange(first, first + n, dtype=np.uint64) * np.uint64(2)
        high = uniform(self.seed, ids).astype(np.float64)
        low = uniform(self.seed, ids + np.uint64(1)).astype(np.float64)
        places = ((high + low / (1 << 24)) * float(len(self.bytes) - CONTEXT)).astype(np.int64)
        pieces = np.stack([self.bytes[p : p + CONTEXT + 1] for p in places]).astype(np.int64)
        return np.ascontiguousarray(pieces[:, :-1]), np.ascontiguousarray(pieces[:, 1:])


# ---- the model: examples/gpt/model.c ----


def make_model(torch, device):
    nn, functional = torch.nn, torch.nn.functional
    mask = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1).to(device)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def attention(self, x):
            n = x.shape[0]
            q, k, v = self.qkv(x).view(n, CONTEXT, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            scores = torch.matmul(q, k.transpose(-1, -2)) * (WIDTH // HEADS) ** -0.5 + mask
            mixed = torch.matmul(torch.softmax(scores, -1), v)
            return self.proj(mixed.transpose(1, 2).reshape(n, CONTEXT, WIDTH))

        def forward(self, x):
            x = x + self.attention(self.ln1(x))
            return x + self.fc2(functional.gelu(self.fc1(self.ln2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.final = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCAB, bias=False)

        def forward(self, tokens, targets):
            x = self.token(tokens) + self.position.weight
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.final(x))
            return functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))

    return Gpt()


def initialise(torch, model, seed):
    """What model.c says, under its names of parameters."""
    key = key_of(seed, "initial values")
    into_stream = 0.02 / math.sqrt(2 * LAYERS)

    def fill(tensor, name, deviation=0.02):
        values = np.float32(deviation) * normal(key_of(key, name), tensor.numel())
        tensor.data.copy_(torch.from_numpy(values).view_as(tensor))

    fill(model.token.weight, "embed.token")
    fill(model.position.weight, "embed.position")
    for i, block in enumerate(model.blocks):
        fill(block.qkv.weight, f"h{i}.attn.qkv.w")
        fill(block.proj.weight, f"h{i}.attn.proj.w", into_stream)
        fill(block.fc1.weight, f"h{i}.mlp.fc1.w")
        fill(block.fc2.weight, f"h{i}.mlp.fc2.w", into_stream)
        for linear in (block.qkv, block.proj, block.fc1, block.fc2):
            linear.bias.data.zero_()
    fill(model.head.weight, "head.w")


def make_optimizer(torch, model, settings, mode):
    options = dict(
        lr=settings["learning_rate"],
        betas=(settings.get("beta1", 0.9), settings.get("beta2", 0.999)),
        eps=settings.get("epsilon", 1e-8),
    )
    decay = settings.get("weight_decay", 0.01)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    if mode != "zero":
        groups = [dict(params=matrices, weight_decay=decay), dict(params=vectors, weight_decay=0.0)]
        return torch.optim.AdamW(groups, **options)
    from torch.distributed.optim import ZeroRedundancyOptimizer

    optimizer = ZeroRedundancyOptimizer(matrices, optimizer_class=torch.optim.AdamW, weight_decay=decay, **options)
    optimizer.add_param_group(dict(params=vectors, weight_decay=0.0))
    return optimizer


# ---- a run ----


def loaded(*words):
    """Paths of the libraries this process has loaded whose file name has one of the words in it."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "/" in line}
    return sorted(p for p in map(os.path.realpath, paths) if any(w in os.path.basename(p) for w in words))


def check_blas():
    found = loaded("blas")
    if not any("openblas" in p for p in found) or any("/blas/" in p for p in found):
        sys.exit(
            f"torch_gpt.py: PyTorch has loaded {' '.join(found) or 'no BLAS'}, not OpenBLAS; choose OpenBLAS for it with: "
            "update-alternatives --config libblas.so.3-x86_64-linux-gnu"
        )
    return [p for p in found if "openblas" in p][-1]


def peak_rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def set_sizes(sizes):
    global LAYERS, WIDTH, HEADS, CONTEXT
    LAYERS, WIDTH, HEADS, CONTEXT = sizes


def train(rank, args, settings, results):
    import torch

    set_sizes(args.sizes)
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False  # as by default since PyTorch 1.12
    try:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False  # sums are f32, as gsel's
    except (AssertionError, AttributeError):
        pass  # PyTorch 1.13 and older
    in_bf16 = torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.precision == "bf16")
    blas = check_blas() if args.device == "cpu" else ""
    if args.ranks > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=args.ranks)
    seed, share = settings["seed"], settings["batch"] // args.ranks
    text = Text(args.data, seed)
    bare = make_model(torch, args.device)
    initialise(torch, bare, seed)
    bare.to(args.device)
    model = torch.nn.parallel.DistributedDataParallel(bare, gradient_as_bucket_view=True) if args.ranks > 1 else bare
    optimizer = make_optimizer(torch, bare, settings, args.mode)
    losses, seconds, cpu = [], [], []
    for step in range(args.steps):
        ids = step * settings["batch"] + rank * share, share
        ready = text.samples(*ids) if args.device == "cuda" else None  # as by a loader, while the card computes
        began, cpu_began = time.perf_counter(), time.process_time()
        tokens, targets = ready or text.samples(*ids)
        with in_bf16:
            loss = model(torch.from_numpy(tokens).to(args.device), torch.from_numpy(targets).to(args.device))
        optimizer.zero_grad(set_to_none=args.ranks == 1)
        loss.backward()
        if settings.get("clip_norm", 0) > 0:
            torch.nn.utils.clip_grad_norm_(bare.parameters(), settings["clip_norm"])
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - cpu_began)
    means = torch.tensor(losses, dtype=torch.float64)
    if args.ranks > 1:  # beside the timed part: gsel's loss is that of the whole batch
        torch.distributed.all_reduce(means)
        means /= args.ranks
    own = {"rank": rank, "peak_rss_bytes": peak_rss(), "seconds": seconds, "cpu": cpu}
    if rank == 0:
        own["losses"] = means.tolist()
        own["blas"] = blas
        own["torch"] = torch.__version__
    results.put(own)
    if args.ranks > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--mode", choices=["single", "ddp", "zero"], default="single")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--json", required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: one rank")
    parser.add_argument(
        "--precision",
        choices=["f32", "bf16"],
        default="f32",
        help="f32: without TF32; bf16: torch.autocast(bfloat16), which keeps parameters in f32",
    )
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=(4, 256, 4, 128))
    args = parser.parse_args()
    if args.device == "cuda" and args.ranks > 1:
        parser.error("--device cuda is for one rank")
    if (args.mode == "single") != (args.ranks == 1):
        parser.error("--mode single is for one rank, ddp and zero for more")
    import tomllib  # Python 3.11; bench/gpu/torch_row.py does without

    with open(args.config, "rb") as file:
        settings = tomllib.load(file)["train"]
    if settings["batch"] % args.ranks:
        parser.error(f"--ranks {args.ranks} does not divide the batch of {settings['batch']}")

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=train, args=(r, args, settings, results)) for r in range(args.ranks)]
    for process in ranks:
        process.start()
    told = []
    while len(told) < args.ranks:
        try:
            told.append(results.get(timeout=1))
        except Exception:  # queue.Empty: is everyone still there?
            failed = [p.exitcode for p in ranks if p.exitcode not in (None, 0)]
            if failed:
                for process in ranks:
                    process.terminate()
                sys.exit(1)
    for process in ranks:
        process.join()
    told.sort(key=lambda own: own["rank"])
    first = told[0]
    record = {
        "ranks": args.ranks,
        "steps": args.steps,
        "blas": first["blas"],
        "torch": first["torch"],
        "losses": [
            {"step": i, "loss": loss, "seconds": s, "cpu_s": c}
            for i, (loss, s, c) in enumerate(zip(first["losses"], first["seconds"], first["cpu"]))
        ],
        "per_rank": [{"rank": own["rank"], "peak_rss_bytes": own["peak_rss_bytes"]} for own in told],
    }
    with open(args.json, "w") as file:
        json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
