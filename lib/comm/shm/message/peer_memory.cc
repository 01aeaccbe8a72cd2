// comm/shm/message/peer_memory.cc: see peer_memory.h.
#include "comm/shm/message/peer_memory.h"

#include <sys/uio.h>

#include <cerrno>

#include "base/log.h"

namespace gsel::shm {
namespace {

// Whether this process can read a peer's memory. Compares a random number of the peer, since in another pid namespace
// the same pid may be another process.
bool reads(const Member& peer) {
  uint64_t token = 0;
  const iovec local{&token, sizeof token}, remote{reinterpret_cast<void*>(peer.witness), sizeof token};
  return process_vm_readv(peer.pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(sizeof token) &&
         token == peer.process;
}

}  // namespace

void publish_readable_families(const Family& family) {
  RankBlock& mine = joined_block(family, family.rank());
  for (int32_t f = 0; f < family.size(); ++f) {
    const bool is_here = family.member(f).process == family.member(family.rank()).process;
    if (is_here || reads(family.member(f)))
      mine.reads[f / 64].fetch_or(uint64_t{1} << f % 64, std::memory_order_relaxed);
  }
}

// Other ranks wait for this one, so a failure to map the memory breaks the communicator.
char* PeerMemory::shared(uint64_t offset) const {
  try {
    return at_.family().memory()->at(offset);
  } catch (const Error& e) {
    breaking_.break_with(e.code(), at_.rank(), fmt::format("{}: {}", at_.named(at_.rank()), e.what()));
  }
}

void PeerMemory::throw_if_taken_back() const {
  os::fence(std::memory_order_acquire);
  breaking_.throw_if_broken();
}

void PeerMemory::read_from(int32_t rank, uint64_t address, char* to, uint64_t bytes, const Call& call,
                           uint64_t number) const {
  while (bytes > 0) {
    const iovec local{to, bytes}, remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(at_.member(rank).pid, &local, 1, &remote, 1, 0);
    if (got <= 0) fail_reading(rank, got < 0 ? errno : EFAULT, call, number);
    to += got;
    address += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

void PeerMemory::fail_reading(int32_t rank, int failure, const Call& call, uint64_t number) const {
  const bool gone = failure == ESRCH || (at_.member(rank).life && os::life_ended(at_.member(rank).life.get()));
  breaking_.break_with(gone ? GSEL_ERR_PEER : GSEL_ERR_IO, rank,
                       fmt::format("{} {} while {} read its memory in {} (call {}): {}", at_.who(rank),
                                   gone ? kEnded : "could not be read", at_.named(at_.rank()), recorder_.text_of(call),
                                   number, errno_text(failure)));
}

bool PeerMemory::can_read(int32_t rank) const {
  return reads(at_.member(rank));
}

bool PeerMemory::is_read_by(int32_t rank) const {
  const int32_t f = at_.family().rank();
  const RankBlock& other = joined_block(at_.family(), at_.block(rank).family_rank);
  return (other.reads[f / 64].load(std::memory_order_relaxed) >> f % 64 & 1) != 0;
}

bool PeerMemory::reads_all() {
  if (reads_all_ == Probe::open) {
    reads_all_ = Probe::yes;
    for (int32_t q = 0; q < at_.world_size(); ++q)
      if (!can_read(q)) {
        reads_all_ = Probe::no;
        log(GSEL_LOG_INFO, "comm", "rank {} may not read the memory of rank {} ({}); large private buffers are staged",
            at_.rank(), q, errno_text(errno));
        break;
      }
  }
  return reads_all_ == Probe::yes;
}

}  // namespace gsel::shm
