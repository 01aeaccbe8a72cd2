/* fake/cuda/test_comm_ranges.c: which memory a communicator with an accelerator takes: mappings made of several
 * segments, as PyTorch's expandable segments are, for all devices or for one alone, page-locked memory, and where each
 * ends. */
#include "fake/cuda/program.h"

#define SEGMENT ((size_t)2 << 20)

/* As CUmemLocation, CUmemAllocationProp and CUmemAccessDesc. */
typedef struct place {
  int type, id;
} place;
typedef struct properties {
  int type, handle_types;
  place location;
  void* win32;
  unsigned char flags[8];
} properties;
typedef struct access_right {
  place location;
  int flags;
} access_right;

/* So many segments of a reserved range, for the device itself; the first so many of them for another one, too. */
static uintptr_t map_segments(const gpu* g, int device, int n, int reserved, int other, int n_open) {
  const properties what = {1, 0, {1, device}, NULL, {0}};
  const access_right rights[] = {{{1, device}, 3}, {{1, other}, 3}};
  unsigned long long at = 0, physical = 0;
  cuda.push(g->context);
  CUDA("cuMemAddressReserve", unsigned long long*, size_t, size_t, unsigned long long, unsigned long long)
  (&at, (size_t)reserved * SEGMENT, 0, 0, 0);
  for (int i = 0; i < n; ++i) {
    const unsigned long long begin = at + (size_t)i * SEGMENT;
    CUDA("cuMemCreate", unsigned long long*, size_t, const properties*, unsigned long long)
    (&physical, SEGMENT, &what, 0);
    CUDA("cuMemMap", unsigned long long, size_t, size_t, unsigned long long, unsigned long long)
    (begin, SEGMENT, 0, physical, 0);
    CUDA("cuMemSetAccess", unsigned long long, size_t, const access_right*, size_t)
    (begin, SEGMENT, rights, i < n_open ? 2 : 1);
  }
  cuda.pop(&(void*){NULL});
  return (uintptr_t)at;
}

static void buffers_of_a_mapping(rank_run* run) {
  load_doubles("fake_libnccl.so");
  const gpu g = open_gpu(run->rank);
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, run->user, run->rank, &comm, &err), err);
  rank_ok(run, gsel_comm_set_stream(comm, g.stream, &err), err);
  const uintptr_t at = map_segments(&g, run->rank, 3, 4, -1, 0);
  float *across = (float*)(at + SEGMENT - 8), got[4] = {0};
  const float mine[] = {1, 2, 3, 4};
  copy(&g, across, mine, sizeof mine);
  rank_ok(run, gsel_allreduce(comm, across, across, 4, GSEL_F32, GSEL_SUM, &err), err);
  copy(&g, got, across, sizeof got);
  finish(&g);
  for (int i = 0; i < 4; ++i) rank_check(run, got[i] == 2 * mine[i]);
  /* What is reserved and not mapped is no memory. */
  float* behind = (float*)(at + 3 * SEGMENT - 8);
  char expected[200];
  snprintf(expected, sizeof expected, "send needs 16 bytes and its memory on %s:", device_plugin());
  rank_fails(run, gsel_allreduce(comm, behind, behind, 4, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG, expected, -1);
  rank_ok(run, gsel_comm_synchronize(comm, &err), err);
  gsel_comm_free(comm);
  rank_check(run, cuda.violations() == 0);
}

static void test_a_mapping_of_several_segments_is_one_buffer(void** state) {
  (void)state;
  as_processes(2, buffers_of_a_mapping, (void*)"nccl");
  as_processes(2, buffers_of_a_mapping, (void*)"host");
}

/* Ranks as threads: the device of each reaches the buffers of the other. `user`: whether that is so here. */
static void buffers_for_one_device(rank_run* run) {
  const gpu g = open_gpu(run->rank);
  const int peer = 1 - run->rank;
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "nccl", run->rank, &comm, &err), err);
  rank_ok(run, gsel_comm_set_stream(comm, g.stream, &err), err);
  const uintptr_t at = map_segments(&g, run->rank, 2, 2, peer, 1);
  float *open = (float*)at, *across = (float*)(at + SEGMENT - 8), got[4] = {0};
  const float mine[] = {1, 2, 3, 4};
  copy(&g, open, mine, sizeof mine);
  copy(&g, across, mine, sizeof mine);
  rank_ok(run, gsel_allreduce(comm, open, open, 4, GSEL_F32, GSEL_SUM, &err), err);
  if (run->user) {
    char expected[200];
    const char* what[] = {"allreduce: send is", "allgather: recv is", "gsel_mem_register: memory is"};
    for (int i = 0; i < 3; ++i) {
      snprintf(expected, sizeof expected, "%s memory of %s:%d that device %d may not access, and a rank of this",
               what[i], device_plugin(), (int)run->rank, peer);
      const gsel_status status = i == 0   ? gsel_allreduce(comm, across, open, 4, GSEL_F32, GSEL_SUM, &err)
                                 : i == 1 ? gsel_allgather(comm, open, across, 2, GSEL_F32, &err)
                                          : gsel_mem_register(comm, (void*)at, 2 * SEGMENT, &err);
      rank_fails(run, status, err, GSEL_ERR_ARG, expected, -1);
    }
  } else {
    rank_ok(run, gsel_allreduce(comm, across, across, 4, GSEL_F32, GSEL_SUM, &err), err);
    copy(&g, got, across, sizeof got);
    finish(&g);
    for (int i = 0; i < 4; ++i) rank_check(run, got[i] == 2 * mine[i]);
  }
  rank_ok(run, gsel_comm_synchronize(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_memory_that_its_owner_alone_may_access_is_refused(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(2, buffers_for_one_device, (void*)"refused");
  no_violations();
  const char* copies[][2] = {{"GSEL_FAKE_CUDA_PEERS", "none"}, {"NCCL_P2P_DIRECT_DISABLE", "1"}};
  for (size_t i = 0; i < 2; ++i) {
    setenv(copies[i][0], copies[i][1], 1);
    as_threads(2, buffers_for_one_device, NULL);
    unsetenv(copies[i][0]);
    no_violations();
  }
}

/* An address is given out again for less, then not at all. */
static void addresses_that_come_back(rank_run* run) {
  setenv("GSEL_FAKE_CUDA_REUSE", "1", 1);
  load_doubles("fake_libnccl.so");
  const gpu g = open_gpu(run->rank);
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, run->user, run->rank, &comm, &err), err);
  const uintptr_t first = alloc(&g, 4000);
  void* at = (void*)first;
  rank_ok(run, gsel_allreduce(comm, at, at, 1000, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(comm, &err), err);
  cuda.push(g.context);
  CUDA("cuMemFree_v2", uintptr_t)(first);
  cuda.pop(&(void*){NULL});
  rank_check(run, alloc(&g, 3900) == first);
  char expected[200];
  snprintf(expected, sizeof expected, "send needs 4000 bytes and its memory on %s:0 ends after 3900", device_plugin());
  rank_fails(run, gsel_allreduce(comm, at, at, 1000, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG, expected, -1);
  cuda.push(g.context);
  CUDA("cuMemFree_v2", uintptr_t)(first);
  cuda.pop(&(void*){NULL});
  rank_fails(run, gsel_allreduce(comm, at, at, 1, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG,
             "send is memory of the host", -1);
  gsel_comm_free(comm);
  rank_check(run, cuda.violations() == 0);
}

static void test_an_address_is_known_anew_after_it_was_freed(void** state) {
  (void)state;
  as_processes(1, addresses_that_come_back, (void*)"nccl");
  as_processes(1, addresses_that_come_back, (void*)"host");
}

static void page_locked_memory(rank_run* run) {
  load_doubles("fake_libnccl.so");
  const gpu g = open_gpu(run->rank);
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "nccl", run->rank, &comm, &err), err);
  void* memory = NULL;
  cuda.push(g.context);
  CUDA("cuMemHostAlloc", void**, size_t, unsigned)(&memory, 64, 3);
  cuda.pop(&(void*){NULL});
  rank_fails(run, gsel_allreduce(comm, memory, memory, 17, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG,
             "send needs 68 bytes and its page-locked memory ends after 64", -1);
  float* values = memory;
  for (int i = 0; i < 16; ++i) values[i] = (float)i;
  rank_ok(run, gsel_allreduce(comm, memory, memory, 16, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(comm, &err), err);
  rank_check(run, values[15] == 15);
  gsel_comm_free(comm);
}

static void test_page_locked_memory_has_an_end(void** state) {
  (void)state;
  as_processes(1, page_locked_memory, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_mapping_of_several_segments_is_one_buffer),
      cmocka_unit_test(test_an_address_is_known_anew_after_it_was_freed),
      cmocka_unit_test(test_page_locked_memory_has_an_end),
      cmocka_unit_test(test_memory_that_its_owner_alone_may_access_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
