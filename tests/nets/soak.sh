#!/bin/sh
# soak.sh BUILD MINUTES: the nets, with a long budget and a fresh seed, one after the other; what they found.
set -u
build=$1 minutes=$2
log=$build/soak.log failed=0
nets=$(ctest --test-dir "$build" -L net -N | sed -n 's/.*: \(nets_[a-z_]*\)$/\1/p')
count=$(echo "$nets" | wc -w)
GSEL_NET_SEED=${GSEL_NET_SEED:-$(date +%s)}
GSEL_NET_SECONDS=$((minutes * 60 / count))
export GSEL_NET_SEED GSEL_NET_SECONDS
echo "gsel: $count nets, $GSEL_NET_SECONDS s each, GSEL_NET_SEED=$GSEL_NET_SEED" | tee "$log"
for net in $nets; do
  ctest --test-dir "$build" -R "^$net\$" --timeout $((GSEL_NET_SECONDS * 3 + 600)) -V >> "$log" 2>&1 && how=clean || how="with findings" failed=1
  echo "gsel: $net: $how"
done
grep -o 'found: .*\|ERROR: .*' "$log"
exit $failed
