#!/bin/sh
# python.sh BUILD: the Python file of the stage: it declares what C says, finds its library, and passes every test;
# Ctrl-C ends a call that waits; the examples compute the same on one rank and on two. With PyTorch (Debian:
# python3-torch), it trains what PyTorch trains.
. "$SOURCE/tests/install/common.sh"
tests=$SOURCE/tests/bindings/python
examples=$SOURCE/bindings/python/examples
pythondir=$(pkg-config --variable=pythondir gsel)
export PYTHONPATH="$pythondir" PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 GSEL_SOURCE="$SOURCE"
unset GSEL_LIB_DIR PYTHONUNBUFFERED # lines of ranks stay whole
python=python3
"$python" -c 'import numpy' 2> /dev/null || python=/usr/bin/python3
cd "$WORK"

include=$(pkg-config --variable=includedir gsel)
printf '#include <gsel/%s.h>\n' gsel plugin device transport > all.c
$CC -std=c99 -E -P -I"$include" all.c > declared
"$SOURCE/tests/bindings/layout.sh" "$include" "$CC" > layout
"$python" "$tests/declarations.py" "$SOURCE/lib/api/libgsel.map" layout declared

# Where the library is found: by the file's own prefix, by pkg-config, by GSEL_LIB_DIR, and by the loader, each alone.
version=$(pkg-config --modversion gsel)
mkdir alone
cp "$pythondir/gsel.py" alone
for way in "PYTHONPATH=$pythondir PKG_CONFIG_PATH=" "PYTHONPATH=$WORK/alone" \
  "PYTHONPATH=$WORK/alone PKG_CONFIG_PATH= GSEL_LIB_DIR=$STAGE_LIB" \
  "PYTHONPATH=$WORK/alone PKG_CONFIG_PATH= LD_LIBRARY_PATH=$STAGE_LIB"; do
  expect_run "version, $way" "$version" env LD_LIBRARY_PATH= $way "$python" -c 'import gsel; print(gsel.version())'
done

said=$("$python" "$examples/devices.py" cpu) || fault "devices.py failed"
case $said in *"device 0: "*) ;; *) fault "devices.py: $said" ;; esac
expect_run "two ranks of allreduce.py" "2 ranks: sum of ranks 1, of ones 2
2 ranks: sum of ranks 1, of ones 2" gsel run -n 2 -- "$python" "$examples/allreduce.py"
awk '/^```python/ { on = 1; next } /^```/ { on = 0 } on' "$SOURCE/docs/languages.md" > example.py
said=$(gsel run -n 2 -- "$python" example.py) || fault "the example of docs/languages.md failed: $said"
expect "its last lines" "broadcast on 2 ranks, about rank 1, total 1
broadcast on 2 ranks, about rank 1, total 1" "$(printf '%s\n' "$said" | grep broadcast)"
if ! "$python" -c 'import numpy' 2> /dev/null; then
  echo "left out: the other tests, no NumPy found (Debian: python3-numpy)"
  exit 0
fi
PYTHONPATH=$PYTHONPATH:$examples
passes() { # FILE: its tests pass, and none is skipped
  "$python" -X faulthandler "$tests/$1" > "$1.log" 2>&1 || { cat "$1.log"; exit 1; }
  expect "end of $1" OK "$(tail -n 1 "$1.log")"
  echo "$1: $(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$1.log") tests"
}
passes test_gsel.py
PYTHONPATH=$PYTHONPATH:$tests
for case in barrier receive train join handler; do
  said="rank 0 aborted the communicator: interrupted (communicator world.dup1)"
  case $case in join) said="joins no more" ;; handler) said=2 ;; esac
  expect_run "Ctrl-C, $case" "$said
$said" gsel run -n 2 -- "$python" -X faulthandler "$tests/interrupt.py" $case
done

cat "$SOURCE"/docs/*.md > text
train() { # RANKS
  gsel run -n "$1" --config "$examples/train_mlp.toml" -- "$python" "$examples/train_mlp.py" text 200
}
alone=$(train 1) || fault "train_mlp.py failed on one rank"
expect_run "train_mlp.py on two ranks" "$alone" train 2
# Each is the loss of one batch of pages that change, so the last one may be a hard one.
printf '%s\n' "$alone" | awk 'NR == 1 { first = least = $NF } $NF < least { least = $NF }
  END { exit !(NR == 5 && $NF < first && least > 0 && least < 0.7 * first) }' ||
  fault "train_mlp.py did not learn: $alone"

if "$python" -c 'import torch' 2> /dev/null; then
  passes test_torch.py
else
  echo "left out: test_torch.py, no PyTorch found (Debian: python3-torch)"
fi
