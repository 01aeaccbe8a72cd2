/* What a trainer tells of its memory: every part as forecast, to the byte, under every strategy and at sizes that do
 * not divide; offload memory's counters; and the refusal of a budget, alike on all ranks, with nothing left behind. */
#include <dirent.h>

#include "support/scratch.h"
#include "support/trainer_trial.h"

static const char* const kSections[] = {
    "plugin = \"ddp\"\n",
    "plugin = \"ddp\"\nbucket_bytes = 64\n",
    "plugin = \"dp\"\n",
    "plugin = \"zero\"\nstage = 1\n",
    "plugin = \"zero\"\nstage = 2\nbucket_bytes = 64\n",
    "plugin = \"zero\"\nstage = 3\npersist_elems = 0\n",
    "plugin = \"zero\"\nstage = 3\npersist_elems = 10\nprefetch_elems = 0\n",
    "plugin = \"zero\"\nstage = 3\npersist_elems = 0\nkeep = \"step\"\noffload = \"all\"\n",
    "plugin = \"zero\"\nstage = 2\noffload = \"state\"\n",
};
enum { N_SECTIONS = sizeof kSections / sizeof *kSections };

static int is_empty(const char* folder) {
  DIR* dir = opendir(folder);
  int n = 0;
  while (dir && readdir(dir)) ++n;
  if (dir) closedir(dir);
  return n == 2; /* . and .. */
}

static void compare_parts(rank_run* run, const gsel_trainer* trainer, const gsel_step_report* report) {
  gsel_error* err = NULL;
  uint64_t device_memory = 0;
  gsel_memory_part part = GSEL_MEMORY_PART_INIT;
  int i = 0;
  for (; gsel_trainer_memory(trainer, i, &part, &err) == GSEL_OK; ++i) {
    if (part.forecast_bytes != part.peak_bytes) {
      snprintf(run->failure, sizeof run->failure, "rank %d of %d, %s:\n%.600s: forecast %llu bytes, took %llu",
               (int)run->rank, (int)run->world_size, part.name, ((const trial*)run->user)->config,
               (unsigned long long)part.forecast_bytes, (unsigned long long)part.peak_bytes);
      return;
    }
    if (part.offloaded == 0) device_memory += part.peak_bytes;
  }
  rank_check(run, gsel_error_code(err) == GSEL_ERR_ARG);
  gsel_error_free(err);
  rank_check(run, i == 11);
  rank_check(run, report->peak_bytes == device_memory);
}

static void train_and_compare(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  for (int i = 0; i < 2; ++i) rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
  const int offloads = strstr(((const trial*)run->user)->config, "offload = ") != NULL;
  rank_check(run, (report.offload_bytes_in > 0) == offloads && (report.offload_bytes_out > 0) == offloads);
  compare_parts(run, s.trainer, &report);
  close_session(&s);
}

static void every_part_is_as_forecast(void** state) {
  (void)state;
  char folder[128], text[1024];
  assert_true(make_scratch(folder, sizeof folder, "offloaded"));
  for (int i = 0; i < N_SECTIONS; ++i)
    for (int ranks = 1; ranks <= 4; ++ranks)
      for (int more = 0; more < 4; ++more) {
        const char* const settings[] = {"", "precision = \"bf16\"\nmicrobatch = 1\n",
                                        "recompute = \"all\"\noptimizer = \"adamw_8bit\"\n",
                                        "precision = \"fp16\"\nclip_norm = 1.0\noptimizer = \"lion\"\n"};
        snprintf(text, sizeof text, "[strategy.data]\n%s[train]\nbatch = 7\noffload_folder = \"%s\"\n%s", kSections[i],
                 folder, settings[more]);
        trial t = plain(text, NULL);
        as_threads(ranks, train_and_compare, &t);
        assert_true(is_empty(folder));
      }
  remove_scratch(folder);
}

static void compressed_reductions_are_forecast(void** state) {
  (void)state;
  const char* const words[] = {"f16", "bf16", "low_rank"};
  char text[512];
  for (int i = 0; i < 3; ++i) {
    snprintf(text, sizeof text,
             "[strategy.data]\nplugin = \"ddp\"\ncompress = \"%s\"\ncompress_rank = 1\ncompress_start = "
             "1\n[train]\nbatch = 7\nmicrobatch = 2\n",
             words[i]);
    trial t = plain(text, NULL);
    as_threads(3, train_and_compare, &t);
  }
}

/* Evaluating needs no memory that was not forecast. */
static void evaluate_and_compare(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  gsel_step_report report = GSEL_STEP_REPORT_INIT, evaluated = GSEL_STEP_REPORT_INIT;
  rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
  rank_ok(run, gsel_trainer_evaluate(s.trainer, 0, NULL, NULL, &evaluated, &err), err);
  compare_parts(run, s.trainer, &report);
  close_session(&s);
}

static void an_evaluation_stays_within_the_forecast(void** state) {
  (void)state;
  char text[512];
  for (int i = 0; i < N_SECTIONS; ++i) {
    snprintf(text, sizeof text, "[strategy.data]\n%s[train]\nbatch = 7\nmicrobatch = 2\n", kSections[i]);
    trial t = plain(text, NULL);
    as_threads(3, evaluate_and_compare, &t);
  }
}

/* A budget of a byte less than ddp needs is refused on every rank alike; the advice, followed, trains. */
static void be_refused(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_check(run, open_session(run, &s, &err) == GSEL_ERR_NOMEM);
  char text[2048];
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  rank_check(run, strstr(text, "trial.toml:") && strstr(text, "train.memory_bytes = "));
  rank_check(run, strstr(text, "\n  optimizer state "));
  rank_check(run, strstr(text, "ZeRO stage 1 on 3 ranks needs "));
  close_session(&s);
}

static void need_of(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
  ((const trial*)run->user)->out[run->rank].report = report;
  close_session(&s);
}

static void too_small_a_budget_is_refused_on_every_rank_with_advice(void** state) {
  (void)state;
  outcome* out = shared_outcomes();
  trial t = plain("[train]\nbatch = 7\n", out);
  as_threads(3, need_of, &t);
  uint64_t most = 0;
  for (int i = 0; i < 3; ++i)
    if (out[i].report.peak_bytes > most) most = out[i].report.peak_bytes;
  char text[512];
  snprintf(text, sizeof text, "[train]\nbatch = 7\nmemory_bytes = %llu\n", (unsigned long long)most);
  t.config = text;
  as_threads(3, need_of, &t);
  snprintf(text, sizeof text, "[train]\nbatch = 7\nmemory_bytes = %llu\n", (unsigned long long)most - 1);
  as_threads(3, be_refused, &t);
  snprintf(text, sizeof text,
           "[strategy.data]\nplugin = \"zero\"\nstage = 1\n[train]\nbatch = 7\nmemory_bytes = %llu\n",
           (unsigned long long)most - 1);
  as_threads(3, need_of, &t);
  free_outcomes(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_part_is_as_forecast),
      cmocka_unit_test(compressed_reductions_are_forecast),
      cmocka_unit_test(an_evaluation_stays_within_the_forecast),
      cmocka_unit_test(too_small_a_budget_is_refused_on_every_rank_with_advice),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
