// run.cc: `gsel run`: how many ranks, and what stands in the environment of each.
#include <sys/resource.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "axes.h"
#include "client.h"
#include "colour.h"
#include "commands.h"
#include "job.h"
#include "launch.h"
#include "nodes.h"
#include "usage.h"

namespace gsel::cli {
namespace {

const CommandText kRunText{
    .name = "run",
    .summary = "Start the ranks of a job, on one host or on each of several",
    .description =
        "Starts the program once for each rank, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the "
        "like in its environment. Standard input goes to rank 0 unless it is a terminal; standard output and standard "
        "error of the ranks are those of this command.\n\n"
        "When a rank fails, the others are ended, or go on (--on-failure continue). Signals go to every rank; a second "
        "Ctrl-C ends the ranks, a third one kills them. No process that a rank started is left behind.",
    .examples = {{"gsel run -n 4 -- ./app --its-options", "Four ranks."},
                 {"gsel run -n 2 --nodes 2 --node-rank 0 --rendezvous tcp://10.0.0.1:29500 -- ./app",
                  "Two ranks of four; with --node-rank 1 on the second host the others."},
                 {"gsel run --config gsel.toml -n 2 --devices count:2 -- ./trainer", "Two ranks, a device for each."},
                 {"gsel run -n 4 --json end.json -- ./app", "Writes how each rank ended, as JSON."}},
    .sections =
        {{"JSON",
          "--json FILE writes an object when the job has ended, and one with status \"running\" when it starts, "
          "so that an older file is never taken for this job's. The output of the ranks goes on as without it. "
          "FILE may be /dev/stderr or /dev/fd/3, which get the object of the end alone. What is not known or not "
          "the case is null.",
          {{"status",
            "\"ok\", \"failed\" or \"running\"; \"error\" with kind, code and message, as of every "
            "subcommand, when the job was refused."},
           {"exit_status", "That of gsel run."},
           {"reason", "completed, rank failed, timed out, interrupted or not started."},
           {"message", "What was said of the first failure."},
           {"first_failed", "The rank that failed first, for which the others were ended."},
           {"seconds", "From the start of the job to its end."},
           {"program, world_size", "What was asked for."},
           {"ranks",
            "Each with rank, pid, exit_code or signal and signal_name, ended (its place in the order in "
            "which ranks ended, from 0), seconds (from the start of the job) and asked_to_end."}}}},
    .statuses = {{"status of a rank", "That of the first rank that failed; 128 + signal when it was killed."},
                 {"124", "The job was ended by --timeout-kill."},
                 {"126, 127", "The program cannot be run, or is not found."},
                 {"130", "The job was ended by Ctrl-C."}},
    .related = {"gsel-resolve(1)", "gsel-trace(1)", "gsel_comm_init(3)", "docs/faults.md"},
    .usage = "[OPTIONS] [--] PROGRAM [ARGUMENTS...]",
    .starts_program = true};

struct RunOptions {
  std::string ranks, nodes, node_rank, rendezvous, config, devices, inventory, wait, grace, timeout, pin = "core",
                                                                                                     on_failure = "end";
  bool tag_output = false, reserve = false, share_devices = false, verbose = false;
  std::vector<std::string> program;
  Parser parser;
  bool given(const char* option) const { return parser.given(option); }
};

Handle<gsel_config> load_config(const RunOptions& options) {
  gsel_config* config = nullptr;
  gsel_error* error = nullptr;
  const gsel_str path = options.given("--config") ? borrow(options.config) : gsel_str{nullptr, 0};
  check(gsel_config_load(path, &config, &error), &error);
  return Handle<gsel_config>(config);
}

// `from` is what asked for so many.
void check_limits(int64_t ranks, const std::string& from, bool tag_output) {
  const std::string asked = from + ": ";
  if (ranks < 1) refuse(GSEL_ERR_ARG, asked + "at least 1 rank is needed");
  if (ranks > kMaxRanks)
    refuse(GSEL_ERR_ARG,
           asked + "ranks of one host join through shared memory, at most " + std::to_string(kMaxRanks) + " ranks");
  const auto check = [&](int which, int64_t needed, const char* what, const char* cure) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource>(which), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    if (needed > static_cast<int64_t>(limit.rlim_cur))
      refuse(GSEL_ERR_ARG,
             asked + what + " are limited to " + std::to_string(limit.rlim_cur) + "; raise it with " + cure);
  };
  check(RLIMIT_NPROC, ranks, "processes of this user", "ulimit -u");
  check(RLIMIT_NOFILE, tag_output ? 2 * ranks + 16 : 16, "open files, of which --tag-output needs two per rank,",
        "ulimit -n");
}

// The devices of the job: nothing when none were asked for, and the ranks see what we see.
class JobDevices {
 public:
  JobDevices(const RunOptions& options, const gsel_config* config, int64_t ranks) {
    const std::string accelerator = text(gsel_config_get(config, gsel_str_from("select.accelerator")));
    const std::string in_file = text(gsel_config_get(config, gsel_str_from("select.devices")));
    const std::string order = text(gsel_config_get(config, gsel_str_from("select.order")));
    const bool asked = options.given("--devices") || !in_file.empty() || accelerator != "auto" || options.reserve;
    if (!asked) return;
    const std::string devices = options.given("--devices") ? options.devices : in_file;
    const auto inventory = read_inventory(options.inventory);
    gsel_resolve_options resolve_options = GSEL_RESOLVE_OPTIONS_INIT;
    resolve_options.inventory = inventory.get();
    if (options.given("--devices") || !devices.empty()) resolve_options.devices = borrow(devices);
    resolve_options.accelerator = borrow(accelerator);
    if (order != "visible") resolve_options.order = borrow(order);
    resolve_options.flags = GSEL_RESOLVE_PER_RANK;
    options.reserve ? hold(resolve_options) : look(resolve_options);
    for (int32_t i = 0; i < gsel_selection_warning_count(selection_); ++i)
      std::fprintf(stderr, "%s%s\n", warning_prefix().c_str(), text(gsel_selection_warning(selection_, i)).c_str());
    check_one_host();
    shared_ = options.share_devices;
    if (!shared_) check_sharing(ranks);
  }

  // Adds what rank `rank` is to see, and by which name its device is known to the others.
  void add(int32_t rank, Environment& environment) const {
    if (!selection_) return;
    if (shared_ && device_count() > 0) rank %= device_count();
    const gsel_env_var* variables = nullptr;
    size_t count = 0;
    gsel_error* error = nullptr;
    check(gsel_selection_env(selection_, rank, &variables, &count, &error), &error);
    for (size_t i = 0; i < count; ++i) environment[text(variables[i].name)] = text(variables[i].value);
    environment.erase("GSEL_DEVICE");
    if (!shared_) environment["GSEL_DEVICE"] = identity(std::min(rank, device_count() - 1));
  }

 private:
  void look(const gsel_resolve_options& options) {
    gsel_selection* made = nullptr;
    gsel_error* error = nullptr;
    check(gsel_resolve(&options, &made, &error), &error);
    owned_.reset(made);
    selection_ = made;
  }

  void hold(const gsel_resolve_options& options) {
    gsel_reservation* made = nullptr;
    gsel_error* error = nullptr;
    check(gsel_reserve(&options, nullptr, &made, &error), &error);
    held_.reset(made);
    selection_ = gsel_reservation_selection(made);
  }

  int32_t device_count() const { return gsel_selection_device_count(selection_); }

  // Empty for a CPU, which serves every rank.
  std::string identity(int32_t position) const {
    gsel_device_info info = GSEL_DEVICE_INFO_INIT;
    if (position < 0 || gsel_selection_device(selection_, position, &info, nullptr)) return {};
    if (text(info.vendor) == "cpu") return {};
    std::string name = text(info.partition >= 0 ? info.partition_uuid : info.uuid.len ? info.uuid : info.pci);
    return info.tile >= 0 ? name + "." + std::to_string(info.tile) : name;
  }

  std::string host(int32_t position) const {
    gsel_device_info info = GSEL_DEVICE_INFO_INIT;
    return gsel_selection_device(selection_, position, &info, nullptr) ? "" : text(info.host);
  }

  void check_one_host() const {
    for (int32_t i = 1; i < device_count(); ++i)
      if (host(i) != host(0))
        refuse(GSEL_ERR_UNSUPPORTED, "devices of hosts " + host(0) + " and " + host(i) +
                                         " are selected, and gsel run starts ranks on one; add & host:" + host(0));
  }

  void check_sharing(int64_t ranks) const {
    if (ranks < 2 || device_count() != 1 || identity(0).empty()) return;
    refuse(GSEL_ERR_DUPLICATE, std::to_string(ranks) + " ranks would compute on one device, " + identity(0) +
                                   "; select " + std::to_string(ranks) + ", or allow it by --share-devices");
  }

  Handle<gsel_selection> owned_;
  Handle<gsel_reservation> held_;
  const gsel_selection* selection_ = nullptr;
  bool shared_ = false;  // several ranks may compute on one device, in turn
};

// Where the ranks run; anywhere when they bring more threads than one.
std::vector<Place> places(const RunOptions& options, const Environment& shared, int64_t ranks) {
  if (options.pin != "core" && options.pin != "none")
    refuse(GSEL_ERR_ARG, "--pin " + options.pin + ": core or none is needed");
  if (options.pin == "none") return {};
  const auto threads = shared.find("OMP_NUM_THREADS");
  const bool one_thread = threads != shared.end() && threads->second == "1";
  const std::vector<Place> found = one_thread || options.given("--pin") ? place_ranks(ranks) : std::vector<Place>();
  if (!options.verbose) return found;
  for (size_t rank = 0; rank < found.size(); ++rank)
    std::fprintf(stderr, "gsel: rank %zu on %s\n", rank, place_text(found[rank]).c_str());
  if (found.empty()) std::fprintf(stderr, "gsel: ranks run on any processor\n");
  return found;
}

// Says that the job runs, where that does not stay beside what is said of its end; a file that cannot be written is
// noticed now.
void announce(const std::string& file, const nlohmann::ordered_json& json) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) return;
  replace_file(file, json_text(json));
}

int run_ranks(const RunOptions& options, const std::string& json_file) {
  const auto config = load_config(options);
  const bool counted = options.given("-n");
  const int64_t ranks = counted ? whole_number("-n", options.ranks) : ranks_of_mesh(config.get(), kMaxRanks).product;
  check_limits(ranks, counted ? "-n " + options.ranks : "the sizes of [mesh] in the config", options.tag_output);
  if (options.on_failure != "end" && options.on_failure != "continue")
    refuse(GSEL_ERR_ARG, "--on-failure " + options.on_failure + ": end or continue is needed");
  const double wait_s = options.given("--wait") ? seconds("--wait", options.wait, 0, 1e6) : 1;
  const double grace_s = options.given("--grace") ? seconds("--grace", options.grace, 0, 1e6) : 2;
  const double timeout_s = options.given("--timeout-kill") ? seconds("--timeout-kill", options.timeout, 0.001, 1e9) : 0;
  if (options.program.empty()) refuse(GSEL_ERR_ARG, "no program to run; gsel run -n 4 -- program arguments");
  const JobDevices devices(options, config.get(), ranks);
  const Nodes nodes = nodes_of({options.nodes, options.node_rank, options.rendezvous});
  const int64_t first_rank = nodes.rank * ranks;
  Environment shared = job_environment(ranks, nodes);
  if (options.given("--config")) shared["GSEL_CONFIG"] = std::filesystem::absolute(options.config).lexically_normal();

  Launch launch_what{.job = shared["GSEL_JOB"],
                     .program = options.program,
                     .environments = {},
                     .places = places(options, shared, ranks),
                     .first_rank = first_rank,
                     .world_size = ranks * nodes.count,
                     .tag_output = options.tag_output,
                     .keep_going = options.on_failure == "continue",
                     .wait_s = wait_s,
                     .grace_s = grace_s,
                     .timeout_s = timeout_s};
  for (int32_t rank = 0; rank < ranks; ++rank) {
    Environment environment = shared;
    add_rank(environment, rank, first_rank);
    devices.add(rank, environment);
    launch_what.environments.push_back(lines(environment));
  }
  if (!json_file.empty()) announce(json_file, job_json(options.program, ranks, nullptr));
  const JobEnd end = launch(launch_what);
  if (!json_file.empty()) replace_file(json_file, json_text(job_json(options.program, ranks, &end)));
  return end.status;
}

}  // namespace

Command run_command(CommandLine& line, std::vector<std::string> program) {
  auto options = std::make_shared<RunOptions>();
  Parser parser = line.subcommand(kRunText);
  options->parser = parser;
  parser.option("-n,--ranks", options->ranks, "N",
                "Ranks; default: the product of the sizes of [mesh] in the config, where \"auto\" counts as 1.");
  parser.option("--nodes", options->nodes, "N",
                "Hosts of the job, with as many ranks each: the command is given on every one of them; default: 1.");
  parser.option("--node-rank", options->node_rank, "R", "This host, from 0; ranks are numbered host by host.");
  parser.option("--rendezvous", options->rendezvous, "PLACE",
                "Where the ranks meet, as GSEL_RENDEZVOUS: tcp://HOST:PORT, an address of node 0, for which "
                "GSEL_TOKEN_FILE names "
                "the token of the job; or file://PATH, whose folder all hosts see.");
  parser.option("--config", options->config, "FILE", "gsel.toml for the ranks, as GSEL_CONFIG.");
  parser.option("--devices", options->devices, "SPEC", "Give each rank one of these devices; see gsel-resolve(1).");
  parser.option("--inventory", options->inventory, "FILE", "Select on the machine of this file, and not on this one.");
  parser.flag("--reserve", options->reserve, "Take only devices that nobody uses, and hold them while the job runs.");
  parser.flag("--share-devices", options->share_devices, "Let several ranks compute on one device.");
  parser.option("--pin", options->pin, "core|none",
                "core: each rank has a core of its own, where there are enough; none: ranks run anywhere. Default: "
                "core for two ranks or more with OMP_NUM_THREADS=1, which gsel run sets where it is not set.");
  parser.flag("--verbose", options->verbose, "Say where each rank runs.");
  parser.flag("--tag-output", options->tag_output, "Put \"[rank] \" before each line of output.");
  parser.option("--on-failure", options->on_failure, "end|continue",
                "What the others do when a rank fails. end, the default: they are ended; continue: they go on, as "
                "those need that shrink their communicator (docs/faults.md).");
  parser.option("--wait", options->wait, "SECONDS",
                "Between a rank's failure and asking the others to end, so that they can tell what they met; "
                "default: 1.");
  parser.option("--grace", options->grace, "SECONDS", "Between asking ranks to end and killing them; default: 2.");
  parser.option("--timeout-kill", options->timeout, "SECONDS", "End the job after this time, with status 124.");
  parser.words("--pin", {"core", "none"});
  parser.words("--on-failure", {"end", "continue"});
  parser.keep_rest();
  return {parser, [options, program = std::move(program), &common = line.common()] {
            options->program = options->parser.rest();
            if (!options->program.empty() && options->program.front().compare(0, 1, "-") == 0)
              refuse(GSEL_ERR_ARG, options->program.front() + " is no option of run; see gsel run --help");
            if (!options->program.empty() && !program.empty()) options->program.push_back("--");
            options->program.insert(options->program.end(), program.begin(), program.end());
            if (common.json_file.compare(0, 1, "-") == 0)
              refuse(GSEL_ERR_ARG, "--json of run takes a FILE, since standard output belongs to the ranks; " +
                                       common.json_file + " is an option");
            return run_ranks(*options, common.json_file);
          }};
}

}  // namespace gsel::cli
