"""torch_checkpoint.py: saves and loads with PyTorch's distributed checkpoint what bench_checkpoint saves: three f32 tensors
of ELEMS elements (a parameter and the states of adamw), on one rank, in one file that is synced. The load is into tensors
that are there, of a cold cache where this process may drop it. Writes one line: seconds of the save, seconds of the load,
PyTorch's version; or "not installed".

    torch_checkpoint.py FOLDER ELEMS
"""
import contextlib
import dataclasses
import functools
import importlib
import os
import shutil
import sys
import time


def find():
    """(torch, its module of distributed checkpoints), which versions before 2 have under another name."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None, None
    for name in ("torch.distributed.checkpoint", "torch.distributed._shard.checkpoint"):
        try:
            with hashable_dataclasses():
                return torch, importlib.import_module(name)
        except ImportError:
            pass
    return torch, None


@contextlib.contextmanager
def hashable_dataclasses():
    """PyTorch 1.13 has dataclasses as default values of others, which Python 3.11 takes only if they can be hashed."""
    plain = dataclasses.dataclass

    def hashable(cls=None, **options):
        if cls is None:
            return functools.partial(hashable, **options)
        return plain(cls, **options, unsafe_hash="__hash__" not in cls.__dict__)

    dataclasses.dataclass = hashable
    try:
        yield
    finally:
        dataclasses.dataclass = plain


def drop_cache():
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3\n")
    except OSError:
        pass


def seconds_of(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def save(checkpoint, state, path):
    writer = checkpoint.FileSystemWriter(path, single_file_per_rank=True, sync_files=True)
    checkpoint.save_state_dict(state, writer, no_dist=True)


def load(checkpoint, state, path):
    checkpoint.load_state_dict(state, checkpoint.FileSystemReader(path), no_dist=True)


def main():
    folder, elems = sys.argv[1], int(sys.argv[2])
    torch, checkpoint = find()
    if checkpoint is None:
        print("not installed")
        return
    path = os.path.join(folder, "torch")

    def state_of(count):
        return {name: torch.full((count,), value) for name, value in (("w", 1.0), ("exp_avg", 0.5), ("exp_avg_sq", 0.25))}

    small = state_of(1000)  # what is done once in a process is not measured
    save(checkpoint, small, path)
    load(checkpoint, small, path)
    shutil.rmtree(path)
    state = state_of(elems)
    saving = seconds_of(lambda: save(checkpoint, state, path))
    for tensor in state.values():
        tensor.zero_()
    drop_cache()
    loading = seconds_of(lambda: load(checkpoint, state, path))
    if [float(tensor[-1]) for tensor in state.values()] != [1.0, 0.5, 0.25]:
        sys.exit("torch_checkpoint.py: what was loaded is not what was saved")
    shutil.rmtree(path)
    print(f"{saving} {loading} {torch.__version__}")


if __name__ == "__main__":
    main()
