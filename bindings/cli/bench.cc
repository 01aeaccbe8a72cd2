// bench.cc: `gsel bench`: measures calls on this machine. BenchOptions, and ranks as processes or threads; see
// docs/bench.md.
#include "bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "bench_report.h"
#include "client.h"
#include "colour.h"
#include "commands.h"
#include "launch.h"
#include "local_ranks.h"
#include "network_spec.h"
#include "scratch.h"
#include "simulate.h"
#include "usage.h"

namespace gsel::cli {
namespace {

constexpr int kWrongResults = 1;

const CommandText kBenchText{
    .name = "bench",
    .summary = "Measure and check the calls of a communicator",
    .description =
        "Starts ranks and makes each call many times, at sizes that grow; every result is compared with what it must "
        "be before it is timed. Columns are those of nccl-tests.\n\n"
        "With --simulate nothing is measured: a network model of two levels says what starting a job, its control and "
        "each call would cost on many hosts.",
    .examples = {{"gsel bench allreduce -n 4 -e 16M", "One call, up to 16 MiB, on 4 ranks."},
                 {"gsel bench all -n 8 --threads --json -o all.json", "All calls, with ranks as threads."},
                 {"mpirun -n 4 gsel bench --joined", "As ranks of a job that another launcher starts."},
                 {"gsel bench --simulate hosts=1024x8 --network ndr", "8192 ranks on paper; docs/simulate.md."}},
    .sections =
        {{"JSON",
          "",
          {{"gsel, ranks, threads, registered", "What was measured."},
           {"memory_bandwidth", "Bytes per second that all ranks read and write together, or null."},
           {"rows",
            "Each with operation, in_place, bytes, count, type, op, root, iterations, seconds, p99_seconds, algbw "
            "and busbw (bytes per second), efficiency and wrong. docs/bench.md explains them."},
           {"measured, worlds",
            "With --simulate, in place of these: false, and of each world its ranks, model, rendezvous, control and "
            "rows. docs/simulate.md explains them."}}}},
    .statuses = {{"1", "Results were wrong."}},
    .related = {"gsel-tune(1)", "gsel_comm_run(3)", "docs/bench.md", "docs/simulate.md"}};

struct BenchOptions {
  std::vector<std::string> operations = {"allreduce"};
  std::string ranks = "2", least = "8", most = "64M", factor = "2", type = "f32", op = "sum", root = "0";
  std::string iterations = "0", warmup = "5", check = "1", time = "0.25";
  std::string result;  // file for another process of this command, which prints it
  std::string simulate, network;
  bool threads = false, in_place = false, out_of_place = false, registered = false, joined = false;
  Parser parser;
};

std::vector<const BenchKind*> kinds_of(const std::vector<std::string>& names, int64_t ranks) {
  std::vector<const BenchKind*> kinds;
  for (const std::string& name : names) {
    if (name == "all")
      for (const BenchKind& kind : bench_kinds()) {
        if (kind.kind != GSEL_COLLECTIVE_SENDRECV || ranks > 1) kinds.push_back(&kind);  // needs another rank
      }
    else if (const BenchKind* kind = find_bench_kind(name))
      kinds.push_back(kind);
    else
      refuse(GSEL_ERR_ARG, name + " is no operation; use all, allreduce, allgather or another of gsel/comm.h");
  }
  return kinds;
}

BenchPlan plan_of(const BenchOptions& options, int64_t ranks) {
  BenchPlan plan;
  plan.kinds = kinds_of(options.operations, ranks);
  plan.least = byte_count("-b", options.least);
  plan.most = byte_count("-e", options.most);
  if (plan.least > plan.most) refuse(GSEL_ERR_ARG, "-b " + options.least + " is more than -e " + options.most);
  plan.factor = seconds("-f", options.factor, 1.01, 1e6);
  plan.dtype = bench_dtype(options.type);
  if (!plan.dtype) refuse(GSEL_ERR_ARG, "-t " + options.type + " is no type; use f32, bf16, i8 or another");
  plan.op = bench_op(options.op);
  if (!plan.op) refuse(GSEL_ERR_ARG, "--op " + options.op + " is no operation; use sum, prod, min, max or avg");
  plan.root = static_cast<int32_t>(number_from("--root", options.root, 0, ranks - 1));
  plan.iterations = number_from("--iterations", options.iterations, 0, 1'000'000);
  plan.seconds_per_row = seconds("--time", options.time, 1e-6, 1e6);
  plan.warmup = number_from("--warmup", options.warmup, 1, 1'000'000);
  plan.check = number_from("--check", options.check, 0, 1) == 1;
  plan.in_place = options.in_place;
  plan.out_of_place = options.out_of_place || !options.in_place;
  plan.registered = options.registered;
  return plan;
}

struct LeaveComm {
  void operator()(gsel_comm* comm) const { gsel_comm_free(comm); }
};
using Comm = std::unique_ptr<gsel_comm, LeaveComm>;

// Rank 0 prints for all ranks.
int measure(gsel_comm* comm, const BenchOptions& options, bool as_json) {
  const BenchPlan plan = plan_of(options, gsel_comm_world_size(comm));
  const bool first = gsel_comm_rank(comm) == 0, quiet = as_json || !options.result.empty();
  BenchTable table(plan);
  const BenchResult result = run_bench(comm, plan, first && !quiet ? table.listener() : BenchListener{});
  if (!first) return 0;
  const std::string json = json_text(bench_json(plan, result, gsel_comm_world_size(comm), options.threads));
  if (!options.result.empty())
    write_file(options.result, json);
  else if (as_json)
    print(json);
  uint64_t wrong = 0;
  for (const BenchRow& row : result.rows) wrong += row.wrong;
  if (wrong == 0) return 0;
  std::fprintf(stderr, "%swrong elements: %llu\n", error_prefix().c_str(), static_cast<unsigned long long>(wrong));
  return kWrongResults;
}

Comm join(const gsel_comm_options* options) {
  gsel_comm* comm = nullptr;
  gsel_error* error = nullptr;
  check(gsel_comm_init(options, &comm, &error), &error);
  return Comm(comm);
}

int run_threads(const BenchOptions& options, int32_t ranks, bool as_json) {
  gsel_unique_id id;
  gsel_error* error = nullptr;
  check(gsel_unique_id_create(&id, &error), &error);
  const std::vector<Place> places = place_ranks(ranks);
  std::mutex mutex;
  std::optional<Failure> failure;
  int status = 0;
  const auto body = [&](int32_t rank) {
    if (!places.empty()) PlaceMask(places[static_cast<size_t>(rank)]).apply();
    gsel_comm_options comm_options = GSEL_COMM_OPTIONS_INIT;
    comm_options.rank = rank;
    comm_options.world_size = ranks;
    comm_options.id = &id;
    try {
      const Comm comm = join(&comm_options);
      const int own = measure(comm.get(), options, as_json);
      std::lock_guard lock(mutex);
      status = std::max(status, own);
    } catch (const Failure& caught) {  // the other ranks notice the end of this one
      std::lock_guard lock(mutex);
      if (!failure) failure = caught;
    }
  };
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
  if (failure) throw *failure;
  return status;
}

// Runs one rank of several. Rank 0 prints; the others report only failures, on standard error.
int run_joined(const BenchOptions& options, bool as_json) {
  int32_t rank = 0;
  try {
    const Comm comm = join(nullptr);
    rank = gsel_comm_rank(comm.get());
    return measure(comm.get(), options, as_json);
  } catch (const Failure& failure) {
    if (rank == 0 && options.result.empty()) throw;
    std::fprintf(stderr, "%s%s\n", error_prefix().c_str(), failure.message.c_str());
    return kRefused;
  }
}

// Through a file, so that exactly one JSON document is printed, however the ranks end.
int run_processes_json(int64_t ranks, std::vector<std::string> arguments) {
  const Scratch scratch;
  const std::string result = scratch.file("result.json");
  arguments.insert(arguments.end(), {"--result", result});
  const int status = launch_own_ranks(ranks, arguments);
  if (status != 0 && status != kWrongResults)
    refuse(GSEL_ERR_PEER, "the ranks that measure ended with status " + std::to_string(status));
  print(read_file(result));
  return status;
}

// The word after --simulate may be an operation, since the option's value may be omitted.
int simulate(const BenchOptions& options, bool as_json) {
  for (const char* other : {"-n", "-t", "--op", "--root", "--iterations", "--time", "--warmup", "--check", "--threads",
                            "--in-place", "--out-of-place", "--registered", "--joined"})
    if (options.parser.given(other))
      refuse(GSEL_ERR_ARG,
             std::string("--simulate measures nothing, and ") + other + " is of a measurement; leave one out");
  SimulateOptions out{options.simulate, options.network, {}, {}};
  if (options.parser.given("operation")) out.operations = options.operations;
  if (out.simulate == "all" || find_bench_kind(out.simulate)) out.operations.push_back(std::exchange(out.simulate, ""));
  const auto value = [&](const char* option, const std::string& given, const char* usual) {
    return options.parser.given(option) ? given : std::string(usual);
  };
  const std::string least = value("-b", options.least, "256"), most = value("-e", options.most, "256M");
  const double factor = seconds("-f", value("-f", options.factor, "16"), 1.01, 1e6);
  const auto end = static_cast<double>(byte_count("-e", most));
  auto bytes = static_cast<double>(byte_count("-b", least));
  if (bytes > end) refuse(GSEL_ERR_ARG, "-b " + least + " is more than -e " + most);
  for (; bytes <= end; bytes = std::max(bytes + 1, std::floor(bytes * factor)))
    out.sizes.push_back(static_cast<uint64_t>(bytes));
  return print_simulation(out, as_json);
}

int run_bench(const BenchOptions& options, const std::vector<std::string>& arguments, bool as_json) {
  if (options.parser.given("--simulate")) return simulate(options, as_json);
  if (options.parser.given("--network"))
    refuse(GSEL_ERR_ARG, "--network is of a model; add --simulate, or leave it out");
  if (options.joined) return run_joined(options, as_json);
  const int64_t ranks = number_from("-n", options.ranks, 1, kMaxRanks);
  plan_of(options, ranks);  // invalid options are refused here once, not by every rank
  if (options.threads) return run_threads(options, static_cast<int32_t>(ranks), as_json);
  if (as_json) return run_processes_json(ranks, arguments);
  return launch_own_ranks(ranks, arguments);
}

}  // namespace

int launch_own_ranks(int64_t ranks, const std::vector<std::string>& arguments, const Environment& added) {
  std::vector<std::string> program{own_path()};
  program.insert(program.end(), arguments.begin(), arguments.end());
  program.push_back("--joined");
  Environment shared = job_environment(ranks);
  for (const auto& [name, value] : added) shared[name] = value;
  LocalJob job{.job = shared["GSEL_JOB"], .program = program, .places = place_ranks(ranks), .world_size = ranks};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    Environment environment = shared;
    add_rank(environment, rank);
    job.environments.push_back(lines(environment));
  }
  PrintedRanks started(std::move(job), false);
  return launch({}, started).status;
}

Command bench_command(CommandLine& line, std::vector<std::string> arguments) {
  auto options = std::make_shared<BenchOptions>();
  Parser parser = line.subcommand(kBenchText);
  options->parser = parser;
  parser.list("operation", options->operations, "OPERATION...", "all, allreduce, allgather, ...; default: allreduce.");
  const auto text = [&](const char* name, std::string& value, const char* help, const char* type) {
    parser.option(name, value, type, help, Parser::Default::shown);
  };
  text("-n,--ranks", options->ranks, "Ranks to start.", "N");
  text("-b,--least", options->least, "Least bytes.", "BYTES");
  text("-e,--most", options->most, "Most bytes.", "BYTES");
  text("-f,--factor", options->factor, "From one size to the next.", "FACTOR");
  text("-t,--type", options->type, "Type of the elements.", "TYPE");
  text("--op", options->op, "What reductions do.", "OP");
  text("--root", options->root, "Root of rooted operations.", "RANK");
  text("--iterations", options->iterations, "Timed calls; 0: as --time says.", "N");
  text("--time", options->time, "About so long for each row; at least 5 calls.", "SECONDS");
  text("--warmup", options->warmup, "Calls before.", "N");
  text("--check", options->check, "1: compare every element of a result; 0: do not.", "0|1");
  parser.flag("--threads", options->threads, "Ranks are threads of one process.");
  parser.flag("--in-place", options->in_place, "Send and receive in one buffer, where the operation can.");
  parser.flag("--out-of-place", options->out_of_place, "In two buffers, the default; both flags: one row each.");
  parser.flag("--registered", options->registered, "In memory of gsel_mem_alloc.");
  parser.flag("--joined", options->joined, "Be one rank of a job that a launcher has started; -n is not looked at.");
  parser.hidden("--result", options->result);
  Parser model = parser.group("In place of a measurement");
  model.optional(
      "--simulate", options->simulate, "hosts=HOSTSxRANKS,...",
      "Print what many hosts would cost by a model, such as hosts=1024x8; without a value 10, 1,000 and "
      "10,000 ranks. Keys after hosts: network, latency, rate, congestion, host_latency, host_rate. Without an "
      "operation all; without -b, -e and -f sizes from 256 to 256M by 16.");
  model.option("--network", options->network, "NETWORK",
               "With --simulate: a fabric of docs/simulate.md, such as ndr, or the rate of a host, such as 8x400Gb/s; "
               "the keys but hosts may follow.");
  std::vector<std::string> operations{"all"}, types;
  for (const BenchKind& kind : bench_kinds()) operations.emplace_back(kind.name);
  for (gsel_dtype dtype = 1; gsel_dtype_bytes(dtype) > 0; ++dtype) types.emplace_back(gsel_dtype_name(dtype));
  parser.words("operation", operations);
  parser.words("--type", types);
  parser.words("--op", {"sum", "prod", "min", "max", "avg", "band", "bor", "bxor"});
  parser.words("--check", {"0", "1"});
  const TermList list = fabric_list();
  std::vector<std::string> networks;
  for (const auto& [name, about] : list.terms) networks.push_back(name);
  parser.words("--simulate", {"hosts="});
  parser.words("--network", networks);
  parser.tail(list);
  return {parser, [options, arguments = std::move(arguments), &common = line.common()] {
            return run_bench(*options, arguments, common.json);
          }};
}

}  // namespace gsel::cli
