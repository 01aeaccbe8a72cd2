"""report.py: reads the runs that run.py has written and writes bench/results/train.md.

    report.py build/bench-train.jsonl bench/results/train.md
"""
import json
import statistics
import sys

QUIET = 0.25  # cores used by others, up to which a run counts as undisturbed
CONTEXT = 128
STRATEGIES = ("ddp", "zero1", "zero2", "zero3")


class Runs:
    """Runs by (name, samples per rank), and their ratios round by round."""

    def __init__(self, lines):
        self.machine = next(line for line in lines if line["about"] == "machine")
        self.end = next((line for line in lines if line["about"] == "end"), None)
        self.failures = [line for line in lines if line["about"] == "failure"]
        self.all = [line for line in lines if line["about"] == "run"]

    def of(self, name, share):
        return [run for run in self.all if run["name"] == name and run["share"] == share]

    def keys(self):
        return list(dict.fromkeys((run["name"], run["share"]) for run in self.all))

    def ratios(self, over, under, key="step_s"):
        """Of runs of one round; undisturbed rounds if there are any. ([ratio], disturbed)"""
        found = []
        for a in self.of(*over):
            for b in self.of(*under):
                if a["round"] == b["round"] and b[key] > 0:
                    found.append((a[key] / b[key], max(a["others"], b["others"]) > QUIET))
        calm = [ratio for ratio, disturbed in found if not disturbed]
        return (calm, False) if calm else ([ratio for ratio, _ in found], True)


def chosen(runs):
    """Undisturbed ones if there are any."""
    calm = [run for run in runs if run["others"] <= QUIET]
    return (calm, False) if calm else (runs, True)


def spread(values, form, disturbed):
    mark = " *" if disturbed else ""
    if len(values) == 1:
        return form.format(values[0]) + mark
    return f"{form.format(statistics.median(values))} ({form.format(min(values))} to {form.format(max(values))}){mark}"


def percent(runs, over, under, scale=1.0, key="step_s", less_one=False):
    ratios, disturbed = runs.ratios(over, under, key)
    if not ratios:
        return "not measured"
    values = [100 * (scale * ratio - (1 if less_one else 0)) for ratio in ratios]
    return spread(values, "{:+.1f} %" if less_one else "{:.1f} %", disturbed)


def targets(runs):
    one, hand, torch = "gsel, 1 rank", "by hand, 1 rank", "PyTorch, 1 rank"
    yield "| what | target | measured |"
    yield "|---|---|---|"
    for share in (8, 1):
        cost = percent(runs, (one, share), (hand, share), less_one=True)
        cpu = percent(runs, (one, share), (hand, share), key="cpu_s", less_one=True)
        yield f"| time of a step with gsel's executor against the loop by hand, 1 x {share} | at most +1 % | {cost}; processor time {cpu} |"
    for share in (8, 1):
        yield f"| speed of gsel on one rank against PyTorch, 1 x {share} | above 100 % | {percent(runs, (torch, share), (one, share))} |"
    peers = [(f"gsel {s}", one) for s in STRATEGIES] + [("PyTorch DDP", torch), ("PyTorch ZeRO", torch)]
    alone = ("two gsel, 1 rank each", 8)
    for name, single in peers:
        ours = name.startswith("gsel")
        share = f"; {percent(runs, alone, (name, 8))} of the ceiling" if ours and runs.of(name, 8) else ""
        measured = percent(runs, (single, 8), (name, 8)) + share
        yield f"| weak scaling, 2 x 8 against 1 x 8: {name} | {'at least 96 %' if ours else ''} | {measured} |"
    ceiling = percent(runs, (one, 8), alone)
    yield f"| the same of two single ranks that know nothing of each other: the machine's ceiling | | {ceiling} |"
    for name, single in peers:
        target = "at least 90 %" if name.startswith("gsel") else ""
        yield f"| strong scaling, 2 x 4 against 1 x 8: {name} | {target} | {percent(runs, (single, 8), (name, 4), 0.5)} |"
    for name, single in peers:
        target = "at least 90 %" if name.startswith("gsel") else ""
        yield f"| one sample per rank, 2 x 1 against 1 x 1: {name} | {target} | {percent(runs, (single, 1), (name, 1))} |"


def megabytes(per_rank):
    values = [f"{value / 1e6:.1f}" for value in per_rank]
    return values[0] if len(set(values)) == 1 else ", ".join(values)


def table(runs):
    yield "| run | ranks x samples | step ms | tokens/s | processor ms per step and rank | of rank 0's step: computing, waiting, optimizer | peak RSS MB per rank | peak MB of the trainer per rank | MB sent per rank and step |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, share in runs.keys():
        used, disturbed = chosen(runs.of(name, share))
        first = used[0]
        step = statistics.median(run["step_s"] for run in used)
        tokens = first["ranks"] * share * CONTEXT / step * (2 if name.startswith("two ") else 1)
        parts = "" if not first["compute_s"] else " / ".join(
            f"{100 * statistics.median(run[key] / run['step_s'] for run in used):.0f} %"
            for key in ("compute_s", "exposed_comm_s", "optimizer_s")
        )
        times = spread([1e3 * run["step_s"] for run in used], "{:.1f}", disturbed)
        cpu = statistics.median(1e3 * run["cpu_s"] for run in used)
        peak = megabytes(first["peak_bytes"]) if any(first["peak_bytes"]) else ""
        sent = megabytes(first["sent_per_step"]) if any(first["sent_per_step"]) else ""
        yield f"| {name} | {first['ranks']} x {share} | {times} | {tokens:.0f} | {cpu:.1f} | {parts} | {megabytes(first['peak_rss'])} | {peak} | {sent} |"


def gathers(runs):
    yield "| zero3, 2 x 8 | step ms | gathers take ms per step | waited for ms | hidden |"
    yield "|---|---|---|---|---|"
    for name, what in (("gsel zero3", "the next block's are gathered ahead"), ("gsel zero3, no prefetch", "prefetch_elems = 0"),
                       ("gsel zero3, no overlap", "overlap = false")):  # fmt: skip
        used, disturbed = chosen(runs.of(name, 8))
        if not used:
            continue
        ms = {key: statistics.median(1e3 * run[key] for run in used) for key in ("step_s", "allgather_s", "exposed_allgather_s")}
        hidden = 100 * (1 - ms["exposed_allgather_s"] / ms["allgather_s"]) if ms["allgather_s"] > 0 else 0
        mark = " *" if disturbed else ""
        yield f"| {what} | {ms['step_s']:.1f} | {ms['allgather_s']:.2f} | {ms['exposed_allgather_s']:.2f} | {hidden:.0f} %{mark} |"


def losses(runs):
    """How far PyTorch's losses are from gsel's."""
    yield "| runs | first step | last step |"
    yield "|---|---|---|"
    for a, b, share in (("gsel, 1 rank", "by hand, 1 rank", 8), ("gsel, 1 rank", "PyTorch, 1 rank", 8),
                        ("gsel ddp", "PyTorch DDP", 8), ("gsel zero3", "PyTorch ZeRO", 8)):  # fmt: skip
        if not runs.of(a, share) or not runs.of(b, share):
            continue
        x, y = runs.of(a, share)[0], runs.of(b, share)[0]
        first, last = (f"{x[key]:.7f} and {y[key]:.7f}" for key in ("first_loss", "last_loss"))
        yield f"| {a} and {b}, {x['ranks']} x {share} | {first} | {last} (step {x['steps']}) |"


def document(runs):
    m = runs.machine
    disturbed = sum(run["others"] > QUIET for run in runs.all)
    rounds = max((run["round"] for run in runs.all), default=0)
    forced = m["openblas_uses"] != m["openblas_chose"]
    yield "# Training: gsel beside PyTorch, and beside the same loop by hand"
    yield ""
    if disturbed * 10 > len(runs.all):
        yield f"**Provisional: during {disturbed} of {len(runs.all)} runs others used more than a quarter of a core.**"
        yield ""
    yield "`make bench-train`: the GPT of examples/gpt (4 layers, width 256, 3.3 million parameters, 128 bytes of context) on the King"
    yield "James Bible, AdamW with clipping, one thread per rank; the same model, parameters, samples and settings in PyTorch"
    yield "(bench/train/torch_gpt.py). A run is started anew in each round, one after the other; its figure is the median of its steps"
    yield f"but the first {m['skipped']}. Cells are the median over {rounds} rounds (least to most); ratios are taken within a round. Runs during which"
    yield "others used more than a quarter of a core are left out; where there were no other runs, a star stands behind the figure."
    yield ""
    versions = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
    yield f"{m['processor']}, {m['cores']} cores (virtual), {m['caches']}; Linux {m['linux']}, gcc {m['compiler']}; {versions}."
    blas = "OpenBLAS for all of them"
    if forced:
        blas += f", with OPENBLAS_CORETYPE={m['openblas_uses']}, since by itself it takes the {m['openblas_chose']} kernels here;"
        blas += " PyTorch also with ATEN_CPU_CAPABILITY=avx512"
    yield blas + "."
    yield f"Begun {m['date']}, load {m['load']}" + (f"; ended {runs.end['date']}, load {runs.end['load']}." if runs.end else "; not ended.")
    yield ""
    yield "## Targets"
    yield ""
    yield from targets(runs)
    yield ""
    yield "## Runs"
    yield ""
    yield from table(runs)
    yield ""
    yield "PyTorch's RSS has its libraries in it, some 200 MB. `two gsel` are independent single ranks at the same time."
    yield ""
    yield "## Gathers of ZeRO stage 3"
    yield ""
    yield from gathers(runs)
    yield ""
    yield "## Losses"
    yield ""
    yield from losses(runs)
    for line in {(f["name"], f["share"], f["error"].split("\n")[-1]) for f in runs.failures}:
        yield ""
        yield f"Failed: {line[0]}, {line[1]} samples per rank: {line[2]}"


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: report.py RUNS.jsonl train.md")
    with open(sys.argv[1]) as file:
        runs = Runs([json.loads(line) for line in file])
    text = "\n".join(document(runs)) + "\n"
    with open(sys.argv[2], "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
