#!/bin/sh
# hosts.sh GSEL: `gsel run --hosts`: a job on two hosts (support/hosts.sh) that is started once, through a remote shell. It
# enters them, so that no sshd is needed (hosts_ssh.sh has one).
set -eu
gsel=$1
. "$(dirname "$0")/../support/hosts.sh"
work=$(mktemp -d)
work=$(realpath "$work")
mark=$((100000 + $$)) # of the processes that jobs start: sleep $mark
trap 'hosts_remove; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() {
  echo "hosts.sh: $*" >&2
  exit 1
}
for name in $(env | sed -n 's/^\(GSEL_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

# As sshd does, the remote shell drops our environment.
keep="PATH=$PATH HOME=$HOME"
for name in ASAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS LSAN_OPTIONS; do
  eval "[ -z \"\${$name-}\" ] || keep=\"\$keep $name=\$$name\""
done
: > "$work/before" # what is done on a host before a command; the host is $0
mkdir "$work/hosts"
hosts_make a b "$work/hosts"
cat > "$work/enter" <<ENTER
#!/bin/sh
host=\$1
shift
exec env -i $keep "$hosts_enter" "\$host" sh -c '. "$work/before" && exec "\$@"' "\$host" "\$@"
ENTER
chmod +x "$work/enter"
set --
[ $hosts_are = namespaces ] || set -- --rendezvous tcp://127.0.0.1:$((20000 + $$ % 10000))
export GSEL_RSH="$work/enter"
meet=$*
place="$* --remote-gsel $work/agent"
ln -s "$(realpath "$gsel")" "$work/agent" # under this name the agents of this test are found

# run STATUS ARGUMENTS...: leaves out and err
run() {
  expected=$1
  shift
  status=0
  # shellcheck disable=SC2086 # words
  "$gsel" run --hosts a:2,b:2 $place "$@" > "$work/out" 2> "$work/err" < "$work/in" || status=$?
  [ "$status" = "$expected" ] || fail "gsel run $*: expected status $expected, got $status: $(cat "$work/out" "$work/err")"
}
said() { # FILE PATTERN
  grep -q -- "$2" "$work/$1" || fail "expected \"$2\" in $1, got: $(cat "$work/out" "$work/err")"
}
nobody_left() { # WHEN
  turns=0
  while pgrep -f "slee[p] $mark" > "$work/left" || pgrep -f "$work/agen[t]" > "$work/left"; do
    turns=$((turns + 1))
    [ $turns -lt 200 ] || fail "$1: left behind: $(xargs -r ps -o pid,ppid,args -p < "$work/left")"
    sleep 0.05
  done
}
await() { # FILE LINES
  turns=0
  until [ -e "$1" ] && [ "$(wc -l < "$1")" -ge "$2" ]; do
    turns=$((turns + 1))
    [ $turns -lt 400 ] || fail "$2 lines in $1 have not come: $(cat "$work/out" "$work/err")"
    sleep 0.05
  done
}
: > "$work/in"
mkdir "$work/a folder"
cd "$work/a folder"

# ---- what ranks get ----
run 0 -- sh -c 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR ${GSEL_RENDEZVOUS%:*} $PWD"'
sort "$work/out" > "$work/ranks"
for line in "0/4 0/2 0" "1/4 1/2 0" "2/4 0/2 1" "3/4 1/2 1"; do
  echo "$line $hosts_address tcp://$hosts_address $work/a folder"
done | cmp - "$work/ranks" || fail "ranks found: $(cat "$work/ranks")"

# Variables and arguments come as they are, whatever is in them; those of one's own not without -x. No command line shows
# them, nor the token.
odd=$(printf 'a "b" '\''c'\''\n$(d) \\ `e`\n\n;&|* \001 \303\251')
export GSEL_ODD="$odd" NCCL_ODD="$odd" MINE="$odd" MINE_TOO=x OTHER=y
cat > "$work/show" << 'SHOW'
for text in "$GSEL_ODD" "$NCCL_ODD" "${MINE-unset}" "${MINE_TOO-unset}" "${OTHER-unset}" "${SET-unset}" "$@"; do
  printf '<%s>' "$text"
done > "$0.$RANK"
SHOW
run 0 -x 'MINE*' -x SET="s t" -- sh "$work/show" "$odd" "" "last one"
printf '<%s>' "$odd" "$odd" "$odd" x unset "s t" "$odd" "" "last one" > "$work/expected"
for rank in 0 1 2 3; do
  cmp "$work/expected" "$work/show.$rank" || fail "variables and arguments of rank $rank: $(cat "$work/show.$rank")"
done
named=$place place=$meet
run 0 -- sh -c 'tr "\0" " " < /proc/$PPID/cmdline; echo; od -An -c "$GSEL_TOKEN_FILE" | wc -l' secret-argument
place=$named
printf '%s run --agent 1 \n2\n' "$(realpath "$gsel")" > "$work/expected"
LC_ALL=C sort -u "$work/out" | cmp "$work/expected" - || fail "command lines of agents, and tokens: $(cat "$work/out")"
unset GSEL_ODD NCCL_ODD

# ---- output, input ----
run 0 --tag-output -- sh -c 'seq 1 20000; printf tail; echo bad >&2'
for rank in 0 1 2 3; do
  { seq 1 20000; echo tail; } | sed "s/^/[$rank] /" > "$work/expected"
  grep "^\[$rank\]" "$work/out" | cmp - "$work/expected" || fail "lines of rank $rank"
  said err "^\[$rank\] bad\$"
done
seq 1 100000 > "$work/in"
run 0 -- cat
cmp "$work/in" "$work/out" || fail "what rank 0 read"
run 0 -- true # which does not read it
: > "$work/in"
# shellcheck disable=SC2086
{ "$gsel" run --hosts a:2,b:2 $place -- yes 2> "$work/err" || echo $? > "$work/status"; } | head -n 1 > "$work/out"
[ "$(cat "$work/status")" = 141 ] || fail "a reader that leaves: status $(cat "$work/status")"
nobody_left "a reader that leaves"

# ---- how jobs end ----
run 3 --wait 0 --json "$work/end.json" -- sh -c "[ \$RANK = 2 ] && exit 3; exec sleep $mark"
said err "gsel: rank 2 on b (pid [0-9]*) exited with status 3; ending the other 3 ranks"
grep -q '"first_failed": 2' "$work/end.json" && grep -q '"host": "b"' "$work/end.json" || fail "$(cat "$work/end.json")"
run 137 --wait 0 -- sh -c "[ \$RANK = 3 ] && kill -9 \$\$; exec sleep $mark"
said err "gsel: rank 3 on b (pid [0-9]*) was killed by signal 9 (SIGKILL)"
run 124 --timeout-kill 0.2 -- sleep $mark
run 127 -- ./nosuch
said err "gsel: rank [02] on [ab]: cannot start ./nosuch: No such file or directory"
run 126 -- /etc/passwd
run 3 --on-failure continue -- sh -c "[ \$RANK != 1 ] || exit 3; echo went on"
[ "$(grep -c 'went on' "$work/out")" = 3 ] || fail "ranks that go on: $(cat "$work/out")"
run 0 -- sh -c "setsid sleep $mark > /dev/null 2>&1 & true"
said err "gsel: ended 2 processes that the ranks left behind on b"
nobody_left "jobs that ended"

# start ARGUMENTS...: in the background, where a shell has SIGINT ignored otherwise; its pid in $job
start() {
  rm -f "$work"/ready "$work"/status
  # shellcheck disable=SC2086
  env --default-signal=INT "$gsel" run --hosts a:2,b:2 $place "$@" > "$work/out" 2> "$work/err" < "$work/in" &
  job=$!
}
ended() { # STATUS WHEN
  status=0
  wait $job || status=$?
  [ $status = "$1" ] || fail "$2: expected status $1, got $status: $(cat "$work/out" "$work/err")"
  nobody_left "$2"
}
ignores="echo r >> '$work/ready'; while :; do sleep $mark & wait; done"
start --tag-output -- sh -c "trap : TERM; trap 'echo got it; exit 3' INT; $ignores"
await "$work/ready" 4
kill -INT $job
ended 3 "one Ctrl-C"
for rank in 0 1 2 3; do said out "\[$rank\] got it"; done
start --grace 1000 -- sh -c "trap 'echo i >> \"$work/ready\"' INT; trap 'exit 5' TERM; $ignores"
await "$work/ready" 4
kill -INT $job
await "$work/ready" 8
kill -INT $job
ended 130 "two Ctrl-C"
said err "interrupted again; ending 4 ranks"
start --grace 1000 -- sh -c "trap 'echo i >> \"$work/ready\"' INT TERM; $ignores"
await "$work/ready" 4
for so_far in 8 12 0; do
  kill -INT $job
  [ $so_far = 0 ] || await "$work/ready" $so_far
done
ended 130 "three Ctrl-C"
said err "interrupted 3 times; killing ranks 0, 1, 2, 3"
start -- sh -c "trap 'exit 4' TERM; $ignores"
await "$work/ready" 4
kill -TERM $job
ended 4 "a signal that asks to end"

# A launcher that is killed ends nobody itself: the agents do, also what ignores it and has left its session.
start --grace 0.5 -- sh -c "trap '' TERM HUP; setsid sleep $mark & $ignores"
await "$work/ready" 4
kill -9 $job
ended 137 "a launcher that is killed"
# So does an agent that is killed; its host is lost.
start --wait 0 -- sh -c "echo \$PPID >> '$work/ready'; exec sleep $mark"
await "$work/ready" 4
agent=$(sort -n "$work/ready" | sed -n 1p) # of either host
kill -9 "$agent"
ended 255 "an agent that is killed"
said err "gsel: host [ab] was lost: $work/enter was killed by signal 9"

# ---- what is refused ----
refused() { # TEXT ARGUMENTS...
  text=$1
  shift
  if "$gsel" run "$@" -- sh -c 'echo started' > "$work/out" 2> "$work/err"; then fail "gsel run $* was taken"; fi
  [ "$(grep -c '^gsel: ' "$work/err")" = 1 ] || fail "gsel run $*: not one line: $(cat "$work/err")"
  said err "$text"
  [ ! -s "$work/out" ] || fail "gsel run $*: ranks were started"
  nobody_left "gsel run $*"
}
refused 'named before' --hosts a:2,a:2
refused 'needs a slot' --hosts a:0,b:2
refused 'hosts with names are needed' --hosts 2x2
refused '5 ranks need a slot each' -n 5 --hosts a:2,b:2
refused 'is for a command that is given on each host' --hosts a:2,b:2 --nodes 2
refused '--rsh is of other hosts' --rsh ssh
refused 'host nosuch cannot be reached: .*/enter ended with status 255: enter: no host nosuch' --hosts a:2,nosuch:2
refused 'host .: the remote shell nosuch-rsh cannot be started' --hosts a:2,b:2 --rsh nosuch-rsh
refused 'host . has no gsel to run: .* ended with status 127: .*; install gsel there' --hosts a:2,b:2 --remote-gsel /nosuch/gsel
refused 'host . does not answer as gsel would: false ended with status 1' --hosts a:2,b:2 --rsh false
refused 'would read it otherwise' --hosts a:2,b:2 --remote-gsel '/a b/gsel'
refused 'no such variable is set here' --hosts a:2,b:2 -x NOSUCH
refused 'host b: 300 of its ranks: .* at most 256' --hosts a:2,b:300
printf '#!/bin/sh\necho "gsel: --agent: not expected here; see gsel run --help" >&2\nexit 2\n' > "$work/old"
# A frame of 17 bytes: protocol 1, and a version of one letter.
printf '#!/bin/sh\nprintf "Welcome!\\n\\001gsel agent\\001\\021\\0\\0\\0H\\001\\0\\0\\0\\0\\0\\0\\0\\001\\0\\0\\0\\0\\0\\0\\0x"\nexec cat\n' > "$work/other"
chmod +x "$work/old" "$work/other"
refused 'has a gsel that knows no --hosts' --hosts a:2,b:2 --remote-gsel "$work/old"
refused 'host . has gsel x, and this is gsel .*; all hosts need the same' --hosts a:2,b:2 --remote-gsel "$work/other"
mkdir "$work/gone"
printf '#!/bin/sh\nrmdir "%s" 2> "%s"\nexec "%s" "$@"\n' "$work/gone" /dev/null "$work/enter" > "$work/enter-gone"
chmod +x "$work/enter-gone"
(cd "$work/gone" && refused 'host .: .*gone, in which the job was started, is no folder here' --hosts a:2,b:2 --rsh "$work/enter-gone")
# Of many hosts 128 are called at a time; shells that never answer end with the launcher.
printf '#!/bin/sh\nexec sleep %s\n' $mark > "$work/enter-never"
chmod +x "$work/enter-never"
"$gsel" run --hosts "$(seq -s , -f h%g 140)" --rsh "$work/enter-never" -- true > "$work/out" 2> "$work/err" &
job=$!
turns=0
until [ "$(pgrep -fc "slee[p] $mark")" -ge 128 ]; do
  turns=$((turns + 1))
  [ $turns -lt 400 ] || fail "128 remote shells were not started: $(pgrep -fc "slee[p] $mark")"
  sleep 0.05
done
sleep 0.3 # for more than 128 to come, if they did
[ "$(pgrep -fc "slee[p] $mark")" = 128 ] || fail "remote shells at a time: $(pgrep -fc "slee[p] $mark")"
kill -TERM $job
wait $job || [ $? = 143 ] || fail "a launcher that still connects"
nobody_left "a launcher that still connects"
# What a shell says before the agent does no harm.
printf '#!/bin/sh\necho "Last login: today"\necho "be careful" >&2\nexec "%s" "$@"\n' "$work/enter" > "$work/enter-chatty"
chmod +x "$work/enter-chatty"
run 0 --rsh "$work/enter-chatty" -- echo here
[ "$(sort -u "$work/out")" = here ] || fail "output behind a chatty shell: $(cat "$work/out")"
said err "^b: be careful\$"

# ---- ranks that communicate ----
"$gsel" plugins | grep -q gloo || {
  echo "left out: ranks that communicate on two hosts, since this build has no transport between them (libgloo-dev)"
  exit 77
}
run 0 -- "$gsel" bench all -b 8 -e 2K -f 16 --time 0.01 --joined
rows=$(awk '/ f32 | barrier / { n += 1; wrong += $NF != 0 } END { print n, wrong + 0 }' "$work/out")
case $rows in
  "0 "* | *" "[1-9]*) fail "gsel bench on two hosts: rows and wrong ones: $rows: $(cat "$work/out")" ;;
esac
# Hosts with unequal numbers of ranks, and one host alone, whose ranks need no place to meet.
for list in a:1,b:3 b:2; do
  # shellcheck disable=SC2086
  "$gsel" run --hosts $list $place -- "$gsel" bench allreduce -b 64 -e 64 --iterations 2 --joined > "$work/out" 2>&1 ||
    fail "$list: $(cat "$work/out")"
done
run 137 -- sh -c '[ $RANK = 3 ] && (sleep 1; kill -9 $$) & exec '"$gsel"' bench allreduce -b 8 -e 8 --iterations 1000000 --joined'
said err "rank 3 .*ended without gsel_comm_free"
said err "gsel: rank 3 on b (pid [0-9]*) was killed by signal 9 (SIGKILL)"
nobody_left "ranks that communicated"

# ---- recordings of all hosts ----
# Where there are time namespaces, the clock of b is 1000 s ahead. /dev/shm is each host's own where there are network
# namespaces, so that recordings have to be brought.
folder=/dev/shm/gsel-hosts-$$
mkdir "$folder"
trap 'rm -rf "$folder" "$work"; hosts_remove' EXIT
ahead=
if [ $hosts_are = namespaces ]; then
  for host in a b; do hosts_on $host mkdir "$folder"; done
  ! unshare --time --monotonic 1000 --fork true 2> /dev/null || ahead="unshare --time --monotonic 1000 --fork --kill-child"
  [ -n "$ahead" ] || echo "left out: a host with another clock, since time namespaces are not to be had here"
  echo "[ \"\$0\" = a ] || set -- $ahead \"\$@\"" > "$work/before"
fi
calls="$gsel bench allreduce -b 8 -e 8 --iterations 1000000 --joined"
clocks() { # ERROR: of --json; what was added to times of b is right, and known to that many microseconds
  "$gsel" trace "$1" --json > "$work/trace.json" || fail "gsel trace $1: $(cat "$work/trace.json")"
  expected_us=0
  [ -z "$ahead" ] || expected_us=-1000000000
  awk -v right=$expected_us '/"clock_us"/ { n += 1; us = $2 + 0 } /"clock_error_us"/ { error = $2 + 0 }
    END { off = us - right; if (off < 0) off = -off; exit !(n == 2 && error > 0 && error < 1e5 && off <= error) }' \
    "$work/trace.json" || fail "clocks: $(grep clock "$work/trace.json")"
}
# shellcheck disable=SC2086
{
  status=0
  GSEL_TRACE=$folder GSEL_FAULT=kill@enter:rank=3:call=300 \
    "$gsel" run --wait 30 --hosts a:2,b:2 $place -- $calls > "$work/out" 2> "$work/err" || status=$?
}
[ $status = 137 ] || fail "a killed rank with recordings: status $status: $(cat "$work/out" "$work/err")"
if [ $hosts_are = namespaces ]; then ls "$folder" | grep -q '^gsel-b-[0-9]*-0.json$' || fail "recordings: $(ls "$folder")"; fi
"$gsel" trace "$folder" > "$work/out" 2> "$work/err" || fail "gsel trace: $(cat "$work/err")"
said out "^communicator world of 4 ranks"
said out "^rank 3 on [a-z0-9]* (pid [0-9]*) holds up the others: its process has ended"
said out "^3 .* ended .*#[0-9]* allreduc"
clocks "$folder"
"$gsel" trace "$folder" --svg "$work/trace.svg"

# A job that hangs, asked while it does.
export GSEL_FAULT=stop@enter:rank=3:call=300
start -- sh -c "$calls"
unset GSEL_FAULT
turns=0
until "$gsel" trace $job > "$work/out" 2> "$work/err2" &&
  grep -q "^rank 3 on [a-z0-9]* (pid [0-9]*) holds up the others: it is in " "$work/out"; do
  turns=$((turns + 1))
  [ $turns -lt 200 ] || fail "a job that hangs: $(cat "$work/out" "$work/err" "$work/err2")"
  sleep 0.05
done
said out "^communicator world of 4 ranks"
clocks $job
# The same by a rank of each host, as in a job that is started otherwise.
of_host() { awk -v host=$1 '$2 == host { print $3; exit }' "$work/out"; }
on_a=a:$(of_host a) on_b=b:$(of_host b)
turns=0
until "$gsel" trace "$on_a" "$on_b" --remote-gsel "$work/agent" > "$work/out" 2> "$work/err2" &&
  grep -q "^rank 3 on [a-z0-9]* (pid [0-9]*) holds up the others: it is in " "$work/out"; do
  turns=$((turns + 1))
  [ $turns -lt 100 ] || fail "gsel trace $on_a $on_b: $(cat "$work/out" "$work/err2")"
  sleep 0.05
done
said out "^communicator world of 4 ranks"
not_traced() { # PATTERN ARGUMENTS...
  pattern=$1
  shift
  if "$gsel" trace "$@" > "$work/out" 2> "$work/err"; then fail "gsel trace $* was taken"; fi
  said err "$pattern"
}
not_traced "^gsel: host b: process 1 has no communicator of more than one rank; expected the pid of a rank" b:1 --remote-gsel "$work/agent"
not_traced "^gsel: host a: .*no-agent.*; name the path of gsel there by --remote-gsel" "$on_a" "$on_b" --remote-gsel "$work/no-agent"
not_traced "nosuch-rsh cannot be started" "$on_a" --rsh nosuch-rsh
not_traced "^gsel: a:: nothing of that host; expected HOST:PID, HOST:FILE or HOST:FOLDER" a:
kill -TERM $job
status=0
wait $job || status=$?
[ $status = 143 ] || fail "a job that hung: expected status 143, got $status: $(cat "$work/err")"
nobody_left "a job that hung"

# A rank that is alone on its host is seen as the others are, and is named where it holds them up. While it is stopped
# its host is silent.
export GSEL_HOST_TIMEOUT=600
stopped_alone() { # HOSTS RANK: the last one, on b
  # shellcheck disable=SC2086
  GSEL_FAULT=stop@enter:rank=$2:call=100 "$gsel" run --hosts "$1" $place -- $calls > "$work/out2" 2> "$work/err" &
  job=$!
  turns=0
  until "$gsel" trace $job > "$work/out" 2> "$work/err2" &&
    grep -q "^rank $2 on [a-z0-9]* (pid [0-9]*) holds up the others: it is in " "$work/out"; do
    turns=$((turns + 1))
    [ $turns -lt 200 ] || fail "$1, a job that hangs: $(cat "$work/out" "$work/err" "$work/err2")"
    sleep 0.05
  done
  said out "^communicator world of $(($2 + 1)) ranks"
  [ "$(grep -c 'holds up' "$work/out")" = 1 ] || fail "$1: others are blamed: $(cat "$work/out")"
  ! grep -q '^missing' "$work/out" || fail "$1: $(cat "$work/out")"
  on_a=a:$(of_host a) on_b=b:$(of_host b)
}
ended_alone() {
  kill -TERM $job
  status=0
  wait $job || status=$?
  [ $status = 143 ] || fail "$1: expected status 143, got $status: $(cat "$work/err")"
  nobody_left "$1"
}
stopped_alone a:1,b:1 1
ended_alone "two hosts with one rank each"
stopped_alone a:2,b:1 2
"$gsel" trace "$on_a" "$on_b" --remote-gsel "$work/agent" > "$work/out" 2> "$work/err2" || fail "$(cat "$work/err2")"
said out "^communicator world of 3 ranks"
said out "^rank 2 on [a-z0-9]* (pid [0-9]*) holds up the others: it is in "
# One of them alone accuses nobody.
"$gsel" trace "$on_a" --remote-gsel "$work/agent" > "$work/out" 2> "$work/err2" || fail "$(cat "$work/err2")"
said out "^communicator world of 3 ranks"
said out "^missing: the recordings of [a-z0-9]* (rank 2); 2 of 3 ranks are shown, and who holds them up is not known"
! grep -q 'holds up' "$work/out" || fail "blamed without the recording of b: $(cat "$work/out")"
ended_alone "a host with one rank"
unset GSEL_HOST_TIMEOUT
# Where it dies, its recording dies with it; the failure says who it was.
rm -rf "$folder"
mkdir "$folder"
if [ $hosts_are = namespaces ]; then for host in a b; do hosts_on $host sh -c "rm -f '$folder'/*"; done; fi
status=0
# shellcheck disable=SC2086
GSEL_TRACE=$folder GSEL_FAULT=kill@enter:rank=1:call=100 \
  "$gsel" run --wait 30 --hosts a:1,b:1 $place -- $calls > "$work/out" 2> "$work/err" || status=$?
[ $status = 137 ] || fail "a killed rank, alone on its host: status $status: $(cat "$work/out" "$work/err")"
"$gsel" trace "$folder" > "$work/out" 2> "$work/err" || fail "gsel trace: $(cat "$work/err")"
said out "^communicator world of 2 ranks"
said out "^broken: rank 1 .*ended without gsel_comm_free"
said out "^missing: the recordings of [a-z0-9]* (rank 1); 1 of 2 ranks are shown\$"
! grep -q 'holds up' "$work/out" || fail "blamed without the recording of b: $(cat "$work/out")"
nobody_left "hosts with one rank each"
