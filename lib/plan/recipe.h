// plan/recipe.h: how a program keeps parameters, gradients and optimizer state, and what it keeps of a forward: bytes for
// each element. gsel's own, and those of programs whose published figures are to be understood. Plain data.
#pragma once

#include <cstdint>
#include <string_view>

namespace gsel::plan {

struct Recipe {
  const char* name;
  double param_bytes, gradient_bytes, master_bytes, state_bytes;  // for each parameter
  double copy_bytes;        // a whole copy in the compute type beside parameters that are sharded or kept wider
  double element_bytes;     // of activations
  double reduced_bytes;     // of a gradient on the wire
  double gathered_bytes;    // of a parameter on the wire, and while it is whole under ZeRO-3
  double gathered_blocks;   // whole at once under ZeRO-3: 2 with prefetch
  double logits_bytes;      // for each logit, all copies together
  bool padded_vocab;        // to a multiple of 128 for each tensor rank
  bool fused_attention;     // no scores are kept
  bool bf16;                // of the two 16-bit types
  bool tf32;                // 4-byte products run on tensor cores
  bool eight_bit = false;   // matrix products in 8 bits

  double whole() const { return param_bytes + gradient_bytes + master_bytes + state_bytes + copy_bytes; }
  // Bytes of one parameter on a rank when `shards` ranks divide what the stage of ZeRO divides.
  double model_state(int32_t zero_stage, double shards) const;
};

// "gsel-bf16", "gsel-f32", "paper-fp16" (arXiv:1910.02054, Adam), "megatron-bf16", "megatron-fp16", "deepspeed-fp16",
// "fsdp2-bf16", "ddp-f32", "adam-bf16". nullptr where none has the name.
const Recipe* find_recipe(std::string_view name);

}  // namespace gsel::plan
