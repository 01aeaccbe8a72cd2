/* Checkpoints: what was saved under one layout loads under every other, and training goes on to the bits of one rank
 * that never stopped. Numbers of the model are integers, and the optimizer is Lion, whose state is a function of the
 * gradient sums alone, so that no order of summation can hide a difference (support/exact_model.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/share.h"
#include "support/trainer_trial.h"

enum { BEFORE = 2 };

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

static char folder[64];

static const char* folder_of(const struct layout* layout) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%d", folder, (int)(layout - kLayouts));
  return path;
}

static const char* config_of(const struct layout* layout, const char* precision) {
  static char text[1024];
  snprintf(text, sizeof text, "%s" LION "%s%s", layout->sections, layout->more, precision);
  return text;
}

struct going_on {
  trial t;
  const char* path;
  uint64_t* read; /* shared: bytes that all ranks read and needed */
};

static void save_after_some_steps(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < BEFORE; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(what->path), &report, &err), err);
  rank_check(run, report.step == BEFORE);
  __atomic_fetch_add(&what->read[0], report.bytes, __ATOMIC_RELAXED);
  close_session(&s);
}

static void load_and_go_on(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  const outcome* expected = what->t.expected;
  session s;
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  float params[EXACT_ELEMS];
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(what->path), &report, &err), err);
  rank_check(run, report.step == BEFORE && report.bytes == report.needed_bytes);
  for (int i = BEFORE; i < STEPS; ++i) {
    gsel_step_report step = GSEL_STEP_REPORT_INIT;
    rank_ok(run, gsel_trainer_step(s.trainer, &step, &err), err);
    rank_check(run, step.step == i);
    rank_check(run, memcmp(&step.loss_sum, &expected->loss[i], sizeof step.loss_sum) == 0);
  }
  read_params(run, s.trainer, params);
  same_params(run, params, expected->params, EXACT_ELEMS);
  close_session(&s);
}

static outcome* reference(const char* precision) {
  outcome* out = shared_outcomes();
  trial t = plain(config_of(&kLayouts[0], precision), out);
  as_threads(1, train, &t);
  return out;
}

static struct going_on going(const struct layout* layout, const char* precision, const char* path, outcome* expected) {
  static char text[1024];
  struct going_on what = {plain(NULL, NULL), path, (uint64_t*)shared_memory(sizeof(uint64_t))};
  snprintf(text, sizeof text, "%s", config_of(layout, precision));
  what.t.config = text;
  what.t.expected = expected;
  return what;
}

static int remove_one(const char* path, const struct stat* status, int kind, struct FTW* at) {
  (void)status, (void)kind, (void)at;
  return remove(path);
}

static int begin(void** state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/gsel-checkpoints-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void all_pairs(const char* precision) {
  outcome* expected = reference(precision);
  uint64_t bytes = 0;
  for (int a = 0; a < N_LAYOUTS; ++a) {
    struct going_on what = going(&kLayouts[a], precision, folder_of(&kLayouts[a]), expected);
    as_threads(kLayouts[a].ranks, save_after_some_steps, &what);
    if (a == 0) bytes = what.read[0];
    assert_int_equal(what.read[0], bytes); /* each element once */
    munmap(what.read, sizeof(uint64_t));
  }
  assert_int_equal(bytes, 2 * sizeof(float) * EXACT_ELEMS);
  for (int a = 0; a < N_LAYOUTS; ++a)
    for (int b = 0; b < N_LAYOUTS; ++b) {
      if (!in_share()) continue;
      struct going_on what = going(&kLayouts[b], precision, folder_of(&kLayouts[a]), expected);
      print_message("  saved under %s, loaded under %s\n", kLayouts[a].name, kLayouts[b].name);
      as_threads(kLayouts[b].ranks, load_and_go_on, &what);
      munmap(what.read, sizeof(uint64_t));
    }
  free_outcomes(expected);
}

static void every_layout_loads_what_every_layout_saved(void** state) {
  (void)state;
  all_pairs("");
}

static void sixteen_bits_go_on_from_their_master_copies(void** state) {
  (void)state;
  assert_int_equal(end(state), 0);
  assert_int_equal(begin(state), 0);
  all_pairs("precision = \"bf16\"\n");
}

/* ---- what is refused ---- */

static void write_at(const char* path, off_t at, const char* bytes, size_t n) {
  const int fd = open(path, O_WRONLY);
  assert_true(fd >= 0);
  assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
  close(fd);
}

static void is_refused(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  float before[EXACT_ELEMS], after[EXACT_ELEMS];
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  read_params(run, s.trainer, before);
  const gsel_status status = gsel_trainer_load(s.trainer, gsel_str_from(what->path), NULL, &err);
  rank_check(run, status == GSEL_ERR_PARSE || status == GSEL_ERR_IO || status == GSEL_ERR_NOT_FOUND ||
                      status == GSEL_ERR_MISMATCH || (run->world_size > 1 && status == GSEL_ERR_PEER));
  gsel_error_free(err);
  read_params(run, s.trainer, after);
  rank_check(run, memcmp(before, after, sizeof before) == 0);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  close_session(&s);
}

/* The first rank's error is looked at by the test; the trainer stays as it was, on all ranks, and goes on. */
static void refused_on_two(const char* path) {
  struct going_on what = going(&kLayouts[4], "", path, NULL);
  as_threads(2, is_refused, &what);
  munmap(what.read, sizeof(uint64_t));
}

static void make_one(char* path, size_t size) {
  assert_int_equal(end(NULL), 0);
  assert_int_equal(begin(NULL), 0);
  struct going_on what = going(&kLayouts[4], "", folder_of(&kLayouts[4]), NULL);
  as_threads(2, save_after_some_steps, &what);
  munmap(what.read, sizeof(uint64_t));
  snprintf(path, size, "%s/step-000000000002", folder_of(&kLayouts[4]));
}

static void a_damaged_checkpoint_changes_nothing(void** state) {
  static const char* const names[] = {"rank-00000.safetensors", "rank-00001.safetensors", "index.json",
                                      "manifest.json"};
  char path[160], file[256];
  (void)state;
  for (int n = 0; n < 4; ++n) {
    make_one(path, sizeof path);
    snprintf(file, sizeof file, "%s/%s", path, names[n]);
    write_at(file, 20, "\x01", 1); /* in a header */
    refused_on_two(path);
    make_one(path, sizeof path);
    snprintf(file, sizeof file, "%s/%s", path, names[n]);
    struct stat status;
    assert_int_equal(stat(file, &status), 0);
    assert_int_equal(truncate(file, status.st_size - 1), 0);
    refused_on_two(path);
    make_one(path, sizeof path);
    snprintf(file, sizeof file, "%s/%s", path, names[n]);
    assert_int_equal(remove(file), 0);
    refused_on_two(path);
  }
  refused_on_two("/nowhere/at/all");
}

static void the_newest_whole_one_of_a_folder_is_taken(void** state) {
  char path[160], broken[200];
  (void)state;
  make_one(path, sizeof path);
  snprintf(broken, sizeof broken, "%s/step-000000000009", folder_of(&kLayouts[4]));
  assert_int_equal(mkdir(broken, 0700), 0);
  outcome* expected = reference("");
  struct going_on what = going(&kLayouts[7], "", folder_of(&kLayouts[4]), expected);
  as_threads(2, load_and_go_on, &what);
  munmap(what.read, sizeof(uint64_t));
  free_outcomes(expected);
}

static void is_there_already(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < BEFORE; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_fails(run, gsel_trainer_save(s.trainer, gsel_str_from(what->path), NULL, &err), err,
             run->rank == 0 ? GSEL_ERR_STATE : GSEL_ERR_PEER, "step-000000000002 is there already", -2);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(what->path), NULL, &err), err);
  close_session(&s);
}

static void a_checkpoint_is_never_written_over(void** state) {
  char path[160];
  (void)state;
  make_one(path, sizeof path);
  struct going_on what = going(&kLayouts[4], "", folder_of(&kLayouts[4]), NULL);
  as_threads(2, is_there_already, &what);
  munmap(what.read, sizeof(uint64_t));
  DIR* dir = opendir(folder_of(&kLayouts[4]));
  int n = 0;
  for (struct dirent* entry; (entry = readdir(dir));) n += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
  closedir(dir);
  assert_int_equal(n, 3); /* two steps, and which is the latest: nothing temporary */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_loads_what_every_layout_saved),
      cmocka_unit_test(sixteen_bits_go_on_from_their_master_copies),
      cmocka_unit_test(a_damaged_checkpoint_changes_nothing),
      cmocka_unit_test(the_newest_whole_one_of_a_folder_is_taken),
      cmocka_unit_test(a_checkpoint_is_never_written_over),
  };
  return cmocka_run_group_tests_name("checkpoints", tests, begin, end);
}
