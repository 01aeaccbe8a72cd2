// plan/transformer_read.cc: reads the shape of a transformer from a config.json. Model families use different names for
// the same number; each number has a list of names. Does not count parameters.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "base/json_object.h"
#include "base/text.h"
#include "plan/transformer.h"

namespace gsel::plan {
namespace {

// ---- numbers by the names that families use ------------------------------------------------------------------------

// The first name in the file counts; agree() checks that all names of one number have the same value.
constexpr uint64_t kMostOfShape = 1'000'000'000;

class ShapeReader {
 public:
  explicit ShapeReader(JsonObject& object) : object_(object) {}

  using Names = std::initializer_list<const char*>;

  const char* present(Names names) const {
    for (const char* name : names)
      if (object_.has(name) && !object_.is_null(name)) return name;
    return nullptr;
  }
  int64_t number(Names names, int64_t absent) const {
    const char* name = present(names);
    return name ? static_cast<int64_t>(object_.number(name, 0, kMostOfShape, 0)) : absent;
  }
  // Requires that all names in the file have the same value.
  void agree(Names names) const {
    const char* name = present(names);
    if (!name) return;
    const int64_t found = number({name}, 0);
    for (const char* other : names)
      if (object_.has(other) && !object_.is_null(other) && number({other}, 0) != found)
        refuse(other, fmt::format("is {}, and {} is {}; both mean one number, which is needed once", number({other}, 0),
                                  object_.path_of(name), found));
  }
  int64_t agreed(Names names, int64_t absent) const {
    agree(names);
    return number(names, absent);
  }
  int64_t required(Names names) const {
    if (present(names)) {
      const int64_t found = positive(names, 0);
      agree(names);
      return found;
    }
    std::string known;
    for (const char* name : names) known += (known.empty() ? "\"" : "\", \"") + std::string(name);
    const Place place = object_.place_of(*names.begin());
    throw Error(GSEL_ERR_CONFIG, fmt::format("{}: {}none of {}\" is there; a transformer needs one of them", place.file,
                                             line_text(place), known))
        .at(place);
  }
  int64_t positive(Names names, int64_t absent) const {
    const int64_t found = number(names, absent);
    if (found < 1) refuse(present(names), "is 0; a number from 1 is needed");
    return found;
  }
  // A list of layer numbers; nullopt if the file has none.
  std::optional<std::set<int64_t>> layer_list(const char* name, int64_t layers) const {
    if (!present({name})) return std::nullopt;
    const JsonArray list = object_.array(name);
    std::set<int64_t> out;
    for (size_t i = 0; i < list.size(); ++i) {
      const auto layer = list.number(i);
      if (!layer || !(*layer >= 0) || !(*layer < static_cast<double>(layers)) || *layer != std::floor(*layer))
        refuse(fmt::format("{}[{}]", name, i), fmt::format("is no layer; a number from 0 to {} is needed", layers - 1));
      out.insert(static_cast<int64_t>(*layer));
    }
    return out;
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
    const Place place = object_.place_of(key);
    throw Error(GSEL_ERR_CONFIG, fmt::format("{}: {}{} {}", place.file, line_text(place), place.token, why)).at(place);
  }

 private:
  JsonObject& object_;
};

// ---- families ------------------------------------------------------------------------------------------------------

// Properties of model families that their config.json does not state, and families with layers that Transformer cannot
// describe.
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
    {"chatglm", true, true, false, true, false, false, false, false},
    {"mpt", false, false, false, false, false, false, true, false},
    {"falcon", false, false, false, false, false, false, true, false},
    {"phi", false, false, false, true, true, true, false, false},
    {"bert", false, false, true, true, true, true, true, true},
    {"llama", true, true, false, false, false, false, false, false},
    {"mistral", true, true, false, false, false, false, false, false},
    {"mixtral", true, true, false, false, false, false, false, false},
    {"llama4_text", true, true, false, false, false, false, false, false},
    {"olmo", true, false, false, false, false, false, false, false},
    {"olmo2", true, true, false, false, false, false, false, false},
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

// Families with layers that Transformer cannot describe.
struct Unplanned {
  const char* type;
  const char* why;
};
constexpr Unplanned kUnplanned[] = {
    {"t5", "of an encoder with a decoder"},
    {"mt5", "of an encoder with a decoder"},
    {"umt5", "of an encoder with a decoder"},
    {"bart", "of an encoder with a decoder"},
    {"mbart", "of an encoder with a decoder"},
    {"pegasus", "of an encoder with a decoder"},
    {"marian", "of an encoder with a decoder"},
    {"m2m_100", "of an encoder with a decoder"},
    {"whisper", "of an encoder with a decoder"},
    {"mamba", "of layers that are no attention"},
    {"mamba2", "of layers that are no attention"},
    {"rwkv", "of layers that are no attention"},
    {"falcon_mamba", "of layers that are no attention"},
    {"jamba", "of layers that are partly no attention"},
    {"zamba", "of layers that are partly no attention"},
    {"zamba2", "of layers that are partly no attention"},
    {"recurrent_gemma", "of layers that are partly no attention"},
    {"bamba", "of layers that are partly no attention"},
    {"nemotron_h", "of layers that are partly no attention"},
    {"falcon_h1", "of layers that are partly no attention"},
    {"granitemoehybrid", "of layers that are partly no attention"},
    {"lfm2", "of layers that are partly no attention"},
    {"qwen3_next", "of layers that are partly no attention"},
    {"distilbert", "of keys that other families use otherwise"},
};

// Throws GSEL_ERR_CONFIG with the key that shows an unsupported layer.
void refuse_unplanned(const ShapeReader& reader, const std::string& type) {
  const auto refuse = [&](const char* key, const std::string& what) {
    reader.refuse(key, what +
                           "; one stack of layers with attention is planned, and any other model as a list of "
                           "\"layers\" (docs/plan.md)");
  };
  for (const Unplanned& one : kUnplanned)
    if (type == one.type) refuse("model_type", fmt::format("is \"{}\", a model {}", type, one.why));
  if (reader.flag({"is_encoder_decoder"}, false)) refuse("is_encoder_decoder", "is true, an encoder with a decoder");
  if (type == "chatglm" && reader.present({"inner_hidden_size"}))
    refuse("inner_hidden_size", "is of the first ChatGLM, whose residuals are scaled");
}

// For an unknown type, guesses the family from the file's keys, and adds a note to the shape.
Family family_of(const std::string& type, const ShapeReader& reader, Transformer& shape) {
  for (const Family& family : kFamilies)
    if (type == family.type) return family;
  const std::string activation = reader.text({"hidden_act", "activation_function", "hidden_activation"});
  const bool rms = reader.present({"rms_norm_eps"}) != nullptr;
  const bool gated = rms || activation == "silu" || activation == "swish" || activation == "swiglu";
  shape.notes.push_back(fmt::format(
      "{}: by its keys its layers are taken as {} MLPs, {}, {} and {}",
      type.empty() ? "the file has no model_type" : fmt::format("model_type {} is not known", in_quotes(type)),
      gated ? "gated" : "plain", rms ? "RMSNorm" : "LayerNorm", rms ? "no biases" : "biases",
      rms ? "rotary positions" : "learned positions"));
  return {"", gated, rms, !rms, !rms, !rms, !rms, !rms, !rms};
}

// ---- the shape -----------------------------------------------------------------------------------------------------

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
