// plugins/transport/cuda_ipc/messages.cc: messages through the boxes of a pair of ranks, and the calls that are made of
// them: those in which a rank does not know what the others send each other.
#include <algorithm>
#include <deque>

#include "link.h"

namespace gsel_ipc {
namespace {

using namespace gsel_between;

// The messages of one direction between two ranks, one after the other.
struct Queue {
  std::deque<Part> parts;
  uint64_t at = 0;  // in the first
};

class Exchange {
 public:
  Exchange(const Enqueue& on, std::span<const Part> parts)
      : on_(on), sends_(static_cast<size_t>(on.ranks())), receives_(static_cast<size_t>(on.ranks())) {
    for (const Part& part : parts) {
      if (part.bytes == 0) continue;
      (part.send ? sends_ : receives_)[static_cast<size_t>(part.peer)].parts.push_back(part);
    }
  }

  // A box at a time for all directions, so that none waits for the whole of another.
  void make() {
    copy_own();
    for (bool more = true; more;) {
      more = false;
      for (int32_t q = 0; q < on_.ranks(); ++q) more = give(q) || more;
      for (int32_t q = 0; q < on_.ranks(); ++q) more = take(q) || more;
    }
  }

 private:
  void copy_own() {
    Queue &from = sends_[static_cast<size_t>(on_.rank())], &to = receives_[static_cast<size_t>(on_.rank())];
    if (from.parts.size() != to.parts.size())
      fail(GSEL_ERR_ARG, "cuda_ipc: a message of a rank to itself is sent and received in one group");
    for (size_t i = 0; i < from.parts.size(); ++i)
      on_.copy(to.parts[i].recv, from.parts[i].send, std::min(from.parts[i].bytes, to.parts[i].bytes));
    from = to = {};
  }

  // false: there is nothing for this rank.
  bool give(int32_t to) {
    Queue& queue = sends_[static_cast<size_t>(to)];
    if (queue.parts.empty()) return false;
    const int which = next(on_.link().box_to, to);
    const uint64_t n = std::min(queue.parts.front().bytes - queue.at, kBoxBytes);
    on_.await_empty(Kind::box, which, to);
    on_.copy(on_.arena().box(on_.rank(), to, which), static_cast<const char*>(queue.parts.front().send) + queue.at, n);
    on_.fill(Kind::box, which, {&to, 1});
    pass(queue, n);
    return true;
  }
  bool take(int32_t from) {
    Queue& queue = receives_[static_cast<size_t>(from)];
    if (queue.parts.empty()) return false;
    const int which = next(on_.link().box_from, from);
    const uint64_t n = std::min(queue.parts.front().bytes - queue.at, kBoxBytes);
    on_.await_full(Kind::box, which, from);
    on_.copy(static_cast<char*>(queue.parts.front().recv) + queue.at, on_.arena().box(from, on_.rank(), which), n);
    on_.empty(Kind::box, which, {&from, 1});
    pass(queue, n);
    return true;
  }

  static int next(std::vector<int>& which, int32_t peer) {
    int& of = which[static_cast<size_t>(peer)];
    return std::exchange(of, (of + 1) % kSlots);
  }
  static void pass(Queue& queue, uint64_t bytes) {
    queue.at += bytes;
    if (queue.at < queue.parts.front().bytes) return;
    queue.parts.pop_front();
    queue.at = 0;
  }

  const Enqueue& on_;
  std::vector<Queue> sends_, receives_;  // by rank
};

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

void messages(const Enqueue& on, std::span<const Part> parts) {
  Exchange(on, parts).make();
}

}  // namespace gsel_ipc
