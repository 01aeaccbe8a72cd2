// plan/recipe.h: bytes per element that a program keeps of parameters, gradients, optimizer state and activations:
// recipes of gsel, and of programs with published figures. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gsel::plan {

struct Recipe {
  const char* name;
  double param_bytes, gradient_bytes, master_bytes, state_bytes;  // per parameter
  double copy_bytes = 0;            // ZeRO-2: a whole copy of parameters or gradients, in addition to the shards
  bool offloads_gradients = false;  // from ZeRO-2 on, together with the state; then needs no whole copy
  int32_t params_divided_at = 3;    // the ZeRO stage that divides parameters
  double element_bytes = 2;         // of activations
  double reduced_bytes = 2;         // of a gradient on the wire
  double gathered_bytes = 2;        // of a parameter on the wire, and while gathered under ZeRO-3
  double gathered_blocks = 2;       // gathered at the same time under ZeRO-3: 2 with prefetch
  double bucket_elems = 0;          // gradient elements that are collected before a reduction
  double logits_bytes = 10;         // per logit, all copies together
  bool padded_vocab = false;        // to a multiple of 128 for each tensor rank
  bool keeps_gathered = false;  // keeps inputs gathered by sequence parallelism until backward; else gathers them again
  bool fused_attention = true;  // keeps no scores
  bool cuts_anywhere = false;   // a pipeline stage may end after any operation, not only after whole layers
  bool context_divides = false;  // ZeRO also divides over the context axis
  bool tf32 = false;             // 4-byte products use tensor cores
  bool eight_bit = false;        // matrix products in 8 bits

  // Bytes per parameter on a rank when ZeRO divides over `shards` ranks: whole and divided ones, without parameters
  // that are gathered temporarily.
  double param_state(int32_t zero_stage, double shards) const;
  double gradient_state(int32_t zero_stage, double shards) const;
  double optimizer_state(int32_t zero_stage, double shards) const;
  double model_state(int32_t zero_stage, double shards) const {
    return param_state(zero_stage, shards) + gradient_state(zero_stage, shards) + optimizer_state(zero_stage, shards);
  }
};

// "gsel-bf16", "gsel-f32", "paper-fp16" (arXiv:1910.02054, Adam), "megatron-bf16", "deepspeed-fp16", "fsdp2-bf16",
// "ddp-f32", "adam-bf16". nullptr for an unknown name.
const Recipe* find_recipe(std::string_view name);
std::string recipe_names();  // for messages

}  // namespace gsel::plan
