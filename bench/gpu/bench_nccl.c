/* bench_nccl.c [MOST_BYTES]: calls of a gsel communicator over NCCL beside the same calls made to NCCL itself, on one
 * stream, by ranks that `gsel run` starts, one on each card:
 *   host us     for one of CALLS calls in a row until it has returned
 *   GB/s        bytes by time until the stream has done all of them; "bus": the same in the bytes that each link
 * carries, as nccl-tests counts them. One rank has no bus. Rounds of both alternate, so that a drift is in both. Prints
 * rows of a table on rank 0; exits with 77 where there is no card or no NCCL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gsel/gsel.h>
#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#include "clock_check.h"

enum { CALLS = 20, ROUNDS = 9, FLOAT = 7, SUM = 0, SKIPPED = 77 };

/* ---- NCCL and the driver as a program uses them ---- */

typedef struct {
  char bytes[128];
} nccl_id;

static struct {
  int (*ncclGetUniqueId)(nccl_id*);
  int (*ncclCommInitRankConfig)(void** comm, int ranks, nccl_id id, int rank, void* config);
  int (*ncclCommDestroy)(void* comm);
  int (*ncclGetVersion)(int*);
  int (*ncclAllReduce)(const void*, void*, size_t, int, int, void*, void*);
  int (*ncclAllGather)(const void*, void*, size_t, int, void*, void*);
  int (*ncclReduceScatter)(const void*, void*, size_t, int, int, void*, void*);
  int (*ncclBroadcast)(const void*, void*, size_t, int, int, void*, void*);
  int (*cuDevicePrimaryCtxRetain)(void** context, int device);
  int (*cuDeviceGetName)(char* name, int length, int device);
  int (*cuCtxPushCurrent_v2)(void* context);
  int (*cuStreamCreateWithPriority)(void** stream, unsigned flags, int priority);
  int (*cuStreamSynchronize)(void* stream);
  int (*cuMemAlloc_v2)(uint64_t* memory, size_t bytes);
  int (*cuMemsetD8Async)(uint64_t memory, unsigned char value, size_t bytes, void* stream);
} gpu;

static void skip(const char* why) {
  fprintf(stderr, "bench_nccl: %s\n", why);
  exit(SKIPPED);
}

static void* library(const char* name) {
  void* opened = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!opened) skip(dlerror());
  return opened;
}

static void load(void) {
  void *nccl = library("libnccl.so.2"), *cuda = library("libcuda.so.1");
#define FIND(from, name) *(void**)&gpu.name = dlsym(from, #name)
  FIND(nccl, ncclGetUniqueId);
  FIND(nccl, ncclCommInitRankConfig);
  FIND(nccl, ncclCommDestroy);
  FIND(nccl, ncclGetVersion);
  FIND(nccl, ncclAllReduce);
  FIND(nccl, ncclAllGather);
  FIND(nccl, ncclReduceScatter);
  FIND(nccl, ncclBroadcast);
  FIND(cuda, cuDevicePrimaryCtxRetain);
  FIND(cuda, cuDeviceGetName);
  FIND(cuda, cuCtxPushCurrent_v2);
  FIND(cuda, cuStreamCreateWithPriority);
  FIND(cuda, cuStreamSynchronize);
  FIND(cuda, cuMemAlloc_v2);
  FIND(cuda, cuMemsetD8Async);
#undef FIND
  if (!gpu.ncclCommInitRankConfig) skip("libnccl.so.2 has no ncclCommInitRankConfig; use NCCL 2.14 or newer");
}

static void must(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "bench_nccl: %s: error %d\n", what, result);
  exit(1);
}
#define MUST(call) must(call, #call)

/* ---- a rank ---- */

struct rank {
  gsel_comm *host, *comm;
  void *direct, *stream;
  uint64_t send, recv;
  int32_t rank, ranks;
};

static void open_rank(struct rank* r, size_t bytes) {
  nccl_id id;
  void* context;
  gsel_error* err = NULL;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  check(gsel_comm_init(&options, &r->host, &err), &err);
  r->rank = gsel_comm_rank(r->host);
  r->ranks = gsel_comm_world_size(r->host);
  options.accelerator = gsel_str_from("cuda");
  options.transport = gsel_str_from("nccl");
  check(gsel_comm_init(&options, &r->comm, &err), &err);
  MUST(gpu.cuDevicePrimaryCtxRetain(&context, r->rank));
  MUST(gpu.cuCtxPushCurrent_v2(context));
  MUST(gpu.cuStreamCreateWithPriority(&r->stream, 1, 0));
  MUST(gpu.cuMemAlloc_v2(&r->send, bytes));
  MUST(gpu.cuMemAlloc_v2(&r->recv, bytes));
  MUST(gpu.cuMemsetD8Async(r->send, 0, bytes, r->stream));
  MUST(gpu.cuMemsetD8Async(r->recv, 0, bytes, r->stream));
  check(gsel_comm_set_stream(r->comm, r->stream, &err), &err);
  if (r->rank == 0) MUST(gpu.ncclGetUniqueId(&id));
  check(gsel_broadcast(r->host, &id, &id, sizeof id, GSEL_U8, 0, &err), &err);
  MUST(gpu.ncclCommInitRankConfig(&r->direct, r->ranks, id, r->rank, NULL));
}

/* ---- calls: of `bytes` in the larger buffer ---- */

struct call {
  const char* name;
  int kind;
};
static const struct call calls[] = {{"allreduce", GSEL_COLLECTIVE_ALLREDUCE},
                                    {"allgather", GSEL_COLLECTIVE_ALLGATHER},
                                    {"reduce_scatter", GSEL_COLLECTIVE_REDUCE_SCATTER},
                                    {"broadcast", GSEL_COLLECTIVE_BROADCAST}};

static size_t count_of(const struct rank* r, int kind, size_t bytes) {
  const int is_shared = kind == GSEL_COLLECTIVE_ALLGATHER || kind == GSEL_COLLECTIVE_REDUCE_SCATTER;
  return bytes / sizeof(float) / (size_t)(is_shared ? r->ranks : 1);
}

static void by_gsel(const struct rank* r, int kind, size_t bytes) {
  const size_t n = count_of(r, kind, bytes);
  void *send = (void*)(uintptr_t)r->send, *recv = (void*)(uintptr_t)r->recv;
  gsel_error* err = NULL;
  gsel_status status;
  if (kind == GSEL_COLLECTIVE_ALLREDUCE)
    status = gsel_allreduce(r->comm, send, recv, n, GSEL_F32, GSEL_SUM, &err);
  else if (kind == GSEL_COLLECTIVE_ALLGATHER)
    status = gsel_allgather(r->comm, send, recv, n, GSEL_F32, &err);
  else if (kind == GSEL_COLLECTIVE_REDUCE_SCATTER)
    status = gsel_reduce_scatter(r->comm, send, recv, n, GSEL_F32, GSEL_SUM, &err);
  else
    status = gsel_broadcast(r->comm, send, recv, n, GSEL_F32, 0, &err);
  check(status, &err);
}

static void by_nccl(const struct rank* r, int kind, size_t bytes) {
  const size_t n = count_of(r, kind, bytes);
  void *send = (void*)(uintptr_t)r->send, *recv = (void*)(uintptr_t)r->recv;
  if (kind == GSEL_COLLECTIVE_ALLREDUCE)
    MUST(gpu.ncclAllReduce(send, recv, n, FLOAT, SUM, r->direct, r->stream));
  else if (kind == GSEL_COLLECTIVE_ALLGATHER)
    MUST(gpu.ncclAllGather(send, recv, n, FLOAT, r->direct, r->stream));
  else if (kind == GSEL_COLLECTIVE_REDUCE_SCATTER)
    MUST(gpu.ncclReduceScatter(send, recv, n, FLOAT, SUM, r->direct, r->stream));
  else
    MUST(gpu.ncclBroadcast(send, recv, n, FLOAT, 0, r->direct, r->stream));
}

/* ---- measuring ---- */

struct round {
  double host_s, all_s; /* of one call */
};

static struct round measure(const struct rank* r, void (*make)(const struct rank*, int, size_t), int kind,
                            size_t bytes) {
  gsel_error* err = NULL;
  struct round round;
  MUST(gpu.cuStreamSynchronize(r->stream));
  check(gsel_barrier(r->host, &err), &err);
  const double begin = now();
  for (int i = 0; i < CALLS; ++i) make(r, kind, bytes);
  round.host_s = (now() - begin) / CALLS;
  MUST(gpu.cuStreamSynchronize(r->stream));
  round.all_s = (now() - begin) / CALLS;
  return round;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
static double median(double* of) {
  qsort(of, ROUNDS, sizeof *of, by_value);
  return of[ROUNDS / 2];
}

/* Bytes that each link carries, of those of the larger buffer. */
static double bus_share(int kind, double ranks) {
  return kind == GSEL_COLLECTIVE_ALLREDUCE   ? 2 * (ranks - 1) / ranks
         : kind == GSEL_COLLECTIVE_BROADCAST ? ranks > 1
                                             : (ranks - 1) / ranks;
}

static void compare(const struct rank* r, const struct call* call, size_t bytes) {
  double host[2][ROUNDS], all[2][ROUNDS];
  for (int round = -2; round < ROUNDS; ++round)
    for (int i = 0; i < 2; ++i) {
      const struct round one = measure(r, i ? by_nccl : by_gsel, call->kind, bytes);
      if (round >= 0) host[i][round] = one.host_s, all[i][round] = one.all_s;
    }
  const double gsel_host = median(host[0]) * 1e6, nccl_host = median(host[1]) * 1e6;
  const double gsel_rate = 1e-9 * (double)bytes / median(all[0]), nccl_rate = 1e-9 * (double)bytes / median(all[1]);
  const double share = bus_share(call->kind, r->ranks);
  if (r->rank != 0) return;
  printf("| %s | %zu | %.1f | %.1f | %.1f | %.2f | %.2f | ", call->name, bytes, gsel_host, nccl_host,
         gsel_host - nccl_host, gsel_rate, nccl_rate);
  if (share > 0)
    printf("%.2f | %.2f | ", gsel_rate * share, nccl_rate * share);
  else
    printf("| | ");
  printf("%.3f |\n", gsel_rate / nccl_rate);
  fflush(stdout);
}

int main(int argc, char** argv) {
  const size_t most = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : (size_t)256 << 20;
  struct rank r = {0};
  int version = 0;
  if (argc > 2 || most < 4096) {
    fprintf(stderr, "usage: bench_nccl [MOST_BYTES], at least 4096\n");
    return 2;
  }
  load();
  open_rank(&r, most);
  MUST(gpu.ncclGetVersion(&version));
  if (r.rank == 0)
    printf("NCCL %d, %" PRId32
           " rank%s, medians of %d rounds of %d calls in a row, f32\n\n"
           "| call | bytes | gsel host us | NCCL host us | added | gsel GB/s | NCCL GB/s | gsel bus | NCCL bus | gsel "
           "/ NCCL |\n"
           "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
           version, r.ranks, r.ranks == 1 ? "" : "s", ROUNDS, CALLS);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i)
    for (size_t bytes = 4096; bytes <= most; bytes *= 16) compare(&r, &calls[i], bytes);
  gpu.ncclCommDestroy(r.direct);
  gsel_comm_free(r.comm);
  gsel_comm_free(r.host);
  return 0;
}
