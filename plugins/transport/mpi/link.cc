// plugins/transport/mpi/link.cc: see link.h. Joins and leaves an MPI communicator.
#include "link.h"

#include <gsel/log.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "transport/common/interface.h"

namespace gsel_mpi {
namespace {

using gsel_between::agree;
using gsel_between::exchanged;
using gsel_between::fail;
using gsel_between::Report;

// Rank and size of MPI's world. Exchanged as raw bytes.
struct Place {
  int32_t rank, size;
};

std::string n_ranks(size_t n) {
  return std::to_string(n) + (n == 1 ? " rank" : " ranks");
}

// With a launcher that the MPI does not support there are n worlds of one rank.
void check_world(const std::vector<Place>& all, size_t world_size) {
  if (static_cast<size_t>(all[0].size) < world_size)
    fail(GSEL_ERR_PLUGIN, std::string(kPlugin) + ": the communicator has " + n_ranks(world_size) +
                              " and the world of MPI " + n_ranks(static_cast<size_t>(all[0].size)) +
                              "; start them by the mpirun of " + kName +
                              ", or by srun with the --mpi that it was built for (srun --mpi=list)");
  std::vector<bool> seen(static_cast<size_t>(all[0].size));
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].size != all[0].size)
      fail(GSEL_ERR_PLUGIN, std::string(kPlugin) + ": rank " + std::to_string(r) + " is in a world of " +
                                n_ranks(static_cast<size_t>(all[r].size)) + " and rank 0 in one of " +
                                n_ranks(static_cast<size_t>(all[0].size)) + "; one mpirun starts all");
    const auto at = static_cast<size_t>(all[r].rank);
    if (seen[at])
      fail(GSEL_ERR_PLUGIN, std::string(kPlugin) + ": two ranks are rank " + std::to_string(at) +
                                " of MPI; each needs a process of its own that one mpirun has started");
    seen[at] = true;
  }
}

// While it lives, an error in MPI's world is returned. The handler of a program that has initialised MPI may end the
// process, and is in place again afterwards.
class WorldReturnsErrors {
 public:
  explicit WorldReturnsErrors(const Library& mpi) : mpi_(mpi) {
    check(mpi, mpi.MPI_Comm_get_errhandler(mpi.world, &before_), "MPI_Comm_get_errhandler");
    mpi.MPI_Comm_set_errhandler(mpi.world, mpi.errors_return);
  }
  ~WorldReturnsErrors() {
    mpi_.MPI_Comm_set_errhandler(mpi_.world, before_);
    mpi_.MPI_Errhandler_free(&before_);
  }
  WorldReturnsErrors(const WorldReturnsErrors&) = delete;
  WorldReturnsErrors& operator=(const WorldReturnsErrors&) = delete;

 private:
  const Library& mpi_;
  MPI_Errhandler before_{};
};

void make_comm(gsel_link& link, const std::vector<Place>& all) {
  const Library& mpi = *link.mpi;
  std::vector<int> ranks;
  for (const Place& place : all) ranks.push_back(place.rank);
  MPI_Group world, group;
  const Inside inside(mpi);
  const WorldReturnsErrors returns(mpi);
  check(mpi, mpi.MPI_Comm_group(mpi.world, &world), "MPI_Comm_group");
  check(mpi, mpi.MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
  check(mpi, mpi.MPI_Comm_create_group(mpi.world, group, 0, &link.comm), "MPI_Comm_create_group");
  check(mpi, mpi.MPI_Comm_set_errhandler(link.comm, mpi.errors_return), "MPI_Comm_set_errhandler");
  mpi.MPI_Group_free(&group);
  mpi.MPI_Group_free(&world);
}

uint32_t most_tags_of(const gsel_link& link) {
  const Library& mpi = *link.mpi;
  void* value = nullptr;
  int is_there = 0;
  const Inside inside(mpi);
  mpi.MPI_Comm_get_attr(mpi.world, MPI_TAG_UB, &value, &is_there);
  return is_there && value ? static_cast<uint32_t>(*static_cast<int*>(value)) : 32767;
}

// If each rank has a processor, a long busy wait does no harm; otherwise, or if Open MPI is told to yield, it is short.
int64_t eager_ns() {
  constexpr int64_t kAlone = 200'000, kShared = 20'000;
  const char* yields = secure_getenv("OMPI_MCA_mpi_yield_when_idle");
  if (yields && *yields && strcmp(yields, "0") != 0) return kShared;
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const char* ranks = secure_getenv(name))
      return strtol(ranks, nullptr, 10) <= sysconf(_SC_NPROCESSORS_ONLN) ? kAlone : kShared;
  return kShared;
}

}  // namespace

Inside::Inside(const Library& mpi) {
  static std::mutex mutex;
  if (mpi.level != MPI_THREAD_MULTIPLE) lock_ = std::unique_lock(mutex);
}

// Every rank learns of a failure of another rank before MPI waits for that rank, as MPI_Init_thread and
// MPI_Comm_create_group do.
gsel_link* join(const gsel_host_v1* host, const gsel_join& join) {
  auto link = std::make_unique<gsel_link>();
  link->host = host, link->rank = join.rank, link->world_size = join.world_size;
  Report found, report;
  Place mine{};
  try {
    find();
  } catch (const gsel_between::Failure& failure) {
    found.say(failure.status, failure.text);
  }
  agree(join, found, kPlugin);
  try {
    const Library& mpi = started(host);
    link->mpi = &mpi;
    const Inside inside(mpi);
    check(mpi, mpi.MPI_Comm_rank(mpi.world, &mine.rank), "MPI_Comm_rank");
    check(mpi, mpi.MPI_Comm_size(mpi.world, &mine.size), "MPI_Comm_size");
    if (const std::string why = gsel_between::why_no_interface(); !why.empty()) fail(GSEL_ERR_ARG, why);
  } catch (const gsel_between::Failure& failure) {
    report.say(failure.status, failure.text);
  }
  agree(join, report, kPlugin);
  const std::vector<Place> all = exchanged(join, mine);
  check_world(all, static_cast<size_t>(join.world_size));
  make_comm(*link, all);
  link->most_tags = most_tags_of(*link);
  link->eager_ns = eager_ns();
  return link.release();
}

// A failed communicator is left to MPI_Finalize, since MPI_Comm_free may wait for ranks that are gone. If the program
// has called MPI_Finalize too early, that has freed the communicator.
void leave(gsel_link* link) noexcept {
  if (is_finalised(*link->mpi)) {
    link->host->log(
        GSEL_LOG_WARN, kPlugin,
        "MPI was finalised before gsel_comm_free: what was sent may not have arrived; free the communicator "
        "before MPI_Finalize");
  } else if (!link->aborting && !link->failed) {
    const Inside inside(*link->mpi);
    link->mpi->MPI_Comm_free(&link->comm);
  }
  delete link;
}

}  // namespace gsel_mpi
