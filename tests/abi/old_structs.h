/* old_structs.h: what a client compiled against another version of the headers passes. The first_ structs are shorter
 * than those of 0.1, as if the fields behind had come later; the next_ structs are longer. They are copies on purpose
 * and do not follow the headers. In a call each lies at the end of a page with no access behind it, so that touching a
 * byte too many ends the program. */
#ifndef GSEL_TESTS_OLD_STRUCTS_H
#define GSEL_TESTS_OLD_STRUCTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
#include <unistd.h>

#include "support/check.h"

typedef struct {
  uint32_t struct_size, reserved;
  int32_t rank, world_size;
  const gsel_unique_id* id;
} first_comm_config;

typedef struct {
  uint32_t struct_size, reserved;
  const gsel_config* config;
} first_trainer_options;

typedef struct {
  uint32_t struct_size, reserved;
  gsel_str name;
  const int64_t* dims;
  int32_t n_dims;
  gsel_dtype dtype;
} first_param_desc;

typedef struct {
  uint32_t struct_size, reserved;
  gsel_str name;
  const int64_t* dims;
  int32_t n_dims;
  gsel_dtype dtype;
  uint32_t flags;
  int32_t place;
} first_value_desc;

typedef struct {
  uint32_t struct_size, reserved;
  int32_t kind, reserved2;
  uint64_t ticket;
  const gsel_call* call;
} first_work;

typedef struct {
  uint32_t struct_size, reserved;
  int64_t step;
  double loss;
} first_step_report;

typedef struct {
  gsel_comm_options known;
  double patience_s;
} next_comm_config;

typedef struct {
  gsel_trainer_options known;
  void* progress;
  void* progress_user_data;
} next_trainer_options;

typedef struct {
  gsel_step_report known;
  uint64_t joules;
} next_step_report;

/* A copy of `bytes` bytes that ends where the page does; struct_size, the first field, is set to `bytes`.
 * Released by give_back. */
static inline void* at_end_of_page(const void* from, uint32_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* memory = (char*)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  assert_int_equal(mprotect(memory + page, page, PROT_NONE), 0);
  char* copy = memory + page - bytes;
  memcpy(copy, from, bytes);
  memcpy(copy, &bytes, sizeof bytes);
  return copy;
}

static inline void give_back(void* copy, uint32_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  munmap((char*)copy + bytes - page, 2 * page);
}

#define OLD(value) at_end_of_page(&(value), (uint32_t)sizeof(value))
#define GIVE_BACK(copy, value) give_back(copy, (uint32_t)sizeof(value))

#endif
