/* fake/cuda/hosts.h: ranks with a device each that are told that they are on several hosts. Each is a process. */
#ifndef GSEL_TESTS_CUDA_HOSTS_H
#define GSEL_TESTS_CUDA_HOSTS_H

#include <sys/stat.h>

#include "fake/cuda/program.h"
#include "support/port.h"

enum { COUNT = 16 };

/* hosts: which ranks are on which: "0011". place: empty where a launcher started the ranks. */
typedef struct job {
  char place[64];
  const char* hosts;
  const char* transport;
  volatile int32_t *step, *connected; /* that the ranks share */
  volatile double* at;                /* when somebody died, of CLOCK_MONOTONIC */
} job;

/* A rank whose communicator is over all hosts, with memory that holds the rank times 100 and the place. */
typedef struct joined {
  gpu g;
  gsel_comm* comm;
  float* memory;
} joined;

static inline gsel_status join_hosts_on(const rank_run* run, int device, gsel_comm** comm, gsel_error** err) {
  const job* j = (const job*)run->user;
  const char host[] = {'h', j->place[0] ? j->hosts[run->rank] : '-', '\0'};
  char accelerator[32];
  if (j->place[0]) setenv("GSEL_HOST_ID", host, 1);
  snprintf(accelerator, sizeof accelerator, "cuda:%d", device);
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  if (j->place[0]) { /* else as its launcher says */
    options.rank = run->rank;
    options.world_size = run->world_size;
    options.id = &run->id;
    options.rendezvous = gsel_str_from(j->place);
  }
  options.timeout_s = run->timeout_s;
  options.join_timeout_s = 20;
  options.accelerator = gsel_str_from(accelerator);
  options.transport = gsel_str_from(j->transport);
  return gsel_comm_init(&options, comm, err);
}

static inline gsel_status join_hosts(rank_run* run, joined* out, gsel_error** err) {
  load_doubles("fake_libnccl.so");
  out->g = open_gpu(run->rank);
  gsel_status status = join_hosts_on(run, run->rank, &out->comm, err);
  if (status == GSEL_OK) status = gsel_comm_set_stream(out->comm, out->g.stream, err);
  if (status == GSEL_OK) status = gsel_mem_alloc(out->comm, COUNT * sizeof(float), (void**)&out->memory, err);
  if (status != GSEL_OK) return status;
  float mine[COUNT];
  for (int i = 0; i < COUNT; ++i) mine[i] = (float)(100 * run->rank + i);
  copy(&out->g, out->memory, mine, sizeof mine);
  return GSEL_OK;
}

/* All hosts have made a call, so that the next one waits for no connection, and have seen its end. */
static inline gsel_status connect_ranks(const rank_run* run, const joined* j, gsel_error** err) {
  const job* where = (const job*)run->user;
  gsel_status status = gsel_barrier(j->comm, err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(j->comm, err);
  if (status != GSEL_OK || !where->place[0]) return status; /* hosts of their own share no word */
  __atomic_add_fetch(where->connected, 1, __ATOMIC_SEQ_CST);
  await_step(where->connected, run->world_size);
  return GSEL_OK;
}

/* dead: the rank that kills itself; -1: none. */
static inline void on_hosts_but(const char* hosts, rank_body body, const char* transport, double timeout_s,
                                int32_t dead) {
  job j = {.hosts = hosts, .transport = transport};
  snprintf(j.place, sizeof j.place, "tcp://127.0.0.1:%d", free_port());
  void* shared = shared_memory(64);
  j.step = (volatile int32_t*)shared;
  j.connected = (volatile int32_t*)shared + 1;
  j.at = (volatile double*)shared + 1;
  const int32_t n = (int32_t)strlen(hosts);
  rank_run* runs = ranks_prepare(n, &j);
  pid_t pids[RANKS_MAX];
  for (int32_t r = 0; r < n; ++r) runs[r].timeout_s = timeout_s;
  for (int32_t r = 0; r < n; ++r) pids[r] = rank_fork(&runs[r], body);
  for (int32_t r = 0; r < n; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    if ((WIFSIGNALED(status) ? WTERMSIG(status) : 0) != (r == dead ? SIGKILL : 0) && !runs[r].failure[0])
      snprintf(runs[r].failure, sizeof runs[r].failure, "rank %d on %s over %s ended with wait status 0x%x", (int)r,
               hosts, transport, (unsigned)status);
  }
  munmap(shared, 64);
  ranks_verdict(runs, n);
}

static inline void on_hosts(const char* hosts, rank_body body, const char* transport, double timeout_s) {
  on_hosts_but(hosts, body, transport, timeout_s, -1);
}

/* Whether this build has what moves memory of the host between hosts. Its file is looked for: to ask gsel would look
 * for the driver before the double is loaded. */
static inline int has_gloo(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/lib/gsel/plugins-1/gloo.so", getenv("GSEL_TEST_BIN"));
  struct stat file;
  return stat(path, &file) == 0 && S_ISREG(file.st_mode);
}

#endif
