#!/bin/sh
# test_relay.sh BIN: the relay between the hosts of tests (relay.c, support/hosts.sh): nothing is faster than it is told,
# and all that is lost is counted. BIN has relay and datagrams.
set -eu
bin=$1
. "$(dirname "$0")/../support/hosts.sh"
hosts_relay=$bin/relay
work=$(mktemp -d)
server=
clean() {
  [ -z "$server" ] || kill "$server"
  hosts_remove
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
fail() {
  echo "test_relay.sh: $*" >&2
  exit 1
}

# asks RELAY_ARGUMENTS -- N BYTES GAP_US: hosts whose cable is the relay; leaves $back, $shortest_us, $took_us and what the
# relay counted.
asks() {
  relay=
  while [ "$1" != -- ]; do relay="$relay $1" && shift; done
  shift
  rm -rf "$work/hosts"
  mkdir "$work/hosts"
  printf '#!/bin/sh\nshift 6\nexec "%s" %s "$@"\n' "$bin/relay" "$relay" > "$work/relay" # its own options instead
  chmod +x "$work/relay"
  hosts_relay=$work/relay hosts_no_netem=1
  hosts_make a b "$work/hosts" 1 > "$work/said"
  [ $hosts_are = namespaces ] || {
    cat "$work/said"
    echo "left out: a relay between two network namespaces"
    exit 77
  }
  mkfifo "$work/hosts/serving"
  "$hosts_enter" b "$bin/datagrams" serve 7000 > "$work/hosts/serving" & # a function would leave it behind
  server=$!
  read -r _ < "$work/hosts/serving"
  read -r back shortest_us took_us <<ANSWERS
$(hosts_on a "$bin/datagrams" ask 10.77.1.2 7000 "$@")
ANSWERS
  kill $server
  server=
  hosts_remove
  [ "$(wc -l < "$work/hosts/relay.out")" = 2 ] || fail "the relay said: $(cat "$work/hosts/relay.out")"
  read -r _ moved _ lost _ overflown _ waiting < "$work/hosts/relay.out"
  read -r _ moved_back _ lost_back _ overflown_back _ waiting_back <<LINE
$(sed -n 2p "$work/hosts/relay.out")
LINE
  echo "$relay: $1 datagrams of $2 bytes: $back back, shortest $shortest_us us, all $took_us us, lost $lost and $lost_back"
  [ $((overflown + overflown_back + waiting + waiting_back)) = 0 ] || fail "$(cat "$work/hosts/relay.out")"
}

asks --delay 20 -- 50 64 1000
[ "$back" = 50 ] && [ "$moved" = 50 ] && [ "$moved_back" = 50 ] || fail "all were to come back"
[ "$shortest_us" -ge 40000 ] || fail "a datagram was there and back in $shortest_us us, and takes 20 ms each way"

asks --loss 10 -- 2000 64 200
[ $((moved + lost)) = 2000 ] && [ $((moved_back + lost_back)) = "$moved" ] || fail "what was moved and lost is not all"
[ "$back" = "$moved_back" ] || fail "$back have come back, and $moved_back were handed on"
[ "$lost" -gt 0 ] && [ "$lost_back" -gt 0 ] || fail "nothing was lost in one direction"

# 100 datagrams of 1400 bytes and 28 of headers: 1.14 Mbit. The first takes its time as well.
asks --rate 4 -- 100 1400 0
[ "$back" = 100 ] || fail "all were to come back"
[ "$took_us" -ge 285600 ] || fail "1.14 Mbit took $took_us us at 4 Mbit/s"
