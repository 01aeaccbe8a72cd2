// comm/hosts/council.cc: see council.h.
#include "comm/hosts/council.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/os.h"
#include "comm/hosts/chair.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

constexpr uint8_t kByChair[] = "the chair of a council";

}  // namespace

Bytes32 sign_decision(const Council& council, const Bytes32& nonce, const Decision& decision,
                      const std::vector<char>& marks) {
  return council.secret.sign(
      {kByChair, bytes_of(nonce), bytes_of(council.doors.job), bytes_of(decision), bytes_of_marks(marks)});
}

ConnectAttempts connect_to_door(const Council& council, const Party& party) {
  ConnectAttempts attempts;
  for (const int32_t q : party) {
    const std::string& address = council.roster.table().addresses[council.roster.host_of(q)];
    const std::string port = std::to_string(council.doors.ports[static_cast<size_t>(q)]);
    attempts.emplace_back(q, MeetingPlace{address + " port " + port, address, port});
  }
  return attempts;
}

bool may_live(const ConnectAttempt& attempt) {
  return attempt.state() != ConnectAttempt::State::ended;
}

namespace {

// Sends petitions at the doors of a party and waits for the decision. A rank that sends a challenge need not have the
// chair.
class Applicant {
 public:
  explicit Applicant(Council& council) : council_(council) {}

  // nullopt: no rank of the party has the chair.
  std::optional<Decision> send_petition(ConnectAttempts& attempts, int64_t deadline_ns) {
    deadline_ns_ = deadline_ns;
    nonces_.assign(attempts.size(), std::nullopt);
    const auto is_settled = [](const ConnectAttempt& attempt) {
      return attempt.state() == ConnectAttempt::State::ended || attempt.state() == ConnectAttempt::State::unreachable;
    };
    while (os::now_ns() < deadline_ns_ && !std::ranges::all_of(attempts, is_settled)) {
      await(attempts);
      for (size_t i = 0; i < attempts.size(); ++i) {
        attempts[i].progress(council_.silence_ns);
        if (attempts[i].state() != ConnectAttempt::State::open) continue;
        if (auto decision = receive_decision(attempts[i], nonces_[i])) return decision;
      }
    }
    return {};
  }

 private:
  static void await(const ConnectAttempts& attempts) {
    std::vector<pollfd> items;
    for (const ConnectAttempt& attempt : attempts)
      if (attempt.has_descriptor())
        items.push_back({const_cast<ConnectAttempt&>(attempt).stream().fd(), attempt.events(), 0});
    poll(items.data(), items.size(), 20);
  }

  // A rank sends a challenge, and, if it has the chair, the decision. nonce: of the petition sent to it.
  std::optional<Decision> receive_decision(ConnectAttempt& attempt, std::optional<Bytes32>& nonce) {
    Stream& stream = attempt.stream();
    const bool goes_on = stream.fill(nonce ? kAnswerBytes + council_.marks.size() : sizeof(Challenge));
    bool is_right = true;
    if (!nonce) {
      if (const auto challenge = stream.take<Challenge>()) is_right = petition(stream, *challenge, nonce);
    } else if (std::vector<char> all(kAnswerBytes + council_.marks.size()); stream.take(all.data(), all.size())) {
      if (auto decision = read(all, *nonce)) {
        council_.ties.push_back(std::move(stream));
        return decision;
      }
      is_right = false;
    }
    if (goes_on && is_right) return {};
    nonce.reset();
    attempt.begin_again();
    return {};
  }

  bool petition(Stream& stream, const Challenge& challenge, std::optional<Bytes32>& nonce) const {
    if (challenge.magic != kMagic) return false;
    Petition own = council_.petition;
    os::random_bytes(&own.nonce, sizeof own.nonce);
    nonce = own.nonce;
    const Members& newest = council_.doors.newest;
    const Bytes32 signature =
        sign_petition(council_.secret, council_.doors.job, challenge.nonce, own, council_.marks, newest);
    const int64_t deadline = deadline_ns_;
    return stream.send(own, deadline) && stream.send(signature, deadline) &&
           stream.send(council_.marks.data(), council_.marks.size(), deadline) &&
           stream.send(newest.generation, deadline) && stream.send(newest.marks.data(), newest.marks.size(), deadline);
  }

  std::optional<Decision> read(const std::vector<char>& all, const Bytes32& nonce) {
    Decision decision;
    Bytes32 signature = {};
    std::memcpy(&decision, all.data(), sizeof decision);
    std::memcpy(&signature, all.data() + sizeof decision, sizeof signature);
    std::vector<char> marks(all.begin() + kAnswerBytes, all.end());
    if (sign_decision(council_, nonce, decision, marks) != signature) return {};
    council_.marks = std::move(marks);
    return decision;
  }

  static constexpr size_t kAnswerBytes = sizeof(Decision) + sizeof(Bytes32);  // before the marks

  Council& council_;
  int64_t deadline_ns_ = 0;
  std::vector<std::optional<Bytes32>> nonces_;  // by attempt
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
  std::vector<ConnectAttempts> before;
  for (size_t i = 0; i < own; ++i) {
    before.push_back(connect_to_door(*this, parties[i]));
    if (const auto decision =
            Applicant(*this).send_petition(before.back(), deadline_ns + static_cast<int64_t>(i + 1) * kStepNs))
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
