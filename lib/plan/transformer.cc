// plan/transformer.cc: see transformer.h: parameter counts of a transformer by closed form.
#include "plan/transformer.h"

namespace gsel::plan {

int64_t Transformer::attention_matrices() const {
  if (kv_rank > 0) {  // queries and keys have one part without positions and one with
    const int64_t query = heads * (head_dim + rope_dim);
    const int64_t queries = q_rank > 0 ? q_rank * (hidden + query) : hidden * query;
    return queries + hidden * (kv_rank + rope_dim) + kv_rank * heads * (head_dim + value_dim) +
           heads * value_dim * hidden;
  }
  return hidden * head_dim * (2 * heads + 2 * kv_heads);
}

int64_t Transformer::layer_divided_vectors(bool moe) const {
  int64_t n = qkv_bias && kv_rank == 0 ? head_dim * (heads + 2 * kv_heads) : 0;
  if (mlp_bias && !moe) n += (mlp_matrices - 1) * ffn;
  return n;
}

int64_t Transformer::layer_whole_vectors() const {
  int64_t n = norm_vectors * norms_per_layer * hidden + qk_norm;
  if (output_bias) n += hidden;
  if (mlp_bias) n += hidden;
  if (kv_rank > 0) n += kv_rank + q_rank;  // norms of the latents
  return n;
}

int64_t Transformer::layer_params(bool moe) const {
  const int64_t mlp = moe ? experts * expert_matrices() + shared_matrices() + experts * hidden : dense_mlp_matrices();
  return attention_matrices() + mlp + layer_divided_vectors(moe) + layer_whole_vectors();
}

double Transformer::pairs(double sequence) const {
  const auto w = static_cast<double>(window);
  if (window == 0 || w >= sequence) return sequence * sequence;
  return windowed * (2 * sequence * w - w * w) + (1 - windowed) * sequence * sequence;
}

int64_t Transformer::params() const {
  const int64_t moe = moe_layers();
  return vocab * hidden * (tied ? 1 : 2) + positions * hidden + (head_bias ? vocab : 0) +
         norm_vectors * hidden * (embedding_norm ? 2 : 1) + (layers - moe) * layer_params(false) +
         moe * layer_params(true);
}

}  // namespace gsel::plan
