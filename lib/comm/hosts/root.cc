// comm/hosts/root.cc: rank 0's side of a meeting. A connection that has not proved that it knows the secret costs that
// connection alone: it has five seconds and as many bytes as a proof, and whatever it says ends no job.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <list>
#include <memory>

#include "base/log.h"
#include "base/text.h"
#include "comm/hosts/meeting.h"
#include "comm/hosts/refusals.h"
#include "comm/hosts/sides.h"
#include "comm/hosts/stream.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kSayNs = 1'000'000'000, kLingerNs = 2'000'000'000;
constexpr size_t kMostStrangers = 1024;  // connections that have proved nothing, at a time

class Root {
 public:
  Root(const Meeting& meeting, std::unique_ptr<Board> board)
      : meeting_(meeting),
        board_(std::move(board)),
        secret_(meeting.secret ? *meeting.secret : Secret(random_token())),
        by_rank_(static_cast<size_t>(meeting.world_size)) {
    own_.pid = getpid();
    write_text(own_.host, host_name());
    write_text(own_.identity, host_identity());
    write_text(own_.space, name_space());
  }

  Met run() {
    open();
    log(GSEL_LOG_INFO, "comm", "rank 0 of {} listens at {}", meeting_.world_size, meeting_.place.text);
    try {
      while (!missing().empty()) poll_once();
      const HostTable table = make_table();
      for (Guest* guest : by_rank_)
        if (guest) send_table(*guest, table);
      while (!unheard().empty()) poll_once();
      board_.reset();  // before others may look there for the next meeting
      Word here;
      here.say = Say::here;
      for (Guest* guest : by_rank_)
        if (guest && !guest->stream.send(here, os::now_ns() + kSayNs)) fail_gone(*guest);
      return {table, secret_};
    } catch (const Error& error) {
      tell_all(failed_word(error));
      throw;
    }
  }

 private:
  // Those who come a little later as well: they would look for rank 0 until their deadline.
  void tell_all(const Word& failed) noexcept {
    failed_ = failed;
    std::ranges::fill(by_rank_, nullptr);
    for (const auto& guest : guests_)
      if (guest->is_known) tell(*guest);
    const int64_t end = std::min(os::now_ns() + kLingerNs, meeting_.deadline_ns);
    try {
      while (listener_ && !missing().empty() && os::now_ns() < end) poll_once();
    } catch (...) {  // they find out by themselves
    }
  }

  struct Guest {
    explicit Guest(Stream given) : stream(std::move(given)), since_ns(os::now_ns()) {}
    Stream stream;
    Challenge challenge;
    Greeting greeting;
    int64_t since_ns;
    bool is_known = false;  // has proved that it knows the secret
    bool has_table = false;
    bool is_over = false;
  };

  static std::vector<uint8_t> random_token() {
    std::vector<uint8_t> token(32);
    os::random_bytes(token.data(), token.size());
    return token;
  }

  void open() {
    try {
      if (board_)
        post();
      else
        listener_.emplace(meeting_.place, meeting_.deadline_ns);
    } catch (const Error& e) {
      throw Error(e).about_rank(0);
    }
  }

  void post() {
    Endpoint own;
    own.addresses = own_addresses();
    listener_ = Listener::at_any_port();
    own.host = host_name();
    own.pid = getpid();
    own.port = listener_->port();
    own.until_s = time(nullptr) + (meeting_.deadline_ns - os::now_ns()) / 1'000'000'000 + 1;
    if (!meeting_.secret) own.token = secret_.key();
    address_ = own.addresses.front();
    board_->post(own, meeting_.deadline_ns);
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
    for (const auto& guest : guests_) items.push_back({guest->stream.fd(), POLLIN, 0});
    const int64_t left = std::clamp<int64_t>(meeting_.deadline_ns - os::now_ns(), 0, failed_ ? kLingerNs / 20 : kSayNs);
    const int ready = poll(items.data(), items.size(), static_cast<int>(left / 1'000'000 + 1));
    if (ready < 0 && errno != EINTR) fail(GSEL_ERR_IO, "poll failed: {}", errno_text(errno));
    size_t next = listeners;
    for (const auto& guest : guests_) {
      if (ready > 0 && items[next].revents != 0) hear(*guest);
      if (!guest->is_known && os::now_ns() - guest->since_ns > kHandshakeNs) guest->is_over = true;
      ++next;
    }
    guests_.remove_if([](const auto& guest) { return guest->is_over; });
    for (size_t i = 0; i < listeners && ready > 0; ++i)
      if (items[i].revents != 0) admit(listener_->fds()[i]);
    if (os::now_ns() < meeting_.deadline_ns) return;
    const std::vector<int32_t> late = missing();
    fail_late(meeting_, late.empty() ? unheard() : late, late.empty(), here(), stranger_);
  }

  void admit(const os::Fd& fd) {
    while (auto stream = Listener::accept(fd)) {
      const auto strangers = std::ranges::count_if(guests_, [](const auto& guest) { return !guest->is_known; });
      if (static_cast<size_t>(strangers) >= kMostStrangers) continue;  // who is a rank comes again
      auto guest = std::make_unique<Guest>(std::move(*stream));
      os::random_bytes(&guest->challenge.nonce, sizeof guest->challenge.nonce);
      if (guest->stream.send(guest->challenge, os::now_ns())) guests_.push_back(std::move(guest));
    }
  }

  void hear(Guest& guest) {
    const bool goes_on = guest.stream.fill(guest.is_known ? sizeof(Word) : sizeof(SignedGreeting));
    if (!guest.is_known) {
      if (const auto said = guest.stream.take<SignedGreeting>())
        greet(guest, *said);
      else if (!goes_on)
        guest.is_over = true;
      return;
    }
    if (const auto word = guest.stream.take<Word>(); word && word->say == Say::here) guest.has_table = true;
    if (!goes_on && !guest.has_table) fail_gone(guest);
  }

  // Ends the connection, and not the job.
  void turn_away(Guest& guest, const Error& error) {
    guest.stream.send(failed_word(error), os::now_ns());
    guest.is_over = true;
  }

  void tell(Guest& guest) noexcept {
    guest.stream.send(*failed_, os::now_ns() + kSayNs);
    const int32_t rank = guest.greeting.rank;
    if (rank >= 0 && rank < meeting_.world_size) by_rank_[static_cast<size_t>(rank)] = &guest;
    guest.has_table = true;  // it may go
  }

  void greet(Guest& guest, const SignedGreeting& said) {
    const Greeting& g = said.greeting;
    if (!secret_.is_signed({kByGuest, bytes_of(guest.challenge.nonce), bytes_of(g)}, said.signature)) {
      stranger_ = guest.stream.peer();
      return turn_away(guest, Error(GSEL_ERR_PERMISSION,
                                    fmt::format("rank 0 at {} has another token than this rank; give every rank of the "
                                                "job the same",
                                                meeting_.place.text))
                                  .about_rank(0));
    }
    if (g.magic != kMagic || g.protocol != kMeetingProtocol) {
      guest.is_over = true;  // it has found out, too
      return failed_ ? void() : fail_kind(g);
    }
    guest.is_known = true;
    guest.greeting = g;
    if (failed_) return tell(guest);
    check_greeting(g, here());
    Word welcome;
    welcome.say = Say::welcome;
    welcome.signature = secret_.sign({kByRoot, bytes_of(g.nonce), bytes_of(guest.challenge.nonce)});
    by_rank_[static_cast<size_t>(g.rank)] = &guest;
    if (!guest.stream.send(welcome, os::now_ns() + kSayNs)) fail_gone(guest);
  }

  // By rank; nullptr for those who have not come.
  std::vector<const Greeting*> here() const {
    std::vector<const Greeting*> out(by_rank_.size(), nullptr);
    out[0] = &own_;
    for (size_t q = 1; q < out.size(); ++q)
      if (by_rank_[q]) out[q] = &by_rank_[q]->greeting;
    return out;
  }

  HostTable make_table() const {
    HostTable table;
    table.port = meeting_.port;
    os::random_bytes(table.job.bytes, sizeof table.job.bytes);
    std::vector<std::string> identities;
    for (int32_t q = 0; q < meeting_.world_size; ++q) {
      const Greeting& g = q == 0 ? own_ : by_rank_[static_cast<size_t>(q)]->greeting;
      const std::string identity = read_text(g.identity);
      const auto place = std::ranges::find(identities, identity);
      table.host_of.push_back(static_cast<int32_t>(place - identities.begin()));
      if (place != identities.end()) continue;
      identities.push_back(identity);
      table.names.push_back(read_text(g.host));
      table.addresses.push_back(q == 0 ? (address_.empty() ? meeting_.place.host : address_)
                                       : by_rank_[static_cast<size_t>(q)]->stream.peer_address());
    }
    return table;
  }

  void send_table(Guest& guest, const HostTable& table) const {
    Word word;
    word.say = Say::table;
    word.hosts = static_cast<uint32_t>(table.names.size());
    word.port = table.port;
    std::memcpy(word.job, table.job.bytes, sizeof word.job);
    std::vector<HostEntry> hosts(table.names.size());
    for (size_t h = 0; h < hosts.size(); ++h) {
      write_text(hosts[h].name, table.names[h]);
      write_text(hosts[h].address, table.addresses[h]);
    }
    if (!guest.stream.send(word, meeting_.deadline_ns) ||
        !guest.stream.send(table.host_of.data(), table.host_of.size() * sizeof table.host_of[0],
                           meeting_.deadline_ns) ||
        !guest.stream.send(hosts.data(), hosts.size() * sizeof hosts[0], meeting_.deadline_ns))
      fail_gone(guest);
  }

  [[noreturn]] static void fail_gone(const Guest& guest) {
    throw Error(GSEL_ERR_PEER, fmt::format("rank {} on {} died or gave up while the ranks joined", guest.greeting.rank,
                                           seat_of(guest.greeting)))
        .about_rank(guest.greeting.rank);
  }

  const Meeting& meeting_;
  std::unique_ptr<Board> board_;
  const Secret secret_;
  Greeting own_;
  std::optional<Listener> listener_;
  std::string address_;                       // one that was posted
  std::list<std::unique_ptr<Guest>> guests_;  // in order of arrival
  std::vector<Guest*> by_rank_;
  std::string stranger_;        // the last that showed another token
  std::optional<Word> failed_;  // what all are told from now on
};

}  // namespace

Met meet_as_root(const Meeting& meeting, std::unique_ptr<Board> board) {
  return Root(meeting, std::move(board)).run();
}

}  // namespace gsel::hosts
