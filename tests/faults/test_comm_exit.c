/* faults/test_comm_exit.c: how processes end that have not destroyed their communicators: without hanging, and with the
 * others told what is known of them. */
#include "support/ranks.h"

/* Rank 1 leaves its program with status 0. */
static void exits(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 1) _exit(0);
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_PEER, ") ended without gsel_comm_free while rank ", 1);
  gsel_comm_free(comm);
}

static void test_a_rank_that_exits_has_ended(void** state) {
  (void)state;
  as_processes(2, exits, NULL);
  as_processes(3, exits, NULL);
}

static void* ends_later(void* comm) {
  gsel_error* err;
  if (gsel_barrier((gsel_comm*)comm, &err) != GSEL_OK) _exit(2);
  return NULL;
}

/* The main thread of each rank leaves by pthread_exit, with threads of the library at rest: the watcher, one for
 * requests. The program's last thread makes a call meanwhile. */
static void leaves_by_pthread_exit(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  pthread_t thread;
  call.kind = GSEL_COLLECTIVE_BARRIER;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
  rank_ok(run, gsel_request_wait(request, &err), err);
  rank_check(run, pthread_create(&thread, NULL, ends_later, comm) == 0);
  pthread_exit(NULL);
}

static void test_a_process_ends_with_the_last_thread_of_the_program(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  (void)leaves_by_pthread_exit;
  print_message("left out: the sanitizer has a thread of its own, which never ends\n");
#else
  as_processes(2, leaves_by_pthread_exit, NULL);
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_rank_that_exits_has_ended),
      cmocka_unit_test(test_a_process_ends_with_the_last_thread_of_the_program),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
