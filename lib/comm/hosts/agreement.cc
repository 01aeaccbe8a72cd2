// comm/hosts/agreement.cc: see agreement.h.
#include "comm/hosts/agreement.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/os.h"
#include "comm/hosts/coordinator.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

constexpr uint8_t kByCoordinator[] = "the coordinator of an agreement";

}  // namespace

Bytes32 sign_decision(const Agreement& agreement, const Bytes32& nonce, const Decision& decision,
                      const std::vector<char>& marks) {
  return agreement.secret.sign(
      {kByCoordinator, bytes_of(nonce), bytes_of(agreement.recovery.job), bytes_of(decision), bytes_of_marks(marks)});
}

ConnectAttempts connect_to_listener(const Agreement& agreement, const Participant& participant) {
  ConnectAttempts attempts;
  for (const int32_t q : participant) {
    const std::string& address = agreement.roster.table().addresses[agreement.roster.host_of(q)];
    const std::string port = std::to_string(agreement.recovery.ports[static_cast<size_t>(q)]);
    attempts.emplace_back(q, MeetingPlace{address + " port " + port, address, port});
  }
  return attempts;
}

bool may_live(const ConnectAttempt& attempt) {
  return attempt.state() != ConnectAttempt::State::ended;
}

namespace {

// Sends requests at the recovery listeners of a participant and waits for the decision. A rank that sends a challenge
// need not be the coordinator.
class Requester {
 public:
  explicit Requester(Agreement& agreement) : agreement_(agreement) {}

  // nullopt: no rank of the participant is the coordinator.
  std::optional<Decision> send_request(ConnectAttempts& attempts, int64_t deadline_ns) {
    deadline_ns_ = deadline_ns;
    nonces_.assign(attempts.size(), std::nullopt);
    const auto is_settled = [](const ConnectAttempt& attempt) {
      return attempt.state() == ConnectAttempt::State::ended || attempt.state() == ConnectAttempt::State::unreachable;
    };
    while (os::now_ns() < deadline_ns_ && !std::ranges::all_of(attempts, is_settled)) {
      await(attempts);
      for (size_t i = 0; i < attempts.size(); ++i) {
        attempts[i].progress(agreement_.silence_ns);
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

  // A rank sends a challenge, and, if it is the coordinator, the decision. nonce: of the request sent to it.
  std::optional<Decision> receive_decision(ConnectAttempt& attempt, std::optional<Bytes32>& nonce) {
    Stream& stream = attempt.stream();
    const bool goes_on = stream.fill(nonce ? kAnswerBytes + agreement_.marks.size() : sizeof(Challenge));
    bool is_right = true;
    if (!nonce) {
      if (const auto challenge = stream.take<Challenge>()) is_right = send_own_request(stream, *challenge, nonce);
    } else if (std::vector<char> all(kAnswerBytes + agreement_.marks.size()); stream.take(all.data(), all.size())) {
      if (auto decision = read(all, *nonce)) {
        agreement_.connections.push_back(std::move(stream));
        return decision;
      }
      is_right = false;
    }
    if (goes_on && is_right) return {};
    nonce.reset();
    attempt.begin_again();
    return {};
  }

  bool send_own_request(Stream& stream, const Challenge& challenge, std::optional<Bytes32>& nonce) const {
    if (challenge.magic != kMagic) return false;
    HostRequest own = agreement_.request;
    os::random_bytes(&own.nonce, sizeof own.nonce);
    nonce = own.nonce;
    const Members& newest = agreement_.recovery.newest;
    const Bytes32 signature =
        sign_request(agreement_.secret, agreement_.recovery.job, challenge.nonce, own, agreement_.marks, newest);
    const int64_t deadline = deadline_ns_;
    return stream.send(own, deadline) && stream.send(signature, deadline) &&
           stream.send(agreement_.marks.data(), agreement_.marks.size(), deadline) &&
           stream.send(newest.generation, deadline) && stream.send(newest.marks.data(), newest.marks.size(), deadline);
  }

  std::optional<Decision> read(const std::vector<char>& all, const Bytes32& nonce) {
    Decision decision;
    Bytes32 signature = {};
    std::memcpy(&decision, all.data(), sizeof decision);
    std::memcpy(&signature, all.data() + sizeof decision, sizeof signature);
    std::vector<char> marks(all.begin() + kAnswerBytes, all.end());
    if (sign_decision(agreement_, nonce, decision, marks) != signature) return {};
    agreement_.marks = std::move(marks);
    return decision;
  }

  static constexpr size_t kAnswerBytes = sizeof(Decision) + sizeof(Bytes32);  // before the marks

  Agreement& agreement_;
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

Decision Agreement::reach() {
  const std::lock_guard lock(recovery.mutex);
  const Decision decision = ask_and_decide();
  if (request.aim == HostRequest::Aim::shrink && decision.code == GSEL_OK) recovery.newest = {decision.made, marks};
  return decision;
}

bool Agreement::is_given_up() {
  for (auto connection = connections.begin(); connection != connections.end();) {
    const bool goes_on = connection->fill(sizeof(char));
    if (connection->take<char>())
      connection = connections.erase(connection);
    else if (goes_on)
      ++connection;
    else
      return true;
  }
  return false;
}

void Agreement::finish() {
  for (Stream& connection : connections) connection.send(char{1}, os::now_ns());
  connections.clear();
}

Decision Agreement::ask_and_decide() {
  std::vector<ConnectAttempts> before;
  for (size_t i = 0; i < own; ++i) {
    before.push_back(connect_to_listener(*this, participants[i]));
    if (const auto decision =
            Requester(*this).send_request(before.back(), deadline_ns + static_cast<int64_t>(i + 1) * kStepNs))
      return *decision;
    if (request.aim == HostRequest::Aim::shrink) continue;
    const int32_t first = participants[i].front();
    const bool ended = std::ranges::none_of(before.back(), may_live);
    return failed_decision(ended ? GSEL_ERR_PEER : GSEL_ERR_TIMEOUT, first,
                           fmt::format("{} {}", roster.named(first), ended ? "has ended or left" : "does not call it"));
  }
  deadline_ns = std::max(deadline_ns, os::now_ns() + kStepNs / 2);
  return Coordinator(*this, std::move(before)).run();
}

}  // namespace gsel::hosts
