// plugins/transport/mpi/transfer.cc: transfers from rank to rank: post, test and release.
#include <sched.h>
#include <time.h>

#include <memory>

#include "link.h"

namespace gsel_mpi {
namespace {

using gsel_between::after;
using gsel_between::Clock;
using gsel_between::fail;
using gsel_between::failed;

constexpr uint64_t kMostChunk = uint64_t{1} << 30;
// Eager limit of Open MPI over TCP; up to kInHalves two eager chunks are faster than a rendezvous.
constexpr uint64_t kUnasked = 65536 - 512, kInHalves = 98304;
// A waiting thread tests without a pause, then yields between tests, then sleeps.
constexpr std::chrono::milliseconds kYielding{20};
constexpr long kSleepNs = 50000;
constexpr int kTests = 8;  // at a time, since Open MPI does not poll its sockets in every call

// Both sides know the number of bytes, and compute the same chunks.
uint64_t chunk_bytes_of(uint64_t bytes) {
  return bytes > kUnasked && bytes <= kInHalves ? (bytes / 2 + 63) / 64 * 64 : kMostChunk;
}

gsel_status post(gsel_link* link, const gsel_transfer* transfer, gsel_posted** out, gsel_error** err) {
  *out = nullptr;
  const Library& mpi = *link->mpi;
  auto posted = std::unique_ptr<gsel_posted>();
  try {
    const int32_t peer = transfer->peer;
    if (link->aborting) fail(GSEL_ERR_ABORTED, std::string(kPlugin) + ": the link was ended");
    if (peer < 0 || peer >= link->world_size || peer == link->rank)
      fail(GSEL_ERR_ARG, std::string(kPlugin) + ": bytes between rank " + std::to_string(link->rank) + " and rank " +
                             std::to_string(peer) + "; expected another rank of the link");
    if (transfer->tag > link->most_tags)
      fail(GSEL_ERR_UNSUPPORTED, std::string(kPlugin) + ": tag " + std::to_string(transfer->tag) +
                                     "; this MPI has tags up to " + std::to_string(link->most_tags));
    posted.reset(new gsel_posted{link, peer, transfer->send != nullptr || transfer->recv == nullptr});
    const int tag = static_cast<int>(transfer->tag);
    const uint64_t chunk_bytes = chunk_bytes_of(transfer->bytes);
    if (transfer->bytes > chunk_bytes) posted->others.resize((transfer->bytes - 1) / chunk_bytes, mpi.no_request);
    const Inside inside(mpi);
    require_running(mpi);
    uint64_t at = 0;
    do {
      const int n = static_cast<int>(std::min(chunk_bytes, transfer->bytes - at));
      MPI_Request& chunk = posted->chunk(posted->chunks);
      if (posted->sends)
        check(mpi,
              mpi.MPI_Isend(static_cast<const char*>(transfer->send) + at, n, mpi.byte, peer, tag, link->comm, &chunk),
              "MPI_Isend", peer);
      else
        check(mpi, mpi.MPI_Irecv(static_cast<char*>(transfer->recv) + at, n, mpi.byte, peer, tag, link->comm, &chunk),
              "MPI_Irecv", peer);
      ++posted->chunks;
      at += static_cast<uint64_t>(n);
    } while (at < transfer->bytes);
    *out = posted.release();
    return GSEL_OK;
  } catch (...) {
    if (posted && posted->chunks > 0) posted.release();  // MPI may still use it
    return failed(link->host, err);
  }
}

bool look(gsel_posted& posted) {
  const Library& mpi = *posted.link->mpi;
  const std::lock_guard lock(posted.mutex);
  const Inside inside(mpi);
  require_running(mpi);
  for (; posted.ended < posted.chunks; ++posted.ended) {
    int is_over = 0, result = MPI_SUCCESS;
    for (int test = 0; test < kTests && !is_over && result == MPI_SUCCESS; ++test)
      result = mpi.MPI_Test(&posted.chunk(posted.ended), &is_over, MPI_STATUS_IGNORE);
    if (result != MPI_SUCCESS) posted.link->failed = true;
    check(mpi, result, "MPI_Test", posted.peer);
    if (!is_over) return false;
  }
  return true;
}

gsel_status test(gsel_posted* posted, double seconds, int32_t* done, gsel_error** err) {
  const gsel_link& link = *posted->link;
  *done = 0;
  try {
    *done = look(*posted) ? 1 : 0;
    if (*done) return GSEL_OK;
    if (link.aborting) fail(GSEL_ERR_ABORTED, std::string(kPlugin) + ": the link was ended");
    if (seconds <= 0) return GSEL_OK;
    const Clock::time_point began = Clock::now(), end = after(seconds);
    for (;;) {
      *done = look(*posted) ? 1 : 0;
      if (*done) return GSEL_OK;
      if (link.aborting) fail(GSEL_ERR_ABORTED, std::string(kPlugin) + ": the link was ended");
      const Clock::time_point now = Clock::now();
      if (now >= end) return GSEL_OK;
      const timespec nap{0, kSleepNs};
      const std::chrono::nanoseconds eager(link.eager_ns);
      if (now - began > eager + kYielding)
        nanosleep(&nap, nullptr);
      else if (now - began > eager)
        sched_yield();
    }
  } catch (...) {
    return failed(link.host, err);
  }
}

// Cancels a receive that has not ended, and waits until MPI no longer uses its memory. A send cannot be cancelled: it
// gets a while to end. After that its memory is read only if a receive still matches it. After MPI_Finalize everything
// has ended.
void release(gsel_posted* posted) {
  const Library& mpi = *posted->link->mpi;
  for (; posted->ended < posted->chunks && !is_finalised(mpi); ++posted->ended) {
    MPI_Request& chunk = posted->chunk(posted->ended);
    const Clock::time_point end = after(0.1);
    int is_over = 0, result = MPI_SUCCESS;
    {
      const Inside inside(mpi);
      result = mpi.MPI_Test(&chunk, &is_over, MPI_STATUS_IGNORE);
      if (!is_over && result == MPI_SUCCESS && !posted->sends) mpi.MPI_Cancel(&chunk);
    }
    while (!is_over && result == MPI_SUCCESS && Clock::now() < end) {
      {
        const Inside inside(mpi);
        result = mpi.MPI_Test(&chunk, &is_over, MPI_STATUS_IGNORE);
      }
      const timespec nap{0, kSleepNs};
      if (!is_over) nanosleep(&nap, nullptr);
    }
    if (is_over || result != MPI_SUCCESS) continue;
    const Inside inside(mpi);
    mpi.MPI_Request_free(&chunk);
  }
  delete posted;
}

gsel_status link_error(gsel_link* link, gsel_error** err) {
  if (!link->aborting && !link->failed) return GSEL_OK;
  const gsel_status status = link->aborting ? GSEL_ERR_ABORTED : GSEL_ERR_PEER;
  if (err) *err = link->host->error_new(status, link->aborting ? "MPI: the link was ended" : "MPI: a transfer failed");
  return status;
}

}  // namespace

void add_transfers(gsel_transport_v2& table) {
  table.post = post;
  table.test = test;
  table.release = release;
  table.link_error = link_error;
}

}  // namespace gsel_mpi
