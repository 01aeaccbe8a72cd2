/* nets/sequences.c: a machine of machine.h, given random sequences of calls. A sequence is named by its seed and
 * number: GSEL_NET_SEED=S GSEL_NET_ONLY="sequence N of" tries it again. */
#include "nets/machine.h"
#include "support/net.h"
#include "support/traces.h"

enum { LONGEST = 100 };

typedef struct job {
  int worker;
  long seed;
  double end;
} job;

static void draw(uint64_t state, uint8_t* data, size_t size) {
  for (size_t i = 0; i < size; ++i) data[i] = (uint8_t)net_random(&state);
}

static void play_sequences(net_trial* t, void* user) {
  const job* j = (const job*)user;
  uint8_t data[LONGEST * MACHINE_OP_BYTES];
  char text[MACHINE_TEXT];
  traces before = traces_now();
#if defined(__SANITIZE_THREAD__)
  ++before.threads; /* the sanitizer's own begins with the first thread of this process */
#endif
  for (; net_seconds() < j->end; ++t->index) {
    const long n = t->index * NET_WORKERS + j->worker;
    snprintf(t->name, sizeof t->name, "sequence %ld of seed %ld", n, j->seed);
    if (!net_wanted(t->name)) continue;
    draw((uint64_t)j->seed * 1000003u + (uint64_t)n, data, sizeof data);
    ++t->log->trials;
    alarm(120);
    const size_t calls = (size_t)(8 + n % (LONGEST - 8));
    const char* wrong = machine_run(&played, data, calls * MACHINE_OP_BYTES, text);
    if (wrong) net_find(t->log, t->name, wrong);
    traces after = traces_now();
    for (int i = 0; i < 2000 && !holds_no_more(&after, &before); ++i) after = traces_now();
    if (!holds_no_more(&after, &before)) {
      net_find(t->log, t->name, "leaves descriptors, threads or mappings");
      _exit(1);
    }
  }
  alarm(0);
}

static void play(net_log* log, int worker) {
  const double seconds = (double)net_number("GSEL_NET_SECONDS", 5);
  job j = {worker, net_number("GSEL_NET_SEED", 1), net_seconds() + seconds};
  if (worker == 0) print_message("GSEL_NET_SEED=%ld\n", j.seed);
  net_contain(log, play_sequences, &j, 180 + seconds);
}

static void every_answer_is_that_of_the_model(void** state) {
  (void)state;
  net_on_workers(play);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_answer_is_that_of_the_model),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
