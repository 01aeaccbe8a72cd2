// plan/finalist.cc: see finalist.h.
#include "plan/finalist.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "train/compile/base_program.h"
#include "train/compile/exchange_programs.h"
#include "train/compile_rank.h"
#include "train/memory/ledger.h"

namespace gsel::plan {
namespace {

bool is_even(const Compiler& compiler) {
  const auto alike = [&](gsel_axis axis) {
    const std::vector<double> weights = compiler.weights_of(axis);
    return std::ranges::adjacent_find(weights, std::not_equal_to<>{}) == weights.end();
  };
  return alike(GSEL_AXIS_DATA) && alike(compiler.mesh().sharing_axis()) &&
         compiler.config().train.batch % compiler.mesh().size[GSEL_AXIS_DATA] == 0;
}

// Whether one rank of the data axis represents all: none divides the batch for the others or steps a bucket for them.
bool replicas_are_alike(const Program& program) {
  return std::ranges::none_of(program.buckets, [](const ProgramBucket& b) { return b.owner >= 0; }) &&
         std::ranges::none_of(program.step, [](const gsel_instr& instr) { return instr_row(instr.kind).is_scatter(); });
}

std::string need_text(const RankForecast& rank, const Program& program, uint64_t bound) {
  return fmt::format("rank {} of {} needs {} of {}{}", rank.rank, program.mesh.world_size(),
                     human_bytes(total_bytes(rank.memory)), human_bytes(bound), memory_table(rank.memory));
}

// The entries of the compiled ranks.
Hosts hosts_of(const Hosts& hosts, const std::vector<Program>& programs) {
  if (hosts.of_program.empty()) return hosts;
  Hosts result{{}, hosts.throughput};
  for (const Program& p : programs)
    result.of_program.push_back(hosts.of_program[static_cast<size_t>(p.rank) % hosts.of_program.size()]);
  return result;
}

}  // namespace

// ---- programs ----------------------------------------------------------------------------------------------------

CompiledJob::CompiledJob(const Model& model, const Config& config, int32_t ranks,
                         const gsel_optimizer_options* optimizer, int32_t whole_up_to)
    : model_(model), config_(config), optimizer_(optimizer) {
  const Mesh mesh{resolve_mesh(config, ranks)};
  const Compiler compiler(model, config, mesh);
  const Optimizer steps(config, model, optimizer);
  const auto add = [&](int32_t rank) {
    Compiled compiled = compile_rank(compiler, rank, steps);
    programs_.push_back(std::move(compiled.program));
    models_.push_back(std::move(compiled.model));
  };
  add(0);
  const bool whole = ranks <= whole_up_to || !is_even(compiler) || !replicas_are_alike(programs_.front());
  std::vector<int32_t> wanted = mesh.group(0, GSEL_AXIS_PIPELINE);
  if (whole) {
    wanted.resize(static_cast<size_t>(ranks));
    std::iota(wanted.begin(), wanted.end(), 0);
  }
  for (int32_t rank : wanted)
    if (rank != 0) add(rank);
  if (!whole) {
    for (int32_t rank : mesh.group(0, mesh.sharing_axis()))
      sharing_.push_back(rank == 0 ? programs_.front() : compile_rank(compiler, rank, steps).program);
    microbatches_ = microbatches_of_replicas(config, mesh);
  }
  verify_together(programs_, sharing_, microbatches_);
}

Job CompiledJob::job() const {
  if (is_whole()) return whole_job(programs_);
  Job job{{}, {}, microbatches_};
  for (const Program& p : programs_) job.programs.push_back(&p);
  for (const Program& p : sharing_) job.sharing.push_back(&p);
  return job;
}

MemoryPartBytes CompiledJob::memory_of(size_t i) const {
  return forecast_memory(*models_[i], programs_[i], Optimizer(config_, *models_[i], optimizer_));
}

// ---- price -------------------------------------------------------------------------------------------------------

uint64_t Finalist::most_bytes() const {
  uint64_t most = 0;
  for (const RankForecast& rank : ranks) most = std::max(most, total_bytes(rank.memory));
  return most;
}

Finalist price(const CompiledJob& job, const Pricing& pricing) {
  Finalist result;
  result.mesh = job.programs().front().mesh;
  result.whole = job.is_whole();
  for (size_t i = 0; i < job.programs().size(); ++i) {
    const Program& program = job.programs()[i];
    RankForecast& rank = result.ranks.emplace_back();
    rank.rank = program.rank;
    rank.memory = job.memory_of(i);
    rank.traffic = step_traffic(program);
    for (const auto& [by, count] : rank.traffic) rank.bytes_sent += count.bytes_sent;
    if (pricing.memory_bytes > 0 && total_bytes(rank.memory) > pricing.memory_bytes)
      throw Error(GSEL_ERR_NOMEM, need_text(rank, program, pricing.memory_bytes)).about_rank(program.rank);
  }
  result.times = simulate(job.job(), pricing.durations, hosts_of(pricing.hosts, job.programs()), pricing.steps);
  result.step_s = result.times.period;
  result.bubble = result.times.bubble();
  result.exposed = result.times.exposed();
  return result;
}

Finalist price(const Model& model, const Config& config, int32_t ranks, const Pricing& pricing) {
  return price(CompiledJob(model, config, ranks), pricing);
}

}  // namespace gsel::plan
