// plan/describe.cc: see describe.h. Layers are described as by a program that trains such a model: weights that a
// tensor axis may divide, placements of values, the dimension of positions, tensors that backward does not read.
#include "plan/describe.h"

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace gsel::plan {
namespace {

gsel_status no_kernel(const gsel_call*, void*) {
  return GSEL_ERR_STATE;
}

constexpr int64_t kByteWords = 256;  // vocabulary size with bytes as tokens

enum class SplitBy : uint8_t { nothing, columns, rows };  // the divided dimension of a matrix [out][in]
struct SplitRule {
  SplitBy by = SplitBy::nothing;
  int32_t blocks = 1, granularity = 1;
  bool few = false;  // may have fewer heads than ranks
};
const SplitRule kUnsplit{}, kColumns{SplitBy::columns}, kRows{SplitBy::rows};

// The tensors that a layer's callbacks do not read, and its flags.
struct LayerRule {
  uint64_t input_unread = 0, weight_unread = 0;
  uint32_t flags = 0;
};
constexpr uint64_t kInput0 = GSEL_UNREAD_INPUT(0), kInput1 = GSEL_UNREAD_INPUT(1), kOutput0 = GSEL_UNREAD_OUTPUT(0);
constexpr LayerRule kReadsInput{kOutput0, kOutput0, GSEL_LAYER_POSITIONWISE};
constexpr LayerRule kAdds{kInput0 | kInput1 | kOutput0, kInput0 | kInput1 | kOutput0, GSEL_LAYER_POSITIONWISE};
constexpr LayerRule kLooksUp{0, kOutput0, GSEL_LAYER_POSITIONWISE};
constexpr LayerRule kPositions{kInput0 | kOutput0, kInput0 | kOutput0, GSEL_LAYER_POSITIONWISE};
constexpr LayerRule kAttends{kOutput0, kOutput0, 0};
constexpr LayerRule kLosses{kOutput0 | GSEL_UNREAD_OUTPUT(1), 0,
                            GSEL_LAYER_LOSS | GSEL_LAYER_POSITIONWISE | GSEL_LAYER_SAVES_WHOLE};

class Describer {
 public:
  Describer(const Transformer& shape, const Description& description)
      : t_(shape), d_(description), model_(std::make_shared<Model>()) {}

  std::shared_ptr<Model> run() {
    const int32_t tokens = input("tokens"), targets = input("targets");
    int32_t x = embedding(tokens);
    if (t_.embedding_norm) x = norm("embed.norm", x, t_.hidden);
    for (int64_t i = 0; i < t_.layers; ++i) {
      prefix_ = "h" + std::to_string(i) + ".";
      x = t_.moe_layers() > 0 && i >= t_.dense_layers ? block(x, true) : block(x, false);
    }
    prefix_.clear();
    x = norm("final", x, t_.hidden);
    const int32_t logits = value("head", {d_.sequence, t_.vocab}, kColumns);
    const int32_t table = t_.tied ? table_ : weight("head.w", {t_.vocab, t_.hidden}, kColumns, 0);
    layer("head", {x}, {logits}, {table, t_.head_bias ? vector("head.b", t_.vocab, kColumns) : -1}, 0,
          2 * positions() * static_cast<double>(t_.hidden * t_.vocab), kReadsInput);
    loss(logits, targets);
    model_->finish();
    return std::move(model_);
  }

 private:
  double positions() const { return static_cast<double>(d_.sequence); }

  // ---- parts of layers ----

  int32_t param(const std::string& stem, const std::vector<int64_t>& dims, const SplitRule& split, int32_t split_dim,
                uint32_t flags) {
    const std::string name = prefix_ + stem;
    gsel_param_options o = GSEL_PARAM_OPTIONS_INIT;
    o.name = {name.data(), name.size()};
    o.dims = dims.data();
    o.n_dims = static_cast<int32_t>(dims.size());
    o.dtype = d_.dtype;
    o.flags = flags | (split.few ? GSEL_PARAM_REPLICATE_IF_FEW : 0u);
    if (split.by != SplitBy::nothing) {
      o.shard = GSEL_SHARD_DIM;
      o.shard_dim = split_dim;
      o.shard_blocks = split.blocks;
      o.shard_granularity = split.granularity;
    }
    return model_->add_param(o);
  }
  // split_dim: dimension of columns; rows are the last dimension.
  int32_t weight(const std::string& stem, const std::vector<int64_t>& dims, const SplitRule& split, int32_t split_dim) {
    return param(stem, dims, split, split.by == SplitBy::rows ? static_cast<int32_t>(dims.size()) - 1 : split_dim, 0);
  }
  int32_t vector(const std::string& stem, int64_t n, const SplitRule& split) {
    return param(stem, {n}, split, 0, GSEL_PARAM_NO_DECAY);
  }

  int32_t value_of(const std::string& stem, const std::vector<int64_t>& dims, gsel_dtype dtype, uint32_t flags,
                   int32_t placement, const SplitRule& split) {
    const std::string name = prefix_ + stem;
    gsel_value_options o = GSEL_VALUE_OPTIONS_INIT;
    o.name = {name.data(), name.size()};
    o.dims = dims.data();
    o.n_dims = static_cast<int32_t>(dims.size());
    o.dtype = dtype;
    o.flags = flags | (split.few ? GSEL_VALUE_REPLICATE_IF_FEW : 0u);
    o.placement = placement;
    o.shard_dim = placement == GSEL_PLACEMENT_SHARD ? o.n_dims : 0;
    o.shard_granularity = split.granularity;
    o.sequence_dim = dims.empty() ? 0 : 1;
    return model_->add_value(o);
  }
  // Sharded after columns, partial after rows, else replicated.
  int32_t value(const std::string& stem, const std::vector<int64_t>& dims, const SplitRule& split) {
    const int32_t placement = split.by == SplitBy::columns ? GSEL_PLACEMENT_SHARD
                              : split.by == SplitBy::rows  ? GSEL_PLACEMENT_PARTIAL
                                                           : GSEL_PLACEMENT_REPLICATE;
    return value_of(stem, dims, d_.dtype, 0, placement, split);
  }
  int32_t stream(const std::string& stem, const SplitRule& split = kUnsplit) {
    return value(stem, {d_.sequence, t_.hidden}, split);
  }
  int32_t input(const std::string& stem) {
    return value_of(stem, {d_.sequence}, t_.vocab <= kByteWords ? GSEL_U8 : GSEL_I32, GSEL_VALUE_INPUT,
                    GSEL_PLACEMENT_REPLICATE, kUnsplit);
  }
  int32_t scalar(const std::string& stem) {
    return value_of(stem, {}, GSEL_F64, GSEL_VALUE_SCALAR, GSEL_PLACEMENT_REPLICATE, kUnsplit);
  }

  static std::vector<int32_t> present(std::vector<int32_t> ids) {
    std::erase(ids, -1);
    return ids;
  }

  // saved: f32 numbers per sample kept for backward. The last vector of params is a bias, which no backward reads.
  void layer(const std::string& stem, const std::vector<int32_t>& inputs, const std::vector<int32_t>& outputs,
             const std::vector<int32_t>& with_params, int64_t saved, double flop, const LayerRule& rule,
             int32_t unread_from = 1, std::vector<gsel_phase> forward = {}, std::vector<gsel_phase> backward = {}) {
    const std::string name = prefix_ + stem;
    const std::vector<int32_t> params = present(with_params);
    gsel_layer_options o = GSEL_LAYER_OPTIONS_INIT;
    o.name = {name.data(), name.size()};
    o.inputs = inputs.data(), o.n_inputs = static_cast<int32_t>(inputs.size());
    o.outputs = outputs.data(), o.n_outputs = static_cast<int32_t>(outputs.size());
    o.params = params.data(), o.n_params = static_cast<int32_t>(params.size());
    o.flags = rule.flags | (recomputable_ ? GSEL_LAYER_RECOMPUTABLE : 0u);
    o.saved_bytes_per_sample = static_cast<uint64_t>(saved) * sizeof(float);
    o.flop_per_sample = flop;
    o.forward = no_kernel;
    o.backward_input = stem == "embed.token" ? nullptr : no_kernel;
    o.backward_weight = params.empty() ? nullptr : no_kernel;
    o.backward_input_unread = rule.input_unread;
    o.backward_weight_unread = params.empty() ? 0 : rule.weight_unread;
    for (size_t i = static_cast<size_t>(unread_from); i < params.size(); ++i)
      o.backward_unread_params |= uint64_t{1} << i;
    o.forward_phases = forward.data(), o.n_forward_phases = static_cast<int32_t>(forward.size());
    o.backward_phases = backward.data(), o.n_backward_phases = static_cast<int32_t>(backward.size());
    model_->add_layer(o);
  }

  // ---- layers ----

  int32_t embedding(int32_t tokens) {
    table_ = weight("embed.token", {t_.vocab, t_.hidden}, kColumns, 0);
    if (t_.positions == 0) {
      const int32_t x = stream("embed.token", kRows);
      layer("embed.token", {tokens}, {x}, {table_}, 0, 0, kLooksUp, 0);
      const int32_t y = stream("embed");
      layer("embed", {x}, {y}, {}, 0, positions() * static_cast<double>(t_.hidden), kPositions);
      return y;
    }
    const int32_t rows = weight("embed.position", {t_.positions, t_.hidden}, kUnsplit, 0);
    const int32_t x = stream("embed.token", kRows);
    layer("embed.token", {tokens}, {x}, {table_}, 0, 0, kLooksUp, 0);
    const int32_t y = stream("embed.position");
    layer("embed.position", {x}, {y}, {rows}, 0, positions() * static_cast<double>(t_.hidden), kPositions, 0);
    return y;
  }

  // Keeps mean and deviation of each position, or, for RMSNorm, the deviation.
  int32_t norm(const std::string& stem, int32_t x, int64_t width) {
    const int32_t gain = t_.norm_vectors > 0 ? vector(stem + ".g", width, kUnsplit) : -1;
    const int32_t bias = t_.norm_vectors > 1 ? vector(stem + ".b", width, kUnsplit) : -1;
    const int32_t y = stream(stem);
    layer(stem, {x}, {y}, {gain, bias}, (t_.norm_vectors == 1 ? 1 : 2) * d_.sequence,
          8 * positions() * static_cast<double>(width), kReadsInput);
    return y;
  }

  // With blocks, the output is [sequence][blocks][out / blocks].
  int32_t linear(const std::string& stem, int32_t x, int64_t in, int64_t out, const SplitRule& split, bool bias) {
    const int32_t w = weight(stem + ".w", {out, in}, split, 0);
    const int32_t b = bias ? vector(stem + ".b", out, split) : -1;
    std::vector<int64_t> dims{d_.sequence, out};
    if (split.blocks > 1) dims = {d_.sequence, split.blocks, out / split.blocks};
    const int32_t y = value(stem, dims, split);
    layer(stem, {x}, {y}, {w, b}, 0, 2 * positions() * static_cast<double>(in * out), kReadsInput);
    return y;
  }

  int32_t head_dim() const { return static_cast<int32_t>(t_.head_dim); }

  int32_t attention(int32_t x) {
    const int64_t width = t_.heads * t_.head_dim;
    if (t_.kv_rank > 0) return low_rank_attention(x);
    if (t_.kv_heads == t_.heads) {
      const int32_t qkv = linear("attn.qkv", x, t_.hidden, 3 * width, {SplitBy::columns, 3, head_dim()}, t_.qkv_bias);
      return attend({qkv}, width, width, width);
    }
    const int32_t q = linear("attn.q", x, t_.hidden, width, {SplitBy::columns, 1, head_dim()}, t_.qkv_bias);
    const int64_t kv_width = t_.kv_heads * t_.head_dim;
    const int32_t kv =
        linear("attn.kv", x, t_.hidden, 2 * kv_width, {SplitBy::columns, 2, head_dim(), true}, t_.qkv_bias);
    return attend({q, kv}, width, width, kv_width);
  }

  // Queries, keys and values of each head are computed from a latent that all heads share.
  int32_t low_rank_attention(int32_t x) {
    const int64_t query = t_.head_dim + t_.rope_dim, from_latent = t_.head_dim + t_.value_dim;
    const SplitRule by_query{SplitBy::columns, 1, static_cast<int32_t>(query)};
    const auto latent = [&](const std::string& stem, int64_t rank, int64_t beside) {
      const int32_t w = weight(stem + ".w", {rank + beside, t_.hidden}, kUnsplit, 0),
                    g = vector(stem + ".g", rank, kUnsplit);
      const int32_t y = value(stem, {d_.sequence, rank + beside}, kUnsplit);
      layer(stem, {x}, {y}, {w, g}, d_.sequence, 2 * positions() * static_cast<double>((rank + beside) * t_.hidden),
            kReadsInput, 2);
      return y;
    };
    int32_t q = 0;
    if (t_.q_rank > 0)
      q = linear("attn.q", latent("attn.q_down", t_.q_rank, 0), t_.q_rank, t_.heads * query, by_query, false);
    else
      q = linear("attn.q", x, t_.hidden, t_.heads * query, by_query, false);
    const int32_t down = latent("attn.kv_down", t_.kv_rank, t_.rope_dim);
    const int32_t kv = linear("attn.kv", down, t_.kv_rank, t_.heads * from_latent,
                              {SplitBy::columns, 1, static_cast<int32_t>(from_latent)}, false);
    return attend({q, kv}, t_.heads * query, t_.heads * t_.value_dim, t_.heads * from_latent / 2);
  }

  gsel_phase shift(int64_t width, uint32_t flags) const {
    gsel_phase phase{};
    phase.struct_size = sizeof phase;
    phase.axis = GSEL_AXIS_TENSOR;
    phase.dtype = GSEL_F32;
    phase.flags = GSEL_PHASE_RING_SHIFT | flags;
    phase.elems_per_sample = width * d_.sequence;
    return phase;
  }

  // query, out, kv: numbers per position of queries, of the result, and of keys as well as of values.
  int32_t attend(const std::vector<int32_t>& inputs, int64_t query, int64_t out, int64_t kv) {
    const SplitRule by_head{SplitBy::columns, 1, static_cast<int32_t>(out / t_.heads)};
    const int32_t norms = t_.qk_norm > 0 ? vector("attn.qk_norm", t_.qk_norm, kUnsplit) : -1;
    const int32_t y = value("attn", {d_.sequence, out}, by_head);
    const double flop = 2 * t_.pairs(positions()) * static_cast<double>(query + out);
    const int64_t rows = t_.heads * d_.sequence;
    LayerRule rule = kAttends;
    if (d_.ring_attention)
      layer("attn", inputs, {y}, {norms}, rows, flop, rule, 1, {shift(2 * kv, 0)}, {shift(4 * kv, GSEL_PHASE_HOME)});
    else
      layer("attn", inputs, {y}, {norms}, d_.fused_attention ? rows : rows * d_.sequence, flop, rule);
    const int32_t proj = stream("attn.proj", kRows);
    layer("attn.proj", {y}, {proj},
          {weight("attn.proj.w", {t_.hidden, out}, {SplitBy::rows, 1, by_head.granularity}, 0)}, 0,
          2 * positions() * static_cast<double>(out * t_.hidden), kReadsInput);
    return proj;
  }

  int32_t dense_mlp(int32_t x) {
    const int32_t blocks = t_.mlp_matrices - 1;
    const int32_t up = linear("mlp.fc1", x, t_.hidden, blocks * t_.ffn, {SplitBy::columns, blocks, 1}, t_.mlp_bias);
    const int32_t act = value("mlp.act", {d_.sequence, t_.ffn}, kColumns);
    layer("mlp.act", {up}, {act}, {}, 0, 12 * positions() * static_cast<double>(t_.ffn), kReadsInput);
    const int32_t down = stream("mlp.fc2", kRows);
    layer("mlp.fc2", {act}, {down}, {weight("mlp.fc2.w", {t_.hidden, t_.ffn}, kRows, 0)}, 0,
          2 * positions() * static_cast<double>(t_.ffn * t_.hidden), kReadsInput);
    return down;
  }

  // Each token uses some of the experts; each rank of the tensor axis has a shard of every expert.
  int32_t expert_mlp(int32_t x) {
    const int64_t active = t_.experts_per_token * t_.expert_ffn + t_.shared_ffn;
    const int64_t blocks = t_.mlp_matrices - 1;
    const double pair = 2 * positions() * static_cast<double>(t_.hidden);
    const int32_t router = weight("mlp.router", {t_.experts, t_.hidden}, kUnsplit, 0);
    const int32_t up_w = weight("mlp.fc1.w", {t_.experts * blocks, t_.expert_ffn, t_.hidden}, kColumns, 1);
    const int32_t up_shared =
        t_.shared_ffn > 0 ? weight("mlp.fc1.shared", {blocks, t_.shared_ffn, t_.hidden}, kColumns, 1) : -1;
    const int32_t up = value("mlp.fc1", {d_.sequence, blocks, active}, kColumns);
    layer("mlp.fc1", {x}, {up}, {router, up_w, up_shared}, t_.experts * d_.sequence,
          pair * static_cast<double>(t_.experts + blocks * active), kReadsInput, 3);
    const int32_t act = value("mlp.act", {d_.sequence, active}, kColumns);
    layer("mlp.act", {up}, {act}, {}, 0, 12 * positions() * static_cast<double>(active), kReadsInput);
    const int32_t down_w = weight("mlp.fc2.w", {t_.experts, t_.hidden, t_.expert_ffn}, kRows, 0);
    const int32_t down_shared = t_.shared_ffn > 0 ? weight("mlp.fc2.shared", {t_.hidden, t_.shared_ffn}, kRows, 0) : -1;
    const int32_t down = stream("mlp.fc2", kRows);
    layer("mlp.fc2", {act}, {down}, {down_w, down_shared}, 0, pair * static_cast<double>(active), kReadsInput, 2);
    return down;
  }

  // The bias after a partial sum is added once.
  int32_t add(const std::string& stem, int32_t x, int32_t branch, bool bias) {
    const int32_t b = bias ? vector(stem + ".b", t_.hidden, kUnsplit) : -1;
    const int32_t y = stream(stem);
    layer(stem, {x, branch}, {y}, {b}, 0, 2 * positions() * static_cast<double>(t_.hidden), kAdds, 0);
    return y;
  }

  // Recomputation starts at the beginning of a block, so the output of a block is kept.
  int32_t block(int32_t x, bool experts) {
    recomputable_ = true;
    int32_t f = attention(norm("ln1", x, t_.hidden));
    if (t_.norms_per_layer > 2) f = norm("attn.norm", f, t_.hidden);
    x = add("add1", x, f, t_.output_bias);
    f = t_.norms_per_layer > 1 ? norm("ln2", x, t_.hidden) : x;
    f = experts ? expert_mlp(f) : dense_mlp(f);
    if (t_.norms_per_layer > 3) f = norm("mlp.norm", f, t_.hidden);
    recomputable_ = false;
    return add("add2", x, f, t_.mlp_bias);
  }

  gsel_phase reduction(gsel_op op, int64_t numbers) const {
    gsel_phase phase{};
    phase.struct_size = sizeof phase;
    phase.axis = GSEL_AXIS_TENSOR;
    phase.op = op;
    phase.dtype = GSEL_F32;
    phase.elems_per_sample = numbers * d_.sequence;
    return phase;
  }

  // If ranks divide the vocabulary, they reduce a maximum and two sums for each position.
  void loss(int32_t logits, int32_t targets) {
    const int32_t sum = scalar("loss_sum"), tokens = scalar("loss_tokens");
    layer("loss", {logits, targets}, {sum, tokens}, {}, d_.sequence, 4 * positions() * static_cast<double>(t_.vocab),
          kLosses, 1, {reduction(GSEL_MAX, 1), reduction(GSEL_SUM, 2)});
  }

  const Transformer& t_;
  const Description& d_;
  std::shared_ptr<Model> model_;
  std::string prefix_;  // for names: "h0."
  bool recomputable_ = false;
  int32_t table_ = -1;  // token embedding
};

}  // namespace

std::shared_ptr<Model> describe(const Transformer& shape, const Description& description) {
  if (description.sequence < 1)
    fail(GSEL_ERR_ARG, "a sequence of {} was asked for; from 1 is needed", with_noun(description.sequence, "token"));
  return Describer(shape, description).run();
}

}  // namespace gsel::plan
