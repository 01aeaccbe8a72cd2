/* nets/test_failures.c: every call into the system that a rank makes from joining to leaving fails, one at a time: the
 * n-th call of a function for all n, with each of its errnos. Right is an error on the rank, an error that names it or
 * success on the others; an interrupted call is no failure at all. No crash, no hang, and nothing left behind:
 * descriptors, threads, mappings, memory; and the same process runs the scenario once more without a fault.
 *
 * Allocations are too many for `make test`: some are drawn, by GSEL_NET_SEED, for GSEL_NET_SECONDS. */
#include <errno.h>

#include "nets/stage.h"

static const world worlds[] = {
    {"comm, 2 threads", scenario_comm, 2, 0},
    {"comm, 3 processes", scenario_comm, 3, 1},
    {"trainer, 2 threads", scenario_trainer, 2, 0},
    {"files", scenario_files, 1, 0},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

/* ---- what is right ---- */

static const char* internal_or_wrong(const part_end* end) {
  if (end->status == 1 || end->status == GSEL_ERR_INTERNAL) return end->text;
  return NULL;
}

/* Others than the rank whose call failed: an error names it, or one that left because of it. */
static const char* blames_another(const stage* s, const part_end* end, int32_t victim) {
  const int names_a_rank = end->status == GSEL_ERR_PEER || end->status == GSEL_ERR_CALLBACK;
  if (end->rank == victim || !names_a_rank || end->about == victim) return NULL;
  return end->about < 0 || end->about == end->rank || !s->ends[end->about].status ? end->text : NULL;
}

static void judge(net_trial* t, const world* w, const stage* s, const shim_plan* plan) {
  char text[NET_LINE / 2];
  for (int32_t r = 0; r < w->ranks; ++r) {
    const part_end* end = &s->ends[r];
    const char* why = internal_or_wrong(end);
    if (!why && end->status && plan->error == EINTR && plan->site != SHIM_futex) why = end->text;
    if (!why) why = blames_another(s, end, plan->rank);
    if (!why) continue;
    snprintf(text, sizeof text, "rank %d: %s", (int)r, why);
    net_find(t->log, t->name, text);
  }
}

typedef struct level {
  traces held;
  long blocks;
} level;

static level level_now(void) {
  const level now = {traces_now(), shim_blocks()};
  return now;
}

/* A thread that has been joined is still listed for a moment. */
static level level_after(const level* before) {
  level now = level_now();
  for (int i = 0; i < 2000 && !holds_no_more(&now.held, &before->held); ++i) {
    sched_yield();
    now = level_now();
  }
  return now;
}

static void judge_level(net_trial* t, const level* before, const level* after) {
  char text[200];
  if (holds_no_more(&after->held, &before->held)) return;
  snprintf(text, sizeof text, "leaves %d descriptors, %d threads, %ld mappings, %ld blocks of memory files",
           after->held.descriptors - before->held.descriptors, after->held.threads - before->held.threads,
           after->held.mappings - before->held.mappings, after->held.blocks - before->held.blocks);
  net_find(t->log, t->name, text);
}

/* ---- trials ---- */

static const shim_plan nothing = {-1, SHIM_N_SITES, 0, 0, 0};

static void play_clean(net_trial* t, const world* w, stage* s) {
  char text[NET_LINE / 2];
  play(w, s, &nothing, 30);
  for (int32_t r = 0; r < w->ranks; ++r)
    if (s->ends[r].status) {
      snprintf(text, sizeof text, "afterwards, without a fault: rank %d: %s", (int)r, s->ends[r].text);
      net_find(t->log, t->name, text);
    }
}

/* Memory that a failure leaves behind grows each time; what is kept for later does not. */
static int grows(const world* w, stage* s, const shim_plan* plan) {
  long last = 0, grown = 0;
  for (int i = 0; i < 4; ++i) {
    play(w, s, plan, 0.2);
    play(w, s, &nothing, 30);
    const long now = shim_blocks();
    if (i > 0 && now <= last) return 0;
    grown = now - last;
    last = now;
  }
  return (int)grown;
}

static void attempt(net_trial* t, const world* w, stage* s, const shim_plan* plan) {
  static level before;
  static const world* of;
  snprintf(t->name, sizeof t->name, "%s: rank %d: %s call %ld %s %s", w->name, (int)plan->rank, shim_name(plan->site),
           plan->nth, plan->on ? "and later fail with" : "fails with", strerrorname_np(plan->error));
  if (!net_wanted(t->name)) return;
  ++t->log->trials;
  alarm(60);
  if (of != w) { /* what is made once is there already */
    play_clean(t, w, s);
    play_clean(t, w, s);
    before = level_now();
    of = w;
  }
  play(w, s, plan, 0.2);
  if (!s->of_victim.struck) return;
  judge(t, w, s, plan);
  if (w->as_processes) return;
  play_clean(t, w, s);
  const level after = level_after(&before);
  judge_level(t, &before, &after);
  if (after.blocks > before.blocks && grows(w, s, plan)) net_find(t->log, t->name, "leaves memory behind each time");
  before = level_now();
}

typedef struct job {
  const world* w;
  int32_t victim;
  int worker, workers;
  long seed;
  double end; /* of the time for allocations */
} job;

/* Every call of every function but allocations. */
static void every_call(net_trial* t, void* user) {
  const job* j = (const job*)user;
  stage* s = (stage*)shared_memory(sizeof *s);
  const shim_plan counting = {j->victim, SHIM_N_SITES, 0, 0, 0};
  const long from = t->index;
  long index = 0;
  play(j->w, s, &nothing, 30);
  play(j->w, s, &counting, 30);
  const counts counted = s->of_victim;
  for (int site = 0; site < SHIM_N_SITES; ++site)
    for (long n = 1; n <= counted.calls[site] && n <= 40 && !is_allocation((shim_site)site); ++n)
      for (const int* error = shim_errors((shim_site)site); *error; ++error) {
        const shim_plan plan = {j->victim, (shim_site)site, n, *error, 0};
        if (index++ < from || index % j->workers != j->worker) continue;
        t->index = index - 1;
        attempt(t, j->w, s, &plan);
      }
  alarm(0);
}

/* Allocations drawn at random, until the job's time is over. */
static void some_allocations(net_trial* t, void* user) {
  static const shim_site sites[] = {SHIM_malloc, SHIM_malloc,  SHIM_malloc,
                                    SHIM_calloc, SHIM_realloc, SHIM_aligned_alloc};
  const job* j = (const job*)user;
  stage* s = (stage*)shared_memory(sizeof *s);
  const shim_plan counting = {j->victim, SHIM_malloc, 0, 0, 0};
  play(j->w, s, &nothing, 30);
  play(j->w, s, &counting, 30);
  const counts counted = s->of_victim;
  for (; net_seconds() < j->end; ++t->index) {
    uint64_t state = (uint64_t)j->seed * 1000003u + (uint64_t)t->index * (uint64_t)j->workers + (uint64_t)j->worker;
    const shim_site site = sites[net_random(&state) % (sizeof sites / sizeof *sites)];
    if (!counted.calls[site]) continue;
    const long nth = 1 + (long)(net_random(&state) % (uint64_t)counted.calls[site]);
    const shim_plan plan = {j->victim, site, nth, ENOMEM, net_random(&state) % 4 == 0};
    attempt(t, j->w, s, &plan);
  }
  alarm(0);
}

static void all_calls(net_log* log, int worker) {
  for (int k = 0; k < N_WORLDS; ++k)
    for (int32_t victim = 0; victim < worlds[k].ranks && victim < 2; ++victim) {
      job j = {&worlds[k], victim, worker, NET_WORKERS, 0, 0};
      const double begin = net_seconds();
      net_contain(log, every_call, &j, 600);
      if (worker == 0) print_message("%s, rank %d: %.1f s\n", worlds[k].name, (int)victim, net_seconds() - begin);
    }
}

static void drawn_allocations(net_log* log, int worker) {
  const double all = (double)net_number("GSEL_NET_SECONDS", 5), each = all / (2 * N_WORLDS - 1);
  const long seed = net_number("GSEL_NET_SEED", 1);
  if (worker == 0) print_message("GSEL_NET_SEED=%ld\n", seed);
  for (int k = 0; k < N_WORLDS; ++k)
    for (int32_t victim = 0; victim < worlds[k].ranks && victim < 2; ++victim) {
      job j = {&worlds[k], victim, worker, NET_WORKERS, seed, net_seconds() + each};
      net_contain(log, some_allocations, &j, 60 + each);
    }
}

static void no_failing_call_harms(void** state) {
  (void)state;
  net_on_workers(all_calls);
}

static void no_failing_allocation_harms(void** state) {
  (void)state;
  net_on_workers(drawn_allocations);
}

int main(void) {
  if (!make_scratch(folder, sizeof folder, "failures") || chdir(folder)) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_failing_call_harms),
      cmocka_unit_test(no_failing_allocation_harms),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return remove_scratch(folder) || failed;
}
