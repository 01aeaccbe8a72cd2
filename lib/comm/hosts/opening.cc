// comm/hosts/opening.cc: see opening.h.
#include "comm/hosts/opening.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kLookWhoNs = 1'000'000'000;
constexpr int64_t kReasonNs = 2'000'000'000;  // time for which a reason stays posted

bool is_rank_0_there(const MeetingPlace& place) {
  const int64_t end = os::now_ns() + kLookWhoNs;
  std::string why;
  Challenge challenge;
  auto stream = connect_to(place, end, &why);
  return stream && stream->await(challenge, end) == Stream::Came::all &&
         (challenge.magic == kMagic || challenge.magic == __builtin_bswap64(kMagic));
}

Opening open_at_place(const Meeting& meeting) {
  auto listener = Listener::at(meeting.place, meeting.deadline_ns);
  if (listener) return {std::move(*listener), {}};
  fail(GSEL_ERR_IO, "rank 0 cannot listen at {}: {}", meeting.place.text,
       is_rank_0_there(meeting.place)
           ? "a rank 0 waits there already; give each job a port of its own, and no two processes rank 0"
           : "the port is in use; choose another one, the same on every rank");
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
  address_store.post(own, meeting.deadline_ns);
  return {std::move(*listener), own.addresses.front()};
}

}  // namespace

Opening open_meeting(const Meeting& meeting, AddressStore* address_store, const Secret& secret) {
  try {
    return address_store ? open_and_post(meeting, *address_store, secret) : open_at_place(meeting);
  } catch (const Error& e) {
    throw Error(e).about_rank(0);
  }
}

}  // namespace gsel::hosts
