// See random_program.h.
#include "support/random_program.h"

#include <algorithm>

#include "train/compile/base_program.h"

namespace made {

std::unique_ptr<Model> random_model(Random& random) {
  Maker make;
  std::vector<int32_t> values = {make.value(random.between(1, 90), GSEL_VALUE_INPUT)}, params;
  const int64_t n = random.between(2, 12);
  for (int64_t l = 0; l < n; ++l) {
    LayerSpec layer;
    for (int64_t i = random.between(1, 3); i-- > 0;) {
      const int32_t v = random.chance(60) ? values.back() : values[random.below(static_cast<int64_t>(values.size()))];
      if (std::ranges::find(layer.inputs, v) == layer.inputs.end()) layer.inputs.push_back(v);
    }
    for (int64_t i = random.between(0, 2); i-- > 0;) {
      if (params.empty() || random.chance(80)) {
        params.push_back(make.param(random.between(1, 400), random.chance(10) ? GSEL_PARAM_FROZEN : 0));
        layer.params.push_back(params.back());
      } else if (const int32_t p = params[random.below(static_cast<int64_t>(params.size()))];
                 std::ranges::find(layer.params, p) == layer.params.end()) {
        layer.params.push_back(p);
      }
    }
    for (int64_t i = random.between(1, 2); i-- > 0;) layer.outputs.push_back(make.value(random.between(1, 90)));
    values.insert(values.end(), layer.outputs.begin(), layer.outputs.end());
    layer.saved = random.chance(50) ? static_cast<uint64_t>(random.between(1, 300)) : 0;
    layer.flags = random.chance(60) ? GSEL_LAYER_RECOMPUTABLE : 0;
    layer.fused = random.chance(50);
    for (int bit : {0, 1, 2, 32, 33, 63}) {
      layer.input_unread |= uint64_t{random.chance(40)} << bit;
      layer.weight_unread |= uint64_t{random.chance(40)} << bit;
    }
    layer.unread_params = random.chance(30) ? 1 : 0;
    if (random.chance(15))
      layer.forward_phases.push_back({sizeof(gsel_phase), 0, GSEL_AXIS_DATA, GSEL_SUM, GSEL_F64, 0, 33, 0});
    if (random.chance(15))
      layer.backward_phases.push_back({sizeof(gsel_phase), 0, GSEL_AXIS_DATA, GSEL_SUM, GSEL_F32, 0, 5, 0});
    make.layer(layer);
  }
  return make.finish({values.back()});
}

namespace {

class RandomProgram {
 public:
  RandomProgram(const Model& model, const Config& config, Random& random)
      : model_(model), random_(random), ranks_(static_cast<int32_t>(random.between(1, 5))) {
    program_ = base_program(model, config, data_mesh(ranks_), static_cast<int32_t>(random.below(ranks_)));
  }

  Program make() {
    deal_buckets();
    const std::vector<gsel_instr> base = std::move(program_.step);
    program_.step.clear();
    for (size_t b = 0; b < program_.buckets.size(); ++b)
      if (program_.buckets[b].owner >= 0) begin(GSEL_INSTR_BROADCAST, b);
    int32_t mb = 0;
    for (const gsel_instr& instr : base) {
      if (instr.kind == GSEL_INSTR_STEP) continue;
      if (instr.microbatch > mb || instr.kind == GSEL_INSTR_LOSS_ALLREDUCE) {
        ++mb;
        end_microbatch();
      }
      callback(instr);
    }
    for (size_t b = 0; b < program_.buckets.size(); ++b) {
      if (!program_.buckets[b].shards_gradient())
        begin(program_.buckets[b].owner >= 0 ? GSEL_INSTR_REDUCE : GSEL_INSTR_ALLREDUCE, b);
      settle(b);
      if (open_[b]) release(b);
    }
    return std::move(program_);
  }

 private:
  void deal_buckets() {
    program_.buckets.clear();
    for (size_t p = 0; p < program_.params.size(); ++p) {
      if (!program_.params[p].trainable) continue;
      if (program_.buckets.empty() || random_.chance(50)) {
        program_.buckets.emplace_back();
        program_.buckets.back().axis = GSEL_AXIS_DATA;
        program_.buckets.back().flags = (1u << random_.below(4)) - 1;
        if (random_.chance(20)) {
          program_.buckets.back().flags = 0;
          program_.buckets.back().owner = static_cast<int32_t>(random_.below(ranks_));
        }
      }
      program_.buckets.back().params.push_back(static_cast<int32_t>(p));
    }
    busy_.assign(program_.buckets.size(), false);
    open_ = busy_;
    bucket_of_.assign(program_.params.size(), -1);
    for (size_t b = 0; b < program_.buckets.size(); ++b)
      for (int32_t p : program_.buckets[b].params) bucket_of_[p] = static_cast<int32_t>(b);
  }

  void emit(gsel_instr_kind kind, size_t bucket) {
    gsel_instr instr = make_instr(kind);
    instr.bucket = static_cast<int32_t>(bucket);
    if (kind != GSEL_INSTR_WAIT && kind != GSEL_INSTR_RELEASE) instr.axis = GSEL_AXIS_DATA;
    if (kind == GSEL_INSTR_BROADCAST || kind == GSEL_INSTR_REDUCE) instr.peer = program_.buckets[bucket].owner;
    program_.step.push_back(instr);
  }
  void begin(gsel_instr_kind kind, size_t b) {
    settle(b);
    emit(kind, b);
    busy_[b] = true;
    if (kind == GSEL_INSTR_ALLGATHER) open_[b] = true;
  }
  void settle(size_t b) {
    if (busy_[b]) emit(GSEL_INSTR_WAIT, b);
    busy_[b] = false;
  }
  void release(size_t b) {
    settle(b);
    emit(GSEL_INSTR_RELEASE, b);
    open_[b] = false;
  }

  void callback(const gsel_instr& instr) {
    const bool backward = instr.kind >= GSEL_BACKWARD_INPUT && instr.kind <= GSEL_BACKWARD;
    if (instr.kind == GSEL_FORWARD && random_.chance(50) && !model_.layers()[instr.layer].is_loss())
      owed_.push_back(instr);
    if (backward)
      for (size_t i = owed_.size(); i-- > 0;)
        if (owed_[i].layer == instr.layer || random_.chance(20)) {
          gsel_instr again = owed_[i];
          owed_.erase(owed_.begin() + static_cast<ptrdiff_t>(i));
          again.kind = GSEL_INSTR_RECOMPUTE;
          run(again);
          i = std::min(i, owed_.size());
        }
    run(instr);
  }

  void run(const gsel_instr& instr) {
    if (instr.layer < 0) return program_.step.push_back(instr);
    const Layer& layer = model_.layers()[instr.layer];
    std::vector<size_t> used;
    for (size_t i = 0; i < layer.params.size(); ++i) {
      const int32_t b = bucket_of_[layer.params[i]];
      if (b < 0) continue;
      const bool reads = layer.reads_param(instr.kind, i) && program_.buckets[b].shards_param();
      if (reads && !open_[b]) begin(GSEL_INSTR_ALLGATHER, static_cast<size_t>(b));
      settle(static_cast<size_t>(b));
      if (reads) used.push_back(static_cast<size_t>(b));
    }
    if (random_.chance(15) && !program_.buckets.empty()) {
      const auto ahead = static_cast<size_t>(random_.below(static_cast<int64_t>(program_.buckets.size())));
      if (program_.buckets[ahead].shards_param() && !open_[ahead]) begin(GSEL_INSTR_ALLGATHER, ahead);
    }
    for (int32_t p : layer.params)
      if (bucket_of_[p] >= 0) settle(static_cast<size_t>(bucket_of_[p]));
    program_.step.push_back(instr);
    for (size_t b : used)
      if (open_[b] && random_.chance(60)) release(b);
  }

  void end_microbatch() {
    owed_.clear();
    for (size_t b = 0; b < program_.buckets.size(); ++b)
      if (program_.buckets[b].shards_gradient()) begin(GSEL_INSTR_REDUCE_SCATTER, b);
  }

  const Model& model_;
  Random& random_;
  int32_t ranks_;
  Program program_;
  std::vector<int32_t> bucket_of_;
  std::vector<bool> busy_, open_;
  std::vector<gsel_instr> owed_;  // forwards to be run again
};

}  // namespace

Program random_program(const Model& model, const Config& config, Random& random) {
  return RandomProgram(model, config, random).make();
}

}  // namespace made
