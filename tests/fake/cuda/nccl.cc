// fake/cuda/nccl.cc: libnccl.so.2 as far as plugins/transport/nccl asks for it, over the machine of machine.h: a test
// double. Ranks are threads of one process, each with a device of its own; those of other processes join and then never
// make a call, as ranks that have died. A call runs when it has come to the head of its stream on every rank. Calls
// that do not match wait until they are aborted, as with NCCL. Every call must find its device current, and is in
// progress for some polls.
//
//   GSEL_FAKE_NCCL_VERSION  such as 22809
//   GSEL_FAKE_NCCL_FAILS    number of the call whose communicator then reports a remote error, from 1
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "library.h"
#include "machine.h"

using fake_cuda::Access;
using fake_cuda::Joint;
using fake_cuda::Machine;
using fake_cuda::Operation;
using gsel_nccl::Config;
using gsel_nccl::kInProgress;
using gsel_nccl::kInvalidArgument;
using gsel_nccl::kInvalidUsage;
using gsel_nccl::kRemoteError;
using gsel_nccl::kSuccess;
using gsel_nccl::UniqueId;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kPolls = 3;  // of each call, before it has been enqueued
constexpr size_t kTypeBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

int number_in(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text && *text ? atoi(text) : otherwise;
}

struct Clique;
struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  uintptr_t context = 0;
  int polls = kPolls;
  int state = kSuccess;
  bool is_aborted = false;
  uint64_t collectives = 0;
  std::map<std::pair<int, int>, uint64_t> messages;  // by sender and receiver
};

class Node;
// One call between its ranks.
struct Meeting {
  struct Part {
    std::shared_ptr<Node> node;
    Comm* comm;
    const char* send;
    char* recv;
  };
  std::string signature;
  int expected = 0;
  std::vector<Part> parts;  // that have been enqueued
  bool is_mismatched = false, is_done = false;
  std::function<void(Meeting&)> work;
};

// What a communicator enqueues at a time: one call, or those of a group.
class Node : public Joint {
 public:
  explicit Node(fake_cuda::Stream* stream, const Comm* comm) : stream_(stream), comm_(comm) {}
  void add(const std::shared_ptr<Meeting>& meeting) { meetings_.push_back(meeting); }
  bool is_of(const Comm& comm) const { return comm_ == &comm; }
  bool is_at_head() const { return !stream_->queue.empty() && stream_->queue.front().joint.get() == this; }

  bool can_go() const override {
    return std::ranges::any_of(meetings_, [](const auto& m) { return m->is_done || can_meet(*m); });
  }
  bool go() override {
    for (const auto& meeting : meetings_)
      if (can_meet(*meeting)) {
        meeting->work(*meeting);
        meeting->is_done = true;
      }
    std::erase_if(meetings_, [](const auto& m) { return m->is_done; });
    return meetings_.empty();
  }
  std::vector<fake_cuda::Stream*> awaited() const override {
    std::vector<fake_cuda::Stream*> streams;
    for (const auto& meeting : meetings_)
      for (const auto& part : meeting->parts)
        if (!meeting->is_done && !part.node->is_at_head()) streams.push_back(part.node->stream_);
    return streams;
  }

 private:
  static bool can_meet(const Meeting& m) {
    return !m.is_done && !m.is_mismatched && static_cast<int>(m.parts.size()) == m.expected &&
           std::ranges::all_of(m.parts, [](const auto& part) { return part.node->is_at_head(); });
  }

  fake_cuda::Stream* stream_;
  const Comm* comm_;
  std::vector<std::shared_ptr<Meeting>> meetings_;
};

// The ranks of one id; those of other processes are counted in a file that all of them map.
struct Clique {
  int n_ranks = 0;
  std::atomic<int>* joined = nullptr;
  std::map<std::string, std::shared_ptr<Meeting>> meetings;
};

std::map<std::string, std::shared_ptr<Clique>> cliques;
int n_calls;
thread_local int group_depth;
struct Waiting {
  Comm* comm;
  CUstream stream;
  std::string key, signature;
  int expected;
  const void* send;
  void* recv;
  size_t send_bytes, recv_bytes;
  std::function<void(Meeting&)> work;
};
thread_local std::vector<Waiting> group;

std::string name_of(const UniqueId& id) {
  return std::string("/fake-nccl-") + id.bytes;
}

// ---- what the calls do ----------------------------------------------------------------------------------------------

template <class T>
T combined(int op, T a, T b) {
  switch (op) {
    case 1:
      return static_cast<T>(a * b);
    case 2:
      return std::max(a, b);
    case 3:
      return std::min(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

// In the order of ranks, as the host's transport does.
template <class T>
void reduce(const std::vector<const char*>& inputs, char* out, size_t count, int op) {
  for (size_t i = 0; i < count; ++i) {
    T sum;
    memcpy(&sum, inputs[0] + i * sizeof(T), sizeof sum);
    for (size_t q = 1; q < inputs.size(); ++q) {
      T next;
      memcpy(&next, inputs[q] + i * sizeof(T), sizeof next);
      sum = combined(op, sum, next);
    }
    if (op == 4) sum = static_cast<T>(sum / static_cast<T>(inputs.size()));
    memcpy(out + i * sizeof(T), &sum, sizeof sum);
  }
}

void reduce_type(int type, const std::vector<const char*>& inputs, char* out, size_t count, int op) {
  switch (type) {
    case 0:
      return reduce<int8_t>(inputs, out, count, op);
    case 1:
      return reduce<uint8_t>(inputs, out, count, op);
    case 2:
      return reduce<int32_t>(inputs, out, count, op);
    case 3:
      return reduce<uint32_t>(inputs, out, count, op);
    case 4:
      return reduce<int64_t>(inputs, out, count, op);
    case 5:
      return reduce<uint64_t>(inputs, out, count, op);
    case 7:
      return reduce<float>(inputs, out, count, op);
    case 8:
      return reduce<double>(inputs, out, count, op);
    default:
      Machine::get().violation("fake nccl reduces no type " + std::to_string(type));
  }
}

// Inputs by rank, from `first` bytes on; copied, since results may overwrite them.
std::vector<std::vector<char>> inputs_of(const Meeting& meeting, size_t first, size_t bytes) {
  std::vector<std::vector<char>> inputs(meeting.parts.size());
  for (const auto& part : meeting.parts)
    inputs[static_cast<size_t>(part.comm->rank)].assign(part.send + first, part.send + first + bytes);
  return inputs;
}

std::vector<char> reduced(const Meeting& meeting, size_t first, size_t count, int type, int op) {
  const auto inputs = inputs_of(meeting, first, count * kTypeBytes[type]);
  std::vector<const char*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  std::vector<char> out(count * kTypeBytes[type]);
  reduce_type(type, pointers, out.data(), count, op);
  return out;
}

// ---- enqueueing -----------------------------------------------------------------------------------------------------

void enqueue(const std::vector<Waiting>& calls) {
  Machine& machine = Machine::get();
  std::vector<Comm*> comms;
  for (const Waiting& call : calls)
    if (std::ranges::find(comms, call.comm) == comms.end()) comms.push_back(call.comm);
  for (Comm* comm : comms) {
    const auto of_comm = [&](const Waiting& call) { return call.comm == comm; };
    const Waiting& first = *std::ranges::find_if(calls, of_comm);
    fake_cuda::Stream* stream = machine.stream(first.stream, comm->context);
    const auto node = std::make_shared<Node>(stream, comm);
    Operation operation;
    operation.name = "nccl " + first.signature;
    operation.joint = node;
    for (const Waiting& call : calls) {
      if (!of_comm(call)) continue;
      if (call.stream != first.stream)
        machine.violation("a group of nccl calls on several streams of one communicator");
      auto& meeting = comm->clique->meetings[call.key];
      if (!meeting) meeting = std::make_shared<Meeting>();
      if (meeting->expected && meeting->signature != call.signature) meeting->is_mismatched = true;
      meeting->expected = call.expected;
      meeting->signature = call.signature;
      meeting->work = call.work;
      meeting->parts.push_back({node, comm, static_cast<const char*>(call.send), static_cast<char*>(call.recv)});
      node->add(meeting);
      const auto send = reinterpret_cast<uintptr_t>(call.send), recv = reinterpret_cast<uintptr_t>(call.recv);
      if (call.send_bytes) operation.accesses.push_back({send, send + call.send_bytes, false});
      if (call.recv_bytes) operation.accesses.push_back({recv, recv + call.recv_bytes, true});
    }
    machine.enqueue(*stream, std::move(operation));
    comm->polls = kPolls;
  }
}

int current_context_of(Comm& comm, CUstream stream) {
  CUcontext context = nullptr;
  if (cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) return kInvalidArgument;  // none is current
  CUcontext own = nullptr;
  cuCtxPopCurrent(&own);
  cuCtxPushCurrent(own);
  if (reinterpret_cast<uintptr_t>(own) != comm.context || reinterpret_cast<uintptr_t>(context) != comm.context) {
    Machine::get().violation("an nccl call whose device is not current, or on a stream of another device");
    return kInvalidUsage;
  }
  return kSuccess;
}

int call(Waiting waiting) {
  const std::lock_guard lock(Machine::get().mutex());
  Comm& comm = *waiting.comm;
  if (comm.is_aborted) return kInvalidUsage;
  if (const int result = current_context_of(comm, waiting.stream)) return result;
  if (++n_calls == number_in("GSEL_FAKE_NCCL_FAILS", 0)) comm.state = kRemoteError;
  group.push_back(std::move(waiting));
  if (group_depth > 0) return kSuccess;
  enqueue(std::exchange(group, {}));
  return kInProgress;
}

Waiting collective(const char* name, Comm* comm, CUstream stream, size_t bytes, int type, int op, int root) {
  Waiting w{};
  w.comm = comm;
  w.stream = stream;
  w.key = "collective " + std::to_string(comm->collectives++);
  w.signature = std::string(name) + " " + std::to_string(bytes) + " bytes, type " + std::to_string(type) + ", op " +
                std::to_string(op) + ", root " + std::to_string(root);
  w.expected = comm->clique->n_ranks;
  return w;
}

Waiting message(Comm* comm, CUstream stream, size_t bytes, int from, int to, bool sends) {
  Waiting w{};
  w.comm = comm;
  w.stream = stream;
  auto& number = comm->messages[{from, to}];
  // A rank that sends to itself makes both calls on one communicator.
  const uint64_t own = from == to ? number++ / 2 : number++;
  w.key = std::to_string(from) + " to " + std::to_string(to) + " " + std::to_string(own);
  w.signature = "a message of " + std::to_string(bytes) + " bytes";
  w.expected = 2;
  w.work = [bytes](Meeting& m) {
    const char* send = nullptr;
    char* recv = nullptr;
    for (const auto& part : m.parts) {
      if (part.send) send = part.send;
      if (part.recv) recv = part.recv;
    }
    memmove(recv, send, bytes);
  };
  (sends ? w.send_bytes : w.recv_bytes) = bytes;
  return w;
}

Comm* of(gsel_nccl::Comm handle) {
  return static_cast<Comm*>(handle);
}
CUstream of_stream(gsel_nccl::Stream stream) {
  return static_cast<CUstream>(stream);
}

}  // namespace

// ---- communicators --------------------------------------------------------------------------------------------------

EXPORT int ncclGetVersion(int* version) {
  *version = number_in("GSEL_FAKE_NCCL_VERSION", 22809);
  return kSuccess;
}

EXPORT int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made;
  *id = {};
  snprintf(id->bytes, sizeof id->bytes, "%d-%d-%d", getpid(), ++made, number_in("GSEL_FAKE_CUDA_SEED", 1));
  return kSuccess;
}

EXPORT int ncclCommInitRankConfig(gsel_nccl::Comm* out, int n_ranks, UniqueId id, int rank, Config* config) {
  const std::lock_guard lock(Machine::get().mutex());
  if (config->magic != 0xcafebeef || config->blocking != 0 || rank < 0 || rank >= n_ranks) return kInvalidArgument;
  CUcontext context = nullptr;
  if (cuCtxPopCurrent(&context) != CUDA_SUCCESS) return kInvalidUsage;
  cuCtxPushCurrent(context);
  const std::string name = name_of(id);
  auto& clique = cliques[name];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->n_ranks = n_ranks;
    const int file = shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(int)) != 0) abort();
    void* memory = mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) abort();
    close(file);
    clique->joined = static_cast<std::atomic<int>*>(memory);
  }
  if (clique->joined->fetch_add(1) + 1 == n_ranks) shm_unlink(name.c_str());
  static auto* const comms = new std::deque<Comm>;  // streams may still hold what a destroyed one enqueued
  Comm& comm = comms->emplace_back();
  comm.clique = clique;
  comm.rank = rank;
  comm.context = reinterpret_cast<uintptr_t>(context);
  *out = &comm;
  return kInProgress;
}

EXPORT int ncclCommGetAsyncError(gsel_nccl::Comm handle, int* state) {
  const std::lock_guard lock(Machine::get().mutex());
  Comm& comm = *of(handle);
  const bool is_joining = comm.clique->joined->load() < comm.clique->n_ranks;
  *state = comm.state != kSuccess ? comm.state : is_joining || comm.polls-- > 0 ? kInProgress : kSuccess;
  return kSuccess;
}

EXPORT int ncclCommFinalize(gsel_nccl::Comm handle) {
  const std::lock_guard lock(Machine::get().mutex());
  of(handle)->polls = kPolls;
  return kInProgress;
}

EXPORT int ncclCommDestroy(gsel_nccl::Comm) {
  return kSuccess;
}

EXPORT int ncclCommAbort(gsel_nccl::Comm handle) {
  const std::lock_guard lock(Machine::get().mutex());
  of(handle)->is_aborted = true;
  Machine::get().end([&](const Joint& joint) { return static_cast<const Node&>(joint).is_of(*of(handle)); });
  return kSuccess;
}

EXPORT const char* ncclGetErrorString(int result) {
  return result == kRemoteError ? "remote process exited or there was a network error" : "as the fake nccl was told";
}

EXPORT const char* ncclGetLastError(gsel_nccl::Comm) {
  return "";
}

// ---- calls ----------------------------------------------------------------------------------------------------------

EXPORT int ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}

EXPORT int ncclGroupEnd() {
  if (group_depth == 0) return kInvalidUsage;
  if (--group_depth > 0) return kSuccess;
  const std::lock_guard lock(Machine::get().mutex());
  if (!group.empty()) enqueue(std::exchange(group, {}));
  return kInProgress;
}

EXPORT int ncclAllReduce(const void* send, void* recv, size_t count, int type, int op, gsel_nccl::Comm handle,
                         gsel_nccl::Stream stream) {
  Waiting w = collective("allreduce", of(handle), of_stream(stream), count * kTypeBytes[type], type, op, -1);
  w.send = send, w.recv = recv, w.send_bytes = w.recv_bytes = count * kTypeBytes[type];
  w.work = [=](Meeting& m) {
    const auto result = reduced(m, 0, count, type, op);
    for (const auto& part : m.parts) memcpy(part.recv, result.data(), result.size());
  };
  return call(std::move(w));
}

EXPORT int ncclReduce(const void* send, void* recv, size_t count, int type, int op, int root, gsel_nccl::Comm handle,
                      gsel_nccl::Stream stream) {
  Waiting w = collective("reduce", of(handle), of_stream(stream), count * kTypeBytes[type], type, op, root);
  w.send = send, w.recv = recv, w.send_bytes = count * kTypeBytes[type];
  w.recv_bytes = of(handle)->rank == root ? w.send_bytes : 0;
  w.work = [=](Meeting& m) {
    const auto result = reduced(m, 0, count, type, op);
    for (const auto& part : m.parts)
      if (part.comm->rank == root) memcpy(part.recv, result.data(), result.size());
  };
  return call(std::move(w));
}

EXPORT int ncclReduceScatter(const void* send, void* recv, size_t count, int type, int op, gsel_nccl::Comm handle,
                             gsel_nccl::Stream stream) {
  const size_t bytes = count * kTypeBytes[type];
  const auto n = static_cast<size_t>(of(handle)->clique->n_ranks);
  Waiting w = collective("reduce_scatter", of(handle), of_stream(stream), bytes, type, op, -1);
  w.send = send, w.recv = recv, w.send_bytes = n * bytes, w.recv_bytes = bytes;
  w.work = [=](Meeting& m) {
    const auto result = reduced(m, 0, n * count, type, op);
    for (const auto& part : m.parts)
      memcpy(part.recv, result.data() + static_cast<size_t>(part.comm->rank) * bytes, bytes);
  };
  return call(std::move(w));
}

EXPORT int ncclBroadcast(const void* send, void* recv, size_t count, int type, int root, gsel_nccl::Comm handle,
                         gsel_nccl::Stream stream) {
  const size_t bytes = count * kTypeBytes[type];
  Waiting w = collective("broadcast", of(handle), of_stream(stream), bytes, type, 0, root);
  w.send = send, w.recv = recv, w.recv_bytes = bytes;
  w.send_bytes = of(handle)->rank == root ? bytes : 0;
  w.work = [=](Meeting& m) {
    std::vector<char> value;
    for (const auto& part : m.parts)
      if (part.comm->rank == root) value.assign(part.send, part.send + bytes);
    for (const auto& part : m.parts) memcpy(part.recv, value.data(), bytes);
  };
  return call(std::move(w));
}

EXPORT int ncclAllGather(const void* send, void* recv, size_t count, int type, gsel_nccl::Comm handle,
                         gsel_nccl::Stream stream) {
  const size_t bytes = count * kTypeBytes[type];
  Waiting w = collective("allgather", of(handle), of_stream(stream), bytes, type, 0, -1);
  w.send = send, w.recv = recv, w.send_bytes = bytes;
  w.recv_bytes = bytes * static_cast<size_t>(of(handle)->clique->n_ranks);
  w.work = [=](Meeting& m) {
    const auto inputs = inputs_of(m, 0, bytes);
    for (const auto& part : m.parts)
      for (size_t q = 0; q < inputs.size(); ++q) memcpy(part.recv + q * bytes, inputs[q].data(), bytes);
  };
  return call(std::move(w));
}

EXPORT int ncclSend(const void* send, size_t count, int type, int peer, gsel_nccl::Comm handle,
                    gsel_nccl::Stream stream) {
  Waiting w = message(of(handle), of_stream(stream), count * kTypeBytes[type], of(handle)->rank, peer, true);
  w.send = send;
  return call(std::move(w));
}

EXPORT int ncclRecv(void* recv, size_t count, int type, int peer, gsel_nccl::Comm handle, gsel_nccl::Stream stream) {
  Waiting w = message(of(handle), of_stream(stream), count * kTypeBytes[type], peer, of(handle)->rank, false);
  w.recv = recv;
  return call(std::move(w));
}

// ---- memory ---------------------------------------------------------------------------------------------------------

EXPORT int ncclMemAlloc(void** out, size_t bytes) {
  CUdeviceptr memory = 0;
  const int result = cuMemAlloc(&memory, bytes);
  *out = reinterpret_cast<void*>(memory);
  return result == CUDA_SUCCESS ? kSuccess : gsel_nccl::kUnhandledCudaError;
}

EXPORT int ncclMemFree(void* memory) {
  return cuMemFree(reinterpret_cast<CUdeviceptr>(memory)) == CUDA_SUCCESS ? kSuccess : kInvalidArgument;
}

EXPORT int ncclCommRegister(gsel_nccl::Comm, void* memory, size_t bytes, void** handle) {
  *handle = memory;
  const auto* found = Machine::get().find(reinterpret_cast<uintptr_t>(memory));
  return found && reinterpret_cast<uintptr_t>(memory) + bytes <= found->end ? kSuccess : kInvalidArgument;
}

EXPORT int ncclCommDeregister(gsel_nccl::Comm, void*) {
  return kSuccess;
}
