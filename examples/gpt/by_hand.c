/* by_hand.c: gpt-by-hand: the training of `gpt` on one rank as a loop written by hand: the same kernels, initial
 * values, samples, clipping and AdamW, and no model description, program or trainer. Losses and parameters are those of
 * `gpt`, and what it saves in time is what gsel costs.
 *
 *     gpt-by-hand gpt.toml kjv.txt 20 [record.json]
 *
 * Of gsel it uses the reader of gpt.toml and, through data.c, random numbers. */
#include "by_hand.h"

#include <cblas.h>
#include <gsel/gsel.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adamw.h"
#include "clock.h"
#include "data.h"
#include "record.h"

struct shape {
  const char* name;
  int64_t elems;
  float deviation; /* of a matrix; 0: a vector, all of it `fill` */
  float fill;
};

static struct shape shape_of(int p) {
  const float into_stream = (float)(0.02 / sqrt(2.0 * LAYERS));
  static const struct shape in_block[PER_BLOCK] = {
      [LN1_G] = {"ln1.g", WIDTH, 0, 1},
      [LN1_B] = {"ln1.b", WIDTH, 0, 0},
      [QKV_W] = {"attn.qkv.w", 3 * WIDTH * WIDTH, 0.02f, 0},
      [QKV_B] = {"attn.qkv.b", 3 * WIDTH, 0, 0},
      [PROJ_W] = {"attn.proj.w", WIDTH * WIDTH, -1, 0},
      [ADD1_B] = {"add1.b", WIDTH, 0, 0},
      [LN2_G] = {"ln2.g", WIDTH, 0, 1},
      [LN2_B] = {"ln2.b", WIDTH, 0, 0},
      [FC1_W] = {"mlp.fc1.w", 4 * WIDTH * WIDTH, 0.02f, 0},
      [FC1_B] = {"mlp.fc1.b", 4 * WIDTH, 0, 0},
      [FC2_W] = {"mlp.fc2.w", 4 * WIDTH * WIDTH, -1, 0},
      [ADD2_B] = {"add2.b", WIDTH, 0, 0},
  };
  if (p == WTE) return (struct shape){"embed.token", VOCAB * WIDTH, 0.02f, 0};
  if (p == WPE) return (struct shape){"embed.position", CONTEXT * WIDTH, 0.02f, 0};
  if (p == FINAL_G) return (struct shape){"final.g", WIDTH, 0, 1};
  if (p == FINAL_B) return (struct shape){"final.b", WIDTH, 0, 0};
  if (p == HEAD_W) return (struct shape){"head.w", VOCAB * WIDTH, 0.02f, 0};
  struct shape shape = in_block[(p - BLOCKS) % PER_BLOCK];
  if (shape.deviation < 0) shape.deviation = into_stream;
  return shape;
}

struct settings {
  uint64_t seed;
  double clip_norm;
  struct adamw adamw;
};

/* All there is. */
struct training {
  struct settings set;
  struct text text;
  struct gpt gpt;
  float *params, *gradients, *first, *second; /* [elems] each */
  int64_t elems, step;
};

/* ---- memory and initial values ------------------------------------------------------------------------ */

static void* memory(int64_t bytes) {
  void* p;
  if (posix_memalign(&p, 64, (size_t)bytes)) {
    fprintf(stderr, "gpt-by-hand: out of memory\n");
    exit(1);
  }
  memset(p, 0, (size_t)bytes);
  return p;
}
static float* floats(int64_t n) {
  return memory(n * (int64_t)sizeof(float));
}

static void allocate_params(struct training* t) {
  for (int p = 0; p < N_PARAMS; ++p) t->elems += shape_of(p).elems;
  t->params = floats(t->elems);
  t->gradients = floats(t->elems);
  t->first = floats(t->elems);
  t->second = floats(t->elems);
  int64_t at = 0;
  for (int p = 0; p < N_PARAMS; at += shape_of(p++).elems) {
    t->gpt.w[p] = t->params + at;
    t->gpt.d[p] = t->gradients + at;
  }
}

static void allocate_activations(struct gpt* g) {
  const int64_t rows = g->batch * CONTEXT, stream = rows * WIDTH;
  for (int i = 0; i < LAYERS; ++i)
    g->blocks[i] = (struct block){.x = floats(stream),
                                  .ln1 = floats(stream),
                                  .stats1 = floats(2 * rows),
                                  .qkv = floats(3 * stream),
                                  .probs = floats(rows * HEADS * CONTEXT),
                                  .mixed = floats(stream),
                                  .middle = floats(stream),
                                  .ln2 = floats(stream),
                                  .stats2 = floats(2 * rows),
                                  .fc1 = floats(4 * stream),
                                  .gelu = floats(4 * stream)};
  g->x = floats(stream);
  g->final = floats(stream);
  g->final_stats = floats(2 * rows);
  g->logits = floats(rows * VOCAB);
  g->dlogits = floats(rows * VOCAB);
  g->log_sums = floats(rows);
  g->tops = floats(rows);
  g->sums = floats(2 * rows);
  g->branch = floats(stream);
  g->wide = floats(4 * stream);
  g->wider = floats(4 * stream);
  g->dx = floats(stream);
  g->tokens = memory(rows);
  g->targets = memory(rows);
}

/* gsel's key of a name: a block of Philox 4x32-10 (Salmon et al., SC 2011) at the name's hash. */
static uint64_t key_of(uint64_t key, const char* name) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
  for (; *name; ++name) hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), x[4] = {(uint32_t)hash, (uint32_t)(hash >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = UINT64_C(0xD2511F53) * x[0], p1 = UINT64_C(0xCD9E8D57) * x[2];
    x[0] = (uint32_t)(p1 >> 32) ^ x[1] ^ k0;
    x[1] = (uint32_t)p1;
    x[2] = (uint32_t)(p0 >> 32) ^ x[3] ^ k1;
    x[3] = (uint32_t)p0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return (uint64_t)x[1] << 32 | x[0];
}

static void initialise(struct gpt* g, uint64_t seed) {
  const uint64_t key = key_of(seed, "initial values");
  for (int p = 0; p < N_PARAMS; ++p) {
    const struct shape shape = shape_of(p);
    char name[64];
    if (p >= BLOCKS && p < FINAL_G)
      snprintf(name, sizeof name, "h%d.%s", (p - BLOCKS) / PER_BLOCK, shape.name);
    else
      snprintf(name, sizeof name, "%s", shape.name);
    const uint64_t own = key_of(key, name);
    for (int64_t i = 0; i < shape.elems; ++i)
      g->w[p][i] = shape.deviation > 0 ? shape.deviation * gsel_random_normal(own, (uint64_t)i) : shape.fill;
  }
}

/* ---- training ----------------------------------------------------------------------------------------- */

static int failed(const char* what, const char* why) {
  fprintf(stderr, "gpt-by-hand: %s: %s\n", what, why);
  return -1;
}

/* What gpt.toml says; -1 when it asks for something this loop does not have. */
static int read_settings(struct training* t, const char* path) {
  gsel_config* config;
  gsel_error* err = NULL;
  char why[1024];
  if (gsel_config_load((gsel_str){path, GSEL_NUL}, &config, &err)) {
    gsel_error_format(err, why, sizeof why);
    gsel_error_free(err);
    return failed("settings", why);
  }
#define GET(key) gsel_config_get(config, (gsel_str)GSEL_STR(key)).data
  const int fits = !strcmp(GET("train.optimizer"), "adamw") && !strcmp(GET("train.schedule"), "constant") &&
                   !strcmp(GET("train.precision"), "f32") && atoll(GET("train.warmup_steps")) == 0 &&
                   atoll(GET("train.microbatch")) == 0;
  t->gpt.batch = atoll(GET("train.batch"));
  t->set.seed = strtoull(GET("train.seed"), NULL, 10);
  t->set.clip_norm = atof(GET("train.clip_norm"));
  t->set.adamw = (struct adamw){.learning_rate = atof(GET("train.learning_rate")),
                                .weight_decay = atof(GET("train.weight_decay")),
                                .beta1 = atof(GET("train.beta1")),
                                .beta2 = atof(GET("train.beta2")),
                                .epsilon = atof(GET("train.epsilon"))};
#undef GET
  gsel_config_free(config);
  return fits ? 0 : failed(path, "asks for another optimizer, schedule, precision or micro-batch than this loop has");
}

/* Matrices decay, vectors do not; each run of parameters that are alike is one call. */
static void optimize(struct training* t, double weight) {
  struct adamw a = t->set.adamw;
  const double norm = sqrt(sum_of_squares(t->gradients, t->elems)) / weight;
  a.gradient_scale = 1 / weight;
  if (t->set.clip_norm > 0) a.gradient_scale *= fmin(1, t->set.clip_norm / (norm + 1e-6));
  a.t = t->step + 1;
  for (int p = 0; p < N_PARAMS; ++p) {
    const int64_t at = t->gpt.w[p] - t->params;
    a.weight_decay = shape_of(p).deviation > 0 ? t->set.adamw.weight_decay : 0;
    adamw_step(&a, t->params + at, t->gradients + at, t->first + at, t->second + at, shape_of(p).elems);
  }
}

static struct step_record train_step(struct training* t) {
  const double begin = now(), cpu_begin = cpu_time(), tokens = (double)(t->gpt.batch * CONTEXT);
  struct step_record report = {0};
  for (int64_t i = 0; i < t->gpt.batch; ++i) {
    const uint8_t* sample = text_sample(&t->text, t->step * t->gpt.batch + i);
    memcpy(t->gpt.tokens + i * CONTEXT, sample, CONTEXT);
    memcpy(t->gpt.targets + i * CONTEXT, sample + 1, CONTEXT);
  }
  report.loss = by_hand_forward(&t->gpt) / tokens;
  by_hand_backward(&t->gpt);
  report.compute_s = now() - begin;
  optimize(t, tokens);
  ++t->step;
  report.seconds = now() - begin;
  report.cpu_s = cpu_time() - cpu_begin;
  report.optimizer_s = report.seconds - report.compute_s;
  return report;
}

static int run(struct training* t, int64_t steps, const char* path) {
  char why[512];
  struct record record;
  if (record_init(&record, 1)) return failed("record", "out of memory");
  const double begin = now();
  for (int64_t i = 0; i < steps; ++i) {
    const struct step_record step = train_step(t);
    if (record_add_step(&record, &step)) return failed("record", "out of memory");
  }
  const double tokens = (double)(steps * t->gpt.batch * CONTEXT), seconds = now() - begin;
  snprintf(record.strategy, sizeof record.strategy, "by hand");
  record.elements = t->elems;
  record.tokens_per_s = tokens / seconds;
  record.of_rank[0].hash = record_hash(RECORD_HASH_BEGIN, t->params, (size_t)t->elems * sizeof(float));
  record.of_rank[0].peak_rss_bytes = record_peak_rss();
  printf("trained %" PRId64 " steps by hand, %.0f tokens in %.1f s: %.0f tokens/s, last loss %.4f\n", steps, tokens,
         seconds, record.tokens_per_s, record.of_step[steps - 1].loss);
  const int result = path && record_write(&record, path, why, sizeof why) ? failed("record", why) : 0;
  record_free(&record);
  return result;
}

int main(int argc, char** argv) {
  static struct training training; /* zero; its memory is the process's */
  char why[512];
  const int64_t steps = argc > 3 ? atoll(argv[3]) : 0;
  if (steps < 1 || argc > 5) {
    fprintf(stderr, "usage: gpt-by-hand gsel.toml TEXT STEPS [RECORD.json]\n");
    return 2;
  }
  openblas_set_num_threads(1);
  if (read_settings(&training, argv[1])) return 1;
  if (text_load(&training.text, argv[2], CONTEXT, training.set.seed, why, sizeof why)) return failed("text", why), 1;
  allocate_params(&training);
  allocate_activations(&training.gpt);
  initialise(&training.gpt, training.set.seed);
  const int result = run(&training, steps, argc > 4 ? argv[4] : NULL);
  text_free(&training.text);
  return result ? 1 : 0;
}
