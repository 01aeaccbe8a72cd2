/* unit/test_operation.c: operations of callers, scaled sums and the local fold, alone and between ranks, against serial
 * loops, bit for bit. */
#include "support/ranks.h"

#define RANKS 4
#define SMALL 100
#define LARGE 50000 /* more than rides with a header line */

/* Neither associative nor commutative: the order shows. */
static int32_t halve_and_add(void* accumulated, const void* next, size_t count, gsel_dtype dtype, void* user_data) {
  float* a = accumulated;
  const float* b = next;
  (void)user_data;
  if (dtype != GSEL_F32) return 99;
  for (size_t i = 0; i < count; ++i) a[i] = a[i] / 2 + b[i];
  return 0;
}

static int32_t answer(void* accumulated, const void* next, size_t count, gsel_dtype dtype, void* user_data) {
  (void)accumulated, (void)next, (void)count, (void)dtype;
  return *(const int32_t*)user_data;
}

static gsel_op created(const char* name, gsel_op_fn function, void* user_data) {
  gsel_op op = 0;
  return gsel_op_create(gsel_str_from(name), 1, function, user_data, NULL, &op, NULL) == GSEL_OK ? op : 0;
}

static float number(int32_t rank, size_t i) {
  return (float)((i * 31 + (size_t)rank * 17) % 97) / 7.0f;
}

static float folded(int32_t n, size_t i) {
  float x = number(0, i);
  for (int32_t r = 1; r < n; ++r) x = x / 2 + number(r, i);
  return x;
}

/* ---- numbers and names */

static void test_a_number_is_good_until_destroyed(void** state) {
  gsel_error* err;
  float x = 1, out = 0;
  const void* in[] = {&x, &x};
  gsel_op op = 0, scaled = 0;
  (void)state;
  check_ok(gsel_op_create((gsel_str)GSEL_STR("halve"), 1, halve_and_add, NULL, NULL, &op, &err), err);
  assert_true(op >= GSEL_OP_USER);
  check_ok(gsel_op_create_scaled_sum(0.5, &scaled, &err), err);
  assert_true(scaled >= GSEL_OP_USER && scaled != op);
  check_ok(gsel_reduce_local(in, 2, &out, 1, GSEL_F32, op, GSEL_ORDER_RANKS, &err), err);
  assert_true(out == 1.5f);
  gsel_op_free(op);
  gsel_op_free(op);
  gsel_op_free(scaled);
  gsel_op fresh = created("another", halve_and_add, NULL);
  check_fails(gsel_reduce_local(in, 2, &out, 1, GSEL_F32, op, GSEL_ORDER_RANKS, &err), err, GSEL_ERR_ARG,
              "was not made by gsel_op_create, or it is destroyed");
  gsel_op_free(fresh);
  gsel_op_free(0);
  gsel_op_free(GSEL_SUM);
  gsel_op_free(-1);
  gsel_op_free(INT32_MAX);
  check_fails(gsel_reduce_local(in, 2, &out, 1, GSEL_F32, INT32_MAX, 0, &err), err, GSEL_ERR_ARG, "was not made by");
  check_fails(gsel_reduce_local(in, 2, &out, 1, GSEL_F32, GSEL_OP_USER, 0, &err), err, GSEL_ERR_ARG, "was not made by");
}

static void test_names_functions_and_outs_that_are_none_are_refused(void** state) {
  gsel_error* err;
  gsel_op op = 1;
  const gsel_str name = GSEL_STR("fine"), none = {NULL, 0}, empty = GSEL_STR("");
  const gsel_str longest = GSEL_STR("a name of thirty-one bytes, full"), cut = {longest.data, 31},
                 torn = {"with\0nul", 8};
  (void)state;
  check_fails(gsel_op_create(none, 1, halve_and_add, NULL, NULL, &op, &err), err, GSEL_ERR_ARG, "name is not given");
  assert_int_equal(op, 0);
  check_fails(gsel_op_create(empty, 1, halve_and_add, NULL, NULL, &op, &err), err, GSEL_ERR_ARG,
              "has 0 bytes; use 1 to 31");
  check_fails(gsel_op_create(longest, 1, halve_and_add, NULL, NULL, &op, &err), err, GSEL_ERR_ARG, "has 32 bytes");
  check_fails(gsel_op_create(torn, 1, halve_and_add, NULL, NULL, &op, &err), err, GSEL_ERR_ARG, "no NUL");
  check_fails(gsel_op_create(name, 1, NULL, NULL, NULL, &op, &err), err, GSEL_ERR_ARG, "\"fine\" has no function");
  check_fails(gsel_op_create(name, 1, halve_and_add, NULL, NULL, NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
  check_fails(gsel_op_create_scaled_sum(1, NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
  check_ok(gsel_op_create(cut, 1, halve_and_add, NULL, NULL, &op, &err), err);
  gsel_op_free(op);
}

static void test_so_many_may_be_alive_and_no_more(void** state) {
  static gsel_op all[4096];
  gsel_error* err;
  gsel_op one_more;
  (void)state;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4096; ++i) check_ok(gsel_op_create_scaled_sum(i, &all[i], &err), err);
    check_fails(gsel_op_create_scaled_sum(1, &one_more, &err), err, GSEL_ERR_NOMEM, "4096 operations");
    gsel_op_free(all[1234]);
    check_ok(gsel_op_create_scaled_sum(1, &one_more, &err), err);
    assert_int_not_equal(one_more, all[1234]);
    gsel_op_free(one_more);
    for (int i = 0; i < 4096; ++i) gsel_op_free(all[i]);
  }
}

static void* create_use_destroy(void* unused) {
  (void)unused;
  for (int32_t i = 1; i <= 500; ++i) {
    float x = (float)i, y = 1, out = 0;
    const void* in[] = {&x, &y};
    const gsel_op op = created("passing", halve_and_add, NULL);
    if (gsel_reduce_local(in, 2, &out, 1, GSEL_F32, op, 0, NULL) != GSEL_OK || out != x / 2 + 1) return "failed";
    gsel_op_free(op);
  }
  return NULL;
}

static void test_threads_create_and_destroy_at_once(void** state) {
  pthread_t threads[4];
  (void)state;
  for (int i = 0; i < 4; ++i) assert_int_equal(pthread_create(&threads[i], NULL, create_use_destroy, NULL), 0);
  for (int i = 0; i < 4; ++i) {
    void* failure;
    pthread_join(threads[i], &failure);
    assert_null(failure);
  }
}

/* ---- between ranks */

static void user_operation(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const int32_t n = run->world_size;
  const gsel_op op = created("halve and add", halve_and_add, NULL);
  rank_ok(run, rank_join(run, &comm, &err), err);
  float *x = malloc(sizeof(float) * LARGE * RANKS), *y = malloc(sizeof(float) * LARGE);
  for (int large = 0; large < 2; ++large) {
    const size_t count = large ? LARGE : SMALL;
    for (size_t i = 0; i < count * (size_t)n; ++i) x[i] = number(run->rank, i);
    rank_ok(run, gsel_allreduce(comm, x, y, count, GSEL_F32, op, &err), err);
    for (size_t i = 0; i < count; ++i) rank_check(run, y[i] == folded(n, i));
    rank_ok(run, gsel_reduce(comm, x, y, count, GSEL_F32, op, n - 1, &err), err);
    for (size_t i = 0; i < count; ++i) rank_check(run, y[i] == folded(n, i));
    rank_ok(run, gsel_reduce_scatter(comm, x, y, count, GSEL_F32, op, &err), err);
    for (size_t i = 0; i < count; ++i) rank_check(run, y[i] == folded(n, i + count * (size_t)run->rank));
    rank_ok(run, gsel_allreduce(comm, x, x, count, GSEL_F32, op, &err), err);
    for (size_t i = 0; i < count; ++i) rank_check(run, x[i] == folded(n, i));
  }
  free(x), free(y);
  gsel_comm_free(comm);
  gsel_op_free(op);
}

static void test_an_operation_of_the_callers_equals_the_serial_loop(void** state) {
  (void)state;
  as_threads(1, user_operation, NULL);
  as_threads(3, user_operation, NULL);
  as_processes(RANKS, user_operation, NULL);
}

static void names_differ(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  float x[SMALL] = {0};
  const uint64_t counts[3] = {1, 2, 3};
  const gsel_op op = created(run->rank == 1 ? "the odd one" : "the usual", halve_and_add, NULL);
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(
      run, gsel_allreduce(comm, x, x, SMALL, GSEL_F32, op, &err), err, GSEL_ERR_MISMATCH,
      "rank 0 called allreduce(count 100, f32, \"the usual\"), rank 1 called allreduce(count 100, f32, \"the odd "
      "one\")",
      1);
  rank_fails(run, gsel_reduce_scatterv(comm, x, x + 50, counts, NULL, GSEL_F32, op, &err), err, GSEL_ERR_MISMATCH,
             "\"the usual\"), rank 1 called reduce_scatterv(total count 6, f32, \"the odd one\")", 1);
  rank_fails(run, gsel_allreduce(comm, x, x, SMALL, GSEL_F32, run->rank == 1 ? GSEL_SUM : op, &err), err,
             GSEL_ERR_MISMATCH, "\"the usual\"), rank 1 called allreduce(count 100, f32, sum)", 1);
  rank_ok(run, gsel_allreduce(comm, x, x, SMALL, GSEL_F32, GSEL_SUM, &err), err);
  gsel_comm_free(comm);
  gsel_op_free(op);
}

static void test_other_names_are_a_mismatch_that_quotes_both(void** state) {
  (void)state;
  as_threads(3, names_differ, NULL);
  as_processes(3, names_differ, NULL);
}

/* Records of three: the one with the larger first element, whole. */
static int32_t larger_record(void* accumulated, const void* next, size_t count, gsel_dtype dtype, void* user_data) {
  float* a = accumulated;
  const float* b = next;
  (void)user_data;
  if (count % 3 != 0 || dtype != GSEL_F32) return 99;
  for (size_t i = 0; i < count; i += 3)
    if (b[i] > a[i]) memcpy(a + i, b + i, 3 * sizeof *a);
  return 0;
}

static float of_record(int32_t rank, size_t i) {
  const float key = (float)((i / 3 * 7 + (size_t)rank * 13) % 31);
  return i % 3 == 0 ? key : (float)(rank * 1000) + (float)(i % 997);
}

static float of_largest(int32_t n, size_t i) {
  int32_t best = 0;
  for (int32_t r = 1; r < n; ++r)
    if (of_record(r, i / 3 * 3) > of_record(best, i / 3 * 3)) best = r;
  return of_record(best, i);
}

static void records(rank_run* run) {
  enum { FEW = 3 * 11, MANY = 3 * 17001, MOST_RECORD = 4096 / 4 };
  gsel_error* err;
  gsel_comm* comm;
  gsel_op op, large;
  void* shared;
  const int32_t n = run->world_size;
  rank_ok(run, gsel_op_create((gsel_str)GSEL_STR("larger record"), 3, larger_record, NULL, NULL, &op, &err), err);
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, sizeof(float) * MANY, &shared, &err), err);
  float *x = malloc(sizeof(float) * MANY * RANKS), *y = malloc(sizeof(float) * MANY);
  for (int kind = 0; kind < 3; ++kind) {
    const size_t count = kind == 0 ? FEW : MANY;
    float* out = kind == 2 ? shared : y;
    for (size_t i = 0; i < count * (size_t)n; ++i) x[i] = of_record(run->rank, i);
    if (kind == 2) memcpy(shared, x, sizeof(float) * MANY);
    rank_ok(run, gsel_allreduce(comm, kind == 2 ? out : x, out, count, GSEL_F32, op, &err), err);
    for (size_t i = 0; i < count; ++i) rank_check(run, out[i] == of_largest(n, i));
    rank_ok(run, gsel_reduce(comm, x, y, count, GSEL_F32, op, 0, &err), err);
    for (size_t i = 0; run->rank == 0 && i < count; ++i) rank_check(run, y[i] == of_largest(n, i));
    rank_ok(run, gsel_reduce_scatter(comm, x, y, count, GSEL_F32, op, &err), err);
    for (size_t i = 0; i < count; ++i) rank_check(run, y[i] == of_largest(n, i + count * (size_t)run->rank));
  }
  rank_fails(run, gsel_allreduce(comm, x, y, 100, GSEL_F32, op, &err), err, GSEL_ERR_ARG,
             "allreduce: count 100 cuts a record of \"larger record\", which has 3 elements", -1);
  const uint64_t counts[RANKS] = {3, 4, 3, 3};
  rank_fails(run, gsel_reduce_scatterv(comm, x, y, counts, NULL, GSEL_F32, op, &err), err, GSEL_ERR_ARG,
             "count 4 cuts a record", -1);
  rank_ok(run, gsel_op_create((gsel_str)GSEL_STR("large"), MOST_RECORD, larger_record, NULL, NULL, &large, &err), err);
  rank_fails(run, gsel_allreduce(comm, x, y, MOST_RECORD, GSEL_F64, large, &err), err, GSEL_ERR_ARG,
             "8192 bytes; the most is 4096", -1);
  rank_ok(run, gsel_barrier(comm, &err), err);
  free(x), free(y);
  gsel_comm_free(comm);
  gsel_op_free(op), gsel_op_free(large);
}

static void test_a_record_is_never_cut(void** state) {
  gsel_error* err;
  gsel_op op;
  (void)state;
  as_threads(2, records, NULL);
  as_threads(RANKS, records, NULL);
  as_processes(2, records, NULL);
  as_processes(RANKS, records, NULL);
  check_fails(gsel_op_create((gsel_str)GSEL_STR("none"), 0, larger_record, NULL, NULL, &op, &err), err, GSEL_ERR_ARG,
              "has records of 0 elements; use 1 for independent elements");
}

/* Ranks that mean other records are told apart. */
static void other_records(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_op op;
  float x[6] = {0};
  const size_t record = run->rank == 0 ? 3 : 1;
  rank_ok(run, gsel_op_create((gsel_str)GSEL_STR("one name"), record, larger_record, NULL, NULL, &op, &err), err);
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, gsel_allreduce(comm, x, x, 6, GSEL_F32, op, &err), err, GSEL_ERR_MISMATCH, "another operation", -1);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
  gsel_op_free(op);
}

static void test_other_records_are_a_mismatch(void** state) {
  (void)state;
  as_threads(2, other_records, NULL);
}

/* The function fails on rank 1 alone; in a large call others wait for what that rank folds. */
static void one_fails(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  int32_t status = run->rank == 1 ? 7 : 0;
  const gsel_op op = created("moody", answer, &status);
  float* x = calloc(LARGE, sizeof *x);
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, gsel_allreduce(comm, x, x, LARGE, GSEL_F32, op, &err), err, GSEL_ERR_CALLBACK,
             "rank 1: the function of the operation returned 7 in allreduce(count 50000, f32, \"moody\")", 1);
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_CALLBACK, "rank 1: the function", 1);
  free(x);
  gsel_comm_free(comm);
  gsel_op_free(op);
}

static void all_fail(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  int32_t status = -3;
  const gsel_op op = created("never", answer, &status);
  float x[2] = {0};
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, gsel_allreduce(comm, x, x, 2, GSEL_F32, op, &err), err, GSEL_ERR_CALLBACK, "returned -3", -1);
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_CALLBACK, "in allreduce(count 2, f32, \"never\")", -1);
  gsel_comm_free(comm);
  gsel_op_free(op);
}

static void test_a_failing_operation_is_an_error_on_every_rank(void** state) {
  (void)state;
  as_threads(RANKS, one_fails, NULL);
  as_processes(RANKS, one_fails, NULL);
  as_threads(2, all_fail, NULL);
  as_processes(3, all_fail, NULL);
}

static const double kFactors[RANKS] = {0.25, -1.1, 3, 1e-3};

static void scaled_sums(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_op op;
  rank_ok(run, gsel_op_create_scaled_sum(kFactors[run->rank], &op, &err), err);
  rank_ok(run, rank_join(run, &comm, &err), err);
  float *x = malloc(sizeof(float) * LARGE), *y = malloc(sizeof(float) * LARGE), *z = malloc(sizeof(float) * LARGE);
  for (int large = 0; large < 2; ++large) {
    gsel_collective call = GSEL_COLLECTIVE_INIT;
    const size_t count = large ? LARGE : SMALL;
    for (size_t i = 0; i < count; ++i) x[i] = number(run->rank, i);
    call.kind = GSEL_COLLECTIVE_ALLREDUCE;
    call.dtype = GSEL_F32;
    call.op = GSEL_SCALED_SUM;
    call.factor = kFactors[run->rank];
    call.send = x;
    call.recv = z;
    call.count = count;
    rank_ok(run, gsel_comm_run(comm, &call, &err), err);
    rank_ok(run, gsel_allreduce(comm, x, y, count, GSEL_F32, op, &err), err);
    for (size_t i = 0; i < count; ++i) {
      float sum = number(0, i) * (float)kFactors[0];
      for (int32_t r = 1; r < run->world_size; ++r) {
        const float product = number(r, i) * (float)kFactors[r];
        sum += product;
      }
      rank_check(run, y[i] == sum && z[i] == sum);
    }
  }
  int32_t whole = 1;
  rank_fails(run, gsel_allreduce(comm, &whole, &whole, 1, GSEL_I32, op, &err), err, GSEL_ERR_ARG,
             "scaled sum is for floating point", -1);
  free(x), free(y), free(z);
  gsel_comm_free(comm);
  gsel_op_free(op);
}

static void test_a_scaled_sum_takes_each_ranks_factor(void** state) {
  (void)state;
  as_threads(1, scaled_sums, NULL);
  as_threads(2, scaled_sums, NULL);
  as_processes(RANKS, scaled_sums, NULL);
}

/* What an operation does that calls back into the communicator that runs it, and what it was answered. */
typedef struct inward {
  gsel_comm* comm;
  gsel_request* request; /* the call that it is in, where that is one */
  int32_t started;       /* it has, so that the operation may use it */
  int32_t called, refused, ended;
} inward;

static void expect_state(inward* in, gsel_status status, gsel_error** err) {
  const gsel_str text = gsel_error_message(*err);
  in->refused += status == GSEL_ERR_STATE && text.data && strstr(text.data, "operation") != NULL;
  gsel_error_free(*err);
  *err = NULL;
}

static int32_t turn_inward(void* accumulated, const void* next, size_t count, gsel_dtype dtype, void* user_data) {
  inward* in = user_data;
  gsel_error* err = NULL;
  gsel_comm* other = NULL;
  size_t at = 0;
  int32_t done = 0;
  (void)accumulated, (void)next, (void)count, (void)dtype;
  ++in->called;
  expect_state(in, gsel_barrier(in->comm, &err), &err);
  expect_state(in, gsel_comm_dup(in->comm, &other, &err), &err);
  gsel_comm_free(in->comm);
  if (!in->request) return 0;
  await_step(&in->started, 1);
  gsel_request_test(in->request, &done, NULL);
  in->ended += done;
  expect_state(in, gsel_request_wait(in->request, &err), &err);
  expect_state(in, gsel_request_wait_any(&in->request, 1, &at, &err), &err);
  done = 1;
  expect_state(in, gsel_request_wait_for(in->request, 5, &done, &err), &err);
  in->ended += done;
  expect_state(in, gsel_request_cancel(in->request, &done, &err), &err);
  gsel_request_free(in->request);
  return 0;
}

static void calls_inward(rank_run* run) {
  run->timeout_s = 20;
  gsel_error* err;
  inward in = {0};
  const gsel_op op = created("inward", turn_inward, &in);
  float x[2] = {0};
  rank_ok(run, rank_join(run, &in.comm, &err), err);
  gsel_comm* comm = in.comm;
  rank_ok(run, gsel_allreduce(comm, x, x, 2, GSEL_F32, op, &err), err);
  rank_check(run, in.called > 0 && in.refused == 2 * in.called);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE, call.dtype = GSEL_F32, call.op = op;
  call.send = x, call.recv = x, call.count = 2;
  rank_ok(run, gsel_request_create(comm, &call, &in.request, &err), err);
  for (int round = 0; round < 4; ++round) { /* driven by whoever waits, and by the communicator's thread */
    int32_t done = 0;
    in.called = in.refused = 0;
    reach_step(&in.started, 0);
    rank_ok(run, gsel_request_start(in.request, &err), err);
    reach_step(&in.started, 1);
    while (round % 2 && !done) rank_ok(run, gsel_request_test(in.request, &done, &err), err);
    rank_ok(run, gsel_request_wait(in.request, &err), err);
    rank_check(run, in.called > 0 && in.refused == 6 * in.called && in.ended == 0);
  }
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_request_free(in.request);
  gsel_comm_free(comm);
  gsel_op_free(op);
}

static void keep_quiet(gsel_log_level level, gsel_str component, gsel_str line, void* user_data) {
  (void)level, (void)component, (void)line, (void)user_data;
}

static void test_an_operation_that_calls_its_communicator_is_refused(void** state) {
  (void)state;
  gsel_log_set(keep_quiet, GSEL_LOG_ERROR, NULL, NULL); /* about what is not released there */
  as_threads(2, calls_inward, NULL);
  as_processes(2, calls_inward, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_number_is_good_until_destroyed),
      cmocka_unit_test(test_names_functions_and_outs_that_are_none_are_refused),
      cmocka_unit_test(test_so_many_may_be_alive_and_no_more),
      cmocka_unit_test(test_threads_create_and_destroy_at_once),
      cmocka_unit_test(test_an_operation_of_the_callers_equals_the_serial_loop),
      cmocka_unit_test(test_other_names_are_a_mismatch_that_quotes_both),
      cmocka_unit_test(test_a_record_is_never_cut),
      cmocka_unit_test(test_other_records_are_a_mismatch),
      cmocka_unit_test(test_a_failing_operation_is_an_error_on_every_rank),
      cmocka_unit_test(test_an_operation_that_calls_its_communicator_is_refused),
      cmocka_unit_test(test_a_scaled_sum_takes_each_ranks_factor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
