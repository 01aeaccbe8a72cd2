# slurm.sh: sourced: a Slurm of one node in a folder, for as long as a test runs. Only root can start one.

start_slurm() { # FOLDER: 1 where it does not come up; what to stop is in stop()
  folder=$1
  slurm_port=$((10000 + $$ % 10000))
  mkdir -p "$folder/slurm/state" "$folder/slurm/spool"
  chmod 711 "$folder" # munged and its clients reach the socket
  head -c 1024 /dev/urandom > "$folder/slurm/key"
  chmod 400 "$folder/slurm/key"
  cat > "$folder/slurm/slurm.conf" << EOT
ClusterName=gseltest
SlurmctldHost=$(hostname)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/slurm/munge.sock
CredType=cred/munge
SlurmctldPort=$slurm_port
SlurmdPort=$((slurm_port + 10000))
StateSaveLocation=$folder/slurm/state
SlurmdSpoolDir=$folder/slurm/spool
SlurmctldPidFile=$folder/slurm/slurmctld.pid
SlurmdPidFile=$folder/slurm/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
SelectType=select/cons_tres
NodeName=$(hostname) CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE State=UP
EOT
  export SLURM_CONF="$folder/slurm/slurm.conf"
  stop() { # returns once they are gone
    stopped=
    for name in slurmd slurmctld munged; do
      [ ! -s "$folder/slurm/$name.pid" ] || stopped="$stopped $(cat "$folder/slurm/$name.pid")"
    done
    for pid in $stopped; do kill "$pid" || echo "left: process $pid of Slurm"; done
    for turn in $(seq 100); do
      left=
      for pid in $stopped; do if kill -0 "$pid" 2> /dev/null; then left="$left $pid"; fi; done
      [ -n "$left" ] || return 0
      sleep 0.1
    done
    echo "left: processes$left of Slurm"
  }
  munged --force --key-file="$folder/slurm/key" --socket="$folder/slurm/munge.sock" --pid-file="$folder/slurm/munged.pid" \
    --seed-file="$folder/slurm/seed" --log-file="$folder/munged.log" > "$folder/start.log" 2>&1 || return 1
  timeout 30 slurmctld >> "$folder/start.log" 2>&1 || return 1
  timeout 30 slurmd >> "$folder/start.log" 2>&1 || return 1
  for turn in $(seq 100); do
    if timeout 5 sinfo -h -o %T 2> /dev/null | grep -q idle; then return 0; fi
    sleep 0.2
  done
  return 1
}
