// train/execute/executor_buckets.cc: the collectives of buckets: parameters on their way out, gradients on their way
// in, and the windows that both open and close. On an axis of one rank nothing is sent, but windows open, fill and
// close all the same.
#include <algorithm>

#include "base/dtype.h"
#include "train/execute/executor.h"

namespace gsel {

// ---- parameters -------------------------------------------------------------------------------------------------

void Executor::open_param_window(int32_t bucket) {
  if (params_.whole_params(bucket)) return;
  const uint64_t offset = plan().param_window(position_, bucket);
  if (offset == ArenaPlan::kNone)
    fail(GSEL_ERR_INTERNAL, "the parameters of bucket {} have no place at step instruction {}", bucket, position_);
  params_.open_params(bucket, at(offset));
}

void Executor::release_params(int32_t bucket) {
  const BucketLayout& layout = params_.layout(bucket);
  if (layout.whole_params) return;
  if (lender_.moves() && params_.whole_params(bucket))
    lender_.poison(params_.whole_params(bucket), layout.param_window_bytes);
  params_.close_params(bucket);
}

void Executor::broadcast_params(const gsel_instr& instr) {
  const BucketLayout& layout = params_.layout(instr.bucket);
  open_param_window(instr.bucket);
  if (axis_size(instr.axis) == 1) return;
  void* data = params_.whole_params(instr.bucket);
  post(instr, make_collective(GSEL_COLLECTIVE_BROADCAST, data, data, static_cast<uint64_t>(layout.elems), layout.dtype,
                              0, instr.peer));
}

// A broadcast before the first step brought the root's parameters, rounded where they are kept in 16 bits. Master
// copies that were initialised like the root's are exact and stay; else all follow what came.
void Executor::follow_params(int32_t b) {
  const BucketLayout& layout = params_.layout(b);
  if (layout.dtype == GSEL_F32 || program().buckets[b].owner >= 0) return;  // an owner has the one copy
  const Stretch own = params_.stretch(b);
  const auto elems =
      static_cast<uint64_t>(std::max<int64_t>(std::min(layout.own.end, layout.elems) - layout.own.begin, 0));
  double differs = own_params_differ(own, elems);
  combine_now(0, program().buckets[b].axis < 0 ? GSEL_AXIS_DATA : program().buckets[b].axis, {&differs, 1}, GSEL_MAX);
  if (differs != 0)
    backend_->run(&gsel_backend_v1::cast, static_cast<void*>(own.values), gsel_dtype{GSEL_F32},
                  static_cast<const void*>(own.rounded), own.rounded_dtype, elems, static_cast<gsel_stream*>(nullptr));
  params_.done_with(b, differs != 0);
}

// Whether the first elements of a stretch are other than its master copy, rounded. Goes through memory that is free
// before the first step.
double Executor::own_params_differ(const Stretch& own, uint64_t elems) const {
  const CountedMemory& room = arena_.bytes() > staging_.bytes() ? arena_ : staging_;
  const uint64_t chunk = room.bytes() / sizeof(uint16_t);
  std::vector<uint16_t> here, there;
  for (uint64_t first = 0; first < elems; first += chunk) {
    const uint64_t n = std::min(chunk, elems - first), bytes = n * sizeof(uint16_t);
    backend_->run(&gsel_backend_v1::cast, room.data(), own.rounded_dtype, static_cast<const void*>(own.values + first),
                  gsel_dtype{GSEL_F32}, n, static_cast<gsel_stream*>(nullptr));
    auto to_host = [&](std::vector<uint16_t>& to, const void* from) {
      to.resize(n);
      backend_->run(&gsel_backend_v1::copy, static_cast<void*>(to.data()), from, bytes, int32_t{GSEL_COPY_TO_HOST},
                    static_cast<gsel_stream*>(nullptr));
    };
    to_host(here, room.data());
    to_host(there, static_cast<const uint16_t*>(own.rounded) + first);
    if (here != there) return 1;
  }
  return 0;
}

// In place: each rank's shard already stands, or is put, where it belongs in the whole.
void Executor::gather_params(const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  const BucketLayout& layout = params_.layout(b);
  open_param_window(b);
  if (axis_size(instr.axis) == 1) {
    params_.place_shard(b, nullptr);
    return;
  }
  auto* whole = static_cast<char*>(params_.whole_params(b));
  const char* own = whole + static_cast<uint64_t>(layout.own.begin) * dtype_bytes(layout.dtype);
  gsel_collective call =
      make_collective(GSEL_COLLECTIVE_ALLGATHER, own, whole, static_cast<uint64_t>(layout.own_elems()), layout.dtype);
  if (!buckets_[b].shard_counts.empty()) {
    call.kind = GSEL_COLLECTIVE_ALLGATHERV;
    call.recv_counts = buckets_[b].shard_counts.data();
  }
  begin_beside(instr, call.kind);
  params_.place_shard(b, comm_stream_->get());
  axis_comm(instr.axis).collective(call, comm_stream_->get());
  end_beside(instr);
}

// ---- gradients --------------------------------------------------------------------------------------------------

void Executor::reduce_gradients(const gsel_instr& instr) {
  zero_missing_gradients(instr.bucket);
  if (axis_size(instr.axis) == 1) return;
  float* data = params_.whole_gradient(instr.bucket);
  const auto elems = static_cast<uint64_t>(params_.layout(instr.bucket).elems);
  BucketState& bucket = buckets_[instr.bucket];
  if (!bucket.compressor) {
    post(instr, make_collective(GSEL_COLLECTIVE_ALLREDUCE, data, data, elems, GSEL_F32, GSEL_SUM));
    return;
  }
  begin_beside(instr, GSEL_COLLECTIVE_ALLREDUCE);
  bucket.compressor->begin(axis_comm(instr.axis), data, step_, loss_scale_.value(), comm_stream_->get());
  end_beside(instr);
}

void Executor::reduce_to_root(const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  open_gradient_window(b);
  zero_missing_gradients(b);
  if (axis_size(instr.axis) == 1) return finish_collective(b, instr.kind);
  float* data = params_.whole_gradient(b);
  const auto elems = static_cast<uint64_t>(params_.layout(b).elems);
  post(instr, make_collective(GSEL_COLLECTIVE_REDUCE, data, data, elems, GSEL_F32, GSEL_SUM, instr.peer));
}

// Into the own part of the whole gradient where that is kept, else into the shard.
void Executor::scatter_gradients(const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  BucketState& bucket = buckets_[b];
  const BucketLayout& layout = params_.layout(b);
  open_gradient_window(b);
  zero_missing_gradients(b);
  const float* whole = params_.whole_gradient(b);
  float* result = params_.own_gradient(b);
  // Where the shard already holds the sum of earlier micro-batches the plan has a place beside it.
  if (void* beside = at(plan().reduced(position_, b))) result = bucket.reduced = static_cast<float*>(beside);
  if (axis_size(instr.axis) == 1) {
    const float* own = whole + layout.own.begin;
    if (result != own)
      backend_->run(&gsel_backend_v1::copy, static_cast<void*>(result), static_cast<const void*>(own),
                    sizeof(float) * static_cast<uint64_t>(layout.own_elems()), int32_t{GSEL_COPY_ON_DEVICE},
                    static_cast<gsel_stream*>(nullptr));
    return finish_collective(b, instr.kind);
  }
  gsel_collective call = make_collective(GSEL_COLLECTIVE_REDUCE_SCATTER, whole, result,
                                         static_cast<uint64_t>(layout.own_elems()), GSEL_F32, GSEL_SUM);
  if (!bucket.shard_counts.empty()) {
    call.kind = GSEL_COLLECTIVE_REDUCE_SCATTERV;
    call.recv_counts = bucket.shard_counts.data();
  }
  post(instr, call);
}

void Executor::finish_collective(int32_t b, gsel_instr_kind kind) {
  if (kind == GSEL_INSTR_BROADCAST && !under_way_) follow_params(b);
  if (kind == GSEL_INSTR_REDUCE_SCATTER) add_reduced(b);
  if (kind == GSEL_INSTR_REDUCE_SCATTER || kind == GSEL_INSTR_REDUCE) close_gradient_window(b);
}

void Executor::add_reduced(int32_t b) {
  float* reduced = std::exchange(buckets_[b].reduced, nullptr);
  if (!reduced) return;
  backend_->run(&gsel_backend_v1::add, static_cast<void*>(params_.own_gradient(b)), static_cast<const void*>(reduced),
                gsel_dtype{GSEL_F32}, static_cast<uint64_t>(params_.layout(b).own_elems()),
                static_cast<gsel_stream*>(nullptr));
}

void Executor::close_gradient_window(int32_t b) {
  const BucketLayout& layout = params_.layout(b);
  if (layout.whole_gradient) return;
  if (lender_.moves()) lender_.poison(params_.whole_gradient(b), layout.gradient_window_bytes);
  params_.close_gradient(b);
  forget_contributions(b);
}

}  // namespace gsel
