#!/bin/sh
# hosts.sh GSEL PROGRAM: ranks with a device each on two hosts in namespaces (support/hosts.sh), each started there by
# `gsel run --nodes`. Every call over nccl and through host memory gives what
# memory of the host gives; a killed rank ends the work of the others within a second. Each host has a second network
# that leads nowhere and comes first, so that NCCL takes that one unless GSEL_INTERFACE says otherwise.
set -eu
gsel=$1 program=$2
: "${GSEL_TEST_BIN:?names the build folder, where the doubles are}"
hosts_interface=eth9
. "$(dirname "$0")/../../support/hosts.sh"
work=$(mktemp -d)
trap 'hosts_remove; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() {
  echo "$*" >&2
  cat "$work/0" "$work/1" >&2
  exit 1
}
"$gsel" plugins | grep -q gloo || {
  echo "left out: ranks with devices on two hosts, whose calls are compared with those of gloo (libgloo-dev)"
  exit 77
}
hosts_make node0 node1 "$work"
[ $hosts_are = namespaces ] || {
  echo "left out: ranks with devices in two network namespaces"
  exit 77
}
for number in 0 1; do
  hosts_inside $number ip link add eth0 type veth peer name blind
  hosts_inside $number ip address add 10.79.$((number + 1)).1/24 dev eth0
  for link in eth0 blind; do hosts_inside $number ip link set $link up; done
done
head -c 32 /dev/urandom > "$work/token"
chmod 600 "$work/token"
export GSEL_TOKEN_FILE="$work/token"
export hidden= # files that are not there for the ranks
on() { # NODE COMMAND...: on a host of its own, with devices that are no other host's
  node=$1
  shift
  GSEL_FAKE_CUDA_HOST=$node hosts_on "node$node" unshare --mount sh -c \
    'for file in $hidden; do mount --bind /dev/null "$file"; done && exec "$@"' sh "$@"
}
job() { # COMMAND...: two ranks on each host
  on 1 "$gsel" run -n 2 --nodes 2 --node-rank 1 --rendezvous tcp://10.77.1.1:29500 -- "$@" > "$work/1" 2>&1 &
  other=$!
  status=0
  on 0 "$gsel" run -n 2 --nodes 2 --node-rank 0 --rendezvous tcp://10.77.1.1:29500 -- "$@" > "$work/0" 2>&1 || status=$?
  wait "$other" || status=$?
}
said() { # TEXT NUMBER: so many ranks
  found=$(cat "$work/0" "$work/1" | grep -cF -- "$1") || true # none: 0
  [ "$found" = "$2" ] || fail "expected \"$1\" of $2 ranks, found $found"
}

export GSEL_INTERFACE=eth9
export NCCL_SOCKET_IFNAME=eth # admits both, and NCCL takes the first
job "$program" nccl
[ "$status" != 0 ] || fail "interfaces that contradict were taken"
said "GSEL_INTERFACE=eth9 and NCCL_SOCKET_IFNAME=eth, by which NCCL takes eth0" 4

unset NCCL_SOCKET_IFNAME
for transport in nccl host; do
  job "$program" "$transport"
  [ "$status" = 0 ] || fail "every call over $transport: status $status"
  said ": as expected" 4
done
job "$program" nccl dies
said ": as expected" 3

# Without a transport of memory of the host.
hidden=$(find "$GSEL_TEST_BIN/lib/gsel/plugins-1" -name gloo.so -o -name 'mpi_*.so')
job "$program" nccl memory
[ "$status" = 0 ] || fail "calls over nccl alone: status $status"
said ": as expected" 4
