// comm/hosts/crossing.cc: finds a deadlock of ranks of different hosts: this rank waits in a message for a peer, and
// the peer waits in a collective for this rank. See comm/shm/message/crossed.cc for ranks of one host.
//
// A rank that waits long in a message with nothing else under way sends a question to the peer: how many collectives it
// has begun and how many of the peer's messages it has received. The peer answers when it waits long in a collective
// that the asking rank has not begun, with nothing else under way, if it has sent no more messages than those and no
// receive has matched the message that the asking rank sends. Then neither can proceed: the peer makes no call before
// its collective ends, and the collective does not end before the asking rank begins it. Frames arrive in order, so
// everything sent before the question has been received. An event that ends the wait changes one of these numbers, or,
// for a receive from any rank, makes the answer refer to an old question.
#include <algorithm>

#include "comm/call/collective.h"
#include "comm/hosts/messages.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kAskNs = 100'000'000;  // wait of a message before the question is sent

}  // namespace

// Sends the question again after a message of the peer. For a sendrecv with one peer, asks only about the first
// direction that waits.
void Messages::send_question(const Started& started) {
  const Half* first = nullptr;
  for (const Half& half : started.halves_) {
    if (half.done) continue;
    for_each_peer(half, [&](int32_t rank, Peer& peer) {
      if (peer.gone || (first && first->call.root == rank)) return;
      const Question now{started.question_, rank_.begun(), peer.received, half.out ? half.out->frame.number : 0};
      if (now == peer.asked) return;
      peer.asked = now;
      send_word(rank, peer, FrameKind::asks, now.id, {reinterpret_cast<const char*>(&now), sizeof now});
    });
    if (!first) first = &half;
  }
}

void Messages::answer_question(int32_t rank, Peer& peer) {
  if (!peer.question || !rank_.waits_alone()) return;
  const Question question = *peer.question;
  const auto is_unasked = [&](const Arrived& message) { return message.number == question.sends && !message.is_kept; };
  if (rank_.begun() <= question.begun || peer.sent != question.received) return;
  if (question.sends != 0 && std::ranges::none_of(peer.arrived, is_unasked)) return;
  if (std::ranges::any_of(started_, [](const Started* one) { return !one->done_; })) return;
  send_word(rank, peer, FrameKind::answers, question.id, rank_.asked());
  peer.question.reset();
}

// The peer that waits for this rank; for a receive from any rank, all other ranks must. -1: none.
int32_t Messages::crossed_by(const Started& started, const Half& half) {
  int32_t first = -1;
  bool all = true;
  for_each_peer(half, [&](int32_t rank, const Peer& peer) {
    if (peer.answered != started.question_)
      all = false;
    else if (first < 0)
      first = rank;
  });
  if (half.call.root != GSEL_ANY_RANK || !all) return all ? first : -1;
  for (const int32_t q : roster_.here())
    if (q != roster_.rank() && !local_.is_ahead(roster_.local_of(q))) return -1;
  return first;
}

void Messages::detect_crossing(Started& started) {
  if (started.question_ == 0) {
    const bool is_alone =
        std::ranges::all_of(started_, [&](const Started* one) { return one == &started || one->done_; });
    if (os::now_ns() - started.halves_.front().began_ns < kAskNs || !is_alone || !rank_.is_idle()) return;
    started.question_ = ++questions_;
  }
  send_question(started);
  for (const Half& half : started.halves_) {
    const int32_t by = half.done ? -1 : crossed_by(started, half);
    if (by < 0) continue;
    const int32_t own = roster_.rank();
    local_.break_with(Error(GSEL_ERR_MISMATCH, crossed_text(roster_.named(own), text_of(half.whole), roster_.shown(own),
                                                            roster_.named(by), peer(by).answer))
                          .about_rank(roster_.shown(own)));
    return progress(started);
  }
}

}  // namespace gsel::hosts
