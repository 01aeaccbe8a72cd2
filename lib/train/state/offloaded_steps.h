// train/state/offloaded_steps.h: steps of buckets whose state, or parameters, are in page-locked memory of the host. An
// update rule works element by element, so a bucket is stepped in pieces, which an OffloadPipe brings to the device and
// back. Of the next step's pieces the first are read while it computes; the last of this step are written back while
// the next one does.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "train/memory/offload_pipe.h"
#include "train/state/layout.h"

namespace gsel {

class OffloadedSteps {
 public:
  // shard_of: addresses of a bucket's arrays, which stay. Buckets are stepped in the program's order. GSEL_ERR_NOMEM.
  OffloadedSteps(std::shared_ptr<DeviceContext> device, Ledger& ledger, const Program& program,
                 const Optimizer& optimizer, const std::vector<BucketLayout>& layouts, uint64_t buffer_bytes,
                 const std::function<BucketShard(int32_t)>& shard_of);

  void begin_step() { pipe_->begin(); }
  // Whether a bucket is stepped in pieces.
  bool has(int32_t bucket) const { return buckets_[static_cast<size_t>(bucket)].piece_elems > 0; }
  // For Optimizer::step and step_in_graph of a bucket that is stepped in pieces; the arrays are written some time
  // later.
  Optimizer::StepLaunch launch_of(int32_t bucket);
  // Makes the stream wait until a bucket's arrays are written.
  void hold(int32_t bucket, gsel_stream* stream) const;
  // The host waits until all arrays are written.
  void settle() { pipe_->settle(); }
  std::array<gsel_stream*, 2> streams() const { return pipe_->streams(); }

  uint64_t bytes_in() const { return pipe_->bytes_in; }
  uint64_t bytes_out() const { return pipe_->bytes_out; }

 private:
  struct Bucket {
    Bucket(const BucketLayout& l, const std::shared_ptr<DeviceContext>& device) : layout(l), written(device) {}
    BucketLayout layout;
    int64_t piece_elems = 0;  // 0: not stepped in pieces
    Event written;
    bool is_written = false;  // the event has been recorded
  };
  void launch(Bucket& bucket, const gsel_optimizer_step& call);

  const std::shared_ptr<DeviceContext> device_;
  const bool has_8bit_states_;
  std::vector<Bucket> buckets_;
  std::unique_ptr<OffloadPipe> pipe_;
};

// Bytes of one buffer of the pipe. All buffers together have at most `most` bytes, unless one of 256 elements needs
// more. 0: nothing is stepped in pieces. most 0: the device works in page-locked memory in place, as it does for an
// embedder's optimizer and for optimistic steps, which are undone.
uint64_t offload_buffer_bytes(const Program& program, const Optimizer& optimizer,
                              const std::vector<BucketLayout>& layouts, uint64_t most);

}  // namespace gsel
