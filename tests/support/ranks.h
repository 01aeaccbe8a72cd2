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
static inline void rank_meet(const rank_run *run, gsel_comm_options *options, char *place, size_t capacity) {
  const char *told = getenv("GSEL_TEST_PLACE");
  if (told) options->rendezvous = gsel_str_from(told);
  if (!is_started() || run->world_size < 2 || run->world_size > started_job()->size) return;
  started_place(started_job(), place, capacity);
  options->rendezvous = gsel_str_from(place);
}

static inline gsel_status rank_join(const rank_run *run, gsel_comm **comm, gsel_error **error) {
  gsel_comm_options options;
  char place[512];
  gsel_comm_options_init(&options, sizeof options);
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.timeout_s = run->timeout_s;
  options.join_timeout_s = run->join_timeout_s;
  rank_meet(run, &options, place, sizeof place);
  return gsel_comm_init(&options, comm, error);
}

/* Zeroed memory that threads and forked children share; given back with munmap. */
static inline void *shared_memory(size_t bytes) {
  struct started *s = started_job();
  void *memory = s->folder && !s->in_body ? started_map(s, "shared", s->files++, bytes)
                                          : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  return memory;
}

/* Clears what ranks share, once nobody looks at it any more. */
static inline void shared_clear(void *memory, size_t bytes) {
  if (is_started()) started_barrier(started_job());
  memset(memory, 0, bytes);
}

/* A word of shared memory by which ranks say how far they are. await_step gives up after a minute. */
static inline void reach_step(volatile int32_t *word, int32_t step) { __atomic_store_n(word, step, __ATOMIC_SEQ_CST); }
static inline void await_step(const volatile int32_t *word, int32_t step) {
  for (int turn = 0; __atomic_load_n(word, __ATOMIC_SEQ_CST) < step && turn < 60000; ++turn) usleep(1000);
}

/* world_size runs in memory that forked children share, with a fresh id. */
static inline rank_run *ranks_prepare(int32_t world_size, void *user) {
  rank_run *runs = (rank_run *)shared_memory(sizeof(rank_run) * (size_t)world_size);
  gsel_unique_id id;
  assert_int_equal(gsel_unique_id_create(&id, NULL), GSEL_OK);
  for (int32_t r = 0; r < world_size && started_job()->rank == 0; ++r) {
    runs[r].rank = r;
    runs[r].world_size = world_size;
    runs[r].id = id;
    runs[r].user = user;
  }
  if (is_started()) {
    started_job()->user = user;
    started_barrier(started_job());
    started_unlink(started_job());
  }
  return runs;
}

/* Fails the test with what the ranks reported; releases the runs. */
static inline void ranks_verdict(rank_run *runs, int32_t n) {
  char failure[sizeof runs->failure] = "";
  for (int32_t r = n; r-- > 0;)
    if (runs[r].failure[0]) {
      print_error("%s\n", runs[r].failure);
      memcpy(failure, runs[r].failure, sizeof failure);
    }
  munmap(runs, sizeof(rank_run) * (size_t)n);
  if (failure[0]) fail();
}

struct rank_thread {
  rank_body body;
  rank_run *run;
};

static inline void *rank_thread_main(void *argument) {
  struct rank_thread *thread = (struct rank_thread *)argument;
  thread->body(thread->run);
  return NULL;
}

static inline void ranks_run_as_threads(rank_run *runs, int32_t n, rank_body body) {
  pthread_t ids[RANKS_MAX];
  struct rank_thread threads[RANKS_MAX];
  for (int32_t r = 0; r < n; ++r) {
    threads[r].body = body;
    threads[r].run = &runs[r];
    assert_int_equal(pthread_create(&ids[r], NULL, rank_thread_main, &threads[r]), 0);
  }
  for (int32_t r = 0; r < n; ++r) pthread_join(ids[r], NULL);
}

static inline void ranks_run_started(rank_run *runs, int32_t n, rank_body body) {
  struct started *s = started_job();
  ++s->worlds;
  s->joined = 0;
  s->in_body = 1;
  for (int32_t r = 0; r < n && n <= s->size; ++r)
    if (started_process(s, r, n) == s->rank) {
      rank_run run = runs[r];
      run.user = s->user;
      body(&run);
      memcpy(runs[r].failure, run.failure, sizeof run.failure);
    }
  if (n > s->size && s->rank == 0) ranks_run_as_threads(runs, n, body);
  s->in_body = 0;
  started_barrier(s);
}

static inline void ranks_run_threads(rank_run *runs, int32_t n, rank_body body) {
  (is_started() ? ranks_run_started : ranks_run_as_threads)(runs, n, body);
}

/* Forks a rank; the child leaves with status 0 unless a signal ends it. */
static inline pid_t rank_fork(rank_run *run, rank_body body) {
  fflush(NULL);
  if (is_started()) skip(); /* what is made to die is a process of the test's own */
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid > 0) return pid;
  alarm(100);
  body(run);
  _exit(0);
}

static inline void ranks_run_processes(rank_run *runs, int32_t n, rank_body body) {
  if (is_started()) {
    ranks_run_threads(runs, n, body);
    return;
  }
  pid_t pids[RANKS_MAX];
  for (int32_t r = 0; r < n; ++r) pids[r] = rank_fork(&runs[r], body);
  for (int32_t r = 0; r < n; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    if (status != 0 && !runs[r].failure[0])
      snprintf(runs[r].failure, sizeof runs[r].failure, "rank %d of %d ended with wait status 0x%x", (int)r, (int)n,
               (unsigned)status);
  }
}

static inline void as_threads(int32_t n, rank_body body, void *user) {
  rank_run *runs = ranks_prepare(n, user);
  ranks_run_threads(runs, n, body);
  ranks_verdict(runs, n);
}

static inline void as_processes(int32_t n, rank_body body, void *user) {
  rank_run *runs = ranks_prepare(n, user);
  ranks_run_processes(runs, n, body);
  ranks_verdict(runs, n);
}

#endif
