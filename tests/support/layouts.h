/* support/layouts.h: strategies, meshes and numbers of ranks under which the exact model trains to the same bits
 * (exact_model.h), and more axes under which the small transformer does (small_transformer.h): with Lion, whose state
 * is a function of the gradient sums alone. */
#ifndef GSEL_TEST_LAYOUTS_H
#define GSEL_TEST_LAYOUTS_H

#include "support/trainer_trial.h"

#define LION "[train]\noptimizer = \"lion\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = 9\nseed = 5\n"
#define MESH(sizes) "[mesh]\n" sizes
#define PP(schedule) "[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"" schedule "\"\n"
#define PIPELINE(n, more) MESH("pipeline = " n "\n") "[strategy.pipeline]\nplugin = \"pp\"\n" more
#define TP "[strategy.tensor]\nplugin = \"tp\"\n"
#define TP_SP TP "sequence_parallel = true\n"
#define CP "[strategy.context]\nplugin = \"cp\"\n"

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

/* Of the small transformer. */
#define OF_3 "microbatch = 3\n"
#define OF_1 "microbatch = 1\n"

static const struct layout kAxes[] = {
    {"one rank", "", "", 1},
    {"dp", DP(""), "", 3},
    {"ddp", DDP(""), "", 2},
    {"zero 1, offload", ZERO("1", "offload = \"state\"\n"), "", 3},
    {"zero 2", ZERO("2", "bucket_bytes = 1\n"), "", 2},
    {"zero 3", ZERO("3", ALL_SHARDED), OF_3, 3},
    {"pp, zb-v", PIPELINE("2", "schedule = \"zb-v\"\n"), OF_3, 2},
    {"pp of three", PIPELINE("3", "schedule = \"1f1b\"\n"), OF_3, 3},
    {"tp", MESH("tensor = 2\n") TP, "", 2},
    {"tp of three, sequence parallel", MESH("tensor = 3\n") TP_SP, OF_3, 3},
    {"cp", MESH("context = 2\n") CP, "", 2},
    {"cp of three", MESH("context = 3\n") CP, OF_3, 3},
    {"tp with zero 3", MESH("tensor = 2\n") TP ZERO("3", ALL_SHARDED), "", 4},
    {"cp with zero 1", MESH("context = 2\n") CP ZERO("1", ""), "", 4},
    {"tp with pp", MESH("tensor = 2\npipeline = 2\n") TP_SP PP("1f1b"), OF_3, 4},
    {"cp with pp", MESH("context = 2\npipeline = 2\n") CP PP("1f1b"), OF_3, 4},
    {"cp of three with pp, zb-v", MESH("context = 3\npipeline = 2\n") CP PP("zb-v"), OF_3, 6},
    {"cp with pp and zero 2", MESH("context = 2\npipeline = 2\n") CP PP("gpipe") ZERO("2", ""), OF_1, 8},
};
enum { N_AXES = sizeof kAxes / sizeof *kAxes };

static inline const char* config_of(const struct layout* layout, const char* precision) {
  static __thread char text[1024];
  snprintf(text, sizeof text, "%s" LION "%s%s", layout->sections, layout->more, precision);
  return text;
}

#endif
