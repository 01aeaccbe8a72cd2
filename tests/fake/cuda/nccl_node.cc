// fake/cuda/nccl_node.cc: what a communicator enqueues on a stream, and how it goes on there; see nccl_comm.h.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <deque>
#include <mutex>
#include <thread>

#include "captures.h"
#include "nccl_comm.h"

using fake_cuda::Machine;
using fake_cuda::Operation;

namespace fake_nccl {
namespace {

constexpr int64_t kWantedNs = 20'000'000;

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// Communication that has not ended, in the order in which it was enqueued.
std::vector<Node*>& launched() {
  static auto* const all = new std::vector<Node*>;
  return *all;
}

// Whether the hosts of the other ranks have come as far as a first connection needs.
bool is_connected(const Call& call) {
  const Comm& comm = *call.comm;
  if (comm.is_aborted || call.number > 1) return true;
  Clique& clique = *comm.clique;
  if (call.is_message())
    return call.sends ? clique.rank(call.to).receives[call.from] > 0 : clique.rank(call.from).sends[call.to] > 0;
  for (int q = 0; q < clique.n_ranks(); ++q)
    if (clique.rank(q).calls == 0) return false;
  return true;
}

// Behind what `before` has so far comes what `after` gets from now on.
void order(fake_cuda::Stream* before, fake_cuda::Stream* after) {
  static std::deque<fake_cuda::Event> events;  // work refers to them
  events.emplace_back().context = before->context;
  Machine::get().record(*before, events.back());
  Machine::get().await(*after, events.back());
}

// Calls of one communicator are one launch, which all their streams wait for and which waits for all of them. A capture
// takes them and drops them.
void enqueue(const std::vector<Call>& calls) {
  static uint64_t units;
  Machine& machine = Machine::get();
  ++units;
  std::vector<Comm*> comms;
  for (const Call& call : calls)
    if (!call.comm->is_aborted && std::ranges::find(comms, call.comm) == comms.end()) comms.push_back(call.comm);
  for (Comm* comm : comms) {
    const Call& first = *std::ranges::find(calls, comm, &Call::comm);
    fake_cuda::Stream* stream = machine.stream(first.stream, comm->context);
    if (stream->capture) {
      fake_cuda::capture_drop(*stream, "nccl " + first.name);
      continue;
    }
    const auto node = std::make_shared<Node>(stream, comm, units);
    std::vector<fake_cuda::Stream*> others;
    Operation operation;
    operation.name = "nccl " + first.name;
    operation.joint = node;
    for (const Call& call : calls) {
      if (call.comm != comm) continue;
      fake_cuda::Stream* own = machine.stream(call.stream, comm->context);
      if (own != stream && std::ranges::find(others, own) == others.end()) others.push_back(own);
      node->add(call);
      const auto send = reinterpret_cast<uintptr_t>(call.send), recv = reinterpret_cast<uintptr_t>(call.recv);
      if (call.send_bytes) operation.accesses.push_back({send, send + call.send_bytes, false});
      if (call.recv_bytes) operation.accesses.push_back({recv, recv + call.recv_bytes, true});
    }
    comm->nodes.push_back(node.get());
    launched().push_back(node.get());
    for (fake_cuda::Stream* other : others) order(other, stream);
    machine.enqueue(*stream, std::move(operation));
    for (fake_cuda::Stream* other : others) order(stream, other);
  }
}

}  // namespace

Node::~Node() {
  std::erase(comm_->nodes, this);
  std::erase(launched(), this);
}

void Node::add(Call call) {
  calls_.push_back(std::move(call));
}

// Since 2.26, if it is asked for. Without it a device still runs one launch at a time.
static bool keeps_order() {
  const std::string order = text_in("GSEL_FAKE_NCCL_ORDER");
  if (order.empty()) return true;
  return order == "asked" && number_in("GSEL_FAKE_NCCL_VERSION", 22809) >= 22600 &&
         number_in("NCCL_LAUNCH_ORDER_IMPLICIT", 0) != 0;
}

bool Node::is_at_head() const {
  return !stream_->queue.empty() && stream_->queue.front().joint.get() == this;
}

// The launch that the device runs, or that it runs next: without an order the first that streams have come to on a
// device of an even number, the last on others.
const Node* Node::whose_turn() const {
  const Node* next = nullptr;
  const bool is_kept = keeps_order();
  for (const Node* node : launched()) {
    if (node->device() != device() || node->comm_->is_aborted) continue;
    if (is_kept || node->has_begun_) return node;
    if (node->is_at_head() && (!next || fake_cuda::device_of(device()) % 2 != 0)) next = node;
  }
  return next;
}

// A device runs one launch at a time; calls of one group are one.
bool Node::is_turn() const {
  const Node* node = whose_turn();
  return !node || node->unit_ == unit_;
}

Post& Node::post_of(const Call& call) const {
  RankShare& own = comm_->own();
  return call.is_message() ? own.messages[call.to][(call.number - 1) % kMessageSlots]
                           : own.collectives[(call.number - 1) % kSlots];
}

bool Node::can_post(const Call& call) const {
  if (call.is_posted) return false;
  if (call.is_message() && !call.sends) return true;
  const uint64_t slots = call.is_message() ? kMessageSlots : kSlots;
  if (call.number > slots && !comm_->clique->is_taken(comm_->rank, post_of(call), call.number - slots)) return false;
  return comm_->clique->has_room(comm_->rank, call.send_bytes);
}

// Ranks of one process reach each other's memory where it is, also where their devices may not; unless they cannot, or
// are told to copy on the way.
void Node::check_reach(const Call& call) const {
  const Machine& machine = Machine::get();
  if (!machine.has_peers() || number_in("NCCL_P2P_DISABLE", 0) || number_in("NCCL_P2P_DIRECT_DISABLE", 0)) return;
  for (const Comm& other : all_comms()) {
    if (other.clique != comm_->clique || other.rank == comm_->rank) continue;
    const int device = fake_cuda::device_of(other.context);
    if (machine.may_access(reinterpret_cast<uintptr_t>(call.send), call.send_bytes, device) &&
        machine.may_access(reinterpret_cast<uintptr_t>(call.recv), call.recv_bytes, device))
      continue;
    Machine::get().violation("nccl " + call.name + " reaches memory of rank " + std::to_string(comm_->rank) +
                             " from device " + std::to_string(device) + ", which has no access to it");
  }
}

void Node::post(const Call& call) {
  check_reach(call);
  if (call.is_message() && !call.sends) return;
  Post& post = post_of(call);
  char* data = comm_->clique->place(comm_->rank, call.send_bytes, post, call.number);
  if (call.send_bytes) memcpy(data, Machine::get().here(call.send), call.send_bytes);
  post.offset = static_cast<uint64_t>(data - comm_->clique->data(comm_->rank, Post{}));
  post.bytes = call.send_bytes;
  post.memory = 0;
  if (call.send_bytes)
    post.memory |= kSends | (comm_->has_registered(call.send, call.send_bytes) ? kSendsRegistered : 0);
  if (call.recv_bytes)
    post.memory |= kReceives | (comm_->has_registered(call.recv, call.recv_bytes) ? kReceivesRegistered : 0);
  post.send_place = call.send_bytes ? comm_->place_of(call.send, call.send_bytes) : 0;
  post.recv_place = call.recv_bytes ? comm_->place_of(call.recv, call.recv_bytes) : 0;
  snprintf(post.signature, sizeof post.signature, "%s", call.signature.c_str());
  post.number.store(call.number, std::memory_order_release);
}

// Calls that differ never are.
bool Node::is_ready(const Call& call) const {
  if (!call.is_posted) return false;
  Clique& clique = *comm_->clique;
  if (call.is_message() && call.sends) return clique.rank(call.to).taken[call.from] >= call.number;
  if (call.is_message()) {
    const Post& sent = clique.rank(call.from).messages[call.to][(call.number - 1) % kMessageSlots];
    return sent.number == call.number && sent.bytes == call.recv_bytes;
  }
  for (int q = 0; q < clique.n_ranks(); ++q) {
    const Post& post = clique.rank(q).collectives[(call.number - 1) % kSlots];
    if (post.number != call.number || call.signature != post.signature) return false;
  }
  return true;
}

// A rank whose buffers are in windows takes the kernels for symmetric memory, which wait for each other and compute
// where the buffers of other ranks are from their own.
void Node::check_windows(const Call& call) const {
  const bool reads = call.name == "allreduce" || call.name == "reduce_scatter";
  const bool writes = call.name == "allreduce" || call.name == "allgather";
  if ((!reads && !writes) || call.send_bytes == 0) return;
  Clique& clique = *comm_->clique;
  const auto post_of_rank = [&](int q) -> const Post& {
    return clique.rank(q).collectives[(call.number - 1) % kSlots];
  };
  const auto takes = [](const Post& post) { return post.send_place != 0 && post.recv_place != 0; };
  const Post& own = post_of_rank(comm_->rank);
  for (int q = 0; q < clique.n_ranks(); ++q) {
    const Post& other = post_of_rank(q);
    if (takes(other) != takes(own))
      Machine::get().violation("nccl " + call.name + " of buffers that are in windows on some ranks only");
    else if (takes(own) &&
             ((reads && other.send_place != own.send_place) || (writes && other.recv_place != own.recv_place)))
      Machine::get().violation("nccl " + call.name +
                               " of buffers that lie at other offsets of a window on other ranks");
  }
}

void Node::finish(const Call& call) const {
  Clique& clique = *comm_->clique;
  char* recv = call.recv_bytes ? static_cast<char*>(Machine::get().here(call.recv)) : nullptr;
  if (call.is_message()) {
    if (call.sends) return;
    const Post& sent = clique.rank(call.from).messages[call.to][(call.number - 1) % kMessageSlots];
    memcpy(recv, clique.data(call.from, sent), call.recv_bytes);
    comm_->own().taken[call.from] = call.number;
    return;
  }
  std::vector<const char*> inputs;
  bool some = false, others = false;
  for (int q = 0; q < clique.n_ranks(); ++q) {
    const Post& post = clique.rank(q).collectives[(call.number - 1) % kSlots];
    inputs.push_back(clique.data(q, post));
    for (uint32_t use : {kSends, kReceives})
      if (post.memory & use) (post.memory & (use << 1) ? some : others) = true;
  }
  if (some && others)
    Machine::get().violation("nccl " + call.name +
                             " on memory that is registered on some ranks, or for one buffer, and not on others");
  check_windows(call);
  if (recv) call.finish(inputs, recv);
  comm_->own().done = call.number;
}

bool Node::can_go() const {
  if (comm_->is_aborted) return true;
  return std::ranges::any_of(calls_, [&](const Call& call) { return is_ready(call) || (can_post(call) && is_turn()); });
}

// What calls that have not ended leave where they receive: numbers that are finite and not 0.
void Node::spoil() const {
  if (text_in("GSEL_FAKE_NCCL_ABORTED") == "untouched") return;
  for (const Call& call : calls_)
    if (call.recv_bytes && Machine::get().find(reinterpret_cast<uintptr_t>(call.recv)))
      memset(Machine::get().here(call.recv), 0x3f, call.recv_bytes);
}

// The kernel of an aborted communicator ends when it begins, and may have written.
bool Node::go() {
  if (comm_->is_aborted) {
    spoil();
    return true;
  }
  for (Call& call : calls_)
    if (can_post(call) && is_turn()) post(call), call.is_posted = has_begun_ = true;
  std::erase_if(calls_, [&](const Call& call) { return is_ready(call) && (finish(call), true); });
  return calls_.empty();
}

std::vector<int> Node::peers(const Call& call) const {
  if (call.is_message()) return {call.sends ? call.to : call.from};
  std::vector<int> all;
  for (int q = 0; q < comm_->clique->n_ranks(); ++q) all.push_back(q);
  return all;
}

std::vector<fake_cuda::Stream*> Node::awaited() const {
  std::vector<fake_cuda::Stream*> streams;
  if (!is_turn()) return {whose_turn()->stream_};
  for (const Call& call : calls_)
    for (const int q : peers(call)) {
      if (q == comm_->rank) continue;
      comm_->clique->rank(q).wanted_ns = now_ns();
      for (const Comm& other : all_comms())
        if (other.clique == comm_->clique && other.rank == q && !other.nodes.empty())
          streams.push_back(other.nodes.front()->stream_);
    }
  return streams;
}

bool go_on(Job& job) {
  if (job.is_done) return true;
  if (job.polls-- > 0) return false;
  if (!std::ranges::all_of(job.calls, is_connected)) return false;
  job.is_done = true;
  enqueue(job.calls);
  return true;
}

void keep_going() {
  static bool is_begun = [] {
    std::thread([] {
      for (;;) {
        usleep(100);
        Machine& machine = Machine::get();
        const std::lock_guard lock(machine.mutex());
        for (Comm& comm : all_comms())
          if (!comm.nodes.empty() && now_ns() - comm.own().wanted_ns < kWantedNs)
            machine.nudge(comm.nodes.front()->stream());
      }
    }).detach();
    return true;
  }();
  (void)is_begun;
}

}  // namespace fake_nccl
