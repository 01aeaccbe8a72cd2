// train/execute/instructions/params.cc: BROADCAST, ALLGATHER and RELEASE: a bucket's whole parameters.
#include "base/dtype.h"
#include "train/execute/instructions.h"

namespace gsel::execute {

void broadcast_params(State& s, const gsel_instr& instr) {
  const BucketLayout& layout = s.params.layout(instr.bucket);
  open_param_window(s, instr.bucket);
  if (s.axis_size(instr.axis) == 1) return;
  void* data = s.params.whole_params(instr.bucket);
  post(s, instr,
       make_collective(GSEL_COLLECTIVE_BROADCAST, data, data, static_cast<uint64_t>(layout.elems), layout.dtype, 0,
                       instr.peer));
}

// In place: each rank's shard already stands, or is put, where it belongs in the whole.
void allgather_params(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  const BucketLayout& layout = s.params.layout(b);
  open_param_window(s, b);
  if (s.axis_size(instr.axis) == 1) {
    s.params.place_shard(b, nullptr);
    return;
  }
  auto* whole = static_cast<char*>(s.params.whole_params(b));
  const char* own = whole + static_cast<uint64_t>(layout.own.begin) * dtype_bytes(layout.dtype);
  gsel_collective call =
      make_collective(GSEL_COLLECTIVE_ALLGATHER, own, whole, static_cast<uint64_t>(layout.own_elems()), layout.dtype);
  if (!s.buckets[b].shard_counts.empty()) {
    call.kind = GSEL_COLLECTIVE_ALLGATHERV;
    call.recv_counts = s.buckets[b].shard_counts.data();
  }
  begin_async(s, instr, call.kind);
  s.params.place_shard(b, s.comm_stream->get());
  s.axis_comm(instr.axis).collective(call, s.comm_stream->get());
  end_async(s, instr);
}

void release_params(State& s, const gsel_instr& instr) {
  close_param_window(s, instr.bucket);
}

}  // namespace gsel::execute
