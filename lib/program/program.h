// program/program.h: the program of one rank as data: an outline (mesh, model, micro-batches, buckets), which says what
// it works on, and two lists of instructions, `setup` run once and `step` run every step. It is self-contained, so that
// it can be printed, read back and checked without the model. Does not know memory, callbacks and plugins.
#pragma once

#include <gsel/program.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/axis.h"
#include "base/error.h"
#include "base/shard.h"
#include "program/instruction.h"

namespace gsel {

struct ProgramParam {
  std::string name;
  int64_t n_elems = 0;
  gsel_dtype dtype = GSEL_F32;  // as it is kept
  bool trainable = true;
  int64_t rows = 1;  // its first dimension: what low-rank compression takes for a matrix's
  Shard shard = {};  // of it that this rank of the sharing axis has; n_elems and rows are of that
  bool partial_gradient =
      false;  // whole, and each rank of the sharing axis has a part of every sum that is its gradient
  bool operator==(const ProgramParam&) const = default;
};

struct ProgramValue {
  std::string name;
  int64_t sample_bytes = 0;  // of one sample; of the whole where it is a scalar
  bool is_input = false;
  bool is_scalar = false;
  bool needs_gradient = false;
  Placement placement = Placement::replicate;
  Shard shard = {};             // dim counts the batch dimension as 0; sample_bytes is of what is here
  gsel_dtype dtype = GSEL_F32;  // of its elements; says nothing of a scalar
  bool operator==(const ProgramValue&) const = default;
};

// A collective in the middle of a layer's callback.
struct ProgramPhase {
  gsel_axis axis = -1;
  int64_t bytes = 0;             // of its buffer
  int64_t bytes_per_sample = 0;  // and for each sample
  gsel_dtype dtype = GSEL_F32;   // of its elements
  bool ring_shifts = false;      // not reduced but shifted to the next coordinate of the axis
  bool operator==(const ProgramPhase&) const = default;
};

struct ProgramLayer {
  std::string name;
  std::vector<int32_t> inputs, outputs, params;
  bool is_loss = false;
  bool needs_backward_input = false;
  bool needs_backward_weight = false;
  uint64_t backward_unread_params = 0;  // bit i: no backward reads params[i]
  std::vector<ProgramPhase> forward_phases, backward_phases;
  int32_t stage = 0;  // of the pipeline
  bool redistributes =
      false;  // the library's: from the placement of its one input to that of its one output (program/redistribution.h)
  bool divided = false;  // has parts of values or parameters, and contributes parts of gradients to whole ones
  bool weight_reads_params = false;  // backward_weight reads those that are not unread, as backward_input does
  bool operator==(const ProgramLayer&) const = default;
};

// Samples of one micro-batch on this rank, as a range of the step's global batch.
struct Microbatch {
  int64_t first = 0;
  int64_t count = 0;
  int32_t whole = -1;  // the micro-batch this one is a part of, or -1
  bool operator==(const Microbatch&) const = default;
};

// Parameters stored side by side, in this order, and how they are kept.
struct ProgramBucket {
  std::vector<int32_t> params;
  uint32_t flags = 0;   // GSEL_BUCKET_*
  gsel_axis axis = -1;  // of shards and owner
  int32_t owner = -1;   // coordinate on the axis of the one rank that steps, or -1
  int32_t compression = GSEL_COMPRESS_NONE;
  int32_t compression_rank = 0;
  int64_t compression_start = 0;

  bool shards_state() const { return flags & GSEL_BUCKET_SHARD_STATE; }
  bool shards_gradient() const { return flags & GSEL_BUCKET_SHARD_GRADIENT; }
  bool shards_param() const { return flags & GSEL_BUCKET_SHARD_PARAM; }
  bool operator==(const ProgramBucket&) const = default;
};

struct Mesh {
  std::array<int32_t, kAxes> size{1, 1, 1, 1};

  int32_t world_size() const;
  // Ranks from one coordinate of an axis to the next.
  int32_t stride(gsel_axis axis) const;
  int32_t coordinate(int32_t rank, gsel_axis axis) const;
  // Ranks that differ from `rank` on `axis` alone, in order of their coordinates.
  std::vector<int32_t> group(int32_t rank, gsel_axis axis) const;
  // The axis whose ranks share layers: tensor or context, of which one has a single rank.
  gsel_axis sharing_axis() const { return size[GSEL_AXIS_CONTEXT] > 1 ? GSEL_AXIS_CONTEXT : GSEL_AXIS_TENSOR; }
  // How many of them there are, and which of them `rank` is.
  int32_t sharing_size() const { return size[sharing_axis()]; }
  int32_t sharing_index(int32_t rank) const { return coordinate(rank, sharing_axis()); }
  bool operator==(const Mesh&) const = default;
};

inline constexpr int32_t kLeastTransfers = 2;

struct Program {
  int32_t rank = 0;
  Mesh mesh;
  std::vector<ProgramParam> params;
  std::vector<ProgramValue> values;
  std::vector<ProgramLayer> layers;
  std::vector<Microbatch> microbatches;
  std::vector<ProgramBucket> buckets;
  std::vector<int32_t> rank_of_stage{0};  // on the pipeline axis
  // Messages of an ordered pair of ranks that are under way at most: a receive is posted when the one this many before
  // it has been taken, a send waits until the one this many before it has left.
  int32_t transfers = kLeastTransfers;
  std::vector<gsel_instr> setup, step;
  std::vector<std::string> notes;  // of the passes, for people

  // Line of each instruction in the text it was read from, setup then step; empty for a compiled program.
  std::vector<int32_t> lines;
};

bool equal(const Program& a, const Program& b);

// By micro-batch, its number among those of a step as people count them: a whole one, of which each rank has a part,
// has the number of its parts.
std::vector<int32_t> microbatch_numbers(const Program& program);

gsel_instr make_instr(gsel_instr_kind kind);  // operands -1

// One instruction as it stands in the text: "forward layer=embed mb=0".
std::string to_text(const Program& program, const gsel_instr& instr);
// "rank 1, step instruction 12 (line 40): forward layer=embed mb=0".
std::string where(const Program& program, bool in_setup, size_t position);

std::string to_text(const Program& program);
// A table, for people, of the placements of parameters and values on the sharing axis, tensor or context, and of the
// redistributions between them.
std::string placements_table(const Program& program);
Program parse_program(std::string_view text, const std::string& file);

// Checks the ids an instruction names and that it has the operands its kind needs.
void check_instr(const Program& program, const gsel_instr& instr);

}  // namespace gsel
