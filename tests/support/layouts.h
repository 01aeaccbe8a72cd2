/* support/layouts.h: strategies, meshes and numbers of ranks under which the exact model trains to the same bits
 * (exact_model.h): with Lion, whose state is a function of the gradient sums alone. */
#ifndef GSEL_TEST_LAYOUTS_H
#define GSEL_TEST_LAYOUTS_H

#include "support/trainer_trial.h"

#define LION "[train]\noptimizer = \"lion\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = 9\nseed = 5\n"
#define PIPELINE(n, more) "[mesh]\npipeline = " n "\n[strategy.pipeline]\nplugin = \"pp\"\n" more

struct layout {
  const char *name, *sections, *more;
  int ranks;
};
static const struct layout kLayouts[] = {
    {"one rank", "", "", 1},
    {"dp", DP("bucket_bytes = 1\n"), "", 3},
    {"ddp", DDP(""), "", 2},
    {"ddp, a bucket per parameter", DDP("bucket_bytes = 1\nfirst_bucket_bytes = 1\n"), "microbatch = 1\n", 4},
    {"zero 1", ZERO("1", ""), "", 2},
    {"zero 1, offload", ZERO("1", "bucket_bytes = 100\noffload = \"state\"\n"), "", 3},
    {"zero 2", ZERO("2", "bucket_bytes = 1\n"), "", 4},
    {"zero 3", ZERO("3", ALL_SHARDED), "", 2},
    {"zero 3, some resident", ZERO("3", "persist_elems = 13\nbucket_bytes = 1\n"), "", 3},
    {"zero 3, offload", ZERO("3", ALL_SHARDED "offload = \"all\"\n"), "", 4},
    {"pipeline", PIPELINE("2", "schedule = \"1f1b\"\n"), "microbatch = 3\n", 2},
    {"pipeline of three, gpipe", PIPELINE("3", "schedule = \"gpipe\"\n"), "microbatch = 3\n", 3},
    {"pipeline with zero 1", PIPELINE("2", "schedule = \"1f1b\"\n") ZERO("1", ""), "microbatch = 1\n", 4},
};
enum { N_LAYOUTS = sizeof kLayouts / sizeof kLayouts[0] };

static inline const char* config_of(const struct layout* layout, const char* precision) {
  static char text[1024];
  snprintf(text, sizeof text, "%s" LION "%s%s", layout->sections, layout->more, precision);
  return text;
}

#endif
