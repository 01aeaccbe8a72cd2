/* See ranks.h. */
#include "support/ranks.h"

void rank_meet(const rank_run* run, gsel_comm_options* options, char* place, size_t capacity) {
  const char* told = getenv("GSEL_TEST_PLACE");
  if (told) options->rendezvous = gsel_str_from(told);
  if (!is_started() || run->world_size < 2 || run->world_size > started_job()->size) return;
  started_place(started_job(), place, capacity);
  options->rendezvous = gsel_str_from(place);
}

gsel_status rank_join(const rank_run* run, gsel_comm** comm, gsel_error** error) {
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

void* shared_memory(size_t bytes) {
  struct started* s = started_job();
  void* memory = s->folder && !s->in_body
                     ? started_map(s, "shared", s->files++, bytes)
                     : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  return memory;
}

void shared_clear(void* memory, size_t bytes) {
  if (is_started()) started_barrier(started_job());
  memset(memory, 0, bytes);
}

void reach_step(volatile int32_t* word, int32_t step) {
  __atomic_store_n(word, step, __ATOMIC_SEQ_CST);
}
void await_step(const volatile int32_t* word, int32_t step) {
  for (int turn = 0; __atomic_load_n(word, __ATOMIC_SEQ_CST) < step && turn < 60000; ++turn) usleep(1000);
}

rank_run* ranks_prepare(int32_t world_size, void* user) {
  rank_run* runs = (rank_run*)shared_memory(sizeof(rank_run) * (size_t)world_size);
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

void ranks_verdict(rank_run* runs, int32_t n) {
  char failure[sizeof runs->failure] = "";
  for (int32_t r = n; r-- > 0;)
    if (runs[r].failure[0]) {
      print_error("%s\n", runs[r].failure);
      memcpy(failure, runs[r].failure, sizeof failure);
    }
  munmap(runs, sizeof(rank_run) * (size_t)n);
  if (failure[0]) fail();
}

void* rank_thread_main(void* argument) {
  struct rank_thread* thread = (struct rank_thread*)argument;
  thread->body(thread->run);
  return NULL;
}

static void ranks_run_as_threads(rank_run* runs, int32_t n, rank_body body) {
  pthread_t ids[RANKS_MAX];
  struct rank_thread threads[RANKS_MAX];
  for (int32_t r = 0; r < n; ++r) {
    threads[r].body = body;
    threads[r].run = &runs[r];
    assert_int_equal(pthread_create(&ids[r], NULL, rank_thread_main, &threads[r]), 0);
  }
  for (int32_t r = 0; r < n; ++r) pthread_join(ids[r], NULL);
}

static void ranks_run_started(rank_run* runs, int32_t n, rank_body body) {
  struct started* s = started_job();
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

void ranks_run_threads(rank_run* runs, int32_t n, rank_body body) {
  (is_started() ? ranks_run_started : ranks_run_as_threads)(runs, n, body);
}

pid_t rank_fork(rank_run* run, rank_body body) {
  fflush(NULL);
  if (is_started()) skip(); /* only processes that the test forks may die */
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid > 0) return pid;
  alarm(100);
  body(run);
  _exit(0);
}

void ranks_run_processes(rank_run* runs, int32_t n, rank_body body) {
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

void as_threads(int32_t n, rank_body body, void* user) {
  rank_run* runs = ranks_prepare(n, user);
  ranks_run_threads(runs, n, body);
  ranks_verdict(runs, n);
}

void as_processes(int32_t n, rank_body body, void* user) {
  rank_run* runs = ranks_prepare(n, user);
  ranks_run_processes(runs, n, body);
  ranks_verdict(runs, n);
}

int same_params(rank_run* run, const float* params, const float* expected, int n) {
  for (int i = 0; i < n; ++i)
    if (memcmp(&params[i], &expected[i], sizeof(float))) {
      snprintf(run->failure, sizeof run->failure, "rank %d of %d: element %d of the parameters is %.9g, expected %.9g",
               (int)run->rank, (int)run->world_size, i, params[i], expected[i]);
      return 0;
    }
  return 1;
}
