// plugins/transport/cuda_ipc/messages.cc: messages through the boxes of a pair of ranks, and the calls that are made of
// them: those in which a rank does not know what the others send each other.
#include <algorithm>
#include <utility>

#include "link.h"

namespace gsel_ipc {
namespace {

using namespace gsel_between;

// The transfers of one call.
class Transfers {
 public:
  Transfers(const gsel_link& link, const gsel_collective& call, std::vector<Part>& out)
      : link_(link), call_(call), out_(out) {}

  void add() {
    switch (call_.kind) {
      case GSEL_COLLECTIVE_SEND:
        return send(call_.root, 0, call_.count);
      case GSEL_COLLECTIVE_RECV:
        return recv(call_.root, 0, call_.count);
      case GSEL_COLLECTIVE_SENDRECV:
        send(call_.root, 0, call_.count);
        return recv(call_.source, 0, call_.recv_count);
      case GSEL_COLLECTIVE_GATHER:
      case GSEL_COLLECTIVE_GATHERV:
        send(call_.root, 0, is_v() ? call_.recv_counts[link_.rank] : call_.count);
        if (link_.rank == call_.root) recv_all();
        return;
      case GSEL_COLLECTIVE_SCATTER:
      case GSEL_COLLECTIVE_SCATTERV:
        if (link_.rank == call_.root) send_all();
        return recv(call_.root, 0, is_v() ? call_.send_counts[link_.rank] : call_.count);
      default:
        send_all();
        recv_all();
    }
  }

 private:
  bool is_v() const { return call_.kind >= GSEL_COLLECTIVE_GATHERV && call_.kind <= GSEL_COLLECTIVE_ALLTOALLV; }
  void send(int32_t to, uint64_t first, uint64_t n) {
    const char* from = static_cast<const char*>(call_.send) + bytes_of(call_.dtype, first);
    if (n > 0) out_.push_back({to, from, nullptr, bytes_of(call_.dtype, n)});
  }
  void recv(int32_t from, uint64_t first, uint64_t n) {
    char* to = static_cast<char*>(call_.recv) + bytes_of(call_.dtype, first);
    if (n > 0) out_.push_back({from, nullptr, to, bytes_of(call_.dtype, n)});
  }
  void send_all() {
    for (int32_t q = 0; q < link_.world_size; ++q)
      is_v() ? send(q, first_of(call_.send_counts, call_.send_offsets, q), call_.send_counts[q])
             : send(q, static_cast<uint64_t>(q) * call_.count, call_.count);
  }
  void recv_all() {
    for (int32_t q = 0; q < link_.world_size; ++q)
      is_v() ? recv(q, first_of(call_.recv_counts, call_.recv_offsets, q), call_.recv_counts[q])
             : recv(q, static_cast<uint64_t>(q) * call_.count, call_.count);
  }

  const gsel_link& link_;
  const gsel_collective& call_;
  std::vector<Part>& out_;
};

}  // namespace

bool is_message(gsel_collective_kind kind) {
  switch (kind) {
    case GSEL_COLLECTIVE_SEND:
    case GSEL_COLLECTIVE_RECV:
    case GSEL_COLLECTIVE_SENDRECV:
    case GSEL_COLLECTIVE_GATHER:
    case GSEL_COLLECTIVE_GATHERV:
    case GSEL_COLLECTIVE_SCATTER:
    case GSEL_COLLECTIVE_SCATTERV:
    case GSEL_COLLECTIVE_ALLTOALL:
    case GSEL_COLLECTIVE_ALLTOALLV:
      return true;
    default:
      return false;
  }
}

void add_parts(const gsel_link& link, const gsel_collective& call, std::vector<Part>& out) {
  Transfers(link, call, out).add();
}

// ---- exchanges ------------------------------------------------------------------------------------------------------

uint64_t Exchange::Queue::bytes() const {
  uint64_t sum = 0;
  for (const Part& part : parts) sum += part.bytes;
  return sum;
}

// A message that boxes do not hold waits for the other rank in the middle, which may make its calls one by one. So each
// direction goes on a stream of its own then.
Exchange::Exchange(const Enqueue& on, std::span<const Part> parts, bool has_others) : on_(on), is_apart_(has_others) {
  for (const Part& part : parts) {
    if (part.bytes == 0) continue;
    const bool gives = part.send != nullptr;
    auto of = std::ranges::find_if(queues_, [&](const Queue& q) { return q.peer == part.peer && q.gives == gives; });
    if (of == queues_.end()) of = queues_.insert(of, {part.peer, gives, {}, 0});
    of->parts.push_back(part);
  }
  for (const Queue& queue : queues_)
    is_apart_ = is_apart_ || (queues_.size() > 1 && queue.bytes() > kSlots * kBoxBytes);
  is_apart_ = is_apart_ && !queues_.empty() && on.link().by_streams;
  copy_own();
  if (is_apart_) fork();
}

Exchange::~Exchange() {
  join();
}

void Exchange::pass() {
  on_.link().by_streams ? pass_in_turns() : pass_as_they_come();
}

void Exchange::pass_apart() {
  for (size_t i = 0; i < queues_.size(); ++i) {
    const Enqueue lane(on_.link(), forked_[i]->stream, on_.timeout_s());
    while (pass(queues_[i], lane)) {
    }
  }
}

void Exchange::copy_own() {
  const auto take = [&](bool gives) {
    std::deque<Part> parts;
    std::erase_if(queues_, [&](Queue& q) {
      if (q.peer != on_.rank() || q.gives != gives) return false;
      parts = std::move(q.parts);
      return true;
    });
    return parts;
  };
  const std::deque<Part> from = take(true), to = take(false);
  if (from.size() != to.size())
    fail(GSEL_ERR_ARG, "cuda_ipc: a message of a rank to itself is sent and received in one group");
  for (size_t i = 0; i < from.size(); ++i) on_.copy(to[i].recv, from[i].send, std::min(from[i].bytes, to[i].bytes));
}

// One box. false: there was nothing more.
bool Exchange::pass(Queue& queue, const Enqueue& on) {
  if (queue.parts.empty()) return false;
  const Part& part = queue.parts.front();
  gsel_link& link = on.link();
  int& of = (queue.gives ? link.box_to : link.box_from)[static_cast<size_t>(queue.peer)];
  const int which = std::exchange(of, (of + 1) % kSlots);
  const uint64_t n = std::min(part.bytes - queue.at, kBoxBytes);
  if (queue.gives) {
    on.await_empty(Kind::box, which, queue.peer);
    on.copy(on.arena().box(on.rank(), queue.peer, which), static_cast<const char*>(part.send) + queue.at, n);
    on.fill(Kind::box, which, {&queue.peer, 1});
  } else {
    on.await_full(Kind::box, which, queue.peer);
    on.copy(static_cast<char*>(part.recv) + queue.at, on.arena().box(queue.peer, on.rank(), which), n);
    on.empty(Kind::box, which, {&queue.peer, 1});
  }
  queue.at += n;
  if (queue.at == part.bytes) {
    queue.parts.pop_front();
    queue.at = 0;
  }
  return true;
}

// What is given first, since that waits for nobody here.
void Exchange::pass_in_turns() {
  for (bool more = true; more;) {
    more = false;
    for (const bool gives : {true, false})
      for (Queue& queue : queues_) more = (queue.gives == gives && pass(queue, on_)) || more;
  }
}

// The host waits for whichever comes first.
void Exchange::pass_as_they_come() {
  const auto is_ready = [&](const Queue& queue) {
    const gsel_link& link = on_.link();
    const int which = (queue.gives ? link.box_to : link.box_from)[static_cast<size_t>(queue.peer)];
    return queue.gives ? on_.is_empty(Kind::box, which, queue.peer) : on_.is_full(Kind::box, which, queue.peer);
  };
  for (int round = 0;; ++round) {
    bool more = false;
    for (Queue& queue : queues_) {
      if (!queue.parts.empty() && is_ready(queue)) pass(queue, on_), round = 0;
      more = more || !queue.parts.empty();
    }
    if (!more) return;
    on_.look(round);
  }
}

void Exchange::fork() {
  gsel_link& link = on_.link();
  for (const Queue& queue : queues_) {
    gsel_link::Lane& lane = link.lanes[{queue.peer, queue.gives}];
    if (!lane.event)
      must([&](gsel_error** err) { return link.device->event_create(link.device_ctx, 0, &lane.event, err); });
    if (!lane.stream)
      must([&](gsel_error** err) { return link.device->stream_create(link.device_ctx, 0, &lane.stream, err); });
    on_.hold(lane.event, lane.stream);
    forked_.push_back(&lane);
  }
}

// Also what a failure has left.
void Exchange::join() noexcept {
  for (const gsel_link::Lane* lane : std::exchange(forked_, {})) try {
      on_.await_lane(*lane);
    } catch (...) {  // the device has failed
      on_.link().is_lost = true;
    }
}

}  // namespace gsel_ipc
