// comm/hosts/lines.cc: see lines.h.
#include "comm/hosts/lines.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kMostPauseNs = 100'000'000, kLookNs = 10'000'000;
constexpr int64_t kRefusedNs = 200'000'000;        // time without a listener after which the host has ended
constexpr int64_t kForCauseBelowNs = 300'000'000;  // additional wait for each level below, which knows the missing host
constexpr uint32_t kMostCauseBytes = 1024;
constexpr int64_t kNotifyBelowNs = 1'000'000'000;  // for hosts that connect after a failure
constexpr uint8_t kByHost[] = "a host of the communicator", kByHostAbove[] = "the host above it";

enum class Purpose : uint32_t { calls, watch, ask };
// A request of a host to one above it. Has no padding, since its bytes are signed.
struct Offer {
  int32_t host = 0;
  Purpose purpose = Purpose::calls;
  int32_t asked = 0;  // for Purpose::ask: the host, directly below the receiver, whose port is wanted
  uint16_t port = 0;  // at which `host` listens for the hosts below it
  uint16_t reserved = 0;
  Bytes32 nonce = {};
};
struct SignedOffer {
  Offer offer;
  Bytes32 signature = {};
};
struct Reply {
  uint64_t port = 0;  // of the asked host
  Bytes32 signature = {};
};
// Sent by a host on its line for calls when all hosts below it are connected, or when it gives up.
struct Connected {
  gsel_status code = GSEL_OK;
  int32_t about = -1;  // rank
  uint32_t bytes = 0;  // of the text that follows
};

Bytes32 sign_reply(const Lines& lines, const Offer& offer, uint64_t port) {
  return lines.secret.sign({kByHostAbove, bytes_of(lines.job), bytes_of(offer), bytes_of(port)});
}

// Time of the next poll. Throws if another rank has given up.
int64_t next_poll_ns(const Lines& lines, int64_t deadline_ns) {
  if (!lines.is_given_up) return deadline_ns;
  if (lines.is_given_up()) fail(GSEL_ERR_PEER, "a host ended or gave up while the hosts connected");
  return std::min(deadline_ns, os::now_ns() + kLookNs);
}

void send_notice(Stream& watch, const Error& error) noexcept {
  const std::string text = error.message().substr(0, kMostNoticeText);
  const Notice notice{Notice::Kind::broken, error.code(), error.rank(), static_cast<uint32_t>(text.size())};
  const int64_t shortly = os::now_ns() + kForCauseBelowNs;
  if (watch.send(notice, shortly)) watch.send(text.data(), text.size(), shortly);
}

// The upper end of the lines to the hosts below.
class Centre {
 public:
  Centre(const Listener& listener, const Lines& lines, size_t own)
      : listener_(listener),
        lines_(lines),
        own_(own),
        first_(lines.tree.first_below(own)),
        below_(lines.tree.end_below(own) - first_),
        deadline_ns_(lines.deadline_ns + static_cast<int64_t>(lines.tree.levels_below(own) - 1) * kForCauseBelowNs) {}

  void run(std::vector<std::optional<Line>>& out) {
    while (!has_all()) {
      poll_once(deadline_ns_);
      if (os::now_ns() >= deadline_ns_) fail_late();
    }
    for (size_t i = 0; i < below_.size(); ++i)
      out[first_ + i] = Line{std::move(*below_[i].calls), std::move(*below_[i].watch)};
  }

  // Tells the hosts below that are connected of the failure; also those that connect within that time.
  void notify(const Error& error, int64_t within_ns) noexcept {
    const int64_t end = os::now_ns() + within_ns;
    const auto is_connected = [](const Below& one) { return one.watch.has_value(); };
    while (!std::ranges::all_of(below_, is_connected) && os::now_ns() < end) try {
        poll_once(end);
      } catch (...) {  // of one host; the others are told all the same
      }
    for (Below& one : below_)
      if (one.watch) send_notice(*one.watch, error);
  }

 private:
  struct Below {
    std::optional<Stream> calls, watch;
    uint16_t port = 0;
    bool is_ready = false;  // the hosts below it have their lines
  };
  struct Stranger {
    Stream stream;
    Challenge challenge;
    int64_t since_ns;
    bool is_over;
    std::optional<Offer> asks = {};
  };

  bool has_all() const {
    return std::ranges::all_of(below_, [](const Below& one) { return one.calls && one.watch && one.is_ready; });
  }

  void poll_once(int64_t until_ns) {
    std::vector<pollfd> items;
    for (const os::Fd& fd : listener_.fds()) items.push_back({fd.get(), POLLIN, 0});
    for (const Stranger& one : strangers_)
      if (!one.asks) items.push_back({one.stream.fd(), POLLIN, 0});
    for (const Below& one : below_)
      if (one.calls && !one.is_ready) items.push_back({one.calls->fd(), POLLIN, 0});
    if (poll(items.data(), items.size(), milliseconds_until(next_poll_ns(lines_, until_ns))) < 0 && errno != EINTR)
      fail(GSEL_ERR_IO, "poll failed: {}", errno_text(errno));
    for (Stranger& one : strangers_) receive(one);
    for (Stranger& one : strangers_)
      if (one.asks && !one.is_over) show_way(one);
    std::erase_if(strangers_, [](const Stranger& one) { return one.is_over; });
    for (Below& one : below_)
      if (one.calls && !one.is_ready) receive(one);
    for (const os::Fd& fd : listener_.fds())
      while (auto stream = Listener::accept(fd)) {
        Stranger one{std::move(*stream), {}, os::now_ns(), false};
        os::random_bytes(&one.challenge.nonce, sizeof one.challenge.nonce);
        if (one.stream.send(one.challenge, os::now_ns())) strangers_.push_back(std::move(one));
      }
  }

  void receive(Stranger& one) {
    if (one.asks) return;
    const bool goes_on = one.stream.fill(sizeof(SignedOffer));
    if (const auto said = one.stream.take<SignedOffer>()) return take(one, *said);
    one.is_over = !goes_on || os::now_ns() - one.since_ns > kHandshakeNs;
  }

  void take(Stranger& one, const SignedOffer& said) {
    const Offer& offer = said.offer;
    one.is_over = true;
    if (!lines_.secret.is_signed({kByHost, bytes_of(one.challenge.nonce), bytes_of(lines_.job), bytes_of(offer)},
                                 said.signature))
      return;
    if (offer.purpose == Purpose::ask) {
      one.is_over = !is_below(offer.asked);
      one.asks = offer;
      return;
    }
    if (!is_below(offer.host)) return;
    const auto host = static_cast<size_t>(offer.host);
    Below& below = below_[host - first_];
    if (!one.stream.send(Reply{0, sign_reply(lines_, offer, 0)}, deadline_ns_)) return;
    below.port = offer.port;
    if (offer.purpose == Purpose::calls) below.is_ready = !lines_.tree.has_below(host);
    (offer.purpose == Purpose::calls ? below.calls : below.watch) = std::move(one.stream);
  }

  bool is_below(int32_t host) const {
    return host >= 0 && static_cast<size_t>(host) >= first_ && static_cast<size_t>(host) < first_ + below_.size();
  }

  // Answers when the asked host has connected.
  void show_way(Stranger& one) {
    const uint64_t port = below_[static_cast<size_t>(one.asks->asked) - first_].port;
    if (port == 0) return;
    one.stream.send(Reply{port, sign_reply(lines_, *one.asks, port)}, deadline_ns_);
    one.is_over = true;
  }

  void receive(Below& one) {
    const size_t host = first_ + static_cast<size_t>(&one - below_.data());
    const bool goes_on = one.calls->fill(sizeof(Connected));
    if (const auto said = one.calls->take<Connected>()) {
      std::string text(std::min(said->bytes, kMostCauseBytes), '\0');
      if (said->code != GSEL_OK &&
          one.calls->await(text.data(), text.size(), os::now_ns() + kForCauseBelowNs) == Stream::Wait::all)
        throw Error(said->code, one_line(text)).about_rank(said->about);
      one.is_ready = said->code == GSEL_OK;
    } else if (!goes_on) {
      fail(GSEL_ERR_PEER, "{} ended or gave up while the hosts connected", lines_.names[host]);
    }
  }

  [[noreturn]] void fail_late() const {
    std::string missing;
    for (size_t i = 0; i < below_.size(); ++i)
      if (!below_[i].calls || !below_[i].watch || !below_[i].is_ready)
        missing += (missing.empty() ? "" : ", ") + lines_.names[first_ + i];
    fail(GSEL_ERR_TIMEOUT, "timed out: no connection from {} to {} within {}", missing, lines_.names[own_],
         seconds_text(lines_.seconds));
  }

  const Listener& listener_;
  const Lines& lines_;
  const size_t own_, first_;
  std::vector<Below> below_;
  const int64_t deadline_ns_;
  std::vector<Stranger> strangers_;
};

// The lower end of a connection.
class Caller {
 public:
  Caller(const Lines& lines, size_t own, uint16_t port) : lines_(lines) {
    offer_.host = static_cast<int32_t>(own);
    offer_.port = port;
  }

  Line open() {
    const Tree& tree = lines_.tree;
    const auto own = static_cast<size_t>(offer_.host);
    size_t at = 0;
    for (uint16_t port = lines_.port;;) {
      const std::string& address = lines_.addresses[at];
      const MeetingPlace place{fmt::format("{} port {}", address, port), address, std::to_string(port)};
      if (at == tree.above(own)) {
        Stream calls = open(place, at, Purpose::calls);
        return {std::move(calls), open(place, at, Purpose::watch)};
      }
      const size_t next = tree.step(at, own);
      offer_.asked = static_cast<int32_t>(next);
      open(place, at, Purpose::ask);
      port = static_cast<uint16_t>(reply_.port);
      at = next;
    }
  }

 private:
  Stream open(const MeetingPlace& place, size_t at, Purpose purpose) {
    offer_.purpose = purpose;
    os::random_bytes(&offer_.nonce, sizeof offer_.nonce);
    std::string why;
    int64_t refused_ns = 0;  // since when; 0: the last try was not
    for (int64_t pause = 5'000'000;; pause = std::min(2 * pause, kMostPauseNs)) {
      int failure = 0;
      if (auto stream = try_open(place, &why, &failure)) return std::move(*stream);
      if (failure != ECONNREFUSED) refused_ns = 0;
      if (failure == ECONNREFUSED && refused_ns == 0) refused_ns = os::now_ns();
      // It listens from before it told its port until all hosts below it have their lines.
      if (refused_ns != 0 && os::now_ns() - refused_ns > kRefusedNs)
        fail(GSEL_ERR_PEER,
             "{} ended or gave up while the hosts connected, or its ports are closed to {}: {}; let the hosts of a job "
             "connect to each other at any port",
             lines_.names[at], lines_.names[static_cast<size_t>(offer_.host)], why);
      if (os::now_ns() + pause >= lines_.deadline_ns)
        fail(GSEL_ERR_TIMEOUT, "timed out: {} found no connection to {} within {}; the last try: {}",
             lines_.names[static_cast<size_t>(offer_.host)], lines_.names[at], seconds_text(lines_.seconds), why);
      for (const int64_t end = os::now_ns() + pause; os::now_ns() < end;)
        poll(nullptr, 0, milliseconds_until(std::min(end, next_poll_ns(lines_, end))));
    }
  }

  // nullopt, with *why: no listener yet, or another program.
  std::optional<Stream> try_open(const MeetingPlace& place, std::string* why, int* failure) {
    auto stream = connect_to(place, lines_.deadline_ns, why, failure);
    if (!stream) return {};
    const int64_t shortly = std::min(lines_.deadline_ns, os::now_ns() + kHandshakeNs);
    Challenge challenge;
    if (stream->await(challenge, shortly) != Stream::Wait::all || challenge.magic != kMagic ||
        !stream->send(SignedOffer{offer_, lines_.secret.sign({kByHost, bytes_of(challenge.nonce), bytes_of(lines_.job),
                                                              bytes_of(offer_)})},
                      shortly) ||
        stream->await(reply_, offer_.purpose == Purpose::ask ? lines_.deadline_ns : shortly) != Stream::Wait::all ||
        reply_.signature != sign_reply(lines_, offer_, reply_.port)) {
      *why = "the listener there does not know this communicator";
      return {};
    }
    return stream;
  }

  const Lines& lines_;
  Offer offer_;
  Reply reply_;
};

void notify_above(Stream& above, const Error& error) noexcept {
  const std::string text = error.message().substr(0, kMostCauseBytes);
  const Connected failed{error.code(), error.rank(), static_cast<uint32_t>(text.size())};
  const int64_t shortly = os::now_ns() + kForCauseBelowNs;
  if (above.send(failed, shortly)) above.send(text.data(), text.size(), shortly);
}

void accept_below(const Lines& lines, size_t host, const Listener& listener, std::vector<std::optional<Line>>& out) {
  Stream* above = host == 0 ? nullptr : &out[lines.tree.above(host)]->calls;
  Centre centre(listener, lines, host);
  try {
    centre.run(out);
  } catch (...) {
    const Error error = current_error();
    if (above) notify_above(*above, error);
    centre.notify(error, 0);  // the missing host may be dead
    throw;
  }
  if (above) above->send(Connected{}, lines.deadline_ns);  // a failure is noticed in the first call
}

}  // namespace

void report_failure(const Lines& lines, size_t host, const std::optional<Listener>& listener,
                    const Error& error) noexcept {
  try {
    if (host == 0) {
      if (listener) Centre(*listener, lines, host).notify(error, kNotifyBelowNs);
    } else {
      Line line = Caller(lines, host, 0).open();
      if (lines.tree.has_below(host)) notify_above(line.calls, error);  // which waits for it
      send_notice(line.watch, error);
    }
  } catch (...) {  // a host that gets no message fails at the join timeout
  }
}

std::vector<std::optional<Line>> connect_lines(const Lines& lines, size_t host,
                                               const std::optional<Listener>& listener) {
  std::vector<std::optional<Line>> out(lines.tree.hosts);
  const bool has_below = lines.tree.has_below(host);
  std::optional<Listener> own;
  if (host != 0) {
    if (has_below) own = Listener::at_any_port();
    out[lines.tree.above(host)] = Caller(lines, host, own ? own->port() : uint16_t{0}).open();
  }
  if (has_below) accept_below(lines, host, own ? *own : *listener, out);
  return out;
}

}  // namespace gsel::hosts
