// train/query/mirror.cc: see mirror.h.
#include "train/query/mirror.h"

#include "train/ranks/agree.h"

namespace gsel {

Mirror::Mirror(Communicator& comm, StateDict& dict) {
  comm_.emplace(*comm.split_inside(0, comm.rank(), "mirror", true));
  std::vector<int64_t> mine;
  for (const StatePart& part : dict.own()) {
    mine.push_back(part.tensor);
    put_region(mine, part.region);
  }
  const auto lists = gather_lists(*comm_, mine);
  const auto n = static_cast<size_t>(comm_->world_size());
  own_ = parts_of(mine);
  other_ = parts_of(lists[(static_cast<size_t>(comm_->rank()) + n - 1) % n]);
  on_all_ranks(*comm_, "mirror of the state", [&] {
    for (Copy& copy : copies_) {
      copy.own.resize(own_.elems);
      copy.other.resize(other_.elems);
    }
  });
}

Mirror::Parts Mirror::parts_of(const std::vector<int64_t>& list) {
  Parts parts;
  for (const int64_t* at = list.data(); at < list.data() + list.size();) {
    const auto tensor = static_cast<int32_t>(*at++);
    parts.pieces.push_back({tensor, take_region(at)});
    parts.first.push_back(parts.elems);
    parts.elems += static_cast<uint64_t>(parts.pieces.back().region.count());
  }
  return parts;
}

// A rank can begin to overwrite a step only after another whole step, so that the older copies are there on all ranks
// as long as the newer are not.
void Mirror::keep(StateDict& dict, const TrainingNumbers& numbers) {
  Copy& copy = copies_[next_];
  copy.numbers.reset();
  float* to = copy.own.data();
  for (const StatePart& part : dict.own()) {
    dict.read(part, to);
    to += part.region.count();
  }
  const auto n = static_cast<size_t>(comm_->world_size()), me = static_cast<size_t>(comm_->rank());
  std::vector<uint64_t> send(n), recv(n);
  send[(me + 1) % n] = own_.elems;
  recv[(me + n - 1) % n] = other_.elems;
  gsel_collective call =
      make_collective(GSEL_COLLECTIVE_ALLTOALLV, copy.own.data(), copy.other.data(), 0, GSEL_F32, 0, 0);
  call.send_counts = send.data();
  call.recv_counts = recv.data();
  comm_->collective_on_host(call);
  copy.numbers = numbers;
  next_ = 1 - next_;
}

HeldState Mirror::held_of(const Parts& parts, const std::vector<float>& values, const TrainingNumbers& numbers) {
  HeldState held{numbers, parts.pieces, {}};
  held.read = [&parts, &values](size_t piece, int64_t first, int64_t count, float* dst) {
    std::memcpy(dst, values.data() + parts.first[piece] + first, static_cast<size_t>(count) * sizeof(float));
  };
  return held;
}

std::vector<HeldState> Mirror::held() const {
  std::vector<HeldState> held;
  for (const Copy& copy : copies_) {
    if (!copy.numbers) continue;
    held.push_back(held_of(own_, copy.own, *copy.numbers));
    held.push_back(held_of(other_, copy.other, *copy.numbers));
  }
  return held;
}

uint64_t Mirror::bytes() const {
  return 2 * sizeof(float) * (own_.elems + other_.elems);
}

}  // namespace gsel
