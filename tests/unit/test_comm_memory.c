/* unit/test_comm_memory.c: memory that all ranks reach: allocated, registered, given back; what cannot be registered is
 * refused with what was found; nothing is lost and nothing left. */
#include "support/ranks.h"
#include "support/share.h"
#include "support/traces.h"

#define MEBIBYTE ((size_t)1 << 20)

static void* pages(size_t bytes) {
  void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static int all_zero(const char* memory, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (memory[i] != 0) return 0;
  return 1;
}

/* x = sum over ranks of (i % 1000 + rank), in place. */
static int sums_come_out(rank_run* run, gsel_comm* comm, int32_t* x, size_t count, gsel_error** err) {
  const int32_t n = run->world_size;
  for (size_t i = 0; i < count; ++i) x[i] = (int32_t)(i % 1000) + run->rank;
  if (gsel_allreduce(comm, x, x, count, GSEL_I32, GSEL_SUM, err) != GSEL_OK) return 0;
  for (size_t i = 0; i < count; ++i)
    if (x[i] != n * (int32_t)(i % 1000) + n * (n - 1) / 2) return 0;
  return 1;
}

static void allocates(rank_run* run) {
  static const size_t sizes[] = {0, 1, 4096, 100000, 5 * MEBIBYTE + 8, (SANITIZED ? 12 : 70) * MEBIBYTE};
  gsel_error* err;
  gsel_comm* comm;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int round = 0; round < 2; ++round) { /* in the second the same places come again */
    void* memory[6];
    for (int i = 0; i < 6; ++i) {
      rank_ok(run, gsel_mem_alloc(comm, sizes[i], &memory[i], &err), err);
      rank_check(run, memory[i] != NULL && (uintptr_t)memory[i] % 64 == 0);
      rank_check(run, all_zero(memory[i], sizes[i]));
    }
    for (int i = 0; i < 6; ++i) rank_check(run, sums_come_out(run, comm, memory[i], sizes[i] / sizeof(int32_t), &err));
    for (int i = 0; i < 6; ++i) memset(memory[i], 0x55, sizes[i]);
    for (int i = 0; i < 6; ++i) rank_ok(run, gsel_mem_free(comm, memory[i], &err), err);
  }
  gsel_comm_free(comm);
}

static void test_allocated_memory_is_zero_aligned_and_works_in_calls(void** state) {
  (void)state;
  as_processes(1, allocates, NULL);
  as_processes(3, allocates, NULL);
  as_threads(2, allocates, NULL);
}

static void frees_wrongly(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  void *memory, *nothing = &err;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_mem_free(comm, NULL, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, 9000, &memory, &err), err);
  rank_fails(run, gsel_mem_free(comm, (char*)memory + 64, &err), err, GSEL_ERR_ARG, "is not from gsel_mem_alloc", -1);
  rank_fails(run, gsel_mem_free(comm, &err, &err), err, GSEL_ERR_ARG, "is not from gsel_mem_alloc", -1);
  rank_fails(run, gsel_mem_unregister(comm, memory, &err), err, GSEL_ERR_ARG, "is not from gsel_mem_register", -1);
  rank_ok(run, gsel_mem_free(comm, memory, &err), err);
  rank_fails(run, gsel_mem_free(comm, memory, &err), err, GSEL_ERR_ARG, "is not from gsel_mem_alloc", -1);
  rank_fails(run, gsel_mem_alloc(comm, 1, NULL, &err), err, GSEL_ERR_ARG, "out is NULL", -1);
  rank_fails(run, gsel_mem_alloc(NULL, 1, &nothing, &err), err, GSEL_ERR_ARG, "comm is NULL", -1);
  rank_check(run, nothing == NULL);
  gsel_comm_free(comm);
}

static void test_memory_of_others_is_not_freed(void** state) {
  (void)state;
  as_processes(1, frees_wrongly, NULL);
  as_processes(2, frees_wrongly, NULL);
}

static void asks_for_too_much(rank_run* run) {
  static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 50, ((size_t)1 << 40) - 8 * MEBIBYTE};
  gsel_error* err;
  gsel_comm* comm;
  void* memory;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int i = 0; i < 4; ++i) {
    memory = &err;
    rank_fails(run, gsel_mem_alloc(comm, sizes[i], &memory, &err), err, GSEL_ERR_NOMEM, "bytes", -1);
    rank_check(run, memory == NULL);
  }
  rank_ok(run, gsel_mem_alloc(comm, MEBIBYTE, &memory, &err), err);
  rank_check(run, sums_come_out(run, comm, memory, MEBIBYTE / sizeof(int32_t), &err));
  gsel_comm_free(comm);
}

static void test_memory_that_is_not_there_is_an_error_and_no_signal(void** state) {
  (void)state;
  as_processes(1, asks_for_too_much, NULL);
  as_processes(2, asks_for_too_much, NULL);
}

static void registers(rank_run* run) {
  const size_t bytes = 6 * MEBIBYTE, count = bytes / sizeof(int32_t);
  char line[512];
  gsel_error* err;
  gsel_comm* comm;
  rank_ok(run, rank_join(run, &comm, &err), err);
  int32_t *mapped = pages(bytes), *x = malloc(bytes + 8192);
  char* whole = (char*)(((uintptr_t)x + 4095) / 4096 * 4096);
  void* both[] = {mapped, whole};
  for (int turn = 0; turn < 6; ++turn) {
    int32_t* memory = both[turn % 2];
    for (size_t i = 0; i < count; ++i) memory[i] = (int32_t)i ^ run->rank;
    rank_ok(run, gsel_mem_register(comm, memory, bytes, &err), err);
    mapping_at(memory, line, sizeof line);
    rank_check(run, (strstr(line, "memfd:gsel") != NULL) == (run->world_size > 1));
    for (size_t i = 0; i < count; ++i) rank_check(run, memory[i] == ((int32_t)i ^ run->rank));
    rank_fails(run, gsel_mem_register(comm, memory, bytes, &err), err, GSEL_ERR_ARG, "gsel_mem_register", -1);
    rank_fails(run, gsel_mem_free(comm, memory, &err), err, GSEL_ERR_ARG, "is not from gsel_mem_alloc", -1);
    rank_check(run, sums_come_out(run, comm, memory, count, &err));
    for (size_t i = 0; i < count; ++i) memory[i] += 5;
    const int32_t first = memory[0], last = memory[count - 1];
    rank_ok(run, gsel_mem_unregister(comm, memory, &err), err);
    mapping_at(memory, line, sizeof line);
    rank_check(run, strstr(line, "rw-p") != NULL && !strstr(line, "memfd"));
    rank_check(run, memory[0] == first && memory[count - 1] == last);
    rank_check(run, sums_come_out(run, comm, memory, count, &err));
  }
  free(x);
  munmap(mapped, bytes);
  gsel_comm_free(comm);
}

static void test_registered_memory_keeps_its_place_and_contents(void** state) {
  (void)state;
  as_processes(1, registers, NULL);
  as_processes(3, registers, NULL);
  as_threads(2, registers, NULL);
}

/* What registering four pages gives of which the third is not mapped. Tried again where another thread has mapped
 * something there meanwhile. */
static gsel_status register_with_hole(gsel_comm* comm, size_t page, gsel_error** err) {
  for (;;) {
    char* memory = pages(4 * page);
    unsigned char seen;
    munmap(memory + 2 * page, page);
    const gsel_status status = gsel_mem_register(comm, memory, 4 * page, err);
    const int is_hole = mincore(memory + 2 * page, page, &seen) != 0;
    if (status == GSEL_OK) gsel_mem_unregister(comm, memory, NULL);
    munmap(memory, 2 * page);
    munmap(memory + 3 * page, page);
    if (is_hole) return status;
    if (status != GSEL_OK) gsel_error_free(*err);
  }
}

static void registers_what_cannot_be(rank_run* run) {
  const size_t page = 4096;
  gsel_error* err;
  gsel_comm* comm;
  rank_ok(run, rank_join(run, &comm, &err), err);
  char *memory = pages(8 * page), *shared = shared_memory(page);
  void* own;
  memory[0] = 7;
  rank_fails(run, gsel_mem_register(comm, memory + 64, page, &err), err, GSEL_ERR_ARG, "boundaries of 4096 bytes", -1);
  rank_fails(run, gsel_mem_register(comm, memory, page + 8, &err), err, GSEL_ERR_ARG, "boundaries of 4096 bytes", -1);
  rank_fails(run, gsel_mem_register(comm, memory, 0, &err), err, GSEL_ERR_ARG, "boundaries of 4096 bytes", -1);
  rank_fails(run, gsel_mem_register(comm, NULL, page, &err), err, GSEL_ERR_ARG, "nothing is mapped at byte 0", -1);
  rank_fails(run, gsel_mem_register(comm, shared, page, &err), err, GSEL_ERR_ARG,
             "at byte 0 there is other memory, rw-s", -1);
  char* stack = (char*)(((uintptr_t)&page) / page * page);
  if (run->user) /* the first thread's */
    rank_fails(run, gsel_mem_register(comm, stack, page, &err), err, GSEL_ERR_ARG, "rw-p [stack]", -1);
  rank_ok(run, gsel_mem_alloc(comm, page, &own, &err), err);
  if (run->world_size > 1)
    rank_fails(run, gsel_mem_register(comm, own, page, &err), err, GSEL_ERR_ARG, "memfd:gsel", -1);
  mprotect(memory + 2 * page, page, PROT_READ);
  rank_fails(run, gsel_mem_register(comm, memory, 4 * page, &err), err, GSEL_ERR_ARG,
             "at byte 8192 there is other memory, "
             "r--p without a name",
             -1);
  rank_fails(run, register_with_hole(comm, page, &err), err, GSEL_ERR_ARG, "nothing is mapped at byte 8192", -1);
  rank_fails(run, gsel_mem_unregister(comm, memory, &err), err, GSEL_ERR_ARG, "is not from gsel_mem_register", -1);
  rank_ok(run, gsel_mem_register(comm, memory, 2 * page, &err), err);
  rank_fails(run, gsel_mem_unregister(comm, memory + page, &err), err, GSEL_ERR_ARG, "is not from gsel_mem_register",
             -1);
  rank_ok(run, gsel_mem_unregister(comm, memory, &err), err);
  rank_check(run, memory[0] == 7);
  gsel_comm_free(comm);
}

static void test_what_is_not_private_pages_is_refused_and_left_alone(void** state) {
  (void)state;
  int first_thread = 1;
  as_processes(1, registers_what_cannot_be, &first_thread);
  as_processes(2, registers_what_cannot_be, &first_thread);
  as_threads(2, registers_what_cannot_be, NULL);
}

static void outlives(rank_run* run) {
  const size_t bytes = 3 * MEBIBYTE, count = bytes / sizeof(int32_t);
  char line[512];
  gsel_error* err;
  gsel_comm *comm, *second;
  void* memory;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_comm_dup(comm, &second, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, bytes, &memory, &err), err);
  int32_t* own = pages(bytes);
  own[count - 1] = 99;
  rank_ok(run, gsel_mem_register(comm, own, bytes, &err), err);
  gsel_comm_free(comm);
  rank_check(run, sums_come_out(run, second, memory, count, &err));
  rank_check(run, sums_come_out(run, second, own, count, &err));
  own[count - 1] = 99;
  rank_ok(run, gsel_mem_free(second, memory, &err), err);
  rank_ok(run, gsel_mem_alloc(second, bytes, &memory, &err), err); /* never freed */
  gsel_comm_free(second);
  mapping_at(own, line, sizeof line);
  rank_check(run, strstr(line, "rw-p") != NULL && own[count - 1] == 99);
  munmap(own, bytes);
}

static void test_memory_lives_as_long_as_the_last_communicator(void** state) {
  (void)state;
  as_processes(1, outlives, NULL);
  as_processes(3, outlives, NULL);
  as_threads(3, outlives, NULL);
}

static void forks(rank_run* run) {
  const size_t page = 4096;
  gsel_error* err;
  gsel_comm* comm;
  void* memory;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, page, &memory, &err), err);
  volatile char* own = pages(2 * page);
  rank_ok(run, gsel_mem_register(comm, (void*)own, 2 * page, &err), err);
  const pid_t child = fork();
  if (child == 0) {
    void* out;
    const int refused = gsel_mem_alloc(comm, page, &out, NULL) == GSEL_ERR_FORKED &&
                        gsel_mem_free(comm, memory, NULL) == GSEL_ERR_FORKED &&
                        gsel_mem_register(comm, (void*)own, page, NULL) == GSEL_ERR_FORKED &&
                        gsel_mem_unregister(comm, (void*)own, NULL) == GSEL_ERR_FORKED;
    own[page] = 3;
    gsel_comm_free(comm);
    _exit(refused ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  rank_check(run, status == 0);
  rank_check(run, own[page] == (run->world_size > 1 ? 3 : 0));
  rank_check(run, sums_come_out(run, comm, memory, page / sizeof(int32_t), &err));
  gsel_comm_free(comm);
}

static void test_a_forked_child_is_refused_and_shares_registered_memory(void** state) {
  (void)state;
  as_processes(1, forks, NULL);
  as_processes(2, forks, NULL);
}

static void allocates_10000_times(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  void *memory, *kept;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, 3 * MEBIBYTE, &kept, &err), err);
  char* own = pages(16 * 4096);
  traces before = {0}, after;
  for (int i = 0; i < 10000; ++i) {
    if (i == 3) rank_ok(run, gsel_barrier(comm, &err), err);
    if (i == 3) before = traces_now();
    if (i == 3) rank_ok(run, gsel_barrier(comm, &err), err);
    rank_ok(run, gsel_mem_alloc(comm, i % 100 == 0 ? 2 * MEBIBYTE : (size_t)(i % 7) * 4096 + 1, &memory, &err), err);
    *(char*)memory = 1;
    rank_ok(run, gsel_mem_free(comm, memory, &err), err);
    if (i % 10 != 0) continue;
    rank_ok(run, gsel_mem_register(comm, own, 16 * 4096, &err), err);
    rank_ok(run, gsel_mem_unregister(comm, own, &err), err);
  }
  rank_ok(run, gsel_barrier(comm, &err), err);
  after = traces_now();
  rank_ok(run, gsel_barrier(comm, &err), err);
  rank_check(run, after.descriptors == before.descriptors);
  rank_check(run, after.mappings == before.mappings);
  rank_check(run, after.blocks == before.blocks);
  gsel_comm_free(comm);
}

static void test_ten_thousand_allocations_leave_everything_where_it_was(void** state) {
  (void)state;
  as_processes(2, allocates_10000_times, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_allocated_memory_is_zero_aligned_and_works_in_calls),
      cmocka_unit_test(test_memory_of_others_is_not_freed),
      cmocka_unit_test(test_memory_that_is_not_there_is_an_error_and_no_signal),
      cmocka_unit_test(test_registered_memory_keeps_its_place_and_contents),
      cmocka_unit_test(test_what_is_not_private_pages_is_refused_and_left_alone),
      cmocka_unit_test(test_memory_lives_as_long_as_the_last_communicator),
      cmocka_unit_test(test_a_forked_child_is_refused_and_shares_registered_memory),
      cmocka_unit_test(test_ten_thousand_allocations_leave_everything_where_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
