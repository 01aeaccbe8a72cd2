/* bench_pccl.c: PCCL in the harness of gsel's peers: forked ranks, on the hosts of BENCH_HOSTS where that is set, and a
 * master in a process beside rank 0. libpccl.so is opened from the library path, see bring.sh; its types are declared
 * here as its ABI of 1.0 has them. It has one collective, allreduce. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/forked.h"
#include "common/harness.h"

enum { PCCL_OK = 0, PCCL_FLOAT = 10, PCCL_SUM = 0, PCCL_WORLD_SIZE = 1, MASTER_PORT = 48148 };

struct address {
  int32_t protocol; /* 0: version 4 */
  uint8_t v4[4], v6[16];
  uint16_t port;
};
struct creation {
  struct address master;
  uint32_t peer_group, connections;
};
struct reduction {
  size_t count;
  int32_t op;
  uint64_t tag;
  int32_t dtype, distribution, quantized_dtype, quantization;
};
struct reduced {
  uint32_t world_size;
  uint64_t sent, received;
};

static struct {
  int (*init)(void);
  int (*create)(const struct creation*, void**);
  int (*connect)(void*);
  int (*attribute)(const void*, int, int*);
  int (*are_pending)(const void*, bool*);
  int (*update_topology)(void*);
  int (*optimize_topology)(const void*);
  int (*destroy)(void*);
  int (*allreduce)(const void*, void*, const struct reduction*, const void*, struct reduced*);
  int (*create_master)(struct address, void**);
  int (*run_master)(void*);
} pccl;
static void* comm;
static pid_t master;

static void* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (!found) bench_fail("libpccl.so has no %s", name);
  return found;
}

static void load(void) {
  void* library = dlopen("libpccl.so", RTLD_NOW | RTLD_LOCAL);
  if (!library) bench_fail("%s", dlerror());
  *(void**)&pccl.init = symbol(library, "pcclInit");
  *(void**)&pccl.create = symbol(library, "pcclCreateCommunicator");
  *(void**)&pccl.connect = symbol(library, "pcclConnect");
  *(void**)&pccl.attribute = symbol(library, "pcclGetAttribute");
  *(void**)&pccl.are_pending = symbol(library, "pcclArePeersPending");
  *(void**)&pccl.update_topology = symbol(library, "pcclUpdateTopology");
  *(void**)&pccl.optimize_topology = symbol(library, "pcclOptimizeTopology");
  *(void**)&pccl.destroy = symbol(library, "pcclDestroyCommunicator");
  *(void**)&pccl.allreduce = symbol(library, "pcclAllReduce");
  *(void**)&pccl.create_master = symbol(library, "pcclCreateMaster");
  *(void**)&pccl.run_master = symbol(library, "pcclRunMaster");
  if (pccl.init() != PCCL_OK) bench_fail("pcclInit failed");
}

static void begin_master(struct address at) {
  void* handle = NULL;
  master = fork();
  if (master < 0) bench_fail("fork failed");
  if (master > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  load();
  if (pccl.create_master(at, &handle) != PCCL_OK || pccl.run_master(handle) != PCCL_OK) bench_fail("no master");
  for (;;) pause();
}

/* One peer after the other: it asks, and those that are there take it in, which they do jointly. */
static void connect_all(int rank, int ranks) {
  int size = 0;
  for (int k = 0; k < ranks; ++k) {
    forked_barrier();
    if (rank == k && pccl.connect(comm) != PCCL_OK) bench_fail("pcclConnect failed");
    for (bool asks = rank >= k; !asks;) {
      if (pccl.are_pending(comm, &asks) != PCCL_OK) bench_fail("pcclArePeersPending failed");
      if (!asks) usleep(5000);
    }
    if (rank < k && pccl.update_topology(comm) != PCCL_OK) bench_fail("pcclUpdateTopology failed");
  }
  forked_barrier();
  if (pccl.attribute(comm, PCCL_WORLD_SIZE, &size) != PCCL_OK || size != ranks)
    bench_fail("%d of %d peers have come", size, ranks);
}

static void join(int* argc, char*** argv, int wanted, int* rank, int* ranks) {
  struct creation options = {.master = {.port = MASTER_PORT}, .connections = 1};
  (void)argc;
  (void)argv;
  forked_join(wanted, rank, ranks);
  const char* address = forked_enter_host(*rank, *ranks) ? getenv("BENCH_ADDRESS") : "127.0.0.1";
  if (!address || inet_pton(AF_INET, address, options.master.v4) != 1) bench_fail("BENCH_ADDRESS is rank 0's address");
  if (*rank == 0) begin_master(options.master);
  load();
  if (*rank == 0) usleep(300000); /* for the master to listen */
  forked_barrier();
  if (pccl.create(&options, &comm) != PCCL_OK) bench_fail("pcclCreateCommunicator failed");
  connect_all(*rank, *ranks);
  if (*ranks > 1 && pccl.optimize_topology(comm) != PCCL_OK) bench_fail("pcclOptimizeTopology failed");
  forked_barrier();
}

static void leave(void) {
  forked_barrier();
  pccl.destroy(comm);
  if (master > 0) {
    kill(master, SIGKILL);
    waitpid(master, NULL, 0);
  }
  forked_leave();
}

static float* allreduce(const bench_call* c) {
  const struct reduction sum = {.count = c->count, .op = PCCL_SUM, .dtype = PCCL_FLOAT, .quantized_dtype = PCCL_FLOAT};
  struct reduced info;
  const int status = pccl.allreduce(c->data, c->data, &sum, comm, &info);
  if (status != PCCL_OK) bench_fail("pcclAllReduce failed: %d", status);
  return c->data;
}

int main(int argc, char** argv) {
  static const bench_operation operations[] = {{"allreduce", allreduce}, {NULL, NULL}};
  static const bench_peer peer = {join, forked_gather, leave, NULL, operations};
  return bench_main(&peer, argc, argv);
}
