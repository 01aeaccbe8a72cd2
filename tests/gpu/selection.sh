#!/bin/sh
# selection.sh GSEL CUDA_MASKS: on a machine with an NVIDIA driver, compares `gsel devices` with nvidia-smi -L, and then
# what gsel says of CUDA_VISIBLE_DEVICES with what the driver itself sees. Exit status 1 on a difference, 77 where there
# is no such driver.
set -eu
gsel=$1 masks=$2
result=0
"$masks" || result=$?
[ "$result" -ne 77 ] || exit 77
if command -v nvidia-smi > /dev/null; then
  listed=$(nvidia-smi -L | sed -n 's/.*(UUID: *\([^)]*\)).*/\1/p' | sort)
  # A divided card stands there as its instances, so cards are looked for anywhere in the inventory.
  saved=$(mktemp)
  trap 'rm -f "$saved"' EXIT
  "$gsel" devices --json -o "$saved"
  found=$(grep -o '"uuid": *"\(GPU\|MIG\)-[^"]*"' "$saved" | sed 's/.*"\([^"]*\)"$/\1/' | sort)
  if [ "$listed" = "$found" ]; then
    echo "gsel devices: the $(echo "$listed" | wc -l) uuids of nvidia-smi -L"
  else
    echo "nvidia-smi -L lists: $(echo $listed)"
    echo "gsel devices lists:  $(echo $found)"
    result=1
  fi
fi
exit "$result"
