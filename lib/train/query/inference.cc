// train/query/inference.cc: see inference.h. A rank that failed still gives the others its shard; then all ranks agree
// on the failure.
#include "train/query/inference.h"

#include <array>

#include "base/error.h"
#include "model/views.h"
#include "program/forward_programs.h"

namespace gsel {
namespace {

constexpr uint64_t kTextBytes = 2048;  // of a broadcast failure text

std::vector<int64_t> dims_of(const Value& value, int64_t n_samples) {
  if (value.is_scalar()) return {};
  std::vector<int64_t> dims = value.whole_dims;
  dims.insert(dims.begin(), n_samples);
  return dims;
}

}  // namespace

Inference::Inference(Executor& executor, const Model& model, const Model& described, const Program& program,
                     int32_t value, int64_t n_samples)
    : executor_(executor),
      model_(model),
      described_(described),
      training_(program),
      value_(value),
      n_samples_(n_samples) {
  for (int32_t l : layers_up_to(program, value))
    if (model.layers()[l].pull_only())
      fail(GSEL_ERR_STATE, "layer \"{}\" has no callbacks; inference pushes", model.layers()[l].name);
  const Value& wanted = model.values()[value];
  whole_.emplace(executor, dims_of(wanted, n_samples), wanted.shard, wanted.dtype,
                 pipeline_rank_of_value(program, value));
  std::optional<Error> failure;
  try {
    prepare();
  } catch (...) {
    failure = current_error();
  }
  // If this rank has no memory, the others must not wait for it.
  const auto failed = static_cast<int32_t>(executor.largest_of_replica(failure ? 1 + program.rank : 0)) - 1;
  if (failure) throw Error(*failure);
  if (failed >= 0)
    throw Error(GSEL_ERR_PEER, fmt::format("rank {} could not begin the inference; its own error says why", failed))
        .about_rank(failed);
}

// What needs no other rank.
void Inference::prepare() {
  program_ = forward_to(training_, value_, n_samples_);
  run_ = executor_.make_inference(program_);
  if (run_->plan.bytes() > executor_.arena().bytes())
    own_ = CountedMemory(executor_.device(), executor_.ledger(), MemoryPart::staging, run_->plan.bytes());
  room_ = CountedMemory(executor_.device(), executor_.ledger(), MemoryPart::staging, whole_->room_bytes());
}

bool Inference::is_alone() const {
  return executor_.axis_size(executor_.sharing_axis()) == 1 && executor_.axis_size(GSEL_AXIS_PIPELINE) == 1;
}

void Inference::run(const DataSource& data, uint64_t rng_key, void* dst) {
  const CountedMemory& memory = own_.bytes() ? own_ : executor_.arena();
  executor_.begin_inference(*run_, memory, rng_key);
  push(executor_, described_, data);
  agree_on_failure(executor_.end_inference(*run_));
  void* local = run_->result(value_);
  if (local && model_.values()[value_].placement == Placement::partial) sum_up(local);
  whole_->gather(local, room_.data(), dst);
}

void Inference::sum_up(void* local) const {
  if (executor_.axis_size(executor_.sharing_axis()) == 1) return;
  const Value& value = model_.values()[value_];
  const auto elems = static_cast<uint64_t>(value_elems(value, n_samples_));
  executor_.axis_comm(executor_.sharing_axis())
      .collective(make_collective(GSEL_COLLECTIVE_ALLREDUCE, local, local, elems, value.dtype, GSEL_SUM),
                  executor_.device()->compute());
}

// Throws the failure of this rank, or the reported failure of another rank of the replica.
void Inference::agree_on_failure(const std::optional<Error>& failure) {
  if (!is_alone()) {
    const auto rank = static_cast<int32_t>(executor_.largest_of_replica(failure ? 1 + training_.rank : 0)) - 1;
    if (rank < 0) return;
    const std::string text = broadcast_text(failure ? failure->message() : "", rank);
    if (!failure) throw Error(GSEL_ERR_PEER, fmt::format("rank {}: {}", rank, text)).about_rank(rank);
  }
  if (failure) throw Error(*failure);
}

// Broadcasts the text of the failed rank over the replica: along its sharing axis, then along the pipeline.
std::string Inference::broadcast_text(const std::string& text, int32_t rank) {
  std::array<char, kTextBytes> line{};
  text.copy(line.data(), line.size() - 1);
  const int32_t pipeline_rank = training_.mesh.coordinate(rank, GSEL_AXIS_PIPELINE);
  auto broadcast = [&](gsel_axis axis) {
    if (executor_.axis_size(axis) > 1)
      executor_.axis_comm(axis).collective_on_host(make_collective(GSEL_COLLECTIVE_BROADCAST, line.data(), line.data(),
                                                                   line.size(), GSEL_U8, 0,
                                                                   training_.mesh.coordinate(rank, axis)));
  };
  if (executor_.axis_coordinate(GSEL_AXIS_PIPELINE) == pipeline_rank) broadcast(executor_.sharing_axis());
  broadcast(GSEL_AXIS_PIPELINE);
  line.back() = '\0';
  return line.data();
}

}  // namespace gsel
