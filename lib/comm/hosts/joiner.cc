// comm/hosts/joiner.cc: the side of ranks other than 0 in a meeting. One rank of each host connects and speaks for the
// others (host_proxy.h).
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/text.h"
#include "comm/hosts/host_proxy.h"
#include "comm/hosts/meeting.h"
#include "comm/hosts/stream.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kFirstPauseNs = 10'000'000, kLongestPauseNs = 1'000'000'000;
// Number and time of answers of a stranger at rank 0's address before this rank gives up. Longer than a rank 0 that has
// failed keeps listening.
constexpr int32_t kStrangerTries = 5;
constexpr int64_t kStrangerNs = 3'000'000'000;

class Joiner {
 public:
  Joiner(const Meeting& meeting, AddressStore* address_store)
      : meeting_(meeting),
        address_store_(address_store),
        proxy_name_(proxy_name(meeting)),
        own_(own_greeting(meeting)) {
    os::random_bytes(&own_.nonce, sizeof own_.nonce);
  }

  Met run() {
    if (address_store_ && address_store_->asks_all()) seats_ = read_seats();
    int64_t pause = kFirstPauseNs;
    for (;;) {
      if (auto met = try_once()) return std::move(*met);
      if (os::now_ns() >= meeting_.deadline_ns) fail_absent();
      uint32_t random = 0;
      os::random_bytes(&random, sizeof random);
      const int64_t jittered = pause / 2 + random % pause;
      poll(nullptr, 0, static_cast<int>(std::min(jittered, meeting_.deadline_ns - os::now_ns()) / 1'000'000 + 1));
      pause = std::min(2 * pause, kLongestPauseNs);
    }
  }

 private:
  // A possible address of rank 0.
  struct Seat {
    MeetingPlace place;
    Secret secret;
    bool is_posted_secret;  // the secret is from the address_store
    std::string posted;     // text: which rank 0 posted it, and where; empty: it is the place
  };

  std::optional<Met> try_once() {
    if (!proxy_) proxy_ = is_foreign_ ? HostProxy::alone() : HostProxy::at(proxy_name_);
    if (!proxy_) return follow_proxy(meeting_, proxy_name_, own_, &is_foreign_, &why_);
    try {
      if (seats_.empty()) seats_ = read_seats();
      for (const Seat& seat : seats_) {
        stranger_.answers = false;
        int failure = 0;
        std::string why;
        if (auto stream = connect_to(seat.place, meeting_.deadline_ns, &why, &failure)) {
          if (const auto session = be_welcomed(*stream, seat))
            return proxy_->represent(meeting_, *stream, *session, own_);
        } else {
          set_reason(why + (failure == ECONNREFUSED && address_store_ ? seat.posted : ""));
        }
        if (!address_store_) count_stranger();
      }
      if (refusal_) throw Error(refusal_->failure, one_line(refusal_->why)).about_rank(0);
      seats_.clear();
      return {};
    } catch (...) {
      proxy_->notify_all(failed_word(current_error()));
      throw;
    }
  }

  // A try that the deadline has cut tells less than one that was answered before.
  void set_reason(std::string why) {
    const bool is_cut = os::now_ns() >= meeting_.deadline_ns;
    if (!is_cut || !was_answered_) why_ = std::move(why);
    was_answered_ |= !is_cut;
  }

  // A stranger that answers repeatedly at rank 0's address is assumed to stay there.
  void count_stranger() {
    if (!stranger_.answers) stranger_ = {};
    if (!stranger_.answers) return;
    if (stranger_.tries++ == 0) stranger_.since_ns = os::now_ns();
    const int64_t for_ns = os::now_ns() - stranger_.since_ns;
    if (stranger_.tries < kStrangerTries || for_ns < kStrangerNs) return;
    throw Error(stranger_.speaks_gsel ? GSEL_ERR_PERMISSION : GSEL_ERR_IO,
                fmt::format("rank {} of {} gives up: at {} {}, as {} tries in {} s have found; {}", meeting_.rank,
                            meeting_.world_size, meeting_.place.text, why_, stranger_.tries, for_ns / 1'000'000'000,
                            stranger_.speaks_gsel ? "give every rank of the job the same token, and each job a port"
                                                  : "choose a port that nobody uses, the same on every rank"))
        .about_rank(0);
  }

  // The error quotes a stranger rather than that the last try found no listener.
  [[noreturn]] void fail_absent() {
    if (!strangers_word_.empty()) why_ = strangers_word_;
    Word absent;
    absent.kind = WordKind::absent;
    write_text(absent.text, why_);
    if (proxy_) proxy_->notify_all(absent);
    throw Error(
        GSEL_ERR_TIMEOUT,
        fmt::format("timed out: rank {} of {} waited {} for rank 0 to listen at {}; the last try: {}; start "
                    "all ranks within the join timeout, with one place that rank 0's host has",
                    meeting_.rank, meeting_.world_size, seconds_text(meeting_.seconds), meeting_.place.text, why_))
        .about_rank(0);
  }

  std::vector<Seat> read_seats() {
    if (!address_store_) return {{meeting_.place, *meeting_.secret, false, {}}};
    std::vector<Seat> out;
    refusal_.reset();
    std::string why;
    for (const Endpoint& posted : address_store_->read(meeting_.deadline_ns, &why)) {
      if (posted.token.empty() && !meeting_.secret)
        throw Error(GSEL_ERR_PERMISSION,
                    fmt::format("rank 0 on {} has a token of its own and rank {} none; name the same file in "
                                "GSEL_TOKEN_FILE on every rank",
                                posted.host, meeting_.rank))
            .about_rank(0);
      if (posted.failure != GSEL_OK) {
        if (posted.is_refusal(meeting_.secret ? *meeting_.secret : Secret(posted.token))) refusal_ = posted;
        continue;
      }
      for (const std::string& address : posted.addresses)
        out.push_back(
            {{.text = meeting_.place.text, .host = address, .port = std::to_string(posted.port)},
             meeting_.secret ? *meeting_.secret : Secret(posted.token),
             !meeting_.secret,
             fmt::format(", where rank 0 on {} (pid {}) says in {} that it listens, which may be of a job that "
                         "has ended",
                         one_line(posted.host), posted.pid, posted.path.empty() ? meeting_.place.text : posted.path)});
    }
    if (out.empty()) set_reason(std::move(why));
    return out;
  }

  // nullopt, with why_: the listener is not rank 0, or has closed the connection.
  std::optional<Session> be_welcomed(Stream& stream, const Seat& seat) {
    const int64_t deadline = std::min(meeting_.deadline_ns, os::now_ns() + kHandshakeNs);
    Challenge challenge;
    char bytes[sizeof challenge];
    constexpr size_t kBegin = sizeof challenge.magic;  // another program may send less than a challenge
    if (stream.await(bytes, kBegin, deadline) != Stream::Wait::all) return not_there("says nothing that rank 0 says");
    std::memcpy(&challenge.magic, bytes, kBegin);
    const bool is_swapped = challenge.magic == __builtin_bswap64(kMagic);
    if (challenge.magic != kMagic && !is_swapped) return stranger("is no rank of gsel", false);
    if (stream.await(bytes + kBegin, sizeof bytes - kBegin, deadline) != Stream::Wait::all)
      return not_there("went away in the middle");
    std::memcpy(&challenge, bytes, sizeof challenge);
    const SignedGreeting signed_greeting{own_,
                                         seat.secret.sign({kByJoiner, bytes_of(challenge.nonce), bytes_of(own_)})};
    if (is_swapped || challenge.protocol != kMeetingProtocol) {  // rank 0 can then report this rank to the others
      stream.send(signed_greeting, deadline);
      fail_kind(challenge, is_swapped);
    }
    Word word;
    if (!stream.send(signed_greeting, deadline) || stream.await(word, deadline) != Stream::Wait::all)
      return not_there("went away in the middle");
    Session session{seat.secret, own_.nonce, challenge.nonce};
    if (!session.is_signed(word))
      return stranger(seat.is_posted_secret ? "is not the rank 0 that has posted where it listens"
                                            : "has another token than this rank, so that it is no rank 0 of this job",
                      true);
    if (word.kind == WordKind::failed) throw error_of(word);
    if (word.kind != WordKind::welcome) return not_there("does not begin as rank 0 begins");
    return session;
  }

  [[noreturn]] void fail_kind(const Challenge& challenge, bool is_swapped) const {
    throw Error(GSEL_ERR_VERSION,
                is_swapped
                    ? fmt::format("rank 0 at {} has another byte order than rank {}; use hosts of one kind",
                                  meeting_.place.text, meeting_.rank)
                    : fmt::format("rank 0 at {} meets by protocol {}, rank {} by {}; all ranks must use one libgsel",
                                  meeting_.place.text, challenge.protocol, meeting_.rank, kMeetingProtocol))
        .about_rank(0);
  }

  std::nullopt_t stranger(const char* what, bool speaks_gsel) {
    stranger_.answers = true;
    stranger_.speaks_gsel = speaks_gsel;
    not_there(what);
    strangers_word_ = why_;
    return std::nullopt;
  }
  std::nullopt_t not_there(const char* what) {
    why_ = fmt::format("the listener there {}", what);
    return std::nullopt;
  }

  const Meeting& meeting_;
  AddressStore* address_store_;
  const std::string proxy_name_;
  std::optional<HostProxy> proxy_;  // if this rank is the proxy
  bool is_foreign_ = false;         // another user has the proxy's name
  std::vector<Seat> seats_;
  std::optional<Endpoint> refusal_;  // rank 0 has posted that it does not listen
  struct {
    bool answers = false, speaks_gsel = false;
    int32_t tries = 0;  // consecutive
    int64_t since_ns = 0;
  } stranger_;
  Greeting own_;
  std::string why_ = "nobody listens", strangers_word_;
  bool was_answered_ = false;  // why_ is of a try that the deadline has not cut
};

}  // namespace

Met meet_as_joiner(const Meeting& meeting, AddressStore* address_store) {
  return Joiner(meeting, address_store).run();
}

}  // namespace gsel::hosts
