// comm/hosts/root.cc: rank 0's side of a meeting. One rank of each host connects and speaks for the others. A
// connection that has not proved knowledge of the secret cannot do harm: it has five seconds and the bytes of one
// greeting, and nothing that it sends ends the job.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/hosts/listening_id.h"
#include "comm/hosts/meeting.h"
#include "comm/hosts/refusals.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/stream.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

// ---- how rank 0 begins: it listens at the place, or posts where it listens, or why it cannot ------------------------
// Does not know which ranks come.

struct Opening {
  Listener listener;
  std::string address;  // a posted address; empty: none was posted
};

// address_store: nullptr: listens at the place. secret: of the job.
Opening open_meeting(const Meeting& meeting, AddressStore* address_store, const Secret& secret);

constexpr int64_t kLookWhoNs = 1'000'000'000;
constexpr int64_t kReasonNs = 2'000'000'000;  // time for which a reason stays posted

// How another process with rank 0 answers, if one listens there. It is shown this one, so that it can name both.
struct OtherRoot {
  bool is_there = false;
  std::string said;  // what it says of the two, signed; empty: it has another token
};

OtherRoot ask_other_root(const Meeting& meeting, const MeetingPlace& place, const Secret& secret) {
  const int64_t end = os::now_ns() + kLookWhoNs;
  std::string why;
  Challenge challenge;
  OtherRoot other;
  auto stream = connect_to(place, end, &why);
  if (!stream || stream->await(challenge, end) != Stream::Wait::all) return other;
  other.is_there = challenge.magic == kMagic || challenge.magic == __builtin_bswap64(kMagic);
  if (challenge.magic != kMagic || challenge.protocol != kMeetingProtocol) return other;
  SignedGreeting own;
  own.greeting = own_greeting(meeting);
  os::random_bytes(&own.greeting.nonce, sizeof own.greeting.nonce);
  own.signature = secret.sign({kByJoiner, bytes_of(challenge.nonce), bytes_of(own.greeting)});
  Word word;
  if (stream->send(own, end) && stream->await(word, end) == Stream::Wait::all &&
      Session{secret, own.greeting.nonce, challenge.nonce}.is_signed(word) && word.kind == WordKind::failed)
    other.said = "; " + read_text(word.text);
  return other;
}

Opening open_at_place(const Meeting& meeting, const Secret& secret) {
  auto listener = Listener::at(meeting.place, meeting.deadline_ns);
  if (listener) return {std::move(*listener), {}};
  const OtherRoot other = ask_other_root(meeting, meeting.place, secret);
  if (!other.is_there)
    fail(GSEL_ERR_IO, "rank 0 cannot listen at {}: the port is in use; choose another one, the same on every rank",
         meeting.place.text);
  fail(GSEL_ERR_IO,
       "rank 0 cannot listen at {}: a rank 0 waits there already{}; give each job a port of its own, and no two "
       "processes rank 0",
       meeting.place.text, other.said);
}

Endpoint own_endpoint(const Meeting& meeting, const Secret& secret) {
  Endpoint own;
  own.host = host_name();
  own.pid = getpid();
  own.until_s = time(nullptr) + (meeting.deadline_ns - os::now_ns()) / 1'000'000'000 + 1;
  if (!meeting.secret) own.token = secret.key();
  return own;
}

// Posted for a short time only, so that the next job does not read it; ranks that read later time out.
void post_failure(const Meeting& meeting, AddressStore& address_store, const Secret& secret,
                  const Error& error) noexcept {
  try {
    const int64_t end = std::min(meeting.deadline_ns, os::now_ns() + kReasonNs);
    Endpoint own = own_endpoint(meeting, secret);
    own.until_s = time(nullptr);
    own.refuse(error.code(), error.message(), secret);
    address_store.post(own, meeting.deadline_ns);
    while (!address_store.asks_all() && os::now_ns() < end) poll(nullptr, 0, milliseconds_until(end));
  } catch (...) {  // the other ranks then time out
  }
}

// Lets each rank 0 that has posted its address there know of this one.
void show_other_roots(const Meeting& meeting, AddressStore& address_store) {
  std::string why;
  for (const Endpoint& posted : address_store.read(meeting.deadline_ns, &why))
    for (const std::string& address : posted.addresses)
      if (!posted.token.empty() || meeting.secret)
        if (ask_other_root(meeting, {.text = {}, .host = address, .port = std::to_string(posted.port)},
                           meeting.secret ? *meeting.secret : Secret(posted.token))
                .is_there)
          break;
}

// The address in the id was known before this meeting.
Opening open_of_id(const Meeting& meeting, AddressStore& address_store, const Secret& secret) {
  std::string why;
  try {
    return {take_listener(secret), address_store.read(meeting.deadline_ns, &why).front().addresses.front()};
  } catch (const Error&) {
    show_other_roots(meeting, address_store);
    throw;
  }
}

Opening open_and_post(const Meeting& meeting, AddressStore& address_store, const Secret& secret) {
  std::vector<std::string> addresses;
  std::optional<Listener> listener;
  try {
    addresses = own_addresses();
    listener = Listener::at_any_port();
  } catch (...) {
    post_failure(meeting, address_store, secret, current_error());
    throw;
  }
  Endpoint own = own_endpoint(meeting, secret);
  own.addresses = std::move(addresses);
  own.port = listener->port();
  try {
    address_store.post(own, meeting.deadline_ns);
  } catch (const Error& error) {
    if (error.code() == GSEL_ERR_MISMATCH) show_other_roots(meeting, address_store);
    throw;
  }
  return {std::move(*listener), own.addresses.front()};
}

Opening open_meeting(const Meeting& meeting, AddressStore* address_store, const Secret& secret) {
  try {
    if (meeting.place.kind == MeetingPlace::Kind::id) return open_of_id(meeting, *address_store, secret);
    return address_store ? open_and_post(meeting, *address_store, secret) : open_at_place(meeting, secret);
  } catch (const Error& e) {
    throw Error(e).about_rank(0);
  }
}

// ---- the meeting ----------------------------------------------------------------------------------------------------

constexpr int64_t kSendNs = 1'000'000'000, kLingerNs = 2'000'000'000;
constexpr int64_t kAboutNowNs = 500'000'000;  // left of rank 0's own join timeout: its final message follows soon
constexpr size_t kMostReports = 64;           // read at a time
constexpr size_t kMostStrangers = 1024;       // unproved connections at a time

class Root {
 public:
  Root(const Meeting& meeting, std::unique_ptr<AddressStore> address_store)
      : meeting_(meeting),
        address_store_(std::move(address_store)),
        secret_(meeting.secret ? *meeting.secret : Secret(random_token())),
        own_(own_greeting(meeting)),
        by_rank_(static_cast<size_t>(meeting.world_size)),
        greetings_(static_cast<size_t>(meeting.world_size)),
        largest_world_(greetings_.size()) {
    greetings_[0] = own_;
    first_of_host_.emplace(own_.identity, 0);
  }

  Met run() {
    Opening opening = open_meeting(meeting_, address_store_.get(), secret_);
    listener_ = std::move(opening.listener);
    address_ = std::move(opening.address);
    log(GSEL_LOG_INFO, "comm", "rank 0 of {} listens at {}", meeting_.world_size, meeting_.place.text);
    try {
      while (has_come_ + 1 < greetings_.size()) poll_once();
      const HostTable table = make_table();
      const std::vector<char> code = encode_table(table);
      const Bytes32 sum = key_of(code);
      for (const auto& joiner : joiners_)
        if (joiner->is_known) send_table(*joiner, table, code, sum);
      while (std::ranges::any_of(joiners_, [](const auto& joiner) { return joiner->is_known && !joiner->has_table; }))
        poll_once();
      address_store_.reset();  // before any rank can read the address_store for the next meeting
      Word here;
      here.kind = WordKind::here;
      for (const auto& joiner : joiners_)
        if (joiner->is_known && !send_signed(*joiner, here, os::now_ns() + kSendNs)) fail_gone(joiner->greeting);
      return {table, secret_};
    } catch (const Error& error) {
      tell_all(failed_word(error));
      throw;
    }
  }

 private:
  // Sends the failure to all ranks, also to those that connect later, which would otherwise try until their deadline.
  // Returns when every rank has received it and closed its connection, or after kLingerNs.
  void tell_all(const Word& failed) noexcept {
    failed_ = failed;
    for (const auto& joiner : joiners_)
      if (joiner->is_known) tell(*joiner);
    const int64_t end = std::min(os::now_ns() + kLingerNs, meeting_.deadline_ns);
    try {
      while (listener_ && (known_ > 0 || have_spoken_ + 1 < largest_world_) && os::now_ns() < end) poll_once();
    } catch (...) {  // the ranks then time out
    }
  }

  // The rank that speaks for its host.
  struct Joiner {
    explicit Joiner(Stream given) : stream(std::move(given)), since_ns(os::now_ns()) {}
    Stream stream;
    Challenge challenge;
    Greeting greeting;
    std::vector<int32_t> ranks = {};  // of its host
    int64_t since_ns;
    bool is_known = false;  // has proved knowledge of the secret
    bool has_table = false;
    bool is_over = false;
  };
  bool send_signed(Joiner& joiner, Word word, int64_t deadline_ns, const Bytes32& sum = {}) const {
    Session{secret_, joiner.greeting.nonce, joiner.challenge.nonce}.sign(word, sum);
    return joiner.stream.send(word, deadline_ns);
  }

  static std::vector<uint8_t> random_token() {
    std::vector<uint8_t> token(32);
    os::random_bytes(token.data(), token.size());
    return token;
  }

  std::vector<int32_t> missing() const {
    std::vector<int32_t> ranks;
    for (int32_t q = 1; q < meeting_.world_size; ++q)
      if (!by_rank_[static_cast<size_t>(q)]) ranks.push_back(q);
    return ranks;
  }
  std::vector<int32_t> unheard() const {
    std::vector<int32_t> ranks;
    for (int32_t q = 1; q < meeting_.world_size; ++q)
      if (!by_rank_[static_cast<size_t>(q)]->has_table) ranks.push_back(q);
    return ranks;
  }

  void poll_once() {
    std::vector<pollfd> items;
    for (const os::Fd& fd : listener_->fds()) items.push_back({fd.get(), POLLIN, 0});
    const size_t listeners = items.size();
    for (const auto& joiner : joiners_) items.push_back({joiner->stream.fd(), POLLIN, 0});
    const int64_t left =
        std::clamp<int64_t>(meeting_.deadline_ns - os::now_ns(), 0, failed_ ? kLingerNs / 20 : kSendNs);
    const int ready = poll(items.data(), items.size(), static_cast<int>(left / 1'000'000 + 1));
    if (ready < 0 && errno != EINTR) fail(GSEL_ERR_IO, "poll failed: {}", errno_text(errno));
    size_t next = listeners;
    for (const auto& joiner : joiners_) {
      if (ready > 0 && items[next].revents != 0) hear(*joiner);
      if (!joiner->is_known && os::now_ns() - joiner->since_ns > kHandshakeNs) joiner->is_over = true;
      ++next;
    }
    joiners_.remove_if([this](const auto& joiner) {
      known_ -= joiner->is_over && joiner->is_known;
      return joiner->is_over;
    });
    for (size_t i = 0; i < listeners && ready > 0; ++i)
      if (items[i].revents != 0) admit(listener_->fds()[i]);
    if (os::now_ns() < meeting_.deadline_ns || failed_) return;
    const std::vector<int32_t> late = missing();
    fail_late(meeting_, late.empty() ? unheard() : late, late.empty(), here(), refused_.text(), nullptr);
  }

  void admit(const os::Fd& fd) {
    while (auto stream = Listener::accept(fd)) {
      if (joiners_.size() - known_ >= kMostStrangers) continue;  // a rank tries again
      auto joiner = std::make_unique<Joiner>(std::move(*stream));
      os::random_bytes(&joiner->challenge.nonce, sizeof joiner->challenge.nonce);
      if (joiner->stream.send(joiner->challenge, os::now_ns())) joiners_.push_back(std::move(joiner));
    }
  }

  void hear(Joiner& joiner) {
    const bool goes_on = joiner.stream.fill(joiner.is_known ? kMostReports * sizeof(Report) : sizeof(SignedGreeting));
    if (!joiner.is_known) {
      if (const auto said = joiner.stream.take<SignedGreeting>())
        greet(joiner, *said);
      else if (!goes_on)
        joiner.is_over = true;
      return;
    }
    while (const auto report = joiner.stream.take<Report>()) {
      if (report->kind == WordKind::here) joiner.has_table = true;
      if (report->kind == WordKind::comes) take(joiner, report->greeting);
      if (report->kind == WordKind::gone && !failed_) fail_gone(report->greeting);
      if (report->kind == WordKind::late && !failed_) answer_late(*report);
    }
    if (goes_on || (joiner.has_table && !failed_)) return;
    if (!failed_) fail_gone(joiner.greeting);
    joiner.is_over = true;
  }

  // A rank has waited for its whole join timeout.
  void answer_late(const Report& report) const {
    const std::vector<int32_t> late = missing();
    if (late.empty() || meeting_.deadline_ns - os::now_ns() < kAboutNowNs) return;  // the table, or the error, follows
    const Waiter waiter{report.greeting, report.milliseconds * 1e-3};
    fail_late(meeting_, late, false, here(), refused_.text(), &waiter);
  }

  // Adds a rank of the joiner's host.
  void take(Joiner& joiner, const Greeting& greeting) {
    ++have_spoken_;
    if (greeting.world_size > 0) largest_world_ = std::max(largest_world_, static_cast<size_t>(greeting.world_size));
    const bool is_rank = greeting.rank >= 0 && greeting.rank < meeting_.world_size;
    auto* const place = is_rank ? &greetings_[static_cast<size_t>(greeting.rank)] : nullptr;
    const auto first = first_of_host_.find(greeting.identity);
    if (!failed_)
      check_greeting(greeting, own_, place && *place ? &**place : nullptr,
                     first == first_of_host_.end() ? nullptr : &*greetings_[static_cast<size_t>(first->second)]);
    if (!is_rank) return;
    if (first == first_of_host_.end()) first_of_host_.emplace(greeting.identity, greeting.rank);
    joiner.ranks.push_back(greeting.rank);
    by_rank_[static_cast<size_t>(greeting.rank)] = &joiner;
    has_come_ += !*place;
    *place = greeting;
  }

  // Ends the connection, but not the job.
  void turn_away(Joiner& joiner, const Error& error) {
    send_signed(joiner, failed_word(error), os::now_ns());
    joiner.is_over = true;
  }

  void tell(Joiner& joiner) noexcept { send_signed(joiner, *failed_, os::now_ns() + kSendNs); }

  void greet(Joiner& joiner, const SignedGreeting& said) {
    const Greeting& g = said.greeting;
    if (!secret_.is_signed({kByJoiner, bytes_of(joiner.challenge.nonce), bytes_of(g)}, said.signature)) {
      const bool is_gsel = g.magic == kMagic || g.magic == __builtin_bswap64(kMagic);  // and no scanner of ports
      if (is_gsel && refused_.add_other_token(joiner.stream.peer_address()))
        log(GSEL_LOG_WARN, "comm", "rank 0 at {}: {}", meeting_.place.text, refused_.text());
      joiner.stream.send(Word{}, os::now_ns());  // unsigned, so that the joiner detects it
      joiner.is_over = true;
      return;
    }
    joiner.greeting = g;
    if (g.magic != kMagic || g.protocol != kMeetingProtocol) {
      joiner.is_over = true;  // the joiner detects this itself
      ++have_spoken_;
      return failed_ ? void() : fail_kind(g);
    }
    if (read_text(g.job) != read_text(own_.job)) {
      const Error error = other_job(g, own_, meeting_.place.text);
      refused_.add_other_job(error.message());
      log(GSEL_LOG_WARN, "comm", "turned away: {}", error.message());
      return turn_away(joiner, error);
    }
    if (g.rank == 0) {
      if (refused_.add_rank_0(seat_of(g)))
        log(GSEL_LOG_WARN, "comm", "rank 0 of {}: {}", own_.world_size, refused_.text());
      return turn_away(joiner, second_rank_0(g, own_));
    }
    joiner.is_known = true;
    ++known_;
    take(joiner, g);
    if (failed_) return tell(joiner);
    Word welcome;
    welcome.kind = WordKind::welcome;
    if (!send_signed(joiner, welcome, os::now_ns() + kSendNs)) fail_gone(g);
  }

  // By rank; nullptr: has not come.
  std::vector<const Greeting*> here() const {
    std::vector<const Greeting*> out(greetings_.size(), nullptr);
    for (size_t q = 0; q < out.size(); ++q)
      if (greetings_[q]) out[q] = &*greetings_[q];
    return out;
  }

  HostTable make_table() const {
    HostTable table;
    table.port = meeting_.port;
    table.fanout = meeting_.fanout;
    table.silence_ns = meeting_.silence_ns;
    os::random_bytes(table.job.bytes, sizeof table.job.bytes);
    std::map<Bytes32, int32_t> identities;
    for (int32_t q = 0; q < meeting_.world_size; ++q) {
      const Greeting& g = *greetings_[static_cast<size_t>(q)];
      const auto [place, is_new] = identities.emplace(g.identity, static_cast<int32_t>(identities.size()));
      table.host_of.push_back(place->second);
      if (!is_new) continue;
      table.names.push_back(read_text(g.host));
      table.addresses.push_back(q == 0 ? (address_.empty() ? meeting_.place.host : address_)
                                       : by_rank_[static_cast<size_t>(q)]->stream.peer_address());
    }
    return table;
  }

  void send_table(Joiner& joiner, const HostTable& table, const std::vector<char>& code, const Bytes32& sum) const {
    Word word;
    word.kind = WordKind::table;
    word.bytes = static_cast<uint32_t>(code.size());
    word.port = table.port;
    word.fanout = table.fanout;
    word.silence_ns = table.silence_ns;
    std::memcpy(word.job, table.job.bytes, sizeof word.job);
    if (!send_signed(joiner, word, meeting_.deadline_ns, sum) ||
        !joiner.stream.send(code.data(), code.size(), meeting_.deadline_ns))
      fail_gone(joiner.greeting);
  }

  [[noreturn]] static void fail_gone(const Greeting& greeting) {
    throw Error(GSEL_ERR_PEER,
                fmt::format("rank {} on {} died or gave up while the ranks joined", greeting.rank, seat_of(greeting)))
        .about_rank(greeting.rank);
  }

  const Meeting& meeting_;
  std::unique_ptr<AddressStore> address_store_;
  const Secret secret_;
  const Greeting own_;
  std::optional<Listener> listener_;
  std::string address_;                         // a posted address
  std::list<std::unique_ptr<Joiner>> joiners_;  // in order of arrival
  size_t known_ = 0;                            // number of joiners with is_known
  std::vector<Joiner*> by_rank_;                // the joiner that speaks for the rank
  std::vector<std::optional<Greeting>> greetings_;
  size_t has_come_ = 0;                       // ranks, without rank 0
  size_t have_spoken_ = 0;                    // processes that know the secret, also such as do not match
  size_t largest_world_;                      // that a process has named: so many may still come to hear of a failure
  std::map<Bytes32, int32_t> first_of_host_;  // by identity: the rank that came first
  Refused refused_;
  std::optional<Word> failed_;  // sent to all ranks from now on
};

}  // namespace

Met meet_as_root(const Meeting& meeting, std::unique_ptr<AddressStore> address_store) {
  return Root(meeting, std::move(address_store)).run();
}

}  // namespace gsel::hosts
