// comm/hosts/listening_id.cc: see listening_id.h, and the address store of such ids. Ranks that connect before rank 0
// joins wait in the listener's queue.
#include "comm/hosts/listening_id.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <list>
#include <mutex>

#include "base/error.h"
#include "comm/hosts/address_store.h"
#include "comm/launch/unique_id.h"

namespace gsel::hosts {
namespace {

struct Listening {
  std::vector<uint8_t> id;
  Listener listener;
  pid_t pid;
};

struct AllListening {
  std::mutex mutex;
  std::list<Listening> list;
};

AllListening& all_listening() {
  static auto* const all = new AllListening;  // lives as long as the process
  return *all;
}

std::vector<uint8_t> bytes_of_id(const gsel_unique_id& id) {
  return {std::begin(id.bytes), std::end(id.bytes)};
}

AddressInId address_of_secret(const Secret& secret) {
  gsel_unique_id id;
  std::ranges::copy_n(secret.key().begin(), sizeof id.bytes, id.bytes);
  return address_of(id).value();
}

class IdStore : public AddressStore {
 public:
  explicit IdStore(const AddressInId& in_id) {
    endpoint_.host = in_id.addresses.front();
    endpoint_.pid = in_id.pid;
    endpoint_.port = in_id.port;
    endpoint_.until_s = std::numeric_limits<int64_t>::max();
    endpoint_.addresses = in_id.addresses;
  }
  void post(const Endpoint&, int64_t) override {}  // the id was passed on by the caller
  std::vector<Endpoint> read(int64_t, std::string*) override { return {endpoint_}; }

 private:
  Endpoint endpoint_;
};

}  // namespace

gsel_unique_id listen_for_id() {
  AddressInId address{.port = 0, .pid = getpid(), .addresses = own_addresses()};
  Listener listener = Listener::at_any_port();
  address.port = listener.port();
  const gsel_unique_id id = id_with(address);
  const std::lock_guard lock(all_listening().mutex);
  all_listening().list.push_back({bytes_of_id(id), std::move(listener), getpid()});
  return id;
}

Listener take_listener(const Secret& id) {
  const std::lock_guard lock(all_listening().mutex);
  auto& list = all_listening().list;
  const auto own = std::ranges::find(list, id.key(), &Listening::id);
  if (own == list.end() || own->pid != getpid())
    throw Error(GSEL_ERR_ARG, fmt::format("rank 0 joins in process {} with an id by which process {} on the host of {} "
                                          "listens{}; gsel_unique_id_listen is called by rank 0, once for each "
                                          "communicator",
                                          getpid(), address_of_secret(id).pid, address_of_secret(id).addresses.front(),
                                          own == list.end() ? ", or has joined with before" : ""))
        .about_rank(0);
  Listener listener = std::move(own->listener);
  list.erase(own);
  return listener;
}

std::unique_ptr<AddressStore> id_store(const Secret& id) {
  return std::make_unique<IdStore>(address_of_secret(id));
}

}  // namespace gsel::hosts
