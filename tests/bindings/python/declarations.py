"""declarations.py MAP LAYOUT DECLARED: what gsel.py declares is what C says: each struct with all of its fields, each
constant, each function with its parameters, and each code of an error.
   MAP       the version map of the library
   LAYOUT    what tests/bindings/layout.sh prints
   DECLARED  the headers as the preprocessor leaves them"""
import ctypes
import re
import sys

import gsel

faults = []


def same(what, expected, got):
    if expected != got:
        faults.append(f"{what}: C has {expected}, gsel.py {got}")


exported = set(re.findall(r"^\s*(gsel_\w+);", open(sys.argv[1]).read(), re.M))
layout = dict(line.split(" ", 1) for line in open(sys.argv[2]).read().splitlines())
declared = " ".join(open(sys.argv[3]).read().split())

for name, struct in gsel._STRUCTS.items():
    same(name, layout.get(name), str(ctypes.sizeof(struct)))
    fields = {f"{name}.{field}": f"{getattr(struct, field).offset} {getattr(struct, field).size}"
              for field, _ in struct._fields_}
    same(f"fields of {name}", {key: value for key, value in layout.items() if key.startswith(name + ".")}, fields)

constants = {name: value for name, value in vars(gsel).items() if re.fullmatch("[A-Z][A-Z0-9_]*", name)}
assert len(constants) > 70, constants
for name, value in constants.items():
    same(name, layout.get("GSEL_" + name), str(value))
for number, error in gsel._CLASSES.items():
    name = "GSEL_ERR_" + re.sub("(?<=[a-z])(?=[A-Z])", "_", error.__name__[:-len("Error")]).upper()
    same(name.replace("NO_MEM", "NOMEM"), layout.get(name.replace("NO_MEM", "NOMEM")), str(number))
codes = [name for name in layout if name.startswith("GSEL_ERR_")]
same("codes", len(codes), len(gsel._CLASSES))
version = ".".join(layout["GSEL_VERSION_" + part] for part in ("MAJOR", "MINOR", "PATCH"))
same("version", version, gsel.__version__)


def letter(kind):
    kind = kind.replace("const ", "").strip()
    if "*" in kind or kind.endswith("_fn"):
        return "p"
    letters = {"gsel_str": "s", "size_t": "z", "double": "d", "uint64_t": "Q", "int64_t": "q", "uint32_t": "I"}
    return letters.get(kind, "i")


functions = gsel._FUNCTIONS.split()
assert len(functions) > 100, functions
for name, signature in zip(functions[::2], functions[1::2]):
    if name not in exported:
        faults.append(f"{name} is not in {sys.argv[1]}")
    found = re.search(r"([\w ]+\*?) ?\b" + name + r"\(([^;]*)\);", declared)
    if not found:
        faults.append(f"{name} is not in the headers")
        continue
    result = found[1].strip()
    result = {"void": "v", "const char *": "t"}.get(result) or letter(result)
    parameters = [] if found[2] == "void" else found[2].split(",")
    kinds = "".join(letter(re.sub(r"\w+$", "", parameter.strip())) for parameter in parameters)
    same(name, f"{result}({kinds})", signature)

print(*faults, sep="\n", end="\n" if faults else "")
print(f"{len(gsel._STRUCTS)} structs, {len(constants)} constants, {len(functions) // 2} functions compared")
sys.exit(bool(faults))
