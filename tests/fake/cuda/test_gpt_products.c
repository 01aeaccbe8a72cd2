/* The GPT's products of matrices by cuBLASLt, on a double of it that refuses what the library would refuse: linear
 * layers give what they give on the host, whatever is transposed, added to or has a bias, at any address, for more
 * kinds of products than are kept; and what the library cannot do is an error with its number. */
#include "cuda/products.h"
#include "fake/cuda/gpt_trial.h"

static const struct gpt_sizes by_cublaslt = {
    .layers = 1, .width = 30, .heads = 6, .context = CONTEXT, .products = GPT_CUBLASLT};

static void try_all(int where) {
  const struct layer_trial all[] = {
      {.name = "linear",
       BOTH(linear),
       .params = {floats(70, 19, 0, 0), floats(70, 0, 0, 0)},
       .inputs = {floats(SAMPLES, CONTEXT, 19, 0)},
       .outputs = {floats(SAMPLES, CONTEXT, 70, 0)}},
      {.name = "linear, without a bias",
       BOTH(linear),
       .params = {floats(19, 70, 0, 0)},
       .inputs = {floats(SAMPLES, CONTEXT, 70, 0)},
       .outputs = {floats(SAMPLES, CONTEXT, 19, 0)}},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) try_layer(&all[i], &by_cublaslt, where);
}

static void linear_layers_give_what_they_give_on_the_host(void** state) {
  (void)state;
  assert_null(device_refusal(&by_cublaslt));
  try_all(ON_DEVICE);
  try_all(ON_DEVICE_IN_BF16);
}

/* ---- one product --------------------------------------------------------------------------------------- */

enum { MOST = 4096, OFFSET = 8 }; /* numbers of an array, and how many of the device's memory are in front of it */
static float a[MOST], b[MOST], bias[MOST], d[MOST];
static uintptr_t at_a, at_b, at_bias, at_d;

static void open_arrays(void) {
  const gsel_tensor like = {.n_elems = MOST, .dtype = GSEL_F32};
  float* const arrays[] = {a, b, bias, d};
  uintptr_t* const at[] = {&at_a, &at_b, &at_bias, &at_d};
  for (int i = 0; i < 4; ++i) {
    void* numbers = made(&like, (uint32_t)(i + 1), 0);
    memcpy(arrays[i], numbers, sizeof a);
    free(numbers);
    *at[i] = alloc(&g, (MOST + OFFSET) * sizeof(float));
  }
}

/* With arrays so many numbers behind an address that is aligned well. */
static gsel_status multiply(struct gpu_product p, int shift, float* out, char* message, size_t capacity) {
  const size_t bytes = (size_t)shift * sizeof(float);
  copy(&g, (void*)(at_a + bytes), a, sizeof a);
  copy(&g, (void*)(at_b + bytes), b, sizeof b);
  copy(&g, (void*)(at_bias + bytes), bias, sizeof bias);
  copy(&g, (void*)(at_d + bytes), d, sizeof d);
  p.a = (void*)(at_a + bytes);
  p.b = (void*)(at_b + bytes);
  p.d = (void*)(at_d + bytes);
  if (p.bias) p.bias = (void*)(at_bias + bytes);
  p.type = p.d_type = GSEL_F32;
  const gsel_status status = gpu_multiply(g.stream, &p, (struct gpu_say){message, capacity});
  copy(&g, out, p.d, sizeof d);
  finish(&g);
  return status;
}

static void check(struct gpu_product p, int shift) {
  static float got[MOST];
  char message[256] = "";
  if (multiply(p, shift, got, message, sizeof message)) fail_msg("%s", message);
  for (int64_t i = 0; i < p.rows; ++i)
    for (int64_t j = 0; j < p.columns; ++j) {
      double sum = (p.bias ? (double)bias[j] : 0) + (p.adds ? (double)d[i * p.columns + j] : 0);
      for (int64_t k = 0; k < p.depth; ++k)
        sum += (double)a[p.a_transposed ? k * p.rows + i : i * p.depth + k] *
               (double)b[p.b_transposed ? j * p.depth + k : k * p.columns + j];
      if (!(fabs(sum - (double)got[i * p.columns + j]) <= TOLERANCE * (1 + fabs(sum))))
        fail_msg("%lld x %lld x %lld, row %lld, column %lld: expected %.9g, got %.9g", (long long)p.rows,
                 (long long)p.columns, (long long)p.depth, (long long)i, (long long)j, sum,
                 (double)got[i * p.columns + j]);
    }
  assert_memory_equal(got + p.rows * p.columns, d + p.rows * p.columns,
                      sizeof d - (size_t)(p.rows * p.columns) * sizeof *d);
  no_violations();
}

static void every_way_to_store_and_to_add(void** state) {
  (void)state;
  for (int way = 0; way < 16; ++way)
    check((struct gpu_product){.rows = 13,
                               .columns = 7,
                               .depth = 21,
                               .a_transposed = way & 1,
                               .b_transposed = way >> 1 & 1,
                               .adds = way >> 2 & 1,
                               .bias = way >> 3 ? bias : NULL},
          0);
}

static void an_address_that_is_aligned_worse_gets_an_algorithm_of_its_own(void** state) {
  (void)state;
  static const int shifts[] = {0, 1, 4, 2, 0, 1};
  for (int i = 0; i < 6; ++i)
    check((struct gpu_product){.rows = 16, .columns = 16, .depth = 16, .bias = bias}, shifts[i]);
}

static void more_kinds_than_are_kept_take_turns(void** state) {
  (void)state;
  for (int turn = 0; turn < 2; ++turn)
    for (int64_t rows = 1; rows <= 150; ++rows) check((struct gpu_product){.rows = rows, .columns = 2, .depth = 3}, 0);
}

static void what_the_library_cannot_do_is_an_error_with_its_number(void** state) {
  (void)state;
  if (is_on_card()) skip(); /* only the double can be told to find no way */
  static float got[MOST];
  char message[256] = "";
  setenv("GSEL_FAKE_CUBLASLT_FINDS", "0", 1);
  assert_int_equal(multiply((struct gpu_product){.rows = 5, .columns = 6, .depth = 7}, 0, got, message, sizeof message),
                   GSEL_ERR_DEVICE);
  unsetenv("GSEL_FAKE_CUBLASLT_FINDS");
  assert_string_equal(message,
                      "a product of 5 x 6 with sums of 7: cuBLASLt error 15; --products plain does without it");
  check((struct gpu_product){.rows = 5, .columns = 6, .depth = 7}, 0);
}

int main(void) {
  load_doubles("fake_libcublasLt.so");
  g = open_gpu(0);
  if (is_on_card() && device_refusal(&by_cublaslt)) {
    fprintf(stderr, "%s\n", device_refusal(&by_cublaslt));
    return 77;
  }
  open_arrays();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(linear_layers_give_what_they_give_on_the_host),
      cmocka_unit_test(every_way_to_store_and_to_add),
      cmocka_unit_test(an_address_that_is_aligned_worse_gets_an_algorithm_of_its_own),
      cmocka_unit_test(more_kinds_than_are_kept_take_turns),
      cmocka_unit_test(what_the_library_cannot_do_is_an_error_with_its_number),
  };
  return cmocka_run_group_tests_name("gpt_products", tests, NULL, NULL);
}
