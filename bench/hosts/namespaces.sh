# namespaces.sh: sourced: two hosts on one machine, as network namespaces with a cable between them. Sets `a`, `b` and the
# addresses; `on 0|1 COMMAND...` runs a command on one of them, under a host name of its own.
a=gsel-a-$$ b=gsel-b-$$ address_a=10.78.0.1 address_b=10.78.0.2
hosts=
remove_hosts() {
  for name in $hosts; do ip netns delete "$name" || echo "left: network namespace $name" >&2; done
  rm -rf "/etc/netns/$a" "/etc/netns/$b"
}
make_hosts() {
  for name in "$a" "$b"; do
    ip netns add "$name"
    hosts="$hosts $name"
    mkdir -p "/etc/netns/$name"
    printf '127.0.0.1 localhost\n%s node0\n%s node1\n' $address_a $address_b > "/etc/netns/$name/hosts"
  done
  ip link add eth0 netns "$a" type veth peer name eth0 netns "$b"
  for one in "$a $address_a" "$b $address_b"; do
    ip -n "${one% *}" address add "${one#* }/24" dev eth0
    ip -n "${one% *}" link set eth0 up
    ip -n "${one% *}" link set lo up
  done
}
on() { # NODE COMMAND...
  node=$1
  shift
  [ "$node" = 0 ] && name=$a || name=$b
  ip netns exec "$name" unshare --uts sh -c 'hostname "$0" && exec "$@"' "node$node" "$@"
}
