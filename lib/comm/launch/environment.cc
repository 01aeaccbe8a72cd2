// comm/launch/environment.cc: see join_options.h: how a rank joins, from options and environment. Does not know how
// ranks communicate or the variables of launchers.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/launch/join_options.h"
#include "comm/launch/launcher.h"
#include "comm/launch/unique_id.h"

namespace gsel {
namespace {

// Ignored in setuid programs, whose caller must not choose where they write.
const char* trace_folder() {
  const char* folder = secure_getenv("GSEL_TRACE");
  return folder && *folder ? folder : nullptr;
}

constexpr std::string_view kByLauncher = "env://";
constexpr size_t kMostJobName = 64;

const char* rendezvous_of_environment() {
  const char* place = secure_getenv("GSEL_RENDEZVOUS");  // ignored in setuid programs: it may name a file
  return place && *place ? place : nullptr;
}

void check_job_token(const char* token) {
  const std::string_view text = token;
  const bool hex = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (text.size() != 32 || !hex)
    throw about_variable("GSEL_JOB",
                         fmt::format("GSEL_JOB is \"{}\" in the environment; expected the 32 hexadecimal digits "
                                     "that gsel run sets",
                                     text.substr(0, 64)));
}

// Text that the ranks of this launch share and that no other launch on this host has.
std::string job_text(const Convention* convention) {
  if (const char* token = variable("GSEL_JOB")) {
    check_job_token(token);
    return token;
  }
  std::string text;
  if (convention) {
    text = job_variables(*convention);
    return text.empty() ? fmt::format("{} under process {}", convention->rank, getppid()) : text;
  }
  text = job_variables();
  if (text.empty())
    fail(GSEL_ERR_CONFIG,
         "world_size is given but neither an id nor a launcher's variables in the environment; pass one id made by "
         "gsel_unique_id_create to every rank");
  return text;
}

// Hashes text to an id: 64-bit FNV-1a for each word, finished as in splitmix64.
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

// Variables with warnings only; by one rank, since all have the same values.
void check_variables() {
  check_log_variable();
  const char* folder = trace_folder();
  if (folder && access((std::string(folder) + "/.").c_str(), W_OK | X_OK) != 0)
    warn_about_variable("GSEL_TRACE", folder,
                        fmt::format("failures cannot be recorded there: {}; expected a folder that can be written to",
                                    errno_text(errno)));
}

gsel_str checked_name(gsel_str name) {
  const std::string_view text = view(name);
  if (text.size() > kMostNameBytes || !std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; }))
    fail(GSEL_ERR_ARG, "gsel_comm_options.name is {}, {} bytes; use at most {} of printable ASCII and no blank",
         in_quotes(text), text.size(), kMostNameBytes);
  return {text.data(), text.size()};
}

// The launcher's world, which must agree with the rank and world size in the options.
World launched_world(const gsel_comm_options& options) {
  World world = world_of_environment(false);
  if (world.convention && (world.rank != options.rank || world.size != options.world_size))
    fail(GSEL_ERR_ARG,
         "rank {} of {} is to join at {}, and its launcher calls it rank {} of {}; give the launcher's numbers, or "
         "another place",
         options.rank, options.world_size, kByLauncher, world.rank, world.size);
  return world;
}

// A place to meet is of several ranks: without rank and size each of them would be a world of its own.
void require_world(const JoinOptions& join, const World& world) {
  if (world.convention || join.rendezvous.empty() || join.rendezvous == kByLauncher) return;
  if (const auto why = why_no_world())
    throw about_variable(join.rendezvous_source, fmt::format("{} is {}, where ranks meet, and {}",
                                                             join.rendezvous_source, in_quotes(join.rendezvous), *why));
}

// Sets where the ranks meet. "env://" is the launcher's place; an empty rendezvous is, too, if the launcher shows that
// there are several hosts.
void find_place(JoinOptions& join, const World& world, bool by_environment) {
  const bool asks_launcher = join.rendezvous == kByLauncher;
  if (asks_launcher && !world.convention)
    throw about_variable(
        join.rendezvous_source,
        fmt::format("{} is \"{}\" and no variable of a launcher is in the environment; start with gsel "
                    "run, torchrun, mpirun or srun",
                    join.rendezvous_source, kByLauncher));
  if (!asks_launcher && !join.rendezvous.empty()) return;
  join.rendezvous.clear();
  if (asks_launcher ? is_on_one_host(world) : !by_environment || !why_several_hosts(world)) return;
  LaunchPlace place = place_of_launcher(world);
  join.rendezvous = std::move(place.text);
  join.rendezvous_source = place.source;
  join.is_launchers_place = true;
}

// Sets the texts that identify the job on all its hosts: GSEL_JOB_NAME, else the launcher's variables. The ranks of one
// `gsel run` are all on one host, and ranks with an id need no job.
void find_job(JoinOptions& join, const World& world) {
  if (const char* name = variable("GSEL_JOB_NAME")) {
    const std::string_view text = name;
    if (text.size() > kMostJobName || !std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; }))
      throw about_variable("GSEL_JOB_NAME", fmt::format("GSEL_JOB_NAME is {}; expected at most {} of printable ASCII "
                                                        "and no blank",
                                                        in_quotes(text), kMostJobName));
    join.job = text;
    join.launch = fmt::format("GSEL_JOB_NAME={}\n", text);
  } else if (!variable("GSEL_JOB") && !join.rendezvous.empty()) {
    join.job = job_identity();
    join.launch = world.convention ? job_variables(*world.convention) : job_variables();
  }
  if (join.id_is_given) join.job.clear();
}

}  // namespace

std::string job_of_launcher(const JoinOptions& join) {
  const char* rank = rank_of_torchrun();
  if (!variable("GSEL_JOB") || !rank) return {};
  return rank == std::to_string(join.rank) ? variable("GSEL_JOB") : std::string();
}

OwnDevice own_device(const gsel_comm_options& options) {
  OwnDevice own;
  own.uuid = view(options.device);
  if (options.world_size != 0) return own;
  if (const char* device = variable("GSEL_DEVICE"); device && own.uuid.empty()) own.uuid = device;
  const World world = world_of_environment(!options.id && !given(options.rendezvous) && !rendezvous_of_environment());
  const char* name = world.convention ? world.convention->local_rank : nullptr;
  if (name && variable(name)) own.local_rank = number_of_variable(name, 0);
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
  join.rendezvous = view(options.rendezvous);
  join.rendezvous_source = "gsel_comm_options.rendezvous";
  const auto in_id = options.id && join.rendezvous.empty() ? address_of(*options.id) : std::nullopt;
  if (in_id) {
    join.meets_by_id = true;
    join.rendezvous = fmt::format("the port {} of {} in the id", in_id->port, in_id->addresses.front());
    join.rendezvous_source = "gsel_comm_options.id";
  }
  if (const char* place = rendezvous_of_environment(); place && join.rendezvous.empty() && options.world_size == 0) {
    join.rendezvous = place;
    join.rendezvous_source = "GSEL_RENDEZVOUS";
  }
  World world{nullptr, options.rank, options.world_size};
  if (options.world_size == 0) {
    if (options.rank != 0)
      fail(GSEL_ERR_ARG, "gsel_comm_options.rank is {} and world_size 0; give both, or none to use the environment",
           options.rank);
    world = world_of_environment(!options.id && (join.rendezvous.empty() || join.rendezvous == kByLauncher));
    require_world(join, world);
  } else if (join.rendezvous == kByLauncher) {
    world = launched_world(options);
  }
  find_place(join, world, options.world_size == 0);
  join.id_is_given = options.id != nullptr;
  find_job(join, world);
  const std::string_view device = own_device(options).uuid;
  join.device = {device.data(), device.size()};
  join.rank = world.rank;
  join.world_size = world.size;
  if (const char* folder = trace_folder()) join.trace = {folder, std::strlen(folder)};
  if (join.rank == 0) check_variables();
  if (options.id)
    join.id = *options.id;
  else if (world.size > 1 && join.rendezvous.empty())
    join.id = id_of(fmt::format("user {}\n{}", geteuid(), job_text(world.convention)));
  return join;
}

}  // namespace gsel
