// plan/measure.cc: see measure.h. First one rank trains while the others wait, then two ranks, and so on, which shows
// the throughput of the CPUs; then groups of ranks exchange messages of a few sizes.
#include "plan/measure.h"

#include <unistd.h>

#include <algorithm>

#include "base/os.h"
#include "comm/request.h"
#include "program/shards.h"

namespace gsel::plan {
namespace {

Curve curve_of(const std::map<double, std::vector<double>>& by_size) {
  Curve curve;
  for (const auto& [size, seconds] : by_size) {
    double s = median_of(seconds);
    if (!curve.points.empty()) s = std::max(s, curve.points.back().second);  // a larger size never takes less time
    curve.points.emplace_back(size, s);
  }
  return curve;
}

int call_of(gsel_instr_kind kind) {
  switch (kind) {
    case GSEL_FORWARD:
      return Measured::forward;
    case GSEL_BACKWARD_INPUT:
      return Measured::backward_input;
    case GSEL_BACKWARD_WEIGHT:
      return Measured::backward_weight;
    case GSEL_BACKWARD:
      return Measured::backward;
    default:
      return -1;
  }
}

// The configuration of a single rank whose batch is one micro-batch.
Config alone_with(const Config& config, int64_t samples) {
  Config result = config;
  result.mesh.fill(1);
  result.strategy = {};
  result.train.batch = samples;
  result.train.microbatch = result.train.microbatches = 0;
  result.train.recompute = "none";
  result.train.memory_bytes = 0;
  result.train.timeline.clear();
  result.train.check = "none";
  result.train.device = "auto";
  return result;
}

// Runs steps of a single rank that end within `seconds`. The first step touches its memory and is not counted; at least
// one is, however long. A step starts only if another as long as the last one fits.
void time_steps(Communicator& own, const std::shared_ptr<Model>& model, const DataSource& data, const Config& config,
                double seconds, StepTimes& times) {
  const double begin = os::now_seconds();
  Trainer trainer(own, model, config, data, nullptr);
  trainer.step();
  double last_s = 0;
  do {
    const double at = os::now_seconds();
    trainer.step();
    times.add(trainer.executor().last_program(), *trainer.executor().last_step());
    last_s = os::now_seconds() - at;
  } while (os::now_seconds() - begin + last_s < seconds);
}

Measured from_first_rank(Communicator& comm, const Measured& measured) {
  std::string text = comm.rank() == 0 ? to_json(measured) : "";
  uint64_t bytes = text.size();
  comm.collective(make_collective(GSEL_COLLECTIVE_BROADCAST, &bytes, &bytes, 1, GSEL_U64, 0, 0));
  text.resize(bytes);
  comm.collective(make_collective(GSEL_COLLECTIVE_BROADCAST, text.data(), text.data(), bytes, GSEL_U8, 0, 0));
  return read_measured(text, "measured");
}

}  // namespace

void StepTimes::add(const Program& program, const StepRecord& record) {
  double instrs = 0;
  for (const Interval& interval : record.intervals) {
    if (interval.asynchronous) continue;
    const gsel_instr& instr = program.step[interval.position];
    const double seconds = interval.end - interval.begin;
    instrs += seconds;
    const auto samples = static_cast<double>(
        instr.microbatch < 0 ? 0 : program.microbatches[static_cast<size_t>(instr.microbatch)].count);
    if (const int call = call_of(instr.kind); call >= 0)
      layers_[program.layers[static_cast<size_t>(instr.layer)].name][static_cast<size_t>(call)][samples].push_back(
          seconds);
    if (instr.kind == GSEL_INPUT)
      inputs_[program.values[static_cast<size_t>(instr.value)].name][samples].push_back(seconds);
    if (instr.kind == GSEL_INSTR_STEP)
      optimizer_[static_cast<double>(bucket_elems(program, instr.bucket))].push_back(seconds);
    if (work_of(instr.kind) == InstrWork::check) {
      int64_t elems = 0;
      for (size_t b = 0; b < program.buckets.size(); ++b) elems += bucket_elems(program, static_cast<int32_t>(b));
      norm_[static_cast<double>(elems)].push_back(seconds);
    }
  }
  beside_.push_back(std::max(record.report.seconds - instrs, 0.0));
}

void StepTimes::take(Measured& measured) const {
  for (const auto& [name, calls] : layers_)
    for (size_t call = 0; call < Measured::kCalls; ++call) measured.layers[name][call] = curve_of(calls[call]);
  for (const auto& [name, by_samples] : inputs_) measured.inputs[name] = curve_of(by_samples);
  measured.optimizer = curve_of(optimizer_);
  measured.norm = curve_of(norm_);
  if (!beside_.empty()) measured.step_s = median_of(beside_);
}

double StepTimes::layers_s() const {
  double sum = 0;
  for (const auto& [name, calls] : layers_)
    for (const auto& by_samples : calls)
      if (!by_samples.empty()) sum += median_of(by_samples.rbegin()->second);
  return sum;
}

Measured measure(Communicator& comm, const std::shared_ptr<Model>& model, const DataSource& data, const Config& config,
                 const MeasureOptions& options) {
  if (options.samples.empty()) fail(GSEL_ERR_ARG, "no number of samples was given to measure layers with");
  const auto barrier = [&] { comm.collective(make_collective(GSEL_COLLECTIVE_BARRIER, nullptr, nullptr, 0, GSEL_U8)); };
  std::optional<Communicator> own = comm.split_inside(comm.rank(), 0, "measured steps");
  const int32_t crowds = std::min(comm.world_size(), static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN)));
  // Half of the time is for one rank, a quarter for several, a quarter for links. If one part takes too long, such as
  // its first step, the later parts have less time, but links keep half of theirs. The first rank decides.
  const double begin = os::now_seconds();
  const auto left_of = [&](double share_behind) {
    double left = options.seconds * (1 - share_behind) - (os::now_seconds() - begin);
    comm.collective(make_collective(GSEL_COLLECTIVE_BROADCAST, &left, &left, 1, GSEL_F64, 0, 0));
    return left;
  };
  Measured measured;
  StepTimes alone;
  if (comm.rank() == 0) {
    auto behind = static_cast<double>(options.samples.size());
    for (int64_t samples : options.samples) {
      const double left = options.seconds / 2 - (os::now_seconds() - begin);
      time_steps(*own, model, data, alone_with(config, samples), left / behind--, alone);
    }
  }
  alone.take(measured);
  for (int32_t k = 2; k <= crowds; ++k) {
    barrier();
    StepTimes crowded;
    const double crowd_s = left_of(0.25) / (crowds - k + 1);
    if (comm.rank() < k) time_steps(*own, model, data, alone_with(config, options.samples.back()), crowd_s, crowded);
    if (comm.rank() == 0)
      measured.throughput.push_back(
          std::clamp(k * alone.layers_s() / crowded.layers_s(), measured.throughput.back(), static_cast<double>(k)));
  }
  barrier();
  time_links(comm, std::clamp(left_of(0), options.seconds / 8, options.seconds / 4), measured);
  return from_first_rank(comm, measured);
}

}  // namespace gsel::plan
