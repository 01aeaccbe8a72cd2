"""names.py: every name of gsel in the tables of docs/coming-from.md, and every test in those of docs/guarantees.md, exists.

  names.py PLUGINS GSEL SOURCE BUILD CTEST     PLUGINS: the folder of plugins, whose tables of options are read
  names.py ... --broken                  the same on pages with a wrong name of each kind, each of which must be found
A name is what stands in code in the second column of coming-from.md: a call or constant of the headers, a key of gsel.toml
with a value, a command with its options, a variable of the environment, a file. What is no name stands there as plain text.
Knows nothing of other systems: whether their names exist is not tested.
"""
import ctypes
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

PLUGINS, GSEL, SOURCE, BUILD, CTEST = sys.argv[1:6]
SOURCE = Path(SOURCE)


class Fault(Exception):
    pass


def output(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.returncode, done.stdout


# ---- what there is ----
HEADERS = {path.name: path.read_text() for path in (SOURCE / "include/gsel").glob("*.h")}
WORDS = set(re.findall(r"\bgsel_\w+|\bGSEL_\w+", "\n".join(HEADERS.values())))
VARIABLES = set(re.findall(r"^\| `(GSEL_\w+)`", (SOURCE / "docs/variables.md").read_text(), re.M))
FIELDS = {name: set(re.findall(r"(\w+)(?:\)\([^;]*)?;", re.sub(r"/\*.*?\*/", "", body, flags=re.S)))
          for text in HEADERS.values() for body, name in re.findall(r"typedef struct \w+ \{(.*?)\n\} (\w+);", text, re.S)}
HELP = {}


def help_of(subcommand):
    if subcommand not in HELP:
        status, text = output(GSEL, subcommand, "--help")
        if status:
            raise Fault(f"gsel has no subcommand {subcommand}")
        HELP[subcommand] = text
    return HELP[subcommand]


class Option(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("type", ctypes.c_int32), ("name", ctypes.c_char_p), ("help", ctypes.c_char_p),
                ("minimum", ctypes.c_double), ("maximum", ctypes.c_double), ("default_text", ctypes.c_char_p)]


class Strategy(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("axes", ctypes.c_uint32), ("options", ctypes.POINTER(Option)),
                ("n_options", ctypes.c_int32), ("reserved", ctypes.c_int32), ("compile", ctypes.c_void_p)]


class Plugin(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("abi_major", ctypes.c_uint32),
                ("abi_minor", ctypes.c_uint32), ("kind", ctypes.c_int32), ("reserved2", ctypes.c_int32), ("name", ctypes.c_char_p),
                ("version", ctypes.c_char_p), ("build", ctypes.c_char_p), ("table", ctypes.POINTER(Strategy))]


def options_of_plugins():
    """{plugin: {option: type}} of every strategy, from its own table."""
    found = {}
    for path in Path(PLUGINS).glob("*.so"):
        plugin = Plugin.in_dll(ctypes.CDLL(str(path)), "gsel_plugin_v1")
        if plugin.kind == 1:
            table = plugin.table.contents
            found[plugin.name.decode()] = {table.options[i].name.decode(): table.options[i].type for i in range(table.n_options)}
    return found


OPTIONS = options_of_plugins()
AXES = ["tensor", "context", "data", "pipeline"]


# ---- one name ----
def key_and_value(key, value):
    """A key of a section that the text does not name: one of a strategy, of [train], or of [mesh]."""
    if key == "schedule" and value is not None:
        status, said = output(GSEL, "program", "--schedule", value.strip('"'), "--stages", "2", "--microbatches", "4")
        if status and f'"{value.strip(chr(34))}"' not in ("\"cosine\"", "\"linear\"", "\"wsd\""):
            raise Fault(f"no schedule of that name: {said.strip()}")
        return
    plugins = [name for name, options in OPTIONS.items() if key in options]
    if plugins:
        if value is not None:
            for name in plugins:
                fits_option(OPTIONS[name][key], key, value)
        return
    read_by_gsel("train", f"{key} = {value}" if value is not None else f'{key} = "no such value"', only_key=value is None)


def fits_option(kind, key, value):
    form = {1: r"-?[\d_]+", 2: r"-?[\d_.e-]+", 3: "true|false", 4: '".*"'}[kind]
    if not re.fullmatch(form, value):
        raise Fault(f"{key} takes no {value}")


def read_by_gsel(section, lines, only_key=False):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(f"[{section}]\n{lines}\n")
        file.flush()
        status, said = output(GSEL, "mesh", file.name, "--ranks", "8")
    if status and not (only_key and "unknown" not in said):
        raise Fault(f"gsel does not read [{section}] {lines!r}: {said.strip()}")


def configuration(section, rest):
    pairs = re.findall(r'(\w+) = ("[^"]*"|[^,\s]+)', rest)
    if ", ".join(f"{key} = {value}" for key, value in pairs) != rest:
        raise Fault(f"not of the form [section] key = value, key = value: {rest}")
    if section.startswith("strategy."):
        axis = section.split(".")[1]
        plugin = next((value.strip('"') for key, value in pairs if key == "plugin"), None)
        if axis not in AXES or plugin not in OPTIONS:
            raise Fault(f"no plugin {plugin} for axis {axis}")
        for key, value in pairs:
            if key == "plugin":
                continue
            if key not in OPTIONS[plugin]:
                raise Fault(f"plugin {plugin} has no option {key}; it has {', '.join(OPTIONS[plugin])}")
            fits_option(OPTIONS[plugin][key], key, value)
            if key == "schedule":
                key_and_value(key, value)
    read_by_gsel(section, "\n".join(f"{key} = {value}" for key, value in pairs))


def command(text):
    words = shlex.split(text)[1:]
    told = help_of(words[0])
    named = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", told))
    for word, after in zip(words[1:], words[2:] + [""]):
        if word == "--":
            break
        if word.startswith("-") and word not in named:
            raise Fault(f"gsel {words[0]} has no option {word}")
        if word in ("--compat", "--on-failure", "--pin") and not re.search(rf"(?<![\w-]){re.escape(after)}(?![\w-])", told):
            raise Fault(f"{word} of gsel {words[0]} takes no {after}")
    if words[0] == "program" and "--schedule" in words:
        status, said = output(GSEL, *words)
        if status:
            raise Fault(said.strip())


def name(text):
    if text.startswith("gsel "):
        command(text)
    elif re.match(r"\[[\w.]+\]", text):
        section, _, rest = text[1:].partition("] ")
        if rest:
            configuration(section, rest)
        else:
            read_by_gsel(section.rstrip("]"), "")
    elif re.fullmatch(r"GSEL_\w+(=\S+)?", text):
        word, _, value = text.partition("=")
        if (word not in VARIABLES) if value else (word not in WORDS | VARIABLES):
            raise Fault("neither a constant of the headers nor a variable of docs/variables.md")
    elif re.fullmatch(r"gsel_\w+\.\w+", text):
        struct, field = text.split(".")
        if field not in FIELDS.get(struct, ()):
            raise Fault("no such field" if struct in FIELDS else "no such struct")
    elif re.fullmatch(r"gsel_\w+", text):
        if text not in WORDS:
            raise Fault("not in the headers")
    elif text == "gsel.toml":
        pass
    elif re.fullmatch(r'[a-z]\w*( = ("[^"]*"|\S+))?', text):
        key, _, value = text.partition(" = ")
        key_and_value(key, value or None)
    else:
        raise Fault("of no kind that this test knows; plain text, if it is no name of gsel")


# ---- tests ----
def registered_tests():
    """Names of ctest; of tests that need a tool that is not here, those that a CMakeLists.txt has."""
    _, listed = output(CTEST, "--test-dir", BUILD, "-N")
    return set(re.findall(r"Test +#\d+: (\S+)", listed))


def source_of(test):
    folder, _, rest = test.partition("_")
    if folder == "cuda":
        folder, rest = "fake/cuda", rest
    return next((path for path in (SOURCE / "tests" / folder).glob(f"test_{rest}.c*")), None)


def is_left_out_here(test):
    folder, _, rest = test.partition("_")
    texts = [(SOURCE / "tests" / where / "CMakeLists.txt") for where in (folder, "install")]
    return any(path.exists() and re.search(rf"\((?:{folder} )?{rest}\b", path.read_text()) for path in texts)


def test_name(text, before, tests):
    """The test that later cases are of."""
    if text.startswith("make "):
        if not re.search(rf"^{text[5:]}(?:[ \w]*)?:|^[\w ]*\b{text[5:]}\b[\w ]*:", (SOURCE / "Makefile").read_text(), re.M):
            raise Fault("no target of the Makefile")
        return before
    if text in tests or is_left_out_here(text):
        return text
    source = before and source_of(before)
    if source and re.search(rf"\b{re.escape(text)}\b", source.read_text()):
        return before
    raise Fault(f"neither a test of ctest nor a case of {before}")


# ---- pages ----
def rows(text, header):
    """(line, cells) of the rows of tables whose header has this cell."""
    inside, column = False, None
    for number, line in enumerate(text.split("\n"), 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] if line.startswith("|") else []
        if not cells:
            inside = False
        elif not inside:
            inside, column = True, cells.index(header) if header in cells else None
        elif column is not None and not set(line) <= set("|- "):
            yield number, cells[column]


def check(page, text, header, look, counted):
    faults = []
    for number, cell in rows(text, header):
        spans = re.findall(r"`([^`]+)`", cell)
        if not spans and not cell.startswith(("nothing", "pass the same", "the same", "no test: ")):
            faults.append(f"{page}:{number}: neither a name nor \"nothing\": {cell!r}")
        before = None
        for span in spans:
            counted[0] += 1
            try:
                before = look(span, before)
            except Fault as fault:
                faults.append(f"{page}:{number}: `{span}`: {fault}")
    return faults


BROKEN = """| theirs | gsel | what differs |
|---|---|---|
| a | `gsel_allreduce_all` | |
| a | `GSEL_NO_SUCH_THING` | |
| a | `gsel_comm_options.patience` | |
| a | `gsel run --quickly` | |
| a | `gsel fly` | |
| a | `gsel resolve --compat mxnet` | |
| a | `[train] batches = 3` | |
| a | `[train] batch = 0` | |
| a | `[strategy.data] plugin = "zero", stages = 3` | |
| a | `[strategy.data] plugin = "fsdp"` | |
| a | `[strategy.data] plugin = "zero", stage = "three"` | |
| a | `schedule = "2f2b"` | |
| a | `prefetch_bytes` | |
| a | `GSEL_VERBOSE=1` | |
| a | `torch.compile()` | |
| a | | |
"""
BROKEN_TESTS = """| promise | condition | shown by |
|---|---|---|
| a | b | `unit_no_such_test` |
| a | b | `unit_comm` `no_such_case` |
| a | b | `make peace` |
"""


def main():
    tests = registered_tests()
    pages = [("docs/coming-from.md", "gsel", lambda span, _: name(span), BROKEN),
             ("docs/guarantees.md", "shown by", lambda span, before: test_name(span, before, tests), BROKEN_TESTS)]
    counted, wrong = [0], 0
    for page, header, look, broken in pages:
        if "--broken" in sys.argv:
            found = check(page, broken, header, look, counted)
            missed = broken.count("| a |") - len(found)
            print("\n".join(found))
            wrong += missed
            print(f"{page}: {missed} of the wrong names were taken for right ones")
        else:
            found = check(page, (SOURCE / page).read_text(), header, look, counted)
            print("\n".join(found))
            wrong += len(found)
    print(f"{counted[0]} names")
    sys.exit(1 if wrong or (counted[0] < 300 and "--broken" not in sys.argv) else 0)


if __name__ == "__main__":
    main()
