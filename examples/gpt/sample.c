/* sample.c: one byte at a time: show the model the last `context` bytes, turn its logits for the next byte into
 * probabilities, draw one. Each byte runs the model over the whole window; there is no cache of earlier work. */
#include "sample.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu.h"

/* The last bytes of the text, and room for the model's answer. */
struct window {
  int64_t context, used;
  uint8_t* bytes; /* [context], zero behind `used` */
  void* logits;   /* [context][GPT_VOCAB], f32 or bf16 */
};

static gsel_status fill_window(const gsel_data_request* request, void* user_data) {
  const struct window* window = user_data;
  const struct gpu_say say = {request->message, request->message_capacity};
  if (request->stream) return gpu_copy(request->stream, request->dst.data, window->bytes, (size_t)window->context, say);
  memcpy(request->dst.data, window->bytes, (size_t)window->context);
  return GSEL_OK;
}

static void append(struct window* window, uint8_t byte) {
  if (window->used == window->context) {
    memmove(window->bytes, window->bytes + 1, (size_t)window->context - 1);
    --window->used;
  }
  window->bytes[window->used++] = byte;
}

/* Draws from softmax(logits / temperature), with chance uniform in [0, 1). */
static uint8_t draw(const float* logits, double temperature, double chance) {
  double weight[GPT_VOCAB], top = logits[0], sum = 0;
  for (int i = 1; i < GPT_VOCAB; ++i) top = fmax(top, logits[i]);
  for (int i = 0; i < GPT_VOCAB; ++i) sum += weight[i] = exp((logits[i] - top) / temperature);
  int i = 0;
  for (double left = chance * sum - weight[0]; left >= 0 && i + 1 < GPT_VOCAB; left -= weight[i]) ++i;
  return (uint8_t)i;
}

static float number_at(const void* numbers, gsel_dtype dtype, int64_t i) {
  if (dtype != GSEL_BF16) return ((const float*)numbers)[i];
  const uint32_t bits = (uint32_t)((const uint16_t*)numbers)[i] << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void show(FILE* out, uint8_t byte) {
  if (!out) return;
  putc(iscntrl(byte) && byte != '\n' ? '?' : byte, out);
  fflush(out);
}

gsel_status sample_text(gsel_trainer* trainer, const struct gpt_model* model, int64_t context, const char* prompt,
                        int64_t n, double temperature, uint64_t key, FILE* out, gsel_error** err) {
  const size_t logits_bytes = (size_t)(context * GPT_VOCAB) * gsel_dtype_bytes(model->dtype);
  struct window window = {.context = context, .bytes = calloc((size_t)context, 1), .logits = malloc(logits_bytes)};
  gsel_status status = window.bytes && window.logits ? GSEL_OK : GSEL_ERR_NOMEM;
  for (const char* c = prompt; *c && status == GSEL_OK; ++c) append(&window, (uint8_t)*c);
  for (int64_t i = 0; i < n && status == GSEL_OK; ++i) {
    status = gsel_trainer_infer(trainer, model->logits, 1, fill_window, &window, window.logits, logits_bytes, err);
    if (status != GSEL_OK) break;
    /* Causal: what lies behind `used` has no influence on the row before it. */
    float next[GPT_VOCAB];
    for (int b = 0; b < GPT_VOCAB; ++b)
      next[b] = number_at(window.logits, model->dtype, (window.used - 1) * GPT_VOCAB + b);
    append(&window, draw(next, temperature, gsel_random_uniform(key, (uint64_t)i)));
    show(out, window.bytes[window.used - 1]);
  }
  free(window.logits);
  free(window.bytes);
  return status;
}
