/* See command.h. */
#include "support/command.h"

#include <errno.h>
#include <poll.h>

#define ALIVE_FD 9

char dir[256];
char out[MAX_TEXT], err[MAX_TEXT];
int alive = -1; /* ends when no process of the last job is left */

void read_back(const char* name, char* text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE* file = fopen(path, "r");
  const size_t n = file ? fread(text, 1, MAX_TEXT - 1, file) : 0;
  text[n] = '\0';
  if (file) fclose(file);
}

pid_t start(const char* line) {
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

int finish(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  read_back("out", out);
  read_back("err", err);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int gsel(const char* arguments) {
  char line[4096];
  snprintf(line, sizeof line, "exec gsel %s >out 2>err", arguments);
  return finish(start(line));
}

void check_status(int got, int expected, const char* arguments, int line) {
  if (got != expected)
    fail_msg("line %d: gsel %s: expected status %d, got %d\nout: %s\nerr: %s", line, arguments, expected, got, out,
             err);
}

void check_part_at(const char* text, const char* part, int line) {
  if (!strstr(text, part)) fail_msg("line %d: expected \"%s\" in: %s", line, part, text);
}

void write_file(const char* name, const char* text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE* file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

int command_set_up(const char* area) {
  char path[4096];
  snprintf(path, sizeof path, "%s/bin:%s", getenv("GSEL_TEST_BIN"), getenv("PATH"));
  setenv("PATH", path, 1);
  snprintf(path, sizeof path, "%s/bin/gsel", getenv("GSEL_TEST_BIN"));
  if (access(path, X_OK) != 0) return -1;
  return make_scratch(dir, sizeof dir, area) ? 0 : -1;
}

int command_tear_down(void) {
  char line[512];
  snprintf(line, sizeof line, "rm -rf '%s'", dir);
  return system(line);
}
