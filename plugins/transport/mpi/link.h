// plugins/transport/mpi/link.h: one rank's end of an MPI communicator, and transfers in it. MPI makes progress only
// inside MPI calls, so transfers advance only while they are tested.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "library.h"

struct gsel_link {
  const gsel_host_v1* host;
  const gsel_mpi::Library* mpi;
  int32_t rank;
  int32_t world_size;
  MPI_Comm comm{};
  uint32_t most_tags = 0;  // highest tag
  int64_t eager_ns = 0;    // time of testing without a pause
  std::atomic<bool> aborting{false}, failed{false};
};

// A transfer in chunks, since a count of MPI is an int; most have one chunk.
struct gsel_posted {
  gsel_link* link;
  int32_t peer;
  bool sends;
  std::mutex mutex{};
  size_t chunks = 0;  // begun
  size_t ended = 0;
  MPI_Request first{};
  std::vector<MPI_Request> others{};
  MPI_Request& chunk(size_t i) { return i == 0 ? first : others[i - 1]; }
};

namespace gsel_mpi {

// Held in MPI calls, unless MPI supports MPI_THREAD_MULTIPLE; never while waiting.
class Inside {
 public:
  explicit Inside(const Library& mpi);

 private:
  std::unique_lock<std::mutex> lock_;
};

gsel_link* join(const gsel_host_v1* host, const gsel_join& join);
void leave(gsel_link* link) noexcept;

// Parts of the table.
void add_transfers(gsel_transport_v2& table);

}  // namespace gsel_mpi
