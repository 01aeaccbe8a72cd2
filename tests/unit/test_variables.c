/* unit/test_variables.c: variables of gsel in the environment that cannot be followed: each is told once by a process,
 * on standard error where nobody asked for a log, else where the log goes. What is followed is not told. A program with
 * more rights than its user follows none that names a file or a fault. Programs are this one itself, started with a
 * part to play. */
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "support/command.h"

/* ---- the programs ---- */

static gsel_unique_id id;
static int aborts; /* the communicator, which is recorded where that is asked for */

static void* join_as(void* rank) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = (int32_t)(intptr_t)rank;
  options.world_size = 2;
  options.id = &id;
  gsel_comm* comm = NULL;
  gsel_error* error = NULL;
  if (gsel_comm_init(&options, &comm, &error)) printf("%s\n", gsel_error_message(error).data);
  gsel_error_free(error);
  if (aborts && comm) {
    gsel_barrier(comm, NULL);
    gsel_comm_abort(comm, gsel_str_from("by intent"));
    gsel_barrier(comm, NULL);
  }
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

static void tell(gsel_error* error) {
  if (error) printf("%s\n", gsel_error_message(error).data);
  gsel_error_free(error);
}

/* What names a file is looked at, wherever it can be; what is said of it goes to standard output. */
static void ask_for_files(void) {
  gsel_error* error = NULL;
  gsel_inventory* inventory = NULL;
  gsel_inventory_detect(&inventory, &error);
  gsel_inventory_free(inventory);
  tell(error);
  gsel_resolve_options any = GSEL_RESOLVE_OPTIONS_INIT;
  gsel_reserve_options options = GSEL_RESERVE_OPTIONS_INIT;
  gsel_reservation* reservation = NULL;
  error = NULL;
  gsel_reserve(&any, &options, &reservation, &error);
  gsel_reservation_free(reservation);
  tell(error);
  join_two();
  gsel_plugin_list* plugins = NULL;
  gsel_plugin_list_create(&plugins, NULL);
  gsel_plugin_list_free(plugins);
}

enum { NOT_ELEVATED = 9 };

static int play(const char* part) {
  const int elevated = !strncmp(part, "elevated", 8);
  aborts = !strcmp(part, "aborts") || !strcmp(part, "elevated");
  if (elevated && (geteuid() == getuid() || !getauxval(AT_SECURE))) return NOT_ELEVATED;
  if (!strcmp(part, "asks") || !strcmp(part, "elevated asks")) return ask_for_files(), 0;
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
             "gsel warning [environment] GSEL_LOG=nonsense: is no level, so nothing is logged; expected error, warn, "
             "info or debug\n");
  check_told("GSEL_TRACE=/nonexistent", "plain", "",
             "gsel warning [environment] GSEL_TRACE=/nonexistent: failures cannot be recorded there: ENOENT (No such "
             "file or directory); expected a folder that can be written to\n");
  check_told("GSEL_TRACE=/etc/passwd", "plain", "",
             "gsel warning [environment] GSEL_TRACE=/etc/passwd: failures cannot be recorded there: ENOTDIR (Not a "
             "directory); expected a folder that can be written to\n");
  check_told("GSEL_PLUGIN_PATH=relative", "plain", "",
             "gsel warning [environment] GSEL_PLUGIN_PATH=relative: is not an absolute path; GSEL_PLUGIN_PATH takes "
             "absolute folders joined by ':'\n");
  check_told(
      "GSEL_TUNING=/nonexistent/tuning.toml", "plain", "",
      "gsel warning [environment] GSEL_TUNING=/nonexistent/tuning.toml: tuning is not used: tuning file "
      "/nonexistent/tuning.toml: ENOENT (No such file or directory); expected a readable file; gsel tune makes one\n");
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
             "directory); expected a folder that can be written to\n",
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

/* ---- more rights than the user ---- */

enum { NOBODY = 65534 };

/* Starts a copy of this program as a user with these variables and no others, and gives its wait status. What it writes
 * goes to `err`. */
static int run_as(uid_t user, char* copy, const char* part, char* const* variables) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    char* const arguments[] = {copy, "program", (char*)part, NULL};
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    if (user != geteuid() && (setgroups(0, NULL) || setgid(user) || setuid(user))) _exit(1);
    execve(copy, arguments, variables);
    _exit(2);
  }
  close(ends[1]);
  size_t n = 0;
  for (ssize_t got; n < sizeof err - 1 && (got = read(ends[0], err + n, sizeof err - 1 - n)) > 0;) n += (size_t)got;
  err[n] = '\0';
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

static int run_with_trace(uid_t user, char* copy, const char* part, const char* folder, const char* fault) {
  char trace[300], faults[100];
  snprintf(trace, sizeof trace, "GSEL_TRACE=%s", folder);
  snprintf(faults, sizeof faults, "GSEL_FAULT=%s", fault);
  char* const variables[] = {trace, faults, "GSEL_LOG=warn", NULL};
  return run_as(user, copy, part, variables);
}

/* Each variable that names a file names one of its own, which is not there: whether the program speaks of it. */
static const char* const files[] = {"GSEL_NVML_LIBRARY", "GSEL_SYSFS_ROOT",  "GSEL_RESERVE_FOLDER",
                                    "GSEL_TUNING",       "GSEL_PLUGIN_PATH", "GSEL_CONFIG"};
enum { N_FILES = sizeof files / sizeof *files };

static int speaks_of(uid_t user, char* copy, const char* part, const char* variable, int* status) {
  char set[200], named[100];
  snprintf(named, sizeof named, "/nonexistent/%s/file", variable);
  snprintf(set, sizeof set, "%s=%s", variable, named);
  char* const variables[] = {set, "GSEL_LOG=warn", "XDG_CONFIG_HOME=/nonexistent", NULL};
  *status = run_as(user, copy, part, variables);
  return strstr(err, named) != NULL;
}

/* Files in a folder, which are removed. */
static int take_files(const char* folder) {
  int n = 0;
  DIR* open = opendir(folder);
  assert_non_null(open);
  for (struct dirent* entry; (entry = readdir(open));)
    if (entry->d_name[0] != '.' && unlinkat(dirfd(open), entry->d_name, 0) == 0) ++n;
  closedir(open);
  return n;
}

/* A copy that belongs to root, has the set-user-ID bit, and may be run by everybody. */
static void make_copy(const char* path) {
  const int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_WRONLY | O_CREAT | O_EXCL, 0700);
  struct stat file;
  assert_true(from >= 0 && to >= 0 && fstat(from, &file) == 0);
  for (off_t at = 0; at < file.st_size;) assert_true(sendfile(to, from, &at, (size_t)(file.st_size - at)) > 0);
  assert_int_equal(fchmod(to, 04755), 0);
  close(from);
  close(to);
}

static void a_set_user_id_program_follows_nothing_that_names_a_file_or_a_fault(void** state) {
  (void)state;
  if (geteuid() != 0) {
    print_message("skipped: only root can make a set-user-ID program\n");
    skip();
  }
  char folder[] = "/tmp/gsel-variables-XXXXXX" /* the pattern of mkdtemp */, copy[64], secret[64];
  assert_non_null(mkdtemp(folder));
  snprintf(copy, sizeof copy, "%s/program", folder);
  snprintf(secret, sizeof secret, "%s/secret", folder);
  assert_true(chmod(folder, 0755) == 0 && mkdir(secret, 0700) == 0);
  make_copy(copy);
  /* Without more rights than its user: it records its failures, and dies by the fault. */
  const int recorded = run_with_trace(0, copy, "aborts", secret, "") == 0 ? take_files(secret) : -1;
  const int killed = run_with_trace(0, copy, "aborts", secret, "kill@enter");
  int status = run_with_trace(NOBODY, copy, "elevated", secret, "");
  const int written = take_files(secret);
  char told[512];
  snprintf(told, sizeof told, "%.500s", err);
  if (status == 0) status = run_with_trace(NOBODY, copy, "elevated", secret, "kill@enter");
  int obeyed[N_FILES], disobeyed[N_FILES], ended;
  for (int i = 0; i < N_FILES; ++i) {
    obeyed[i] = speaks_of(0, copy, "asks", files[i], &ended);
    disobeyed[i] = !speaks_of(NOBODY, copy, "elevated asks", files[i], &ended) && ended == 0;
  }
  unlink(copy);
  rmdir(secret);
  rmdir(folder);
  assert_int_equal(recorded, 2);
  assert_true(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL);
  if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_ELEVATED) {
    print_message("skipped: the set-user-ID bit does nothing in /tmp\n");
    skip();
  }
  if (status != 0 || written != 0 || told[0])
    fail_msg("wait status 0x%x, %d files in a folder of root's, told: %s", (unsigned)status, written, told);
  for (int i = 0; i < N_FILES; ++i) {
    if (!obeyed[i])
      fail_msg("%s: not followed by a program with the rights of its user, so nothing is shown", files[i]);
    if (!disobeyed[i]) fail_msg("%s: followed by a program with more rights than its user", files[i]);
  }
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
      cmocka_unit_test(a_set_user_id_program_follows_nothing_that_names_a_file_or_a_fault),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
