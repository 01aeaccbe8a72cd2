/* nets/test_signals.c: ranks join, call, shrink, train and read files while each of their threads is interrupted every
 * few dozen microseconds, by a handler that asks for no restart. Every call must do what it does otherwise; threads of
 * the library block signals. */
#include <sys/syscall.h>

#include "nets/stage.h"

static long* signals; /* of all processes */

static void handle(int number) {
  (void)number;
  __atomic_add_fetch(signals, 1, __ATOMIC_RELAXED);
}

/* Plays a part with a timer that interrupts this thread alone. */
static void pestered(part* p, scenario_body body) {
  struct sigevent event;
  timer_t timer;
  const long interval_ns = 30000 + (long)(p->run.id.bytes[p->run.rank] % 16) * 10000;
  const struct itimerspec every = {{0, interval_ns}, {0, interval_ns}}, never = {{0, 0}, {0, 0}};
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGUSR1;
  event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  timer_settime(timer, 0, &every, NULL);
  body(p);
  timer_settime(timer, 0, &never, NULL);
  timer_delete(timer);
  if (shim_open_to_signals() && !p->end->status) {
    p->end->status = 1;
    snprintf(p->end->text, sizeof p->end->text, "wrong: a thread of the library does not block signals");
  }
}

static void pestered_comm(part* p) {
  pestered(p, scenario_comm);
}
static void pestered_trainer(part* p) {
  pestered(p, scenario_trainer);
}
static void pestered_files(part* p) {
  pestered(p, scenario_files);
}

static const world worlds[] = {
    {"comm, 2 threads", pestered_comm, 2, 0},
    {"comm, 3 processes", pestered_comm, 3, 1},
    {"trainer, 2 threads", pestered_trainer, 2, 0},
    {"trainer, 2 processes", pestered_trainer, 2, 1},
    {"files", pestered_files, 1, 0},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

typedef struct job {
  const world* w;
  double end;
} job;

static void play_on(net_trial* t, void* user) {
  const shim_plan nothing = {-1, SHIM_N_SITES, 0, 0, 0};
  const job* j = (const job*)user;
  stage* s = (stage*)shared_memory(sizeof *s);
  struct sigaction action;
  char text[NET_LINE / 2];
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  sigaction(SIGUSR1, &action, NULL);
  for (; t->index == 0 || net_seconds() < j->end; ++t->index) {
    snprintf(t->name, sizeof t->name, "%s", j->w->name);
    ++t->log->trials;
    alarm(120);
    play(j->w, s, &nothing, 60);
    for (int32_t r = 0; r < j->w->ranks; ++r) {
      if (!s->ends[r].status) continue;
      snprintf(text, sizeof text, "rank %d: %s", (int)r, s->ends[r].text);
      net_find(t->log, t->name, text);
    }
  }
  alarm(0);
}

static void no_signal_harms(void** state) {
  (void)state;
  net_log* log = net_open();
  signals = (long*)shared_memory(sizeof *signals);
  const double each = (double)net_number("GSEL_NET_SECONDS", 5) / N_WORLDS;
  for (int i = 0; i < N_WORLDS; ++i) {
    if (!net_wanted(worlds[i].name)) continue;
    const long before = log->trials;
    job j = {&worlds[i], net_seconds() + each};
    net_contain(log, play_on, &j, 240 + each);
    print_message("%s: %ld runs\n", worlds[i].name, log->trials - before);
  }
  print_message("%ld signals\n", *signals);
  assert_true(*signals > 0);
  net_close(log, NULL, 0);
}

int main(void) {
  if (!make_scratch(folder, sizeof folder, "signals") || chdir(folder)) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_signal_harms),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return remove_scratch(folder) || failed;
}
