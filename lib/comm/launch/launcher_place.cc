// comm/launch/launcher_place.cc: where ranks on several hosts meet, according to the launcher; see launcher.h.
// Sources: torch/distributed/elastic/agent/server/api.py (TORCHELASTIC_USE_AGENT_STORE); Slurm's srun(1); Kubernetes,
// "Job with Pod-to-Pod Communication"; MPICH's PMI-1, whose process manager has a key-value store.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/os.h"
#include "base/resolve.h"
#include "comm/launch/launcher.h"
#include "comm/launch/pmix.h"

namespace gsel {
namespace {

constexpr const char* kKubernetesPort = "29500";  // each pod has its own
constexpr int64_t kOwnNameNs = 10'000'000'000;    // for the resolver, which has a pod's own name in a file
constexpr uint32_t kFirstPort = 20000, kPorts = 12000;

// The first host of a Slurm list. "node[03-07,9]" and "node03": node03; "rack[1-2]n[4,5]": rack1n4.
std::string first_of_list(std::string_view list) {
  std::string out;
  while (!list.empty() && list.front() != ',') {
    if (list.front() != '[') {
      out += list.front();
      list.remove_prefix(1);
      continue;
    }
    const size_t end = std::min(list.find(']'), list.size() - 1);
    const std::string_view inside = list.substr(1, end - 1);
    out += inside.substr(0, inside.find_first_of("-,"));
    list.remove_prefix(end + 1);
  }
  return out;
}

// A hash: the same on every rank, and rarely that of another job.
uint32_t port_of(const std::string& job) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return kFirstPort + hash % kPorts;
}

std::string tcp(const std::string& host, const std::string& port, const char* scheme = "tcp") {
  return host.find(':') == host.npos ? fmt::format("{}://{}:{}", scheme, host, port)
                                     : fmt::format("{}://[{}]:{}", scheme, host, port);
}

// This host's fully qualified name, if known: "job-3.workers.default.svc.cluster.local".
std::string full_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const Resolved found = resolve(name, {}, AI_CANONNAME, os::now_ns() + kOwnNameNs);
  return found.list && found.list->ai_canonname ? found.list->ai_canonname : name;
}

// The host names of an indexed Job's pods end with their index, and its headless service resolves these names.
std::string pod_of_rank_0(const World& world) {
  const std::string own = full_name();
  const size_t end = std::min(own.find('.'), own.size());
  const std::string suffix = fmt::format("-{}", world.rank);
  if (!std::string_view(own).substr(0, end).ends_with(suffix))
    throw about_variable("MASTER_ADDR",
                         fmt::format("{}={} is in the environment and the host is called {}, which does not end with "
                                     "that index, so that nothing tells where rank 0 is; set MASTER_ADDR",
                                     world.convention->rank, world.rank, own));
  return own.substr(0, end - suffix.size()) + "-0" + own.substr(end);
}

[[noreturn]] void refuse(const World& world) {
  const auto several = why_several_hosts(world);
  throw about_variable("GSEL_RENDEZVOUS",
                       fmt::format("{}, and the launcher does not tell where rank 0 is; set GSEL_RENDEZVOUS alike on "
                                   "every rank (mpirun -x GSEL_RENDEZVOUS): tcp://HOST:PORT, an address of rank 0's "
                                   "host, or file://PATH in a folder that all hosts see",
                                   several ? *several : "ranks are to meet at env://"));
}

}  // namespace

LaunchPlace place_of_launcher(const World& world) {
  const char *address = variable("MASTER_ADDR"), *port = variable("MASTER_PORT");
  const std::string_view rank = world.convention ? world.convention->rank : "";
  if (rank == "RANK" && address && port) {
    const char* store = variable("TORCHELASTIC_USE_AGENT_STORE");
    const bool agent_listens = store && (std::strcmp(store, "True") == 0 || std::strcmp(store, "1") == 0);
    return {tcp(address, port, agent_listens ? "torchrun" : "tcp"), "MASTER_ADDR and MASTER_PORT"};
  }
  if ((rank == "PMIX_RANK" || rank == "OMPI_COMM_WORLD_RANK") && pmix::is_there())
    return {fmt::format("pmix://{}", variable("PMIX_NAMESPACE")), "PMIX_NAMESPACE"};
  if (rank == "PMI_RANK" && variable("PMI_FD"))
    return {fmt::format("pmi://{}", number_of_variable("PMI_FD", 0)), "PMI_FD"};
  if (rank == "SLURM_PROCID" && variable("SLURM_STEP_NODELIST"))
    return {
        tcp(first_of_list(variable("SLURM_STEP_NODELIST")), std::to_string(port_of(job_variables(*world.convention)))),
        "SLURM_STEP_NODELIST"};
  if (rank == "JOB_COMPLETION_INDEX")
    return {tcp(address ? address : pod_of_rank_0(world), port ? port : kKubernetesPort),
            address ? "MASTER_ADDR" : "JOB_COMPLETION_INDEX"};
  refuse(world);
}

}  // namespace gsel
