/* See beside.h. */
#include "support/beside.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AT_ONCE = 4, TESTS_MAX = 64 };

typedef struct beside {
  pid_t pid;
  FILE* said;
} beside;

static void begin(beside* one, const struct CMUnitTest* test) {
  one->said = tmpfile();
  if (!one->said) exit(2);
  fflush(NULL);
  const pid_t parent = getpid();
  one->pid = fork();
  if (one->pid < 0) exit(2);
  if (one->pid > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(2);
  dup2(fileno(one->said), STDOUT_FILENO);
  dup2(fileno(one->said), STDERR_FILENO);
  exit(_cmocka_run_group_tests(test->name, test, 1, NULL, NULL));
}

static void show(beside* one) {
  char line[4096];
  rewind(one->said);
  while (fgets(line, sizeof line, one->said)) fputs(line, stdout);
  fclose(one->said);
  fflush(stdout);
}

int run_tests_beside(const struct CMUnitTest* tests, size_t n) {
  beside all[TESTS_MAX];
  size_t begun = 0, ended = 0;
  int failed = 0;
  if (n > TESTS_MAX) return (int)n;
  while (ended < n) {
    for (; begun < n && begun - ended < AT_ONCE; ++begun) begin(&all[begun], &tests[begun]);
    int status = 0;
    const pid_t pid = wait(&status);
    for (size_t i = 0; i < begun; ++i) {
      if (all[i].pid != pid) continue;
      show(&all[i]);
      ++ended;
      if (!WIFEXITED(status)) printf("%s: ended by signal %d\n", tests[i].name, WTERMSIG(status));
      failed += status != 0;
    }
  }
  printf("[==========] %zu tests run, %d failed.\n", n, failed);
  return failed;
}
