// train/query/state_dict.h: what a trainer holds between steps, by name: parameters as f32 (master copies where they
// are kept in 16 bits) and the optimizer's states, each with its shape in the model and the regions that this rank has
// under the program's placement. Reads and writes them in host memory, 8-bit states as the f32 values that they stand
// for. No names of buckets, stages or ranks, so that any other placement of the same model finds its own. The error
// feedback of low-rank compression differs by rank; its first dimension is the data rank. Does not know files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/region.h"
#include "train/execute/executor.h"
#include "train/optimize/byte_blocks.h"

namespace gsel {

// A tensor of the state; the same list on every rank. Elements are f32.
struct StateTensor {
  std::string name;  // "param:NAME", or of a state "exp_avg:NAME"
  int32_t param = 0;
  int32_t state = -1;  // index of the optimizer's state; -1: the parameter; or one of these
  std::vector<int64_t> shape;
  static constexpr int32_t kLowRankError = kMostStates, kLowRankFactor = kMostStates + 1;
};

// Elements of a tensor that this rank holds. They are consecutive in its memory, in the region's order.
struct StatePiece {
  int32_t tensor = 0;
  Region region;
  int32_t bucket = 0;
  bool is_of_shard = false;  // of what this rank steps of the bucket; else of the whole bucket
  int64_t first = 0;         // element there
  bool is_rounded = false;   // 16-bit parameters, which follow from the master copies: to be written, never read
  int32_t matrix = -1;       // of the low-rank states

  // Its elements [from, from + count).
  StatePiece some(int64_t from, int64_t count) const;
};

class StateDict {
 public:
  // All must outlive it. low_rank: the compressors' states; empty: none are listed. Supported on the data axis only.
  StateDict(ParamStorage& params, const DeviceContext& device, const Model& model, const Program& program,
            const Optimizer& optimizer, std::vector<LowRankState> low_rank = {});

  const std::vector<StateTensor>& tensors() const { return tensors_; }
  // All pieces that must be written before this rank can train. Each replica lists its own copy.
  const std::vector<StatePiece>& held() const { return held_; }
  // The pieces that this rank saves: each element of the state is in own() of exactly one rank. A pure function of the
  // program.
  std::vector<StatePiece> own() const;

  // Between steps. Copies region.count() elements to and from host memory; waits for the device. A block of an 8-bit
  // state is kept as f32 until all its elements are written. GSEL_ERR_MISMATCH: 8 bits cannot hold these values.
  void read(const StatePiece& piece, float* dst);
  void write(const StatePiece& piece, const float* src);
  bool is_in_bytes(const StatePiece& piece) const;
  // Of an 8-bit state. block_of: the elements of a held piece that share a scale with element `local`. can_hold:
  // whether 8 bits can hold these values.
  gsel_range block_of(const StatePiece& piece, int64_t local) const;
  bool can_hold(const StatePiece& block, const float* values) const;
  // Elements [first, first + count) of a whole tensor. read_own: copies those in own() to dst and leaves the rest of
  // dst unchanged. write_whole: copies all that this rank holds from src. Both return the number of elements copied.
  int64_t read_own(int32_t tensor, int64_t first, int64_t count, float* dst);
  int64_t write_whole(int32_t tensor, int64_t first, int64_t count, const float* src);
  // Between begin_writing and end_writing a bucket's memory, which may be on a disk, stays open until another bucket is
  // written. begin_writing forgets 8-bit blocks that were written in part.
  void begin_writing();
  void end_writing();

 private:
  void add_bucket(int32_t bucket);
  void add_params(int32_t bucket, const std::vector<int32_t>& params, bool is_rounded);
  void add_runs(int32_t bucket, int32_t state, bool is_rounded);
  void add_low_rank();
  void read_bytes(const StatePiece& piece, float* dst);
  void write_bytes(const StatePiece& piece, const float* src);
  const float* collect(const StatePiece& piece, const ByteBlock& block, int64_t at, int64_t count, const float* values);
  void encode(const StatePiece& piece, const ByteBlock& block, const float* values, uint8_t* codes, float& scale) const;
  // The codes and scales of a shard's state; calls with their addresses on the device.
  template <class Use>
  void with_bytes(const StatePiece& piece, bool writes, Use&& use);
  static gsel_range even_piece(const StatePiece& piece, int64_t copies, int64_t index);
  gsel_range own_range(const StatePiece& piece, int64_t copies, int64_t index) const;
  Region local_region(int32_t param) const;
  bool is_divided(const StatePiece& piece, gsel_axis axis) const;
  // Calls with the address of the piece's first element and its type there.
  template <class Use>
  void with_memory(const StatePiece& piece, bool writes, Use&& use);

  ParamStorage& params_;
  const DeviceContext& device_;
  const Model& model_;
  const Program& program_;
  const int32_t n_states_;
  const bool has_bytes_;
  const std::vector<LowRankState> low_rank_;
  std::vector<StateTensor> tensors_;
  std::vector<std::vector<int32_t>> tensor_of_;  // by parameter: of its values, then of each state
  std::vector<StatePiece> held_;
  void close_bucket();
  bool writes_many_ = false;
  int32_t open_bucket_ = -1;  // of begin_writing; its shard
  BucketShard open_;
  struct PartialBlock {
    float values[kByteBlock];
    int64_t written = 0;
  };
  std::map<std::array<int64_t, 3>, PartialBlock> partial_;  // by bucket, state and scale
};

// A collective: elements [first, first + count) of a whole tensor, on every rank that gives dst. tensor: its index.
void read_together(Communicator& comm, StateDict& state, int32_t tensor, int64_t first, int64_t count, float* dst);

}  // namespace gsel
