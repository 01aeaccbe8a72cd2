// fake/cuda/clique.cc: see clique.h.
#include "clique.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace fake_nccl {
namespace {

constexpr uint64_t kShares = sizeof(RankShare) * kMostRanks;
constexpr uint64_t kFile = kShares + kRing * kMostRanks;

struct Origin {
  int pid, file;
};

char* map_file(int file) {
  void* memory = mmap(nullptr, kFile, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

}  // namespace

UniqueId Clique::make_id() {
  const int file = memfd_create("fake_nccl", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kFile) != 0) abort();
  const Origin origin{getpid(), file};
  UniqueId id{};
  memcpy(id.bytes, &origin, sizeof origin);
  return id;
}

// Ranks of one process share one object.
std::shared_ptr<Clique> Clique::open(const UniqueId& id, int n_ranks) {
  static auto* const known = new std::map<std::string, std::weak_ptr<Clique>>;
  Origin origin{};
  memcpy(&origin, id.bytes, sizeof origin);
  auto& found = (*known)[std::string(id.bytes, sizeof origin)];
  if (auto clique = found.lock()) return clique;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", origin.pid, origin.file);
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  char* memory = file < 0 ? nullptr : map_file(file);
  if (file >= 0) close(file);
  if (!memory) return nullptr;
  auto clique = std::make_shared<Clique>();
  clique->n_ranks_ = n_ranks;
  clique->shares_ = reinterpret_cast<RankShare*>(memory);
  clique->rings_ = memory + kShares;
  found = clique;
  return clique;
}

bool Clique::is_dead(int r) const {
  char path[32], state = 'X';
  snprintf(path, sizeof path, "/proc/%d/stat", shares_[r].pid.load());
  FILE* file = fopen(path, "re");
  if (!file) return true;
  if (fscanf(file, "%*d %*[^)]) %c", &state) != 1) state = 'X';
  fclose(file);
  return state == 'Z' || state == 'X';
}

bool Clique::has_other_processes() const {
  for (int r = 0; r < n_ranks_; ++r)
    if (shares_[r].pid != getpid()) return true;
  return false;
}

// Whether all that wait for it have what was posted.
bool Clique::is_taken(int r, const Post& post, uint64_t number) const {
  const RankShare& own = shares_[r];
  if (&post >= own.collectives && &post < own.collectives + kSlots) {
    for (int q = 0; q < n_ranks_; ++q)
      if (shares_[q].done < number) return false;
    return true;
  }
  const auto to = static_cast<size_t>(&post - own.messages[0]) / kMessageSlots;
  return shares_[to].taken[r] >= number;
}

// The first place behind others that have not been taken; it may end past the ring.
uint64_t Clique::room(int r, uint64_t bytes) const {
  uint64_t begin = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (const Placed& p : placed_)
      if (p.rank == r && begin < p.end && p.begin < begin + bytes && !is_taken(r, *p.post, p.number))
        begin = p.end, moved = true;
  }
  return begin;
}

bool Clique::has_room(int r, uint64_t bytes) const {
  return room(r, bytes) + bytes <= kRing;
}

char* Clique::place(int r, uint64_t bytes, const Post& of, uint64_t number) {
  std::erase_if(placed_, [&](const Placed& p) { return is_taken(p.rank, *p.post, p.number); });
  const uint64_t begin = room(r, bytes);
  if (begin + bytes > kRing) return nullptr;
  placed_.push_back({r, begin, begin + bytes, &of, number});
  return ring(r) + begin;
}

}  // namespace fake_nccl
