/* fake/cuda/test_comm_capture.c: a program captures a stream while a thread looks at calls of a communicator that are
 * under way on another one, as the communicator's own thread does; and it captures a call. */
#include "fake/cuda/joined.h"

static void* look(void* argument) {
  joined* j = (joined*)argument;
  return gsel_comm_get_async_error(j->comm, NULL) == GSEL_OK ? NULL : argument;
}

static void captures_beside_a_call(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  void *stream = NULL, *graph = NULL, *failed = NULL;
  pthread_t looking;
  rank_check(run, join_over(run, "nccl", GSEL_COMM_NO_THREAD, &j) == GSEL_OK);
  run->timeout_s = 20;
  rank_ok(run, gsel_comm_set_timeout(j.comm, 20, &err), err);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  if (run->rank == 1) meet(run, 2);
  rank_ok(run, gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  if (run->rank == 0) {
    cuda.push(j.g.context);
    cuda.create(&stream, 1, 0);
    rank_check(run, CUDA("cuStreamBeginCapture_v2", void*, int)(stream, 0) == 0); /* of the whole process */
    pthread_create(&looking, NULL, look, &j);
    pthread_join(looking, &failed);
    const int ended = CUDA("cuStreamEndCapture", void*, void**)(stream, &graph);
    cuda.pop(&(void*){NULL});
    meet(run, 2);
    rank_check(run, !failed && ended == 0 && graph);
  }
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  rank_check(run, element_5(&j, j.memory) == 110);
  gsel_comm_free(j.comm);
}

static void test_looking_at_calls_breaks_no_capture(void** state) {
  (void)state;
  as_two(captures_beside_a_call);
}

/* What a capture took has not happened, so that nobody waits for its end. */
static void captures_a_call(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  void* graph = NULL;
  rank_check(run, join_over(run, "nccl", GSEL_COMM_NO_THREAD, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  rank_ok(run, gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  cuda.push(j.g.context);
  rank_check(run, CUDA("cuStreamBeginCapture_v2", void*, int)(j.g.stream, 1) == 0); /* of this thread */
  rank_ok(run, gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  rank_check(run, CUDA("cuStreamEndCapture", void*, void**)(j.g.stream, &graph) == 0 && graph);
  cuda.pop(&(void*){NULL});
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  rank_check(run, element_5(&j, j.memory) == 110);
  rank_ok(run, gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  rank_check(run, element_5(&j, j.memory) == 220);
  gsel_comm_free(j.comm);
}

static void test_a_captured_call_leaves_the_communicator_whole(void** state) {
  (void)state;
  as_two(captures_a_call);
}

/* RCCL's calls are refused there. */
static void captures_a_refused_call(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  void* graph = NULL;
  char text[600] = "";
  rank_check(run, join_over(run, "nccl", GSEL_COMM_NO_THREAD, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  meet(run, 2);
  cuda.push(j.g.context);
  rank_check(run, CUDA("cuStreamBeginCapture_v2", void*, int)(j.g.stream, 1) == 0);
  const gsel_status status = gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err);
  CUDA("cuStreamEndCapture", void*, void**)(j.g.stream, &graph);
  cuda.pop(&(void*){NULL});
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  rank_check(run, status == GSEL_ERR_UNSUPPORTED && strstr(text, "calls of RCCL in a capture are not supported"));
  gsel_comm_free(j.comm);
}

static void test_a_transport_without_captures_refuses_them(void** state) {
  (void)state;
  as_two(captures_a_refused_call);
}

int main(void) {
  const struct CMUnitTest of_amd[] = {
      cmocka_unit_test(test_looking_at_calls_breaks_no_capture),
      cmocka_unit_test(test_a_transport_without_captures_refuses_them),
  };
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_looking_at_calls_breaks_no_capture),
      cmocka_unit_test(test_a_captured_call_leaves_the_communicator_whole),
  };
  return is_of_amd() ? cmocka_run_group_tests(of_amd, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
