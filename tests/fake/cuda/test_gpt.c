/* The GPT of examples/gpt trained on devices by its own kernels, over the double of NCCL. Where docs/equality.md
 * promises the same bits, the parameters and the loss are the same, bit for bit; elsewhere, and beside the kernels of
 * the host, they differ by rounding. The double tells of work that streams and events do not order. */
#include <math.h>
#include <stdlib.h>

#include "device_layers.h"
#include "fake/cuda/program.h"
#include "job.h"

#define SGD "[train]\noptimizer = \"sgd\"\nmomentum = 0.9\nlearning_rate = 0.1\nbatch = 4\nseed = 5\n"
#define ADAMW "[train]\noptimizer = \"adamw\"\nlearning_rate = 1e-3\nclip_norm = 1e9\nbatch = 4\nseed = 5\n"
#define TWO_MICROBATCHES "microbatches = 2\n"
#define OVER_NCCL "[comm]\ntransport = \"nccl\"\n"
#define DDP "[strategy.data]\nplugin = \"ddp\"\n"
#define ZERO(stage) "[strategy.data]\nplugin = \"zero\"\npersist_elems = 0\nstage = " stage "\n"
#define TP "[strategy.tensor]\nplugin = \"tp\"\n"
#define CP "[strategy.context]\nplugin = \"cp\"\n"
#define PP(schedule) "[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"" schedule "\"\n"
#define MESH(axes) "[mesh]\n" axes

enum { STEPS = 3, TEXT = 3000 };
#define TOLERANCE 2e-6      /* of a parameter, and of the loss in nats; training changes both by far more */
#define BF16_TOLERANCE 5e-3 /* the same of values in bf16 */

#define SMALL .layers = 2, .width = 16, .heads = 2, .context = 8
static const struct gpt_sizes small = {SMALL};
static const struct gpt_sizes ring = {SMALL, .attention = GPT_RING};
static const struct gpt_sizes fused = {SMALL, .attention = GPT_FUSED};
static const struct gpt_sizes bf16 = {SMALL, .dtype = GSEL_BF16};
static const struct gpt_sizes bf16_ring = {SMALL, .dtype = GSEL_BF16, .attention = GPT_RING};

static uint8_t bytes[TEXT];
static const struct text text = {bytes, TEXT, 8, 5};

static void make_text(void) {
  uint32_t seed = 1;
  for (int i = 0; i < TEXT; ++i) {
    seed = seed * 1664525u + 1013904223u;
    bytes[i] = (uint8_t)('a' + (seed >> 24) % 16);
  }
}

static struct job_result train(const char* accelerator, const struct gpt_sizes* sizes, const char* config, int ranks) {
  struct job_result result;
  const struct job job = {.config = config,
                          .ranks = ranks,
                          .steps = STEPS,
                          .sizes = *sizes,
                          .kinds = accelerator ? &device_layers : &gpt_layers,
                          .text = &text,
                          .accelerator = accelerator};
  print_message("  %d on %s\n%s\n", ranks, accelerator ? accelerator : "the host", config);
  job_run(&job, &result);
  if (result.status) fail_msg("%s", result.message);
  assert_true(result.alike);
  no_violations();
  return result;
}
static struct job_result on_device_with(const struct gpt_sizes* sizes, const char* config, int ranks) {
  return train("cuda", sizes, config, ranks);
}
static struct job_result on_device(const char* config, int ranks) {
  return on_device_with(&small, config, ranks);
}
static struct job_result on_host_with(const struct gpt_sizes* sizes, const char* config) {
  return train(NULL, sizes, config, 1);
}

/* within: 0 for the same bits. */
static void compare(const struct job_result* expected, const struct job_result* got, double within) {
  assert_int_equal(got->n_elems, expected->n_elems);
  for (int64_t i = 0; i < got->n_elems; ++i) {
    const float *e = &expected->params[i], *g = &got->params[i];
    if (within == 0 ? memcmp(e, g, sizeof *e) != 0 : !(fabsf(*g - *e) <= (float)within))
      fail_msg("parameter %lld: expected %.9g, got %.9g", (long long)i, (double)*e, (double)*g);
  }
  if (within == 0 ? memcmp(&expected->loss, &got->loss, sizeof got->loss) != 0
                  : !(fabs(got->loss - expected->loss) <= within))
    fail_msg("loss: expected %.17g, got %.17g", expected->loss, got->loss);
}
static void same_bits(const struct job_result* expected, struct job_result got) {
  compare(expected, &got, 0);
  free(got.params);
}
static void near(const struct job_result* expected, struct job_result got) {
  compare(expected, &got, TOLERANCE);
  free(got.params);
}

static void one_rank_trains_as_on_the_host(void** state) {
  (void)state;
  const struct job_result host = on_host_with(&small, SGD);
  near(&host, on_device(SGD, 1));
  free(host.params);
}

static void one_rank_gives_the_same_bits_however_memory_is_used(void** state) {
  (void)state;
  const struct job_result one = on_device(ADAMW, 1);
  same_bits(&one, on_device(ADAMW, 1));
  same_bits(&one, on_device(ADAMW "recompute = \"all\"\n", 1));
  same_bits(&one, on_device(ADAMW "lending = \"moved\"\n", 1));
  free(one.params);
}

/* The third step is launched as the second was recorded. */
static void a_graph_gives_the_same_bits(void** state) {
  (void)state;
  static const char* const configs[] = {SGD, ADAMW, SGD TWO_MICROBATCHES};
  char graph[512];
  for (size_t i = 0; i < sizeof configs / sizeof *configs; ++i) {
    const struct job_result plain = on_device(configs[i], 1);
    snprintf(graph, sizeof graph, "%sgraph = \"on\"\n", configs[i]);
    same_bits(&plain, on_device(graph, 1));
    free(plain.params);
  }
}

static void strategies_of_the_data_axis_give_the_bits_of_ddp(void** state) {
  (void)state;
  const struct job_result one = on_device(SGD, 1), ddp = on_device(OVER_NCCL MESH("data = 2\n") DDP SGD, 2);
  compare(&one, &ddp, TOLERANCE);
  same_bits(&ddp, on_device(OVER_NCCL MESH("data = 2\n") ZERO("1") SGD, 2));
  same_bits(&ddp, on_device(OVER_NCCL MESH("data = 2\n") ZERO("3") SGD, 2));
  same_bits(&ddp, on_device("[comm]\ntransport = \"host\"\n" MESH("data = 2\n") DDP SGD, 2));
  free(one.params);
  free(ddp.params);
}

static void pipelines_give_the_bits_of_one_rank(void** state) {
  (void)state;
  const struct job_result one = on_device(ADAMW TWO_MICROBATCHES, 1);
  same_bits(&one, on_device(OVER_NCCL MESH("pipeline = 2\n") PP("1f1b") ADAMW TWO_MICROBATCHES, 2));
  same_bits(&one, on_device(OVER_NCCL MESH("pipeline = 2\n") PP("zb-v") ADAMW TWO_MICROBATCHES, 2));
  free(one.params);
}

static void layers_that_ranks_share_are_near_one_rank(void** state) {
  (void)state;
  const struct job_result one = on_device(SGD, 1);
  near(&one, on_device(OVER_NCCL MESH("tensor = 2\n") TP SGD, 2));
  near(&one, on_device(OVER_NCCL MESH("tensor = 2\n") TP "sequence_parallel = true\n" SGD, 2));
  near(&one, on_device(OVER_NCCL MESH("context = 2\n") CP SGD, 2));
  near(&one, on_device(OVER_NCCL MESH("tensor = 2\ndata = 2\n") TP ZERO("3") SGD, 4));
  free(one.params);
}

static void several_axes_are_near_one_rank(void** state) {
  (void)state;
  const struct job_result one = on_device(SGD TWO_MICROBATCHES, 1);
  near(&one, on_device(OVER_NCCL MESH("pipeline = 2\ndata = 2\n") PP("1f1b") ZERO("1") SGD TWO_MICROBATCHES, 4));
  near(&one, on_device(OVER_NCCL MESH("pipeline = 2\ntensor = 2\n") PP("zb-v") TP SGD TWO_MICROBATCHES, 4));
  near(&one, on_device(OVER_NCCL MESH("context = 2\ndata = 2\n") CP DDP SGD TWO_MICROBATCHES, 4));
  free(one.params);
}

static void fused_attention_trains_as_on_the_host(void** state) {
  (void)state;
  const struct job_result host = on_host_with(&small, SGD);
  near(&host, on_device_with(&fused, SGD, 1));
  near(&host, on_device_with(&fused, SGD "recompute = \"all\"\nlending = \"moved\"\n", 1));
  near(&host, on_device_with(&fused, OVER_NCCL MESH("tensor = 2\n") TP SGD, 2));
  near(&host, on_device_with(&fused, OVER_NCCL MESH("context = 2\n") CP SGD, 2));
  free(host.params);
}

static void ring_attention_trains_as_on_the_host(void** state) {
  (void)state;
  const struct job_result host = on_host_with(&small, SGD);
  near(&host, on_device_with(&ring, SGD, 1));
  near(&host, on_device_with(&ring, OVER_NCCL MESH("context = 2\n") CP SGD, 2));
  near(&host, on_device_with(&ring, OVER_NCCL MESH("context = 4\n") CP SGD, 4));
  near(&host, on_device_with(&ring, OVER_NCCL MESH("context = 2\ndata = 2\n") CP ZERO("3") SGD, 4));
  free(host.params);
}

static void values_in_bf16_are_near_and_strategies_give_the_same_bits(void** state) {
  (void)state;
  const struct job_result host = on_host_with(&small, SGD TWO_MICROBATCHES);
  const struct job_result one = on_device_with(&bf16, SGD TWO_MICROBATCHES, 1);
  compare(&host, &one, BF16_TOLERANCE);
  assert_true(memcmp(host.params, one.params, (size_t)host.n_elems * sizeof(float)) != 0);
  same_bits(&one, on_device_with(&bf16, SGD TWO_MICROBATCHES "recompute = \"all\"\nlending = \"moved\"\n", 1));
  same_bits(&one, on_device_with(&bf16, OVER_NCCL MESH("pipeline = 2\n") PP("1f1b") SGD TWO_MICROBATCHES, 2));
  const struct job_result ddp = on_device_with(&bf16, OVER_NCCL MESH("data = 2\n") DDP SGD, 2);
  compare(&host, &ddp, BF16_TOLERANCE);
  same_bits(&ddp, on_device_with(&bf16, OVER_NCCL MESH("data = 2\n") ZERO("1") SGD, 2));
  same_bits(&ddp, on_device_with(&bf16, OVER_NCCL MESH("data = 2\n") ZERO("3") SGD, 2));
  const struct job_result tp = on_device_with(&bf16, OVER_NCCL MESH("tensor = 2\n") TP SGD, 2);
  compare(&host, &tp, BF16_TOLERANCE);
  const struct job_result cp = on_device_with(&bf16_ring, OVER_NCCL MESH("context = 2\n") CP SGD, 2);
  compare(&host, &cp, BF16_TOLERANCE);
  free(host.params);
  free(one.params);
  free(ddp.params);
  free(tp.params);
  free(cp.params);
}

/* In which the double runs what nothing orders. */
static void no_order_of_the_device_changes_a_bit(void** state) {
  (void)state;
  static const char* const orders[] = {"random", "others", "newest"};
  const char* zero = OVER_NCCL MESH("data = 2\n") ZERO("3") ADAMW;
  const struct job_result expected = on_device(zero, 2);
  for (size_t i = 0; i < sizeof orders / sizeof *orders; ++i) {
    setenv("GSEL_FAKE_CUDA_ORDER", orders[i], 1);
    same_bits(&expected, on_device(zero, 2));
  }
  unsetenv("GSEL_FAKE_CUDA_ORDER");
  free(expected.params);
}

int main(void) {
  load_doubles("fake_libnccl.so");
  make_text();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_rank_trains_as_on_the_host),
      cmocka_unit_test(one_rank_gives_the_same_bits_however_memory_is_used),
      cmocka_unit_test(a_graph_gives_the_same_bits),
      cmocka_unit_test(strategies_of_the_data_axis_give_the_bits_of_ddp),
      cmocka_unit_test(pipelines_give_the_bits_of_one_rank),
      cmocka_unit_test(layers_that_ranks_share_are_near_one_rank),
      cmocka_unit_test(several_axes_are_near_one_rank),
      cmocka_unit_test(fused_attention_trains_as_on_the_host),
      cmocka_unit_test(ring_attention_trains_as_on_the_host),
      cmocka_unit_test(values_in_bf16_are_near_and_strategies_give_the_same_bits),
      cmocka_unit_test(no_order_of_the_device_changes_a_bit),
  };
  /* The first three are of one rank; the others want a card for each of their ranks. */
  const size_t n = is_on_card() && cuda.n_devices < 4 ? 3 : sizeof tests / sizeof *tests;
  return _cmocka_run_group_tests("gpt", tests, n, NULL, NULL);
}
