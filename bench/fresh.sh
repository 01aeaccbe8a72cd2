#!/bin/sh
# fresh.sh OUT: what README.md's commands take where nothing is installed: each from a clone of what is committed, on a
# Debian 12 that debootstrap has just made, so that installing counts. The sanitizers run in the system of `make test`.
# Writes a page to OUT. Needs root, debootstrap, and what apt of this machine reaches.
set -eu
out=$1
here=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "gsel: fresh.sh mounts and installs; run it as root" >&2; exit 1; }
command -v debootstrap > /dev/null || { echo "gsel: fresh.sh needs debootstrap" >&2; exit 1; }
# In a mount namespace of its own: what is mounted below is gone with this script.
[ "${GSEL_FRESH_MOUNTS:-}" ] || exec env GSEL_FRESH_MOUNTS=1 unshare --mount "$0" "$@"
work=$(mktemp -d)
# A mount that would not end is detached, and nothing outside $work is ever removed.
trap 'for m in "$work"/*/proc "$work"/*/dev "$work"/*/sys; do ! mountpoint -q "$m" || umount -l "$m"; done; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM

# system NAME: a fresh system with a clone in /srv/gsel; make is all that README.md takes for granted
system() {
  echo "gsel: making the system for $1" >&2
  debootstrap --variant=minbase --include=make bookworm "$work/$1" > "$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; }
  cp /etc/apt/apt.conf.d/* "$work/$1/etc/apt/apt.conf.d/"
  cp /etc/resolv.conf "$work/$1/etc/"
  git clone --quiet "$here" "$work/$1/srv/gsel"
  for folder in proc dev sys; do mount --rbind --make-rslave "/$folder" "$work/$1/$folder"; done
}

# measure SYSTEM COMMAND: a row of the table
measure() {
  echo "gsel: $2" >&2
  began=$(date +%s.%N)
  chroot "$work/$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "cd /srv/gsel && $2" > "$work/log" 2>&1 ||
    { tail -n 30 "$work/log" >&2; exit 1; }
  ended=$(date +%s.%N)
  awk -v c="$2" -v b="$began" -v e="$ended" 'BEGIN { printf "| `%s` | %d:%02d |", c, (e - b) / 60, int(e - b) % 60 }' >> "$work/table"
  awk '/tests passed|tests failed/ { printf " %s", $0 } /^trained [0-9]+ steps/ && !seen++ { printf " %s", $0 } END { print " |" }' "$work/log" >> "$work/table"
}

system run
measure run "make run"
system test
measure test "make test"
measure test "make asan"
measure test "make tsan"
{
  echo "# From nothing"
  echo
  echo "Made by \`bench/fresh.sh\` from $(git -C "$here" rev-parse --short HEAD): $(nproc) processors ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)), Debian 12 as debootstrap leaves it"
  echo "and make. \`make run\` and \`make test\` each had a system of their own and installed what they needed; \`make asan\` and"
  echo "\`make tsan\` built everything anew beside the latter. No compiler cache."
  echo
  echo "| command | minutes:seconds | its last word |"
  echo "|---|---|---|"
  cat "$work/table"
} > "$work/page"
cp "$work/page" "$here/$out"
