// plan/transformer_read.cc: reads the shape of a transformer from a config.json. Model families use different names for
// the same number; each number has a list of names (shape_reader.h). Does not count parameters.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "plan/families.h"
#include "plan/shape_reader.h"
#include "plan/transformer.h"

namespace gsel::plan {
namespace {

constexpr double kMostParams = 1e18;
constexpr int64_t kMostMixed = 1'000'000;  // layers

const ShapeReader::Names kHidden = {"hidden_size", "n_embd", "n_embed", "d_model", "hidden_dim"};

// Families with an MLP four times as wide as the model when the file has no width.
bool four_times(const std::string& type) {
  constexpr const char* kTypes[] = {"gpt2", "gpt_bigcode", "gpt_neo", "gptj", "bloom", "mpt", "falcon"};
  return std::ranges::find(kTypes, type) != std::end(kTypes);
}

void read_ffn(const ShapeReader& reader, const std::string& type, Transformer& shape) {
  const ShapeReader::Names names = {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "feed_forward_size"};
  if (!reader.present(names) && (four_times(type) || reader.present({"expansion_ratio"}))) {
    shape.ffn = static_cast<int64_t>(reader.real({"expansion_ratio"}, 4) * static_cast<double>(shape.hidden));
    if (shape.ffn < 1) reader.refuse("expansion_ratio", "makes an MLP without columns; a number above 0 is needed");
    return;
  }
  shape.ffn = reader.required(names);
}

// Reads which layers have a limited attention window.
void read_window(const ShapeReader& reader, const std::string& type, Transformer& shape) {
  const int64_t window = reader.number({"sliding_window"}, 0);
  if (window == 0) return;
  const auto all = static_cast<double>(shape.layers);
  if (type == "mistral" || type == "mixtral" || type == "phi3" || type == "starcoder2") {
    shape.windowed = 1;
  } else if (type == "gemma2") {
    const int64_t every_second = (shape.layers + 1) / 2;
    shape.windowed = static_cast<double>(every_second) / all;
  } else if (type.starts_with("gemma3")) {
    const int64_t period = reader.positive({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
    const int64_t whole = shape.layers / period;
    shape.windowed = static_cast<double>(shape.layers - whole) / all;
  } else if (type.starts_with("qwen")) {
    if (!reader.flag({"use_sliding_window"}, false)) return;
    const int64_t whole = reader.number({"max_window_layers"}, 0);
    if (whole > shape.layers)
      reader.refuse("max_window_layers", fmt::format("is {}, and there are {} layers; from 0 to {} is needed", whole,
                                                     shape.layers, shape.layers));
    shape.windowed = static_cast<double>(shape.layers - whole) / all;
  } else {
    shape.notes.push_back(fmt::format("sliding_window = {} is not counted: which layers have it is not known", window));
    return;
  }
  shape.window = window;
}

void read_norms(const ShapeReader& reader, const std::string& type, const Family& family, Transformer& shape) {
  shape.norm_vectors = family.rms_norm || reader.present({"rms_norm_eps"}) ? 1 : 2;
  if (type == "cohere" || (type == "mpt" && reader.flag({"no_bias"}, true))) shape.norm_vectors = 1;
  if (type == "olmo") shape.norm_vectors = 0;
  if (type == "gemma2" || type.starts_with("gemma3")) shape.norms_per_layer = 4;
  if (type == "phi" || type == "gptj" || type == "cohere") shape.norms_per_layer = 1;
  if (type == "falcon" && reader.flag({"parallel_attn"}, true) && !reader.flag({"new_decoder_architecture"}, false))
    shape.norms_per_layer = 1;
  if (type.starts_with("qwen3") || type.starts_with("gemma3")) shape.qk_norm = 2 * shape.head_dim;
  if (type == "olmo2") shape.qk_norm = (shape.heads + shape.kv_heads) * shape.head_dim;
  shape.embedding_norm = type == "bloom";
}

// Layers without experts come first in a Transformer.
template <class IsDense>
void count_dense_layers(const ShapeReader& reader, Transformer& shape, IsDense&& is_dense) {
  if (shape.layers > kMostMixed)
    reader.refuse("num_hidden_layers",
                  fmt::format("is {}; up to {} are counted where some of them have experts", shape.layers, kMostMixed));
  shape.dense_layers = 0;
  bool among = false;
  for (int64_t i = 0; i < shape.layers; ++i) {
    if (!is_dense(i)) continue;
    among |= shape.dense_layers != i;
    ++shape.dense_layers;
  }
  if (among) shape.notes.emplace_back("layers of experts lie among dense ones; they are taken as the last ones");
}

// As in the classes of DeepSeek (first_k_dense_replace, moe_layer_freq) and Qwen (decoder_sparse_step,
// mlp_only_layers).
void read_dense_layers(const ShapeReader& reader, const std::string& type, Transformer& shape) {
  const int64_t first = reader.number({"first_k_dense_replace"}, 0);
  if (first > shape.layers)
    reader.refuse("first_k_dense_replace", fmt::format("is {}, and there are {} layers; from 0 to {} is needed", first,
                                                       shape.layers, shape.layers));
  const int64_t every = type.starts_with("deepseek") ? reader.positive({"moe_layer_freq"}, 1) : 1;
  const int64_t step = reader.positive({"decoder_sparse_step"}, 1);
  const auto dense = reader.layer_list("mlp_only_layers", shape.layers);
  count_dense_layers(reader, shape, [&](int64_t i) {
    return i < first || i % every != 0 || (i + 1) % step != 0 || (dense && dense->contains(i));
  });
}

// Reads the names for experts, which differ between families.
void read_experts(const ShapeReader& reader, const std::string& type, Transformer& shape) {
  shape.experts = reader.agreed({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}, 0);
  if (shape.experts == 0) return;
  reader.agree({"num_experts_per_tok", "num_experts_per_token", "moe_top_k"});  // "top_k" may be for sampling
  shape.experts_per_token = reader.number({"num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k"},
                                          type == "llama4_text" ? 1 : 2);
  if (shape.experts_per_token < 1 || shape.experts_per_token > shape.experts)
    reader.refuse("num_experts_per_tok",
                  fmt::format("is {}; from 1 to the {} experts is needed", shape.experts_per_token, shape.experts));
  shape.expert_ffn = reader.number({"moe_intermediate_size"}, shape.ffn);
  shape.shared_ffn =
      reader.number({"shared_expert_intermediate_size"}, reader.number({"n_shared_experts"}, 0) * shape.expert_ffn);
  if (type != "llama4_text") return read_dense_layers(reader, type, shape);
  shape.expert_ffn = shape.shared_ffn = shape.ffn;
  shape.ffn = reader.positive({"intermediate_size_mlp"}, shape.ffn);
  const int64_t step = reader.positive({"interleave_moe_layer_step"}, 1);
  const auto listed = reader.layer_list("moe_layers", shape.layers);
  count_dense_layers(reader, shape, [&](int64_t i) { return listed ? !listed->contains(i) : (i + 1) % step != 0; });
}

// Requires that parameter counts fit in 64 bits.
void check_size(const ShapeReader& reader, const Transformer& shape) {
  const auto real = [](int64_t n) { return static_cast<double>(n); };
  const double widest = real(std::max({shape.hidden, shape.ffn, shape.heads * shape.head_dim}));
  const double experts = std::max(1.0, real(shape.experts));
  if (4 * real(shape.layers) * experts * widest * widest + 2 * real(shape.vocab) * widest < kMostParams) return;
  reader.refuse("num_hidden_layers", "and the sizes of its layers make more than 10^18 parameters; fewer are needed");
}

void read_low_rank(const ShapeReader& reader, Transformer& shape) {
  shape.kv_rank = reader.number({"kv_lora_rank"}, 0);
  if (shape.kv_rank == 0) return;
  shape.q_rank = reader.number({"q_lora_rank"}, 0);
  shape.rope_dim = reader.number({"qk_rope_head_dim"}, 64);
  shape.head_dim = reader.number({"qk_nope_head_dim"}, 128);
  shape.value_dim = reader.number({"v_head_dim"}, 128);
}

void read_attention(const ShapeReader& reader, const std::string& type, Transformer& shape) {
  const ShapeReader::Names heads = {"num_attention_heads", "n_head", "n_heads", "num_heads"};
  const bool gemma3 = type == "gemma3_text";  // its files omit the defaults of its class
  shape.heads = gemma3 && !reader.present(heads) ? 8 : reader.required(heads);
  shape.kv_heads = reader.agreed({"num_key_value_heads", "num_kv_heads", "n_head_kv"}, gemma3 ? 4 : shape.heads);
  if (reader.flag({"multi_query_attention"}, false)) shape.kv_heads = reader.number({"multi_query_group_num"}, 1);
  // Falcon's class reads num_kv_heads only in its new architecture.
  if (type == "falcon" && !reader.flag({"new_decoder_architecture"}, false))
    shape.kv_heads = reader.flag({"multi_query"}, true) ? 1 : shape.heads;
  if (type == "gpt_bigcode" && reader.flag({"multi_query"}, true)) shape.kv_heads = 1;
  if (shape.kv_heads < 1 || shape.heads % shape.kv_heads != 0)
    reader.refuse("num_key_value_heads", fmt::format("is {}, and num_attention_heads is {}; a divisor of it is needed",
                                                     shape.kv_heads, shape.heads));
  shape.head_dim = reader.agreed({"head_dim", "kv_channels"}, type.starts_with("gemma") ? 256 : 0);
  if (shape.head_dim > 0) return;
  if (shape.hidden % shape.heads != 0)
    reader.refuse(reader.present(kHidden),
                  fmt::format("is {}, which {} heads do not divide; another number of heads, or head_dim, is needed",
                              shape.hidden, shape.heads));
  shape.head_dim = shape.hidden / shape.heads;
}

Transformer read_shape(JsonObject& object, const std::string& file) {
  const ShapeReader reader(object);
  const std::string type = reader.text({"model_type"});
  refuse_unplanned(reader, type);
  Transformer shape;
  const Family family = family_of(type, reader, shape);
  shape.name = one_line(reader.text({"_name_or_path", "name"}));
  if (shape.name.empty()) shape.name = type.empty() ? file : type;
  shape.hidden = reader.required(kHidden);
  shape.layers = reader.required({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  shape.vocab = type == "gemma3_text"                   ? reader.positive({"vocab_size"}, 262208)
                : reader.present({"padded_vocab_size"}) ? reader.required({"padded_vocab_size"})
                                                        : reader.required({"vocab_size", "padded_vocab_size"});
  read_attention(reader, type, shape);
  read_ffn(reader, type, shape);
  if (type == "opt" && reader.number({"word_embed_proj_dim"}, shape.hidden) != shape.hidden)
    reader.refuse("word_embed_proj_dim",
                  fmt::format("is {}, and hidden_size is {}; an embedding of the width of the layers is planned",
                              reader.number({"word_embed_proj_dim"}, 0), shape.hidden));
  const std::string activation = reader.text({"hidden_act", "activation_function", "hidden_activation"});
  shape.mlp_matrices = family.gated || activation == "silu" || activation == "swish" || activation == "swiglu" ? 3 : 2;
  read_norms(reader, type, family, shape);
  shape.head_bias = type == "phi" || type == "gptj";
  shape.qkv_bias =
      reader.flag({"attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "bias", "use_bias"}, family.qkv_bias);
  shape.output_bias = reader.flag({"attention_bias", "add_bias_linear", "bias", "use_bias"}, family.output_bias);
  if (type == "qwen2" || type == "qwen2_moe") shape.output_bias = false;
  shape.mlp_bias = reader.flag({"mlp_bias", "add_bias_linear", "bias", "use_bias"}, family.mlp_bias);
  // Other names may have smaller values: "seq_length" is the length of the training sequences.
  reader.agree({"max_position_embeddings", "n_positions", "n_ctx"});
  shape.max_positions =
      reader.number({"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"}, 0);
  if (family.learned_positions) shape.positions = shape.max_positions + (type == "opt" ? 2 : 0);
  shape.tied = reader.flag({"tie_word_embeddings"}, family.tied);
  const double dropout =
      std::max({reader.real({"hidden_dropout", "resid_pdrop", "dropout", "hidden_dropout_prob"}, 0),
                reader.real({"attention_dropout", "attn_pdrop", "attention_probs_dropout_prob"}, 0)});
  shape.dropout = dropout > 0;
  shape.causal = type != "bert";
  read_window(reader, type, shape);
  read_experts(reader, type, shape);
  read_low_rank(reader, shape);
  check_size(reader, shape);
  return shape;
}

}  // namespace

Transformer read_transformer(std::string_view text, const std::string& file) {
  const JsonSource source{"model", file, text};
  const auto tree = parse_json(text, source);
  JsonObject whole(*tree, source);
  for (const char* inner : {"text_config", "llm_config", "language_config"})
    if (whole.has(inner) && !whole.has("num_hidden_layers")) {
      JsonObject object = whole.object(inner);
      return read_shape(object, file);
    }
  return read_shape(whole, file);
}

}  // namespace gsel::plan
