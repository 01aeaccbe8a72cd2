/* nets/test_messages.c: the messages of messages.h, between processes and between threads; some of the processes may
 * not read the memory of others, as under Yama or in a container, so that long messages reach them in pieces. A world
 * is named by its seed and number: GSEL_NET_SEED=S GSEL_NET_ONLY="world N of" tries it again. */
#include "nets/messages.h"
#include "support/net.h"
#include "support/ranks.h"
#include "support/refuse.h"

typedef struct job {
  int worker;
  long seed;
  double end;
} job;

typedef struct world {
  uint64_t seed;
  int phases;
  int as_processes;
  uint32_t blind; /* bits of ranks that may not read others */
} world;

static void play_rank(rank_run* run) {
  const world* w = (const world*)run->user;
  gsel_error* err;
  gsel_comm* comm;
  if (w->as_processes && w->blind >> run->rank & 1 && !refuse_reading_others())
    print_message("no seccomp here: rank %d may read others\n", (int)run->rank);
  rank_ok(run, rank_join(run, &comm, &err), err);
  messages_play(comm, w->seed, w->phases, run->failure);
  gsel_comm_free(comm);
}

static void play_worlds(net_trial* t, void* user) {
  const job* j = (const job*)user;
  for (; net_seconds() < j->end; ++t->index) {
    const long n = t->index * NET_WORKERS + j->worker;
    snprintf(t->name, sizeof t->name, "world %ld of seed %ld", n, j->seed);
    if (!net_wanted(t->name)) continue;
    uint64_t state = (uint64_t)j->seed * 1000003u + (uint64_t)n;
    world w = {net_random(&state), 1 + (int)(n % MESSAGES_MOST_PHASES), n % 8 != 7, 0};
    const int32_t ranks = 2 + (int32_t)(net_random(&state) % (MESSAGES_MOST_RANKS - 1));
    w.blind = n % 2 ? 0 : (uint32_t)net_random(&state) | 1;
    ++t->log->trials;
    rank_run* runs = ranks_prepare(ranks, &w);
    for (int32_t r = 0; r < ranks; ++r) runs[r].timeout_s = 30;
    (w.as_processes ? ranks_run_processes : ranks_run_threads)(runs, ranks, play_rank);
    for (int32_t r = 0; r < ranks; ++r)
      if (runs[r].failure[0] && !strstr(runs[r].failure, gsel_status_name(GSEL_ERR_ABORTED)))
        net_find(t->log, t->name, runs[r].failure);
    munmap(runs, sizeof *runs * (size_t)ranks);
  }
}

static void play(net_log* log, int worker) {
  const double seconds = (double)net_number("GSEL_NET_SECONDS", 10);
  job j = {worker, net_number("GSEL_NET_SEED", 1), net_seconds() + seconds};
  if (worker == 0) print_message("GSEL_NET_SEED=%ld\n", j.seed);
  net_contain(log, play_worlds, &j, 180 + seconds);
}

static void every_receive_gets_the_message_of_the_model(void** state) {
  (void)state;
  net_on_workers(play);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_receive_gets_the_message_of_the_model),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
