#!/bin/sh
# between_mpi_hidden.sh PROGRAM NAME LAUNCHER LIBRARY: one of three ranks finds no LIBRARY. All are told before any of them
# waits in MPI. 77: no such launcher, or nothing may be mounted over a file here.
set -eu
program=$1 name=$2 launcher=$3 library=$4 here=$(dirname "$0") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v "$launcher" > /dev/null || { echo "no $launcher here, so a hidden library is not tried"; exit 77; }
path=$(ldconfig -p | sed -n "s|.*$library .*=> ||p" | head -n 1)
unshare -m mount --bind /dev/null "$path" 2> /dev/null ||
  { echo "nothing can be mounted here, so a hidden library is not tried"; exit 77; }
cat > "$work/rank" << RANK
#!/bin/sh
case "\${OMPI_COMM_WORLD_RANK-}\${PMI_RANK-}" in
  1) exec unshare -m sh -c 'mount --bind /dev/null "$path"; exec "$program" "\$@"' rank "\$@" ;;
  *) exec "$program" "\$@" ;;
esac
RANK
chmod +x "$work/rank"
! timeout 60 "$here/between_mpi.sh" "$name" "$launcher" "$work/rank" > "$work/out" 2>&1
n=$(grep -c "rank 1.*there is no\|there is no.*$library" "$work/out" || :) # grep fails where it counts none
[ "$n" -ge 2 ] || { echo "expected that all ranks are told that rank 1 has no MPI"; cat "$work/out"; exit 1; }
