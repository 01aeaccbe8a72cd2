"""blocks.py: compiles, runs or reads every code block of README.md and docs/. Run by blocks.sh.

Each page has a folder, a shell and the order of its blocks. What becomes of a block without a mark depends on its language:
  console       run by replay.sh on recorded machines; the page must be among those of tests/docs/CMakeLists.txt
  toml          a configuration: gsel reads it, and the GPT of examples/gpt trains a step under it
  json          an inventory that gsel reads
  text          output, formulas: nothing
Marks, in a comment before the block:
  file NAME     saved under that name for sessions behind it; C is compiled with every warning as an error,
                Go is as gofmt writes it
  given DECLARATIONS     lines of C, compiled as the body of a function with these parameters
  session [fails] [sorted] [numbers] [needs TOOL]   console or sh: commands are run in the page's folder, and what they
                print is what is shown: sorted, in any order of lines; numbers, whatever digits stand there. Of a line
                "..." nothing is asked. fails: the exit status is not 0
  tuning        TOML: a tuning file, which gsel reads
  printed [sorted] [numbers] by COMMAND   text: what this command, which the page does not show, prints in the page's folder
  messages      text: each line is a message whose words are in the source, see messages.py
  shown, because REASON  sh or console, read by the shell (sh -n) and not run
GSEL_DOCS_UPDATE=1 ctest -R docs_blocks writes what commands print into the pages, and fails once more.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from document import Block, Fault, blocks
from messages import Messages

SOURCE, WORK, BUILD = (Path(os.environ[name]) for name in ("SOURCE", "WORK", "BUILD"))
UPDATE = os.environ.get("GSEL_DOCS_UPDATE") == "1"
MARKER = "blocks.py: end of command"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
known = Messages(SOURCE / folder for folder in ("lib", "plugins", "bindings/cli"))
done = Counter()
left_out = []


class Stale(Fault):
    """What is shown is not what was printed."""


def call(*command, text="", **how):
    """Exit status, and both outputs as one text."""
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True, **how)
    try:
        said, _ = started.communicate(text, timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        said, _ = started.communicate()
        raise Fault(f"{command[0]} did not end within 120 s:\n{said}") from None
    return started.returncode, said


def flags():
    return call("pkg-config", "--cflags", "gsel")[1].split()


class Page:
    def __init__(self, name):
        self.name, self.file = name, SOURCE / name
        self.folder = WORK / (Path(name).stem if name != "README.md" else "TOP")
        self.script, self.sessions = [], []  # what the page's shell is given, and the (block, command, shown) of each command
        self.folder.mkdir()
        os.symlink(SOURCE / "tests", self.folder / "tests")
        os.symlink(os.environ["TARGET"], self.folder / "target")

    def save(self, block, name):
        # A page may show a file again as it has become: each session sees the newest text before it.
        kept = self.folder / f".{block.line}"
        kept.write_text(block.text)
        self.script.append(f"mkdir -p '{os.path.dirname(name) or '.'}' && cp '{kept}' '{name}'\n")
        if name.endswith(".c"):
            compile_c(block, block.text)
        if name.endswith(".go") and shutil.which("gofmt") and call("gofmt", text=block.text) != (0, block.text):
            raise Fault(f"{block.place}: gofmt writes this otherwise:\n{call('gofmt', '-d', text=block.text)[1]}")
        done["saved, for sessions to build and run"] += 1

    def session(self, block):
        for command, shown in commands(block):
            self.command(block, command, shown)
        done["run"] += 1

    def printed(self, block):
        self.command(block, block.mark.split(" by ", 1)[1], block.lines)
        done["of text, compared with what a command prints"] += 1

    def command(self, block, command, shown):
        self.script.append(f"{command}\nprintf '%s %s\\n' '\n{MARKER}' $?\n")
        self.sessions.append((block, command, shown))

    def run(self):
        if not self.sessions:
            return
        environment = {**os.environ, "HOME": os.environ["HOME_OF_READER"]}
        _, output = call("sh", "-c", "".join(self.script), cwd=self.folder, env=environment)
        parts = re.split(rf"\n{MARKER} (\d+)\n", output)
        if len(parts) != 2 * len(self.sessions) + 1:
            raise Fault(f"{self.name}: the shell ended before the page did:\n{output}")
        faults, stale = [], {}
        for at, (block, command, shown) in enumerate(self.sessions):
            try:
                compare(block, command, shown, parts[2 * at], parts[2 * at + 1] != "0")
            except Stale as fault:
                faults.append(str(fault))
                stale.setdefault(block.line, block)
            except Fault as fault:
                faults.append(str(fault))
        for line in sorted(stale, reverse=True) if UPDATE else []:
            self.update(stale[line], [parts[2 * at] for at, session in enumerate(self.sessions) if session[0] is stale[line]])
        if faults:
            raise Fault("\n".join(faults))

    def update(self, block, outputs):
        """Writes what the commands of a block have printed into the page."""
        page = self.file.read_text().split("\n")
        shown = [[line] for line in block.lines if line.startswith("$ ")] or [[]]
        page[block.line - 1:block.line - 1 + len(block.lines)] = [
            line for command, output in zip(shown, outputs) for line in command + printed(output)]
        self.file.write_text("\n".join(page))


def printed(got):
    return [line.rstrip() for line in got.rstrip("\n").split("\n")] if got.strip() else []


def commands(block):
    """(command, lines shown) of a session: console has "$ " before commands, sh has one for each line and shows none."""
    if block.language == "sh":
        return [(block.text.rstrip("\n"), None)]
    found = []
    for line in block.lines:
        if line.startswith("$ "):
            found.append((re.sub(r"\s+#\s.*$", "", line[2:]), []))
        elif not found:
            raise Fault(f"{block.place}: output before the first command")
        else:
            found[-1][1].append(line)
    return found


def compare(block, command, shown, got, failed):
    words = block.mark.split(" by ")[0].split()
    if failed != ("fails" in words):
        raise Fault(f"{block.place}: {command}: {'failed' if failed else 'did not fail'}:\n{got}")
    if shown is None:
        return
    got = printed(got)
    want = [line.rstrip() for line in shown]
    if "numbers" in words:
        got, want = ([re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "N", line)) for line in lines] for lines in (got, want))
    if "sorted" in words:
        got, want = sorted(got), sorted(want)
    pattern = "".join("(?:.*\n)*" if line == "..." else re.escape(line) + "\n" for line in want)
    if not re.fullmatch(pattern, "".join(line + "\n" for line in got)):
        raise Stale(f"{block.place}: {command}: shown is\n" + "\n".join(want) + "\nand printed was\n" + "\n".join(got))


def compile_c(block, text):
    status, said = call(os.environ["CC"], "-x", "c", "-std=c11", "-c", "-", "-o", "/dev/null", *WARNINGS, *flags(),
                        *(["-Wno-unused"] if block.mark.startswith("given") else []), text=f'#line {block.line} "{block.page}"\n{text}')
    if status:
        raise Fault(f"{block.place}: does not compile:\n{said}")


def fragment(block):
    given = block.mark[len("given "):]
    body = f"void block({given});\nvoid block({given}) {{\n#line {block.line} \"{block.page}\"\n{block.text}}}\n"
    compile_c(block, f"#include <gsel/gsel.h>\n#include <gsel/strategies.h>\n#include <poll.h>\n#include <stdio.h>\n{body}")
    done["compiled"] += 1


def configuration(block, page):
    """gsel reads it; the GPT trains one step under it, on as many ranks as its mesh has, or on two."""
    file = page.folder / f"{block.line}.toml"
    file.write_text(block.text)
    mesh = re.search(r"^\[mesh\]\n((?:[^\[\n].*\n)*)", block.text, re.M)
    ranks = 1
    for size in re.findall(r"=\s*(\d+)", mesh[1] if mesh else ""):
        ranks *= int(size)
    ranks = max(ranks, 2)
    status, said = call("gsel", "mesh", str(file), "--ranks", str(ranks))
    if not status and (BUILD / "bin/gpt").exists():
        gpt = [str(BUILD / "bin/gpt"), "--data", str(SOURCE / "docs/strategies.md"), "--steps", "1", "--quiet"]
        sizes = ["--layers", "4", "--width", "32", "--heads", "4", "--context", "32"]
        status, said = call("gsel", "run", "-n", str(ranks), "--config", str(file), "--", *gpt, *sizes, cwd=page.folder)
        fate = "read by gsel, which trained a step under it"
    else:
        fate = "read by gsel"
        if "the training under configurations: no gpt was built" not in left_out:
            left_out.append("the training under configurations: no gpt was built")
    if status:
        raise Fault(f"{block.place}: does not work as a configuration of {ranks} ranks:\n{said}")
    done[fate] += 1


def tuning(block, page):
    """As a tuning file of this processor: a communicator of two ranks takes it without a word."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    file = page.folder / f"{block.line}.toml"
    file.write_text(re.sub(r'^cpu = "[^"]*"', f'cpu = "{model[1] if model else os.uname().machine}"', block.text, flags=re.M))
    status, said = call("gsel", "bench", "barrier", "-n", "2", env={**os.environ, "GSEL_TUNING": str(file), "GSEL_LOG": "warn"})
    if status or "tuning is not used" in said:
        raise Fault(f"{block.place}: is no tuning file:\n{said}")
    done["read by gsel"] += 1


def inventory(block, page):
    file = page.folder / f"{block.line}.json"
    file.write_text(block.text)
    status, said = call("gsel", "devices", "--inventory", str(file))
    if status:
        raise Fault(f"{block.place}: is no inventory:\n{said}")
    done["read by gsel"] += 1


def shown(block):
    text = "\n".join(command for command, _ in commands(block)) if block.language == "console" else block.text
    status, said = call("sh", "-n", text=text) if block.language in ("sh", "console") else (0, "")
    if status:
        raise Fault(f"{block.place}: is no text of a shell:\n{said}")
    done["read by the shell alone"] += 1
    print(f"not run: {block.place}: {block.mark.removeprefix('shown, because ')}")


def messages(block):
    for line in block.lines:
        unknown = known.unknown(line)
        if unknown:
            raise Fault(f"{block.place}: no message of the source has the words \"{unknown}\" of\n{line}")
    done["of text, in the words of the source"] += 1


def take(block: Block, page, replayed):
    mark, language = block.mark, block.language
    needs = re.search(r"needs (\S+)$", mark)
    if needs and not shutil.which(needs[1]):
        left_out.append(f"{block.place}: no {needs[1]} found")
    elif mark.startswith("file "):
        page.save(block, mark.split()[1])
    elif mark.startswith("given ") and language == "c":
        fragment(block)
    elif mark.startswith("session") and language in ("console", "sh"):
        page.session(block)
    elif re.match(r"printed( sorted| numbers)* by ", mark) and language == "text":
        page.printed(block)
    elif mark == "messages" and language == "text":
        messages(block)
    elif mark == "tuning":
        tuning(block, page)
    elif mark.startswith("shown, because "):
        shown(block)
    elif mark:
        raise Fault(f"{block.place}: no such mark for {language}: {mark}")
    elif language == "console" and block.page in replayed:
        done["run by replay.sh on recorded machines"] += 1
    elif language == "toml":
        configuration(block, page)
    elif language == "json":
        inventory(block, page)
    elif language == "text":
        done["of text"] += 1
    else:
        raise Fault(f"{block.place}: a block of {language} that nothing runs; give it a mark, see tests/docs/blocks.py")


def main():
    pages = ["README.md"] + sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / "docs").glob("*.md"))
    replayed = re.findall(r"(?:docs/)?[\w-]+\.md", (SOURCE / "tests/docs/CMakeLists.txt").read_text())
    faults = 0
    os.symlink(SOURCE, WORK / "gsel")
    for name in pages:
        page = Page(name)
        try:
            for block in blocks(name, (SOURCE / name).read_text()):
                try:
                    take(block, page, replayed)
                except Fault as fault:
                    faults += 1
                    print(fault)
            page.run()
        except Fault as fault:
            faults += 1
            print(fault)
    for line in left_out:
        print(f"left out: {line}")
    print(f"{sum(done.values())} blocks of {len(pages)} pages: " + "; ".join(f"{n} {what}" for what, n in sorted(done.items())))
    if faults:
        sys.exit(f"{faults} faults")


if __name__ == "__main__":
    main()
