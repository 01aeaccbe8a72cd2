/* fake/cuda/test_comm_making.c: communicators on devices that are made while their callers go on: each joins the
 * transport on the thread that makes it, beside calls of the one that it comes of. */
#include "fake/cuda/joined.h"

typedef enum making { SPLIT, DUP, GROUP, SHRINK, N_MAKINGS } making;

static gsel_status start(making how, gsel_comm* comm, gsel_request** out, gsel_error** err) {
  const int32_t both[] = {0, 1};
  switch (how) {
    case SPLIT:
      return gsel_comm_start_split(comm, 0, 0, out, err);
    case DUP:
      return gsel_comm_start_dup(comm, out, err);
    case GROUP:
      return gsel_comm_start_create_group(comm, both, 2, out, err);
    default:
      return gsel_comm_start_shrink(comm, NULL, 0, out, err);
  }
}

static gsel_status sum(gsel_comm* comm, float* memory, gsel_error** err) {
  return gsel_allreduce(comm, memory, memory, COUNT, GSEL_F32, GSEL_SUM, err);
}

/* A call of each communicator follows the other's on the rank's stream, so that both sums count; a shrink breaks the
 * one that it comes of, and is the last. */
static void made_beside_calls(rank_run* run) {
  joined j, made;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, (const char*)run->user, 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  for (making how = 0; how < N_MAKINGS; ++how) {
    const float mine[COUNT] = {0, 0, 0, 0, 0, (float)(run->rank + 1)};
    gsel_request* request = NULL;
    made = j;
    copy(&j.g, j.memory, mine, sizeof mine);
    rank_ok(run, start(how, j.comm, &request, &err), err);
    if (how != SHRINK) rank_ok(run, sum(j.comm, j.memory, &err), err);
    rank_ok(run, gsel_request_wait(request, &err), err);
    rank_ok(run, gsel_request_take_comm(request, &made.comm, &err), err);
    gsel_request_free(request);
    rank_check(run, gsel_comm_world_size(made.comm) == 2);
    rank_ok(run, gsel_comm_set_stream(made.comm, j.g.stream, &err), err);
    rank_ok(run, sum(made.comm, j.memory, &err), err);
    rank_ok(run, gsel_comm_synchronize(made.comm, &err), err);
    rank_check(run, element_5(&j, j.memory) == (how == SHRINK ? 3 : 6));
    gsel_collective call = GSEL_COLLECTIVE_INIT;
    gsel_comm_explanation way = GSEL_COMM_EXPLANATION_INIT;
    rank_ok(run, gsel_comm_explain(made.comm, &call, &way, &err), err);
    rank_check(run, !strcmp(way.transport, (const char*)run->user));
    gsel_comm_free(made.comm);
  }
  gsel_comm_free(j.comm);
  rank_check(run, cuda.violations() == 0);
}

static void test_communicators_are_made_beside_calls(void** state) {
  (void)state;
  as_processes(2, made_beside_calls, (void*)"nccl");
  as_processes(2, made_beside_calls, (void*)"host");
  load_doubles("fake_libnccl.so");
  as_threads(2, made_beside_calls, (void*)"nccl");
  no_violations();
}

/* Rank 1 has no memory of the device left for what the transport needs. */
static void one_rank_cannot_join(rank_run* run) {
  if (run->rank == 1) setenv("GSEL_FAKE_CUDA_OOM", "3", 1); /* behind the barrier's word and the memory of join_over */
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  gsel_request* request = NULL;
  gsel_comm* made = NULL;
  rank_ok(run, gsel_comm_start_dup(j.comm, &request, &err), err);
  if (run->rank == 1)
    rank_fails(run, gsel_request_wait(request, &err), err, GSEL_ERR_NOMEM, "bytes of device memory", -1);
  else
    rank_fails(run, gsel_request_wait(request, &err), err, GSEL_ERR_ABORTED, "bytes of device memory", 1);
  rank_check(run, gsel_request_take_comm(request, &made, NULL) != GSEL_OK && !made);
  gsel_request_free(request);
  rank_ok(run, sum(j.comm, j.memory, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  gsel_comm_free(j.comm);
}

static void test_a_rank_that_cannot_join_tells_the_others(void** state) {
  (void)state;
  as_processes(2, one_rank_cannot_join, NULL);
}

/* Freed while it is being made, and never taken. */
static void freed_meanwhile(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  for (making how = 0; how < N_MAKINGS; ++how) {
    gsel_request* request = NULL;
    rank_ok(run, start(how, j.comm, &request, &err), err);
    gsel_request_free(request);
  }
  finish(&j.g);
  gsel_comm_free(j.comm);
  rank_check(run, cuda.violations() == 0);
}

static void test_a_request_is_freed_while_a_communicator_is_made(void** state) {
  (void)state;
  as_processes(2, freed_meanwhile, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_rank_that_cannot_join_tells_the_others),
      cmocka_unit_test(test_a_request_is_freed_while_a_communicator_is_made),
      cmocka_unit_test(test_communicators_are_made_beside_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
