// plan/transformer.h: the shape of a transformer, as in the config.json of a model on the Hugging Face hub, and its
// parameter counts by closed form. Does not know devices, parallel layouts or bytes. Source of the counts:
// arXiv:2104.04473 section 5.1 and its appendix; docs/plan.md has the formulas.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gsel::plan {

struct Transformer {
  std::string name;
  int64_t layers = 0, hidden = 0, ffn = 0, vocab = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t positions = 0;      // rows of a learned position embedding; 0: rotary or none
  int64_t max_positions = 0;  // longest supported sequence; 0: unknown
  int32_t mlp_matrices = 2;   // 3: gated
  int32_t norm_vectors = 2;   // 1: RMSNorm, or LayerNorm without bias; 2: LayerNorm; 0: neither gain nor bias
  int32_t norms_per_layer = 2;
  int64_t qk_norm = 0;  // elements of the gains of query and key norms
  bool qkv_bias = true, output_bias = true, mlp_bias = true;
  bool tied = true;      // the head uses the embedding's matrix
  bool dropout = false;  // keeps masks for backward
  bool causal = true;
  bool embedding_norm = false;  // after the embedding
  bool head_bias = false;
  int64_t window = 0;              // how many positions a layer's attention looks back at most; 0: all
  double windowed = 0;             // share of layers with this window
  std::vector<std::string> notes;  // assumptions

  // Mixture of experts; experts 0: every layer is dense.
  int64_t experts = 0, experts_per_token = 0, expert_ffn = 0, shared_ffn = 0, dense_layers = 0;
  // Low-rank attention (DeepSeek's MLA); kv_rank 0: none.
  int64_t q_rank = 0, kv_rank = 0, rope_dim = 0, value_dim = 0;

  int64_t moe_layers() const { return experts > 0 ? layers - dense_layers : 0; }
  // Elements of one layer's matrices that the tensor axis divides.
  int64_t attention_matrices() const;
  int64_t dense_mlp_matrices() const { return mlp_matrices * hidden * ffn; }
  int64_t expert_matrices() const { return mlp_matrices * hidden * expert_ffn; }  // of one expert
  int64_t shared_matrices() const { return mlp_matrices * hidden * shared_ffn; }
  // Elements of norms and biases; biases of columns are divided with their matrix.
  int64_t layer_divided_vectors(bool moe) const;
  int64_t layer_whole_vectors() const;
  int64_t layer_params(bool moe) const;
  // Pairs of positions for which attention computes a score, in an average layer, counted without the causal mask: s *
  // s without a window.
  double pairs(double sequence) const;
  int64_t params() const;  // of the whole model
};

// text: a config.json, or gsel's shorthand with the same keys; file: name for messages. GSEL_ERR_CONFIG names file,
// key, value and accepted values.
Transformer read_transformer(std::string_view text, const std::string& file);

}  // namespace gsel::plan
