#!/bin/sh
# baseline_test.sh SOURCE COMPILER: baseline.sh notices each kind of change, on a copy of the headers.
set -eu
source=$1 compiler=$2
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# notices WHAT HEADER EDIT TEXT: what is said of the copy, HEADER edited by sed, has TEXT
notices() {
  rm -rf "$work/copy"
  mkdir -p "$work/copy/tests/abi"
  cp -r "$source/include" "$work/copy"
  cp -r "$source/tests/abi/baseline" "$work/copy/tests/abi"
  sed -i "$3" "$work/copy/include/$2"
  ! cmp -s "$source/include/$2" "$work/copy/include/$2" || { echo "$1: the edit changes nothing"; exit 1; }
  if said=$("$here/baseline.sh" "$work/copy" "$compiler" 2>&1); then
    echo "$1 was not noticed"
    exit 1
  fi
  case $said in *"$4"*) ;; *) printf '%s: this was said instead of "%s":\n%s\n' "$1" "$4" "$said" && exit 1 ;; esac
}

notices "a function's argument" gsel/comm.h 's/int32_t pid, gsel_trace/int64_t pid, gsel_trace/' gsel_trace_process
notices "a function that is gone" gsel/log.h '/^GSEL_API void gsel_log_set/d' "Removed"
notices "a field of another type" gsel/comm.h 's/  double timeout_s;/  float timeout_ms[2];/' gsel_comm_options
notices "a field at the end" gsel/mesh.h 's/^} gsel_mesh;/  int64_t more;\n} gsel_mesh;/' gsel_mesh
notices "a table of plugins" gsel/plugin.h 's/^} gsel_pass_api_v1;/  void (*more)(void);\n} gsel_pass_api_v1;/' gsel_pass_api_v1
notices "a constant" gsel/types.h 's/#define GSEL_BF16 10/#define GSEL_BF16 99/' "GSEL_BF16 99"
notices "a hole in a struct" gsel/mesh.h 's/^} gsel_mesh;/  int32_t more;\n  int64_t most;\n} gsel_mesh;/' padding
notices "a baseline without its line" CHANGELOG.md 's/baseline [0-9a-f]*/baseline/' "does not have"
