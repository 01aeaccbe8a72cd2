/* support/ranks.h: runs the ranks of a test as threads of this process or as forked processes, or as processes on several
 * hosts (started.h). A rank's body reports with rank_check, which returns from the body; the test then fails with the
 * first report of any rank. */
#ifndef GSEL_TESTS_RANKS_H
#define GSEL_TESTS_RANKS_H

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"
#include "support/started.h"

GSEL_EXTERN_C_BEGIN

#define RANKS_MAX 40

typedef struct rank_run {
  int32_t rank;
  int32_t world_size;
  gsel_unique_id id;
  double timeout_s;
  double join_timeout_s;
  void *user;
  char failure[1024];
} rank_run;

typedef void (*rank_body)(rank_run *run);

#define rank_check(run, condition)                                                                             \
  do {                                                                                                         \
    if (!(condition)) {                                                                                        \
      snprintf((run)->failure, sizeof(run)->failure, "%s:%d: rank %d of %d: %s", __FILE__, __LINE__,           \
               (int)(run)->rank, (int)(run)->world_size, #condition);                                          \
      return;                                                                                                  \
    }                                                                                                          \
  } while (0)

/* As check_ok and check_fails, for a body; frees err. */
#define rank_ok(run, call, err)                                                                                \
  do {                                                                                                         \
    gsel_status rank_status = (call);                                                                          \
    if (rank_status != GSEL_OK) {                                                                              \
      char rank_text[640];                                                                                     \
      gsel_error_format(err, rank_text, sizeof rank_text);                                                     \
      snprintf((run)->failure, sizeof(run)->failure, "%s:%d: rank %d of %d: %.100s: got %s: %s", __FILE__,     \
               __LINE__, (int)(run)->rank, (int)(run)->world_size, #call, gsel_status_name(rank_status),       \
               rank_text);                                                                                     \
      gsel_error_free(err);                                                                                    \
      return;                                                                                                  \
    }                                                                                                          \
  } while (0)

#define rank_fails(run, call, err, code, part, about)                                                          \
  do {                                                                                                         \
    gsel_status rank_status = (call);                                                                          \
    char rank_text[480] = "";                                                                                  \
    gsel_error_format(err, rank_text, sizeof rank_text);                                                       \
    started_plain(rank_text);                                                                                  \
    int rank_about = gsel_error_rank(err);                                                                     \
    gsel_error_free(err);                                                                                      \
    err = NULL;                                                                                                \
    if (rank_status != (code) || !strstr(rank_text, part) || ((about) >= 0 && rank_about != (about))) {        \
      snprintf((run)->failure, sizeof(run)->failure,                                                           \
               "%s:%d: rank %d of %d: %.60s: expected %s with \"%.200s\" about rank %d, got %s about rank %d: %s", \
               __FILE__, __LINE__, (int)(run)->rank, (int)(run)->world_size, #call, gsel_status_name(code), part, \
               (int)(about), gsel_status_name(rank_status), rank_about, rank_text);                            \
      return;                                                                                                  \
    }                                                                                                          \
  } while (0)

/* Where ranks on several hosts meet; place: borrowed by the options. GSEL_TEST_PLACE: that of ranks that a test tells so. */
void rank_meet(const rank_run *run, gsel_comm_options *options, char *place, size_t capacity);

/* A communicator of the run's world. */
gsel_status rank_join(const rank_run *run, gsel_comm **comm, gsel_error **error);

/* Zeroed memory that threads and forked children share; given back with munmap. */
void *shared_memory(size_t bytes);

/* Clears the shared memory of ranks after all have read it. */
void shared_clear(void *memory, size_t bytes);

/* A word of shared memory by which ranks say how far they are. await_step gives up after a minute. */
void reach_step(volatile int32_t *word, int32_t step);
void await_step(const volatile int32_t *word, int32_t step);

/* world_size runs in memory that forked children share, with a fresh id. */
rank_run *ranks_prepare(int32_t world_size, void *user);

/* Fails the test with the first report of a rank; releases the runs. */
void ranks_verdict(rank_run *runs, int32_t n);

/* A rank that a test starts with pthread_create(rank_thread_main). */
struct rank_thread {
  rank_body body;
  rank_run *run;
};

void *rank_thread_main(void *argument);

/* Runs bodies until all have returned; reports stay in the runs. */
void ranks_run_threads(rank_run *runs, int32_t n, rank_body body);
void ranks_run_processes(rank_run *runs, int32_t n, rank_body body);

/* Forks a rank; the child leaves with status 0 unless a signal ends it. */
pid_t rank_fork(rank_run *run, rank_body body);

/* Prepares n runs, runs them and gives the verdict. */
void as_threads(int32_t n, rank_body body, void *user);
void as_processes(int32_t n, rank_body body, void *user);

/* Compares parameters bit for bit. 0: the run has the first element that differs as its failure. */
int same_params(rank_run *run, const float *params, const float *expected, int n);

GSEL_EXTERN_C_END

#endif
