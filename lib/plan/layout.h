// plan/layout.h: one candidate: the mesh of ranks, and how a step runs on it. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gsel::plan {

enum class Recompute : uint8_t { none, selective, full };  // selective: only the attention core
enum class Offload : uint8_t { none, state, all };  // to host memory; state: of the optimizer; all: also parameters
enum class ScheduleKind : uint8_t { gpipe, one_f_one_b, interleaved, zb_h1 };

struct Layout {
  int32_t tensor = 1, context = 1, data = 1, pipeline = 1;
  int32_t zero_stage = 0;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int32_t chunks = 1;  // stages per rank; above 1 if interleaved
  Recompute recompute = Recompute::none;
  Offload offload = Offload::none;
  bool sequence_parallel = false;
  uint64_t excluded = 0;     // from the tensor axis: a bit for each unit of the workload
  int64_t microbatch = 1;    // samples
  int64_t microbatches = 1;  // per replica and step

  int32_t ranks() const { return tensor * context * data * pipeline; }
  int64_t batch() const { return microbatch * microbatches * data; }  // samples per step
  bool operator==(const Layout&) const = default;
};

// How unequal devices divide the work, by their speed; empty: equally.
struct Shares {
  std::vector<int64_t> stage_layers;
  std::vector<double> data_weights, tensor_weights;
};

// As in gsel.toml.
inline const char* name_of(Recompute recompute) {
  return std::array{"none", "selective", "all"}[static_cast<size_t>(recompute)];
}
inline const char* name_of(Offload offload) {
  return std::array{"none", "state", "all"}[static_cast<size_t>(offload)];
}
inline const char* name_of(ScheduleKind schedule) {
  return std::array{"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"}[static_cast<size_t>(schedule)];
}

}  // namespace gsel::plan
