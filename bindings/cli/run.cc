// run.cc: `gsel run`: determines the number of ranks and the environment of each.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "agent.h"
#include "axes.h"
#include "client.h"
#include "commands.h"
#include "host_job.h"
#include "launch.h"
#include "nodes.h"
#include "remote_ranks.h"
#include "usage.h"
#include "variables.h"

namespace gsel::cli {
namespace {

const CommandText kRunText{
    .name = "run",
    .summary = "Start the ranks of a job, on this host or on several",
    .description =
        "Starts the program once for each rank, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the "
        "like in its environment. Standard input goes to rank 0 unless it is a terminal; standard output and standard "
        "error of the ranks are those of this command.\n\n"
        "When a rank fails, the others are ended, or go on (--on-failure continue). Signals go to every rank; a second "
        "Ctrl-C ends the ranks, a third one kills them. No process that a rank started is left behind.\n\n"
        "--hosts starts ranks on other hosts, through a remote shell and gsel there (docs/command.md). Where a host "
        "cannot be reached or made ready, no rank is started.",
    .examples = {{"gsel run -n 4 -- ./app --its-options", "Four ranks."},
                 {"gsel run --hosts a:2,b:2 -- ./app",
                  "Two ranks on each of two hosts, which ssh reaches without a password."},
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
           {"reason", "completed, rank failed, timed out, interrupted, not started or host lost."},
           {"message", "What was said of the first failure."},
           {"first_failed", "The rank that failed first, for which the others were ended."},
           {"seconds", "From the last start of the job to its end."},
           {"restarts", "How often it was started again."},
           {"program, world_size", "What was asked for."},
           {"ranks",
            "Each with rank, host (null: this one), pid, exit_code or signal and signal_name, ended (its place in the "
            "order in "
            "which ranks ended, from 0), seconds (from the start of the job) and asked_to_end."}}}},
    .statuses = {{"status of a rank", "That of the first rank that failed; 128 + signal when it was killed."},
                 {"124", "The job was ended by --timeout-kill."},
                 {"126, 127", "The program cannot be run, or is not found."},
                 {"130", "The job was ended by Ctrl-C."},
                 {"255", "A host of --hosts was lost."}},
    .related = {"gsel-resolve(1)", "gsel-trace(1)", "gsel_comm_init(3)", "docs/command.md", "docs/faults.md"},
    .usage = "[OPTIONS] [--] PROGRAM [ARGUMENTS...]",
    .starts_program = true};

struct RunOptions {
  std::string ranks, hosts, rsh, remote_gsel, nodes, node_rank, rendezvous, job, config, devices, inventory, wait,
      grace, timeout, restarts = "0", agent, pin = "core", on_failure = "end";
  bool tag_output = false, reserve = false, share_devices = false, verbose = false;
  std::vector<std::string> exports, program;
  Parser parser;
  bool given(const char* option) const { return parser.given(option); }
};

std::optional<std::string> given_value(const RunOptions& options, const char* option, const std::string& value) {
  return options.given(option) ? std::optional(value) : std::nullopt;
}

HostJob host_job(const RunOptions& options) {
  HostJob job{.program = options.program,
              .variables = exported(options.exports),
              .config = given_value(options, "--config", options.config),
              .devices = {.devices = given_value(options, "--devices", options.devices),
                          .inventory = options.inventory,
                          .reserve = options.reserve,
                          .share = options.share_devices},
              .pin = options.pin,
              .pin_is_given = options.given("--pin"),
              .is_verbose = options.verbose};
  return job;
}

// Writes that the job runs, unless the file would keep this document in addition to the final one. Also notices early
// if the file cannot be written.
void announce(const std::string& file, const nlohmann::ordered_json& json) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) return;
  replace_file(file, json_text(json));
}

Launch policy(const RunOptions& options) {
  if (options.on_failure != "end" && options.on_failure != "continue")
    refuse(GSEL_ERR_ARG, "--on-failure " + options.on_failure + ": end or continue is needed");
  Launch what{.keep_going = options.on_failure == "continue"};
  if (options.given("--wait")) what.wait_s = seconds("--wait", options.wait, 0, 1e6);
  if (options.given("--grace")) what.grace_s = seconds("--grace", options.grace, 0, 1e6);
  if (options.given("--timeout-kill")) what.timeout_s = seconds("--timeout-kill", options.timeout, 0.001, 1e9);
  return what;
}

// The job, and after a failure the same job again. make: its ranks, with GSEL_RESTART_COUNT=n among their variables.
template <class Make>
int run_job(const RunOptions& options, const Launch& what, int64_t world_size, const std::string& json_file,
            Make&& make) {
  const int64_t most = whole_number("--restarts", options.restarts);
  if (!json_file.empty()) announce(json_file, job_json(options.program, world_size, nullptr));
  JobEnd end;
  for (int64_t n = 0;; ++n) {
    std::unique_ptr<Ranks> ranks = make("GSEL_RESTART_COUNT=" + std::to_string(n));
    end = launch(what, *ranks);
    end.restarts = static_cast<int32_t>(n);
    if (end.status == 0 || n == most || (end.reason != "rank failed" && end.reason != "host lost")) break;
    std::fprintf(stderr, "gsel: restart %lld of %lld: the job is started again\n", static_cast<long long>(n + 1),
                 static_cast<long long>(most));
  }
  if (!json_file.empty()) replace_file(json_file, json_text(job_json(options.program, world_size, &end)));
  return end.status;
}

int run_here(const RunOptions& options, const std::string& json_file) {
  const auto config = load_config(given_value(options, "--config", options.config));
  const bool counted = options.given("-n");
  HostJob job = host_job(options);
  job.ranks = counted ? whole_number("-n", options.ranks) : ranks_of_mesh(config.get(), kMaxRanks).product;
  check_limits(job.ranks, counted ? "-n " + options.ranks : "the sizes of [mesh] in the config", options.tag_output);
  const Launch what = policy(options);
  if (options.program.empty()) refuse(GSEL_ERR_ARG, "no program to run; gsel run -n 4 -- program arguments");
  job.nodes = nodes_of({options.nodes, options.node_rank, options.rendezvous, options.job}, job.ranks);
  if (options.given("--restarts") && options.given("--nodes"))
    refuse(GSEL_ERR_ARG, "--restarts is of one command that starts all ranks, and --nodes of one on each host");
  return run_job(options, what, job.nodes.world_size, json_file, [&](const std::string& count) {
    HostJob again = job;
    again.variables.push_back(count);
    take_variables(again);
    return std::make_unique<PrintedRanks>(prepared(again, config.get()), options.tag_output);
  });
}

int run_on_hosts(const RunOptions& options, const std::string& json_file) {
  for (const char* other : {"--nodes", "--node-rank"})
    if (options.given(other))
      refuse(GSEL_ERR_ARG, std::string(other) + " is for a command that is given on each host; --hosts starts on all");
  const HostList hosts = parse_hosts("--hosts", options.hosts);
  if (is_grid(options.hosts))
    refuse(GSEL_ERR_ARG, "--hosts " + options.hosts + ": hosts with names are needed, such as a:2,b:2");
  if (options.given("-n")) {
    const int64_t ranks = whole_number("-n", options.ranks);
    check_slots(hosts, static_cast<int32_t>(std::clamp<int64_t>(ranks, 0, kMostSlots + 1)));
  }
  const Launch what = policy(options);
  if (options.program.empty()) refuse(GSEL_ERR_ARG, "no program to run; gsel run --hosts a:2,b:2 -- program arguments");
  HostJob job = host_job(options);
  job.folder = std::filesystem::current_path();
  if (job.config) job.config = std::filesystem::absolute(*job.config).lexically_normal();
  if (!job.devices.inventory.empty()) job.devices.inventory = std::filesystem::absolute(job.devices.inventory);
  job.grace_s = what.grace_s;
  const char* named = std::getenv("GSEL_JOB_NAME");
  job.nodes.job = checked_job_name(options.given("--job") || !named ? options.job : named);
  std::vector<std::string> chosen = chosen_environment();
  job.variables.insert(job.variables.begin(), chosen.begin(), chosen.end());
  std::string traces = trace_folder(load_config(job.config).get());
  for (const std::string& variable : job.variables)
    if (variable.starts_with("GSEL_TRACE=")) traces = variable.substr(variable.find('=') + 1);
  return run_job(options, what, hosts.slots(), json_file, [&](const std::string& count) {
    HostJob again = job;
    again.variables.push_back(count);
    auto ranks = std::make_unique<RemoteRanks>(RemoteJob{.hosts = hosts,
                                                         .shell = remote_shell_of(options.rsh, options.remote_gsel),
                                                         .job = std::move(again),
                                                         .rendezvous = options.rendezvous,
                                                         .trace_folder = traces,
                                                         .tag_output = options.tag_output});
    ranks->connect();
    return ranks;
  });
}

int run_ranks(const RunOptions& options, const std::string& json_file) {
  if (options.given("--agent")) return run_agent(options.agent);
  if (options.given("--hosts")) return run_on_hosts(options, json_file);
  for (const char* other : {"--rsh", "--remote-gsel"})
    if (options.given(other))
      refuse(GSEL_ERR_ARG, std::string(other) + " is of other hosts, and needs --hosts a:2,b:2");
  return run_here(options, json_file);
}

}  // namespace

Command run_command(CommandLine& line, std::vector<std::string> program) {
  auto options = std::make_shared<RunOptions>();
  Parser parser = line.subcommand(kRunText);
  options->parser = parser;
  parser.option("-n,--ranks", options->ranks, "N",
                "Ranks; default: the product of the sizes of [mesh] in the config, where \"auto\" counts as 1.");
  parser.option("--hosts", options->hosts, "HOSTS",
                "Start ranks on these hosts through a remote shell: a:2,b:2, two on each, numbered in this order.");
  parser.option("--rsh", options->rsh, "COMMAND",
                "The remote shell, with its options, which is called with a host and a command; default: GSEL_RSH, or "
                "ssh, which must not ask for anything.");
  parser.option("--remote-gsel", options->remote_gsel, "COMMAND",
                "gsel on these hosts, of the same version; default: the path of this one.");
  parser.repeated("-x,--export", options->exports, "NAME[=VALUE]",
                  "Put this variable into the environment of the ranks; NAME*: all that begin so. Ranks of --hosts get "
                  "GSEL_*, NCCL_*, OMP_* and the like without it.");
  parser.option(
      "--nodes", options->nodes, "N",
      "Hosts of the job, with as many ranks each, where the command is given on every one of them; default: 1.");
  parser.option("--node-rank", options->node_rank, "R", "This host, from 0; ranks are numbered host by host.");
  parser.option(
      "--rendezvous", options->rendezvous, "PLACE",
      "Where the ranks meet, as GSEL_RENDEZVOUS: tcp://HOST:PORT, an address of node 0, for which with --nodes "
      "GSEL_TOKEN_FILE names the token of the job; or file://PATH, whose folder all hosts see. --hosts chooses "
      "place and token where this is not given.");
  parser.option(
      "--job", options->job, "NAME",
      "Name of the job, the same on all its hosts, as GSEL_JOB_NAME: ranks of jobs with other names do not join "
      "it, also where place and token are the same. --hosts makes one where none is given.");
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
  parser.option("--restarts", options->restarts, "N",
                "After a failure end the job and start it again, N times at most; default: 0. Ranks find how often in "
                "GSEL_RESTART_COUNT, and a trainer goes on by gsel_trainer_load from its newest checkpoint.");
  parser.hidden("--agent", options->agent);
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
