#!/bin/sh
# pypi_safetensors.sh GSEL CHECKPOINT...: opens the files of checkpoints with the package safetensors of PyPI, in an environment
# of its own, and compares the values (pypi_safetensors.py). Not among the tests of ctest: it needs the network. 77: the package
# cannot be installed.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv" && "$work/venv/bin/pip" -q install safetensors numpy || exit 77
for checkpoint in "$@"; do
  [ "$checkpoint" = "$1" ] || "$work/venv/bin/python" "$(dirname "$0")/pypi_safetensors.py" "$1" "$checkpoint"
done
