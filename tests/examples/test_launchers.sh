#!/bin/sh
# test_launchers.sh BIN SOURCE LAUNCHER: the GPT example under mpirun, mpiexec.hydra, torchrun or srun trains the parameters
# that `gsel run -n 4` trains, hash by hash: on one host, and on what its ranks are told to be two (GSEL_HOST_ID), where they
# meet by what the launcher says or, where it does not, by a file. 77: the launcher is not here.
set -eu
bin=$1
source=$2
launcher=$3
work=$(mktemp -d)
stop() { :; }
clean() {
  stop
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM
fail() {
  echo "test_launchers.sh: $launcher: $*" >&2
  exit 1
}
left_out() {
  echo "left out: $launcher: $*"
  exit 77
}
command -v "$launcher" > /dev/null || left_out "there is no such command"

export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 GSEL_CONFIG="$work/ddp.toml"
unset GSEL_TOKEN_FILE GSEL_RENDEZVOUS
cat "$source"/docs/*.md > "$work/text"
head -c 32 /dev/urandom > "$work/token"
chmod 600 "$work/token"
sed 's/^batch *=.*/batch = 4/' "$source/examples/gpt/strategies/ddp.toml" > "$work/ddp.toml"
two_hosts=yes
"$bin/gsel" plugins | grep -q gloo || {
  echo "left out: ranks on two hosts, since this build has no transport between them (libgloo-dev)"
  two_hosts=no
}

# What a rank runs. Two ranks are on a host, by the number that the launcher gives.
cat > "$work/rank" << EOT
#!/bin/sh
name=\$1 rank=\$2
export GSEL_HOST_ID=node\$((rank / 2))
exec "$bin/gpt" --data "$work/text" --steps 2 --quiet --json "$work/\$name.json"
EOT
chmod +x "$work/rank"
hashes() {
  sed -n 's/.*"hash": "\([0-9a-f]*\)".*/\1/p' "$work/$1.json"
}
compare() { # NAME WHAT
  [ -e "$work/$1.json" ] || fail "$2 wrote no record: $(cat "$work/$1.out")"
  [ "$(hashes one)" = "$(hashes "$1")" ] || fail "gsel run trained $(hashes one), $2 $(hashes "$1")"
  [ -z "${3-}" ] || grep -q "met the others at .*$3.*(ranks 0 and 1), .*(ranks 2 and 3)" "$work/$1.out" ||
    fail "$2 did not meet at $3: $(cat "$work/$1.out")"
  echo "$launcher: $2 trained the parameters of gsel run"
}
run() { # NAME COMMAND...
  name=$1
  shift
  timeout 100 "$@" > "$work/$name.out" 2>&1 || fail "$name: status $?: $(cat "$work/$name.out")"
}
"$bin/gsel" run -n 4 -- "$bin/gpt" --data "$work/text" --steps 2 --quiet --json "$work/one.json" > "$work/one.out" 2>&1 ||
  fail "gsel run: $(cat "$work/one.out")"
[ "$(hashes one | wc -l)" = 4 ] || fail "no hash of four ranks in $(cat "$work/one.json")"

case $launcher in
  mpirun.openmpi)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    run four mpirun.openmpi --oversubscribe -n 4 "$bin/gpt" --data "$work/text" --steps 2 --quiet --json "$work/four.json"
    compare four "one host"
    # What Open MPI does not say of itself: a manager that speaks PMIx and nothing else.
    cat > "$work/pmix" << 'EOT'
for name in $(env | sed -n 's/^\(OMPI_[A-Z_0-9a-z]*\)=.*/\1/p'); do unset "$name"; done
exec "$@"
EOT
    run pmix mpirun.openmpi --oversubscribe -n 4 sh "$work/pmix" "$bin/gpt" --data "$work/text" --steps 2 --quiet --json "$work/pmix.json"
    compare pmix "one host, known by PMIx alone,"
    if mpirun.openmpi --oversubscribe -n 2 sh -c "unset PMIX_NAMESPACE; OMPI_COMM_WORLD_LOCAL_SIZE=1 exec '$bin/gpt' --data '$work/text' --steps 1" \
      > "$work/alone" 2>&1; then fail "ranks on two hosts were taken without a place to meet"; fi
    grep -q "the launcher does not tell where rank 0 is; set GSEL_RENDEZVOUS" "$work/alone" || fail "$(cat "$work/alone")"
    [ $two_hosts = yes ] || exit 0
    export GSEL_LOG=info
    run manager mpirun.openmpi --oversubscribe -n 4 sh -c \
      "OMPI_COMM_WORLD_LOCAL_SIZE=2 exec '$work/rank' manager \$OMPI_COMM_WORLD_RANK"
    compare manager "two hosts that meet by PMIx" PMIX_NAMESPACE
    export GSEL_RENDEZVOUS="file://$work/place"
    run hosts mpirun.openmpi -x GSEL_RENDEZVOUS --oversubscribe -n 4 sh -c "exec '$work/rank' hosts \$OMPI_COMM_WORLD_RANK"
    compare hosts "two hosts" "$work/place"
    ;;
  mpiexec.hydra)
    run four mpiexec.hydra -n 4 "$bin/gpt" --data "$work/text" --steps 2 --quiet --json "$work/four.json"
    compare four "one host"
    [ $two_hosts = yes ] || exit 0
    export GSEL_LOG=info
    run hosts mpiexec.hydra -launcher fork -hosts node0,node1 -ppn 2 -n 4 sh -c "exec '$work/rank' hosts \$PMI_RANK"
    compare hosts "two hosts" PMI_FD
    # Two jobs with one place and one token: rank 0 of the first waits there, and rank 1 of the second is turned away.
    export GSEL_RENDEZVOUS="tcp://127.0.0.1:$((20000 + $$ % 10000))" GSEL_TOKEN_FILE="$work/token"
    only() { # RANK OF WHICH JOB COMMAND: the other rank of the job does not come
      exec timeout 60 mpiexec.hydra -n 2 sh -c "[ \$PMI_RANK = $1 ] || exit 0; exec '$bin/gsel' bench allreduce -b 8 -e 8 --time 0.01 --joined"
    }
    (only 0) > "$work/first.out" 2>&1 &
    first=$!
    (only 1) > "$work/second.out" 2>&1 && fail "rank 1 of the second job joined the first: $(cat "$work/second.out")"
    kill "$first"
    wait "$first" || :
    grep -q 'rank 1 on .* is of job "PMI=.*", and rank 0 on .*, of job "PMI=' "$work/second.out" || fail "$(cat "$work/second.out")"
    echo "mpiexec.hydra: two jobs at one place do not meet"
    ;;
  torchrun)
    python=$(sed -n '1s/^#!//p' "$(command -v torchrun)")
    $python -c 'import torch' 2> /dev/null || left_out "$python has no torch"
    # PyTorch 1.13 takes no default for these under Python 3.11.
    options="--redirects 1 --tee 1 --log_dir $work --no_python"
    run four torchrun --nproc_per_node 4 --master_port $((20000 + $$ % 10000)) $options "$bin/gpt" --data "$work/text" --steps 2 \
      --quiet --json "$work/four.json"
    compare four "one host"
    [ $two_hosts = yes ] || exit 0
    export GSEL_LOG=info
    agent() {
      run "$1" torchrun --nnodes 2 --node_rank "$2" --nproc_per_node 2 --master_addr 127.0.0.1 \
        --master_port $((30000 + $$ % 2000)) $options sh -c "exec '$work/rank' hosts \$RANK"
    }
    agent other 1 &
    agent hosts 0
    wait $! || fail "the second agent: $(cat "$work/other.out")"
    compare hosts "two hosts" "the store of torchrun's agent"
    ;;
  srun)
    [ "$(id -u)" = 0 ] || left_out "only root can start a Slurm of its own"
    for command in munged slurmctld slurmd; do
      command -v $command > /dev/null || left_out "there is no $command (slurm-wlm, munge)"
    done
    . "$source/tests/examples/slurm.sh"
    start_slurm "$work" || left_out "Slurm does not start here: $(tail -n 3 "$work"/*.log)"
    run four srun -n 4 "$bin/gpt" --data "$work/text" --steps 2 --quiet --json "$work/four.json"
    compare four "one host"
    [ $two_hosts = yes ] || exit 0
    export GSEL_LOG=info GSEL_TOKEN_FILE="$work/token"
    run hosts srun -n 4 sh -c "SLURM_STEP_NUM_NODES=2 exec '$work/rank' hosts \$SLURM_PROCID"
    compare hosts "two hosts" "tcp://$(hostname):"
    unset GSEL_TOKEN_FILE
    export GSEL_RENDEZVOUS=env://
    run pmi srun --mpi=pmi2 -n 4 sh -c "exec '$work/rank' pmi \$SLURM_PROCID"
    compare pmi "two hosts with --mpi=pmi2" PMI_FD
    if srun --mpi=list 2>&1 | grep -q pmix; then
      unset GSEL_RENDEZVOUS
      run pmix srun --mpi=pmix -n 4 env -u SLURM_PROCID -u SLURM_STEP_NUM_TASKS -u SLURM_NTASKS "$bin/gpt" --data "$work/text" --steps 2 \
        --quiet --json "$work/pmix.json"
      compare pmix "one host with --mpi=pmix, known by PMIx alone,"
    else
      echo "left out: srun --mpi=pmix, which this Slurm does not have"
    fi
    # The MPI that srun starts is the transport of its ranks, and an MPI that it does not start is refused on each of them.
    unset GSEL_RENDEZVOUS
    bench() { # NAME HOW TRANSPORT: what two ranks on two hosts say
      printf '[comm]\ntransport = "%s"\n' "$3" > "$work/mpi.toml"
      GSEL_RENDEZVOUS=${place-"file://$work/place"} GSEL_CONFIG="$work/mpi.toml" timeout 100 srun --mpi="$2" -n 2 sh -c \
        "GSEL_HOST_ID=\$SLURM_PROCID exec '$bin/gsel' bench allreduce -b 8K -e 8K --time 0.01 --joined" > "$work/$1.out" 2>&1
    }
    takes() { # HOW TRANSPORT IMPLEMENTATION
      bench takes "$1" "$2" || fail "transport $2 with --mpi=$1: $(cat "$work/takes.out")"
      started=$(sed -n 's/.*, initialised here: \(.*\), threads .*/\1/p' "$work/takes.out" | sort | uniq -c | tr -s ' ' | sed 's/^ //')
      [ "$started" = "$3" ] || fail "transport $2 with --mpi=$1 started \"$started\", not \"$3\": $(cat "$work/takes.out")"
      echo "srun: --mpi=$1 and transport $2: ${3:-no MPI}"
    }
    refuses() { # HOW TRANSPORT TEXT
      if bench refuses "$1" "$2"; then fail "transport $2 with --mpi=$1 was taken"; fi
      [ "$(grep -c -- "$3" "$work/refuses.out")" -ge 2 ] || fail "transport $2 with --mpi=$1: no \"$3\" of two ranks: $(cat "$work/refuses.out")"
      echo "srun: --mpi=$1 and transport $2 is refused"
    }
    takes none auto ""
    refuses none mpi "is that of the MPI whose launcher starts the ranks, and none did; .*srun --mpi=pmi2"
    if "$bin/gsel" plugins | grep -q mpi_mpich; then
      takes pmi2 mpi "2 MPICH"
      takes pmi2 auto "2 MPICH"
      (export TORCHELASTIC_RUN_ID=none && takes pmi2 auto "") # as under torchrun in a task of srun
      for transport in mpi mpi_mpich; do # Slurm answers one client in a process
        (place=env:// && refuses pmi2 $transport "the ranks have met by the process manager at PMI_FD")
      done
      (place=env:// && takes pmi2 auto "")
      refuses none mpi_mpich "task of srun (SLURM_PROCID is set), and srun gives it no PMI, .*; start it with srun --mpi=pmi2, or mpirun.mpich"
      ! srun --mpi=list 2>&1 | grep -q pmix || refuses pmix mpi_mpich "the communicator has 2 ranks and the world of MPI 1 rank; .*srun --mpi=list"
    fi
    if "$bin/gsel" plugins | grep -q mpi_openmpi; then
      for how in none pmi2; do
        refuses $how mpi_openmpi "task of srun (SLURM_PROCID is set), and srun gives it no PMIx, .*; start it with srun --mpi=pmix, or mpirun.openmpi"
      done
      if srun --mpi=list 2>&1 | grep -q pmix; then
        takes pmix mpi "2 Open MPI"
        takes pmix auto "2 Open MPI"
      fi
    fi
    echo "srun: worlds of one rank are refused by name"
    ;;
esac
