"""What the tests of the command share: it is run as people run it, and a fault says what was expected and what was met."""
import json
import os
import subprocess
import sys
import tempfile

GSEL, SOURCE = sys.argv[1], sys.argv[2]
os.environ["PATH"] = os.path.dirname(GSEL) + ":" + os.environ["PATH"]
for name in list(os.environ):
    if name.startswith("GSEL_") or name in ("NO_COLOR", "CUDA_VISIBLE_DEVICES"):
        del os.environ[name]
os.environ["GSEL_TUNING"] = ""
WORK = tempfile.TemporaryDirectory(prefix="gsel-cli-")
os.chdir(WORK.name)


def machine(name):
    return f"{SOURCE}/tests/data/inventory/{name}.json"


def fault(what, expected, got):
    sys.exit(f"{what}: expected {expected!r}, got {got!r}")


def expect(what, expected, got):
    if expected != got:
        fault(what, expected, got)


class Ended:
    def __init__(self, line, done):
        self.line, self.status, self.out, self.err = line, done.returncode, done.stdout, done.stderr

    def json(self):
        """Standard output is one JSON document and nothing else."""
        try:
            return json.loads(self.out)
        except ValueError:
            fault(f"{self.line}: standard output", "JSON", self.out)


def gsel(*arguments, status=0, **options):
    line = "gsel " + " ".join(arguments)
    done = subprocess.run([GSEL, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    if done.returncode != status:
        fault(f"{line}: exit status, after {done.stdout}{done.stderr}", status, done.returncode)
    return Ended(line, done)
