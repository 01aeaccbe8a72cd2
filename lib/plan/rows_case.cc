// plan/rows_case.cc: what a line of a table of measurements states about a run, and what it leaves for an expert to
// infer. Each rule is only here, and is listed in bench/results/plan.md.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "plan/cluster.h"
#include "plan/memory.h"
#include "plan/rows.h"
#include "plan/time.h"

namespace gsel::plan {
namespace {

// ---- devices and links, as tables write them -----------------------------------------------------------------------

// A device's name, separated from its suffixes: slower memory, a power cap.
struct NamedDevice {
  std::string name;
  bool slow_memory = false;  // HBM2e where HBM3 is usual
  double watts = 0;
};

NamedDevice named_device(std::string_view text) {
  NamedDevice out;
  const size_t paren = std::min(text.find('('), text.size());
  const std::string rest = lowered(text.substr(paren));
  out.name = std::string(trimmed(text.substr(0, paren)));
  if (const size_t at = lowered(out.name).find("-hbm2e"); at != std::string::npos) {
    out.slow_memory = true;
    out.name.erase(at, 6);
  }
  for (size_t i = 0; i + 1 < rest.size(); ++i)
    if (rest[i] == 'w' && i > 0 && is_digit(rest[i - 1])) {
      size_t begin = i;
      while (begin > 0 && is_digit(rest[begin - 1])) --begin;
      std::from_chars(rest.data() + begin, rest.data() + i, out.watts);
    }
  return out;
}

constexpr double kH100Watts = 700, kH100Hbm2e = 2.4e12;

// Splits "A + B" into names.
std::vector<std::string_view> joined(std::string_view text) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t plus = std::min(text.find('+'), text.size());
    out.push_back(trimmed(text.substr(0, plus)));
    if (plus == text.size()) return out;
    text.remove_prefix(plus + 1);
  }
}

// By index, from 0 or from 1, or by a name that contains the word or is contained in it. -1: none.
int32_t named_kind(const std::string& word, const std::vector<std::string_view>& names, bool from_one) {
  int32_t number = 0;
  const auto n = static_cast<int32_t>(names.size());
  const auto result = std::from_chars(word.data(), word.data() + word.size(), number);
  number -= from_one ? 1 : 0;
  if (result.ec == std::errc() && result.ptr == word.data() + word.size() && number >= 0 && number < n) return number;
  for (int32_t i = 0; i < n; ++i)
    if (lowered(names[i]) == lowered(word)) return i;
  for (int32_t i = 0; i < n; ++i)
    if (mentions(lowered(names[i]), lowered(word)) || mentions(lowered(word), lowered(names[i]))) return i;
  return -1;
}

}  // namespace

std::optional<double> network_rate(const std::string& text, double devices) {
  std::optional<double> slowest;
  for (const std::string_view unit : {"gb/s", "gbps", "gbit/s"})
    for (size_t at = text.find(unit); at != text.npos; at = text.find(unit, at + 1)) {
      size_t end = at;
      while (end > 0 && text[end - 1] == ' ') --end;
      size_t begin = end;
      while (begin > 0 && (is_digit(text[begin - 1]) || text[begin - 1] == '.' || text[begin - 1] == 'x')) --begin;
      std::string_view number = std::string_view(text).substr(begin, end - begin);
      double adapters = 1, rate = 0;
      if (const size_t x = number.find('x'); x != number.npos) {
        std::from_chars(number.data(), number.data() + x, adapters);
        number.remove_prefix(x + 1);
      }
      if (std::from_chars(number.data(), number.data() + number.size(), rate).ec != std::errc() || !(rate > 0))
        continue;
      const bool each = std::string_view(text).substr(at + unit.size()).starts_with(" per gpu");
      const double bytes = adapters * rate * 1e9 / 8 * (each ? devices : 1);
      if (!slowest || bytes < *slowest) slowest = bytes;
    }
  return slowest;
}

DeviceKind device_of(std::string_view text) {
  const NamedDevice named = named_device(text);
  const Cluster one = cluster_of(named.name, {});
  DeviceKind kind = one.kinds[0];
  if (kind.device_class == "h100") {
    if (named.slow_memory) kind.memory_bytes_per_second = std::min(kind.memory_bytes_per_second, kH100Hbm2e);
    // Clocks follow the power limit by less than its cube root; the fourth root is exact, as two square roots.
    if (named.watts > 0 && named.watts < kH100Watts)
      kind.matmul_share *= std::sqrt(std::sqrt(named.watts / kH100Watts));
  }
  return kind;
}

std::vector<std::vector<std::string>> list_of_lists(std::string_view note) {
  std::vector<std::vector<std::string>> out;
  const size_t begin = note.find("[[");
  if (begin == note.npos) return out;
  std::string word;
  bool inside = false;
  for (const char c : note.substr(begin + 1)) {
    if (c == '[') {
      out.emplace_back();
      inside = true;
    } else if (inside && (c == ',' || c == ']')) {
      const std::string_view bare = trimmed(word, " \t'\"");
      if (!bare.empty()) out.back().emplace_back(bare);
      word.clear();
      inside = c == ',';
    } else if (inside) {
      word += c;
    } else if (c == ']') {
      break;
    }
  }
  std::erase_if(out, [](const auto& inner) { return inner.empty(); });
  return out;
}

namespace {

// ---- rows ----------------------------------------------------------------------------------------------------------

constexpr int64_t kMicrobatches[] = {1, 2, 4, 8, 16};
constexpr int64_t kMostChunks = 32;
constexpr int64_t kNodesAssumed = 32;  // for a run without a number of devices

struct Reader {
  const PublishedRow& row;
  RowCase run;
  std::string note = lowered(row.text("note")), source = lowered(row.text("source")),
              model = lowered(row.text("model"));
  int64_t tensor = row.whole("tp", 1, 0, kMostRowRanks), pipeline = row.whole("pp", 1, 0, kMostRowRanks);
  int64_t data = row.whole("dp", 1, 0, kMostRowRanks), context = row.whole("cp", 1, 1, kMostRowRanks);
  int64_t zero = row.whole("zero", 0, -1, 3);
  int64_t batch = row.whole("gbs", 1, 0), micro = row.whole("mbs", 1, 0);
  std::string recompute = lowered(row.text("recompute")), precision = lowered(row.text("precision"));
  bool modern = false;  // devices have 8-bit units, so the program dates from 2022 or later

  // Records why a line cannot be forecast.
  bool note_missing(const char* column, std::string_view need) {
    if (run.why.empty())
      run.why = fmt::format("row {}: column {}: {}",
                            row.has("row") ? row.text("row") : fmt::format("on line {}", row.line), column, need);
    return true;
  }

  bool read_shape() {
    Transformer& t = run.shape;
    t.name = row.text("model");
    t.layers = row.whole("layers", 1, 0, 100'000), t.hidden = row.whole("hidden", 1, 0, 1'000'000);
    t.heads = row.whole("heads", 1, 0, 100'000), t.vocab = row.whole("vocab", 1, 51200, 100'000'000);
    const int64_t sequence = row.whole("seq", 1, 0);
    if (t.layers == 0 || t.hidden == 0) {
      // The usual shape for a model of that size: a layer is about a hundred times as wide as the model is deep.
      const double params = row.number("params_b", 0, 0) * 1e9;
      if (!(params > 0 && params < 1e15))
        return !note_missing(t.layers == 0 ? "layers" : "hidden",
                             "is empty, and params_b tells no size below a million");
      double width = 1024;
      for (int i = 0; i < 60; ++i) width = (2 * width + 100 * params / 12 / (width * width)) / 3;  // cube root
      t.hidden = std::max<int64_t>(128, 128 * std::llround(width / 128));
      const auto hidden = static_cast<double>(t.hidden);
      t.layers = std::max<int64_t>(1, std::llround(params / (12 * hidden * hidden)));
    }
    if (t.heads == 0) t.heads = std::max<int64_t>(1, t.hidden / 128);
    t.kv_heads = row.whole("kv_heads", 1, t.heads, 100'000);
    t.head_dim = std::max<int64_t>(1, t.hidden / t.heads);
    const bool gated =
        mentions(model, "llama") || mentions(model, "mistral") || mentions(model, "qwen") || mentions(model, "mixtral");
    t.ffn = row.whole("ffn", 1, gated ? 8 * t.hidden / 3 : 4 * t.hidden, 10'000'000);
    if (gated) {
      t.mlp_matrices = 3, t.norm_vectors = 1, t.tied = false;
      t.qkv_bias = t.output_bias = t.mlp_bias = false;
    } else {
      t.positions = mentions(source, "mpt") || mentions(model, "mpt") || mentions(model, "bloom") ? 0 : sequence;
    }
    if (mentions(note, "untied")) t.tied = false;
    t.dropout = !gated && !mentions(model, "mpt");
    run.workload = workload_of(t, sequence > 0 ? sequence : 2048);
    return true;
  }

  bool read_cluster() {
    const std::string& gpu = row.text("gpu");
    if (gpu.empty()) return !note_missing("gpu", "is empty; the time of a step needs a device");
    const auto names = joined(gpu);
    std::vector<DeviceKind> kinds;
    for (const std::string_view name : names) {
      if (!find_accelerator(named_device(name).name))
        return !note_missing("gpu", fmt::format("\"{}\" is no accelerator that is known", name));
      kinds.push_back(device_of(name));
    }
    ClusterOptions options;
    Cluster one = cluster_of(named_device(names[0]).name, options);
    const Accelerator* accelerator = find_accelerator(named_device(names[0]).name);
    const int64_t usual = accelerator->per_node;
    int64_t per_node = row.sum("gpus_per_node", kMostRowRanks);
    if (per_node == 0) per_node = usual;
    run.gpus = row.sum("gpus", kMostRowRanks);
    if (run.gpus == 0)
      run.gpus = std::max<int64_t>(1, tensor) * std::max<int64_t>(1, pipeline) * std::max<int64_t>(1, data) * context;
    if (run.gpus == 1 && !row.has("gpus") && tensor == 0 && data == 0 && batch > 1)
      run.gpus = std::min(batch, kNodesAssumed * per_node);
    if (run.gpus > kMostRowRanks)
      return !note_missing("gpus", fmt::format("{} devices; at most {} are priced", run.gpus, kMostRowRanks));
    const int64_t ranks = tensor * pipeline * data * context;
    if (row.has("gpus") && ranks > 0 && ranks != run.gpus)
      row.refuse("gpus", fmt::format("is {}, and tp {} x pp {} x dp {}{} are {}; the same number is needed",
                                     row.text("gpus"), tensor, pipeline, data,
                                     context > 1 ? fmt::format(" x cp {}", context) : "", with_noun(ranks, "rank")));
    if (pipeline > run.shape.layers)
      return !note_missing("pp", fmt::format("{} stages for {} layers", pipeline, run.shape.layers));
    per_node = std::min(per_node, run.gpus);
    Cluster& c = run.cluster;
    c.name = gpu;
    c.per_node = static_cast<int32_t>(per_node);
    c.inside = one.inside;
    for (size_t i = 1; i < names.size(); ++i) {
      const Cluster other = cluster_of(named_device(names[i]).name, options);
      if (other.inside.bytes_per_second < c.inside.bytes_per_second) c.inside = other.inside;
    }
    c.network = one.network;
    c.network.bytes_per_second = accelerator->network_bytes_per_second * static_cast<double>(per_node);
    const auto given = network_rate(note, static_cast<double>(per_node));
    const auto named = given ? given : network_rate(source, static_cast<double>(per_node));
    if (named) c.network.bytes_per_second = *named;
    if (mentions(note, "p2p_disable") || mentions(model, "no nvlink"))
      c.inside = link_of("p2p-off", accelerator);
    else if (mentions(note, "pcie node"))
      c.inside = link_of("PIX", accelerator);
    else if (const size_t nv = note.find("nv2 link"); nv != note.npos)
      c.inside = link_of("NV2", accelerator);
    c.kinds = kinds;
    c.devices.assign(static_cast<size_t>(run.gpus), 0);
    modern = kinds[0].flop_8 > 0;
    return kinds.size() == 1 || place_kinds(names);
  }

  // Assigns devices to stages and replicas.
  bool place_kinds(const std::vector<std::string_view>& names) {
    const auto lists = list_of_lists(row.text("note"));
    std::vector<int32_t> kinds;
    bool from_one = true;
    for (const auto& inner : lists)
      for (const std::string& word : inner) from_one &= word != "0";
    const int64_t p = std::max<int64_t>(1, pipeline), d = std::max<int64_t>(1, data);
    const bool by_replica = static_cast<int64_t>(lists.size()) == d && p != d;
    for (const auto& inner : lists)
      for (const std::string& word : inner) {
        const int32_t index = named_kind(word, names, from_one);
        if (index < 0)
          return !note_missing("note", fmt::format("\"{}\" is none of the devices that column gpu joins", word));
        kinds.push_back(index);
      }
    if (mentions(note, "[") && (kinds.empty() || std::ranges::count(note, '[') != std::ranges::count(note, ']')))
      return !note_missing("note", "has no list of the devices of each stage or replica, such as [[A, B], [A, B]]");
    if (kinds.empty()) {  // nothing given: devices in the order of their names, equal numbers of each
      for (int64_t i = 0; i < run.gpus; ++i)
        run.cluster.devices[i] = static_cast<int32_t>(i * static_cast<int64_t>(names.size()) / run.gpus);
      return true;
    }
    const auto n = static_cast<int64_t>(kinds.size());
    if (run.gpus % n != 0) return !note_missing("note", fmt::format("lists {} devices for {} ranks", n, run.gpus));
    const int64_t each = run.gpus / n;
    for (int64_t i = 0; i < run.gpus; ++i) {
      int64_t at = i / each;
      if (by_replica && n == p * d) at = at % d * p + at / d;  // ranks are numbered stage by stage
      run.cluster.devices[i] = kinds[at];
    }
    return true;
  }

  void choose_program() {
    const bool half = precision.empty() ? true : mentions(precision, "16") || mentions(precision, "8");
    const bool sharded = zero >= 2;
    if (zero >= 0 && sharded) {
      run.runtime = mentions(note, "zero-3") || mentions(source, "deepspeed") || mentions(source, "zero arxiv")
                        ? Runtime::by_parameter
                    : mentions(note, "compile")    ? Runtime::compiled
                    : mentions(source, "megatron") ? Runtime::overlapped
                                                   : Runtime::sharded;
    } else if (mentions(note, "deterministic") || !half) {
      run.runtime = mentions(note, "deterministic") || mentions(model, "ddp") || mentions(model, "(dp")
                        ? Runtime::sharded
                        : Runtime::plain;
    } else {
      run.runtime = modern ? Runtime::overlapped : Runtime::plain;
    }
    run.recipe = *find_recipe(!half                                      ? "ddp-f32"
                              : run.runtime == Runtime::by_parameter     ? "deepspeed-fp16"
                              : sharded && !mentions(source, "megatron") ? "fsdp2-bf16"
                                                                         : "megatron-bf16");
    const bool fused = modern || run.shape.mlp_matrices == 3 || mentions(note, "flash");
    run.recipe.fused_attention = fused;
    run.recipe.eight_bit = mentions(precision, "fp8");
    run.hides_tensor = mentions(note, "async tp");
    if (recompute == "selective-op") run.selective_share = 0.5;  // every second product, and all non-products
    run.constants = constants_of(class_constants(run.cluster.kinds[0].device_class), run);
    align_kinds(run.cluster);
    run.one_process = mentions(model, "(dp");
    // Devices of a run of months train for four fifths of the time.
    if (mentions(note, "restarts")) run.busy = 0.8;
  }

  void choose_sizes() {
    const Cluster& c = run.cluster;
    const int64_t gpus = run.gpus;
    std::vector<std::array<int64_t, 3>> meshes;  // tensor, pipeline, data
    if (tensor > 0 && pipeline > 0 && data > 0) {
      meshes.push_back({tensor, pipeline, data});
    } else {
      for (int64_t t = 1; t <= c.per_node; t *= 2)
        for (int64_t p = 1; p <= std::min<int64_t>(64, run.shape.layers); p *= 2) {
          if ((tensor > 0 && t != tensor) || (pipeline > 0 && p != pipeline) || gpus % (t * p * context) != 0) continue;
          const int64_t d = gpus / (t * p * context);
          if ((data > 0 && d != data) || (batch > 0 && batch % d != 0)) continue;
          meshes.push_back({t, p, d});
        }
    }
    for (const auto& [t, p, d] : meshes) add_layouts(t, p, d);
    if (run.layouts.empty())
      note_missing("gbs", fmt::format("{} samples do not divide by the replicas of {} devices", batch, gpus));
  }

  void add_layouts(int64_t t, int64_t p, int64_t d) {
    Layout l;
    l.tensor = static_cast<int32_t>(t), l.pipeline = static_cast<int32_t>(p), l.data = static_cast<int32_t>(d);
    l.context = static_cast<int32_t>(context);
    l.zero_stage = static_cast<int32_t>(zero >= 0 ? zero : d > 1 ? 1 : 0);
    l.sequence_parallel = row.whole("seqpar", 0, 0, 1) != 0 ||
                          (!row.has("seqpar") && modern && t > 1 && run.runtime == Runtime::overlapped);
    l.recompute = recompute == "full"                ? Recompute::full
                  : mentions(recompute, "selective") ? Recompute::selective
                                                     : Recompute::none;
    std::vector<int64_t> sizes;
    if (micro > 0 && p > 1 && micro * d >= batch && batch > 0 && mentions(note, "1f1b")) {
      // A program that divides its replica's batch among the stages itself.
      sizes = {std::max<int64_t>(1, batch / d / p)};
    } else if (micro > 0) {
      sizes = {micro};
    } else {
      for (const int64_t b : kMicrobatches)
        if (batch == 0 || batch % (b * d) == 0) sizes.push_back(b);
    }
    for (const int64_t b : sizes) {
      l.microbatch = b;
      l.microbatches = batch > 0 ? std::max<int64_t>(1, batch / (b * d)) : 1;
      for (const int64_t v : chunk_choices(p, l.microbatches)) {
        l.chunks = static_cast<int32_t>(v);
        l.schedule = v > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
        run.layouts.push_back(l);
      }
    }
  }

  std::vector<int64_t> chunk_choices(int64_t p, int64_t microbatches) {
    if (p == 1) return {1};
    const std::string& given = row.text("vpp");
    if (given == "interleaved") return {2};
    if (!given.empty()) return {row.whole("vpp", 1, 1, 1000)};
    std::vector<int64_t> out = {1};
    // Programs interleave stages if a note says so; modern ones also do if they can.
    if (!mentions(note, "interleaved") && !(modern && run.runtime == Runtime::overlapped)) return out;
    const int64_t layers = run.shape.layers;
    for (int64_t v = 2; v <= kMostChunks; ++v)
      if (layers >= p * v && (layers % (p * v) == 0 || layers % p != 0) && microbatches % p == 0) out.push_back(v);
    return out;
  }
};

}  // namespace

RowCase case_of(const PublishedRow& row) {
  Reader reader{row, {}};
  // Times need shape and devices; closed forms of memory need less.
  if (!reader.read_shape() || !reader.read_cluster()) return std::move(reader.run);
  reader.choose_program();
  reader.choose_sizes();
  return std::move(reader.run);
}

Constants constants_of(const ClassConstants& fitted, const RowCase& run) {
  Constants k = constants_of(fitted, run.runtime);
  k.selective_share = run.selective_share;
  k.stages_keep_gathered = true;  // as in PyTorch programs
  if (run.hides_tensor) k.tensor_hidden = fitted.tensor_hidden;
  return k;
}

double step_of(const RowCase& run, const Constants& constants, Layout* chosen) {
  double best = 0;
  bool best_fits = false;
  const bool choice = run.layouts.size() > 1;
  for (const Layout& layout : run.layouts) {
    const Split stages = split(run.workload, layout.pipeline);
    const bool fits = !choice || worst_memory(stages, layout, run.recipe).total() <= run.cluster.kinds[0].memory_bytes;
    if (best > 0 && best_fits && !fits) continue;
    double step = forecast_time(run.workload, stages, run.cluster, layout, run.shares, run.recipe, constants).step();
    if (run.one_process && layout.data > 1) {
      // One process sends parameters, and collects gradients and the other replicas' logits, while all others wait.
      double logits = 0;
      for (const Block& block : run.workload.blocks) logits += block.costs.logits;
      const double moved = 2 * run.workload.params() + static_cast<double>(layout.microbatch) * logits;
      step += (layout.data - 1) * moved * run.recipe.element_bytes /
              (run.cluster.inside.bytes_per_second * constants.inside);
    }
    // An unknown batch is also a choice: compare equal numbers of samples.
    step *= 1 / run.busy * static_cast<double>(run.layouts[0].batch()) / static_cast<double>(layout.batch());
    if (best == 0 || (fits && !best_fits) || step < best) {
      best = step, best_fits = fits;
      if (chosen) *chosen = layout;
    }
  }
  return best;
}

}  // namespace gsel::plan
