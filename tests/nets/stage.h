/* nets/stage.h: a scenario played by ranks as threads or as forked processes, with a call that is to fail, and how each
 * rank's part ended. */
#ifndef GSEL_TESTS_NETS_STAGE_H
#define GSEL_TESTS_NETS_STAGE_H

#include <sys/prctl.h>
#include <sys/stat.h>

#include "nets/scenario.h"
#include "nets/shim.h"
#include "support/net.h"
#include "support/scratch.h"
#include "support/traces.h"

enum { MOST_RANKS = 3 };

typedef struct world {
  const char* name;
  scenario_body body;
  int32_t ranks;
  int as_processes;
} world;

static char folder[300]; /* of the net */

typedef struct counts {
  long calls[SHIM_N_SITES];
  int struck;
} counts;

typedef struct stage {
  part parts[MOST_RANKS];
  part_end ends[MOST_RANKS];
  counts of_victim; /* shared memory: a forked rank writes it */
  char folders[MOST_RANKS][400];
} stage;

static inline void note_counts(stage* s) {
  for (int i = 0; i < SHIM_N_SITES; ++i) s->of_victim.calls[i] = shim_calls((shim_site)i);
  s->of_victim.struck = shim_struck();
}

struct part_thread {
  scenario_body body;
  part* p;
};
static inline void* part_main(void* argument) {
  const struct part_thread* thread = (const struct part_thread*)argument;
  thread->body(thread->p);
  return NULL;
}

static inline void play_threads(const world* w, stage* s) {
  pthread_t threads[MOST_RANKS];
  struct part_thread parts[MOST_RANKS];
  for (int32_t r = 0; r < w->ranks; ++r) {
    parts[r] = (struct part_thread){w->body, &s->parts[r]};
    pthread_create(&threads[r], NULL, part_main, &parts[r]);
  }
  for (int32_t r = 0; r < w->ranks; ++r) pthread_join(threads[r], NULL);
  note_counts(s);
}

static inline void play_processes(const world* w, stage* s, int32_t victim) {
  pid_t pids[MOST_RANKS];
  char text[64];
  for (int32_t r = 0; r < w->ranks; ++r) {
    fflush(NULL);
    pids[r] = fork();
    if (pids[r]) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(victim < 0 ? 100 : 10);
    const traces before = traces_now();
    w->body(&s->parts[r]);
    traces after = traces_now();
    for (int i = 0; i < 2000 && !holds_no_more(&after, &before); ++i) after = traces_now();
    if (!holds_no_more(&after, &before)) {
      s->ends[r].status = 1;
      snprintf(s->ends[r].text, sizeof s->ends[r].text, "wrong: leaves %d descriptors, %d threads, %ld mappings",
               after.descriptors - before.descriptors, after.threads - before.threads,
               after.mappings - before.mappings);
    }
    if (r == victim) note_counts(s);
    _exit(0);
  }
  for (int32_t r = 0; r < w->ranks; ++r) {
    const char* bad = net_reap(pids[r], victim < 0 ? 110 : 20, text, sizeof text);
    if (!bad) continue;
    s->ends[r].status = 1;
    snprintf(s->ends[r].text, sizeof s->ends[r].text, "wrong: rank %d: %s", (int)r, bad);
  }
}

static inline int is_allocation(shim_site site) {
  return site == SHIM_malloc || site == SHIM_calloc || site == SHIM_realloc || site == SHIM_aligned_alloc;
}

static inline void play(const world* w, stage* s, const shim_plan* plan, double timeout_s) {
  gsel_unique_id id;
  assert_int_equal(gsel_unique_id_create(&id, NULL), GSEL_OK);
  memset(s->ends, 0, sizeof s->ends);
  for (int32_t r = 0; r < w->ranks; ++r) {
    s->ends[r].rank = r;
    snprintf(s->folders[r], sizeof s->folders[r], "%s/%d-%d", folder, (int)getpid(), (int)r);
    mkdir(s->folders[r], 0700);
    s->parts[r] = (part){{r, w->ranks, id, timeout_s, timeout_s, NULL, ""},
                         &s->ends[r],
                         timeout_s,
                         s->folders[r],
                         !is_allocation(plan->site),
                         plan->rank >= 0};
  }
  shim_set(plan);
  if (w->as_processes)
    play_processes(w, s, plan->rank);
  else
    play_threads(w, s);
}

#endif
