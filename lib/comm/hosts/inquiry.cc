// comm/hosts/inquiry.cc: see inquiry.h.
#include "comm/hosts/inquiry.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/os.h"

namespace gsel::hosts {
namespace {

constexpr size_t kMostWitnesses = 3, kMostAsking = 16;
constexpr int64_t kLeastNs = 500'000'000, kMostNs = 2'000'000'000;
constexpr uint8_t kByWitness[] = "a host that was asked about another one";

// Has no padding, since its bytes are signed.
struct Answer {
  Inquiries::Finding finding = Inquiries::Finding::unknown;
  int32_t about = -1;  // a rank
};
struct SignedAnswer {
  Answer answer;
  Bytes32 signature = {};
};

Bytes32 sign_answer(const Secret& secret, const gsel_unique_id& job, const Bytes32& nonce, const Answer& answer) {
  return secret.sign({kByWitness, bytes_of(nonce), bytes_of(job), bytes_of(answer)});
}

}  // namespace

Inquiries::Inquiries(const Roster& roster, const ShrinkSeries& series, const Secret& secret, int64_t silence_ns)
    : roster_(roster),
      series_(series),
      recovery_(*series_.recovery),
      secret_(secret),
      silence_ns_(silence_ns),
      witness_ns_(std::clamp(silence_ns / 5, kLeastNs, kMostNs)) {}

// The first rank of a host, as a rank of the first communicator.
int32_t Inquiries::first_of(size_t host) const {
  return series_.ranks[static_cast<size_t>(roster_.on(host).front())];
}

ConnectAttempt Inquiries::connect_to_listener(int32_t rank) const {
  const HostTable& first = *series_.first;
  const std::string& address = first.addresses[static_cast<size_t>(first.host_of[static_cast<size_t>(rank)])];
  const std::string port = std::to_string(recovery_.ports[static_cast<size_t>(rank)]);
  return {rank, {address + " port " + port, address, port}};
}

// ---- asking others --------------------------------------------------------------------------------------------------

void Inquiries::begin(size_t about) {
  Asked asked{about, os::now_ns() + 2 * witness_ns_, {}};
  os::random_bytes(&asked.nonce, sizeof asked.nonce);
  const size_t own = roster_.own_host();
  for (size_t i = 1; i < roster_.hosts() && asked.witnesses.size() < kMostWitnesses; ++i)
    if (const size_t host = (own + i) % roster_.hosts(); host != about)
      asked.witnesses.emplace_back(host, connect_to_listener(first_of(host)));
  if (asked.witnesses.empty()) asked.found = Found{about, Finding::unknown, own};
  asked_.push_back(std::move(asked));
}

std::optional<Inquiries::Found> Inquiries::take() {
  for (auto asked = asked_.begin(); asked != asked_.end(); ++asked)
    if (asked->found) {
      const Found found = *asked->found;
      asked_.erase(asked);
      return found;
    }
  return {};
}

void Inquiries::progress(Call& call) const {
  call.attempt.progress(silence_ns_);
  const ConnectAttempt::State state = call.attempt.state();
  call.is_over = call.is_over || state == ConnectAttempt::State::ended || state == ConnectAttempt::State::unreachable;
  if (call.is_over || state != ConnectAttempt::State::open || call.challenge) return;
  const bool goes_on = call.attempt.stream().fill(sizeof(Challenge));
  call.challenge = call.attempt.stream().take<Challenge>();
  call.is_over = !goes_on && !call.challenge;
}

// The first answer of a witness counts.
void Inquiries::progress(Asked& asked) {
  for (Call& call : asked.witnesses) {
    if (call.is_over || asked.found) continue;
    const bool was_heard = call.challenge.has_value();
    progress(call);
    if (call.challenge && !was_heard) send_request(asked, call);
    if (call.challenge) receive_finding(asked, call);
  }
  const bool is_over = std::ranges::all_of(asked.witnesses, [](const Call& call) { return call.is_over; });
  if (!asked.found && (is_over || os::now_ns() > asked.until_ns))
    asked.found = Found{asked.about, Finding::alone, roster_.own_host()};
}

void Inquiries::send_request(Asked& asked, Call& call) const {
  HostRequest request;
  request.rank = series_.ranks[static_cast<size_t>(roster_.rank())];
  request.aim = HostRequest::Aim::inquire;
  request.agreed = static_cast<uint64_t>(first_of(asked.about));
  request.nonce = asked.nonce;
  const std::vector<char> marks(recovery_.ports.size());
  const Members none{{}, marks};
  const Bytes32 signature = sign_request(secret_, recovery_.job, call.challenge->nonce, request, marks, none);
  const int64_t now = os::now_ns();
  Stream& stream = call.attempt.stream();
  call.is_over = call.challenge->magic != kMagic || !stream.send(request, now) || !stream.send(signature, now) ||
                 !stream.send(marks.data(), marks.size(), now) || !stream.send(none.generation, now) ||
                 !stream.send(none.marks.data(), none.marks.size(), now);
}

void Inquiries::receive_finding(Asked& asked, Call& call) const {
  Stream& stream = call.attempt.stream();
  call.is_over = call.is_over || !stream.fill(sizeof(SignedAnswer));
  const auto said = stream.take<SignedAnswer>();
  if (!said) return;
  call.is_over = true;
  if (said->answer.about != first_of(asked.about) ||
      said->signature != sign_answer(secret_, recovery_.job, asked.nonce, said->answer))
    return;
  asked.found = Found{asked.about, said->answer.finding, call.host};
}

// ---- being asked ----------------------------------------------------------------------------------------------------

void Inquiries::serve_listener() {
  const std::lock_guard lock(recovery_.requests_mutex);
  recovery_.accept_connections();
  for (IncomingRequest& incoming : recovery_.requests) {
    recovery_.read_request(incoming, secret_);
    if (incoming.is_over || !incoming.request || incoming.request->aim != HostRequest::Aim::inquire) continue;
    const auto about = incoming.request->agreed;
    if (about < recovery_.ports.size() && asking_.size() < kMostAsking)
      asking_.push_back(
          {std::move(incoming), os::now_ns() + witness_ns_, {0, connect_to_listener(static_cast<int32_t>(about))}});
    incoming.is_over = true;
  }
  std::erase_if(recovery_.requests, [](const IncomingRequest& incoming) { return incoming.is_over; });
}

bool Inquiries::answer(Asking& asking) const {
  progress(asking.call);
  Answer answer{Finding::silent, asking.call.attempt.rank()};
  if (asking.call.challenge)
    answer.finding = Finding::answers;
  else if (asking.call.attempt.state() == ConnectAttempt::State::ended)
    answer.finding = Finding::ended;
  else if (!asking.call.is_over && os::now_ns() < asking.until_ns)
    return false;
  const SignedAnswer said{answer, sign_answer(secret_, recovery_.job, asking.from.request->nonce, answer)};
  asking.from.stream.send(said, os::now_ns());
  return true;
}

// ---- both -----------------------------------------------------------------------------------------------------------

void Inquiries::add_to(std::vector<pollfd>& items) {
  const auto add = [&](Call& call) {
    if (!call.is_over && call.attempt.has_descriptor())
      items.push_back({call.attempt.stream().fd(), call.attempt.events(), 0});
  };
  for (Asked& asked : asked_) std::ranges::for_each(asked.witnesses, add);
  for (Asking& asking : asking_) add(asking.call);
  const std::lock_guard lock(recovery_.requests_mutex);
  for (const os::Fd& fd : recovery_.own.fds()) items.push_back({fd.get(), POLLIN, 0});
  for (const IncomingRequest& incoming : recovery_.requests)
    if (!incoming.request) items.push_back({incoming.stream.fd(), POLLIN, 0});
}

void Inquiries::progress() {
  for (Asked& asked : asked_) progress(asked);
  serve_listener();
  std::erase_if(asking_, [this](Asking& asking) { return answer(asking); });
}

}  // namespace gsel::hosts
