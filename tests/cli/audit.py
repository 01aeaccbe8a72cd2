#!/usr/bin/python3
"""audit.py GSEL SOURCE: every subcommand, walked through the table that `gsel manual --json` prints: the options that all
have are the same everywhere and stand last, help says all of them, a name means one thing, and refusals are alike."""
from support import expect, fault, gsel

commands = {command["name"]: command for command in gsel("manual", "--json").json()["commands"]}
whole = commands.pop("")
listed = gsel("--help").out.split("Subcommands:\n")[1].split("\n\n")[0]
expect("subcommands of gsel --help", list(commands), [l.split()[0] for l in listed.split("\n") if l[2] != " "])
if len(commands) < 11:
    fault("subcommands", "11 or more", list(commands))


def common(command):
    return [option for option in command["options"] if option["common"]]


usual = common(commands["devices"])
expect("common options", [["-o", "--output"], ["--json"], ["--color"], ["-h", "--help"]], [o["names"] for o in usual])
expect("those of run, whose output is that of the ranks", [["--json"], ["--color"], ["-h", "--help"]],
       [o["names"] for o in common(commands["run"])])
expect("value of run --json", "FILE", common(commands["run"])[0]["value"])
expect("those of gsel itself", [["--version"], ["--color"], ["-h", "--help"]], [o["names"] for o in common(whole)])
expect("--color of run", usual[2], common(commands["run"])[1])

meanings, spellings = {}, {}
for name, command in commands.items():
    if name != "run":
        expect(f"common options of {name}", usual, common(command))
    options = command["options"]
    expect(f"{name}: common options stand last", sorted(options, key=lambda o: o["common"]), options)
    if command["summary"][-1] == "." or not command["summary"][0].isupper():
        fault(f"{name}: summary", "a sentence without a stop", command["summary"])
    for option in options:
        said = option["help"]
        if said[-1] != "." or "  " in said or "\n" in said:
            fault(f"{name} {option['names'][0]}: help", "one paragraph of sentences", said)
        if not option["names"][0].startswith("-"):
            continue
        long = [n for n in option["names"] if n.startswith("--")]
        short = [n for n in option["names"] if not n.startswith("--")]
        if len(long) != 1 or any(len(n) != 2 for n in short):
            fault(f"{name}: names", "one long name, short ones of a letter", option["names"])
        # One name, one meaning: numbers of ranks may be several, and the output of run is not ours.
        value = (option["value"] or "").removesuffix("...")
        # A table of measurements has rows, and so has a schedule.
        if (name, long[0]) not in (("run", "--json"), ("plan", "--rows")):
            expect(f"{name} {long[0]}: value as elsewhere", meanings.setdefault(long[0], value), value)
        for letter in short:
            expect(f"{name} {letter}: long name as elsewhere", spellings.setdefault(letter, long[0]), long[0])

for name, command in commands.items():
    helps = [gsel(name, "--help"), gsel(name, "-h")]
    expect(f"{name}: -h beside --help", helps[0].out, helps[1].out)
    expect(f"{name} --help: standard error", "", helps[0].err)
    expect(f"{name} --help: first line", f"Usage: {command['usage']}", helps[0].out.split("\n")[0])
    words = helps[0].out.replace(",", " ").split()
    for option in command["options"]:
        for spelling in option["names"] if option["names"][0].startswith("-") else [option["value"]]:
            if spelling not in words:
                fault(f"{name} --help", f"{spelling} in it", helps[0].out)
    if max(map(len, helps[0].out.split("\n"))) > 100:
        fault(f"{name} --help: widest line", "at most 100 columns", max(helps[0].out.split("\n"), key=len))

    # What is no option is refused in one line; as JSON where that is asked for.
    refused = gsel(name, "--no-such-option", status=2)
    expect(f"{refused.line}: standard output", "", refused.out)
    if not refused.err.startswith("gsel: --no-such-option") or refused.err.count("\n") != 1:
        fault(f"{refused.line}: standard error", "one line about it", refused.err)
    if f"; see gsel {name} --help" not in refused.err:
        fault(f"{refused.line}: standard error", "the name of the help", refused.err)
    if name == "run":
        refused = gsel(name, "--json", "refused.json", "--no-such-option", status=2)
        expect(f"{refused.line}: standard output", "", refused.out)
        import json
        error = json.load(open("refused.json"))
    else:
        error = gsel(name, "--json", "--no-such-option", status=2).json()
    expect(f"{name}: keys of a refusal", ["status", "kind", "code", "message", "token", "column"], list(error))
    expect(f"{name}: refusal", ["error", "ARG", "GSEL_ERR_ARG"], list(error.values())[:3])
    expect(f"{name}: message as text", refused.err if name == "run" else error["message"],
           f"gsel: {error['message']}\n" if name == "run" else error["message"])
    wrong = gsel(name, "--color", "sometimes", status=2)
    expect(f"{wrong.line}", f"gsel: --color sometimes: auto, always or never is needed; see gsel {name} --help\n", wrong.err)

    # Help comes where it is asked for, whatever else is said; of run, --json takes a file that is missing here.
    for behind in (["--color"], ["--color", "sometimes"], ["--json"], ["--no-such-option"]):
        expect(f"{name} --help {' '.join(behind)}", helps[0].out, gsel(name, "--help", *behind).out)

# A value behind = may be empty; it is not the next word. What stands behind the program of run is the program's.
empty = gsel("devices", "--color=", "never", status=2)
expect(empty.line, "gsel: --color : auto, always or never is needed; see gsel devices --help\n", empty.err)
empty = gsel("mesh", "--ranks=", "4", status=2)
expect(empty.line, gsel("mesh", "--ranks", "", "4", status=2).err, empty.err)
expect("an empty list of devices", gsel("resolve", "--devices", "", "--json", status=2).json(),
       gsel("resolve", "--devices=", "--json", status=2).json())
for dashes in ([], ["--"]):
    expect("the arguments of a program", "--color= x\n", gsel("run", "--json=", "-n", "1", *dashes, "echo", "--color=", "x").out)

# -o has what standard output has otherwise, and a refusal leaves the file alone.
for arguments in (["plugins"], ["mesh", "--ranks", "4"], ["mesh", "--ranks", "4", "--json"], ["completion", "bash"], ["manual", "run"]):
    printed = gsel(*arguments)
    written = gsel(*arguments, "--output", "written")
    expect(f"{written.line}: standard output", "", written.out)
    expect(f"{written.line}: file", printed.out, open("written").read())
before = open("written").read()
gsel("mesh", "nosuch.toml", "-o", "written", status=2)
expect("a file after a refusal", before, open("written").read())
expect("a word that is no command, as JSON", "GSEL_ERR_ARG", gsel("nosuch", "--json", status=2).json()["code"])
print(f"{len(commands)} subcommands")
