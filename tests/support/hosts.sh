# hosts.sh: sourced: two hosts on one machine. A host is a process in namespaces of its own: a network with a cable to the
# other host (eth0), a host name, /dev/shm, a boot id, and an /etc/hosts that knows both. It ends with the script that made
# it, however that ends, and its namespaces with it. Where a machine does not permit this, both are the machine itself,
# whose ranks are told by GSEL_HOST_ID that they are on two. (In a user namespace files of root have no owner, and gsel
# takes no plugin from such a folder; so ranks of other users are on hosts of the second kind.)
#
#   hosts_make NAME NAME FOLDER [DELAY_MS [LOSS_PERCENT]]   makes them; files are written to FOLDER. Sets
#     hosts_are      "namespaces" or "told"          hosts_ends      the ids of the two processes
#     hosts_address  the first one's                 hosts_enter     a program: HOST COMMAND... runs it on a host
#   hosts_on NAME COMMAND...    the same
#   hosts_remove                ends them
# Delay (of each packet, in either direction) and loss are those of tc netem where the kernel has it. Elsewhere the
# cable is two TUN devices, and the program $hosts_relay (tests/hosts/relay.c) moves packets between them.
hosts_ends= hosts_are= hosts_relay_end= hosts_interface=${hosts_interface-eth0}

hosts_remove() {
  for end in $hosts_relay_end $hosts_ends; do
    { kill -TERM "$end" && wait "$end"; } 2> /dev/null || [ $? = 143 ] || echo "hosts.sh: process $end had ended before" >&2
  done
  hosts_ends= hosts_relay_end=
}

# One host; its process id in $host_end. Not 0: it is not permitted.
hosts_begin() { # NAME FOLDER
  cat /proc/sys/kernel/random/uuid > "$2/$1.boot_id"
  mkfifo "$2/$1.begun"
  setpriv --pdeathsig KILL unshare --net --uts --ipc --mount sh -c '
    hostname "$1" && mount -t sysfs sysfs /sys && mount -t tmpfs shm /dev/shm && mount --bind "$2/hosts" /etc/hosts &&
      mount --bind "$2/$1.boot_id" /proc/sys/kernel/random/boot_id && ip link set lo up || exit 1
    echo begun >&3
    exec sleep infinity 3>&-' sh "$1" "$2" 3> "$2/$1.begun" 2> "$2/$1.why" &
  host_end=$!
  read -r _ < "$2/$1.begun"
}

hosts_inside() { # NUMBER COMMAND...: in the network of a host
  inside=${hosts_ends% *}
  [ "$1" = 0 ] || inside=${hosts_ends#* }
  shift
  nsenter --target "$inside" --net "$@"
}

hosts_cable() { # FOLDER [DELAY_MS [LOSS_PERCENT]]
  if [ -n "${2-}" ] && { [ -n "${hosts_no_netem-}" ] || ! hosts_inside 0 tc qdisc add dev lo root netem delay 1ms 2> /dev/null; }; then
    mkfifo "$1/relayed"
    setpriv --pdeathsig KILL "$hosts_relay" --device "$hosts_interface" --delay "$2" --loss "${3:-0}" \
      "/proc/${hosts_ends% *}/ns/net" "/proc/${hosts_ends#* }/ns/net" > "$1/relay.out" 3> "$1/relayed" &
    hosts_relay_end=$!
    read -r _ < "$1/relayed" # it has both devices
    rm "$1/relayed"
  else
    # By their indices, networks that a test adds come before.
    ip link add "$hosts_interface" index 100 netns "${hosts_ends% *}" type veth \
      peer name "$hosts_interface" index 100 netns "${hosts_ends#* }"
    [ -z "${2-}" ] || hosts_inside 0 tc qdisc delete dev lo root
  fi
  for number in 0 1; do
    hosts_inside $number ip address add 10.77.1.$((number + 1))/24 dev "$hosts_interface"
    hosts_inside $number ip link set "$hosts_interface" up
    [ -z "${2-}" ] || [ -n "$hosts_relay_end" ] ||
      hosts_inside $number tc qdisc add dev "$hosts_interface" root netem delay "${2}ms" loss "${3:-0}%" limit 100000
  done
  # The kernel says only some time later that a cable is in.
  for number in 0 1; do
    while hosts_inside $number ip link show dev "$hosts_interface" 2> "$1/unnamed" | grep -q 'state DOWN'; do sleep 0.01; done
  done
}

hosts_make() {
  hosts_enter=$3/enter
  printf '127.0.0.1 localhost\n10.77.1.1 %s\n10.77.1.2 %s\n' "$1" "$2" > "$3/hosts"
  hosts_are=told
  if [ "$(id -u)" = 0 ] && hosts_begin "$1" "$3"; then
    hosts_ends=$host_end
    if hosts_begin "$2" "$3"; then
      hosts_ends="$hosts_ends $host_end" hosts_are=namespaces
      hosts_cable "$3" "${4-}" "${5-}"
    else
      hosts_remove
    fi
  fi
  {
    printf '#!/bin/sh\nhost=$1\nshift\ncase $host in\n'
    for name in "$1" "$2"; do
      printf '  "%s") ' "$name"
      if [ $hosts_are = told ]; then
        printf 'export GSEL_HOST_ID=%s; exec "$@" ;;\n' "$name"
      else
        [ "$name" = "$1" ] && end=${hosts_ends% *} || end=${hosts_ends#* }
        printf 'exec nsenter --target %s --net --uts --ipc --mount sh -c '\''cd "$0" 2> /dev/null; exec "$@"'\'' "$PWD" "$@" ;;\n' "$end"
      fi
    done
    printf 'esac\necho "enter: no host $host" >&2\nexit 255\n'
  } > "$hosts_enter"
  chmod +x "$hosts_enter"
  if [ $hosts_are = namespaces ]; then
    hosts_address=10.77.1.1
    echo "hosts: namespaces of their own${4:+; each packet takes $4 ms${5:+ and $5 % are lost}${hosts_relay_end:+, by a relay}}"
  else
    hosts_address=127.0.0.1
    echo "hosts: one, told apart by GSEL_HOST_ID, since namespaces are not to be had here"
  fi
}

hosts_on() { "$hosts_enter" "$@"; }
