/* unit/test_variables.c: variables of gsel in the environment that cannot be followed: each is told once by a process,
 * on standard error where nobody asked for a log, else where the log goes. What is followed is not told. Programs are
 * this one itself, started with a part to play. */
#include <pthread.h>

#include "support/command.h"

/* ---- the programs ---- */

static gsel_unique_id id;

static void* join_as(void* rank) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = (int32_t)(intptr_t)rank;
  options.world_size = 2;
  options.id = &id;
  gsel_comm* comm = NULL;
  gsel_error* error = NULL;
  if (gsel_comm_init(&options, &comm, &error)) printf("%s\n", gsel_error_message(error).data);
  gsel_error_free(error);
  gsel_comm_free(comm);
  return NULL;
}

/* A communicator of two ranks that are threads. */
static void join_two(void) {
  pthread_t other;
  gsel_unique_id_create(&id, NULL);
  pthread_create(&other, NULL, join_as, (void*)1);
  join_as(NULL);
  pthread_join(other, NULL);
}

static void to_stdout(gsel_log_level level, gsel_str component, gsel_str line, void* user_data) {
  (void)user_data;
  printf("%d [%.*s] %.*s\n", level, (int)component.len, component.data, (int)line.len, line.data);
}

static int play(const char* part) {
  if (!strcmp(part, "silent")) gsel_log_set(NULL, 0, NULL, NULL);
  if (!strcmp(part, "sink")) gsel_log_set(to_stdout, GSEL_LOG_WARN, NULL, NULL);
  for (int i = 0; i < 2; ++i) {
    join_two();
    gsel_plugin_list* plugins = NULL;
    gsel_plugin_list_create(&plugins, NULL);
    gsel_plugin_list_free(plugins);
  }
  return 0;
}

/* ---- what they tell ---- */

static char self[4096];

static void check_told(const char* variables, const char* part, const char* expected_out, const char* expected_err) {
  char line[8192];
  snprintf(line, sizeof line, "%s exec %s program %s >out 2>err", variables, self, part);
  check_status(finish(start(line)), 0, line, __LINE__);
  if (strcmp(out, expected_out) || strcmp(err, expected_err))
    fail_msg("%s %s\nexpected out: %s\nexpected err: %s\ngot out: %s\ngot err: %s", variables, part, expected_out,
             expected_err, out, err);
}

static void what_cannot_be_followed_is_told_once(void** state) {
  (void)state;
  check_told("", "plain", "", "");
  check_told("GSEL_LOG= GSEL_TUNING= GSEL_TRACE= GSEL_PLUGIN_PATH=", "plain", "", "");
  check_told("GSEL_LOG=error GSEL_TRACE=.", "plain", "", "");
  check_told("GSEL_LOG=nonsense", "plain", "",
             "gsel warning [environment] GSEL_LOG=nonsense: is no level, so nothing is logged; error, warn, info or "
             "debug would do\n");
  check_told("GSEL_TRACE=/nonexistent", "plain", "",
             "gsel warning [environment] GSEL_TRACE=/nonexistent: failures cannot be recorded there: ENOENT (No such "
             "file or directory); a folder that can be written to would do\n");
  check_told("GSEL_TRACE=/etc/passwd", "plain", "",
             "gsel warning [environment] GSEL_TRACE=/etc/passwd: failures cannot be recorded there: ENOTDIR (Not a "
             "directory); a folder that can be written to would do\n");
  check_told("GSEL_PLUGIN_PATH=relative", "plain", "",
             "gsel warning [environment] GSEL_PLUGIN_PATH=relative: is not an absolute path; GSEL_PLUGIN_PATH takes "
             "absolute folders joined by ':'\n");
  check_told("GSEL_TUNING=/nonexistent/tuning.toml", "plain", "",
             "gsel warning [environment] GSEL_TUNING=/nonexistent/tuning.toml: tuning is not used: tuning file "
             "/nonexistent/tuning.toml: ENOENT (No such file or directory); a readable file would do; gsel tune "
             "makes one\n");
  check_told("GSEL_TUNING=/etc/passwd", "silent", "", "");
}

static void a_log_that_was_asked_for_decides(void** state) {
  (void)state;
  check_told("GSEL_LOG=error GSEL_TRACE=/nonexistent", "plain", "", "");
  check_told("GSEL_LOG=warn GSEL_PLUGIN_PATH=relative", "plain", "",
             "gsel warning [environment] GSEL_PLUGIN_PATH=relative: is not an absolute path; GSEL_PLUGIN_PATH takes "
             "absolute folders joined by ':'\n");
  check_told("GSEL_LOG=nonsense GSEL_TRACE=/nonexistent", "silent", "", "");
  check_told("GSEL_LOG=nonsense GSEL_TRACE=/nonexistent", "sink",
             "2 [environment] GSEL_TRACE=/nonexistent: failures cannot be recorded there: ENOENT (No such file or "
             "directory); a folder that can be written to would do\n",
             "");
}

static void only_rank_0_of_a_job_tells(void** state) {
  (void)state;
  char line[8192];
  snprintf(line, sizeof line, "GSEL_TRACE=/nonexistent exec gsel run -n 3 -- %s rank >out 2>err", self);
  check_status(finish(start(line)), 0, line, __LINE__);
  const char* told = strstr(err, "GSEL_TRACE");
  assert_true(told && !strstr(told + 1, "GSEL_TRACE"));
}

static int set_up(void** state) {
  (void)state;
  static const char* const ours[] = {"GSEL_CONFIG", "GSEL_PLUGIN_PATH", "GSEL_LOG", "GSEL_TRACE", "GSEL_TUNING"};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; ++i) unsetenv(ours[i]);
  setenv("XDG_CONFIG_HOME", "/nonexistent", 1); /* the user's own tuning */
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  return n > 0 ? command_set_up("variables") : -1;
}

static int tear_down(void** state) {
  (void)state;
  return command_tear_down();
}

int main(int argc, char** argv) {
  if (argc > 2 && !strcmp(argv[1], "program")) return play(argv[2]);
  if (argc > 1 && !strcmp(argv[1], "rank")) {
    gsel_comm* comm = NULL;
    const gsel_status status = gsel_comm_init(NULL, &comm, NULL);
    gsel_comm_free(comm);
    return status != 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_cannot_be_followed_is_told_once),
      cmocka_unit_test(a_log_that_was_asked_for_decides),
      cmocka_unit_test(only_rank_0_of_a_job_tells),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
