"""weights.py GPT GSEL SOURCE: files in GPT-2's layout, by a reader and writer of their own in plain Python. What gpt exports,
computed as GPT-2, gives the loss that gpt reports. A file as other programs have it, with prefix, masks and a copy of the
tied table, is loaded under every kind of strategy and given back, tensor by tensor. What cannot be mapped is refused by name."""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

GPT, GSEL, SOURCE = sys.argv[1:4]
LAYERS, WIDTH, HEADS, CONTEXT, VOCAB = 2, 8, 2, 6, 256
SIZES = ["--layers", LAYERS, "--width", WIDTH, "--heads", HEADS, "--context", CONTEXT, "--steps", 1, "--quiet"]
MAP = ["--map", f"{SOURCE}/examples/gpt/gpt2.toml"]
os.environ["OPENBLAS_NUM_THREADS"] = "1"


def shapes():
    """Of GPT2Model."""
    yield from (("wte.weight", [VOCAB, WIDTH]), ("wpe.weight", [CONTEXT, WIDTH]))
    for i in range(LAYERS):
        for norm in "ln_1", "ln_2":
            yield from ((f"h.{i}.{norm}.weight", [WIDTH]), (f"h.{i}.{norm}.bias", [WIDTH]))
        for name, rows, columns in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                    ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
            yield from ((f"h.{i}.{name}.weight", [rows, columns]), (f"h.{i}.{name}.bias", [columns]))
    yield from (("ln_f.weight", [WIDTH]), ("ln_f.bias", [WIDTH]))


def read(path):
    """Name: (type, shape, bytes)."""
    data = Path(path).read_bytes()
    at = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:at])
    assert header.pop("__metadata__") == {"format": "pt"}, header
    ends = sorted(tensor["data_offsets"] for tensor in header.values())
    assert ends[0][0] == 0 and ends[-1][1] == len(data) - at and all(a[1] == b[0] for a, b in zip(ends, ends[1:]))
    return {name: (tensor["dtype"], tensor["shape"], data[at + tensor["data_offsets"][0]:at + tensor["data_offsets"][1]])
            for name, tensor in header.items()}


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


# ---- GPT-2, one sequence ----

class Weights:
    def __init__(self, tensors):
        self.of = {name: struct.unpack(f"<{len(content) // 4}f", content) for name, (_, _, content) in tensors.items()}

    def linear(self, x, name, columns):
        """Conv1D: x [in] times weight [in, out], plus bias."""
        w, b = self.of[name + ".weight"], self.of[name + ".bias"]
        return [b[j] + sum(x[i] * w[i * columns + j] for i in range(len(x))) for j in range(columns)]

    def norm(self, x, name):
        mean = sum(x) / len(x)
        scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
        return [(v - mean) * scale * g + b for v, g, b in zip(x, self.of[name + ".weight"], self.of[name + ".bias"])]


def attention(qkv, head_size):
    out = [[0.0] * WIDTH for _ in qkv]
    for h in range(0, WIDTH, head_size):
        for t, row in enumerate(qkv):
            scores = [sum(row[h + d] * qkv[s][WIDTH + h + d] for d in range(head_size)) / math.sqrt(head_size)
                      for s in range(t + 1)]
            weights = [math.exp(score - max(scores)) for score in scores]
            for d in range(head_size):
                out[t][h + d] = sum(w * qkv[s][2 * WIDTH + h + d] for s, w in enumerate(weights)) / sum(weights)
    return out


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def loss_of(tensors, text):
    w = Weights(tensors)
    wte, wpe = w.of["wte.weight"], w.of["wpe.weight"]
    xs = [[wte[token * WIDTH + d] + wpe[t * WIDTH + d] for d in range(WIDTH)] for t, token in enumerate(text[:-1])]
    for i in range(LAYERS):
        qkv = [w.linear(w.norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn", 3 * WIDTH) for x in xs]
        joined = [w.linear(y, f"h.{i}.attn.c_proj", WIDTH) for y in attention(qkv, WIDTH // HEADS)]
        xs = [[a + b for a, b in zip(x, y)] for x, y in zip(xs, joined)]
        inner = [[gelu(v) for v in w.linear(w.norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc", 4 * WIDTH)] for x in xs]
        xs = [[a + b for a, b in zip(x, w.linear(y, f"h.{i}.mlp.c_proj", WIDTH))] for x, y in zip(xs, inner)]
    total = 0.0
    for x, target in zip(xs, text[1:]):
        y = w.norm(x, "ln_f")
        logits = [sum(a * b for a, b in zip(y, wte[token * WIDTH:(token + 1) * WIDTH])) for token in range(VOCAB)]
        total += math.log(sum(math.exp(v - max(logits)) for v in logits)) + max(logits) - logits[target]
    return total / CONTEXT


# ---- runs ----

def run(ranks, config, *arguments, fails=False):
    command = [GSEL, "run", "-n", ranks, *(["--config", config] if config else []), "--", GPT, *SIZES, *MAP, *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def still(work, strategy):
    """The configuration of a strategy, under which parameters stay as they are."""
    lines = (Path(SOURCE) / f"examples/gpt/strategies/{strategy}.toml").read_text().splitlines()
    assert any(line.startswith("learning_rate") for line in lines)
    path = work / f"{strategy}.toml"
    path.write_text("\n".join("learning_rate = 0.0" if line.startswith("learning_rate") else line for line in lines) + "\n")
    return path


def check(condition, what):
    if not condition:
        sys.exit(f"weights.py: {what}")


def main(work):
    text = bytes(range(32, 126)) * 50
    (work / "text").write_bytes(text)
    (work / "train.toml").write_text("[train]\nlearning_rate = 0.1\nbatch = 16\n")
    data = ["--data", work / "text"]

    run(1, work / "train.toml", *data, "--tied", "--export", work / "first")
    first = read(work / "first")
    check({name: shape for name, (_, shape, _) in first.items()} == dict(shapes()), f"other tensors: {sorted(first)}")
    check({dtype for dtype, _, _ in first.values()} == {"F32"}, "other types than F32")

    sample = b"gpt two"
    check(len(sample) == CONTEXT + 1, "one sample, which is all of the text")
    (work / "sample").write_bytes(sample)
    ddp = still(work, "ddp")
    run(1, ddp, "--data", work / "sample", "--tied", "--weights", work / "first", "--json", work / "record.json")
    got, expected = json.loads((work / "record.json").read_text())["losses"][0]["loss"], loss_of(first, sample)
    check(abs(got - expected) < 1e-5 * expected, f"the loss of the exported weights is {expected}, and gpt says {got}")

    others = {"lm_head.weight": first["wte.weight"]}
    for name in reversed(first):
        others["transformer." + name] = first[name]
    for i in range(LAYERS):
        others[f"transformer.h.{i}.attn.bias"] = ("U8", [1, 1, CONTEXT, CONTEXT], bytes(CONTEXT * CONTEXT))
        others[f"h.{i}.attn.masked_bias"] = ("F32", [], bytes(4))
    write(work / "others", others)
    for ranks, strategy in ((1, "ddp"), (2, "dp"), (2, "ddp"), (2, "ddp-bf16"), (2, "zero1"), (2, "zero3"),
                            (2, "zero3-offload"), (2, "tp"), (2, "tp-sp"), (2, "cp"), (2, "pp-1f1b"), (2, "pp-zb-v"),
                            (4, "pp-tp"), (8, "pp-tp-zero1")):
        said = run(ranks, still(work, strategy), *data, "--tied", "--weights", work / "others", "--export", work / "again")
        check(read(work / "again") == first, f"{strategy} on {ranks} ranks gives back other tensors:\n{said}")

    # Without --tied the head is a tensor of its own.
    said = run(1, None, *data, "--weights", work / "first", fails=True)
    check('1 parameter without a tensor: "head.w" (missing "lm_head.weight")' in said, said)
    run(2, ddp, *data, "--weights", work / "others", "--export", work / "untied")
    check(read(work / "untied") == {**first, "lm_head.weight": first["wte.weight"]}, "the head of an untied model")

    apart = {**others, "lm_head.weight": ("F32", [VOCAB, WIDTH], bytes(4 * VOCAB * WIDTH))}
    for name, tensors, expected in (
            ("a head trained apart", apart, '"lm_head.weight" is another name of "transformer.wte.weight", and differs'),
            ("another vocabulary", {**first, "wte.weight": ("F32", [VOCAB + 1, WIDTH], bytes(4 * (VOCAB + 1) * WIDTH))},
             '"wte.weight" has shape [257, 8], and "embed.token" needs shape [256, 8]'),
            ("a layer more", {**first, f"h.{LAYERS}.ln_1.bias": ("F32", [WIDTH], bytes(4 * WIDTH))},
             '1 tensor without a parameter: "h.2.ln_1.bias"'),
            ("a layer less", {name: tensor for name, tensor in first.items() if not name.startswith("h.1.")},
             '12 parameters without a tensor: "h1.ln1.g" (missing "h.1.ln_1.weight"), '),
            ("codes in place of weights", {**first, "ln_f.bias": ("I8", [WIDTH], bytes(WIDTH))},
             '"ln_f.bias" has type I8; expected F32, BF16 or F16')):
        write(work / "wrong", tensors)
        said = run(2, ddp, *data, "--tied", "--weights", work / "wrong", fails=True)
        check(expected in said, f"{name}: expected {expected}, got\n{said}")


with tempfile.TemporaryDirectory() as folder:
    main(Path(folder))
