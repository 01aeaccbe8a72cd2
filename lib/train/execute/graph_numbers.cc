// train/execute/graph_numbers.cc: numbers of a step that a graph has on the device: keys of noise, and what the
// optimizer needs. Those that the host knows are copied before each run; the device computes the others from weights
// and squares.
#include <algorithm>

#include "base/random.h"
#include "train/execute/graphs.h"
#include "train/execute/instructions.h"

namespace gsel::execute {

void StepGraphs::make_memory(const Model& model, const Program& program, const HeldMemory& memory) {
  size_t calls = 0;
  for (size_t b = 0; b < program.buckets.size(); ++b)
    calls += Optimizer::most_calls(memory.params.layout(static_cast<int32_t>(b)).runs.size());
  factors_at_ = (model.layers().size() * sizeof(uint64_t) + 63) / 64 * 64;
  copied_bytes_ = factors_at_ + calls * GSEL_STEP_FACTOR_BYTES;
  on_host_ = Memory(device_, copied_bytes_, GSEL_MEMORY_PINNED);
  on_device_ = Memory(device_, copied_bytes_ + 2 * sizeof(double));
  const auto checks = static_cast<size_t>(
      std::ranges::count(program.step, InstrTask::check, [](const gsel_instr& instr) { return task_of(instr.kind); }));
  lists_ = Memory(device_,
                  program.microbatches.size() * sizeof(double*) + checks * program.buckets.size() * sizeof(int32_t) + 8,
                  GSEL_MEMORY_PINNED);
}

// The device has ended the run before.
void StepGraphs::begin_run(State& s) {
  launches_ = 0;
  launched_ = nullptr;
  if (!is_wanted_) return;
  auto* keys = static_cast<uint64_t*>(on_host_.data());
  const uint64_t key = s.run->rng_key(s);
  for (const Layer& layer : s.model.layers()) *keys++ = derive_key(key, layer.name);
  char* factors = on_host_.at(factors_at_);
  if (s.optimizer.has_graphs(*device_) && !s.run->evaluates())
    for (const gsel_instr& instr : s.program().step)
      if (task_of(instr.kind) == InstrTask::step && s.params.layout(instr.bucket).steps)
        factors = s.optimizer.write_factors(*device_, s.params.addresses(instr.bucket), s.updates, factors);
  device_->enqueue(&gsel_device_v1::copy, on_device_.data(), static_cast<const void*>(on_host_.data()), copied_bytes_,
                   int32_t{GSEL_COPY_TO_DEVICE});
}

bool StepGraphs::takes(State& s, const gsel_instr& instr) {
  if (!recorded_ && !launched_) return false;
  const InstrTask task = task_of(instr.kind);
  if (launched_) {
    if (task != InstrTask::loss && task != InstrTask::check) return true;
    if (task == InstrTask::check) s.squares.of_runs = launched_->squares[n_checks_++];
    return false;
  }
  if (task == InstrTask::check) {
    enqueue_squares(s, instr);
    recorded_->squares.push_back(s.squares.of_runs);
  }
  if (task == InstrTask::step) record_step(s, instr);
  return is_of_tail(instr);
}

// A bucket's squares are a group.
void StepGraphs::record_scale(State& s) {
  auto** weights = static_cast<const double**>(lists_.data());
  auto* ends = reinterpret_cast<int32_t*>(weights + s.run->fetched.size());
  gsel_update_scale scale{};
  scale.struct_size = sizeof scale;
  scale.weights = weights;
  scale.ends = ends;
  for (const int64_t first : s.run->fetched)
    if (first >= 0) weights[scale.n_weights++] = s.numbers.at(static_cast<size_t>(first) + 1);
  int32_t end = 0;
  for (const auto& of_runs : recorded_->squares) {
    if (!of_runs.empty() && !scale.squares) scale.squares = s.numbers.at(of_runs.front().second);
    scale.first_norm = scale.n_ends;
    for (size_t b = 0; b < s.buckets.size(); ++b) {
      end += static_cast<int32_t>(std::ranges::count(of_runs, b, &std::pair<size_t, size_t>::first));
      ends[scale.n_ends++] = end;
    }
  }
  scale.refuses_non_finite = s.non_finite != NonFinite::off;
  scale.loss_scale = s.loss_scale.value();
  scale.clip_norm = s.config.train.clip_norm;
  scale.out = reinterpret_cast<double*>(on_device_.at(copied_bytes_));
  device_->enqueue(&gsel_device_v1::update_scale, static_cast<const gsel_update_scale*>(&scale));
}

void StepGraphs::record_step(State& s, const gsel_instr& instr) {
  if (!next_factors_) {
    record_scale(s);
    next_factors_ = on_device_.at(factors_at_);
  }
  const int32_t b = instr.bucket;
  if (!s.params.layout(b).steps) return;
  if (s.params.whole_gradient(b)) zero_missing_gradients(s, b);
  next_factors_ = s.optimizer.step_in_graph(*device_, s.params.shard(b), next_factors_,
                                            reinterpret_cast<const double*>(on_device_.at(copied_bytes_)));
  s.params.done_with(b, true);
}

}  // namespace gsel::execute
