#!/usr/bin/python3
"""json_output.py GSEL SOURCE: with --json every subcommand prints one JSON document, of the shape that is documented, whose
values are those of its text form; and what is refused is told as JSON."""
import glob
import json
import os
import re
import subprocess

from support import SOURCE, expect, fault, gsel, machine


def both(*arguments, **options):
    return gsel(*arguments, **options).out, gsel(*arguments, "--json", **options).json()


def keys(what, expected, got):
    expect(f"keys of {what}", expected.split(), list(got))


def rows(text, head):
    """Rows of the table whose first line begins so, as lists of cells."""
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith(head))
    table = []
    for line in lines[at + 1:]:
        if not line.strip():
            break
        table.append(re.split(r"  +", line.strip()))
    return table


# ---- devices, resolve, plugins, mesh ----
text, told = both("devices", "--inventory", machine("l4x4"))
expect("a recorded inventory", json.load(open(machine("l4x4")))["hosts"][0]["name"], told["hosts"][0]["name"])
names = [device["name"] for host in told["hosts"] for device in host["devices"]]
for name in names:
    if name not in text:
        fault("gsel devices", f"{name} in it", text)
expect("devices in text and JSON", len(names), len(rows(text, "index")))
gsel("devices", "--json", "-o", "here.json")
expect("this machine, recorded and read", json.load(open("here.json")), gsel("devices", "--inventory", "here.json", "--json").json())

environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "2,0"}
text, told = both("resolve", "--inventory", machine("l4x4"), "--devices", "count:1", env=environment)
keys("resolve", "status devices env warnings trace candidates", told)
expect("positions and reasons", [[str(c["position"]) if c["position"] >= 0 else "-", str(c["index"]), c["reason"]] for c in told["candidates"]],
       [[row[0], row[1], row[-1]] for row in rows(text.split("CUDA:")[0].split("env:")[0], "position")])
expect("env", [f"env: {n}={v}" for n, v in told["env"].items()], [l for l in text.split("\n") if l.startswith("env: ")])

os.mkdir("plugins", 0o755)
open("plugins/broken.so", "w").write("no plugin")
text, told = both("plugins", env={**os.environ, "GSEL_PLUGIN_PATH": os.getcwd() + "/plugins:relative"})
keys("plugins", "plugins", told)
expect("plugins", ["usable" if p["usable"] else "refused" for p in told["plugins"]],
       [line.split()[0] for line in text.split("\n") if line and line[0] != " "])
broken = [p for p in told["plugins"] if p["path"].endswith("/broken.so")]
if len(broken) != 1 or broken[0]["usable"] or broken[0]["refusal"] not in text:
    fault("a broken plugin", "its refusal in text and JSON", broken)

open("mesh.toml", "w").write('[mesh]\ntensor = 2\npipeline = 2\ndata = "auto"\n[strategy.tensor]\nplugin = "tp"\n[strategy.pipeline]\nplugin = "pp"\n')
text, told = both("mesh", "mesh.toml", "-n", "8")
keys("mesh", "ranks axes coordinates", told)
expect("groups", [" | ".join(" ".join(map(str, g)) for g in axis["groups"]) for axis in told["axes"]], [row[3] for row in rows(text, "axis")])
expect("coordinates", [[str(v) for v in rank.values()] for rank in told["coordinates"]], rows(text, "rank  "))
text, told = both("mesh", "mesh.toml", "--hosts", "a:4,b:3,c:1")
keys("mesh --hosts", "ranks hosts axes coordinates warnings", told)
keys("an axis on hosts", "axis size plugin groups placement", told["axes"][0])
keys("a placement", "ranks hosts across bytes_sent", told["axes"][0]["placement"][0])
expect("hosts", [[h["host"], str(h["slots"]), len(h["ranks"])] for h in told["hosts"]], [[*row[:2], int(row[1])] for row in rows(text, "host ")])
expect("groups on hosts", [[axis["axis"], " ".join(map(str, group["ranks"])), " ".join(group["hosts"])] for axis in told["axes"] for group in axis["placement"]],
       rows(text, "axis      group"))
expect("groups across hosts", [f"{sum(g['across'] for g in axis['placement'])} of 4" for axis in told["axes"]],
       [row[4] for row in rows(text, "axis      size")])
expect("coordinates on hosts", [[str(v) for v in rank.values()] for rank in told["coordinates"]], rows(text, "rank  host"))
expect("a warning", f"warning: {told['warnings'][0]}", text.strip().split("\n")[-1])

# ---- plan ----
open("model.json", "w").write('{"model_type":"llama","hidden_size":1024,"intermediate_size":4096,"num_hidden_layers":8,"num_attention_heads":8,"vocab_size":32000,"max_position_embeddings":1024}')
planned = ["--model", "model.json", "--cluster", "8xH100", "--batch", "64"]
text, told = both("plan", *planned)
keys("plan", "model cluster batch sequence precision decision tried dropped times candidates", told)
keys("a candidate", "name layout step_s error_band not_covered tokens_per_s samples_per_s mfu hfu bubble exposed simulated_s time_s hidden_data_s memory stage device_bytes may_exceed stages programs", told["candidates"][0])
for candidate in told["candidates"]:
    parts = sum(candidate["time_s"].values())
    if abs(parts / candidate["step_s"] - 1) > 1e-9:
        fault("parts of a step", candidate["step_s"], parts)
names = [candidate["name"] for candidate in told["candidates"]]
table = text[text.index("layout\n"):].split("\n\n")[0].split("\n")[1:]
expect("candidates in the table", names[:10], [re.split(r"  +", line)[-1] for line in table if not line.startswith("* ")])
for answer in told["decision"]:
    if answer["answer"] not in text:
        fault("gsel plan", f"{answer['answer']} in it", text)
text, told = both("plan", *planned, "--estimate")
keys("plan --estimate", "model cluster batch sequence precision rows", told)
keys("a row", "bytes host_bytes parts strategy fits layout ranks", told["rows"][0])
for row in told["rows"]:
    if row["strategy"] not in text:
        fault("gsel plan --estimate", f"{row['strategy']} in it", text)
measured = f"{SOURCE}/tests/data/plan/rows.tsv"
text, told = both("plan", *planned, "--calibrate", measured)
expect("measured rows in JSON", measured, told["measured"])
if f"Measured rows are those of {measured}." not in text:
    fault("gsel plan --calibrate", "the name of the file in it", text)
gsel("plan", *planned, "--toml", "plan.toml")
text, told = both("plan", *planned, "--compare", "plan.toml", "plan.toml")
keys("plan --compare", "model cluster batch sequence precision times compared", told)
expect("what a plan wrote, forecast again", names[0], told["compared"][0]["name"])
expect("files", ["plan.toml"] * 2, [os.path.basename(one["file"]) for one in told["compared"]])
gsel("mesh", "plan.toml", "-n", "8")
open("named.toml", "w").write('[mesh]\ndata = 8\n[strategy.data]\nplugin = "ddp"\n[train]\nbatch = 64\nrecompute = "h0.attn"\n')
text, told = both("plan", *planned, "--compare", "named.toml")
expect("a note of named layers", 1, len(told["model"]["notes"]))
if "note: " + told["model"]["notes"][0] not in text or "names layers; the forecast computes all" not in text:
    fault("gsel plan --compare", "a note of named layers", text)
text, told = both("plan", "--rows", f"{SOURCE}/tests/data/plan/rows.tsv")
keys("plan --rows", "rows sources", told)
for source in told["sources"]:
    if source["source"] not in text:
        fault("gsel plan --rows", f"{source['source']} in it", text)

row = "GPT\t24\t2048\t8192\t16\t2048\t51200\t8\t1\t8\tH100-SXM\t8\t1\t1\titeration_s\t1\n"
open("own.tsv", "w").write("model\tlayers\thidden\tffn\theads\tseq\tvocab\tgbs\tmbs\tgpus\tgpu\tdp\ttp\tpp\tmetric\tvalue\n" + row)
text, told = both("plan", *planned, "--calibrate", "own.tsv")
if "calibrated on 1 measured row: " not in told["times"] or not text.endswith("Measured rows are those of own.tsv.\n"):
    fault("gsel plan --calibrate", "its file", text)

# ---- program ----
programs = [f"{SOURCE}/tests/data/programs/tp.{rank}" for rank in range(2)]
text, told = both("program", "--verify", *programs)
keys("program --verify", "verified ranks instructions", told)
expect("verified", f"ok: {told['ranks']} ranks, {told['instructions']} instructions\n", text)
expect("files", programs, told["verified"])
text, told = both("program", "--print", programs[0])
keys("program --print", "file instructions step text", told)
expect("canonical text", text, told["text"])
lines = text[text.index("\nstep\n") + 6:text.index("\nend")].split("\n")
expect("instructions", [line.split()[0] for line in lines], [i["instruction"] for i in told["step"]])
expect("micro-batches", [re.search(r"mb=(\d+)", line) and int(re.search(r"mb=(\d+)", line)[1]) for line in lines],
       [i.get("microbatch") for i in told["step"]])
text, told = both("program", "--traffic", programs[0])
keys("program --traffic", "file rows bytes_of_step", told)
expect("traffic", rows(text, "when")[:-1], [[str(v) for v in row.values()] for row in told["rows"]])
expect("sum of the step", told["bytes_of_step"], int(rows(text, "when")[-1][-1]))
text, told = both("program", "--placements", *programs)
keys("program --placements", "programs", told)
for number, (part, program) in enumerate(zip(text.split("\n\nrank "), told["programs"])):
    keys("a program's placements", "file about parameters values", program)
    expect("parameters", rows(part, "parameter"), [[str(v) for v in p.values()] for p in program["parameters"]])
    expect("values", rows(part, "value"), [[str(v) for v in p.values() if v is not None] for p in program["values"]])
    keys("a value", "value bytes placement here forward forward_sent backward backward_sent", program["values"][0])
    expect("rank", number, int(re.match(r"rank (\d+):", program["about"])[1]))
    if sum(v["backward_sent"] or 0 for v in program["values"]) == 0:
        fault("placements", "bytes sent backward", program["values"])
shape = ["--stages", "4", "--microbatches", "8"]
text, told = both("program", "--schedule", "1f1b", "zb-v", *shape)
keys("program --schedule", "schedules", told)
expect("makespans", [[s["schedule"], f"{s['makespan']:g}"] for s in told["schedules"]], [[row[0], row[2]] for row in rows(text, "schedule")])
expect("one schedule", told["schedules"][:1], gsel("program", "--schedule", "1f1b", *shape, "--json").json()["schedules"])

# ---- run ----
def run(*arguments, status=0):
    done = gsel("run", "--json", "end.json", *arguments, status=status)
    return done, json.load(open("end.json"))


# Rank 1 ends once the others have printed.
script = ("echo out $RANK; : > here.$RANK; case $RANK in 0) exec sleep 60 ;; "
          "1) while [ ! -e here.0 ] || [ ! -e here.2 ]; do sleep 0.01; done; kill -KILL $$ ;; esac")
done, end = run("-n", "3", "--wait", "0", "--", "sh", "-c", script, status=137)
expect("output of the ranks", ["out 0", "out 1", "out 2"], sorted(done.out.split("\n")[:-1]))
keys("run", "status exit_status reason message first_failed seconds restarts program world_size ranks", end)
expect("a job of which a rank was killed", ["failed", 137, "rank failed", 1, ["sh", "-c", script], 3],
       [end[key] for key in ("status", "exit_status", "reason", "first_failed", "program", "world_size")])
expect("what was said", f"gsel: {end['message']}", done.err.split("; ending")[0])
ranks = end["ranks"]
keys("a rank", "rank host pid exit_code signal signal_name ended seconds asked_to_end", ranks[0])
expect("how the ranks ended", [[None, 15, "SIGTERM", True], [None, 9, "SIGKILL", False]],
       [[r["exit_code"], r["signal"], r["signal_name"], r["asked_to_end"]] for r in ranks[:2]])
expect("rank 0 ended after rank 1", True, ranks[0]["ended"] > ranks[1]["ended"])
expect("order of ends", [0, 1, 2], sorted(r["ended"] for r in ranks))
expect("times of ends", sorted(ranks, key=lambda r: r["ended"]), sorted(ranks, key=lambda r: (r["seconds"], r["ended"])))
if f"(pid {ranks[1]['pid']})" not in end["message"] or end["seconds"] < ranks[0]["seconds"]:
    fault("a job's end", "pid of the rank that failed, and the longest time", end)

_, end = run("-n", "2", "--", "true")
expect("a job that completed", ["ok", 0, "completed", None, None, [0, 0]],
       [end[k] for k in ("status", "exit_status", "reason", "message", "first_failed")] + [[r["exit_code"] for r in end["ranks"]]])
# What a rank leaves on disk is there for the next start.
again = "[ $RANK = 1 ] || exit 0; test $GSEL_RESTART_COUNT = 2 || exit 7"
done, end = run("-n", "2", "--restarts", "3", "--", "sh", "-c", again)
expect("a job that was started again", ["ok", 0, 2, ["gsel: restart 1 of 3: the job is started again", "gsel: restart 2 of 3: the job is started again"]],
       [end[k] for k in ("status", "exit_status", "restarts")] + [[l for l in done.err.split("\n") if "gsel: restart " in l]])
_, end = run("-n", "2", "--restarts", "1", "--", "sh", "-c", again, status=7)
expect("a job that failed once too often", ["failed", 7, 1], [end[k] for k in ("status", "exit_status", "restarts")])
_, end = run("--restarts", "1", "--", "./nosuch", status=127)
expect("a job that cannot start", 0, end["restarts"])
_, end = run("-n", "2", "--timeout-kill", "0.2", "--", "sleep", "60", status=124)
expect("a job that took too long", ["failed", 124, "timed out", None, [15, 15]],
       [end[k] for k in ("status", "exit_status", "reason", "first_failed")] + [[r["signal"] for r in end["ranks"]]])
_, end = run("-n", "2", "--", "./nosuch", status=127)
expect("a job that did not start", ["failed", 127, "not started", []], [end[k] for k in ("status", "exit_status", "reason", "ranks")])
_, end = run("-n", "2", "--on-failure", "continue", "--", "sh", "-c", "[ $RANK = 0 ] || exit 3", status=3)
expect("a job that went on", ["rank failed", 1, [0, 3], [False, False]],
       [end["reason"], end["first_failed"], [r["exit_code"] for r in end["ranks"]], [r["asked_to_end"] for r in end["ranks"]]])
done, end = run("-n", "0", "--", "true", status=2)
expect("a job that was refused", ["error", "ARG", "GSEL_ERR_ARG", done.err], [end["status"], end["kind"], end["code"], f"gsel: {end['message']}\n"])
# The file says that the job runs while it does, and no other process finds half of it.
done, end = run("--", "sh", "-c", "cat end.json")
keys("a job that runs", " ".join(end), json.loads(done.out))
expect("a job that runs", ["running", None, []], [json.loads(done.out)[k] for k in ("status", "exit_status", "ranks")])
# Another descriptor gets the end alone.
read, write = os.pipe()
gsel("run", "--json", f"/dev/fd/{write}", "--", "true", pass_fds=[write])
os.close(write)
expect("what a descriptor gets", "ok", json.loads(os.fdopen(read).read())["status"])
gsel("run", "--json", "/nonexistent/end.json", "--", "sh", "-c", "touch started", status=2)
expect("a job whose end cannot be written", False, os.path.exists("started"))

# ---- bench, tune, trace ----
quick = ["-b", "8", "-e", "64", "-f", "8", "--iterations", "2", "--warmup", "1"]
text, told = both("bench", "allreduce", "broadcast", *quick)
keys("bench", "gsel ranks threads registered memory_bandwidth rows", told)
expect("operations, bytes, wrong", [[row[0], row[2], row[-1]] for row in rows(text, "operation")],
       [[row["operation"], str(row["bytes"]), str(row["wrong"])] for row in told["rows"]])
expect("rows as threads", [row["operation"] for row in told["rows"]],
       [row["operation"] for row in gsel("bench", "allreduce", "broadcast", *quick, "--threads", "--json").json()["rows"]])
text, told = both("bench", "broadcast", "--simulate", "hosts=40x8", "-b", "1K", "-e", "1M", "-f", "32")
keys("bench --simulate", "gsel measured worlds", told)
world = told["worlds"][0]
keys("a world", "ranks hosts ranks_of_host model rendezvous control rows", world)
keys("a model", "network latency_s bytes_per_second congestion host_latency_s host_bytes_per_second", world["model"])
keys("rendezvous", "seconds local_s root_s table_s acknowledged_s lines_s exchanges_s gloo_s levels table_bytes all_bytes line_connections gloo_bytes gloo_connections", world["rendezvous"])
keys("control", "agreement_s messages message_bytes death_s silent_s beats_per_second most_beats_per_second most_sockets", world["control"])
keys("a row", "operation bytes algorithms takes exact least", world["rows"][0])
keys("an algorithm", "name of_gsel seconds host_steps network_steps host_bytes network_bytes messages", world["rows"][0]["algorithms"][0])
shown = {one["name"]: one["name"] if one["of_gsel"] else f"({one['name']})" for one in world["rows"][0]["algorithms"]}
expect("algorithms", list(shown.values()), re.split(r"  +", text[text.index("broadcast"):].split("\n")[0])[1:-2])
expect("what calls take", [[shown[row["takes"]], shown[row["least"]]] for row in world["rows"]], [row[-2:] for row in rows(text, "broadcast")])
if "nothing is measured" not in text or told["measured"]:
    fault("gsel bench --simulate", "that nothing is measured", text)
joined = gsel("run", "-n", "2", "--", "gsel", "bench", *quick, "--joined", "--json").json()
expect("one of two ranks prints", 2, joined["ranks"])
dies = {**os.environ, "GSEL_FAULT": "kill@enter:rank=1:call=3"}
error = gsel("bench", *quick, "--json", status=2, env=dies).json()
expect("ranks that die", ["error", "PEER", "GSEL_ERR_PEER"], [error[k] for k in ("status", "kind", "code")])

told = gsel("tune", "-n", "2", "--largest", "16K", "--time", "0.00001", "-o", "tuned.toml", "--json").json()
keys("tune", "path gsel cpu worlds", told)
written = open("tuned.toml").read()
for line in [f'gsel = "{told["gsel"]}"', f'cpu = "{told["cpu"]}"', "ranks = 2"]:
    if line not in written:
        fault("tuned.toml", f"{line} in it", written)
for name, bytes_ in told["worlds"][0]["thresholds"].items():
    expect(name, str(bytes_), re.search(rf"^{name} = (\d+)$", written, re.M)[1])
for name, pairs in told["worlds"][0]["microseconds"].items():
    expect(f"times of {name}", pairs, json.loads(re.search(rf"^{name} = (.*)$", written, re.M)[1]))

# Ranks that make different calls leave a recording each.
os.mkdir("recorded")
types = "exec gsel bench allreduce --joined -b 64 -e 64 -t $([ $RANK = 0 ] && echo f32 || echo f64)"
subprocess.run(["gsel", "run", "-n", "2", "--", "sh", "-c", types], env={**os.environ, "GSEL_TRACE": os.getcwd() + "/recorded"},
               capture_output=True)
files = glob.glob("recorded/gsel-*.json")
text, told = both("trace", *files)
keys("trace", "communicators", told)
communicator = told["communicators"][0]
expect("ranks", [[str(r["rank"]), str(r["pid"])] for r in communicator["ranks"]], [row[:2] for row in rows(text, "rank  ")][:2])
if communicator["failure"] is None and not any(r["error"] for r in communicator["readers"]):
    fault("a recording", "the failure that made it", communicator)

# ---- completion, manual, refusals ----
for shell in ("bash", "zsh", "fish"):
    text, told = both("completion", shell)
    expect(f"completion {shell}", {"shell": shell, "script": text}, told)
keys("manual", "commands", gsel("manual", "tune", "--json").json())

refusals = [
    (["devices", "--inventory", "nosuch"], "IO"),
    (["resolve", "--inventory", machine("l4x4"), "--no-env", "--devices", "index:9"], "OUT_OF_RANGE"),
    (["program", "--print", "mesh.toml"], "PARSE"),
    (["program", "--verify", programs[0], programs[0]], "PROGRAM"),
    (["program", "--schedule", "1f1b"], "ARG"),
    (["mesh", "nosuch.toml"], "IO"),
    (["mesh", "mesh.toml", "--hosts", "a:8,a:8"], "DUPLICATE"),
    (["plan"], "ARG"),
    (["plan", *planned[:2], "--cluster", "8xH1000"], "ARG"),
    (["plan", "--model", "mesh.toml", "--cluster", "8xH100"], "PARSE"),
    (["plan", *planned, "--estimate", "--toml", "x.toml"], "ARG"),
    (["plan", *planned, "--estimate", "--rows", "x.tsv"], "ARG"),
    (["plan", *planned, "--fix", "pipeline=1", "--svg", "x.svg"], "ARG"),
    (["plan", "--rows", "x.tsv", "--cluster", "8xH100"], "ARG"),
    (["plan", "--rows", "x.tsv", "--calibrate", "x.tsv"], "ARG"),
    (["trace", "nosuch"], "IO"),
    (["bench", "dance"], "ARG"),
    (["bench", "--simulate", "hosts=2"], "SYNTAX"),
    (["tune", "-n", "1"], "ARG"),
    (["completion", "csh"], "ARG"),
    (["manual", "nosuch"], "ARG"),
]
for arguments, kind in refusals:
    text, error = gsel(*arguments, status=2), gsel(*arguments, "--json", status=2)
    told = error.json()
    expect(f"{error.line}: kind and code", [kind, f"GSEL_ERR_{kind}"], [told["kind"], told["code"]])
    expect(f"{error.line}: message", text.err, f"gsel: {told['message']}\n")
    expect(f"{error.line}: standard error", "", error.err)
    if kind == "OUT_OF_RANGE":
        expect(f"{error.line}: place", ["9", 7], [told["token"], told["column"]])
