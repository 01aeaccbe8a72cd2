// comm/launch/launcher.cc: see launcher.h.
#include "comm/launch/launcher.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/os.h"
#include "base/resolve.h"
#include "base/text.h"
#include "comm/launch/pmi.h"
#include "comm/launch/pmix.h"

namespace gsel {
namespace {

constexpr Convention kConventions[] = {
    {"RANK",
     "WORLD_SIZE",
     {"LOCAL_WORLD_SIZE"},
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
     "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}, {"PMIX_NAMESPACE"}, "MPI_LOCALRANKID"},
    {"SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     {},
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
     "SLURM_LOCALID"},
    // Kubernetes; the Job's description must set WORLD_SIZE.
    {"JOB_COMPLETION_INDEX", "WORLD_SIZE", {}, {"MASTER_ADDR", "MASTER_PORT"}, nullptr},
};
// No job identity: another job may use the same address and port, and each torchrun agent counts its own restarts.
constexpr std::string_view kNotOfJob[] = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"};
// The process manager gives the world size and the number of ranks on this host.
constexpr Convention kPmix = {"PMIX_RANK", "the size that the process manager tells", {}, {"PMIX_NAMESPACE"}, nullptr};
const Convention &kTorch = kConventions[0], &kOpenMpi = kConventions[1], &kPmi = kConventions[2],
                 &kSlurm = kConventions[3], &kKubernetes = kConventions[4];

// torchrun calls a job without --rdzv_id "none".
bool names_no_job(std::string_view name) {
  return std::ranges::count(kNotOfJob, name) != 0 ||
         (name == "TORCHELASTIC_RUN_ID" && std::strcmp(variable("TORCHELASTIC_RUN_ID"), "none") == 0);
}

// Whether a set of variables counts as absent. Of Kubernetes one variable is not enough: the tasks of a Job may be
// unrelated.
bool is_absent(const Convention& c) {
  if (&c == &kKubernetes) return !variable(c.rank) || !variable(c.size);
  return !variable(c.rank) && !variable(c.size);
}

// The shell of a batch script or of salloc has Slurm variables but is no rank.
std::optional<Error> shell_of_slurm() {
  if (variable(kSlurm.size) || !variable("SLURM_NTASKS") || number_of_variable("SLURM_NTASKS", 1) == 1) return {};
  return about_variable(kSlurm.size, fmt::format("SLURM_NTASKS={} is in the environment but {} is not: the shell of "
                                                 "sbatch or salloc is no rank; start every rank with srun or mpirun, "
                                                 "or unset SLURM_NTASKS",
                                                 variable("SLURM_NTASKS"), kSlurm.size));
}

// The error for an incomplete set of variables; nullopt if it is complete or absent.
std::optional<Error> incomplete(const Convention& c, bool need_job) {
  if (&c == &kSlurm && !variable(c.size)) return shell_of_slurm();
  if (is_absent(c)) return {};
  const char *rank = variable(c.rank), *size = variable(c.size);
  if (!rank && number_of_variable(c.size, 1) == 1) return {};
  if (!rank || !size) {
    const char *there = rank ? c.rank : c.size, *missing = rank ? c.size : c.rank;
    return about_variable(missing,
                          fmt::format("{}={} is in the environment but {} is not; start every rank with one launcher "
                                      "(gsel run, torchrun, mpirun, srun), or unset {}",
                                      there, rank ? rank : size, missing, there));
  }
  if (&c != &kTorch || !need_job || variable("GSEL_JOB") || number_of_variable(c.size, 1) == 1) return {};
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
    if (!variable(name))
      return about_variable(name,
                            fmt::format("RANK={} and WORLD_SIZE={} are in the environment but {} is not; start with "
                                        "gsel run or torchrun, or set {} alike on every rank",
                                        rank, size, name, name));
  return {};
}

// An MPI that does not support the launcher makes n worlds of one rank.
void check_others(const World& world) {
  if (world.size > 1 || (world.convention != &kOpenMpi && world.convention != &kPmi)) return;
  for (const Convention* other : {&kPmi, &kSlurm}) {
    if (other == world.convention || !variable(other->rank) || !variable(other->size)) continue;
    const int32_t started = number_of_variable(other->size, 1);
    if (started > 1)
      throw about_variable(
          world.convention->size,
          fmt::format("{}={} and {}={} are in the environment: the MPI does not understand the launcher, which started "
                      "{}, and made each of them a world of its own; start them by the MPI's own mpirun, or by srun "
                      "with the --mpi that the MPI was built for (srun --mpi=list)",
                      world.convention->size, world.size, other->size, started, with_noun(started, "rank")));
  }
}

}  // namespace

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

Error about_variable(const char* name, std::string message) {
  return Error(GSEL_ERR_CONFIG, std::move(message)).at(Place{.file = "", .token = name});
}

int32_t number_of_variable(const char* name, int32_t least) {
  const char* text = variable(name);
  const char* end = text + std::strlen(text);
  int32_t value = 0;
  const auto parsed = std::from_chars(text, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least)
    throw about_variable(name, fmt::format("{} is \"{}\" in the environment; expected a whole number of at least {}",
                                           name, text, least));
  return value;
}

World world_of_environment(bool need_job) {
  std::optional<Error> first_problem;
  for (const Convention& c : kConventions) {
    if (auto problem = incomplete(c, need_job)) {
      if (!first_problem) first_problem = std::move(problem);
      continue;
    }
    if (!variable(c.rank) || !variable(c.size)) continue;
    const World world{&c, number_of_variable(c.rank, 0), number_of_variable(c.size, 1)};
    if (world.rank >= world.size)
      throw about_variable(
          c.rank, fmt::format("{}={} and {}={} are in the environment; the rank must be below the size", c.rank,
                              world.rank, c.size, world.size));
    check_others(world);
    return world;
  }
  if (first_problem) throw *first_problem;
  if (pmix::is_there()) return {&kPmix, number_of_variable(kPmix.rank, 0), pmix::ranks()};
  return {};
}

std::optional<std::string> why_no_world() {
  for (const Convention& c : kConventions)
    if (variable(c.size) && number_of_variable(c.size, 1) == 1) return {};
  if (variable("SLURM_NTASKS") && number_of_variable("SLURM_NTASKS", 1) == 1) return {};
  if (const char* index = variable(kKubernetes.rank))
    return fmt::format("{}={} is in the environment but {} is not; set {} in the description of the Job",
                       kKubernetes.rank, index, kKubernetes.size, kKubernetes.size);
  return "neither a rank nor a world size is given; start every rank with gsel run, torchrun, mpirun or srun, or set "
         "RANK and WORLD_SIZE, or gsel_comm_options.rank and world_size";
}

std::string job_variables(const Convention& convention) {
  std::string text;
  for (const char* name : convention.job)
    if (name && variable(name)) text += fmt::format("{}={}\n", name, variable(name));
  return text;
}

std::string job_identity() {
  const auto of = [](const Convention& c) {
    if (&c == &kPmi)
      if (const std::string name = pmi::job_name(); !name.empty()) return "PMI=" + name;
    std::string text;
    for (const char* name : c.job)
      if (name && variable(name) && !names_no_job(name))
        text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, variable(name));
    return text;
  };
  std::string text;
  for (const Convention& c : kConventions)
    if (text.empty() && variable(c.rank)) text = of(c);
  return text.empty() && pmix::is_there() ? of(kPmix) : text;
}

std::string job_variables() {
  std::string text;
  for (const Convention& c : kConventions)
    if (text.empty() && variable(c.rank)) text = job_variables(c);
  if (text.empty() && pmix::is_there()) text = job_variables(kPmix);
  return text;
}

const char* rank_of_torchrun() {
  return variable(kTorch.rank);
}

std::optional<std::string> why_several_hosts(const World& world) {
  if (world.size == 1 || !world.convention) return {};
  for (const char* name : world.convention->local) {
    if (!name || !variable(name)) continue;
    const int32_t here = number_of_variable(name, 1);
    if (here >= world.size) return {};
    return fmt::format("{}={} of {}={} are on this host", name, here, world.convention->size,
                       with_noun(world.size, "rank"));
  }
  if (world.convention == &kKubernetes) return "each index of the Job is a host of its own";
  if (world.convention == &kPmix) {
    const int32_t here = pmix::ranks_here();
    if (here >= world.size) return {};
    return fmt::format("{} of {} are on this host", here, with_noun(world.size, "rank"));
  }
  // Also for ranks that srun starts with PMI.
  const char* nodes = "SLURM_STEP_NUM_NODES";
  if (world.convention == &kTorch || !variable(kSlurm.rank) || !variable(nodes)) return {};
  if (number_of_variable(nodes, 1) == 1) return {};
  return fmt::format("{}={}: the {} are on several hosts", nodes, variable(nodes), with_noun(world.size, "rank"));
}

bool is_on_one_host(const World& world) {
  if (world.size == 1) return true;
  if (!world.convention || why_several_hosts(world)) return false;
  if (world.convention == &kPmix) return true;
  for (const char* name : world.convention->local)
    if (name && variable(name)) return true;
  return world.convention == &kSlurm && variable("SLURM_STEP_NUM_NODES");
}

// ---- where ranks on several hosts meet ------------------------------------------------------------------------------
// Sources: torch/distributed/elastic/agent/server/api.py (TORCHELASTIC_USE_AGENT_STORE); Slurm's srun(1); Kubernetes,
// "Job with Pod-to-Pod Communication"; MPICH's PMI-1, whose process manager has a key-value store.

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

// ---- which MPI the launcher can start in this process ---------------------------------------------------------------
// Open MPI finds its ranks by PMIx, MPICH by PMI-1 over a socket that its process inherits.

namespace {

constexpr const char *kTransportOfOpenMpi = "mpi_openmpi", *kTransportOfMpich = "mpi_mpich";

// Whether this process is the one that srun has started. torchrun and gsel run start several under one task, which
// inherit its variables, so that two of them are the same rank of MPI.
bool is_its_own_task(const char* size) {
  if (variable("TORCHELASTIC_RUN_ID") || variable("GSEL_JOB")) return false;
  return !variable("WORLD_SIZE") || !variable(size) ||
         number_of_variable("WORLD_SIZE", 1) == number_of_variable(size, 1);
}

// A launcher between may have closed the descriptor.
bool has_pmi_socket() {
  if (!variable("PMI_RANK") || !variable("PMI_FD")) return false;
  int family = 0;
  socklen_t length = sizeof family;
  return getsockopt(number_of_variable("PMI_FD", 0), SOL_SOCKET, SO_DOMAIN, &family, &length) == 0 && family == AF_UNIX;
}

}  // namespace

const char* mpi_of_launcher(bool is_asked_for) {
  if (variable("OMPI_COMM_WORLD_SIZE")) return kTransportOfOpenMpi;
  if (variable("MPI_LOCALNRANKS")) return kTransportOfMpich;
  const bool is_of_slurm = variable("SLURM_PROCID") && variable("SLURM_STEP_NUM_TASKS");
  if (pmix::is_there() && (is_asked_for || is_of_slurm) && is_its_own_task("SLURM_STEP_NUM_TASKS"))
    return kTransportOfOpenMpi;
  return has_pmi_socket() && !pmi::is_taken_from_mpi() && is_its_own_task("PMI_SIZE") ? kTransportOfMpich : nullptr;
}

}  // namespace gsel
