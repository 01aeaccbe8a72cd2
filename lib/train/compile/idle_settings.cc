// train/compile/idle_settings.cc: see idle_settings.h. The compiled programs show what a setting has changed.
#include "train/compile/idle_settings.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "train/compile/base_program.h"

namespace gsel {
namespace {

class IdleSettings {
 public:
  IdleSettings(const Model& described, const Config& config, const Model& local, std::span<const Program> programs)
      : described_(described), config_(config), local_(local), programs_(programs), program_(programs.front()) {}

  std::vector<std::string> find() {
    find_microbatches();
    find_recompute();
    find_tensor();
    find_positions();
    find_stage_3();
    find_bucket_bytes();
    return std::move(lines_);
  }

 private:
  template <class... Args>
  void note(const Place& place, fmt::format_string<Args...> text, Args&&... args) {
    lines_.push_back(place_prefix(place) + fmt::format(text, std::forward<Args>(args)...));
  }

  const ConfigValue* option(gsel_axis axis, const char* name) const {
    if (!config_.strategy[axis]) return nullptr;
    const auto& options = config_.strategy[axis]->options;
    const auto found = options.find(name);
    return found == options.end() ? nullptr : &found->second;
  }

  bool uses(gsel_axis axis, const char* plugin) const {
    return config_.strategy[axis] && config_.strategy[axis]->plugin == plugin;
  }

  // One file may serve any number of ranks, so that this is no error.
  void find_microbatches() {
    const int64_t n = config_.train.microbatches;
    const int64_t most = largest_share(config_, program_.mesh.size[GSEL_AXIS_DATA]);
    if (n > most)
      note(config_.place_of("train.microbatches"),
           "train.microbatches = {} cut a share of {} sample{}: {} micro-batch{} empty on every rank; expected {} or "
           "fewer",
           n, most, most == 1 ? "" : "s", n - most, n - most == 1 ? " is" : "es are", most);
  }

  void find_recompute() {
    if (config_.train.recompute != "all") return;
    for (const Layer& layer : described_.layers())
      if (layer.recomputable() && !layer.is_loss()) return;
    note(config_.place_of("train.recompute"),
         "train.recompute = \"all\" changes nothing: no layer is flagged GSEL_LAYER_RECOMPUTABLE; flag those that may "
         "run "
         "forward again");
  }

  void find_tensor() {
    const gsel_axis axis = program_.mesh.sharing_axis();
    if (program_.mesh.size[axis] == 1 || !config_.strategy[axis]) return;
    const auto& section = *config_.strategy[axis];
    if (std::ranges::none_of(program_.layers, &ProgramLayer::divided))
      note(section.place,
           "strategy.{0}.plugin = \"{1}\" divides nothing: no parameter of the model has a shard rule that it takes, "
           "and no layer positions to share, so each of {2} computes everything; set GSEL_SHARD_DIM in "
           "gsel_param_options, or mesh.{0} = 1",
           axis_name(axis), section.plugin, with_noun(program_.mesh.size[axis], "rank"));
    const ConfigValue* sequence = option(axis, "sequence_parallel");
    if (!sequence || sequence->text != "true") return;
    if (std::ranges::none_of(local_.layers(), &Layer::some_positions))
      note(sequence->place,
           "strategy.tensor.sequence_parallel = true changes nothing: no layer that it could divide is flagged "
           "GSEL_LAYER_POSITIONWISE and has a sequence_dim in all its values; flag such layers");
  }

  // A layer that says it could, and is computed whole on every rank.
  void find_positions() {
    const gsel_axis axis = program_.mesh.sharing_axis();
    const ConfigValue* sequence = option(axis, "sequence_parallel");
    const bool divides = uses(axis, "cp") || (sequence && sequence->text == "true");
    if (program_.mesh.size[axis] == 1 || !divides) return;
    for (const Layer& layer : described_.layers()) {
      if (!(layer.flags & GSEL_LAYER_POSITIONWISE)) continue;
      const Value* with = nullptr;
      const Value* without = nullptr;
      for (const std::vector<int32_t>* ids : {&layer.inputs, &layer.outputs})
        for (int32_t v : *ids) {
          const Value& value = described_.values()[v];
          if (!value.is_scalar()) (value.sequence_dim > 0 ? with : without) = &value;
        }
      if (with && without)
        note(sequence ? sequence->place : config_.strategy[axis]->place,
             "layer \"{}\" is not divided by positions: it is flagged GSEL_LAYER_POSITIONWISE and its value \"{}\" has "
             "sequence_dim {}, but its value \"{}\" has none; give it the dimension of its positions",
             layer.name, with->name, with->sequence_dim, without->name);
    }
  }

  void find_stage_3() {
    const ConfigValue* stage = option(GSEL_AXIS_DATA, "stage");
    if (!uses(GSEL_AXIS_DATA, "zero") || !stage || stage->text != "3") return;
    for (const Program& program : programs_)
      if (std::ranges::any_of(program.buckets, &ProgramBucket::shards_param)) return;
    int64_t largest = 0;
    for (const Param& param : described_.params())
      if (param.trainable()) largest = std::max(largest, param.n_elems);
    const ConfigValue* persist = option(GSEL_AXIS_DATA, "persist_elems");
    note(stage->place,
         "strategy.data.stage = 3 is stage 2 here: persist_elems{} keeps every parameter whole on each rank, the "
         "largest has {}; set persist_elems = {} or less, or stage = 2",
         persist ? " = " + persist->text : ", by its default,", with_noun(largest, "element"), largest);
  }

  // The first bucket has a size of its own, and took what several buckets were asked for.
  void find_bucket_bytes() {
    const ConfigValue* given = option(GSEL_AXIS_DATA, "bucket_bytes");
    if (!given) return;
    int64_t asked = 0;
    std::from_chars(given->text.data(), given->text.data() + given->text.size(), asked);
    if (uses(GSEL_AXIS_DATA, "zero") && std::ranges::all_of(program_.buckets, &ProgramBucket::shards_param)) {
      note(given->place,
           "strategy.data.bucket_bytes = {} changes nothing: in stage 3 the parameters that the same layers read make "
           "up a "
           "bucket; prefetch_elems says how much is gathered ahead",
           asked);
      return;
    }
    if (program_.buckets.size() != 1 || program_.buckets.front().params.size() < 2) return;
    const std::vector<int32_t>& params = program_.buckets.front().params;
    int64_t bytes = 0;
    for (size_t i = 0; i + 1 < params.size(); ++i) bytes += program_.params[params[i]].n_elems * int64_t{sizeof(float)};
    if (bytes >= asked)
      note(given->place,
           "strategy.data.bucket_bytes = {} changes nothing: the first bucket is closed by first_bucket_bytes and has "
           "all gradients; set first_bucket_bytes = {}",
           asked, asked);
  }

  const Model& described_;
  const Config& config_;
  const Model& local_;
  const std::span<const Program> programs_;
  const Program& program_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> idle_settings(const Model& described, const Config& config, const Model& local,
                                       std::span<const Program> programs) {
  return IdleSettings(described, config, local, programs).find();
}

}  // namespace gsel
