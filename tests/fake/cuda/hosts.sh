#!/bin/sh
# hosts.sh GSEL PROGRAM: ranks with a device each on two hosts, which are two network namespaces with a network
# between them, each started there by `gsel run --nodes`. Every call over nccl and through host memory gives what
# memory of the host gives; a killed rank ends the work of the others within a second. Each host has a second network
# that leads nowhere and comes first, so that NCCL takes that one unless GSEL_INTERFACE says otherwise.
set -eu
gsel=$1 program=$2
: "${GSEL_TEST_BIN:?names the build folder, where the doubles are}"
work=$(mktemp -d)
hosts=
clean() {
  for name in $hosts; do ip netns delete "$name" 2> /dev/null || echo "left: network namespace $name"; done
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
fail() {
  echo "$*" >&2
  cat "$work/0" "$work/1" >&2
  exit 1
}
"$gsel" plugins | grep -q gloo || {
  echo "left out: ranks with devices on two hosts, whose calls are compared with those of gloo (libgloo-dev)"
  exit 0
}
a=gsel-da-$$ b=gsel-db-$$
if [ "$(id -u)" != 0 ] || ! ip netns add "$a" 2> /dev/null; then
  echo "left out: ranks with devices in two network namespaces, which are not to be had here"
  exit 0
fi
hosts=$a
ip netns add "$b"
hosts="$a $b"
for name in $hosts; do ip -n "$name" link add eth0 type veth peer name blind; done
ip link add eth9 netns "$a" type veth peer name eth9 netns "$b"
for one in "$a 10.78.0.1 10.79.1.1" "$b 10.78.0.2 10.79.2.1"; do
  set -- $one
  ip -n "$1" address add "$3/24" dev eth0
  ip -n "$1" address add "$2/24" dev eth9
  for link in eth0 blind eth9 lo; do ip -n "$1" link set "$link" up; done
done
head -c 32 /dev/urandom > "$work/token"
chmod 600 "$work/token"
export GSEL_TOKEN_FILE="$work/token"
export hidden= # files that are not there for the ranks
on() { # NODE COMMAND...: on a host of its own, with devices that are no other host's
  node=$1
  shift
  name=$([ "$node" = 0 ] && echo "$a" || echo "$b")
  GSEL_FAKE_CUDA_HOST=$node ip netns exec "$name" unshare --uts --mount sh -c \
    'hostname "$0" && for file in $hidden; do mount --bind /dev/null "$file"; done && exec "$@"' "node$node" "$@"
}
job() { # COMMAND...: two ranks on each host
  on 1 "$gsel" run -n 2 --nodes 2 --node-rank 1 --rendezvous tcp://10.78.0.1:29500 -- "$@" > "$work/1" 2>&1 &
  other=$!
  status=0
  on 0 "$gsel" run -n 2 --nodes 2 --node-rank 0 --rendezvous tcp://10.78.0.1:29500 -- "$@" > "$work/0" 2>&1 || status=$?
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
