/* device_layers.h: the GPT's layers on a GPU, and what the program needs besides to train there: whether it can,
 * and copies of the text. The description of the model (model.c) is the same. */
#ifndef GPT_DEVICE_LAYERS_H
#define GPT_DEVICE_LAYERS_H

#include "cuda/gpu.h"
#include "data.h"
#include "layers.h"
#include "model.h"

/* For values in f32 or in bf16, as a model's sizes say. */
extern const struct layer_kinds device_layers;

/* Why a GPT of these sizes cannot train on a GPU, in one line; NULL: it can. */
const char* device_refusal(const struct gpt_sizes* sizes);

/* The text in page-locked memory, from where samples are copied while the host goes on; empty at first. Free it behind
 * the trainer that copies from it. */
struct device_text {
  struct gpu_locked locked;
};
/* Enqueues what a data callback is asked for: the bytes of each sample of the text, `shift` bytes later. */
gsel_status device_fill(struct device_text* copy, const struct text* text, int64_t shift,
                        const gsel_data_request* request);
void device_text_free(struct device_text* copy);

#endif
