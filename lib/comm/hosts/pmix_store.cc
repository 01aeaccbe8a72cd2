// comm/hosts/pmix_store.cc: an address store in the key-value store of a process manager with PMIx; all ranks pass a
// fence between put and get.
#include <atomic>

#include "base/error.h"
#include "comm/hosts/address_store.h"
#include "comm/launch/pmix.h"

namespace gsel::hosts {
namespace {

class PmixStore : public AddressStore {
 public:
  bool asks_all() const override { return true; }

  void post(const Endpoint& endpoint, int64_t deadline_ns) override {
    pmix::put(key_, endpoint_text(endpoint));
    pmix::fence(deadline_ns);
  }

  std::vector<Endpoint> read(int64_t deadline_ns, std::string*) override {
    if (came_) return {*came_};
    pmix::fence(deadline_ns);
    came_ = parse_endpoint(pmix::get(0, key_));
    if (!came_) fail(GSEL_ERR_VERSION, "the entry of rank 0 in the process manager is from another version of gsel");
    return {*came_};
  }

 private:
  // A key can be put once.
  static std::string next_key() {
    static std::atomic<int> count{0};
    return fmt::format("gsel-meet-{}", count++);
  }

  const std::string key_ = next_key();
  std::optional<Endpoint> came_;
};

}  // namespace

std::unique_ptr<AddressStore> pmix_store() {
  return std::make_unique<PmixStore>();
}

}  // namespace gsel::hosts
