/* Steps of several ranks on one device that run as graphs, over cuda_ipc: under strategies of the data axis losses,
 * norms and parameters are those of plain steps, bit for bit, and so are the calls that are counted; callbacks are
 * called in two steps. What several ranks cannot record is refused on all of them. A rank that dies is told. */
#include "fake/cuda/graph_trial.h"
#include "support/ranks.h"

#define ADAMW "[train]\noptimizer = \"adamw\"\nlearning_rate = 0.125\nbatch = 12\nseed = 3\n"
#define DDP "[strategy.data]\nplugin = \"ddp\"\n"
#define SMALL_BUCKETS "bucket_bytes = 100\nfirst_bucket_bytes = 1\n"
#define ZERO(stage) "[strategy.data]\nplugin = \"zero\"\npersist_elems = 0\nstage = " stage "\n"

typedef struct job {
  const char* config;
  const char* transport; /* NULL: cuda_ipc */
  int dies_at;           /* rank 1 in the callback of this call of a layer; 0: never */
} job;

static void open_card(void) {
  double weights[MOST_BATCH + 1];
  load_doubles("fake_libnccl.so");
  card = open_gpu(0);
  one = (double*)alloc(&card, sizeof weights);
  key_log = (uint64_t*)alloc(&card, 8);
  for (int i = 0; i <= MOST_BATCH; ++i) weights[i] = i;
  copy(&card, one, weights, sizeof weights);
  finish(&card);
}

static gsel_comm* join(rank_run* run, const job* j) {
  gsel_comm* comm = NULL;
  gsel_error* err = NULL;
  open_card();
  rank_ok(run, join_on(run, j->transport ? j->transport : "cuda_ipc", 0, &comm, &err), err);
  return comm;
}

static void train_on(rank_run* run, gsel_comm* comm, const char* config, const char* graph, outcome* out) {
  gsel_error* err = NULL;
  const training t = {.config = config, .graph = graph, .reads = 1, .comm = comm};
  rank_ok(run, train(&t, out, &err), err);
}

static void expect_same(rank_run* run, const outcome* plain, const outcome* graph) {
  for (int i = 0; i < STEPS && !run->failure[0]; ++i) {
    const gsel_step_report *p = &plain->steps[i], *g = &graph->steps[i];
    rank_check(run, p->loss_sum == g->loss_sum && p->weight == g->weight && p->skipped == g->skipped);
    rank_check(run, memcmp(&p->gradient_norm, &g->gradient_norm, sizeof p->gradient_norm) == 0);
    rank_check(run, plain->keys[i] == graph->keys[i]);
    rank_check(run, memcmp(plain->params[i], graph->params[i], sizeof plain->params[i]) == 0);
    rank_check(run, memcmp(plain->gradients[i], graph->gradients[i], sizeof plain->gradients[i]) == 0);
    for (int k = 1; k <= GSEL_INSTR_OVERFLOW; ++k) {
      const gsel_comm_count *of_plain = &plain->comm[i][k], *of_graph = &graph->comm[i][k];
      if (of_plain->calls != of_graph->calls || of_plain->bytes_sent != of_graph->bytes_sent)
        print_message("    step %d, kind %d: %d calls of %d bytes instead of %d of %d\n", i, k, (int)of_graph->calls,
                      (int)of_graph->bytes_sent, (int)of_plain->calls, (int)of_plain->bytes_sent);
      rank_check(run, of_plain->calls == of_graph->calls && of_plain->bytes_sent == of_graph->bytes_sent);
    }
    if (run->failure[0]) snprintf(run->failure + strlen(run->failure), 64, " in step %d", i);
  }
}

static void replays(rank_run* run) {
  const job* j = (const job*)run->user;
  static outcome plain, graph;
  gsel_comm* comm = join(run, j);
  train_on(run, comm, j->config, "off", &plain);
  train_on(run, comm, j->config, "on", &graph);
  if (!run->failure[0]) expect_same(run, &plain, &graph);
  if (graph.launches < STEPS - 2) print_message("    launches %d, %s\n", graph.launches, graph.no_graphs);
  rank_check(run, plain.launches == 0 && graph.launches >= STEPS - 2);
  rank_check(run, last_sample >= 0 || graph.calls * STEPS == plain.calls * 2);
  rank_check(run, graph.alive == 0 && graph.allocations == 0);
  rank_check(run, cuda.violations() == 0);
  for (int i = 0; i < cuda.violations() && i < 3; ++i) fprintf(stderr, "violation: %s\n", cuda.violation(i));
  gsel_comm_free(comm);
}

static void on_ranks(int ranks, const char* config) {
  job j = {.config = config};
  print_message("  %d ranks: %s", ranks, config);
  as_processes(ranks, replays, &j);
}

static void graphs_of_several_ranks_give_the_bits_of_plain_steps(void** state) {
  (void)state;
  static const char* const configs[] = {DDP ADAMW,
                                        DDP SMALL_BUCKETS ADAMW "microbatches = 2\nclip_norm = 0.5\n",
                                        ZERO("1") ADAMW "clip_norm = 0.5\n",
                                        ZERO("2") ADAMW "microbatches = 2\n",
                                        ZERO("3") ADAMW "clip_norm = 0.5\n",
                                        ZERO("3") ADAMW "microbatches = 2\nprecision = \"bf16\"\n"};
  for (size_t i = 0; i < sizeof configs / sizeof *configs; ++i) on_ranks(i == 1 ? 3 : 2, configs[i]);
}

static void steps_that_are_skipped_or_end_early_are_alike(void** state) {
  (void)state;
  infinite_sample = 12 * 4 + 7; /* of the fifth step, on one rank */
  on_ranks(2, DDP ADAMW "non_finite = \"skip\"\n");
  infinite_sample = -1;
  last_sample = 12 * 4 + 6; /* one rank has none in the fifth step */
  on_ranks(2, DDP ADAMW);
  last_sample = -1;
}

/* ---- what cannot be recorded ---- */

static gsel_status allocates(const gsel_call* c, void* user) {
  uintptr_t at = 0;
  (void)c, (void)user;
  enter();
  cuda.alloc(&at, 64);
  leave();
  return GSEL_OK;
}

static void is_refused_in_a_step(rank_run* run) {
  const job* j = (const job*)run->user;
  static outcome out;
  gsel_error* err = NULL;
  char text[1024] = "";
  gsel_comm* comm = join(run, j);
  if (run->rank == 1) of_fault = allocates;
  const training t = {.config = j->config, .graph = "on", .comm = comm};
  const gsel_status status = train(&t, &out, &err);
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  print_message("    rank %d: %s\n", (int)run->rank, text);
  rank_check(run, status == (run->rank == 1 ? GSEL_ERR_UNSUPPORTED : GSEL_ERR_ABORTED));
  rank_check(run, strstr(text, "a call that a capture forbids has invalidated it") != NULL);
  gsel_comm_free(comm);
}

static void is_refused(rank_run* run) {
  const job* j = (const job*)run->user;
  static outcome out;
  gsel_error* err = NULL;
  gsel_comm* comm = join(run, j);
  const training t = {.config = j->config, .graph = "on", .comm = comm};
  rank_fails(run, train(&t, &out, &err), err, GSEL_ERR_UNSUPPORTED,
             j->transport ? "calls go through host memory" : "has \"scatter\", which is no part of a graph", -1);
  gsel_comm_free(comm);
}

static void what_cannot_be_recorded_is_refused_on_all_ranks(void** state) {
  (void)state;
  job callback = {.config = DDP ADAMW}, dp = {.config = "[strategy.data]\nplugin = \"dp\"\n" ADAMW},
      host = {.config = DDP ADAMW, .transport = "host"};
  as_processes(2, is_refused_in_a_step, &callback);
  as_processes(2, is_refused, &dp);
  as_processes(2, is_refused, &host);
}

/* ---- a rank that dies while others launch ---- */

static void launches_until_a_rank_dies(rank_run* run) {
  const job* j = (const job*)run->user;
  gsel_error* err = NULL;
  gsel_model* model = NULL;
  gsel_status status = GSEL_OK;
  gsel_comm* comm = join(run, j);
  training t = {.config = j->config, .graph = "on", .comm = comm};
  gsel_trainer* trainer = open_trainer(&t, &model, &status, &err);
  for (int i = 0; i < 40 && !status; ++i) {
    if (run->rank == 1 && i == 5) CUDA("fake_cuda_lose", int, int)(j->dies_at, -SIGKILL);
    status = gsel_trainer_step(trainer, NULL, &err);
  }
  rank_fails(run, status, err, GSEL_ERR_PEER, "rank 1 (pid ", 1);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_comm_free(comm);
}

static void a_rank_that_dies_is_named(void** state) {
  (void)state;
  for (int at = 1; at < 30; at += 4) {
    job j = {.config = ZERO("2") ADAMW, .dies_at = at};
    rank_run* runs = ranks_prepare(2, &j);
    int status[2];
    pid_t pids[2];
    for (int r = 0; r < 2; ++r) pids[r] = rank_fork(&runs[r], launches_until_a_rank_dies);
    for (int r = 0; r < 2; ++r) waitpid(pids[r], &status[r], 0);
    assert_int_equal(status[0], 0);
    assert_true(WIFSIGNALED(status[1]) && WTERMSIG(status[1]) == SIGKILL);
    ranks_verdict(runs, 2);
  }
}

int main(void) {
  infinite_sample = last_sample = -1;
  /* The double counts what a process does, and no thread may have run here before ranks are forked. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(graphs_of_several_ranks_give_the_bits_of_plain_steps),
      cmocka_unit_test(steps_that_are_skipped_or_end_early_are_alike),
      cmocka_unit_test(what_cannot_be_recorded_is_refused_on_all_ranks),
      cmocka_unit_test(a_rank_that_dies_is_named),
  };
  return cmocka_run_group_tests_name("train_graph_ranks", tests, NULL, NULL);
}
