// program/program.cc: see program.h. Printing and parsing are in words/ and text/.
#include "program/program.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <tuple>

namespace gsel {
namespace {

bool same(const gsel_instr& a, const gsel_instr& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

int32_t Mesh::world_size() const {
  return std::accumulate(size.begin(), size.end(), 1, std::multiplies<>());
}

int32_t Mesh::stride(gsel_axis axis) const {
  int32_t ranks = 1;
  for (const gsel_axis inner : kInnerToOuter) {
    if (inner == axis) break;
    ranks *= size[inner];
  }
  return ranks;
}

int32_t Mesh::coordinate(int32_t rank, gsel_axis axis) const {
  return rank / stride(axis) % size[axis];
}

std::vector<int32_t> Mesh::group(int32_t rank, gsel_axis axis) const {
  const int32_t distance = stride(axis), first = rank - coordinate(rank, axis) * distance;
  std::vector<int32_t> ranks(size[axis]);
  for (int32_t i = 0; i < size[axis]; ++i) ranks[i] = first + i * distance;
  return ranks;
}

std::vector<int32_t> microbatch_numbers(const Program& program) {
  std::vector<int32_t> numbers(program.microbatches.size());
  int32_t next = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int32_t whole = program.microbatches[i].whole;
    if (whole < 0) continue;
    numbers[static_cast<size_t>(whole)] = numbers[i] = next++;
  }
  if (next == 0)
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
  return numbers;
}

bool equal(const Program& a, const Program& b) {
  return std::tie(a.rank, a.mesh, a.params, a.values, a.layers, a.microbatches, a.buckets, a.rank_of_stage,
                  a.transfers) == std::tie(b.rank, b.mesh, b.params, b.values, b.layers, b.microbatches, b.buckets,
                                           b.rank_of_stage, b.transfers) &&
         std::ranges::equal(a.setup, b.setup, same) && std::ranges::equal(a.step, b.step, same);
}

gsel_instr make_instr(gsel_instr_kind kind) {
  return {kind, -1, -1, -1, -1, -1, -1, 0};
}

void check_instr(const Program& program, const gsel_instr& instr) {
  const InstrRow* row = find_instr_row(instr.kind);
  if (!row) fail(GSEL_ERR_PROGRAM, "instruction kind {} does not exist", instr.kind);
  auto check = [&](bool needed, const char* operand, int32_t id, size_t limit) {
    if (needed ? id < 0 || static_cast<size_t>(id) >= limit : id != -1)
      fail(GSEL_ERR_PROGRAM, "{} has {} {}; {}", row->word, operand, id,
           needed ? fmt::format("0 to {} exist", static_cast<int64_t>(limit) - 1) : "it takes none");
  };
  check(row->layer, "layer", instr.layer, program.layers.size());
  check(row->value, "value", instr.value, program.values.size());
  check(row->microbatch, "micro-batch", instr.microbatch, program.microbatches.size());
  check(row->bucket, "bucket", instr.bucket, program.buckets.size());
  check(row->axis, "axis", instr.axis, kAxes);
  // peer: a coordinate on the axis, or a rank if there is no axis.
  check(row->peer, "peer", instr.peer,
        static_cast<size_t>(row->axis ? program.mesh.size[instr.axis] : program.mesh.world_size()));
  if (instr.flags & ~row->flags) fail(GSEL_ERR_PROGRAM, "{} has unknown flags {:#x}", row->word, instr.flags);
}

}  // namespace gsel
