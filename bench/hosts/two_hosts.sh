# two_hosts.sh: sourced by run.sh and direct.sh, with $build and $here set: two hosts, which are namespaces of this machine with
# a cable between them (tests/support/hosts.sh, root), and how processes are started on both. $work is a folder that goes at
# the end.
. "$here/../../tests/support/hosts.sh"
hosts_relay=$build/tests/hosts/relay
work=$(mktemp -d)
trap 'hosts_remove; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
head -c 32 /dev/urandom > "$work/token"
chmod 600 "$work/token"
export GSEL_TOKEN_FILE="$work/token" GSEL_INTERFACE=eth0

# How Open MPI starts its daemon on the other host: HOST COMMAND...
printf '#!/bin/sh\nhost=$1\nshift\nexec "%s/hosts/enter" "$host" sh -c "$*"\n' "$work" > "$work/shell"
chmod +x "$work/shell"

begin_hosts() { # [DELAY_MS]
  rm -rf "$work/hosts"
  mkdir "$work/hosts"
  hosts_make node0 node1 "$work/hosts" ${1:+"$1"}
  [ $hosts_are = namespaces ] || {
    echo "$0: this needs network namespaces (root)" >&2
    exit 1
  }
}

mpirun_on_hosts() { # RANKS_ON_A_HOST YIELDS OPTIONS...
  ranks=$1 yields=$2
  shift 2
  timeout -k 5 "${LIMIT:-120}" "$hosts_enter" node0 ${PRIORITY-} mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none \
    -np $((2 * ranks)) --host "node0:$ranks,node1:$ranks" --mca mpi_yield_when_idle "$yields" \
    --mca plm_rsh_agent "$work/shell" --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "$@"
}
