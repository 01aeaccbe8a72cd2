// train/state/storage.h: memory of parameters with their gradients and optimizer state. Each bucket is contiguous, so
// that a collective or an optimizer step works on one range and no gradient is ever copied. train/state/layout.h gives
// the sizes. A window holds what is whole only temporarily, in memory of the arena.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/config.h"
#include "device/device.h"
#include "model/model.h"
#include "program/program.h"
#include "train/memory/offload.h"
#include "train/state/offloaded_steps.h"

namespace gsel {

class ParamStorage {
 public:
  // Allocates what is kept, states zero, and with offload_buffer > 0 buffers of so many bytes through which offloaded
  // buckets are stepped. The ledger must outlive it. GSEL_ERR_NOMEM, errors of OffloadMemory.
  ParamStorage(std::shared_ptr<DeviceContext> device, const Model& model, const Program& program, const Config& config,
               const Optimizer& optimizer, uint64_t offload_buffer, Ledger& ledger);
  ParamStorage(const ParamStorage&) = delete;
  ParamStorage& operator=(const ParamStorage&) = delete;

  // Writes the initial values, keyed by (seed, name, element). Generates only what this rank keeps.
  void initialise(uint64_t seed);
  // Repeats this for whole parameters with the embedder's initialisers, and gives all ranks the values of one rank:
  // `broadcast` sends each chunk. is_root: this is that rank.
  void initialise_alike(uint64_t seed, bool is_root, const std::function<void(std::span<float>)>& broadcast);
  static constexpr int64_t kChunkElems = 1 << 16;

  const BucketLayout& layout(int32_t bucket) const { return blocks_[bucket].layout; }
  // Bucket of a parameter; frozen parameters follow the program's buckets. -1: on another pipeline rank.
  int32_t bucket_of(int32_t p) const { return homes_[p].block; }
  bool is_here(int32_t p) const { return homes_[p].block >= 0; }
  int64_t first_of(int32_t p) const { return homes_[p].first; }  // in its bucket

  // A parameter of this rank, in layout().dtype; nullptr while its window is closed.
  void* param(int32_t p) const;
  float* gradient(int32_t p) const;  // the same; also nullptr when frozen
  // A whole bucket with padding: [layout().padded]. nullptr while its window is closed.
  void* whole_params(int32_t bucket) const { return blocks_[bucket].whole_params; }
  float* whole_gradient(int32_t bucket) const { return blocks_[bucket].whole_gradient; }

  // Windows, in memory of [layout().param_window_bytes] and [gradient_window_bytes] that stays until they are closed.
  // Parameters are undefined until a collective writes them; a gradient's padding is zero, the rest undefined.
  void open_params(int32_t bucket, void* memory);
  void close_params(int32_t bucket);
  void open_gradient(int32_t bucket, void* memory);
  void close_gradient(int32_t bucket);

  // All windows, by bucket: parameters and gradient.
  using Windows = std::vector<std::pair<void*, float*>>;
  Windows windows() const;
  void set_windows(const Windows& windows);

  // Before an in-place gather: copies this rank's shard into the open window; nothing if parameters are kept whole. The
  // copy is queued on the stream; from offload memory it is done on return.
  void place_shard(int32_t bucket, gsel_stream* stream);
  // This rank's shard of the gradient, [layout().own_elems()]: the result of a reduction into it, or inside the
  // whole gradient. nullptr if another rank owns the bucket.
  float* own_gradient(int32_t bucket) const;
  // Parameters in this rank's shard.
  std::span<const ParamRun> runs(int32_t bucket) const { return blocks_[bucket].layout.runs; }

  // What this rank steps of a bucket, valid until done_with. Also reads exact values between steps: `values` is the
  // master copy if parameters are kept in 16 bits. Not for a bucket that another rank owns.
  BucketShard shard(int32_t bucket);
  void done_with(int32_t bucket, bool written);
  // The same for a training step. Where offloaded buckets are stepped in pieces, the arrays are accessed only through
  // `launch`, see OffloadedSteps. addresses: where the arrays are, without access to them.
  struct Stepped {
    BucketShard shard;
    Optimizer::StepLaunch launch;
  };
  void begin_step();
  Stepped shard_to_step(int32_t bucket);
  void done_stepping(int32_t bucket);
  BucketShard addresses(int32_t bucket) const;
  // On which offloaded buckets are read and written.
  std::vector<gsel_stream*> offload_streams() const;
  // Visits each array of this rank's parameters in a bucket, to be overwritten with another rank's.
  template <class Visit>
  void rewrite_params(int32_t bucket, Visit&& visit) {
    for (Kept* kept : {&blocks_[bucket].kept_params, &blocks_[bucket].master}) {
      if (!kept->bytes()) continue;
      settle_steps(bucket);
      visit(kept->begin_use(), kept->bytes());
      kept->end_use(true);
    }
  }

  // Bytes moved so far.
  uint64_t offload_bytes_in() const;
  uint64_t offload_bytes_out() const;

 private:
  // An array in device or offload memory.
  struct Kept {
    CountedMemory near;
    OffloadedArray far;
    void* data() const { return near.data() ? near.data() : far.data(); }
    void* begin_use() { return near.data() ? near.data() : far.begin_use(); }
    void end_use(bool written) { far.end_use(written); }
    uint64_t bytes() const { return near.bytes() + far.bytes(); }
  };
  struct Block {
    BucketLayout layout;
    std::vector<int32_t> params;
    Kept kept_params, master, states[kMostStates];
    CountedMemory kept_gradient;
    void* whole_params = nullptr;     // kept, or an open window
    float* whole_gradient = nullptr;  // the same
  };
  struct Home {
    int32_t block = -1;
    int64_t first = 0;
  };

  // Waits until steps have written a bucket to offload memory.
  void settle_steps(int32_t bucket) {
    if (offloaded_steps_ && offloaded_steps_->has(bucket)) offloaded_steps_->settle();
  }
  Kept make(bool is_offloaded, MemoryPart near, MemoryPart far, uint64_t bytes, Ledger& ledger);
  void make_block(const BucketLayout& layout, const std::vector<int32_t>& params, Ledger& ledger);
  void initialise_block(Block& block, uint64_t seed);
  // Where a block's initial values go: `params` has the elements in `kept`.
  struct Beginning {
    char *params, *master;
    gsel_range kept;
  };
  Beginning begin_initial(Block& block) const;
  void end_initial(Block& block) const;
  void write_initial(const Block& block, int64_t first, std::span<const float> values, const Beginning& to) const;
  void zero(void* data, uint64_t bytes) const;
  uint64_t kept_bytes(const Block& block, int64_t elems) const;

  std::shared_ptr<DeviceContext> device_;
  const Model& model_;
  std::optional<OffloadMemory> offload_;  // before its arrays in blocks_
  std::vector<Home> homes_;               // by parameter
  std::vector<Block> blocks_;             // by bucket; then frozen parameters
  std::unique_ptr<OffloadedSteps> offloaded_steps_;
};

// ---- initial values of parameters ----------------------------------------------------------------------------------

// Keyed by (seed, name, element), so that any rank can make any shard of a parameter.

// values: this rank's elements of a parameter, from `first` on. GSEL_ERR_CALLBACK when an embedder's initialiser fails.
void make_initial(const Param& param, int64_t first, std::span<float> values, uint64_t seed);

}  // namespace gsel
