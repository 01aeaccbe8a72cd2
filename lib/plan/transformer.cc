// plan/transformer.cc: see transformer.h. Models of different families call the same number by different names; each
// number has a list of the names that are in use, and the first that a file has is taken.
#include "plan/transformer.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "base/json_object.h"
#include "base/printable.h"

namespace gsel::plan {
namespace {

constexpr uint64_t kMost = 1'000'000'000;
constexpr double kMostParams = 1e18;

class ShapeReader {
 public:
  ShapeReader(JsonObject& object, std::string file) : object_(object), file_(std::move(file)) {}

  using Names = std::initializer_list<const char*>;

  const char* present(Names names) const {
    for (const char* name : names)
      if (object_.has(name) && !object_.is_null(name)) return name;
    return nullptr;
  }
  int64_t number(Names names, int64_t absent) const {
    const char* name = present(names);
    return name ? static_cast<int64_t>(object_.number(name, 0, kMost, 0)) : absent;
  }
  int64_t required(Names names) const {
    if (const char* name = present(names)) {
      const auto found = static_cast<int64_t>(object_.number(name, 0, kMost, 0));
      if (found < 1) refuse(name, "is 0; a number from 1 is needed");
      return found;
    }
    std::string known;
    for (const char* name : names) known += (known.empty() ? "\"" : "\", \"") + std::string(name);
    fail(GSEL_ERR_CONFIG, "{}: none of {}\" is there; a transformer needs one of them", file_, known);
  }
  bool flag(Names names, bool absent) const {
    const char* name = present(names);
    return name ? object_.flag(name, absent) : absent;
  }
  double real(Names names, double absent) const {
    const char* name = present(names);
    return name ? object_.real(name, 0, 1e9, absent) : absent;
  }
  std::string text(Names names) const {
    const char* name = present(names);
    return name && object_.is_text(name) ? object_.text(name) : std::string();
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    throw Error(GSEL_ERR_CONFIG, fmt::format("{}: {} {}", file_, object_.path_of(key), why))
        .at({file_, 0, 0, object_.path_of(key)});
  }

 private:
  JsonObject& object_;
  std::string file_;
};

// What the families do alike without saying so in the file.
struct Family {
  const char* type;
  bool gated, rms_norm, learned_positions, qkv_bias, output_bias, mlp_bias, tied, dropout;
};
constexpr Family kFamilies[] = {
    {"gpt2", false, false, true, true, true, true, true, true},
    {"gpt_bigcode", false, false, true, true, true, true, true, true},
    {"gpt_neo", false, false, true, false, true, true, true, false},
    {"gpt_neox", false, false, false, true, true, true, false, false},
    {"gptj", false, false, false, false, false, true, false, false},
    {"opt", false, false, true, true, true, true, true, true},
    {"bloom", false, false, false, true, true, true, true, false},
    {"mpt", false, false, false, false, false, false, true, false},
    {"falcon", false, false, false, false, false, false, true, false},
    {"phi", false, false, false, true, true, true, false, false},
    {"bert", false, false, true, true, true, true, true, true},
    {"llama", true, true, false, false, false, false, false, false},
    {"mistral", true, true, false, false, false, false, false, false},
    {"mixtral", true, true, false, false, false, false, false, false},
    {"qwen2", true, true, false, true, false, false, false, false},
    {"qwen2_moe", true, true, false, true, false, false, false, false},
    {"qwen3", true, true, false, false, false, false, false, false},
    {"qwen3_moe", true, true, false, false, false, false, false, false},
    {"gemma", true, true, false, false, false, false, true, false},
    {"gemma2", true, true, false, false, false, false, true, false},
    {"gemma3", true, true, false, false, false, false, true, false},
    {"gemma3_text", true, true, false, false, false, false, true, false},
    {"phi3", true, true, false, false, false, false, false, false},
    {"deepseek_v2", true, true, false, false, false, false, false, false},
    {"deepseek_v3", true, true, false, false, false, false, false, false},
    {"stablelm", true, false, false, false, false, false, false, false},
    {"starcoder2", false, false, false, true, true, true, true, false},
    {"cohere", true, false, false, false, false, false, true, false},
};

// Of a type that is not in the table: by what its keys look like.
Family family_of(const std::string& type, const ShapeReader& reader) {
  for (const Family& family : kFamilies)
    if (type == family.type) return family;
  const std::string activation = reader.text({"hidden_act", "activation_function", "hidden_activation"});
  const bool gated = activation == "silu" || activation == "swish" || reader.present({"rms_norm_eps"}) != nullptr;
  const bool rms = reader.present({"rms_norm_eps"}) != nullptr;
  return {"", gated, rms, !rms, !rms, !rms, !rms, !rms, !rms};
}

// Names of a family whose attention and layers differ from the plain ones.
void read_experts(const ShapeReader& reader, Transformer& shape) {
  shape.experts = reader.number({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}, 0);
  if (shape.experts == 0) return;
  shape.experts_per_token = reader.number({"num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k"}, 2);
  if (shape.experts_per_token < 1 || shape.experts_per_token > shape.experts)
    reader.refuse("num_experts_per_tok",
                  fmt::format("is {}; from 1 to the {} experts is needed", shape.experts_per_token, shape.experts));
  shape.expert_ffn = reader.number({"moe_intermediate_size"}, shape.ffn);
  shape.shared_ffn =
      reader.number({"shared_expert_intermediate_size"}, reader.number({"n_shared_experts"}, 0) * shape.expert_ffn);
  shape.dense_layers = std::min(reader.number({"first_k_dense_replace"}, 0), shape.layers);
}

// Counts of parameters are to fit 64 bits.
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
  shape.heads = reader.required({"num_attention_heads", "n_head", "n_heads", "num_heads"});
  shape.kv_heads =
      reader.number({"num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"}, shape.heads);
  if (type == "falcon" && !reader.present({"num_kv_heads"}) && reader.flag({"multi_query"}, false)) shape.kv_heads = 1;
  if (type == "gpt_bigcode" && reader.flag({"multi_query"}, true)) shape.kv_heads = 1;
  if (shape.kv_heads < 1 || shape.heads % shape.kv_heads != 0)
    reader.refuse("num_key_value_heads", fmt::format("is {}, and num_attention_heads is {}; a divisor of it is needed",
                                                     shape.kv_heads, shape.heads));
  shape.head_dim = reader.number({"head_dim", "kv_channels"}, 0);
  if (shape.head_dim > 0) return;
  if (shape.hidden % shape.heads != 0)
    reader.refuse(reader.present({"hidden_size", "n_embd", "d_model", "hidden_dim"}),
                  fmt::format("is {}, which {} heads do not divide; another number of heads, or head_dim, is needed",
                              shape.hidden, shape.heads));
  shape.head_dim = shape.hidden / shape.heads;
}

Transformer read_shape(JsonObject& object, const std::string& file) {
  const ShapeReader reader(object, file);
  const std::string type = reader.text({"model_type"});
  const Family family = family_of(type, reader);
  Transformer shape;
  shape.name = one_line(reader.text({"_name_or_path", "name"}));
  if (shape.name.empty()) shape.name = type.empty() ? file : type;
  shape.hidden = reader.required({"hidden_size", "n_embd", "d_model", "hidden_dim"});
  shape.layers = reader.required({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  shape.vocab = reader.required({"vocab_size", "padded_vocab_size"});
  shape.ffn =
      reader.number({"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "feed_forward_size"},
                    static_cast<int64_t>(reader.real({"expansion_ratio"}, 4) * static_cast<double>(shape.hidden)));
  read_attention(reader, type, shape);
  const std::string activation = reader.text({"hidden_act", "activation_function", "hidden_activation"});
  shape.mlp_matrices = family.gated || activation == "silu" || activation == "swish" || activation == "swiglu" ? 3 : 2;
  shape.norm_vectors = family.rms_norm || reader.present({"rms_norm_eps"}) ? 1 : 2;
  if (type == "gemma2" || type.starts_with("gemma3")) shape.norms_per_layer = 4;
  if (type == "falcon" || type == "phi" || type == "gptj" || type == "cohere") shape.norms_per_layer = 1;
  if (type.starts_with("qwen3") || type.starts_with("gemma3")) shape.qk_norms = 2;
  shape.qkv_bias = reader.flag({"attention_bias", "qkv_bias", "bias", "use_bias"}, family.qkv_bias);
  shape.output_bias = reader.flag({"attention_bias", "bias", "use_bias"}, family.output_bias);
  if (type == "qwen2" || type == "qwen2_moe") shape.output_bias = false;
  shape.mlp_bias = reader.flag({"mlp_bias", "bias", "use_bias"}, family.mlp_bias);
  shape.max_positions =
      reader.number({"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"}, 0);
  if (family.learned_positions) shape.positions = shape.max_positions + (type == "opt" ? 2 : 0);
  shape.tied = reader.flag({"tie_word_embeddings"}, family.tied);
  const double dropout =
      std::max({reader.real({"hidden_dropout", "resid_pdrop", "dropout", "hidden_dropout_prob"}, 0),
                reader.real({"attention_dropout", "attn_pdrop", "attention_probs_dropout_prob"}, 0)});
  shape.dropout = dropout > 0;
  shape.causal = type != "bert";
  read_experts(reader, shape);
  read_low_rank(reader, shape);
  check_size(reader, shape);
  return shape;
}

}  // namespace

int64_t Transformer::attention_matrices() const {
  if (kv_rank > 0) {  // queries and keys have a part without and a part with positions
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
  int64_t n = norm_vectors * norms_per_layer * hidden + qk_norms * head_dim;
  if (output_bias) n += hidden;
  if (mlp_bias) n += hidden;
  if (kv_rank > 0) n += kv_rank + q_rank;  // their norms
  return n;
}

int64_t Transformer::layer_params(bool moe) const {
  const int64_t mlp = moe ? experts * expert_matrices() + shared_matrices() + experts * hidden : dense_mlp_matrices();
  return attention_matrices() + mlp + layer_divided_vectors(moe) + layer_whole_vectors();
}

int64_t Transformer::params() const {
  const int64_t moe = moe_layers();
  return vocab * hidden * (tied ? 1 : 2) + positions * hidden + norm_vectors * hidden +
         (layers - moe) * layer_params(false) + moe * layer_params(true);
}

int64_t Transformer::active_params() const {
  return params() - moe_layers() * (experts - experts_per_token) * expert_matrices();
}

Transformer read_transformer(std::string_view text, const std::string& file) {
  const JsonSource source{"model", file};
  const auto tree = parse_json(text, source);
  JsonObject whole(*tree, source);
  for (const char* inner : {"text_config", "llm_config", "language_config"})
    if (whole.has(inner) && !whole.has("num_hidden_layers")) {
      JsonObject object = whole.object(inner);
      return read_shape(object, file);
    }
  return read_shape(whole, file);
}

Transformer gpt(std::string name, int64_t layers, int64_t hidden, int64_t heads, int64_t vocab, int64_t positions) {
  Transformer shape;
  shape.name = std::move(name);
  shape.layers = layers, shape.hidden = hidden, shape.ffn = 4 * hidden, shape.vocab = vocab;
  shape.heads = shape.kv_heads = heads;
  shape.head_dim = heads > 0 ? hidden / heads : 0;
  shape.positions = shape.max_positions = positions;
  return shape;
}

}  // namespace gsel::plan
