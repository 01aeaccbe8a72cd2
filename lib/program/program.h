// program/program.h: the program of one rank as data: an outline (mesh, model, micro-batches, buckets) and two lists of
// instructions, `setup`, run once, and `step`, run every step. It is self-contained, so that it can be printed, read
// back and checked without the model. Does not know memory, callbacks and plugins.
#pragma once

#include <gsel/program.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/shard.h"
#include "base/types.h"
#include "program/instruction.h"

namespace gsel {

struct ProgramParam {
  std::string name;
  int64_t n_elems = 0;
  gsel_dtype dtype = GSEL_F32;  // stored dtype
  bool trainable = true;
  int64_t rows = 1;               // first dimension, rows of the matrix for low-rank compression
  Shard shard = {};               // of the sharing axis; n_elems and rows are the shard's
  bool partial_gradient = false;  // whole, but each rank of the sharing axis has a summand of its gradient
  bool operator==(const ProgramParam&) const = default;
};

struct ProgramValue {
  std::string name;
  int64_t sample_bytes = 0;  // of one sample; of a scalar in total
  bool is_input = false;
  bool is_scalar = false;
  bool needs_gradient = false;
  Placement placement = Placement::replicate;
  Shard shard = {};             // dim counts the batch dimension as 0; sample_bytes is the shard's
  gsel_dtype dtype = GSEL_F32;  // undefined for a scalar

  int64_t bytes(int64_t samples) const { return sample_bytes * (is_scalar ? 1 : samples); }
  bool operator==(const ProgramValue&) const = default;
};

// A collective between the calls of a layer's callback.
struct ProgramPhase {
  gsel_axis axis = -1;
  int64_t bytes = 0;             // of its buffer
  int64_t bytes_per_sample = 0;  // additional bytes per sample
  gsel_dtype dtype = GSEL_F32;   // of its elements
  bool ring_shifts = false;      // shifts to the next coordinate of the axis instead of reducing
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
  int32_t stage = 0;           // of the pipeline
  bool redistributes = false;  // a library layer: changes its input's placement (program/redistribution.h)
  bool divided = false;        // has shards of values or parameters, so its gradients of whole parameters are partial
  bool weight_reads_params = false;  // backward_weight reads the same parameters as backward_input
  bool operator==(const ProgramLayer&) const = default;
};

// The samples of one micro-batch on this rank, a range of the step's global batch.
struct Microbatch {
  int64_t first = 0;
  int64_t count = 0;
  int32_t whole = -1;  // the micro-batch that this one is a shard of, or -1
  bool operator==(const Microbatch&) const = default;
};

// Parameters stored contiguously in this order, and how they are kept.
struct ProgramBucket {
  std::vector<int32_t> params;
  uint32_t flags = 0;   // GSEL_BUCKET_*
  gsel_axis axis = -1;  // of shards or owner
  int32_t owner = -1;   // coordinate of the only rank that steps, or -1
  int32_t compression = GSEL_COMPRESS_NONE;
  int32_t compression_rank = 0;
  int64_t compression_start = 0;

  bool shards_state() const { return flags & GSEL_BUCKET_SHARD_STATE; }
  bool shards_gradient() const { return flags & GSEL_BUCKET_SHARD_GRADIENT; }
  bool shards_param() const { return flags & GSEL_BUCKET_SHARD_PARAM; }
  StateLayout layout() const {
    return owner >= 0 ? StateLayout::owned : shards_state() ? StateLayout::sharded : StateLayout::replicated;
  }
  bool divides_state() const { return layout() != StateLayout::replicated; }
  bool operator==(const ProgramBucket&) const = default;
};

struct Mesh {
  std::array<int32_t, kAxes> size{1, 1, 1, 1};

  int32_t world_size() const;
  // The difference in rank between neighbouring coordinates of an axis.
  int32_t stride(gsel_axis axis) const;
  int32_t coordinate(int32_t rank, gsel_axis axis) const;
  // Ranks that differ from `rank` only on `axis`, by coordinate.
  std::vector<int32_t> group(int32_t rank, gsel_axis axis) const;
  // The axis whose ranks share layers, tensor or context; the other one has a single rank.
  gsel_axis sharing_axis() const { return size[GSEL_AXIS_CONTEXT] > 1 ? GSEL_AXIS_CONTEXT : GSEL_AXIS_TENSOR; }
  // Its size, and the coordinate of `rank`.
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
  std::vector<int32_t> rank_of_stage{0};  // pipeline rank of each stage
  // The most messages under way per ordered pair of ranks. A receive is posted when the one `transfers` before it has
  // been taken; a send waits until the one `transfers` before it has ended.
  int32_t transfers = kLeastTransfers;
  std::vector<gsel_instr> setup, step;
  // By position in `step`, on a device: see program/simulate/launch_order.h. Empty: receives are posted ahead, in any
  // order.
  std::vector<int64_t> launch_times;
  std::vector<std::string> notes;  // of the passes, for the user

  // Line of each instruction (setup, then step) if the program was read from text; else empty.
  std::vector<int32_t> lines;
};

bool equal(const Program& a, const Program& b);

// By micro-batch: its number for users. A whole micro-batch that is divided over ranks has the number of its shards.
std::vector<int32_t> microbatch_numbers(const Program& program);

gsel_instr make_instr(gsel_instr_kind kind);  // operands -1

// Checks the ids of an instruction and that it has the operands of its kind.
void check_instr(const Program& program, const gsel_instr& instr);

}  // namespace gsel
