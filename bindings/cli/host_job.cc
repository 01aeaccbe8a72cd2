// host_job.cc: see host_job.h.
#include "host_job.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "frames.h"

namespace gsel::cli {
namespace {

// Places for the ranks; none if they have several threads each.
std::vector<Place> places(const HostJob& job, const Environment& shared) {
  if (job.pin != "core" && job.pin != "none") refuse(GSEL_ERR_ARG, "--pin " + job.pin + ": core or none is needed");
  if (job.pin == "none") return {};
  const auto threads = shared.find("OMP_NUM_THREADS");
  const bool one_thread = threads != shared.end() && threads->second == "1";
  const std::vector<Place> found = one_thread || job.pin_is_given ? place_ranks(job.ranks) : std::vector<Place>();
  if (!job.is_verbose) return found;
  for (size_t rank = 0; rank < found.size(); ++rank)
    std::fprintf(stderr, "gsel: rank %zu on %s\n", static_cast<size_t>(job.nodes.first_rank) + rank,
                 place_text(found[rank]).c_str());
  if (found.empty()) std::fprintf(stderr, "gsel: ranks run on any processor\n");
  return found;
}

}  // namespace

std::string encoded(const HostJob& job) {
  FrameText text;
  text.texts(job.program).text(job.folder).texts(job.variables).number(job.ranks);
  text.number(job.nodes.count).number(job.nodes.rank).number(job.nodes.first_rank).number(job.nodes.world_size);
  text.text(job.nodes.rendezvous).text(job.nodes.job).number(job.config.has_value()).text(job.config.value_or(""));
  text.number(job.devices.devices.has_value()).text(job.devices.devices.value_or("")).text(job.devices.inventory);
  text.number(job.devices.reserve).number(job.devices.share);
  text.text(job.pin).number(job.pin_is_given).number(job.is_verbose).text(job.token).number(job.has_input);
  text.number(static_cast<int64_t>(job.grace_s * 1e6));
  return text.bytes();
}

HostJob decoded_host_job(std::string_view bytes) {
  FrameReader reader(bytes);
  const auto optional_text = [&] {
    const bool given = reader.number() != 0;
    std::string text = reader.text();
    return given ? std::optional(std::move(text)) : std::nullopt;
  };
  HostJob job;
  job.program = reader.texts();
  job.folder = reader.text();
  job.variables = reader.texts();
  job.ranks = reader.number();
  job.nodes.count = reader.number();
  job.nodes.rank = reader.number();
  job.nodes.first_rank = reader.number();
  job.nodes.world_size = reader.number();
  job.nodes.rendezvous = reader.text();
  job.nodes.job = reader.text();
  job.config = optional_text();
  job.devices.devices = optional_text();
  job.devices.inventory = reader.text();
  job.devices.reserve = reader.number() != 0;
  job.devices.share = reader.number() != 0;
  job.pin = reader.text();
  job.pin_is_given = reader.number() != 0;
  job.is_verbose = reader.number() != 0;
  job.token = reader.text();
  job.has_input = reader.number() != 0;
  job.grace_s = static_cast<double>(reader.number()) * 1e-6;
  return job;
}

void check_limits(int64_t ranks, const std::string& from, bool has_pipes) {
  const std::string prefix = from + ": ";
  if (ranks < 1) refuse(GSEL_ERR_ARG, prefix + "at least 1 rank is needed");
  if (ranks > kMaxRanks)
    refuse(GSEL_ERR_ARG,
           prefix + "ranks of one host join through shared memory, at most " + std::to_string(kMaxRanks) + " ranks");
  const auto check = [&](int which, int64_t needed, const char* what, const char* cure) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource>(which), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    if (needed > static_cast<int64_t>(limit.rlim_cur))
      refuse(GSEL_ERR_ARG,
             prefix + what + " are limited to " + std::to_string(limit.rlim_cur) + "; raise it with " + cure);
  };
  check(RLIMIT_NPROC, ranks, "processes of this user", "ulimit -u");
  check(RLIMIT_NOFILE, has_pipes ? 2 * ranks + 16 : 16,
        has_pipes ? "open files, of which two are needed per rank," : "open files", "ulimit -n");
}

Handle<gsel_config> load_config(const std::optional<std::string>& file) {
  gsel_config* config = nullptr;
  gsel_error* error = nullptr;
  check(gsel_config_load(file ? borrow(*file) : gsel_str{nullptr, 0}, &config, &error), &error);
  return Handle<gsel_config>(config);
}

std::string trace_folder(const gsel_config* config) {
  const char* folder = std::getenv("GSEL_TRACE");
  return folder && *folder ? folder : text(gsel_config_get(config, gsel_str_from("comm.trace")));
}

void take_variables(const HostJob& job) {
  for (const std::string& line : job.variables)
    if (const size_t equals = line.find('='); equals != line.npos && equals > 0)
      setenv(line.substr(0, equals).c_str(), line.c_str() + equals + 1, 1);
}

LocalJob prepared(const HostJob& job, const gsel_config* config) {
  const auto devices = std::make_shared<const JobDevices>(job.devices, config, job.ranks);
  Environment shared = job_environment(job.ranks, job.nodes);
  if (job.config) shared["GSEL_CONFIG"] = std::filesystem::absolute(*job.config).lexically_normal();
  LocalJob local{.job = shared["GSEL_JOB"],
                 .program = job.program,
                 .places = places(job, shared),
                 .first_rank = job.nodes.first_rank,
                 .world_size = job.nodes.world_size,
                 .held = devices};
  for (int32_t rank = 0; rank < job.ranks; ++rank) {
    Environment environment = shared;
    add_rank(environment, rank, job.nodes.first_rank);
    devices->add(rank, environment);
    local.environments.push_back(lines(environment));
  }
  return local;
}

}  // namespace gsel::cli
