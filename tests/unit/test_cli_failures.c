/* unit/test_cli_failures.c: what `gsel run` lets the ranks do that are left when one fails. Ranks are this program
 * itself, started with a part to play as its argument. */
#include "support/command.h"

/* ---- the ranks ---- */

static int tell(const char* what, gsel_error* error) {
  fprintf(stderr, "%s: %s about %d: %s\n", what, gsel_status_name(gsel_error_code(error)), gsel_error_rank(error),
          gsel_error_message(error).data);
  gsel_error_free(error);
  return 9;
}

static int sum_of_ones(gsel_comm* comm, gsel_error** error) {
  int32_t one = 1;
  return gsel_allreduce(comm, &one, &one, 1, GSEL_I32, GSEL_SUM, error) ? -1 : one;
}

/* Until the launcher has told of rank 1, in the file that its standard error goes to. */
static void await_word_of_rank_1(void) {
  char text[4096];
  do {
    FILE* file = fopen("err", "r");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = '\0';
    if (file) fclose(file);
  } while (!strstr(text, "gsel: rank 1 "));
}

/* Rank 1 dies between two calls; the others tell what they get, and shrink when that is their part. */
static int play_death(int shrinks) {
  gsel_comm *comm = NULL, *rest = NULL;
  gsel_error* error = NULL;
  if (gsel_comm_init(NULL, &comm, &error)) return tell("init", error);
  if (sum_of_ones(comm, &error) != gsel_comm_world_size(comm)) return tell("first call", error);
  if (gsel_comm_rank(comm) == 1) raise(SIGKILL);
  if (sum_of_ones(comm, &error) >= 0) return 1;
  const int status = tell("second call", error);
  await_word_of_rank_1();
  if (shrinks) {
    error = NULL;
    if (gsel_comm_shrink(comm, &rest, &error)) return tell("shrink", error);
    const int left = sum_of_ones(rest, &error);
    if (left < 0) return tell("third call", error);
    fprintf(stderr, "%d ranks go on\n", left);
  }
  gsel_comm_free(rest);
  gsel_comm_free(comm);
  return shrinks ? 0 : status;
}

/* The rank that is named ends before it joins; the others tell what became of their joining. */
static int play_absence(const char* absent) {
  gsel_comm* comm = NULL;
  gsel_error* error = NULL;
  if (!strcmp(getenv("RANK"), absent)) return 3;
  if (gsel_comm_init(NULL, &comm, &error)) return tell("init", error);
  return 1;
}

static int play(int argc, char** argv) {
  if (!strcmp(argv[2], "absent")) return play_absence(argc > 3 ? argv[3] : "0");
  return play_death(!strcmp(argv[2], "shrink"));
}

/* ---- what the launcher makes of it ---- */

static char self[4096];

static void check_run(const char* options, const char* part, int status) {
  char line[8192];
  snprintf(line, sizeof line, "exec gsel run %s -- %s rank %s >out 2>err", options, self, part);
  check_status(finish(start(line)), status, line, __LINE__);
}

static int count_of(const char* part) {
  int n = 0;
  for (const char* at = err; (at = strstr(at, part)); ++at) ++n;
  return n;
}

static void survivors_tell_of_a_death_before_they_are_asked_to_end(void** state) {
  (void)state;
  check_run("-n 4 --wait 1000", "death", 137);
  check_part(err, "gsel: rank 1 (pid ");
  check_part(err, "was killed by signal 9 (SIGKILL); ending the other 3 ranks in 1000 s\n");
  assert_int_equal(count_of("second call: GSEL_ERR_PEER about 1: "), 3);
  assert_int_equal(count_of("gsel: "), 1); /* those who end because of it are not told of */
}

static void survivors_shrink_and_go_on_where_a_failure_ends_nobody(void** state) {
  (void)state;
  check_run("-n 4 --on-failure continue --wait 0", "shrink", 137);
  check_part(err, "was killed by signal 9 (SIGKILL); going on with 3 ranks\n");
  assert_int_equal(count_of("second call: GSEL_ERR_PEER about 1: "), 3);
  assert_int_equal(count_of("3 ranks go on\n"), 3);
}

static void every_failure_is_told_where_the_others_go_on(void** state) {
  (void)state;
  /* Rank 2 fails once the failure of rank 1 has been told, rank 0 ends well after both. */
  const char* script =
      "case $RANK in 1) exit 4;; 2) until grep -q \"rank 1 \" err; do :; done; exit 5;; esac;"
      " until grep -q \"rank 2 \" err; do :; done; echo done";
  char arguments[512];
  snprintf(arguments, sizeof arguments, "run -n 3 --on-failure continue -- sh -c '%s'", script);
  check_gsel(arguments, 4);
  check_part(err, "exited with status 4; going on with 2 ranks\n");
  check_part(err, "exited with status 5; going on with 1 rank\n");
  assert_string_equal(out, "done\n");
}

/* ---- a rank that ends before it joins ---- */

static void check_absence(const char* options, const char* absent) {
  char part[128];
  snprintf(part, sizeof part, "absent %s", absent);
  check_run(options, part, 3);
  snprintf(part, sizeof part, "init: GSEL_ERR_PEER about %s: rank %s of 4 (pid ", absent, absent);
  if (count_of(part) != 3 || count_of(") exited with status 3 before it joined; all 4 ranks are needed\n") != 3)
    fail_msg("expected three times \"%s...) exited with status 3 before it joined\" in: %s", part, err);
}

static void a_rank_that_ends_before_it_joins_is_named_with_its_status(void** state) {
  (void)state;
  check_absence("-n 4 --wait 1000", "2");
  check_absence("-n 4 --on-failure continue", "2");
}

static void rank_0_that_ends_before_it_joins_is_named_with_its_status(void** state) {
  (void)state;
  check_absence("-n 4 --wait 1000", "0");
}

static int set_up(void** state) {
  (void)state;
  unsetenv("GSEL_CONFIG");
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  return n > 0 ? command_set_up("cli-failures") : -1;
}

static int tear_down(void** state) {
  (void)state;
  return command_tear_down();
}

int main(int argc, char** argv) {
  if (argc > 2 && !strcmp(argv[1], "rank")) return play(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(survivors_tell_of_a_death_before_they_are_asked_to_end),
      cmocka_unit_test(survivors_shrink_and_go_on_where_a_failure_ends_nobody),
      cmocka_unit_test(every_failure_is_told_where_the_others_go_on),
      cmocka_unit_test(a_rank_that_ends_before_it_joins_is_named_with_its_status),
      cmocka_unit_test(rank_0_that_ends_before_it_joins_is_named_with_its_status),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
