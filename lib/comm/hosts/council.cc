// comm/hosts/council.cc: see council.h.
#include "comm/hosts/council.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/current_error.h"
#include "base/error.h"
#include "base/os.h"
#include "comm/hosts/chair.h"

namespace gsel::hosts {
namespace {

constexpr uint8_t kByChair[] = "the chair of a council";

}  // namespace

Bytes32 sign_decision(const Council& council, const Bytes32& nonce, const Decision& decision,
                      const std::vector<char>& marks) {
  return council.secret.sign(
      {kByChair, bytes_of(nonce), bytes_of(council.doors.job), bytes_of(decision), bytes_of_marks(marks)});
}

Knocks knock_at(const Council& council, const Party& party) {
  Knocks knocks;
  for (const int32_t q : party) {
    const std::string& address = council.roster.table().addresses[council.roster.host_of(q)];
    const std::string port = std::to_string(council.doors.ports[static_cast<size_t>(q)]);
    knocks.emplace_back(q, MeetingPlace{address + " port " + port, address, port});
  }
  return knocks;
}

bool may_live(const Knock& knock) {
  return knock.state() != Knock::State::ended;
}

namespace {

// The other side of one door: the challenge, the petition, and the decision.
class Applicant {
 public:
  explicit Applicant(Council& council) : council_(council) {}

  // nullopt: nobody of the party has the chair.
  std::optional<Decision> ask(Knocks& knocks, int64_t deadline_ns) {
    deadline_ns_ = deadline_ns;
    const auto is_settled = [](const Knock& knock) {
      return knock.state() == Knock::State::ended || knock.state() == Knock::State::unreachable;
    };
    while (os::now_ns() < deadline_ns_ && !std::ranges::all_of(knocks, is_settled)) {
      await(knocks);
      for (Knock& knock : knocks) {
        knock.look(council_.silence_ns);
        if (knock.state() != Knock::State::open) continue;
        if (auto decision = hear(knock)) return decision;
      }
    }
    return {};
  }

 private:
  static void await(const Knocks& knocks) {
    std::vector<pollfd> items;
    for (const Knock& knock : knocks)
      if (knock.has_descriptor()) items.push_back({const_cast<Knock&>(knock).stream().fd(), knock.events(), 0});
    poll(items.data(), items.size(), 20);
  }

  std::optional<Decision> hear(Knock& knock) {
    Stream& stream = knock.stream();
    const bool goes_on = stream.fill(sizeof(Challenge));
    if (const auto challenge = stream.take<Challenge>()) {
      if (auto decision = petition(stream, *challenge)) return decision;
      knock.begin_again();
    } else if (!goes_on) {
      knock.begin_again();
    }
    return {};
  }

  std::optional<Decision> petition(Stream& stream, const Challenge& challenge) {
    if (challenge.magic != kMagic) return {};
    Petition own = council_.petition;
    os::random_bytes(&own.nonce, sizeof own.nonce);
    const Members& newest = council_.doors.newest;
    const Bytes32 signature =
        sign_petition(council_.secret, council_.doors.job, challenge.nonce, own, council_.marks, newest);
    const int64_t deadline = deadline_ns_;
    if (!stream.send(own, deadline) || !stream.send(signature, deadline) ||
        !stream.send(council_.marks.data(), council_.marks.size(), deadline) ||
        !stream.send(newest.generation, deadline) || !stream.send(newest.marks.data(), newest.marks.size(), deadline))
      return {};
    Decision decision;
    Bytes32 answer = {};
    std::vector<char> marks(council_.marks.size());
    if (stream.await(decision, deadline) != Stream::Came::all || stream.await(answer, deadline) != Stream::Came::all ||
        stream.await(marks.data(), marks.size(), deadline) != Stream::Came::all ||
        sign_decision(council_, own.nonce, decision, marks) != answer)
      return {};
    council_.marks = std::move(marks);
    council_.ties.push_back(std::move(stream));
    return decision;
  }

  Council& council_;
  int64_t deadline_ns_ = 0;
};

}  // namespace

Decision failed_decision(gsel_status code, int32_t about, const std::string& text) {
  Decision decision;
  decision.code = code;
  decision.about = about;
  write_text(decision.text, text);
  return decision;
}

Decision Council::hold() {
  const std::lock_guard lock(doors.mutex);
  const Decision decision = ask_and_decide();
  if (petition.aim == Petition::Aim::shrink && decision.code == GSEL_OK) doors.newest = {decision.made, marks};
  return decision;
}

bool Council::is_given_up() {
  for (auto tie = ties.begin(); tie != ties.end();) {
    const bool goes_on = tie->fill(sizeof(char));
    if (tie->take<char>())
      tie = ties.erase(tie);
    else if (goes_on)
      ++tie;
    else
      return true;
  }
  return false;
}

void Council::part() {
  for (Stream& tie : ties) tie.send(char{1}, os::now_ns());
  ties.clear();
}

Decision Council::ask_and_decide() {
  std::vector<Knocks> before;
  for (size_t i = 0; i < own; ++i) {
    before.push_back(knock_at(*this, parties[i]));
    if (const auto decision = Applicant(*this).ask(before.back(), deadline_ns + static_cast<int64_t>(i + 1) * kStepNs))
      return *decision;
    if (petition.aim == Petition::Aim::shrink) continue;
    const int32_t first = parties[i].front();
    const bool ended = std::ranges::none_of(before.back(), may_live);
    return failed_decision(ended ? GSEL_ERR_PEER : GSEL_ERR_TIMEOUT, first,
                           fmt::format("{} {}", roster.named(first), ended ? "has ended or left" : "does not call it"));
  }
  deadline_ns = std::max(deadline_ns, os::now_ns() + kStepNs / 2);
  return Chair(*this, std::move(before)).run();
}

}  // namespace gsel::hosts
