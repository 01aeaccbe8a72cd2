"""torch_row.py CONFIG TEXT LAYERS,WIDTH,HEADS,CONTEXT PRECISION: a training step of bench/train/torch_gpt.py on the
first card, in f32 or bf16, with the settings of CONFIG. Prints the rest of a row of a table: milliseconds of a step, the
median (least to most) of those after the first ones, and tokens in a second. Exits with 77 where PyTorch or a card is
missing."""
import argparse
import os
import re
import statistics
import sys

STEPS, SKIPPED = 60, 10


def leave_out(why):
    print(f"torch_row.py: {why}", file=sys.stderr)
    sys.exit(77)


def settings_of(path):
    """Numbers of [train], which a configuration of examples/gpt has on lines of their own."""
    with open(path) as file:
        lines = re.findall(r"^(\w+) *= *([0-9.e+-]+) *(?:#.*)?$", file.read().split("[train]")[1], re.MULTILINE)
    return {key: float(value) if re.search("[.e]", value) else int(value) for key, value in lines}


def main():
    config, text, sizes, precision = sys.argv[1:]
    try:
        import torch
    except ImportError as missing:
        leave_out(f"PyTorch: {missing}")
    if not torch.cuda.is_available():
        leave_out(f"PyTorch {torch.__version__} finds no card")
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train"))
    import torch_gpt

    settings, told = settings_of(config), []
    args = argparse.Namespace(data=text, steps=STEPS, mode="single", ranks=1, device="cuda", precision=precision)
    args.sizes = tuple(map(int, sizes.split(",")))
    results = argparse.Namespace(put=told.append)
    torch_gpt.train(0, args, settings, results)
    ms = [1e3 * seconds for seconds in told[0]["seconds"][SKIPPED:]]
    middle = statistics.median(ms)
    tokens = 1e3 * settings["batch"] * args.sizes[3] / middle
    print(f"{middle:.3f} ({min(ms):.3f} to {max(ms):.3f}) | | | {tokens:.0f} | |")


if __name__ == "__main__":
    main()
