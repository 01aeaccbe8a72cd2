"""pypi_safetensors.py GSEL CHECKPOINT: what the package safetensors reads in the files of a checkpoint. Whole tensors are put
together from every rank's file by the regions of index.json, and compared bit for bit with those of the consolidated file,
and with those of the same state in 5 files."""
import itertools
import json
import os
import subprocess
import sys
import tempfile

import numpy
import safetensors
from safetensors.numpy import load_file

GSEL, GIVEN = sys.argv[1], sys.argv[2]


def gsel(*arguments):
    return json.loads(subprocess.run([GSEL, "checkpoint", *arguments, "--json"], check=True, capture_output=True).stdout)


def positions(shape, piece):
    """Offsets of a piece's elements in the whole tensor, in the order of the file."""
    intervals = piece.get("intervals") or [[] for _ in shape]
    dims = [list(itertools.chain(*(range(a, b) for a, b in of))) if of else range(n) for of, n in zip(intervals, shape)]
    grid = numpy.zeros(1, dtype=numpy.int64)
    for indices, n in zip(dims, shape):
        grid = (grid[:, None] * n + numpy.array(indices, dtype=numpy.int64)[None, :]).reshape(-1)
    begin, end = piece.get("range", (0, len(grid)))
    return grid[begin:end]


def whole_tensors(folder):
    index = json.load(open(f"{folder}/index.json"))
    files = {name: load_file(f"{folder}/{name}") for name in os.listdir(folder) if name.endswith(".safetensors")}
    shapes = {tensor["name"]: tensor["shape"] for tensor in index["tensors"]}
    whole = {name: numpy.full(int(numpy.prod(shape)), numpy.nan, dtype=numpy.float32) for name, shape in shapes.items()}
    used = set()
    for piece in index["pieces"]:
        used.add((piece["file"], piece["key"]))
        whole[piece["tensor"]][positions(shapes[piece["tensor"]], piece)] = files[piece["file"]][piece["key"]].reshape(-1)
    stored = {(name, key) for name, tensors in files.items() for key in tensors}
    assert used == stored, f"files have {sorted(stored - used)} more"
    return {name: values.reshape(shapes[name]) for name, values in whole.items()}, len(files)


def same(what, expected, got):
    assert sorted(expected) == sorted(got), f"{what}: {sorted(got)}"
    for name, values in expected.items():
        assert got[name].dtype == numpy.float32 and got[name].shape == values.shape, f"{what}: {name}"
        assert got[name].tobytes() == values.tobytes(), f"{what}: {name} has other values"


with tempfile.TemporaryDirectory() as work:
    whole, n_files = whole_tensors(gsel("inspect", GIVEN)["path"])
    gsel("consolidate", GIVEN, f"{work}/all.safetensors")
    same("all entries", whole, load_file(f"{work}/all.safetensors"))
    gsel("consolidate", GIVEN, f"{work}/params.safetensors", "--params")
    params = {name.removeprefix("param:"): values for name, values in whole.items() if name.startswith("param:")}
    same("parameters", params, load_file(f"{work}/params.safetensors"))
    with safetensors.safe_open(f"{work}/params.safetensors", framework="numpy") as opened:
        assert opened.metadata()["format"] == "pt", opened.metadata()
    same("5 files", whole, whole_tensors(gsel("reshard", GIVEN, f"{work}/divided", "--files", "5")["written"])[0])
print(f"{GIVEN}: {len(whole)} tensors in {n_files} files are the same by safetensors {safetensors.__version__}")
