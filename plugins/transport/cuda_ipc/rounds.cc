// plugins/transport/cuda_ipc/rounds.cc: collectives in rounds. In a round some ranks give what lies in their slot, and
// some take from the slots of all that give. All ranks make the same rounds, of at most a slot each, and take sources
// in the order of ranks, so that sums have the bits of the host's.
#include <algorithm>

#include "link.h"

namespace gsel_ipc {
namespace {

constexpr uint64_t kOneShotBytes = 1 << 20;  // of all ranks together; above, each rank reduces a part for all

class Rounds {
 public:
  Rounds(const Enqueue& on, const gsel_collective& call) : on_(on), call_(call) {
    for (int32_t q = 0; q < on.ranks(); ++q) {
      all_.push_back(q);
      if (q != on.rank()) others_.push_back(q);
    }
  }

  void make() const;

 private:
  using Ranks = std::vector<int32_t>;
  struct Roles {
    Ranks givers, takers;  // without this rank
    bool gives, takes;
  };
  Roles roles(const Ranks& givers, const Ranks& takers) const;
  // give(slot) and take(which) enqueue what is done with them.
  template <class Give, class Take>
  void round(const Roles& roles, Give&& give, Take&& take) const;

  void barrier() const;
  void broadcast() const;
  void gather_all() const;
  void reduce_in_one(const Ranks& takers) const;
  void reduce_in_two() const;
  void reduce_scatter() const;

  uint64_t bytes(uint64_t elems) const { return bytes_of(call_.dtype, elems); }
  uint64_t slot_elems() const { return kSlotBytes / bytes(1); }
  const char* send(uint64_t elem) const { return static_cast<const char*>(call_.send) + bytes(elem); }
  char* recv(uint64_t elem) const { return static_cast<char*>(call_.recv) + bytes(elem); }
  char* slot_of(int32_t q, int which, uint64_t elem = 0) const { return on_.arena().slot(q, which) + bytes(elem); }
  Ranks root() const { return {call_.root}; }
  bool is_root() const { return on_.rank() == call_.root; }
  // The elements of a rank's part, and where they begin.
  uint64_t count_of(int32_t q) const { return call_.recv_counts ? call_.recv_counts[q] : call_.count; }
  uint64_t first_in(const uint64_t* offsets, int32_t q) const {
    return call_.recv_counts ? first_of(call_.recv_counts, offsets, q) : static_cast<uint64_t>(q) * call_.count;
  }
  uint64_t largest_count() const {
    uint64_t most = 0;
    for (const int32_t q : all_) most = std::max(most, count_of(q));
    return most;
  }
  // How many of a rank's elements a round has.
  uint64_t piece(int32_t q, uint64_t from, uint64_t most) const {
    const uint64_t n = count_of(q);
    return n > from ? std::min(n - from, most) : 0;
  }
  void reduce(char* to, int which, uint64_t elem, const char* own, uint64_t n) const;

  const Enqueue& on_;
  const gsel_collective& call_;
  Ranks all_, others_;
  mutable int n_rounds_ = 0;
};

Rounds::Roles Rounds::roles(const Ranks& givers, const Ranks& takers) const {
  Roles roles{givers, takers, false, false};
  roles.gives = std::erase(roles.givers, on_.rank()) > 0;
  roles.takes = std::erase(roles.takers, on_.rank()) > 0;
  return roles;
}

template <class Give, class Take>
void Rounds::round(const Roles& roles, Give&& give, Take&& take) const {
  const int which = on_.link().slot;
  on_.link().slot = (which + 1) % kSlots;
  on_.pace(++n_rounds_);
  if (roles.gives) {
    for (const int32_t q : others_) on_.await_empty(Kind::slot, which, q);  // also of an earlier round's takers
    give(on_.arena().slot(on_.rank(), which));
    on_.fill(Kind::slot, which, roles.takers);
  }
  if (!roles.takes) return;
  for (const int32_t q : roles.givers) on_.await_full(Kind::slot, which, q);
  take(which);
  on_.empty(Kind::slot, which, roles.givers);
}

void Rounds::barrier() const {
  round(
      roles(all_, all_), [](char*) {}, [](int) {});
}

void Rounds::broadcast() const {
  const Roles who = roles(root(), all_);
  if (is_root()) on_.copy(call_.recv, call_.send, bytes(call_.count));
  for (uint64_t at = 0; at < call_.count; at += slot_elems()) {
    const uint64_t n = bytes(std::min(call_.count - at, slot_elems()));
    round(
        who, [&](char* slot) { on_.copy(slot, send(at), n); },
        [&](int which) {
          if (!is_root()) on_.copy(recv(at), slot_of(call_.root, which), n);
        });
  }
}

void Rounds::gather_all() const {
  const Roles who = roles(all_, all_);
  const int32_t own = on_.rank();
  on_.copy(recv(first_in(call_.recv_offsets, own)), call_.send, bytes(count_of(own)));
  for (uint64_t at = 0; at < largest_count(); at += slot_elems())
    round(
        who, [&](char* slot) { on_.copy(slot, send(at), bytes(piece(own, at, slot_elems()))); },
        [&](int which) {
          for (const int32_t q : others_)
            on_.copy(recv(first_in(call_.recv_offsets, q) + at), slot_of(q, which), bytes(piece(q, at, slot_elems())));
        });
}

// Elements of the slots from `elem` on; own: this rank's, where they are.
void Rounds::reduce(char* to, int which, uint64_t elem, const char* own, uint64_t n) const {
  std::vector<const void*> from;
  for (const int32_t q : all_) from.push_back(q == on_.rank() ? own : slot_of(q, which, elem));
  on_.reduce(to, from, call_.dtype, call_.op, n);
}

// Those that take read what all have.
void Rounds::reduce_in_one(const Ranks& takers) const {
  const Roles who = roles(all_, takers);
  for (uint64_t at = 0; at < call_.count; at += slot_elems()) {
    const uint64_t n = std::min(call_.count - at, slot_elems());
    round(
        who,
        [&](char* slot) {
          if (!who.takers.empty()) on_.copy(slot, send(at), bytes(n));
        },
        [&](int which) { reduce(recv(at), which, 0, send(at), n); });
  }
}

// Each rank reduces its part of a slot into its next one, from which the others take it.
void Rounds::reduce_in_two() const {
  const Roles who = roles(all_, all_);
  const auto ranks = static_cast<uint64_t>(on_.ranks());
  const uint64_t most = slot_elems() / ranks * ranks;
  for (uint64_t at = 0; at < call_.count; at += most) {
    const uint64_t n = std::min(call_.count - at, most), part = (n + ranks - 1) / ranks;
    const auto begin = [&](int32_t q) { return std::min(n, static_cast<uint64_t>(q) * part); };
    const auto elems = [&](int32_t q) { return std::min(n, begin(q) + part) - begin(q); };
    const int32_t own = on_.rank();
    round(
        who, [&](char* slot) { on_.copy(slot, send(at), bytes(n)); },
        [&](int which) { reduce(recv(at + begin(own)), which, begin(own), send(at + begin(own)), elems(own)); });
    round(
        who, [&](char* slot) { on_.copy(slot, recv(at + begin(own)), bytes(elems(own))); },
        [&](int which) {
          for (const int32_t q : others_) on_.copy(recv(at + begin(q)), slot_of(q, which), bytes(elems(q)));
        });
  }
}

// A slot has a piece for each rank.
void Rounds::reduce_scatter() const {
  const Roles who = roles(all_, all_);
  const uint64_t most = slot_elems() / static_cast<uint64_t>(on_.ranks());
  const int32_t own = on_.rank();
  for (uint64_t at = 0; at < largest_count(); at += most)
    round(
        who,
        [&](char* slot) {
          for (const int32_t q : others_)
            on_.copy(slot + bytes(static_cast<uint64_t>(q) * most), send(first_in(call_.send_offsets, q) + at),
                     bytes(piece(q, at, most)));
        },
        [&](int which) {
          reduce(recv(at), which, static_cast<uint64_t>(own) * most, send(first_in(call_.send_offsets, own) + at),
                 piece(own, at, most));
        });
}

void Rounds::make() const {
  switch (call_.kind) {
    case GSEL_COLLECTIVE_BARRIER:
      return barrier();
    case GSEL_COLLECTIVE_BROADCAST:
      return broadcast();
    case GSEL_COLLECTIVE_ALLGATHER:
    case GSEL_COLLECTIVE_ALLGATHERV:
      return gather_all();
    case GSEL_COLLECTIVE_REDUCE:
      return reduce_in_one(root());
    case GSEL_COLLECTIVE_ALLREDUCE:
      if (on_.ranks() > 2 && bytes(call_.count) * static_cast<uint64_t>(on_.ranks()) > kOneShotBytes)
        return reduce_in_two();
      return reduce_in_one(all_);
    default:
      return reduce_scatter();
  }
}

}  // namespace

void collective(const Enqueue& on, const gsel_collective& call) {
  Rounds(on, call).make();
}

}  // namespace gsel_ipc
