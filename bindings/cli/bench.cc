// bench.cc: `gsel bench`: what a call costs on this machine. BenchOptions, and ranks as processes or threads; see
// docs/bench.md.
#include "bench.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "bench_report.h"
#include "client.h"
#include "commands.h"
#include "launch.h"
#include "usage.h"

namespace gsel::cli {
namespace {

constexpr int kWrongResults = 1;

struct BenchOptions {
  std::vector<std::string> operations = {"allreduce"};
  std::string ranks = "2", least = "8", most = "64M", factor = "2", type = "f32", op = "sum", root = "0";
  std::string iterations = "0", warmup = "5", check = "1", time = "0.25", save;
  bool threads = false, in_place = false, out_of_place = false, registered = false, json = false, joined = false;
};

std::vector<const BenchKind*> kinds_of(const std::vector<std::string>& names, int64_t ranks) {
  std::vector<const BenchKind*> kinds;
  for (const std::string& name : names) {
    if (name == "all")
      for (const BenchKind& kind : bench_kinds()) {
        if (kind.kind != GSEL_COLLECTIVE_SENDRECV || ranks > 1) kinds.push_back(&kind);  // nobody to send to
      }
    else if (const BenchKind* kind = find_bench_kind(name))
      kinds.push_back(kind);
    else
      refuse(GSEL_ERR_ARG, name + " is no operation; all, allreduce, allgather or another of gsel/comm.h would do");
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
  if (!plan.dtype) refuse(GSEL_ERR_ARG, "-t " + options.type + " is no type; f32, bf16, i8 or another would do");
  plan.op = bench_op(options.op);
  if (!plan.op) refuse(GSEL_ERR_ARG, "-o " + options.op + " is no operation; sum, prod, min, max or avg would do");
  plan.root = static_cast<int32_t>(number_from("--root", options.root, 0, ranks - 1));
  plan.iterations = number_from("--iterations", options.iterations, 0, 1'000'000);
  plan.seconds_per_row = seconds("--time", options.time, 1e-6, 1e6);
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

// Rank 0 speaks for all.
int measure(gsel_comm* comm, const BenchOptions& options) {
  const BenchPlan plan = plan_of(options, gsel_comm_world_size(comm));
  const bool first = gsel_comm_rank(comm) == 0, quiet = options.json || !options.save.empty();
  BenchTable table(plan);
  const BenchResult result = run_bench(comm, plan, first && !quiet ? table.listener() : BenchListener{});
  if (!first) return 0;
  const std::string json = bench_json(plan, result, gsel_comm_world_size(comm), options.threads).dump(1) + "\n";
  if (options.json) print(json);
  if (!options.save.empty()) write_file(options.save, json);
  uint64_t wrong = 0;
  for (const BenchRow& row : result.rows) wrong += row.wrong;
  if (wrong == 0) return 0;
  std::fprintf(stderr, "gsel: wrong elements: %llu\n", static_cast<unsigned long long>(wrong));
  return kWrongResults;
}

Comm join(const gsel_comm_options* options) {
  gsel_comm* comm = nullptr;
  gsel_error* error = nullptr;
  check(gsel_comm_init(options, &comm, &error), &error);
  return Comm(comm);
}

int run_threads(const BenchOptions& options, int32_t ranks) {
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
      const int own = measure(comm.get(), options);
      std::lock_guard lock(mutex);
      status = std::max(status, own);
    } catch (const Failure& caught) {  // the others notice that this rank has left
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

int run_bench(const BenchOptions& options, const std::vector<std::string>& arguments) {
  if (options.joined) return measure(join(nullptr).get(), options);
  const int64_t ranks = number_from("-n", options.ranks, 1, kMaxRanks);
  plan_of(options, ranks);  // refused once, not by every rank
  if (options.threads) return run_threads(options, static_cast<int32_t>(ranks));
  return launch_own_ranks(ranks, arguments);
}

}  // namespace

int launch_own_ranks(int64_t ranks, const std::vector<std::string>& arguments, const Environment& added) {
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self);
  if (n <= 0) refuse(GSEL_ERR_IO, std::string("/proc/self/exe cannot be read: ") + std::strerror(errno));
  std::vector<std::string> program{std::string(self, static_cast<size_t>(n))};
  program.insert(program.end(), arguments.begin(), arguments.end());
  program.push_back("--joined");
  Environment shared = job_environment(ranks);
  for (const auto& [name, value] : added) shared[name] = value;
  Launch what{.job = shared["GSEL_JOB"], .program = program, .environments = {}, .places = place_ranks(ranks)};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    Environment environment = shared;
    add_rank(environment, rank);
    what.environments.push_back(lines(environment));
  }
  return launch(what);
}

Command bench_command(CommandLine& line, std::vector<std::string> arguments) {
  auto options = std::make_shared<BenchOptions>();
  Parser parser = line.subcommand(
      "bench",
      "Measure and check the calls of a communicator: gsel bench allreduce -n 4 -e 16M\n"
      "Columns are those of nccl-tests; docs/bench.md says what they mean. Exit status 1: results were wrong.");
  parser.list("operation", options->operations, "", "all, allreduce, allgather, ...; default: allreduce");
  const auto text = [&](const char* name, std::string& value, const char* help, const char* type) {
    parser.option(name, value, type, help, Parser::Default::shown);
  };
  text("-n", options->ranks, "Ranks", "N");
  text("-b", options->least, "Least bytes", "BYTES");
  text("-e", options->most, "Most bytes", "BYTES");
  text("-f", options->factor, "From one size to the next", "FACTOR");
  text("-t", options->type, "Type of the elements", "TYPE");
  text("-o", options->op, "What reductions do", "OP");
  text("--root", options->root, "Root of rooted operations", "RANK");
  text("--iterations", options->iterations, "Timed calls; 0: as --time says", "N");
  text("--time", options->time, "About so long for each row; at least 5 calls", "SECONDS");
  text("--warmup", options->warmup, "Calls before", "N");
  text("--check", options->check, "1: compare every element of a result; 0: do not", "0|1");
  parser.flag("--threads", options->threads, "Ranks are threads of one process");
  parser.flag("--in-place", options->in_place, "Send and receive in one buffer, where the operation can");
  parser.flag("--out-of-place", options->out_of_place, "In two buffers, the default; both flags: one row each");
  parser.flag("--registered", options->registered, "In memory of gsel_mem_alloc");
  parser.flag("--json", options->json, "Print JSON");
  parser.option("--save", options->save, "FILE", "Write the JSON to this file, and print no table");
  parser.flag("--joined", options->joined, "Be one rank of a job that a launcher has started; -n is not looked at");
  return {parser, [options, arguments = std::move(arguments)] { return run_bench(*options, arguments); },
          [options] { return options->json; }};
}

}  // namespace gsel::cli
