#!/bin/sh
# run.sh BUILD OUT [FOLDER]: saves and loads beside the disk and beside PyTorch, and the loss of a rank, as a page written
# to OUT.
set -eu
build=$1 out=$2 folder=${3:-$(dirname "$out")}
here=$(dirname "$0")
work=$(mktemp -d "$folder/checkpoint-XXXXXX") # mktemp fills in the X
trap 'rm -rf "$work"' EXIT
export GSEL_TUNING=
{
  cat <<'TEXT'
# Checkpoints and the loss of a rank

`make bench-checkpoint`: a state of 4 GiB (adamw) of one rank, saved and loaded beside plain writes and reads of as many bytes
on the same file system, and by PyTorch's distributed checkpoint; and four ranks of which one is killed in a step, on this
machine's processors.

TEXT
  echo "gsel: bench_checkpoint" >&2
  "$build/bin/bench_checkpoint" "$work" ${GIB:-4} ${ROUNDS:-5} "/usr/bin/python3 '$here/torch_checkpoint.py'"
  echo
  echo "gsel: bench_elastic" >&2
  "$build/bin/bench_elastic" 16 ${ROUNDS:-5}
  echo
  echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, Linux $(uname -r), file system $(stat -f -c %T "$work"); load $(cut -d ' ' -f 1-3 /proc/loadavg)."
} > "$work/page"
cp "$work/page" "$out"
