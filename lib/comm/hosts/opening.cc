// comm/hosts/opening.cc: see opening.h.
#include "comm/hosts/opening.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "comm/hosts/listening_id.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

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
  if (!stream || stream->await(challenge, end) != Stream::Came::all) return other;
  other.is_there = challenge.magic == kMagic || challenge.magic == __builtin_bswap64(kMagic);
  if (challenge.magic != kMagic || challenge.protocol != kMeetingProtocol) return other;
  SignedGreeting own;
  own.greeting = own_greeting(meeting);
  os::random_bytes(&own.greeting.nonce, sizeof own.greeting.nonce);
  own.signature = secret.sign({kByJoiner, bytes_of(challenge.nonce), bytes_of(own.greeting)});
  Word word;
  if (stream->send(own, end) && stream->await(word, end) == Stream::Came::all &&
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

}  // namespace

Opening open_meeting(const Meeting& meeting, AddressStore* address_store, const Secret& secret) {
  try {
    if (meeting.place.kind == MeetingPlace::Kind::id) return open_of_id(meeting, *address_store, secret);
    return address_store ? open_and_post(meeting, *address_store, secret) : open_at_place(meeting, secret);
  } catch (const Error& e) {
    throw Error(e).about_rank(0);
  }
}

}  // namespace gsel::hosts
