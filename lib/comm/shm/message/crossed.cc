// comm/shm/message/crossed.cc: finds a deadlock of two ranks: this rank waits in a message for a peer, and the peer
// waits in a collective for this rank. The deadlock is certain if nothing else is under way on either side:
//
//   This rank is in a blocking message. It posts the header line of its next collective only after the message.
//   The peer is in a blocking collective and has posted a header line that this rank has not posted. It cannot pass
//   this header before this rank posts its own, and it sends and receives no message meanwhile.
//   This rank has seen everything that the peer sent or took before it entered the collective.
//
// A rank that waits long in such a collective writes the number of the header line to alone_in. The number never needs
// to be withdrawn: if it is larger than the number of this rank's own headers, the peer is still there. With a request
// or a group on either side one of the ranks may proceed, so nothing is reported. The same holds after a persistent
// request was made, since another thread may run it at any time.
#include <cstring>

#include "comm/call/collective.h"
#include "comm/shm/message/mailbox.h"

namespace gsel::shm {

bool Mailbox::is_ahead(int32_t rank) const {
  return at_.block(rank).alone_in.load(std::memory_order_acquire) > at_.posted_headers();
}

// For a receive from any rank, all other ranks must be ahead.
int32_t Mailbox::crossed_peer(const Transfer& transfer) const {
  for (const Half* half : {&transfer.out, &transfer.in}) {
    if (half->stage == Half::Stage::done) continue;
    if (half->peer >= 0 && is_ahead(half->peer)) return half->peer;
    if (half->peer >= 0) continue;
    int32_t q = 0;
    while (q < at_.world_size() && (q == at_.rank() || is_ahead(q))) ++q;
    if (q == at_.world_size()) return at_.rank() == 0 ? 1 : 0;
  }
  return -1;
}

// The text of the caller's call, of which the collective may be a step.
std::string Mailbox::collective_of(int32_t rank) const {
  const RankBlock& block = at_.block(rank);
  uint64_t words[kOuterCallBytes / sizeof(uint64_t)];
  for (size_t i = 0; i < std::size(words); ++i) words[i] = block.outer_call[i].load(std::memory_order_relaxed);
  const auto* outer = reinterpret_cast<const char*>(words);
  if (outer[0] != '\0') return {outer, strnlen(outer, sizeof words)};
  return recorder_.text_of(rank, block.latest_number.load(std::memory_order_acquire) / 2);
}

void Mailbox::fail_crossed(const Transfer& transfer, int32_t peer) {
  breaking_.break_with(GSEL_ERR_MISMATCH, at_.rank(),
                       crossed_text(at_.named(at_.rank()), recorder_.text_of(transfer.call), at_.shown(at_.rank()),
                                    at_.named(peer), collective_of(peer)));
}

}  // namespace gsel::shm
