# common.sh: what bench/gpu/run.sh and tests/gpu/run.sh share, for bash. They set `limit`, the seconds they may take from
# their start; a program that does not end when it is told to is killed 5 s later.

# bounded MOST COMMAND...: ends it after MOST seconds, or when the limit is reached; status 124 or 137 says so, and
# `given` how long it was let run.
bounded() {
  given=$((limit - SECONDS))
  [ "$1" -gt "$given" ] || given=$1
  shift
  [ "$given" -gt 0 ] || return 124
  timeout -k 5 "$given" "$@"
}

# find_in_python NAME...: libraries that the loader does not find and a Python package of NVIDIA's has, as those that
# PyTorch comes with.
find_in_python() {
  local name folder known
  known=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2> /dev/null || :)
  for name; do
    case $known in *"$name"*) continue ;; esac
    folder=$(bounded 10 "${PYTHON:-python3}" -c 'import glob, os, sys, nvidia
for package in nvidia.__path__:
    for file in glob.glob(package + "/*/lib/" + sys.argv[1] + "*"): print(os.path.dirname(file))' "$name" 2> /dev/null |
      sed -n 1p) || folder=
    [ -z "$folder" ] || export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$folder"
  done
}
