#!/bin/sh
# layers_test.sh: shows that layers.sh can fail: a tree with one offence of each kind among lawful lines must give
# exactly these offences, and the same tree without them must pass.
set -eu
layers=$(dirname "$0")/layers.sh
. "$(dirname "$0")/tree.sh"
put include/gsel/good.h '#include <stdint.h>' '#include <gsel/other.h>' '/* #include "base/os.h" in a comment */'
put lib/base/os.h '#include <vector>' '#include <gsel/good.h>'
put lib/train/step.cc '#include "base/os.h"' '#include "comm/ring.h"' '#include "train/step.h"'
put lib/api/libgsel.map '    gsel_status_text;' '    gsel_comm_free;'
put lib/base/said.cc 'fail("gsel_status_text() said so");  // not gsel_status_text(1)' 'call->gsel_comm_free(x);'
put lib/train/execute/run.cc '#include "train/compile/pass.h"' '#include "train/execute/state.h"' '#include "base/os.h"'
put lib/comm/shm/engine/engine.h '#include "comm/shm/call/call.h"' '#include "comm/call/check.h"'
put lib/comm/hosts/host_transport.h '#include "comm/shm/engine/engine.h"'
put lib/select/reserve/lock.h '#include "select/resolve.h"' '#include "select/words/tokens.h"'
put lib/comm/shm/memory/family.h 'class SharedMemory;' '  class Inner;' 'class Foreign;' 'struct Family : Base {'
put lib/comm/shm/memory/shared_memory.h 'class SharedMemory final {' 'struct Breaking;' '};' 'struct Breaking' '    : Base {'
put plugins/strategy/dp/dp.c '#include <gsel/plugin.h>' '#include "dp.h"' '#include <cuda.h>'
put plugins/strategy/dp/dp.h ''
put examples/app/main.c '#include <gsel/gsel.h>' '#include "parts/part.h"'
put examples/app/parts/part.h '#include <math.h>'
put bindings/go/callbacks.c '#include "_cgo_export.h"'
mkdir -p "$work/tree/bench"
"$layers" "$work/tree" || { echo "expected no offence in a lawful tree"; exit 1; }

put include/gsel/bad.h '#include <stdint.h>' '#include <stdio.h>'
put lib/base/up.cc '#include "base/os.h"' '#include "train/step.h"'
put lib/comm/across.h '' '  #  include "select/rules.h"'
put lib/train/compile/late.cc '#include "train/compile/pass.h"' '#include "train/execute/state.h"' '#include "train/step.h"'
put lib/train/attic/late.cc '#include "train/ranks/agree.h"'
put lib/comm/call/late.h '#include "comm/request.h"' '#include "comm/call/check.h"'
put lib/comm/shm/call/late.cc '#include "comm/shm/engine/engine.h"' '#include "comm/hosts/host_transport.h"'
put lib/comm/shm/attic/late.h '#include "comm/shm/call/call.h"'
put lib/train/execute/attic/late.cc '#include "base/os.h"'
put lib/model/attic/late.h '#include <vector>'
put lib/model/attic/later.h ''
put lib/select/resolve.h '#include "select/rules/rules.h"' '#include "select/reserve/lock.h"'
put lib/base/calls.cc 'return gsel_status_text(1);'
put lib/base/points.cc 'const auto text = &gsel_status_text;'
put lib/base/angles.cc '#include <vector>' '#include <train/step.h>'
put lib/device/host/loops.inc '#include "train/step.h"'
put lib/comm/shm/wait/early.h '  class Family;' 'class Engine;' 'struct Job;'
put lib/comm/shm/engine/engine.cc 'class Engine final : public Base {' '};'
put lib/train/job.h 'struct Job {'
put lib/attic/old.cc '#include "base/os.h"'
put plugins/strategy/dp/wide.c '#include <gsel/gsel.h>' '#include "base/os.h"'
put bindings/cli/inside.cc '#include "base/os.h"' '#include "../../lib/base/os.h"'
put examples/plugin/flat.c '#include <gsel/gsel.h>'
put bench/inside.c '#include <stdio.h>' '#include "os.h"'

cat > "$work/expected" <<'LIST'
bench/inside.c:2:
bindings/cli/inside.cc:1:
bindings/cli/inside.cc:2:
examples/plugin/flat.c:1:
include/gsel/bad.h:2:
lib/attic/old.cc:1:
lib/base/angles.cc:2:
lib/base/calls.cc:1:
lib/base/points.cc:1:
lib/base/up.cc:2:
lib/comm/across.h:2:
lib/comm/call/late.h:1:
lib/comm/shm/attic/late.h:1:
lib/comm/shm/call/late.cc:1:
lib/comm/shm/call/late.cc:2:
lib/comm/shm/wait/early.h:2:
lib/comm/shm/wait/early.h:3:
lib/device/host/loops.inc:1:
lib/model/attic/late.h:1:
lib/select/resolve.h:2:
lib/train/attic/late.cc:1:
lib/train/compile/late.cc:2:
lib/train/compile/late.cc:3:
lib/train/execute/attic/late.cc:1:
plugins/strategy/dp/wide.c:1:
plugins/strategy/dp/wide.c:2:
LIST
if "$layers" "$work/tree" > "$work/got"; then
  echo "expected a failure for a tree with offences, got success"
  exit 1
fi
sed 's/^\([^:]*:[0-9]*:\).*/\1/' "$work/got" | LC_ALL=C sort > "$work/places"
if ! diff "$work/expected" "$work/places"; then
  echo "offences expected (<) and found (>) differ; layers.sh said:"
  cat "$work/got"
  exit 1
fi
