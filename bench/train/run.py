"""run.py: measures training with examples/gpt: gsel on one rank and on two under each strategy, the same loop by hand, and
PyTorch, in interleaved rounds, so that a drift of the machine meets all of them. Appends a line of JSON per run; report.py
reads those. Beside each stands how much of the machine others used meanwhile.

    run.py --bin build/bin --data build/data/kjv.txt --out build/bench-train.jsonl [--short]
"""
import argparse
import ctypes
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
STRATEGIES = os.path.join(HERE, "..", "..", "examples", "gpt", "strategies")
SKIPPED = 3  # first steps of a run, which touch memory for the first time
SHARES = [8, 4, 1]  # samples per rank and step


def runs():
    """(name, kind, ranks, samples per rank, strategy, lines for [strategy.data])"""
    for share in SHARES:
        if share != 4:  # 2 x 4 is compared with 1 x 8
            yield "gsel, 1 rank", "gsel", 1, share, "ddp", ""
            yield "by hand, 1 rank", "hand", 1, share, "ddp", ""
            yield "PyTorch, 1 rank", "torch", 1, share, "single", ""
        for strategy in ("ddp", "zero1", "zero2", "zero3"):
            yield f"gsel {strategy}", "gsel", 2, share, strategy, ""
        yield "PyTorch DDP", "torch", 2, share, "ddp", ""
        yield "PyTorch ZeRO", "torch", 2, share, "zero", ""
    yield "two gsel, 1 rank each", "pair", 1, 8, "ddp", ""
    yield "gsel zero3, no prefetch", "gsel", 2, 8, "zero3", "prefetch_elems = 0"
    yield "gsel zero3, no overlap", "gsel", 2, 8, "zero3", "overlap = false"


# ---- the machine ----


def machine_busy():
    """Core-seconds the whole machine has been busy."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq, steal = map(float, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def children_busy():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_for_quiet(most):
    """Until others use less than a quarter of a core, or for `most` seconds."""
    begin = time.monotonic()
    while time.monotonic() - begin < most:
        busy, at = machine_busy(), time.monotonic()
        time.sleep(0.25)
        if machine_busy() - busy < 0.25 * (time.monotonic() - at):
            return


def first_line(command):
    text = subprocess.run(command, shell=True, capture_output=True, text=True).stdout.strip()
    return text.split("\n")[0] if text else ""


def core_type():
    """The kernels OpenBLAS takes here, and the ones it should: old ones do not know new processors."""
    blas = ctypes.CDLL("libopenblas.so.0")
    blas.openblas_get_corename.restype = ctypes.c_char_p
    chosen = blas.openblas_get_corename().decode()
    with open("/proc/cpuinfo") as cpuinfo:
        vectors = "avx512f" in cpuinfo.read()
    knows = chosen.lower() in ("skylakex", "cooperlake", "sapphirerapids", "zen4", "zen5")
    return chosen, "SkylakeX" if vectors and not knows else ""


def environment(forced):
    own = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    if forced:
        own["OPENBLAS_CORETYPE"] = forced
        own["ATEN_CPU_CAPABILITY"] = "avx512"  # PyTorch's own loops: AVX2 unless asked
    return own


def describe(out, chosen, forced):
    versions = {
        package: first_line(f"dpkg-query -W -f '${{Version}}' {package}")
        for package in ("python3-torch", "libgloo0", "libopenblas0-pthread")
    }
    out({
        "about": "machine",
        "processor": first_line("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo"),
        "cores": os.cpu_count(),
        "caches": first_line("lscpu | sed -n 's/^\\(L[123]d\\? cache\\): */\\1 /p' | paste -sd, | sed 's/,/, /g'"),
        "linux": os.uname().release,
        "compiler": first_line("gcc -dumpfullversion"),
        "versions": {name: version for name, version in versions.items() if version},
        "openblas_chose": chosen,
        "openblas_uses": forced or chosen,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "load": " ".join(open("/proc/loadavg").read().split()[:3]),
        "skipped": SKIPPED,
    })


# ---- one run ----


def write_config(folder, strategy, batch, lines):
    with open(os.path.join(STRATEGIES, ("ddp" if strategy in ("single", "ddp") else strategy) + ".toml")) as file:
        text = file.read()
    text = re.sub(r"(?m)^batch *=.*", f"batch = {batch}", text)
    for line in filter(None, lines.split("\n")):
        key = line.split()[0]
        text = re.sub(rf"(?m)^{key} *=.*\n", "", text)
        text = text.replace("[strategy.data]\n", f"[strategy.data]\n{line}\n")
    path = os.path.join(folder, "gsel.toml")
    with open(path, "w") as file:
        file.write(text)
    return path


def command_of(args, kind, ranks, strategy, config, steps, record):
    if kind == "hand":
        return [f"{args.bin}/gpt-by-hand", config, args.data, str(steps), record]
    if kind == "torch":
        return ["/usr/bin/python3", os.path.join(HERE, "torch_gpt.py"), "--config", config, "--data", args.data, "--steps",
                str(steps), "--ranks", str(ranks), "--mode", strategy, "--json", record]  # fmt: skip
    return [f"{args.bin}/gsel", "run", "-n", str(ranks), "--config", config, "--", f"{args.bin}/gpt", "--data", args.data,
            "--steps", str(steps), "--quiet", "--json", record]  # fmt: skip


def measure(args, run, env):
    name, kind, ranks, share, strategy, lines = run
    steps = SKIPPED + (args.steps if share > 1 else 4 * args.steps)
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(folder, "ddp" if strategy == "zero" else strategy, share * ranks, lines)
        records = [os.path.join(folder, f"record{i}.json") for i in range(2 if kind == "pair" else 1)]
        commands = [command_of(args, kind, ranks, strategy, config, steps, record) for record in records]
        wait_for_quiet(args.wait)
        busy, own, begin = machine_busy(), children_busy(), time.monotonic()
        started = [subprocess.Popen(c, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for c in commands]
        errors = [process.communicate(timeout=args.limit)[1] for process in started]
        others = (machine_busy() - busy - (children_busy() - own)) / (time.monotonic() - begin)
        if any(process.returncode for process in started):
            return {"about": "failure", "name": name, "share": share, "error": "".join(errors).strip()[-400:]}
        read = [json.load(open(record)) for record in records]
    record = read[0]
    timed = record["losses"][SKIPPED:]
    median = lambda key: statistics.median(step.get(key, 0) for r in read for step in r["losses"][SKIPPED:])
    per_rank = record["per_rank"]
    return {
        "about": "run",
        "name": name,
        "ranks": ranks,
        "share": share,
        "others": round(others, 2),
        "step_s": median("seconds"),
        "compute_s": median("compute_s"),
        "exposed_comm_s": median("exposed_comm_s"),
        "optimizer_s": median("optimizer_s"),
        "allgather_s": median("allgather_s"),
        "exposed_allgather_s": median("exposed_allgather_s"),
        "cpu_s": median("cpu_s"),
        "first_loss": record["losses"][0]["loss"],
        "last_loss": timed[-1]["loss"],
        "steps": steps,
        "peak_rss": [rank["peak_rss_bytes"] for rank in per_rank],
        "peak_bytes": [rank.get("peak_bytes", 0) for rank in per_rank],
        "sent_per_step": [rank.get("bytes_sent", 0) / steps for rank in per_rank],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", required=True, help="folder of the programs")
    parser.add_argument("--data", required=True, help="the text")
    parser.add_argument("--out", required=True, help="file the runs go to")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="timed steps of a run; four times as many of one sample")
    parser.add_argument("--wait", type=float, default=20, help="seconds to wait for a quiet machine before each run, at most")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a run is given up")
    parser.add_argument("--only", default="", help="runs whose name has this in it")
    parser.add_argument("--short", action="store_true", help="two rounds of ten steps")
    args = parser.parse_args()
    if args.short:
        args.rounds, args.steps = 2, 10

    chosen, forced = core_type()
    env = environment(forced)
    with open(args.out, "w") as file:

        def out(line):
            file.write(json.dumps(line) + "\n")
            file.flush()

        describe(out, chosen, forced)
        for number in range(1, args.rounds + 1):
            for run in runs():
                if args.only not in run[0]:
                    continue
                print(f"round {number} of {args.rounds}: {run[0]}, {run[3]} samples per rank", file=sys.stderr)
                line = measure(args, run, env)
                line["round"] = number
                out(line)
                if line["about"] == "failure":
                    print(f"run.py: {line['name']} failed: {line['error']}", file=sys.stderr)
        out({"about": "end", "date": time.strftime("%H:%M UTC", time.gmtime()), "load": open("/proc/loadavg").read().split()[0]})


if __name__ == "__main__":
    main()
