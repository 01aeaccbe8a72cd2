// train/check/model_check.cc: see model_check.h.
#include "train/check/model_check.h"

#include <fmt/format.h>

#include "base/random.h"
#include "model/divide.h"
#include "model/views.h"
#include "train/state/storage.h"

namespace gsel::check {
namespace {

constexpr double kNoise = 0.1;  // added to initial zeros and ones, which hide many faults

class ModelCheck {
 public:
  ModelCheck(const std::shared_ptr<DeviceContext>& device, const Model& model, const gsel_model_check_options& options)
      : device_(device),
        options_(options),
        model_(divide(model, Division::none(model, {1.0}), 0)),
        caller_(device, findings_) {
    settings_.seed = options.seed ? options.seed : 1;
    settings_.skip = options.skip;
    settings_.differences = options.differences;
    for (int64_t i = 0; i < (options.n_samples ? options.n_samples : 3); ++i) ids_.push_back(options.first_sample + i);
    const int32_t ranks = options.tensor_ranks ? options.tensor_ranks : 2;
    if (ranks > 1) divided_ = divisions_of(model, ranks, findings_);
  }

  Findings run() {
    for (const Value& v : model_.values()) values_.push_back(make_value(v));
    for (const Layer& layer : model_.layers()) check(layer);
    if (options_.optimizer)
      check_optimizer(device_, model_, *options_.optimizer, settings_.seed, settings_.looks_for(GSEL_BREACH_PIECES),
                      findings_);
    return std::move(findings_);
  }

 private:
  Buffer make_value(const Value& v) {
    const auto id = static_cast<int32_t>(values_.size());
    Buffer value = make_buffer(GSEL_BUFFER_OUTPUT, id, v.name, value_tensor(v, n_samples(), nullptr));
    const DataSource data{options_.data, options_.data_user_data};
    if (!v.is_input() || !data.fill || !ask_for_data(device_, data, ids_, id, value, findings_)) draw(value);
    return value;
  }

  int64_t n_samples() const { return static_cast<int64_t>(ids_.size()); }
  void draw(Buffer& value) const {
    fill_random(value, derive_key(derive_key(settings_.seed, "values"), value.name), 1,
                options_.index_limit ? options_.index_limit : 2);
  }

  void fill_param(const Param& p, Buffer& to) const {
    std::vector<float> values(static_cast<size_t>(p.n_elems));
    make_initial(p, 0, values, settings_.seed);
    const bool is_constant = p.trainable() && (p.init == GSEL_INIT_ZEROS || p.init == GSEL_INIT_ONES);
    const uint64_t key = derive_key(derive_key(settings_.seed, "noise on parameters"), p.name);
    for (int64_t i = 0; i < p.n_elems; ++i)
      to.put(i, values[i] + (is_constant ? kNoise * random_normal(key, static_cast<uint64_t>(i)) : 0));
  }

  Member member_of(const Layer& layer) const {
    Member m(model_, layer, ids_);
    for (size_t i = 0; i < layer.params.size(); ++i)
      fill_param(model_.params()[layer.params[i]], m[GSEL_BUFFER_PARAM][i]);
    for (size_t i = 0; i < layer.inputs.size(); ++i) m[GSEL_BUFFER_INPUT][i].bytes = values_[layer.inputs[i]].bytes;
    return m;
  }

  void check(const Layer& layer) {
    if (layer.pull_only()) {
      findings_.note(fmt::format("layer \"{}\" has no callbacks and was not checked", layer.name));
      return;
    }
    LayerCheck check(caller_, settings_, member_of(layer));
    findings_.layer_checked();
    if (!check.check_forward()) return;  // layers after it read random numbers
    for (size_t i = 0; i < layer.outputs.size(); ++i)
      values_[layer.outputs[i]].bytes = check.member()[GSEL_BUFFER_OUTPUT][i].bytes;
    check.check_backward();
    for (const Divided& divided : divided_) check.check_shards(divided);
  }

  const std::shared_ptr<DeviceContext> device_;
  const gsel_model_check_options& options_;
  const Model model_;  // as one rank has it, undivided
  std::vector<Divided> divided_;
  Settings settings_;
  Findings findings_;
  Caller caller_;
  std::vector<int64_t> ids_;
  std::vector<Buffer> values_;
};

}  // namespace

Findings check_model(const std::shared_ptr<DeviceContext>& device, const Model& model,
                     const gsel_model_check_options& options) {
  return ModelCheck(device, model, options).run();
}

}  // namespace gsel::check
