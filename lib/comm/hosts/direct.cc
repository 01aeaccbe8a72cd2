// comm/hosts/direct.cc: allreduces in which each rank sends every lane directly to the rank of that lane on each other
// host, and nothing comes back. So hosts wait for the network once, while the chain waits for each host in both
// directions; but more bytes are sent. Each host reduces every lane itself, in the order that is asked for.
#include "comm/hosts/lanes.h"

namespace gsel::hosts {

class Direct : Lanes {
 public:
  Direct(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors)
      : Lanes(backend, call, plan, factors, true) {}

  void run() {
    take_room(roster_.ranks() * lane_bytes_, 0);
    gather_from_all();
    std::vector<const void*> inputs;
    for (size_t q = 0; q < roster_.ranks(); ++q) inputs.push_back(inputs_ + q * lane_bytes_);
    const uint64_t begin = whole(own_).begin;
    inputs[static_cast<size_t>(roster_.rank())] = call_.send + begin;
    host::reduce(fold_of(factors_), call_.recv + begin, inputs.data(), static_cast<int>(inputs.size()),
                 lane_bytes_ / call_.element);
    spread();
  }
};

void HostsBackend::reduce_direct(const Call& call, const Plan& plan, const double* factors) {
  Direct(*this, call, plan, factors).run();
}

}  // namespace gsel::hosts
