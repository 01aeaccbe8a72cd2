// plan/recipe.h: how a program keeps parameters, gradients and optimizer state, and what it keeps of a forward: bytes
// for each element. gsel's own, and those of programs whose published figures are to be understood. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gsel::plan {

struct Recipe {
  const char* name;
  double param_bytes, gradient_bytes, master_bytes, state_bytes;  // for each parameter
  double copy_bytes = 0;            // ZeRO-2: a whole copy, of parameters or gradients, beside what is divided
  bool offloads_gradients = false;  // from ZeRO-2 on with the state, and then needs no whole copy
  int32_t params_divided_at = 3;    // the stage of ZeRO that divides parameters
  double element_bytes = 2;         // of activations
  double reduced_bytes = 2;         // of a gradient on the wire
  double gathered_bytes = 2;        // of a parameter on the wire, and while it is whole under ZeRO-3
  double gathered_blocks = 2;       // whole at once under ZeRO-3: 2 with prefetch
  double bucket_elems = 0;          // of gradients that are collected before they are reduced
  double logits_bytes = 10;         // for each logit, all copies together
  bool padded_vocab = false;        // to a multiple of 128 for each tensor rank
  bool keeps_gathered =
      false;  // inputs that sequence parallelism gathers stay until backward; else they are gathered again
  bool fused_attention = true;   // no scores are kept
  bool cuts_anywhere = false;    // a stage of a pipeline ends behind any operation, not behind whole layers alone
  bool context_divides = false;  // ranks of the context axis divide what ZeRO divides, too
  bool tf32 = false;             // 4-byte products run on tensor cores
  bool eight_bit = false;        // matrix products in 8 bits

  // Bytes of one parameter on a rank when `shards` ranks divide what the stage of ZeRO divides: whole ones and divided
  // ones, without what is gathered for a while.
  double param_state(int32_t zero_stage, double shards) const;
  double gradient_state(int32_t zero_stage, double shards) const;
  double optimizer_state(int32_t zero_stage, double shards) const;
  double model_state(int32_t zero_stage, double shards) const {
    return param_state(zero_stage, shards) + gradient_state(zero_stage, shards) + optimizer_state(zero_stage, shards);
  }
};

// "gsel-bf16", "gsel-f32", "paper-fp16" (arXiv:1910.02054, Adam), "megatron-bf16", "deepspeed-fp16", "fsdp2-bf16",
// "ddp-f32", "adam-bf16". nullptr where none has the name.
const Recipe* find_recipe(std::string_view name);
std::string recipe_names();  // for messages

}  // namespace gsel::plan
