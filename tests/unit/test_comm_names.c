/* unit/test_comm_names.c: a communicator has a name that every rank knows; errors and recordings tell it where a
 * process has several. */
#include "support/ranks.h"

static gsel_status join_as(const rank_run* run, gsel_unique_id id, const char* name, gsel_comm** out,
                           gsel_error** err) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &id;
  if (name) options.name = gsel_str_from(name);
  return gsel_comm_init(&options, out, err);
}

static int is_named(const gsel_comm* comm, const char* name) {
  return strcmp(gsel_comm_name(comm).data, name) == 0 && gsel_comm_name(comm).len == strlen(name);
}

/* Ranks of one process and of many: rank 0's name counts. */
static void named(rank_run* run) {
  gsel_error* err;
  gsel_comm *grid, *row, *copy, *again;
  rank_ok(run, join_as(run, run->id, run->rank == 0 ? "grid" : "other", &grid, &err), err);
  rank_check(run, is_named(grid, "grid"));
  rank_ok(run, gsel_comm_split(grid, run->rank % 2, 0, &row, &err), err);
  rank_check(run, is_named(row, run->rank % 2 ? "grid.split1:1" : "grid.split1:0"));
  rank_ok(run, gsel_comm_dup(grid, &copy, &err), err);
  rank_check(run, is_named(copy, "grid.dup2"));
  rank_ok(run, gsel_comm_dup(copy, &again, &err), err);
  rank_check(run, is_named(again, "grid.dup2.dup1"));
  for (int i = 0; i < 12; ++i) { /* where there is no room for a whole name, its end stays */
    gsel_comm* deeper;
    rank_ok(run, gsel_comm_dup(again, &deeper, &err), err);
    gsel_comm_free(again);
    again = deeper;
  }
  const gsel_str cut = gsel_comm_name(again);
  rank_check(run, cut.len == 63 && !strncmp(cut.data, "...", 3) && !strcmp(cut.data + cut.len - 10, ".dup1.dup1"));
  gsel_comm_free(again);
  gsel_comm_free(copy);
  gsel_comm_free(row);
  gsel_comm_free(grid);
}

static void test_a_name_is_that_of_rank_0_and_made_longer_by_every_split(void** state) {
  (void)state;
  as_threads(3, named, NULL);
  as_processes(3, named, NULL);
}

static void tells(rank_run* run) {
  gsel_error* err;
  gsel_comm *comm, *copy;
  gsel_trace* trace;
  gsel_unique_id second = run->id;
  second.bytes[0] ^= 1;
  float x = 0;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_check(run, is_named(comm, "world"));
  const size_t count = run->rank == 0 ? 1 : 0;
  const char* mismatch = "make the calls alike on every rank";
  char text[512];
  gsel_allreduce(comm, &x, &x, count, GSEL_F32, GSEL_SUM, &err);
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  rank_check(run, !strcmp(text + strlen(text) - strlen(mismatch), mismatch)); /* there is no other */
  rank_ok(run, join_as(run, second, NULL, &copy, &err), err);
  rank_check(run, is_named(copy, "world-2"));
  rank_fails(run, gsel_allreduce(comm, &x, &x, count, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
             "make the calls alike on every rank (communicator world)", -1);
  rank_fails(run, gsel_allreduce(copy, &x, &x, count, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
             "make the calls alike on every rank (communicator world-2)", -1);
  rank_ok(run, gsel_comm_trace(copy, &trace, &err), err);
  rank_check(run, strstr(gsel_trace_json(trace).data, "\"name\":\"world-2\""));
  gsel_trace_free(trace);
  rank_ok(run, gsel_barrier(copy, &err), err);
  if (run->rank == 0) gsel_comm_abort(copy, gsel_str_from("enough"));
  rank_fails(run, gsel_barrier(copy, &err), err, GSEL_ERR_ABORTED, "enough (communicator world-2)", 0);
  gsel_comm_free(comm);
  gsel_comm_free(copy);
}

static void test_errors_and_recordings_tell_which_of_several(void** state) {
  (void)state;
  as_processes(2, tells, NULL);
}

static void test_a_name_that_would_not_print_is_refused(void** state) {
  (void)state;
  gsel_error* err;
  gsel_comm* comm;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.world_size = 1;
  const char* const wrong[] = {"two words", "line\n", "\xc3\xa9", "this-name-has-thirty-two-bytes..."};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    options.name = gsel_str_from(wrong[i]);
    check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_ARG, "use at most 31 of printable ASCII");
  }
  options.name = gsel_str_from("this-name-has-thirty-one-bytes.");
  check_ok(gsel_comm_init(&options, &comm, &err), err);
  assert_string_equal(gsel_comm_name(comm).data, "this-name-has-thirty-one-bytes.");
  gsel_comm_free(comm);
  assert_int_equal(gsel_comm_name(NULL).len, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_errors_and_recordings_tell_which_of_several),
      cmocka_unit_test(test_a_name_is_that_of_rank_0_and_made_longer_by_every_split),
      cmocka_unit_test(test_a_name_that_would_not_print_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
