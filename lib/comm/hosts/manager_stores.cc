// comm/hosts/manager_stores.cc: address stores in the key-value store of a process manager: with PMI-1
// (comm/launch/pmi.h), where values can be read after a barrier of all ranks, and with PMIx, where all ranks pass a
// fence between put and get.
#include <atomic>

#include "base/error.h"
#include "comm/hosts/address_store.h"
#include "comm/launch/pmi.h"
#include "comm/launch/pmix.h"

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
    if (endpoint_) return {*endpoint_};
    const std::string space = manager_.begin(deadline_ns);
    manager_.ask("cmd=barrier_in", "barrier_out", deadline_ns);
    const std::string answer =
        manager_.ask(fmt::format("cmd=get kvsname={} key={}", space, key_), "get_result", deadline_ns);
    endpoint_ = parse_endpoint(pmi::value_of(answer, "value"));
    if (!endpoint_)
      fail(GSEL_ERR_VERSION, "the entry of rank 0 in {} is from another version of gsel", manager_.name());
    return {*endpoint_};
  }

 private:
  // A key can be put once.
  static std::string next_key() {
    static std::atomic<int> count{0};
    return fmt::format("gsel-meet-{}", count++);
  }

  const pmi::Manager manager_;
  const std::string key_;
  std::optional<Endpoint> endpoint_;
};

}  // namespace

std::unique_ptr<AddressStore> pmi_store(const MeetingPlace& place) {
  return std::make_unique<PmiStore>(place);
}

namespace {

class PmixStore : public AddressStore {
 public:
  bool asks_all() const override { return true; }

  void post(const Endpoint& endpoint, int64_t deadline_ns) override {
    pmix::put(key_, endpoint_text(endpoint));
    pmix::fence(deadline_ns);
  }

  std::vector<Endpoint> read(int64_t deadline_ns, std::string*) override {
    if (endpoint_) return {*endpoint_};
    pmix::fence(deadline_ns);
    endpoint_ = parse_endpoint(pmix::get(0, key_));
    if (!endpoint_)
      fail(GSEL_ERR_VERSION, "the entry of rank 0 in the process manager is from another version of gsel");
    return {*endpoint_};
  }

 private:
  // A key can be put once.
  static std::string next_key() {
    static std::atomic<int> count{0};
    return fmt::format("gsel-meet-{}", count++);
  }

  const std::string key_ = next_key();
  std::optional<Endpoint> endpoint_;
};

}  // namespace

std::unique_ptr<AddressStore> pmix_store() {
  return std::make_unique<PmixStore>();
}

}  // namespace gsel::hosts
