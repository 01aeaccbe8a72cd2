// comm/hosts/crossing.cc: finds a deadlock of ranks of different hosts: this rank waits in a message for a peer, and
// the peer waits in a collective for this rank. See comm/shm/message/crossed.cc for ranks of one host.
//
// A rank that waits long in a message with nothing else under way asks the peer, and says how many collectives it has
// begun and how many of the peer's messages it has heard. The peer keeps the question, and answers once it waits
// long in a collective that the other has not begun, with nothing else under way, if it has sent no more messages than
// those, and if no receive has asked for the one that the other sends. Then neither can go on: the peer makes no call
// before its collective ends, and that does not end before the other begins it. Frames arrive in order, so what was
// sent before the question has been heard. What ends the wait changes one of these numbers, or, of a receive from any
// rank, makes the answer one to a question of the past.
#include <algorithm>

#include "comm/call/collective.h"
#include "comm/hosts/messages.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kAskNs = 100'000'000;  // that a message waits before its peer is asked

}  // namespace

// Again, where something of the peer has been heard since. Of both directions of a sendrecv with one peer it is enough
// to ask about the first that waits.
void Messages::ask(const Started& started) {
  const Half* first = nullptr;
  for (const Half& half : started.halves_) {
    if (half.done) continue;
    for_each_peer(half, [&](int32_t rank, Peer& peer) {
      if (peer.gone || (first && first->call.root == rank)) return;
      const Question now{started.question_, rank_.begun(), peer.heard, half.out ? half.out->frame.number : 0};
      if (now == peer.asked) return;
      peer.asked = now;
      say(rank, peer, Says::asks, now.id, {reinterpret_cast<const char*>(&now), sizeof now});
    });
    if (!first) first = &half;
  }
}

void Messages::answer(int32_t rank, Peer& peer) {
  if (!peer.question || !rank_.waits_alone()) return;
  const Question question = *peer.question;
  const auto is_unasked = [&](const Arrived& message) { return message.number == question.sends && !message.is_kept; };
  if (rank_.begun() <= question.begun || peer.sent != question.heard) return;
  if (question.sends != 0 && std::ranges::none_of(peer.arrived, is_unasked)) return;
  if (std::ranges::any_of(started_, [](const Started* one) { return !one->done_; })) return;
  say(rank, peer, Says::answers, question.id, rank_.asked());
  peer.question.reset();
}

// The rank that is waited for and waits for this one; of a receive from any rank all must be such. -1: none.
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

void Messages::look_whether_crossed(Started& started) {
  if (started.question_ == 0) {
    const bool is_alone =
        std::ranges::all_of(started_, [&](const Started* one) { return one == &started || one->done_; });
    if (os::now_ns() - started.halves_.front().began_ns < kAskNs || !is_alone || !rank_.is_idle()) return;
    started.question_ = ++questions_;
  }
  ask(started);
  for (const Half& half : started.halves_) {
    const int32_t by = half.done ? -1 : crossed_by(started, half);
    if (by < 0) continue;
    const int32_t own = roster_.rank();
    local_.break_with(Error(GSEL_ERR_MISMATCH, crossed_text(roster_.named(own), text_of(half.whole), roster_.shown(own),
                                                            roster_.named(by), peer(by).answer))
                          .about_rank(roster_.shown(own)));
    return look(started);
  }
}

}  // namespace gsel::hosts
