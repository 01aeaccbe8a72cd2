// train/report/traffic_notes.cc: see traffic_notes.h.
#include "train/report/traffic_notes.h"

#include "base/types.h"
#include "program/shards.h"
#include "program/traffic.h"
#include "train/memory/ledger.h"

namespace gsel {
namespace {

constexpr int64_t kGradientBytes = sizeof(float);

uint64_t bytes_along(const Traffic& traffic, gsel_axis axis) {
  uint64_t bytes = 0;
  for (const auto& [key, count] : traffic) bytes += key.first == axis ? count.bytes_sent : 0;
  return bytes;
}

// Bytes of one reduce-scatter of gradients and one all-gather of parameters.
uint64_t bytes_with_whole_gradients(const Program& program, int32_t b) {
  const ProgramBucket& bucket = program.buckets[b];
  const gsel_range own = own_shard(program, b);
  const int64_t elems = padded_elems(program, b), kept = own.end - own.begin;
  const auto param_bytes = static_cast<int64_t>(dtype_bytes(program.params[bucket.params.front()].dtype));
  return static_cast<uint64_t>((elems - kept) * kGradientBytes +
                               (program.mesh.size[bucket.axis] - 1) * kept * param_bytes);
}

std::string along_axes(const Program& program, const Traffic& traffic) {
  std::string text;
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    if (const uint64_t bytes = bytes_along(traffic, axis); program.mesh.size[axis] > 1)
      text += fmt::format("{}{} along the {} axis", text.empty() ? "" : ", ", human_bytes(bytes), axis_name(axis));
  return text;
}

}  // namespace

std::vector<std::string> traffic_notes(const Program& program) {
  const Traffic traffic = step_traffic(program);
  std::vector<std::string> notes;
  if (const std::string text = along_axes(program, traffic); !text.empty())
    notes.push_back(fmt::format("forecast: a step of rank {} sends {}", program.rank, text));
  uint64_t once = 0;
  gsel_axis axis = -1;
  for (size_t b = 0; b < program.buckets.size(); ++b) {
    if (!program.buckets[b].shards_gradient()) continue;
    axis = program.buckets[b].axis;
    once += bytes_with_whole_gradients(program, static_cast<int32_t>(b));
  }
  if (axis >= 0 && program.mesh.size[axis] > 1 && program.mesh.size[GSEL_AXIS_PIPELINE] > 1)
    notes.push_back(
        fmt::format("forecast: gradients in shards over a pipeline are reduced for each micro-batch; whole gradients "
                    "would be reduced once per step and send {} along the {} axis",
                    human_bytes(once), axis_name(axis)));
  return notes;
}

}  // namespace gsel
