// comm/environment.cc: what launchers tell a rank through its environment. The first complete set of variables counts.
// A set that is begun but incomplete, or a value that is no number, is an error. It never means a communicator of one
// rank, since half of a launched job must not train half a model. Does not know how ranks then communicate.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "base/printable.h"
#include "base/text.h"
#include "comm/communicator.h"

namespace gsel {
namespace {

struct Convention {
  const char* rank;
  const char* size;
  const char* local[3];    // number of ranks on this host, where the launcher tells
  const char* job[4];      // what the ranks of one launch share
  const char* local_rank;  // this rank's number on this host
};

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
    {"SLURM_PROCID", "SLURM_NTASKS", {}, {"SLURM_JOB_ID", "SLURM_STEP_ID"}, "SLURM_LOCALID"},
};
const Convention& kTorch = kConventions[0];

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

// Whoever starts a program that has more rights than he has must not say where it writes.
const char* trace_folder() {
  const char* folder = secure_getenv("GSEL_TRACE");
  return folder && *folder ? folder : nullptr;
}

Error about(const char* name, std::string message) {
  return Error(GSEL_ERR_CONFIG, std::move(message)).at(Place{.file = "", .token = name});
}

int32_t number(const char* name, int32_t least) {
  const char* text = variable(name);
  const char* end = text + std::strlen(text);
  int32_t value = 0;
  const auto parsed = std::from_chars(text, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least)
    throw about(name, fmt::format("{} is \"{}\" in the environment; expected a whole number of at least {}", name, text,
                                  least));
  return value;
}

struct World {
  const Convention* convention = nullptr;
  int32_t rank = 0;
  int32_t size = 1;
};

// Why a set cannot be used although part of it is there; nullopt when it is complete or absent.
std::optional<Error> incomplete(const Convention& c, bool need_job) {
  const char *rank = variable(c.rank), *size = variable(c.size);
  if (!rank && !size) return {};
  if (!rank && number(c.size, 1) == 1) return {};
  if (!rank || !size) {
    const char *there = rank ? c.rank : c.size, *missing = rank ? c.size : c.rank;
    return about(missing, fmt::format("{}={} is in the environment but {} is not; start every rank with one launcher "
                                      "(gsel run, torchrun, mpirun, srun), or unset {}",
                                      there, rank ? rank : size, missing, there));
  }
  if (&c != &kTorch || !need_job || variable("GSEL_JOB") || number(c.size, 1) == 1) return {};
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
    if (!variable(name))
      return about(name, fmt::format("RANK={} and WORLD_SIZE={} are in the environment but {} is not; start with gsel "
                                     "run or torchrun, or set {} alike on every rank",
                                     rank, size, name, name));
  return {};
}

void check_one_host(const World& world) {
  for (const char* name : world.convention->local) {
    if (!name || !variable(name)) continue;
    const int32_t here = number(name, 1);
    if (here < world.size)
      throw about(name, fmt::format("{}={} of {}={} are on this host; shared memory joins ranks of one host only", name,
                                    here, world.convention->size, with_noun(world.size, "rank")));
  }
  if (std::string_view(world.convention->rank) != "SLURM_PROCID") return;
  const char* name = variable("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  if (variable(name) && number(name, 1) > 1 && world.size > 1)
    throw about(name, fmt::format("{}={}: the ranks are on several hosts; shared memory joins ranks of one host only",
                                  name, variable(name)));
}

// Where the ranks of several hosts meet, as the environment says.
gsel_str rendezvous_of_environment() {
  const char* place = variable("GSEL_RENDEZVOUS");
  return place ? gsel_str{place, std::strlen(place)} : gsel_str{};
}

World world_of_environment(bool need_job) {
  std::optional<Error> first_problem;
  for (const Convention& c : kConventions) {
    if (auto problem = incomplete(c, need_job)) {
      if (!first_problem) first_problem = std::move(problem);
      continue;
    }
    if (!variable(c.rank) || !variable(c.size)) continue;
    const World world{&c, number(c.rank, 0), number(c.size, 1)};
    if (world.rank >= world.size)
      throw about(c.rank, fmt::format("{}={} and {}={} are in the environment; the rank must be below the size", c.rank,
                                      world.rank, c.size, world.size));
    if (!given(rendezvous_of_environment())) check_one_host(world);
    return world;
  }
  if (first_problem) throw *first_problem;
  return {};
}

void check_job_token(const char* token) {
  const std::string_view text = token;
  const bool hex = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (text.size() != 32 || !hex)
    throw about("GSEL_JOB", fmt::format("GSEL_JOB is \"{}\" in the environment; expected the 32 hexadecimal digits "
                                        "that gsel run sets",
                                        text.substr(0, 64)));
}

std::string variables_as_text(const Convention& c) {
  std::string text;
  for (const char* name : c.job)
    if (name && variable(name)) text += fmt::format("{}={}\n", name, variable(name));
  return text;
}

// What the ranks of this launch have in common and no other launch of this host has.
std::string job_text(const Convention* convention) {
  if (const char* token = variable("GSEL_JOB")) {
    check_job_token(token);
    return token;
  }
  std::string text;
  if (convention) {
    text = variables_as_text(*convention);
    return text.empty() ? fmt::format("{} under process {}", convention->rank, getppid()) : text;
  }
  for (const Convention& c : kConventions)
    if (text.empty() && variable(c.rank)) text = variables_as_text(c);
  if (text.empty())
    fail(GSEL_ERR_CONFIG,
         "world_size is given but neither an id nor a launcher's variables in the environment; pass one id made by "
         "gsel_unique_id_create to every rank");
  return text;
}

// Spreads text over the bytes of an id: 64-bit FNV-1a per word, finished as splitmix64 does.
gsel_unique_id id_of(const std::string& text) {
  gsel_unique_id id{};
  for (uint64_t word = 0; word < sizeof id.bytes / sizeof word; ++word) {
    uint64_t hash = 14695981039346656037u ^ (word * 0x9e3779b97f4a7c15u);
    for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
    std::memcpy(id.bytes + word * sizeof word, &hash, sizeof hash);
  }
  return id;
}

// Those that make nothing fail; by one rank, since all have the same.
void check_variables() {
  check_log_variable();
  const char* folder = trace_folder();
  if (folder && access((std::string(folder) + "/.").c_str(), W_OK | X_OK) != 0)
    warn_about_variable("GSEL_TRACE", folder,
                        fmt::format("failures cannot be recorded there: {}; a folder that can be written to would do",
                                    errno_text(errno)));
}

gsel_str checked_name(gsel_str name) {
  const std::string_view text = view(name);
  if (text.size() > kMostNameBytes || !std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; }))
    fail(GSEL_ERR_ARG, "gsel_comm_options.name is {}, {} bytes; use at most {} of printable ASCII and no blank",
         in_quotes(text), text.size(), kMostNameBytes);
  return {text.data(), text.size()};
}

}  // namespace

std::string job_of_launcher(const JoinOptions& join) {
  if (!variable("GSEL_JOB") || !variable(kTorch.rank)) return {};
  return variable(kTorch.rank) == std::to_string(join.rank) ? variable("GSEL_JOB") : std::string();
}

OwnDevice own_device(const gsel_comm_options& options) {
  OwnDevice own;
  own.uuid = view(options.device);
  if (options.world_size != 0) return own;
  if (const char* device = variable("GSEL_DEVICE"); device && own.uuid.empty()) own.uuid = device;
  const World world = world_of_environment(!options.id && !given(options.rendezvous) && !variable("GSEL_RENDEZVOUS"));
  const char* name = world.convention ? world.convention->local_rank : nullptr;
  if (name && variable(name)) own.local_rank = number(name, 0);
  return own;
}

JoinOptions complete_join(const gsel_comm_options& options) {
  JoinOptions join{};
  join.timeout_s = options.timeout_s;
  join.join_timeout_s = options.join_timeout_s;
  join.order = options.order;
  check_flags(options.flags,
              GSEL_COMM_NO_THREAD | GSEL_COMM_BITWISE | GSEL_COMM_NOT_THROUGH_HOST | GSEL_COMM_THREAD_MULTIPLE,
              "gsel_comm_options.flags");
  join.flags = options.flags;
  join.name = checked_name(options.name);
  join.rendezvous = options.rendezvous;
  join.rendezvous_source = "gsel_comm_options.rendezvous";
  if (!given(join.rendezvous) && options.world_size == 0) {
    join.rendezvous = rendezvous_of_environment();
    join.rendezvous_source = "GSEL_RENDEZVOUS";
  }
  World world{nullptr, options.rank, options.world_size};
  if (options.world_size == 0) {
    if (options.rank != 0)
      fail(GSEL_ERR_ARG, "gsel_comm_options.rank is {} and world_size 0; give both, or none to use the environment",
           options.rank);
    world = world_of_environment(!options.id && !given(join.rendezvous));
  }
  const std::string_view device = own_device(options).uuid;
  join.device = {device.data(), device.size()};
  join.rank = world.rank;
  join.world_size = world.size;
  if (const char* folder = trace_folder()) join.trace = {folder, std::strlen(folder)};
  if (join.rank == 0) check_variables();
  join.id_is_given = options.id != nullptr;
  if (options.id)
    join.id = *options.id;
  else if (world.size > 1 && !given(join.rendezvous))
    join.id = id_of(fmt::format("user {}\n{}", geteuid(), job_text(world.convention)));
  return join;
}

}  // namespace gsel
