/* faults/test_comm_random.c: ranks are killed and stopped at random moments of random calls, GSEL_TEST_FAULTS times
 * each (60): every survivor gets the error that names the rank, and no process, descriptor, mapping, file or socket
 * stays. */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include "support/trials.h"

static int entries(const char* path) {
  DIR* folder = opendir(path);
  int count = 0;
  while (folder && readdir(folder)) ++count;
  if (folder) closedir(folder);
  return count;
}

static int sockets(void) {
  FILE* file = fopen("/proc/self/net/unix", "r");
  char line[512];
  int count = 0;
  while (file && fgets(line, sizeof line, file)) count += strstr(line, "@gsel-") != NULL;
  if (file) fclose(file);
  return count;
}

/* A place of our own, so that what others leave or take away meanwhile does not count; 0 where that is not allowed. */
static int retreat(void) {
  static const char* const folders[] = {"/dev/shm", "/tmp", "/run"};
  if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) != 0) return 0;
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 0;
  for (int i = 0; i < 3; ++i)
    if (mount("none", folders[i], "tmpfs", 0, "size=64m") != 0) return 0;
  return 1;
}

static int times(void) {
  const char* text = getenv("GSEL_TEST_FAULTS");
  return text && atoi(text) > 0 ? atoi(text) : 60;
}

static void strike_at_random_times(action what) {
  gsel_collective_kind kinds[16];
  int n_kinds = 0;
  while (every_call(n_kinds, &kinds[n_kinds])) ++n_kinds;
  const int n = times();
  trial* trials = calloc((size_t)n, sizeof *trials);
  for (int i = 0; i < n; ++i)
    trials[i] = (trial){what, 0, 0, rand() % RANKS, kinds[rand() % n_kinds], sizes[rand() % N_SIZES], 1};
  const double started = seconds();
  assert_int_equal(run_all(trials, n, NULL), n);
  print_message("%s at a random moment: %d times in %.1f s\n", actions[what], n, seconds() - started);
  free(trials);
}

/* In a child that adopts what its children leave behind. */
static void random_faults_leave_nothing(void) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int private_place = retreat();
  const int descriptors = open_descriptors();
  const int before[] = {entries("/dev/shm"), entries("/tmp"), entries("/run")};
  strike_at_random_times(KILL);
  strike_at_random_times(STOP);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
  assert_int_equal(open_descriptors(), descriptors);
  assert_int_equal(shared_mappings(), 0);
  if (!private_place) {
    print_message("no namespaces here: files and sockets are not looked at\n");
    return;
  }
  assert_int_equal(entries("/dev/shm"), before[0]);
  assert_int_equal(entries("/tmp"), before[1]);
  assert_int_equal(entries("/run"), before[2]);
  assert_int_equal(sockets(), 0);
}

static void ranks_killed_and_stopped_at_random_leave_nothing_behind(void** state) {
  (void)state;
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    random_faults_leave_nothing();
    fflush(NULL);
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
}

int main(void) {
  srand(20262);
  const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_killed_and_stopped_at_random_leave_nothing_behind)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
