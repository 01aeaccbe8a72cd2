/* unit/test_comm_arguments.c: what a call lacks is GSEL_ERR_ARG on the rank that lacks it, whatever the other arguments
 * are, and the communicator stays usable. */
#include "support/ranks.h"

#define N 2

static float send_room[N], recv_room[N];
static const uint64_t ones[N] = {1, 1};

/* Every kind with counts, once for each array that it needs, which is NULL. */
static const struct lacking {
  gsel_collective_kind kind;
  const uint64_t *send_counts, *recv_counts;
  const char* says;
} lacking[] = {
    {GSEL_COLLECTIVE_REDUCE_SCATTERV, ones, NULL, "reduce_scatterv: recv_counts is NULL; it needs [2] elements"},
    {GSEL_COLLECTIVE_ALLGATHERV, ones, NULL, "allgatherv: recv_counts is NULL; it needs [2] elements"},
    {GSEL_COLLECTIVE_GATHERV, ones, NULL, "gatherv: recv_counts is NULL; it needs [2] elements"},
    {GSEL_COLLECTIVE_SCATTERV, NULL, ones, "scatterv: send_counts is NULL; it needs [2] elements"},
    {GSEL_COLLECTIVE_ALLTOALLV, NULL, ones, "alltoallv: send_counts is NULL; it needs [2] elements"},
    {GSEL_COLLECTIVE_ALLTOALLV, ones, NULL, "alltoallv: recv_counts is NULL; it needs [2] elements"},
};

static gsel_collective call_of(gsel_collective_kind kind) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind;
  call.op = GSEL_SUM;
  call.dtype = GSEL_F32;
  call.send = send_room;
  call.recv = recv_room;
  return call;
}

static void no_counts(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; ++i) {
    gsel_collective call = call_of(lacking[i].kind);
    call.send_counts = lacking[i].send_counts;
    call.recv_counts = lacking[i].recv_counts;
    rank_fails(run, gsel_comm_run(comm, &call, &err), err, GSEL_ERR_ARG, lacking[i].says, -1);
    rank_fails(run, gsel_request_create(comm, &call, &request, &err), err, GSEL_ERR_ARG, lacking[i].says, -1);
    rank_fails(run, gsel_comm_start(comm, &call, &request, &err), err, GSEL_ERR_ARG, lacking[i].says, -1);
    gsel_comm_explanation out = GSEL_COMM_EXPLANATION_INIT;
    rank_fails(run, gsel_comm_explain(comm, &call, &out, &err), err, GSEL_ERR_ARG, lacking[i].says, -1);
  }
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_a_call_without_its_counts_is_refused(void** state) {
  (void)state;
  as_processes(N, no_counts, NULL);
}

/* Only a number that gsel_op_create_scaled_sum gave can mean a factor of 0. */
static void no_factor(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_op nothing;
  float x = 3, y = -1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, gsel_allreduce(comm, &x, &y, 1, GSEL_F32, GSEL_SCALED_SUM, &err), err, GSEL_ERR_ARG,
             "allreduce: scaled sum without a factor; set gsel_collective.factor", -1);
  gsel_collective call = call_of(GSEL_COLLECTIVE_REDUCE_SCATTER);
  call.op = GSEL_SCALED_SUM;
  call.count = 1;
  rank_fails(run, gsel_comm_run(comm, &call, &err), err, GSEL_ERR_ARG,
             "reduce_scatter: scaled sum without a factor; set gsel_collective.factor", -1);
  rank_ok(run, gsel_op_create_scaled_sum(run->rank, &nothing, &err), err);
  rank_ok(run, gsel_allreduce(comm, &x, &y, 1, GSEL_F32, nothing, &err), err);
  rank_check(run, y == 3);
  gsel_op_free(nothing);
  gsel_comm_free(comm);
}

static void test_a_scaled_sum_without_a_factor_is_refused(void** state) {
  (void)state;
  as_processes(N, no_factor, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_call_without_its_counts_is_refused),
      cmocka_unit_test(test_a_scaled_sum_without_a_factor_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
