// comm/shm/message/crossed.cc: finds a deadlock of two ranks: this rank waits in a message for a peer, and the peer
// waits in a collective for this rank. The deadlock is certain if nothing else is under way on either side:
//
//   This rank is in a blocking message. It posts the header line of its next collective only after the message.
//   The peer is in a blocking collective and has posted a header line that this rank has not posted. It cannot pass
//   this header before this rank posts its own, and it sends and receives no message meanwhile.
//   This rank has seen everything that the peer sent or took before it entered the collective.
//
// A rank that waits long in such a collective says so in alone_in, as the number of the header line. The number never
// needs to be withdrawn: if it is larger than the number of this rank's own headers, the peer is still there. With a
// request or a group on either side one of the ranks may go on, so nothing is reported; neither where a persistent
// request was made, since another thread may run it at any time.
#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {

// Before this rank waits long in a collective. Who waits in a message looks whenever it wakes.
void Link::publish_alone() noexcept {
  if (!engine_->busy()) mine().alone_in.store(sequence_, std::memory_order_release);
}

bool Link::is_ahead(int32_t rank) const {
  return arena_->rank(rank).alone_in.load(std::memory_order_acquire) > sequence_;
}

// Of a message that can come from any rank, all must be ahead.
int32_t Link::crossed_peer(const Transfer& transfer) const {
  for (const Half* half : {&transfer.out, &transfer.in}) {
    if (half->stage == Half::Stage::done) continue;
    if (half->peer >= 0 && is_ahead(half->peer)) return half->peer;
    if (half->peer >= 0) continue;
    int32_t q = 0;
    while (q < world_size_ && (q == rank_ || is_ahead(q))) ++q;
    if (q == world_size_) return rank_ == 0 ? 1 : 0;
  }
  return -1;
}

void Link::fail_crossed(const Transfer& transfer, int32_t peer) {
  const uint64_t number = arena_->rank(peer).latest_number.load(std::memory_order_acquire) / 2;
  break_link(
      GSEL_ERR_MISMATCH, rank_,
      fmt::format("{} called {}, {} called {}: each waits for the other; match the message, or make the collective on "
                  "rank {} too",
                  named(rank_), text_of(transfer.call), named(peer), text_of(peer, number), shown(rank_)));
}

}  // namespace gsel::shm
