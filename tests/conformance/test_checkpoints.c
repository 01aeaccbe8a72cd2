/* Checkpoints: what was saved under one layout loads under every other, and training goes on to the bits of one rank
 * that never stopped. Numbers of the model are integers, and the optimizer is Lion, whose state is a function of the
 * gradient sums alone, so that no order of summation can hide a difference (support/exact_model.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/checkpoint_trial.h"
#include "support/layouts.h"
#include "support/scratch.h"
#include "support/share.h"

static char folder[64];

static const char* folder_of(const struct layout* layout) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%d", folder, (int)(layout - kLayouts));
  return path;
}

static struct going_on going(const struct layout* layout, const char* precision, const char* path,
                             struct ending* ending) {
  static char text[1024];
  struct going_on what;
  memset(&what, 0, sizeof what);
  snprintf(text, sizeof text, "%s", config_of(layout, precision));
  what.t = plain(text, NULL);
  what.path = path;
  what.ending = ending;
  return what;
}

static struct ending* reference(const char* precision) {
  struct ending* out = shared_ending();
  struct going_on what = going(&kLayouts[0], precision, NULL, out);
  as_threads(1, never_stops, &what);
  return out;
}

static int begin(void** state) {
  (void)state;
  return make_scratch(folder, sizeof folder, "checkpoints") ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  return remove_scratch(folder);
}

/* ---- without a trainer ---- */

static size_t content(const char* path, char* bytes, size_t most) {
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  const size_t n = fread(bytes, 1, most, file);
  assert_true(n > 0 && n < most);
  fclose(file);
  return n;
}

/* The state of each layout is the first one's: compared, as one file, and divided anew, from which the first layout's
 * ranks go on. */
static void tools_see_one_state(const char* precision, struct ending* expected) {
  static char first[1 << 16], other[1 << 16];
  char path[160];
  size_t n = 0;
  gsel_error* err = NULL;
  gsel_checkpoint* const reference = opened_checkpoint(folder_of(&kLayouts[0]));
  for (int a = 0; a < N_LAYOUTS; ++a) {
    gsel_checkpoint* const one = opened_checkpoint(folder_of(&kLayouts[a]));
    same_state(reference, one);
    snprintf(path, sizeof path, "%s/%d.safetensors", folder, a);
    BY_FIRST_PROCESS(check_ok(gsel_checkpoint_consolidate(one, gsel_str_from(path), NULL, &err), err));
    if (a == 0) n = content(path, first, sizeof first);
    assert_int_equal(content(path, other, sizeof other), n);
    assert_memory_equal(first, other, n);
    snprintf(path, sizeof path, "%s/divided-%d", folder, a);
    BY_FIRST_PROCESS(check_ok(gsel_checkpoint_reshard(one, gsel_str_from(path), 1 + 7 * a, NULL, &err), err));
    gsel_checkpoint* const divided = opened_checkpoint(path);
    same_state(divided, reference);
    gsel_checkpoint_free(divided);
    gsel_checkpoint_free(one);
    struct going_on what = going(&kLayouts[N_LAYOUTS - 1 - a], precision, path, expected);
    as_threads(kLayouts[N_LAYOUTS - 1 - a].ranks, load_and_go_on, &what);
  }
  gsel_checkpoint_free(reference);
}

static void all_pairs(const char* precision, bool in_background) {
  struct ending* expected = reference(precision);
  uint64_t bytes = 0;
  for (int a = 0; a < N_LAYOUTS; ++a) {
    struct going_on what = going(&kLayouts[a], precision, folder_of(&kLayouts[a]), expected);
    what.in_background = in_background;
    const uint64_t written = saved_on(kLayouts[a].ranks, &what);
    if (a == 0) bytes = written;
    assert_int_equal(written, bytes); /* each element once */
  }
  assert_int_equal(bytes, 2 * sizeof(float) * EXACT_ELEMS);
  for (int a = 0; a < N_LAYOUTS; ++a)
    for (int b = 0; b < N_LAYOUTS; ++b) {
      if (!in_share()) continue;
      struct going_on what = going(&kLayouts[b], precision, folder_of(&kLayouts[a]), expected);
      print_message("  saved under %s, loaded under %s\n", kLayouts[a].name, kLayouts[b].name);
      as_threads(kLayouts[b].ranks, load_and_go_on, &what);
    }
  tools_see_one_state(precision, expected);
  free_ending(expected);
}

static void every_layout_loads_what_every_layout_saved(void** state) {
  (void)state;
  all_pairs("", false);
}

static void sixteen_bits_go_on_from_their_master_copies(void** state) {
  (void)state;
  assert_int_equal(end(state), 0);
  assert_int_equal(begin(state), 0);
  all_pairs("precision = \"bf16\"\n", false);
}

static void what_is_saved_in_the_background_is_the_state_of_the_moment(void** state) {
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(end(state), 0);
    assert_int_equal(begin(state), 0);
    all_pairs(i == 0 ? "" : "precision = \"bf16\"\n", true);
  }
}

/* ---- what is refused ---- */

static void write_at(const char* path, off_t at, const char* bytes, size_t n) {
  const int fd = open(path, O_WRONLY);
  assert_true(fd >= 0);
  assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
  close(fd);
}

static void shorten(const char* path) {
  struct stat status;
  assert_int_equal(stat(path, &status), 0);
  assert_int_equal(truncate(path, status.st_size - 1), 0);
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
}

static void make_one(char* path, size_t size) {
  assert_int_equal(end(NULL), 0);
  assert_int_equal(begin(NULL), 0);
  struct going_on what = going(&kLayouts[4], "", folder_of(&kLayouts[4]), NULL);
  saved_on(2, &what);
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
    BY_FIRST_PROCESS(write_at(file, 20, "\x01", 1)); /* in a header */
    refused_on_two(path);
    make_one(path, sizeof path);
    snprintf(file, sizeof file, "%s/%s", path, names[n]);
    BY_FIRST_PROCESS(shorten(file));
    refused_on_two(path);
    make_one(path, sizeof path);
    snprintf(file, sizeof file, "%s/%s", path, names[n]);
    BY_FIRST_PROCESS(assert_int_equal(remove(file), 0));
    refused_on_two(path);
  }
  refused_on_two("/nowhere/at/all");
}

static void the_newest_whole_one_of_a_folder_is_taken(void** state) {
  char path[160], broken[200];
  (void)state;
  make_one(path, sizeof path);
  snprintf(broken, sizeof broken, "%s/step-000000000009", folder_of(&kLayouts[4]));
  BY_FIRST_PROCESS(assert_int_equal(mkdir(broken, 0700), 0));
  struct ending* expected = reference("");
  struct going_on what = going(&kLayouts[7], "", folder_of(&kLayouts[4]), expected);
  as_threads(2, load_and_go_on, &what);
  free_ending(expected);
}

static void is_there_already(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < BEFORE; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_fails(run, gsel_trainer_save(s.trainer, gsel_str_from(what->path), NULL, NULL, &err), err,
             run->rank == 0 ? GSEL_ERR_STATE : GSEL_ERR_PEER, "step-000000000002 is there already", -2);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(what->path), NULL, NULL, &err), err);
  close_session(&s);
}

static int names_in(const char* path) {
  DIR* dir = opendir(path);
  int n = 0;
  for (struct dirent* entry; (entry = readdir(dir));) n += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
  closedir(dir);
  return n;
}

static void a_checkpoint_is_never_written_over(void** state) {
  char path[160];
  (void)state;
  make_one(path, sizeof path);
  struct going_on what = going(&kLayouts[4], "", folder_of(&kLayouts[4]), NULL);
  as_threads(2, is_there_already, &what);
  assert_int_equal(names_in(folder_of(&kLayouts[4])), 3); /* two steps, and which is the latest: nothing temporary */
}

/* One that fails is known after a step, its error comes once, and the next begins anew. */
static void fails_in_the_background(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < BEFORE; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_fails(run, gsel_trainer_save_begin(s.trainer, gsel_str_from(what->path), NULL, NULL, &err), err,
             run->rank == 0 ? GSEL_ERR_STATE : GSEL_ERR_PEER, "step-000000000002 is there already", -2);
  rank_check(run, gsel_trainer_save_state(s.trainer) == GSEL_SAVE_NONE);
  rank_ok(run, gsel_trainer_save_wait(s.trainer, &report, &err), err);
  rank_check(run, report.step == 0 && report.bytes == 0);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_save_begin(s.trainer, gsel_str_from(what->path), NULL, NULL, &err), err);
  gsel_status second = gsel_trainer_save(s.trainer, gsel_str_from("/nowhere/at/all"), NULL, NULL, &err);
  rank_check(run, second == GSEL_ERR_IO || second == GSEL_ERR_PEER || second == GSEL_ERR_STATE);
  gsel_error_free(err);
  err = NULL;
  rank_ok(run, gsel_trainer_save_wait(s.trainer, &report, &err), err);
  rank_check(run, report.step == BEFORE + 1);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_save_begin(s.trainer, gsel_str_from(what->path), NULL, NULL, &err), err);
  close_session(&s); /* waits */
}

static void a_save_in_the_background_that_cannot_begin_leaves_nothing_behind(void** state) {
  char path[160];
  (void)state;
  make_one(path, sizeof path);
  struct going_on what = going(&kLayouts[4], "", folder_of(&kLayouts[4]), NULL);
  as_threads(2, fails_in_the_background, &what);
  assert_int_equal(names_in(folder_of(&kLayouts[4])), 4); /* three steps, and which is the latest: nothing temporary */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_loads_what_every_layout_saved),
      cmocka_unit_test(sixteen_bits_go_on_from_their_master_copies),
      cmocka_unit_test(a_damaged_checkpoint_changes_nothing),
      cmocka_unit_test(the_newest_whole_one_of_a_folder_is_taken),
      cmocka_unit_test(a_checkpoint_is_never_written_over),
      cmocka_unit_test(what_is_saved_in_the_background_is_the_state_of_the_moment),
      cmocka_unit_test(a_save_in_the_background_that_cannot_begin_leaves_nothing_behind),
  };
  return cmocka_run_group_tests_name("checkpoints", tests, begin, end);
}
