#!/bin/sh
# started.sh gloo|mpi_openmpi|mpi_mpich COMMAND...: a program whose ranks are those of support/started.h, or of its
# environment, as four processes on two hosts (support/hosts.sh) that communicate over this transport; those of an MPI are
# started by its launcher. Says what
# the first rank says, and what the others say where one of them fails. 77: the launcher is not here. RELAY, DELAY_MS and
# LOSS_PERCENT may name a relay for the network and what it does. With SECONDS_EACH the program has so long (300).
set -eu
transport=$1
shift
here=$(dirname "$0")
. "$here/../support/hosts.sh"
hosts_relay=${RELAY-}
case $transport in
  gloo) launcher= ;;
  mpi_openmpi) launcher=mpirun.openmpi ;;
  mpi_mpich) launcher=mpiexec.hydra ;;
  *)
    echo "started.sh: no transport $transport" >&2
    exit 2
    ;;
esac
[ -z "$launcher" ] || command -v $launcher > /dev/null || {
  echo "left out: ranks over $transport, since there is no $launcher here"
  exit 77
}
work=$(mktemp -d)
trap 'hosts_remove; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir "$work/hosts" "$work/shared"
hosts_make node0 node1 "$work/hosts" ${DELAY_MS:+"$DELAY_MS" "${LOSS_PERCENT:-0}"}
interface=eth0
[ $hosts_are = namespaces ] || interface=lo
printf '[comm]\ntransport = "%s"\n' "$transport" > "$work/config.toml"
unset GSEL_TOKEN_FILE
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
export GSEL_RENDEZVOUS="file://$work/place" GSEL_TEST_STARTED="$work/shared" GSEL_TEST_TRANSPORT=$transport GSEL_CONFIG="$work/config.toml" GSEL_INTERFACE=$interface OPENBLAS_NUM_THREADS=1
# A rank: its output in a file, and its number where no launcher has given one.
cat > "$work/rank" << RANK
#!/bin/sh
rank=\${RANK-\${OMPI_COMM_WORLD_RANK-\${PMI_RANK-}}}
[ $hosts_are = namespaces ] || export GSEL_HOST_ID=node\$((rank / 2))
exec "\$@" > "$work/out.\$rank" 2>&1
RANK
chmod +x "$work/rank"
# How launchers start their daemon on a host: [OPTIONS] HOST COMMAND...
cat > "$work/shell" << SHELL
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
exec "$hosts_enter" "\$host" sh -c "\$*"
SHELL
chmod +x "$work/shell"
[ $hosts_are = namespaces ] && list=node0:2,node1:2 || list=localhost:4

limit() { timeout -k 5 "${SECONDS_EACH:-300}" "$@"; }
one() { # RANK COMMAND...
  rank=$1
  shift
  export RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2
  limit "$hosts_enter" node$((rank / 2)) "$work/rank" "$@"
}
run_gloo() {
  others=
  for rank in 3 2 1; do
    one $rank "$@" &
    others="$others $!"
  done
  status=0
  (one 0 "$@") || status=$?
  for other in $others; do wait "$other" || status=$?; done
  return $status
}
run_mpi_openmpi() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
  limit "$hosts_enter" node0 mpirun.openmpi --oversubscribe --bind-to none -np 4 --host $list --mca plm_rsh_agent "$work/shell" \
    --mca btl_tcp_if_include $interface --mca oob_tcp_if_include $interface $(exported -x) "$work/rank" "$@"
}
run_mpi_mpich() {
  limit "$hosts_enter" node0 mpiexec.hydra -n 4 -hosts "$list" -launcher ssh -launcher-exec "$work/shell" -iface $interface \
    "$work/rank" "$@"
}
exported() { # variables of ours, each behind an option
  env | sed -n 's/^\(GSEL_[A-Z_]*\|OPENBLAS_NUM_THREADS\|ASAN_OPTIONS\|TSAN_OPTIONS\|UBSAN_OPTIONS\)=.*/'"$1"' \1/p'
}
status=0
"run_$transport" "$@" > "$work/launched" 2>&1 || status=$?
cat "$work/out.0"
[ $status = 0 ] || {
  for rank in 1 2 3; do [ ! -e "$work/out.$rank" ] || sed "s/^/[rank $rank] /" "$work/out.$rank"; done
  cat "$work/launched"
  echo "started.sh: $transport: status $status" >&2
}
exit $status
