/* The state of a trainer by name (gsel/state.h): under each layout the same tensors with the same bits as one rank has;
 * written into a new trainer of any layout, training goes on from it to the bits of one rank that never stopped. And
 * states of the program's own, which checkpoints hold beside it. */
#include <stdbool.h>

#include "support/layouts.h"
#include "support/scratch.h"

enum { BEFORE = 2, MOST_ENTRIES = 64 };

/* What one rank holds after BEFORE steps; in memory that all ranks share. */
struct kept {
  int32_t n;
  char names[MOST_ENTRIES][64];
  int64_t counts[MOST_ENTRIES];
  float values[MOST_ENTRIES][EXACT_ELEMS];
  gsel_training_numbers numbers;
};
struct story {
  trial t;
  struct kept* kept;
  int64_t* written; /* shared: elements, of all ranks */
};

static int64_t elems(const gsel_state_entry* entry) {
  int64_t n = 1;
  for (int32_t d = 0; d < entry->n_dims; ++d) n *= entry->shape[d];
  return n;
}

static void keep(rank_run* run) {
  const struct story* what = (const struct story*)run->user;
  struct kept* kept = what->kept;
  session s;
  gsel_error* err = NULL;
  gsel_state* state = NULL;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < BEFORE; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_state_open(s.trainer, &state, &err), err);
  kept->n = gsel_state_count(state);
  rank_check(run, kept->n == 2 * N_PARAMS);
  for (int32_t i = 0; i < kept->n; ++i) {
    gsel_state_entry entry = GSEL_STATE_ENTRY_INIT;
    rank_ok(run, gsel_state_entry_at(state, i, &entry, &err), err);
    snprintf(kept->names[i], sizeof kept->names[i], "%.*s", (int)entry.name.len, entry.name.data);
    rank_check(run, entry.dtype == GSEL_F32 && entry.n_pieces == 1 && entry.role.len < entry.name.len);
    kept->counts[i] = elems(&entry);
    rank_ok(run, gsel_state_read(state, i, 0, kept->counts[i], kept->values[i], &err), err);
  }
  gsel_training_numbers_init(&kept->numbers, sizeof kept->numbers);
  rank_ok(run, gsel_state_numbers(state, &kept->numbers, &err), err);
  rank_check(run, kept->numbers.step == BEFORE && kept->numbers.updates == BEFORE);
  gsel_state_free(state);
  close_session(&s);
}

/* Pieces lie where their runs say, and hold what one rank has there. */
static void check_pieces(rank_run* run, gsel_state* state, int32_t i, const gsel_state_entry* entry,
                         const struct kept* kept) {
  gsel_error* err = NULL;
  for (int32_t piece = 0; piece < entry->n_pieces; ++piece) {
    gsel_state_run runs[EXACT_ELEMS];
    int64_t n = 0, local = 0;
    rank_ok(run, gsel_state_runs(state, i, piece, runs, EXACT_ELEMS, &n, &err), err);
    for (int64_t r = 0; r < n; ++r) {
      float values[EXACT_ELEMS];
      rank_check(run, runs[r].local == local && runs[r].count > 0);
      local += runs[r].count;
      rank_ok(run, gsel_state_read_piece(state, i, piece, runs[r].local, runs[r].count, values, &err), err);
      rank_check(run, memcmp(values, kept->values[i] + runs[r].whole, sizeof(float) * (size_t)runs[r].count) == 0);
    }
    rank_fails(run, gsel_state_read_piece(state, i, piece, local, 1, NULL, &err), err, GSEL_ERR_ARG, "there are ", -1);
  }
}

static void holds_the_same(rank_run* run) {
  const struct story* what = (const struct story*)run->user;
  const struct kept* kept = what->kept;
  session s;
  gsel_error* err = NULL;
  gsel_state* state = NULL;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < BEFORE; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_state_open(s.trainer, &state, &err), err);
  rank_check(run, gsel_state_count(state) == kept->n);
  for (int32_t i = 0; i < kept->n; ++i) {
    gsel_state_entry entry = GSEL_STATE_ENTRY_INIT;
    float values[EXACT_ELEMS];
    rank_ok(run, gsel_state_entry_at(state, i, &entry, &err), err);
    rank_check(run, strncmp(kept->names[i], entry.name.data, entry.name.len) == 0 && !kept->names[i][entry.name.len]);
    rank_check(run, elems(&entry) == kept->counts[i]);
    rank_ok(run, gsel_state_read(state, i, 0, kept->counts[i], values, &err), err);
    rank_check(run, memcmp(values, kept->values[i], sizeof(float) * (size_t)kept->counts[i]) == 0);
    if (kept->counts[i] > 2) { /* a slice, which only the last rank wants */
      const bool wants = run->rank == run->world_size - 1;
      rank_ok(run, gsel_state_read(state, i, 1, kept->counts[i] - 2, wants ? values : NULL, &err), err);
      rank_check(run, memcmp(values, kept->values[i] + wants, sizeof(float) * (size_t)(kept->counts[i] - 2)) == 0);
    }
    check_pieces(run, state, i, &entry, kept);
    if (run->failure[0]) return;
  }
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_fails(run, gsel_state_numbers(state, &(gsel_training_numbers)GSEL_TRAINING_NUMBERS_INIT, &err), err,
             GSEL_ERR_STATE, "open its state again", -1);
  gsel_state_free(state);
  close_session(&s);
}

static void goes_on_from_what_is_written(rank_run* run) {
  const struct story* what = (const struct story*)run->user;
  const struct kept* kept = what->kept;
  const outcome* expected = what->t.expected;
  session s;
  gsel_error* err = NULL;
  gsel_state* state = NULL;
  float params[EXACT_ELEMS];
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_state_open(s.trainer, &state, &err), err);
  for (int32_t i = 0; i < kept->n; ++i) {
    int64_t first = 0, second = 0;
    const int64_t half = kept->counts[i] / 2;
    rank_ok(run, gsel_state_write(state, i, 0, half, kept->values[i], &first, &err), err);
    rank_ok(run, gsel_state_write(state, i, half, kept->counts[i] - half, kept->values[i] + half, &second, &err), err);
    __atomic_fetch_add(what->written, first + second, __ATOMIC_RELAXED);
  }
  rank_ok(run, gsel_state_set_numbers(state, &kept->numbers, &err), err);
  gsel_state_free(state);
  for (int i = BEFORE; i < STEPS; ++i) {
    gsel_step_report step = GSEL_STEP_REPORT_INIT;
    rank_ok(run, gsel_trainer_step(s.trainer, &step, &err), err);
    rank_check(run, step.step == i && memcmp(&step.loss_sum, &expected->loss[i], sizeof step.loss_sum) == 0);
  }
  read_params(run, s.trainer, params);
  same_params(run, params, expected->params, EXACT_ELEMS);
  close_session(&s);
}

static void under_all_layouts(const char* precision) {
  char text[1024];
  outcome* expected = shared_outcomes();
  struct story what = {plain(NULL, expected), (struct kept*)shared_memory(sizeof(struct kept)),
                       (int64_t*)shared_memory(sizeof(int64_t))};
  trial whole = plain(config_of(&kLayouts[0], precision), expected);
  as_threads(1, train, &whole);
  what.t.expected = expected;
  for (int a = 0; a < N_LAYOUTS; ++a) {
    print_message("  %s\n", kLayouts[a].name);
    snprintf(text, sizeof text, "%s", config_of(&kLayouts[a], precision));
    what.t.config = text;
    if (a == 0) as_threads(1, keep, &what);
    as_threads(kLayouts[a].ranks, holds_the_same, &what);
    *what.written = 0;
    as_threads(kLayouts[a].ranks, goes_on_from_what_is_written, &what);
    assert_true(*what.written >= 2 * EXACT_ELEMS);
  }
  munmap(what.kept, sizeof(struct kept));
  munmap(what.written, sizeof(int64_t));
  free_outcomes(expected);
}

static void every_layout_has_the_state_of_one_rank(void** state) {
  (void)state;
  under_all_layouts("");
}
static void and_with_16_bits_its_master_copies(void** state) {
  (void)state;
  under_all_layouts("precision = \"bf16\"\n");
}

/* ---- the program's own ---- */

static char folder[64];

/* What was added, with this rank's memory. */
static void lists_its_own(rank_run* run, gsel_trainer* trainer, void* position, void* of_rank) {
  gsel_error* err = NULL;
  gsel_state* state = NULL;
  gsel_state_own own = GSEL_STATE_OWN_INIT;
  rank_ok(run, gsel_state_open(trainer, &state, &err), err);
  rank_check(run, gsel_state_own_count(state) == 2);
  rank_ok(run, gsel_state_own_at(state, 0, &own, &err), err);
  rank_check(run, own.name.len == 13 && memcmp(own.name.data, "data/position", 13) == 0);
  rank_check(run, own.scope == GSEL_STATE_SHARED && own.data == position && own.bytes == sizeof(int64_t));
  rank_ok(run, gsel_state_own_at(state, 1, &own, &err), err);
  rank_check(run, own.scope == GSEL_STATE_OF_RANK && own.data == of_rank && own.bytes == sizeof(int64_t));
  rank_fails(run, gsel_state_own_at(state, 2, &own, &err), err, GSEL_ERR_ARG, "i is 2", -1);
  gsel_state_free(state);
}

/* What the ranks have saved. */
static void checkpoint_lists_them(rank_run* run, int32_t n_ranks) {
  gsel_error* err = NULL;
  gsel_checkpoint* checkpoint = NULL;
  gsel_checkpoint_info info = GSEL_CHECKPOINT_INFO_INIT;
  rank_ok(run, gsel_checkpoint_open(gsel_str_from(folder), &checkpoint, &err), err);
  rank_ok(run, gsel_checkpoint_inspect(checkpoint, &info, &err), err);
  rank_check(run, info.n_own == 2 && info.n_ranks == n_ranks);
  for (int32_t rank = 0; rank < n_ranks; ++rank) {
    char file[32];
    gsel_checkpoint_own shared = GSEL_CHECKPOINT_OWN_INIT, own = GSEL_CHECKPOINT_OWN_INIT;
    rank_ok(run, gsel_checkpoint_own_get(checkpoint, 0, rank, &shared, &err), err);
    rank_ok(run, gsel_checkpoint_own_get(checkpoint, 1, rank, &own, &err), err);
    rank_check(run, shared.scope == GSEL_STATE_SHARED && own.scope == GSEL_STATE_OF_RANK);
    rank_check(run, shared.bytes == sizeof(int64_t) && own.bytes == sizeof(int64_t));
    rank_check(run, memcmp(shared.file.data, "rank-00000.", 11) == 0);
    snprintf(file, sizeof file, "rank-%05d.", rank);
    rank_check(run, memcmp(own.file.data, file, 11) == 0 && memcmp(own.key.data, "user:own", 9) == 0);
  }
  rank_ok(run, gsel_checkpoint_verify(checkpoint, NULL, &err), err);
  gsel_checkpoint_free(checkpoint);
}

static void has_its_own(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  int64_t position = 41, of_rank = 100 + run->rank;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run,
          gsel_trainer_add_state(s.trainer, gsel_str_from("data/position"), &position, sizeof position,
                                 GSEL_STATE_SHARED, &err),
          err);
  rank_ok(run,
          gsel_trainer_add_state(s.trainer, gsel_str_from("own"), &of_rank, sizeof of_rank, GSEL_STATE_OF_RANK, &err),
          err);
  rank_fails(run, gsel_trainer_add_state(s.trainer, gsel_str_from("own"), &of_rank, 8, GSEL_STATE_SHARED, &err), err,
             GSEL_ERR_ARG, "has a state \"own\" already", -1);
  rank_fails(run, gsel_trainer_add_state(s.trainer, gsel_str_from("a b"), &of_rank, 8, GSEL_STATE_SHARED, &err), err,
             GSEL_ERR_ARG, "name is \"a b\"", -1);
  rank_fails(run, gsel_trainer_add_state(s.trainer, gsel_str_from("b"), &of_rank, 8, 7, &err), err, GSEL_ERR_ARG,
             "scope is 7", -1);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  lists_its_own(run, s.trainer, &position, &of_rank);
  rank_ok(run, gsel_trainer_save_begin(s.trainer, gsel_str_from(folder), NULL, NULL, &err), err);
  position = of_rank = 0; /* the copy has the values of the call */
  rank_ok(run, gsel_trainer_save_wait(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(folder), NULL, &err), err);
  rank_check(run, position == 41 && of_rank == 100 + run->rank);
  checkpoint_lists_them(run, run->world_size);
  close_session(&s);
}

static void expects_others(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  int64_t position = 7, of_rank = 8;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run,
          gsel_trainer_add_state(s.trainer, gsel_str_from("data/position"), &position, sizeof position,
                                 GSEL_STATE_SHARED, &err),
          err);
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(folder), NULL, &err), err);
  rank_check(run, position == 41);
  rank_ok(run,
          gsel_trainer_add_state(s.trainer, gsel_str_from("own"), &of_rank, sizeof of_rank, GSEL_STATE_OF_RANK, &err),
          err);
  position = 7;
  rank_fails(run, gsel_trainer_load(s.trainer, gsel_str_from(folder), NULL, &err), err, GSEL_ERR_MISMATCH,
             "of 2 ranks in it, and there are 3 now", -1);
  rank_ok(run, gsel_trainer_add_state(s.trainer, gsel_str_from("more"), &of_rank, 8, GSEL_STATE_SHARED, &err), err);
  rank_fails(run, gsel_trainer_load(s.trainer, gsel_str_from(folder), NULL, &err), err, GSEL_ERR_MISMATCH,
             "the program's state \"more\" is not in it", -1);
  rank_check(run, position == 7 && of_rank == 8);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  close_session(&s);
}

static void wants_another_size(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  int32_t position = 7;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run,
          gsel_trainer_add_state(s.trainer, gsel_str_from("data/position"), &position, sizeof position,
                                 GSEL_STATE_SHARED, &err),
          err);
  rank_fails(run, gsel_trainer_load(s.trainer, gsel_str_from(folder), NULL, &err), err, GSEL_ERR_MISMATCH,
             "has 8 bytes in ", -1);
  rank_check(run, position == 7);
  close_session(&s);
}

static void states_of_the_program_are_in_checkpoints(void** state) {
  (void)state;
  assert_true(make_scratch(folder, sizeof folder, "state"));
  char two[1024], three[1024];
  snprintf(two, sizeof two, "%s", config_of(&kLayouts[4], ""));
  snprintf(three, sizeof three, "%s", config_of(&kLayouts[5], ""));
  trial t = plain(two, NULL);
  as_threads(2, has_its_own, &t);
  t.config = three;
  as_threads(3, expects_others, &t);
  as_threads(3, wants_another_size, &t);
  assert_int_equal(remove_scratch(folder), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_has_the_state_of_one_rank),
      cmocka_unit_test(and_with_16_bits_its_master_copies),
      cmocka_unit_test(states_of_the_program_are_in_checkpoints),
  };
  return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
