// comm/hosts/lines.cc: see lines.h.
#include "comm/hosts/lines.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kMostPauseNs = 100'000'000, kLookNs = 10'000'000;
constexpr uint8_t kByHost[] = "a host of the communicator", kByCentre[] = "the first host";

enum class Purpose : uint32_t { calls, watch };
struct Offer {
  int32_t host = 0;
  Purpose purpose = Purpose::calls;
  Bytes32 nonce = {};
};
struct SignedOffer {
  Offer offer;
  Bytes32 signature = {};
};

Bytes32 sign_offer(const Lines& lines, const Bytes32& nonce, const Offer& offer) {
  return lines.secret.sign({kByHost, bytes_of(nonce), bytes_of(lines.job), bytes_of(offer)});
}

Bytes32 sign_answer(const Lines& lines, const Offer& offer) {
  return lines.secret.sign({kByCentre, bytes_of(lines.job), bytes_of(offer)});
}

// Until when to wait before looking again.
int64_t next_look_ns(const Lines& lines) {
  if (!lines.is_given_up) return lines.deadline_ns;
  if (lines.is_given_up()) fail(GSEL_ERR_PEER, "a host ended or gave up while the hosts connected");
  return std::min(lines.deadline_ns, os::now_ns() + kLookNs);
}

struct HalfLine {
  std::optional<Stream> calls, watch;
  std::optional<Stream>& of(Purpose purpose) { return purpose == Purpose::calls ? calls : watch; }
};

class Centre {
 public:
  Centre(const Listener& listener, const Lines& lines)
      : listener_(listener), lines_(lines), hosts_(lines.names.size()), left_(2 * (lines.names.size() - 1)) {}

  std::vector<std::optional<Line>> run() {
    while (left_ > 0) poll_once();
    std::vector<std::optional<Line>> out(hosts_.size());
    for (size_t h = 1; h < hosts_.size(); ++h) out[h] = Line{std::move(*hosts_[h].calls), std::move(*hosts_[h].watch)};
    return out;
  }

 private:
  struct Stranger {
    Stream stream;
    Challenge challenge;
    int64_t since_ns;
    bool is_over;
  };

  void poll_once() {
    std::vector<pollfd> items;
    for (const os::Fd& fd : listener_.fds()) items.push_back({fd.get(), POLLIN, 0});
    for (const Stranger& one : strangers_) items.push_back({one.stream.fd(), POLLIN, 0});
    if (poll(items.data(), items.size(), milliseconds_until(next_look_ns(lines_))) < 0 && errno != EINTR)
      fail(GSEL_ERR_IO, "poll failed: {}", errno_text(errno));
    for (Stranger& one : strangers_) hear(one);
    std::erase_if(strangers_, [](const Stranger& one) { return one.is_over; });
    for (const os::Fd& fd : listener_.fds())
      while (auto stream = Listener::accept(fd)) {
        Stranger one{std::move(*stream), {}, os::now_ns(), false};
        os::random_bytes(&one.challenge.nonce, sizeof one.challenge.nonce);
        if (one.stream.send(one.challenge, os::now_ns())) strangers_.push_back(std::move(one));
      }
    if (os::now_ns() >= lines_.deadline_ns) fail_late();
  }

  void hear(Stranger& one) {
    const bool goes_on = one.stream.fill(sizeof(SignedOffer));
    if (const auto said = one.stream.take<SignedOffer>()) {
      one.is_over = true;
      return take(one, *said);
    }
    one.is_over = !goes_on || os::now_ns() - one.since_ns > kHandshakeNs;
  }

  void take(Stranger& one, const SignedOffer& said) {
    const Offer& offer = said.offer;
    if (!lines_.secret.is_signed({kByHost, bytes_of(one.challenge.nonce), bytes_of(lines_.job), bytes_of(offer)},
                                 said.signature))
      return;
    if (offer.host < 1 || static_cast<size_t>(offer.host) >= hosts_.size()) return;
    auto& place = hosts_[static_cast<size_t>(offer.host)].of(offer.purpose);
    if (!one.stream.send(sign_answer(lines_, offer), lines_.deadline_ns)) return;
    left_ -= !place;
    place = std::move(one.stream);
  }

  [[noreturn]] void fail_late() const {
    std::string missing;
    for (size_t h = 1; h < hosts_.size(); ++h)
      if (!hosts_[h].calls || !hosts_[h].watch) missing += (missing.empty() ? "" : ", ") + lines_.names[h];
    fail(GSEL_ERR_TIMEOUT, "timed out: no connection from {} to {} within {}", missing, lines_.names[0],
         seconds_text(lines_.seconds));
  }

  const Listener& listener_;
  const Lines& lines_;
  std::vector<HalfLine> hosts_;
  size_t left_;
  std::vector<Stranger> strangers_;
};

// nullopt, with why: nobody is there yet, or somebody else.
std::optional<Stream> try_open(const MeetingPlace& centre, const Offer& offer, const Lines& lines, std::string* why) {
  auto stream = connect_to(centre, lines.deadline_ns, why);
  if (!stream) return {};
  const int64_t deadline = std::min(lines.deadline_ns, os::now_ns() + kHandshakeNs);
  Challenge challenge;
  Bytes32 answer = {};
  if (stream->await(challenge, deadline) != Stream::Came::all || challenge.magic != kMagic ||
      !stream->send(SignedOffer{offer, sign_offer(lines, challenge.nonce, offer)}, deadline) ||
      stream->await(answer, deadline) != Stream::Came::all ||
      !lines.secret.is_signed({kByCentre, bytes_of(lines.job), bytes_of(offer)}, answer)) {
    *why = "whoever listens there does not know this communicator";
    return {};
  }
  return stream;
}

Stream open_stream(const MeetingPlace& centre, int32_t host, Purpose purpose, const Lines& lines) {
  Offer offer{host, purpose, {}};
  os::random_bytes(&offer.nonce, sizeof offer.nonce);
  std::string why;
  for (int64_t pause = 5'000'000;; pause = std::min(2 * pause, kMostPauseNs)) {
    if (auto stream = try_open(centre, offer, lines, &why)) return std::move(*stream);
    if (os::now_ns() + pause >= lines.deadline_ns)
      fail(GSEL_ERR_TIMEOUT, "timed out: {} found no connection to {} within {}; the last try: {}",
           lines.names[static_cast<size_t>(host)], lines.names[0], seconds_text(lines.seconds), why);
    for (const int64_t end = os::now_ns() + pause; os::now_ns() < end;)
      poll(nullptr, 0, milliseconds_until(std::min(end, next_look_ns(lines))));
  }
}

}  // namespace

std::vector<std::optional<Line>> accept_lines(const Listener& listener, const Lines& lines) {
  return Centre(listener, lines).run();
}

Line open_line(const MeetingPlace& centre, int32_t host, const Lines& lines) {
  Stream calls = open_stream(centre, host, Purpose::calls, lines);
  return {std::move(calls), open_stream(centre, host, Purpose::watch, lines)};
}

}  // namespace gsel::hosts
