/* support/command.h: runs the gsel command in a scratch folder and keeps what it says, for the tests of the command. A
 * pipe that every process started here inherits tells whether one is left: it ends when the last of them does. */
#ifndef GSEL_TESTS_COMMAND_H
#define GSEL_TESTS_COMMAND_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"
#include "support/scratch.h"

#define MAX_TEXT (1 << 20)
#define ALIVE_FD 9

static char dir[256];
static char out[MAX_TEXT], err[MAX_TEXT];
static int alive = -1; /* ends when no process of the last job is left */

static inline void read_back(const char* name, char* text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE* file = fopen(path, "r");
  const size_t n = file ? fread(text, 1, MAX_TEXT - 1, file) : 0;
  text[n] = '\0';
  if (file) fclose(file);
}

/* Starts a shell line in the scratch folder; its pid is that of the first command when the line begins with exec. */
static inline pid_t start(const char* line) {
  int ends[2];
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], ALIVE_FD);
    if (chdir(dir) != 0) _exit(99);
    execl("/bin/sh", "sh", "-c", line, (char*)NULL);
    _exit(99);
  }
  close(ends[1]);
  if (alive >= 0) close(alive);
  alive = ends[0];
  return pid;
}

/* Its exit status, with out and err filled from the files of those names. */
static inline int finish(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  read_back("out", out);
  read_back("err", err);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Runs `gsel <arguments>`. */
static inline int gsel(const char* arguments) {
  char line[4096];
  snprintf(line, sizeof line, "exec gsel %s >out 2>err", arguments);
  return finish(start(line));
}

#define check_gsel(arguments, status) check_status(gsel(arguments), (status), (arguments), __LINE__)
static inline void check_status(int got, int expected, const char* arguments, int line) {
  if (got != expected)
    fail_msg("line %d: gsel %s: expected status %d, got %d\nout: %s\nerr: %s", line, arguments, expected, got, out,
             err);
}

#define check_part(text, part) check_part_at((text), (part), __LINE__)
static inline void check_part_at(const char* text, const char* part, int line) {
  if (!strstr(text, part)) fail_msg("line %d: expected \"%s\" in: %s", line, part, text);
}

static inline void write_file(const char* name, const char* text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE* file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

/* A scratch folder, and the command that was built on PATH; 0 when both are there. */
static inline int command_set_up(const char* area) {
  char path[4096];
  snprintf(path, sizeof path, "%s/bin:%s", getenv("GSEL_TEST_BIN"), getenv("PATH"));
  setenv("PATH", path, 1);
  snprintf(path, sizeof path, "%s/bin/gsel", getenv("GSEL_TEST_BIN"));
  if (access(path, X_OK) != 0) return -1;
  return make_scratch(dir, sizeof dir, area) ? 0 : -1;
}

static inline int command_tear_down(void) {
  char line[512];
  snprintf(line, sizeof line, "rm -rf '%s'", dir);
  return system(line);
}

#endif
