/* See net.h. */
#include "support/net.h"

#include <execinfo.h>
#include <sys/prctl.h>
#include <time.h>

double net_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

long net_number(const char* variable, long otherwise) {
  const char* text = getenv(variable);
  return text && *text ? strtol(text, NULL, 0) : otherwise;
}

uint64_t net_random(uint64_t* state) { /* splitmix64 */
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int net_wanted(const char* name) {
  const char* only = getenv("GSEL_NET_ONLY");
  return !only || strstr(name, only) != NULL;
}

net_log* net_open(void) {
  return (net_log*)shared_memory(sizeof(net_log));
}

void net_find(net_log* log, const char* trial, const char* what) {
  char line[NET_LINE];
  snprintf(line, sizeof line, "%.400s: %.600s", trial, what);
  for (int i = 0; i < log->findings && i < NET_FINDINGS; ++i)
    if (!strcmp(log->text[i], line)) return; /* of another rank */
  const int i = __atomic_fetch_add(&log->findings, 1, __ATOMIC_RELAXED);
  if (i < NET_FINDINGS) memcpy(log->text[i], line, sizeof line);
}

void net_close(net_log* log, const net_known* known, int n_known) {
  int fresh = 0;
  for (int i = 0; i < log->findings && i < NET_FINDINGS; ++i) {
    const char* reason = NULL;
    for (int k = 0; k < n_known; ++k)
      if (!strncmp(log->text[i], known[k].begins, strlen(known[k].begins))) reason = known[k].reason;
    if (reason)
      print_message("known: %s (%s)\n", log->text[i], reason);
    else
      print_error("found: %s\n", log->text[i]);
    fresh += !reason;
  }
  print_message("%ld trials, %d findings\n", log->trials, log->findings);
  munmap(log, sizeof *log);
  if (fresh) fail_msg("%d findings", fresh);
}

const char* net_reap(pid_t pid, double most, char* text, size_t capacity) {
  const double begin = net_seconds();
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (net_seconds() - begin > most) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      snprintf(text, capacity, "no end after %g s", most);
      return text;
    }
    usleep(500);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return NULL;
  if (WIFSIGNALED(status))
    snprintf(text, capacity, WTERMSIG(status) == SIGALRM ? "no answer" : "signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  else
    snprintf(text, capacity, "exit status %d", WEXITSTATUS(status));
  return text;
}

static void net_crashed(int number) {
  void* frames[40];
  const int n = backtrace(frames, 40);
  backtrace_symbols_fd(frames, n, 2);
  signal(number, SIG_DFL);
  raise(number);
}

/* What ends the process shows where, with GSEL_NET_TRACE=1; and not by cmocka's handlers. */
static void net_trace_crashes(void) {
  static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  void* first[1];
  backtrace(first, 1); /* loads what it needs */
  for (size_t i = 0; i < sizeof deadly / sizeof *deadly; ++i)
    signal(deadly[i], net_number("GSEL_NET_TRACE", 0) ? net_crashed : SIG_DFL);
}

void net_contain(net_log* log, net_body body, void* user, double most_seconds) {
  net_trial* trial = (net_trial*)shared_memory(sizeof *trial);
  char text[64];
  trial->log = log;
  for (;;) {
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      net_trace_crashes();
      body(trial, user);
      _exit(0);
    }
    const char* wrong = net_reap(pid, most_seconds, text, sizeof text);
    if (!wrong) break;
    net_find(log, trial->name, wrong);
    ++trial->index;
  }
  munmap(trial, sizeof *trial);
}

void net_on_workers(net_work work) {
  net_log* log = net_open();
  pid_t pids[NET_WORKERS];
  for (int i = 0; i < NET_WORKERS; ++i) {
    fflush(NULL);
    pids[i] = fork();
    if (pids[i]) continue;
    work(log, i);
    _exit(0);
  }
  for (int i = 0; i < NET_WORKERS; ++i) {
    int status = 0;
    waitpid(pids[i], &status, 0);
    assert_int_equal(status, 0);
  }
  net_close(log, NULL, 0);
}
