// plugins/transport/nccl/calls.cc: implements the calls of gsel/comm.h with NCCL. A call that NCCL does not have is a
// group of several NCCL calls.
#include <cstdio>
#include <iterator>
#include <mutex>
#include <set>
#include <vector>

#include "link.h"

namespace gsel_nccl {
namespace {

constexpr int kInt8 = 0, kInt32 = 2, kSum = 0;

// Indexed by gsel_dtype and gsel_op; -1: not supported in NCCL reductions.
constexpr int kTypes[] = {-1, 0, 1, -1, -1, 2, 3, 4, 5, 6, 9, 7, 8, -1, -1, 1};
constexpr int kOps[] = {-1, 0, 1, 3, 2, 4}, kBoolOps[] = {-1, 2, 3, 3, 2, -1};
constexpr size_t kBytes[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1};

// One call on one link, with its buffers in bytes.
class Call {
 public:
  Call(const gsel_link& link, const gsel_collective& call, Stream stream)
      : link_(link), nccl_(*link.nccl), call_(call), stream_(stream), element_(kBytes[call.dtype]) {}

  // Enqueues the call.
  int make() const;

 private:
  size_t bytes(uint64_t elements) const { return elements * element_; }
  const char* send(uint64_t element = 0) const { return static_cast<const char*>(call_.send) + bytes(element); }
  char* recv(uint64_t element = 0) const { return static_cast<char*>(call_.recv) + bytes(element); }
  int type() const { return kTypes[call_.dtype]; }
  int op() const { return (call_.dtype == GSEL_BOOL ? kBoolOps : kOps)[call_.op]; }
  bool is_root() const { return link_.rank == call_.root; }
  uint64_t start(const uint64_t* counts, const uint64_t* offsets, int32_t rank) const;

  int give(const char* from, uint64_t count, int32_t to) const {
    return count ? nccl_.ncclSend(from, bytes(count), kInt8, to, link_.comm, stream_) : kSuccess;
  }
  int take(char* to, uint64_t count, int32_t from) const {
    return count ? nccl_.ncclRecv(to, bytes(count), kInt8, from, link_.comm, stream_) : kSuccess;
  }
  template <class One>
  int for_all(One&& one) const;
  int make_gather() const;
  int make_scatter() const;
  int make_all_to_all() const;
  int make_of_parts() const;

  const gsel_link& link_;
  const Library& nccl_;
  const gsel_collective& call_;
  const Stream stream_;
  const size_t element_;
};

uint64_t Call::start(const uint64_t* counts, const uint64_t* offsets, int32_t rank) const {
  if (offsets) return offsets[rank];
  uint64_t sum = 0;
  for (int32_t q = 0; q < rank; ++q) sum += counts[q];
  return sum;
}

// Calls one(q) for each rank in a group, so that the NCCL calls run at the same time.
template <class One>
int Call::for_all(One&& one) const {
  int result = nccl_.ncclGroupStart();
  for (int32_t q = 0; q < link_.world_size && (result == kSuccess || result == kInProgress); ++q) result = one(q);
  const int ended = nccl_.ncclGroupEnd();
  return result == kSuccess || result == kInProgress ? ended : result;
}

int Call::make_gather() const {
  const bool is_v = call_.kind == GSEL_COLLECTIVE_GATHERV;
  const uint64_t own = is_v ? call_.recv_counts[link_.rank] : call_.count;
  return for_all([&](int32_t q) {
    int result = q == call_.root ? give(send(), own, q) : kSuccess;
    if (is_root() && (result == kSuccess || result == kInProgress))
      result = is_v ? take(recv(start(call_.recv_counts, call_.recv_offsets, q)), call_.recv_counts[q], q)
                    : take(recv(static_cast<uint64_t>(q) * call_.count), call_.count, q);
    return result;
  });
}

int Call::make_scatter() const {
  const bool is_v = call_.kind == GSEL_COLLECTIVE_SCATTERV;
  const uint64_t own = is_v ? call_.send_counts[link_.rank] : call_.count;
  return for_all([&](int32_t q) {
    int result = q == call_.root ? take(recv(), own, q) : kSuccess;
    if (is_root() && (result == kSuccess || result == kInProgress))
      result = is_v ? give(send(start(call_.send_counts, call_.send_offsets, q)), call_.send_counts[q], q)
                    : give(send(static_cast<uint64_t>(q) * call_.count), call_.count, q);
    return result;
  });
}

int Call::make_all_to_all() const {
  const bool is_v = call_.kind == GSEL_COLLECTIVE_ALLTOALLV;
  return for_all([&](int32_t q) {
    const auto row = static_cast<uint64_t>(q) * call_.count;
    const int result = is_v ? give(send(start(call_.send_counts, call_.send_offsets, q)), call_.send_counts[q], q)
                            : give(send(row), call_.count, q);
    if (result != kSuccess && result != kInProgress) return result;
    return is_v ? take(recv(start(call_.recv_counts, call_.recv_offsets, q)), call_.recv_counts[q], q)
                : take(recv(row), call_.count, q);
  });
}

// allgatherv: a broadcast from each rank; reduce_scatterv: a reduce to each rank.
int Call::make_of_parts() const {
  return for_all([&](int32_t q) {
    const uint64_t count = call_.recv_counts[q];
    if (count == 0) return kSuccess;
    if (call_.kind == GSEL_COLLECTIVE_ALLGATHERV)
      return nccl_.ncclBroadcast(send(), recv(start(call_.recv_counts, call_.recv_offsets, q)), bytes(count), kInt8, q,
                                 link_.comm, stream_);
    return nccl_.ncclReduce(send(start(call_.recv_counts, call_.send_offsets, q)), recv(), count, type(), op(), q,
                            link_.comm, stream_);
  });
}

int Call::make() const {
  const Comm comm = link_.comm;
  switch (call_.kind) {
    case GSEL_COLLECTIVE_BARRIER:
      return nccl_.ncclAllReduce(link_.token, link_.token, 1, kInt32, kSum, comm, stream_);
    case GSEL_COLLECTIVE_ALLREDUCE:
      return nccl_.ncclAllReduce(send(), recv(), call_.count, type(), op(), comm, stream_);
    case GSEL_COLLECTIVE_REDUCE:
      return nccl_.ncclReduce(send(), recv(), call_.count, type(), op(), call_.root, comm, stream_);
    case GSEL_COLLECTIVE_REDUCE_SCATTER:
      return nccl_.ncclReduceScatter(send(), recv(), call_.count, type(), op(), comm, stream_);
    case GSEL_COLLECTIVE_ALLGATHER:
      return nccl_.ncclAllGather(send(), recv(), bytes(call_.count), kInt8, comm, stream_);
    case GSEL_COLLECTIVE_BROADCAST:
      return nccl_.ncclBroadcast(send(), recv(), bytes(call_.count), kInt8, call_.root, comm, stream_);
    case GSEL_COLLECTIVE_SEND:
      return give(send(), call_.count, call_.root);
    case GSEL_COLLECTIVE_RECV:
      return take(recv(), call_.count, call_.root);
    case GSEL_COLLECTIVE_SENDRECV: {
      int result = nccl_.ncclGroupStart();
      if (result == kSuccess) result = give(send(), call_.count, call_.root);
      if (result == kSuccess || result == kInProgress) result = take(recv(), call_.recv_count, call_.source);
      const int ended = nccl_.ncclGroupEnd();
      return result == kSuccess || result == kInProgress ? ended : result;
    }
    case GSEL_COLLECTIVE_GATHER:
    case GSEL_COLLECTIVE_GATHERV:
      return make_gather();
    case GSEL_COLLECTIVE_SCATTER:
    case GSEL_COLLECTIVE_SCATTERV:
      return make_scatter();
    case GSEL_COLLECTIVE_ALLTOALL:
    case GSEL_COLLECTIVE_ALLTOALLV:
      return make_all_to_all();
    default:
      return make_of_parts();
  }
}

Stream native(const gsel_link& link, gsel_stream* stream) {
  return link.device->stream_native(link.device_ctx, stream);
}

// NCCL must not be called with an aborted communicator.
void require_usable(const gsel_link& link) {
  if (link.aborting) fail(GSEL_ERR_ABORTED, GSEL_NCCL_PLUGIN ": the communicator was ended");
}

// Calls that NCCL can make, possibly as several calls. No caller's operations, no tags, no receive from any rank.
int32_t supports(gsel_link*, const gsel_collective* call, char* reason, size_t capacity) {
  const auto no = [&](const char* why) {
    if (reason && capacity > 0) std::snprintf(reason, capacity, "%s", why);
    return 0;
  };
  if (call->kind == GSEL_COLLECTIVE_PROBE || call->kind == GSEL_COLLECTIVE_IPROBE) return no(GSEL_NCCL " has no probe");
  if (call->kind > GSEL_COLLECTIVE_IPROBE) return no(GSEL_NCCL " does not know this call");
  const bool both = call->kind == GSEL_COLLECTIVE_SENDRECV;
  const bool is_message = both || call->kind == GSEL_COLLECTIVE_SEND || call->kind == GSEL_COLLECTIVE_RECV;
  if (is_message && (call->tag != 0 || call->recv_tag != 0)) return no("messages of " GSEL_NCCL " have no tags");
  if (is_message && (call->root < 0 || (both && call->source < 0)))
    return no(GSEL_NCCL " receives from a named rank only");
  if (call->op == 0) return 1;  // nothing is reduced
  if (call->op < 0 || call->op >= static_cast<int32_t>(std::size(kOps))) return no(GSEL_NCCL " has no such operation");
  if (call->dtype < 0 || call->dtype >= static_cast<int32_t>(std::size(kTypes)) || kTypes[call->dtype] < 0)
    return no(GSEL_NCCL " does not reduce this type");
  return 1;
}

// See kCaptures.
void refuse_captured(const gsel_enqueued& one) {
  const gsel_device_v1& device = *one.link->device;
  if (kCaptures || !device.capture_check) return;
  if (device.capture_check(one.link->device_ctx, one.stream, nullptr) == GSEL_OK)
    fail(GSEL_ERR_UNSUPPORTED,
         GSEL_NCCL_PLUGIN ": calls of " GSEL_NCCL " in a capture are not supported; make the call outside of it");
}

// Takes the locks in one order, so that two threads with the same links do not deadlock.
std::vector<std::unique_lock<std::mutex>> lock_all(std::span<const gsel_enqueued> calls) {
  std::set<std::mutex*> devices, inside;
  for (const gsel_enqueued& c : calls) devices.insert(c.link->launching), inside.insert(&c.link->inside);
  std::vector<std::unique_lock<std::mutex>> locks;
  for (std::mutex* mutex : devices) locks.emplace_back(*mutex);
  for (std::mutex* mutex : inside) locks.emplace_back(*mutex);
  return locks;
}

int make_one(const gsel_enqueued& one) {
  const Current current(one.link->device, one.link->device_ctx);
  return Call(*one.link, *one.call, native(*one.link, one.stream)).make();
}

void make_all(std::span<const gsel_enqueued> calls, const char* what) {
  const gsel_link& first = *calls[0].link;
  const Library& nccl = *first.nccl;
  const auto locks = lock_all(calls);
  for (const gsel_enqueued& c : calls) {
    require_usable(*c.link);
    refuse_captured(c);
  }
  if (calls.size() == 1) return check(nccl, make_one(calls[0]), what, first.comm);
  check(nccl, nccl.ncclGroupStart(), "the start of a group");
  int result = kSuccess;
  for (size_t i = 0; i < calls.size() && (result == kSuccess || result == kInProgress); ++i)
    result = make_one(calls[i]);
  const int ended = nccl.ncclGroupEnd();
  check(nccl, result, what, first.comm);
  check(nccl, ended, "the end of a group", first.comm);
}

gsel_status enqueue(const gsel_enqueued* calls, uint64_t n, double timeout_s, gsel_error** err) {
  if (n == 0) return GSEL_OK;
  const char* what = n == 1 ? "a call" : "a call of a group";
  try {
    make_all({calls, n}, what);
    std::vector<gsel_link*> links;
    for (uint64_t i = 0; i < n; ++i) links.push_back(calls[i].link);
    settle(links, what, timeout_s);
    return GSEL_OK;
  } catch (...) {
    return failed(calls[0].link->host, err);
  }
}

// During a call, the thread that makes it checks the state.
gsel_status link_error(gsel_link* link, gsel_error** err) {
  const std::unique_lock inside(link->inside, std::try_to_lock);
  if (!inside || link->aborting) return GSEL_OK;
  try {
    int state = kSuccess;
    check(*link->nccl, link->nccl->ncclCommGetAsyncError(link->comm, &state), "asking for errors", link->comm);
    check(*link->nccl, state, "work on a stream", link->comm);
    return GSEL_OK;
  } catch (...) {
    return failed(link->host, err);
  }
}

}  // namespace

void add_calls(gsel_transport_v2& table) {
  table.supports = supports;
  table.enqueue = enqueue;
  table.link_error = link_error;
}

}  // namespace gsel_nccl
