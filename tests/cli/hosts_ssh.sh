#!/bin/sh
# hosts_ssh.sh GSEL: `gsel run --hosts` through ssh itself: two hosts that are one sshd of this test on the loopback, whose
# ranks are told that they are on two. What does not depend on the remote shell is in hosts.sh.
set -eu
gsel=$(realpath "$1")
sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || {
  echo "left out: ranks on hosts that ssh reaches, since no sshd is found (openssh-server)"
  exit 77
}
command -v ssh > /dev/null && command -v ssh-keygen > /dev/null || {
  echo "left out: ranks on hosts that ssh reaches, since no ssh is found (openssh-client)"
  exit 77
}
work=$(mktemp -d)
mark=$((100000 + $$)) # of the processes that jobs start: sleep $mark
server=
clean() {
  [ -z "$server" ] || kill "$server" 2> /dev/null || echo "left: sshd has ended before"
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
fail() {
  echo "hosts_ssh.sh: $*: $(cat "$work/out" "$work/err" "$work/log")" >&2
  exit 1
}
for name in $(env | sed -n 's/^\(GSEL_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
touch "$work/out" "$work/err" "$work/log"
for key in host user other; do ssh-keygen -q -t ed25519 -N '' -f "$work/$key"; done
cp "$work/user.pub" "$work/authorized"
port=$((20000 + $$ % 10000))
cat > "$work/sshd_config" <<CONFIG
ListenAddress 127.0.0.1
Port $port
HostKey $work/host
AuthorizedKeysFile $work/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile none
AcceptEnv GSEL_HOST_ID
CONFIG
cat > "$work/ssh_config" <<CONFIG
Host a b
  HostName 127.0.0.1
  Port $port
Host a
  SetEnv GSEL_HOST_ID=a
Host b
  SetEnv GSEL_HOST_ID=b
Host closed
  HostName 127.0.0.1
  Port 1
Host *
  IdentityFile $work/user
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile $work/known
  LogLevel ERROR
CONFIG
sed "s|IdentityFile .*|IdentityFile $work/other|" "$work/ssh_config" > "$work/other_config"
if [ "$(id -u)" = 0 ]; then # sshd needs /run/sshd, which is there once it has been started as a service
  unshare -m sh -c 'mount -t tmpfs run /run && mkdir -m 755 /run/sshd && exec "$@"' sh "$sshd" -D -e -f "$work/sshd_config" \
    2> "$work/log" &
else
  "$sshd" -D -e -f "$work/sshd_config" 2> "$work/log" &
fi
server=$!
turns=0
until ssh -F "$work/ssh_config" -o BatchMode=yes a true 2> "$work/err"; do
  turns=$((turns + 1))
  if [ $turns -ge 100 ] || ! kill -0 "$server" 2> /dev/null; then
    server=
    echo "left out: ranks on hosts that ssh reaches, since sshd cannot be started here: $(tail -qn 1 "$work/log" "$work/err" | tr '\n' ' ')"
    exit 77
  fi
  sleep 0.05
done
# This machine may have no address but that of the loopback, at which no host is reached by others.
place=
[ -n "$(hostname -I | tr -d ' ')" ] || place="--rendezvous tcp://127.0.0.1:$((port + 1))"
export GSEL_RSH="ssh -F $work/ssh_config"

run() { # STATUS ARGUMENTS...
  expected=$1
  shift
  status=0
  # shellcheck disable=SC2086 # words
  "$gsel" run --hosts a:2,b:2 $place "$@" > "$work/out" 2> "$work/err" < /dev/null || status=$?
  [ "$status" = "$expected" ] || fail "gsel run $*: expected status $expected, got $status"
}
said() {
  grep -q -- "$2" "$work/$1" || fail "expected \"$2\" in $1"
}
nobody_left() {
  turns=0
  while pgrep -f "slee[p] $mark" > "$work/left"; do
    turns=$((turns + 1))
    [ $turns -lt 200 ] || fail "$1: left behind: $(xargs -r ps -o pid,ppid,args -p < "$work/left")"
    sleep 0.05
  done
}

odd=$(printf 'a "b" '\''c'\''\n$(d) \\ `e` ;&|*')
GSEL_ODD="$odd" run 0 --tag-output -- sh -c '[ "$GSEL_ODD" = "$1" ] && echo "$RANK of $WORLD_SIZE on $GSEL_HOST_ID in $PWD"' sh "$odd"
for line in "0 of 4 on a" "1 of 4 on a" "2 of 4 on b" "3 of 4 on b"; do said out "^\[${line%% *}\] $line in $PWD\$"; done
run 3 --wait 0 -- sh -c "[ \$RANK = 2 ] && exit 3; exec sleep $mark"
said err "gsel: rank 2 on b (pid [0-9]*) exited with status 3; ending the other 3 ranks"
nobody_left "a rank that fails"
# shellcheck disable=SC2086
"$gsel" run --hosts a:2,b:2 $place -- sh -c "echo r; setsid sleep $mark & exec sleep $mark" > "$work/out" 2> "$work/err" < /dev/null &
job=$!
turns=0
until [ "$(wc -l < "$work/out")" = 4 ]; do
  turns=$((turns + 1))
  [ $turns -lt 400 ] || fail "ranks have not started"
  sleep 0.05
done
kill -9 $job
wait $job || [ $? = 137 ] || fail "a launcher that is killed"
nobody_left "a launcher that is killed"

refused() { # TEXT ARGUMENTS...
  text=$1
  shift
  if "$gsel" run "$@" -- true > "$work/out" 2> "$work/err"; then fail "gsel run $* was taken"; fi
  said err "$text"
}
refused 'gsel: host nosuch.invalid cannot be reached: ssh ended with status 255: ssh: Could not resolve hostname nosuch.invalid' \
  --hosts a:2,nosuch.invalid:2
refused 'gsel: host closed cannot be reached: ssh ended with status 255: ssh: connect to host 127.0.0.1 port 1: Connection refused' \
  --hosts a:2,closed:2
refused 'gsel: host . cannot be reached: ssh ended with status 255: .*Permission denied (publickey' \
  --hosts a:2,b:2 --rsh "ssh -F $work/other_config"
refused 'gsel: host . has no gsel to run: ssh ended with status 127: .*; install gsel there' --hosts a:2,b:2 --remote-gsel /nosuch/gsel

"$gsel" plugins | grep -q gloo || {
  echo "left out: ranks that communicate, since this build has no transport between hosts (libgloo-dev)"
  exit 77
}
run 0 -- "$gsel" bench allreduce broadcast -b 8 -e 2K -f 16 --time 0.01 --joined
awk '/ f32 / { n += 1; wrong += $NF != 0 } END { exit !(n > 3 && wrong == 0) }' "$work/out" || fail "gsel bench"
