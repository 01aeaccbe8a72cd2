// fake/cuda/nccl_call.cc: calls and groups of libnccl.so.2; see nccl_comm.h. A call while the one before is in progress
// is refused; a call whose device is not current, or on a stream of another device, is a violation.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "driver.h"
#include "nccl_comm.h"

using fake_cuda::Machine;
using namespace fake_nccl;

namespace {

int n_calls;
int most_messages;
thread_local int depth;
thread_local int group_result;
thread_local std::vector<Call> group;

int check_context(const Comm& comm, Stream stream) {
  void *context = nullptr, *own = nullptr;
  fake_cuda::cuCtxGetCurrent(&own);
  if (!own) return kUnhandledCudaError;
  const int found = fake_cuda::cuStreamGetCtx(stream, &context);
  if (found != fake_cuda::kOk) return fake_cuda::ended() ? kUnhandledCudaError : kInvalidArgument;
  if (reinterpret_cast<uintptr_t>(own) == comm.context && reinterpret_cast<uintptr_t>(context) == comm.context)
    return kSuccess;
  Machine::get().violation("an nccl call whose device is not current, or on a stream of another device");
  return kInvalidUsage;
}

int ready(Comm& comm) {
  int state = kSuccess;
  if (comm.is_aborted) return kInvalidUsage;
  if (comm.state == kInProgress) {
    comm.last_error = "Attempt to use communicator before the previous operation returned ncclSuccess";
    return kInvalidArgument;
  }
  state = comm.state;
  return state;
}

// Until NCCL's thread has enqueued the calls: the thread that made them, where communicators are blocking.
int launch(std::unique_lock<std::recursive_mutex>& lock) {
  if (group.empty()) return kSuccess;
  const auto job = std::make_shared<Job>();
  most_messages = std::max(most_messages, static_cast<int>(std::ranges::count_if(group, &Call::is_message)));
  job->calls = std::exchange(group, {});
  job->polls = number_in("GSEL_FAKE_NCCL_POLLS", 3);
  const bool is_blocking = job->calls[0].comm->is_blocking;
  for (const Call& call : job->calls) {
    RankShare& own = call.comm->own();
    if (!call.is_message())
      own.calls = call.number;
    else
      (call.sends ? own.sends[call.to] : own.receives[call.from]) = call.number;
    if (call.comm->state == kSuccess && !is_blocking) call.comm->state = kInProgress;
    call.comm->job = job;
    call.comm->polls = 0;
  }
  if (!is_blocking) return kInProgress;
  while (!go_on(*job)) {
    lock.unlock();
    usleep(20);
    lock.lock();
    for (const Call& call : job->calls)
      if (call.comm->is_aborted) return kInternalError;
  }
  return kSuccess;
}

int make(Call call) {
  Comm& comm = *call.comm;
  const fake_cuda::Inside timed;
  const fake_nccl::Inside inside(comm, call.name.c_str());
  std::unique_lock lock(Machine::get().mutex());
  int result = ready(comm);
  if (result == kSuccess) result = check_context(comm, call.stream);
  if (result == kSuccess && call.send_bytes > kRing) die("a call of more than 64 MiB for a rank");
  if (result == kSuccess && !group.empty() && group[0].comm->is_blocking != comm.is_blocking) result = kInvalidArgument;
  if (result != kSuccess) return depth > 0 ? group_result = result : result;
  if (++n_calls == number_in("GSEL_FAKE_NCCL_FAILS", 0)) comm.state = kRemoteError;
  call.number = !call.is_message() ? ++comm.collectives
                : call.sends       ? ++comm.sent[call.to]
                                   : ++comm.received[call.from];
  group.push_back(std::move(call));
  return depth > 0 ? static_cast<int>(kSuccess) : launch(lock);
}

Call collective(const char* name, Handle handle, Stream stream, size_t count, int type, int op, int root) {
  Call call;
  call.comm = static_cast<Comm*>(handle);
  call.stream = stream;
  call.name = name;
  call.signature = std::string(name) + " " + std::to_string(count) + " elements of type " + std::to_string(type) +
                   ", op " + std::to_string(op) + ", root " + std::to_string(root);
  return call;
}

void sends(Call& call, const void* memory, uint64_t bytes) {
  call.send = static_cast<const char*>(memory);
  call.send_bytes = bytes;
}
void receives(Call& call, void* memory, uint64_t bytes) {
  call.recv = static_cast<char*>(memory);
  call.recv_bytes = bytes;
}

uint64_t ranks_of(const Call& call) {
  return static_cast<uint64_t>(call.comm->clique->n_ranks());
}

bool reduces(int type, int op) {
  return bytes_of(type) > 0 && op >= kSum && op <= kAvg;
}

Call message(Handle handle, Stream stream, bool sends, int peer, uint64_t bytes) {
  Call call = collective(sends ? "send" : "recv", handle, stream, bytes, kInt8, kSum, peer);
  const int own = call.comm->rank;
  call.from = sends ? own : peer;
  call.to = sends ? peer : own;
  call.sends = sends;
  return call;
}

bool is_rank(const Call& call, int rank) {
  return rank >= 0 && rank < call.comm->clique->n_ranks();
}

}  // namespace

// What tests ask: the most messages of one launch so far.
EXPORT int fake_nccl_most_messages() {
  const std::lock_guard lock(Machine::get().mutex());
  return most_messages;
}

EXPORT int ncclGroupStart() {
  ++depth;
  return kSuccess;
}

EXPORT int ncclGroupEnd() {
  const fake_cuda::Inside timed;
  if (depth == 0) return kInvalidUsage;
  if (--depth > 0) return kSuccess;
  std::unique_lock lock(Machine::get().mutex());
  if (const int result = std::exchange(group_result, 0)) {
    group.clear();
    return result;
  }
  return launch(lock);
}

EXPORT int ncclAllReduce(const void* send, void* recv, size_t count, int type, int op, Handle comm, Stream stream) {
  if (!reduces(type, op)) return kInvalidArgument;
  Call call = collective("allreduce", comm, stream, count, type, op, -1);
  sends(call, send, count * bytes_of(type));
  receives(call, recv, count * bytes_of(type));
  call.finish = [=](const auto& inputs, char* to) { reduce(type, op, inputs, to, 0, count); };
  return make(std::move(call));
}

EXPORT int ncclReduce(const void* send, void* recv, size_t count, int type, int op, int root, Handle comm,
                      Stream stream) {
  if (!reduces(type, op)) return kInvalidArgument;
  Call call = collective("reduce", comm, stream, count, type, op, root);
  if (!is_rank(call, root)) return kInvalidArgument;
  sends(call, send, count * bytes_of(type));
  if (call.comm->rank == root) receives(call, recv, count * bytes_of(type));
  call.finish = [=](const auto& inputs, char* to) { reduce(type, op, inputs, to, 0, count); };
  return make(std::move(call));
}

EXPORT int ncclReduceScatter(const void* send, void* recv, size_t count, int type, int op, Handle comm, Stream stream) {
  if (!reduces(type, op)) return kInvalidArgument;
  Call call = collective("reduce_scatter", comm, stream, count, type, op, -1);
  sends(call, send, ranks_of(call) * count * bytes_of(type));
  receives(call, recv, count * bytes_of(type));
  const auto first = static_cast<uint64_t>(call.comm->rank) * count;
  call.finish = [=](const auto& inputs, char* to) { reduce(type, op, inputs, to, first, count); };
  return make(std::move(call));
}

EXPORT int ncclBroadcast(const void* send, void* recv, size_t count, int type, int root, Handle comm, Stream stream) {
  Call call = collective("broadcast", comm, stream, count, type, kSum, root);
  if (!is_rank(call, root) || bytes_of(type) == 0) return kInvalidArgument;
  const uint64_t bytes = count * bytes_of(type);
  if (call.comm->rank == root) sends(call, send, bytes);
  receives(call, recv, bytes);
  call.finish = [=](const auto& inputs, char* to) { memcpy(to, inputs[static_cast<size_t>(root)], bytes); };
  return make(std::move(call));
}

EXPORT int ncclAllGather(const void* send, void* recv, size_t count, int type, Handle comm, Stream stream) {
  Call call = collective("allgather", comm, stream, count, type, kSum, -1);
  const uint64_t bytes = count * bytes_of(type);
  if (bytes_of(type) == 0) return kInvalidArgument;
  sends(call, send, bytes);
  receives(call, recv, bytes * ranks_of(call));
  call.finish = [=](const auto& inputs, char* to) {
    for (size_t q = 0; q < inputs.size(); ++q) memcpy(to + q * bytes, inputs[q], bytes);
  };
  return make(std::move(call));
}

EXPORT int ncclSend(const void* send, size_t count, int type, int peer, Handle comm, Stream stream) {
  Call call = message(comm, stream, true, peer, count * bytes_of(type));
  if (!is_rank(call, peer)) return kInvalidArgument;
  sends(call, send, count * bytes_of(type));
  return make(std::move(call));
}

EXPORT int ncclRecv(void* recv, size_t count, int type, int peer, Handle comm, Stream stream) {
  Call call = message(comm, stream, false, peer, count * bytes_of(type));
  if (!is_rank(call, peer)) return kInvalidArgument;
  receives(call, recv, count * bytes_of(type));
  return make(std::move(call));
}
