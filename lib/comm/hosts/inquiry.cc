// comm/hosts/inquiry.cc: see inquiry.h.
#include "comm/hosts/inquiry.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/os.h"

namespace gsel::hosts {
namespace {

constexpr size_t kMostWitnesses = 3, kMostIncoming = 16;
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
  Inquiry inquiry{about, os::now_ns() + 2 * witness_ns_, {}};
  os::random_bytes(&inquiry.nonce, sizeof inquiry.nonce);
  const size_t own = roster_.own_host();
  for (size_t i = 1; i < roster_.hosts() && inquiry.witnesses.size() < kMostWitnesses; ++i)
    if (const size_t host = (own + i) % roster_.hosts(); host != about)
      inquiry.witnesses.emplace_back(host, connect_to_listener(first_of(host)));
  if (inquiry.witnesses.empty()) inquiry.found = Found{about, Finding::unknown, own};
  inquiries_.push_back(std::move(inquiry));
}

std::optional<Inquiries::Found> Inquiries::take() {
  for (auto inquiry = inquiries_.begin(); inquiry != inquiries_.end(); ++inquiry)
    if (inquiry->found) {
      const Found found = *inquiry->found;
      inquiries_.erase(inquiry);
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
void Inquiries::progress(Inquiry& inquiry) {
  for (Call& call : inquiry.witnesses) {
    if (call.is_over || inquiry.found) continue;
    const bool had_challenge = call.challenge.has_value();
    progress(call);
    if (call.challenge && !had_challenge) send_request(inquiry, call);
    if (call.challenge) receive_finding(inquiry, call);
  }
  const bool is_over = std::ranges::all_of(inquiry.witnesses, [](const Call& call) { return call.is_over; });
  if (!inquiry.found && (is_over || os::now_ns() > inquiry.until_ns))
    inquiry.found = Found{inquiry.about, Finding::alone, roster_.own_host()};
}

void Inquiries::send_request(Inquiry& inquiry, Call& call) const {
  HostRequest request;
  request.rank = series_.ranks[static_cast<size_t>(roster_.rank())];
  request.aim = HostRequest::Aim::inquire;
  request.agreed = static_cast<uint64_t>(first_of(inquiry.about));
  request.nonce = inquiry.nonce;
  const std::vector<char> marks(recovery_.ports.size());
  const Members none{{}, marks};
  const Bytes32 signature = sign_request(secret_, recovery_.job, call.challenge->nonce, request, marks, none);
  const int64_t now = os::now_ns();
  Stream& stream = call.attempt.stream();
  call.is_over = call.challenge->magic != kMagic || !stream.send(request, now) || !stream.send(signature, now) ||
                 !stream.send(marks.data(), marks.size(), now) || !stream.send(none.generation, now) ||
                 !stream.send(none.marks.data(), none.marks.size(), now);
}

void Inquiries::receive_finding(Inquiry& inquiry, Call& call) const {
  Stream& stream = call.attempt.stream();
  call.is_over = call.is_over || !stream.fill(sizeof(SignedAnswer));
  const auto answer = stream.take<SignedAnswer>();
  if (!answer) return;
  call.is_over = true;
  if (answer->answer.about != first_of(inquiry.about) ||
      answer->signature != sign_answer(secret_, recovery_.job, inquiry.nonce, answer->answer))
    return;
  inquiry.found = Found{inquiry.about, answer->answer.finding, call.host};
}

// ---- inquiries of other hosts ---------------------------------------------------------------------------------------

void Inquiries::serve_listener() {
  const std::lock_guard lock(recovery_.requests_mutex);
  recovery_.accept_connections();
  for (IncomingRequest& incoming : recovery_.requests) {
    recovery_.read_request(incoming, secret_);
    if (incoming.is_over || !incoming.request || incoming.request->aim != HostRequest::Aim::inquire) continue;
    const auto about = incoming.request->agreed;
    if (about < recovery_.ports.size() && incoming_.size() < kMostIncoming)
      incoming_.push_back(
          {std::move(incoming), os::now_ns() + witness_ns_, {0, connect_to_listener(static_cast<int32_t>(about))}});
    incoming.is_over = true;
  }
  std::erase_if(recovery_.requests, [](const IncomingRequest& incoming) { return incoming.is_over; });
}

bool Inquiries::answer(Incoming& incoming) const {
  progress(incoming.call);
  Answer answer{Finding::silent, incoming.call.attempt.rank()};
  if (incoming.call.challenge)
    answer.finding = Finding::answers;
  else if (incoming.call.attempt.state() == ConnectAttempt::State::ended)
    answer.finding = Finding::ended;
  else if (!incoming.call.is_over && os::now_ns() < incoming.until_ns)
    return false;
  const SignedAnswer signed_answer{answer, sign_answer(secret_, recovery_.job, incoming.from.request->nonce, answer)};
  incoming.from.stream.send(signed_answer, os::now_ns());
  return true;
}

// ---- both -----------------------------------------------------------------------------------------------------------

void Inquiries::add_to(std::vector<pollfd>& items) {
  const auto add = [&](Call& call) {
    if (!call.is_over && call.attempt.has_descriptor())
      items.push_back({call.attempt.stream().fd(), call.attempt.events(), 0});
  };
  for (Inquiry& inquiry : inquiries_) std::ranges::for_each(inquiry.witnesses, add);
  for (Incoming& incoming : incoming_) add(incoming.call);
  const std::lock_guard lock(recovery_.requests_mutex);
  for (const os::Fd& fd : recovery_.own.fds()) items.push_back({fd.get(), POLLIN, 0});
  for (const IncomingRequest& incoming : recovery_.requests)
    if (!incoming.request) items.push_back({incoming.stream.fd(), POLLIN, 0});
}

void Inquiries::progress() {
  for (Inquiry& inquiry : inquiries_) progress(inquiry);
  serve_listener();
  std::erase_if(incoming_, [this](Incoming& incoming) { return answer(incoming); });
}

}  // namespace gsel::hosts
