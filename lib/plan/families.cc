// plan/families.cc: see families.h.
#include "plan/families.h"

#include "base/text.h"

namespace gsel::plan {
namespace {

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

}  // namespace

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

}  // namespace gsel::plan
