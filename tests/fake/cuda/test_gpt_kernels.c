/* The GPT's layers on a device: each gives what the same layer gives on the host, within rounding, forward and in both
 * halves of backward, in f32 and in bf16; also where a part of a dimension is here. The sizes are no multiples of what
 * a block of threads takes. */
#include "fake/cuda/gpt_trial.h"

static const struct gpt_sizes one_head_of_30 = {.layers = 1, .width = 30, .heads = 1, .context = CONTEXT};
static const struct gpt_sizes one_head_of_150 = {.layers = 1, .width = 150, .heads = 1, .context = CONTEXT};
static const struct gpt_sizes one_head_of_128 = {.layers = 1, .width = 128, .heads = 1, .context = CONTEXT};

static void try_all(int where) {
  const struct layer_trial all[] = {
      {.name = "tokens",
       BOTH(token),
       .params = {floats(64, 19, 0, 0)},
       .inputs = {words(CONTEXT)},
       .outputs = {floats(SAMPLES, CONTEXT, 19, 0)}},
      {.name = "tokens, a part of the vocabulary",
       BOTH(token),
       .params = {floats(PART, 19, 0, 0)},
       .inputs = {words(CONTEXT)},
       .outputs = {floats(SAMPLES, CONTEXT, 19, 0)},
       .param_first = FIRST},
      {.name = "positions",
       BOTH(position),
       .params = {floats(CONTEXT, 11, 0, 0)},
       .inputs = {floats(SAMPLES, CONTEXT, 11, 0)},
       .outputs = {floats(SAMPLES, CONTEXT, 11, 0)}},
      {.name = "positions, a part of them",
       BOTH(position),
       .params = {floats(CONTEXT, 11, 0, 0)},
       .inputs = {floats(SAMPLES, PART, 11, 0)},
       .outputs = {floats(SAMPLES, PART, 11, 0)},
       .output_first = FIRST},
      {.name = "layer norm",
       BOTH(layernorm),
       .params = {floats(45, 0, 0, 0), floats(45, 0, 0, 0)},
       .inputs = {floats(SAMPLES, CONTEXT, 45, 0)},
       .outputs = {floats(SAMPLES, CONTEXT, 45, 0)},
       .saved = 2 * SAMPLES * CONTEXT},
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
      {.name = "attention",
       BOTH(attention),
       .inputs = {floats(SAMPLES, CONTEXT, 3, 30)},
       .outputs = {floats(SAMPLES, CONTEXT, 30, 0)},
       .saved = SAMPLES * 6 * CONTEXT * CONTEXT,
       .bf16_slack = 4e-3},
      {.name = "attention, two of six heads",
       BOTH(attention),
       .inputs = {floats(SAMPLES, CONTEXT, 3, 10)},
       .outputs = {floats(SAMPLES, CONTEXT, 10, 0)},
       .saved = SAMPLES * 2 * CONTEXT * CONTEXT,
       .bf16_slack = 4e-3},
      {.name = "attention, a head of 150",
       BOTH(attention),
       .inputs = {floats(SAMPLES, CONTEXT, 3, 150)},
       .outputs = {floats(SAMPLES, CONTEXT, 150, 0)},
       .saved = SAMPLES * CONTEXT * CONTEXT,
       .bf16_slack = 4e-2,
       .sizes = &one_head_of_150},
      {.name = "fused attention",
       BOTH(ring),
       .inputs = {floats(SAMPLES, CONTEXT, 3, 30)},
       .outputs = {floats(SAMPLES, CONTEXT, 30, 0)},
       .saved = SAMPLES * 6 * CONTEXT,
       .bf16_slack = 4e-3},
      {.name = "fused attention, two of six heads",
       BOTH(ring),
       .inputs = {floats(SAMPLES, CONTEXT, 3, 10)},
       .outputs = {floats(SAMPLES, CONTEXT, 10, 0)},
       .saved = SAMPLES * 2 * CONTEXT,
       .bf16_slack = 4e-3},
      {.name = "fused attention, a head of 30",
       BOTH(ring),
       .inputs = {floats(SAMPLES, CONTEXT, 3, 30)},
       .outputs = {floats(SAMPLES, CONTEXT, 30, 0)},
       .saved = SAMPLES * CONTEXT,
       .bf16_slack = 1e-2,
       .sizes = &one_head_of_30},
      {.name = "fused attention, a head of 128",
       BOTH(ring),
       .inputs = {floats(SAMPLES, CONTEXT, 3, 128)},
       .outputs = {floats(SAMPLES, CONTEXT, 128, 0)},
       .saved = SAMPLES * CONTEXT,
       .bf16_slack = 4e-2,
       .sizes = &one_head_of_128},
      {.name = "gelu",
       BOTH(gelu),
       .inputs = {floats(SAMPLES, CONTEXT, 19, 0)},
       .outputs = {floats(SAMPLES, CONTEXT, 19, 0)}},
      {.name = "residual",
       BOTH(residual),
       .params = {floats(19, 0, 0, 0)},
       .inputs = {floats(SAMPLES, CONTEXT, 19, 0), floats(SAMPLES, CONTEXT, 19, 0)},
       .outputs = {floats(SAMPLES, CONTEXT, 19, 0)}},
      {.name = "loss",
       BOTH(loss),
       .inputs = {floats(SAMPLES, LOSSES, 64, 0), words(LOSSES)},
       .outputs = {number(), number()},
       .reductions = {floats(SAMPLES, LOSSES, 0, 0), floats(SAMPLES, 2 * LOSSES, 0, 0)},
       .saved = SAMPLES * LOSSES},
      {.name = "loss, a part of the vocabulary",
       BOTH(loss),
       .inputs = {floats(SAMPLES, LOSSES, PART, 0), words(LOSSES)},
       .outputs = {number(), number()},
       .reductions = {floats(SAMPLES, LOSSES, 0, 0), floats(SAMPLES, 2 * LOSSES, 0, 0)},
       .saved = SAMPLES * LOSSES,
       .input_first = FIRST},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) try_layer(&all[i], &heads_of_5, where);
}

static void layers_give_what_they_give_on_the_host(void** state) {
  (void)state;
  try_all(ON_DEVICE);
}

static void layers_in_bf16_give_what_they_give_on_the_host_from_the_same_numbers(void** state) {
  (void)state;
  try_all(ON_DEVICE_IN_BF16);
}

/* ---- what fails ---- */

static void a_device_that_takes_no_kernels_is_the_error_of_the_callback(void** state) {
  (void)state;
  if (is_on_card()) skip(); /* a card takes the kernels */
  const gpu other = open_gpu(3);
  char message[256] = "";
  const gsel_tensor x = floats(8, 0, 0, 0);
  const gsel_call call = {
      .inputs = &x, .outputs = &x, .stream = other.stream, .message = message, .message_capacity = sizeof message};
  setenv("GSEL_FAKE_CUDA_IMAGE", "209", 1);
  assert_int_equal(device_layers.gelu->forward(&call, NULL), GSEL_ERR_DEVICE);
  unsetenv("GSEL_FAKE_CUDA_IMAGE");
  assert_non_null(strstr(message, "loading the kernels of the GPT: CUDA error 209"));
  no_violations();
}

static void what_has_no_kernels_is_refused_by_name(void** state) {
  (void)state;
  struct gpt_sizes large = one_head_of_150;
  assert_null(device_refusal(&large));
  large.attention = GPT_FUSED;
  assert_non_null(device_refusal(&large));
  assert_non_null(strstr(device_refusal(&large), "heads of up to 128 on a GPU; use --attention whole"));
}

int main(void) {
  load_doubles("fake_libcuda.so");
  g = open_gpu(0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_give_what_they_give_on_the_host),
      cmocka_unit_test(layers_in_bf16_give_what_they_give_on_the_host_from_the_same_numbers),
      cmocka_unit_test(a_device_that_takes_no_kernels_is_the_error_of_the_callback),
      cmocka_unit_test(what_has_no_kernels_is_refused_by_name),
  };
  return cmocka_run_group_tests_name("gpt_kernels", tests, NULL, NULL);
}
