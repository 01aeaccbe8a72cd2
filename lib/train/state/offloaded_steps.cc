// train/state/offloaded_steps.cc: see offloaded_steps.h.
#include "train/state/offloaded_steps.h"

#include <algorithm>
#include <utility>

#include "base/align.h"
#include "base/types.h"
#include "program/optimistic.h"
#include "train/optimize/byte_blocks.h"

namespace gsel {
namespace {

// Visits the arrays of a call that are in offload memory: visit(field of the call, bytes of `count` elements).
template <class Visit>
void visit_offloaded(const BucketLayout& layout, bool has_8bit_states, uint64_t count, gsel_optimizer_step& call,
                     Visit&& visit) {
  const bool values = layout.dtype == GSEL_F32 ? layout.offload_params : layout.offload_state;
  if (values) visit(call.param, count * sizeof(float));
  if (layout.offload_params && call.param16) visit(call.param16, count * sizeof(uint16_t));
  if (!layout.offload_state) return;
  for (float** state : {&call.state0, &call.state1})
    if (*state) visit(*state, has_8bit_states ? count : count * sizeof(float));
  for (float** scales : {&call.scale0, &call.scale1})
    if (*scales) visit(*scales, (count + kByteBlock - 1) / kByteBlock * sizeof(float));
}

// Elements [first, ...) of a call; first is a multiple of kByteBlock.
gsel_optimizer_step piece_of(const gsel_optimizer_step& call, int64_t first, uint64_t count, bool has_8bit_states) {
  gsel_optimizer_step piece = call;
  piece.param += first;
  piece.gradient += first;
  if (piece.param16) piece.param16 = static_cast<uint16_t*>(piece.param16) + first;
  for (float** state : {&piece.state0, &piece.state1})
    if (*state)
      *state = has_8bit_states ? reinterpret_cast<float*>(reinterpret_cast<char*>(*state) + first) : *state + first;
  for (float** scales : {&piece.scale0, &piece.scale1})
    if (*scales) *scales += first / kByteBlock;
  piece.count = count;
  return piece;
}

template <class Visit>
void visit_pieces(const gsel_optimizer_step& call, int64_t piece_elems, bool has_8bit_states, Visit&& visit) {
  const auto count = static_cast<int64_t>(call.count);
  for (int64_t first = 0; first < count; first += piece_elems)
    visit(piece_of(call, first, static_cast<uint64_t>(std::min(piece_elems, count - first)), has_8bit_states));
}

// What elements of the layout take in a buffer.
uint64_t bytes_of_elems(const BucketLayout& layout, const Optimizer& optimizer, int64_t elems) {
  static float any;
  gsel_optimizer_step call{};
  call.param = &any;
  if (layout.dtype != GSEL_F32) call.param16 = &any;
  float** const states[] = {&call.state0, &call.state1};
  float** const scales[] = {&call.scale0, &call.scale1};
  for (int i = 0; i < optimizer.n_states(); ++i) {
    *states[i] = &any;
    if (optimizer.has_8bit_states()) *scales[i] = &any;
  }
  uint64_t bytes = 0;
  visit_offloaded(layout, optimizer.has_8bit_states(), static_cast<uint64_t>(elems), call,
                  [&](auto*&, uint64_t array) { bytes += round_up(array, kTensorAlign); });
  return bytes;
}

// As many blocks as fit; what is rounded up for an array is less than 128 elements.
int64_t piece_elems_of(const BucketLayout& layout, const Optimizer& optimizer, uint64_t buffer) {
  const uint64_t block = std::max<uint64_t>(1, bytes_of_elems(layout, optimizer, kByteBlock));
  const int64_t blocks = std::max<int64_t>(1, static_cast<int64_t>(buffer / block));
  return blocks * kByteBlock;
}

bool is_stepped_in_pieces(const BucketLayout& layout) {
  return layout.steps && (layout.offload_state || layout.offload_params);
}

}  // namespace

uint64_t offload_buffer_bytes(const Program& program, const Optimizer& optimizer,
                              const std::vector<BucketLayout>& layouts, uint64_t most) {
  if (most == 0 || optimizer.is_users() || has_optimistic_steps(program)) return 0;
  uint64_t bytes = 0;
  for (const BucketLayout& layout : layouts) {
    if (!is_stepped_in_pieces(layout)) continue;
    const int64_t elems = piece_elems_of(layout, optimizer, most / OffloadPipe::kBuffers);
    const auto most_elems = static_cast<int64_t>(round_up(static_cast<uint64_t>(layout.own_elems()), kByteBlock));
    bytes = std::max(bytes, bytes_of_elems(layout, optimizer, std::min(elems, most_elems)));
  }
  return bytes;
}

OffloadedSteps::OffloadedSteps(std::shared_ptr<DeviceContext> device, Ledger& ledger, const Program& program,
                               const Optimizer& optimizer, const std::vector<BucketLayout>& layouts,
                               uint64_t buffer_bytes, const std::function<BucketShard(int32_t)>& shard_of)
    : device_(std::move(device)), has_8bit_states_(optimizer.has_8bit_states()) {
  for (const BucketLayout& layout : layouts) {
    Bucket& bucket = buckets_.emplace_back(layout, device_);
    if (is_stepped_in_pieces(layout)) bucket.piece_elems = piece_elems_of(layout, optimizer, buffer_bytes);
  }
  std::vector<OffloadPipe::Piece> pieces;
  for (const gsel_instr& instr : program.step) {
    if (task_of(instr.kind) != InstrTask::step || !has(instr.bucket)) continue;
    const Bucket& bucket = buckets_[instr.bucket];
    optimizer.list_calls(shard_of(instr.bucket), [&](const gsel_optimizer_step& call) {
      visit_pieces(call, bucket.piece_elems, has_8bit_states_, [&](gsel_optimizer_step piece) {
        OffloadPipe::Piece& arrays = pieces.emplace_back();
        visit_offloaded(bucket.layout, has_8bit_states_, piece.count, piece, [&](auto*& field, uint64_t bytes) {
          arrays.push_back({field, bytes});
        });
      });
    });
  }
  pipe_ = std::make_unique<OffloadPipe>(device_, ledger, buffer_bytes, std::move(pieces));
}

// The kernel finds the arrays of a piece in the buffer.
void OffloadedSteps::launch(Bucket& bucket, const gsel_optimizer_step& call) {
  visit_pieces(call, bucket.piece_elems, has_8bit_states_, [&](gsel_optimizer_step piece) {
    char* at = pipe_->take();
    visit_offloaded(bucket.layout, has_8bit_states_, piece.count, piece, [&](auto*& field, uint64_t bytes) {
      field = reinterpret_cast<std::remove_reference_t<decltype(field)>>(at);
      at += round_up(bytes, kTensorAlign);
    });
    device_->enqueue(&gsel_device_v1::optimizer_step, static_cast<const gsel_optimizer_step*>(&piece));
    pipe_->give_back();
  });
  pipe_->record_written(bucket.written);
  bucket.is_written = true;
}

Optimizer::StepLaunch OffloadedSteps::launch_of(int32_t b) {
  Bucket& bucket = buckets_[static_cast<size_t>(b)];
  return [this, &bucket](const gsel_optimizer_step& call) { launch(bucket, call); };
}

void OffloadedSteps::hold(int32_t b, gsel_stream* stream) const {
  const Bucket& bucket = buckets_[static_cast<size_t>(b)];
  if (bucket.is_written) device_->run(&gsel_device_v1::stream_wait_event, stream, bucket.written.get());
}

}  // namespace gsel
