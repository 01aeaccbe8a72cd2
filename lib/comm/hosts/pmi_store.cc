// comm/hosts/pmi_store.cc: an address store in the key-value store of a process manager with PMI-1 (comm/launch/pmi.h).
// Values can be read after a barrier of all ranks.
#include <atomic>

#include "base/error.h"
#include "comm/hosts/address_store.h"
#include "comm/launch/pmi.h"

namespace gsel::hosts {
namespace {

class PmiStore : public AddressStore {
 public:
  explicit PmiStore(const MeetingPlace& place) : manager_(place.fd, place.text), key_(next_key()) {}

  bool asks_all() const override { return true; }

  void post(const Endpoint& endpoint, int64_t deadline_ns) override {
    const std::string space = manager_.begin(deadline_ns);
    manager_.ask(fmt::format("cmd=put kvsname={} key={} value={}", space, key_, endpoint_text(endpoint)), "put_result",
                 deadline_ns);
    manager_.ask("cmd=barrier_in", "barrier_out", deadline_ns);
  }

  std::vector<Endpoint> read(int64_t deadline_ns, std::string*) override {
    if (came_) return {*came_};
    const std::string space = manager_.begin(deadline_ns);
    manager_.ask("cmd=barrier_in", "barrier_out", deadline_ns);
    const std::string said =
        manager_.ask(fmt::format("cmd=get kvsname={} key={}", space, key_), "get_result", deadline_ns);
    came_ = parse_endpoint(pmi::value_of(said, "value"));
    if (!came_) fail(GSEL_ERR_VERSION, "the entry of rank 0 in {} is from another version of gsel", manager_.name());
    return {*came_};
  }

 private:
  // A key can be put once.
  static std::string next_key() {
    static std::atomic<int> count{0};
    return fmt::format("gsel-meet-{}", count++);
  }

  const pmi::Manager manager_;
  const std::string key_;
  std::optional<Endpoint> came_;
};

}  // namespace

std::unique_ptr<AddressStore> pmi_store(const MeetingPlace& place) {
  return std::make_unique<PmiStore>(place);
}

}  // namespace gsel::hosts
