// plan/recipe.cc: see recipe.h. Sources: docs/config.md for gsel's own; arXiv:1910.02054 section 3; Megatron-LM's
// theoretical_memory_usage.py; DeepSpeed's memory.rst (two whole 16-bit copies, of parameters and of gradients).
#include "plan/recipe.h"

namespace gsel::plan {
namespace {

constexpr Recipe kRecipes[] = {
    {.name = "gsel-bf16",
     .param_bytes = 2,
     .gradient_bytes = 4,
     .master_bytes = 4,
     .state_bytes = 8,
     .reduced_bytes = 4,
     .logits_bytes = 4,
     .keeps_gathered = true,
     .cuts_anywhere = true},
    {.name = "gsel-f32",
     .param_bytes = 4,
     .gradient_bytes = 4,
     .master_bytes = 0,
     .state_bytes = 8,
     .element_bytes = 4,
     .reduced_bytes = 4,
     .gathered_bytes = 4,
     .logits_bytes = 8,
     .keeps_gathered = true,
     .cuts_anywhere = true},
    {.name = "paper-fp16",
     .param_bytes = 2,
     .gradient_bytes = 2,
     .master_bytes = 4,
     .state_bytes = 8,
     .fused_attention = false},
    {.name = "megatron-bf16",
     .param_bytes = 2,
     .gradient_bytes = 4,
     .master_bytes = 4,
     .state_bytes = 8,
     .reduced_bytes = 4,
     .padded_vocab = true,
     .context_divides = true},
    {.name = "deepspeed-fp16",
     .param_bytes = 2,
     .gradient_bytes = 4,
     .master_bytes = 4,
     .state_bytes = 8,
     .copy_bytes = 2,
     .offloads_gradients = true,
     .bucket_elems = 5e8},
    {.name = "fsdp2-bf16",
     .param_bytes = 4,
     .gradient_bytes = 4,
     .master_bytes = 0,
     .state_bytes = 8,
     .copy_bytes = 2,
     .params_divided_at = 2,
     .reduced_bytes = 4,
     .logits_bytes = 12,
     .context_divides = true},
    {.name = "ddp-f32",
     .param_bytes = 4,
     .gradient_bytes = 4,
     .master_bytes = 0,
     .state_bytes = 8,
     .element_bytes = 4,
     .reduced_bytes = 4,
     .gathered_bytes = 4,
     .logits_bytes = 12,
     .fused_attention = false},
    {.name = "adam-bf16", .param_bytes = 2, .gradient_bytes = 2, .master_bytes = 0, .state_bytes = 4},
};

}  // namespace

double Recipe::param_state(int32_t zero_stage, double shards) const {
  const double whole_copy = zero_stage == 2 ? copy_bytes : 0;
  return whole_copy + (zero_stage >= params_divided_at ? param_bytes / shards : param_bytes);
}

double Recipe::gradient_state(int32_t zero_stage, double shards) const {
  return zero_stage >= 2 ? gradient_bytes / shards : gradient_bytes;
}

double Recipe::optimizer_state(int32_t zero_stage, double shards) const {
  const double bytes = master_bytes + state_bytes;
  return zero_stage >= 1 ? bytes / shards : bytes;
}

const Recipe* find_recipe(std::string_view name) {
  for (const Recipe& recipe : kRecipes)
    if (name == recipe.name) return &recipe;
  return nullptr;
}

std::string recipe_names() {
  std::string all;
  for (const Recipe& recipe : kRecipes) all += (all.empty() ? "" : ", ") + std::string(recipe.name);
  return all;
}

}  // namespace gsel::plan
