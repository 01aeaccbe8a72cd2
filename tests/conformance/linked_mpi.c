/* conformance/linked_mpi.c: a program that is linked to an MPI and initialises it, whose objects may stand in the
 * program rather than in the library: gsel takes that MPI as it is, and leaves it to the program. Ranks are told that
 * they are on hosts of their own. The first argument says what is tried:
 *   multiple, serialized, single  the thread level that MPI is initialised with
 *   finalised                     the program calls MPI_Finalize too early
 *   interface                     rank 1 has a GSEL_INTERFACE that is none
 *   exhausted                     the program has all communicators that its MPI can have */
#include <gsel/gsel.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks, warnings;
static const char* tries;

static void must(int holds, const char* what, gsel_error* err) {
  int is_over = 0;
  if (holds) return;
  fprintf(stderr, "linked_mpi %s: %s: %s\n", tries, what, err ? gsel_error_message(err).data : "failed");
  MPI_Finalized(&is_over);
  if (is_over) exit(1);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void must_fail(gsel_status got, gsel_error** err, gsel_status expected, const char* part) {
  char line[1024] = "";
  gsel_error_format(*err, line, sizeof line);
  if (got != expected || !strstr(line, part))
    fprintf(stderr, "linked_mpi %s: %s: expected %s: %s\n", tries, line, gsel_status_name(expected), part);
  must(got == expected && strstr(line, part), "an error", *err);
  gsel_error_free(*err);
  *err = NULL;
}

static void count_warnings(gsel_log_level level, gsel_str component, gsel_str line, void* user) {
  (void)component, (void)user;
  if (level == GSEL_LOG_WARN && strstr(line.data, "where no second thread may call it")) ++warnings;
}

static gsel_status join(gsel_comm** comm, gsel_error** err) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.transport = gsel_str_from("mpi");
  return gsel_comm_init(&options, comm, err);
}

static void a_call_of_the_program(void) {
  int sum = 1, all = 0;
  MPI_Allreduce(&sum, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  must(all == ranks, "a call of the program's", NULL);
}

/* Sums by gsel while the program makes calls of its own, where the level allows that, and else in between. */
static void sums_beside_calls(gsel_comm* comm, int level) {
  enum { kCount = 50000 };
  static int32_t x[kCount];
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  gsel_request* request = NULL;
  gsel_error* err = NULL;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_I32;
  call.op = GSEL_SUM;
  call.send = call.recv = x;
  call.count = kCount;
  for (int turn = 0; turn < 10; ++turn) {
    for (int i = 0; i < kCount; ++i) x[i] = rank + i + turn;
    if (level == MPI_THREAD_SINGLE) {
      must(gsel_comm_run(comm, &call, &err) == GSEL_OK, "gsel_comm_run", err);
    } else {
      must(gsel_comm_start(comm, &call, &request, &err) == GSEL_OK, "gsel_comm_start", err);
      for (int i = 0; i < 20 && level == MPI_THREAD_MULTIPLE; ++i) a_call_of_the_program();
      must(gsel_request_wait(request, &err) == GSEL_OK, "gsel_request_wait", err);
      gsel_request_free(request);
    }
    for (int i = 0; i < kCount; ++i) must(x[i] == ranks * (ranks - 1) / 2 + ranks * (i + turn), "a sum", NULL);
    a_call_of_the_program();
  }
}

/* The level, what it forbids, and what the launcher does when a rank dies, before it does it. */
static void tells_what_it_is(gsel_comm* comm, int level) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  gsel_comm_explanation found = GSEL_COMM_EXPLANATION_INIT;
  gsel_error* err = NULL;
  int32_t x = 0;
  char part[40];
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_I32;
  call.op = GSEL_SUM;
  call.send = call.recv = &x;
  call.count = 1;
  must(gsel_comm_explain(comm, &call, &found, &err) == GSEL_OK, "gsel_comm_explain", err);
  snprintf(part, sizeof part, ", threads %s",
           level == MPI_THREAD_MULTIPLE     ? "multiple"
           : level == MPI_THREAD_SERIALIZED ? "serialized"
                                            : "single");
  must(strstr(found.transport_reason, part) != NULL, found.transport_reason, NULL);
  must(strstr(found.transport_reason, "its launcher ends all ranks when one dies") != NULL, found.transport_reason,
       NULL);
  must(!strstr(found.transport_reason, "makes no call of MPI while a gsel call or request is under way") ==
           (level == MPI_THREAD_MULTIPLE),
       found.transport_reason, NULL);
}

static void at_level(int level) {
  gsel_comm *comm = NULL, *other = NULL;
  gsel_error* err = NULL;
  must(join(&comm, &err) == GSEL_OK, "gsel_comm_init", err);
  must(gsel_comm_dup(comm, &other, &err) == GSEL_OK, "gsel_comm_dup", err);
  tells_what_it_is(comm, level);
  must(warnings == (level == MPI_THREAD_SINGLE), "one warning where no second thread may call", NULL);
  sums_beside_calls(other, level);
  gsel_comm_free(other);
  gsel_comm_free(comm);
  a_call_of_the_program();
  MPI_Finalize();
}

/* Nothing aborts: calls and joining are errors, and communicators can be freed, whether a call has failed or not. */
static void finalised_too_early(void) {
  gsel_comm *comm = NULL, *idle = NULL, *waits = NULL, *again = NULL;
  gsel_error* err = NULL;
  int32_t x = rank;
  const char* early = "MPI was finalised before gsel_comm_free; free the communicator before MPI_Finalize";
  must(join(&comm, &err) == GSEL_OK, "gsel_comm_init", err);
  must(gsel_comm_dup(comm, &idle, &err) == GSEL_OK, "gsel_comm_dup", err);
  must(gsel_comm_dup(comm, &waits, &err) == GSEL_OK, "gsel_comm_dup", err);
  must(gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err) == GSEL_OK, "gsel_allreduce", err);
  must(gsel_allreduce(idle, &x, &x, 1, GSEL_I32, GSEL_SUM, &err) == GSEL_OK, "gsel_allreduce", err);
  MPI_Finalize();
  must_fail(gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), &err, GSEL_ERR_STATE, early);
  must_fail(gsel_recv(waits, &x, 1, GSEL_I32, (rank + 1) % ranks, &err), &err, GSEL_ERR_STATE, early);
  gsel_comm_free(waits);
  gsel_comm_free(idle);
  gsel_comm_free(comm);
  must_fail(join(&again, &err), &err, GSEL_ERR_STATE, "the program has called MPI_Finalize");
}

static void an_interface_that_is_none(void) {
  gsel_comm* comm = NULL;
  gsel_error* err = NULL;
  if (rank == 1) must(setenv("GSEL_INTERFACE", "none7", 1) == 0, "setenv", NULL);
  must_fail(join(&comm, &err), &err, GSEL_ERR_ARG,
            " cannot join: rank 1: GSEL_INTERFACE=none7 is no interface of this host, which has ");
  unsetenv("GSEL_INTERFACE");
  must(join(&comm, &err) == GSEL_OK, "gsel_comm_init", err);
  gsel_comm_free(comm);
  MPI_Finalize();
}

/* Open MPI has a billion, and is not tried. */
static void no_communicator_left(void) {
  enum { kMost = 10000 };
  static MPI_Comm all[kMost];
  gsel_comm* comm = NULL;
  gsel_error* err = NULL;
  MPI_Errhandler handler, after;
  int n = 0;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#ifndef OPEN_MPI
  while (n < kMost && MPI_Comm_dup(MPI_COMM_WORLD, &all[n]) == MPI_SUCCESS) ++n;
  must(n < kMost, "an MPI that has no communicator left", NULL);
#endif
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  if (n > 0) must_fail(join(&comm, &err), &err, GSEL_ERR_IO, "MPI_Comm_create_group failed");
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
  must(after == handler, "the error handler of MPI's world", NULL);
  while (n > 0) MPI_Comm_free(&all[--n]);
  must(join(&comm, &err) == GSEL_OK, "gsel_comm_init", err);
  gsel_comm_free(comm);
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
  must(after == handler, "the error handler of MPI's world", NULL);
  MPI_Finalize();
}

int main(int argc, char** argv) {
  char host[16];
  int level = MPI_THREAD_MULTIPLE, got;
  tries = argc > 1 ? argv[1] : "";
  if (strcmp(tries, "serialized") == 0) level = MPI_THREAD_SERIALIZED;
  if (strcmp(tries, "single") == 0) level = MPI_THREAD_SINGLE;
  gsel_log_set(count_warnings, GSEL_LOG_WARN, NULL, NULL);
  MPI_Init_thread(&argc, &argv, level, &got);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  snprintf(host, sizeof host, "h%d", rank);
  must(setenv("GSEL_HOST_ID", host, 1) == 0, "setenv", NULL);
  if (strcmp(tries, "finalised") == 0)
    finalised_too_early();
  else if (strcmp(tries, "interface") == 0)
    an_interface_that_is_none();
  else if (strcmp(tries, "exhausted") == 0)
    no_communicator_left();
  else
    at_level(got); /* an MPI may give another one than was asked for */
  if (rank == 0) puts("MPI is the program's");
  return 0;
}
