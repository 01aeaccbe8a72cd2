#!/usr/bin/python3
"""colours.py GSEL SOURCE: colours on a terminal alone, where nothing speaks against them, and wherever --color always asks
for them; the text is the same without them."""
import os
import pty
import re
import subprocess
import threading

from support import GSEL, expect, fault, gsel, machine

RED, GREEN, YELLOW, FAINT, END = "\033[31m", "\033[32m", "\033[33m", "\033[2m", "\033[0m"


def on_terminal(*arguments, **environment):
    """What standard output and standard error get when both are one terminal.

    This end of the terminal stays open till a NUL, written behind the command's end, has come through: Linux may drop what
    a terminal still holds when its last writer closes it.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen([GSEL, *arguments], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                               env={**os.environ, "TERM": "xterm", **environment})

    def mark_end():
        process.wait()
        os.write(theirs, b"\0")

    ending = threading.Thread(target=mark_end)
    ending.start()
    out = b""
    while not out.endswith(b"\0"):
        out += os.read(ours, 65536)
    ending.join()
    os.close(ours)
    os.close(theirs)
    return out[:-1].decode().replace("\r\n", "\n")


def plain(text):
    return re.sub("\033\\[[0-9]*m", "", text)


resolve = ["resolve", "--inventory", machine("l4x4"), "--env", "CUDA_VISIBLE_DEVICES=2,9,1", "--compat", "cuda"]
refused = ["mesh", "nosuch.toml"]
os.mkdir("plugins", 0o755)
open("plugins/broken.so", "w").write("no plugin")
path = {"GSEL_PLUGIN_PATH": os.getcwd() + "/plugins"}

# What has colours, and which.
shown = on_terminal(*resolve).split("\n")
expect("colours of the devices", [FAINT, FAINT, GREEN, FAINT], [line[:line.index("m") + 1] for line in shown[1:5]])
expect("colour of a warning", [YELLOW], [line[:len(YELLOW)] for line in shown if "warning:" in line])
expect("text beside the colours", gsel(*resolve).out, plain("\n".join(shown)))
for verdict, colour in (("usable", GREEN), ("refused", RED)):
    if f"\n{colour}{verdict}{END} " not in "\n" + on_terminal("plugins", **path):
        fault("gsel plugins", f"{verdict} in its colour", on_terminal("plugins", **path))
expect("a refusal", f"{RED}gsel:{END} ", on_terminal(*refused)[:len(RED) + 5 + len(END) + 1])
expect("text of a refusal", gsel(*refused, status=2).err, plain(on_terminal(*refused)))
if not on_terminal("run", "--", "false").startswith(f"{RED}gsel:{END} rank 0"):
    fault("gsel run", "a coloured prefix", on_terminal("run", "--", "false"))

# Where there are none.
for what, arguments, environment in (
        ("NO_COLOR", [], {"NO_COLOR": "1"}),
        ("TERM=dumb", [], {"TERM": "dumb"}),
        ("no TERM", [], {"TERM": ""}),
        ("--color never", ["--color", "never"], {}),
        ("--color=never", ["--color=never"], {}),
):
    for command in (resolve, refused, ["plugins"]):
        text = on_terminal(*command, *arguments, **environment, **path)
        expect(f"{what}: {command[0]}", plain(text), text)
if "\033" not in on_terminal(*refused, NO_COLOR=""):
    fault("an empty NO_COLOR", "colours, as https://no-color.org has it", on_terminal(*refused, NO_COLOR=""))
for command, status in ((resolve, 0), (refused, 2), (["plugins"], 0)):
    piped = gsel(*command, status=status, env={**os.environ, "TERM": "xterm"})
    expect(f"{piped.line} into a pipe", plain(piped.out + piped.err), piped.out + piped.err)
expect("--json on a terminal", gsel(*resolve, "--json").out, on_terminal(*resolve, "--json"))
on_terminal(*resolve, "-o", "written")
expect("-o on a terminal", gsel(*resolve).out, open("written").read())

# Where they are asked for.
expect("--color always into a pipe", "\n".join(shown), gsel(*resolve, "--color", "always").out)
expect("before the subcommand", "\n".join(shown), gsel("--color", "always", *resolve, env={**os.environ, "NO_COLOR": "1"}).out)
expect("a refusal of arguments", RED, gsel("mesh", "--bogus", "--color=always", status=2).err[:len(RED)])
