// plan/measure.cc: see measure.h. First one rank trains while the others wait, then two ranks, and so on, which shows
// the throughput of the CPUs; then groups of ranks exchange messages of a few sizes.
#include "plan/measure.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

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
    const InstrRow& row = instr_row(instr.kind);
    if (row.callback && !row.recomputes)
      layers_[program.layers[static_cast<size_t>(instr.layer)].name][Measured::call_of(row.callback)][samples]
          .push_back(seconds);
    if (row.task == InstrTask::input)
      inputs_[program.values[static_cast<size_t>(instr.value)].name][samples].push_back(seconds);
    if (row.task == InstrTask::step)
      optimizer_[static_cast<double>(bucket_elems(program, instr.bucket))].push_back(seconds);
    if (row.task == InstrTask::check) {
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

// ---- links ---------------------------------------------------------------------------------------------------------

double median_of(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

namespace {

constexpr gsel_collective_kind kLinkKinds[] = {
    GSEL_COLLECTIVE_ALLREDUCE, GSEL_COLLECTIVE_REDUCE_SCATTER, GSEL_COLLECTIVE_ALLGATHER, GSEL_COLLECTIVE_BROADCAST,
    GSEL_COLLECTIVE_REDUCE,    GSEL_COLLECTIVE_ALLTOALL,       GSEL_COLLECTIVE_SENDRECV};
constexpr uint64_t kMessageBytes[] = {1024, 65536, 1048576};
constexpr uint64_t kLinkBytes[] = {64, 4096, 65536, 262144, 1048576, 4194304};  // sent by a rank, approximate

struct LinkCall {
  gsel_collective call{};
  double bytes_sent = 0;
};

// elems: size of the caller's whole array, a multiple of the ranks.
LinkCall link_call(gsel_collective_kind kind, int32_t rank, int32_t n, float* a, float* b, uint64_t elems) {
  const double bytes = static_cast<double>(elems) * sizeof(float), others = n - 1, part = bytes / n;
  switch (kind) {
    case GSEL_COLLECTIVE_ALLREDUCE:
      return {make_collective(kind, a, a, elems, GSEL_F32, GSEL_SUM), bytes + (n - 2) * part};
    case GSEL_COLLECTIVE_REDUCE_SCATTER:
      return {make_collective(kind, a, b, elems / static_cast<uint64_t>(n), GSEL_F32, GSEL_SUM), bytes - part};
    case GSEL_COLLECTIVE_ALLGATHER:
      return {make_collective(kind, a, b, elems / static_cast<uint64_t>(n), GSEL_F32), others * part};
    case GSEL_COLLECTIVE_BROADCAST:
      return {make_collective(kind, a, a, elems, GSEL_F32, 0, 0), bytes};
    case GSEL_COLLECTIVE_REDUCE:
      return {make_collective(kind, a, a, elems, GSEL_F32, GSEL_SUM, 0), bytes - part};
    case GSEL_COLLECTIVE_ALLTOALL:
      return {make_collective(kind, a, b, elems / static_cast<uint64_t>(n), GSEL_F32), others * part};
    case GSEL_COLLECTIVE_SENDRECV: {
      gsel_collective call = make_collective(kind, a, b, elems, GSEL_F32, 0, (rank + 1) % n);
      call.source = (rank + n - 1) % n;
      call.recv_count = elems;
      return {call, bytes};
    }
    default:
      return {};
  }
}

// Copies row by row, like shards of values to a whole one, through more memory than caches have.
double time_copies(const std::vector<float>& from, std::vector<float>& to) {
  constexpr size_t kRow = 16384;
  std::vector<double> took;
  for (int i = 0; i < 5; ++i) {
    const double at = os::now_seconds();
    size_t copied = 0;
    for (size_t row = 0; (2 * row + 2) * kRow <= from.size(); ++row, copied += kRow)
      std::memcpy(to.data() + row * kRow, from.data() + 2 * row * kRow, kRow * sizeof(float));
    took.push_back((os::now_seconds() - at) / static_cast<double>(copied * sizeof(float)));
  }
  return median_of(std::move(took));
}

// Runs on the ranks of a group until the time is over on the group's first rank.
Curve time_link(Communicator& group, gsel_collective_kind kind, double seconds, std::vector<float>& a,
                std::vector<float>& b) {
  const int32_t n = group.world_size(), rank = group.rank();
  Curve curve;
  for (uint64_t bytes : kLinkBytes) {
    const auto ranks = static_cast<uint64_t>(n);
    const uint64_t elems = std::max<uint64_t>(bytes / sizeof(float) / ranks, 1) * ranks;
    const LinkCall call = link_call(kind, rank, n, a.data(), b.data(), elems);
    std::vector<double> took;
    const double begin = os::now_seconds();
    for (int32_t goes_on = 1; goes_on;) {
      group.collective(make_collective(GSEL_COLLECTIVE_BARRIER, nullptr, nullptr, 0, GSEL_U8));
      const double at = os::now_seconds();
      gsel_collective copy = call.call;
      group.collective(copy);
      took.push_back(os::now_seconds() - at);
      goes_on = took.size() < 3 || os::now_seconds() - begin < seconds / std::size(kLinkBytes);
      if (took.size() % 4 == 3 || took.size() < 4)
        group.collective(make_collective(GSEL_COLLECTIVE_BROADCAST, &goes_on, &goes_on, 1, GSEL_I32, 0, 0));
      else
        goes_on = 1;
    }
    const double s = median_of(std::move(took));
    curve.points.emplace_back(call.bytes_sent, curve.points.empty() ? s : std::max(s, curve.points.back().second));
  }
  return curve;
}

// ---- messages ------------------------------------------------------------------------------------------------------

constexpr double kComputes = 4e-3;  // computation between sends: longer than a quantum of the scheduler

void compute_for(double seconds) {
  for (const double at = os::now_seconds(); os::now_seconds() - at < seconds;) continue;
}

// A sender starts two messages before it continues computing; the receiver waits for both. Returns the receiver's
// seconds per message. All ranks of a host have the same clock.
double time_pair(Communicator& comm, std::vector<float>& memory, uint64_t elems) {
  double sent = 0, both = 0;
  const auto message = [&](gsel_collective_kind kind, size_t i) {
    float* at = memory.data() + i * elems;
    return make_collective(kind, kind == GSEL_COLLECTIVE_SEND ? at : nullptr,
                           kind == GSEL_COLLECTIVE_SEND ? nullptr : at, elems, GSEL_F32, 0, 1 - comm.rank());
  };
  comm.collective(make_collective(GSEL_COLLECTIVE_BARRIER, nullptr, nullptr, 0, GSEL_U8));
  if (comm.rank() == 0) {
    CallRequest first(comm, message(GSEL_COLLECTIVE_SEND, 0)), second(comm, message(GSEL_COLLECTIVE_SEND, 1));
    compute_for(kComputes / 4);
    sent = os::now_seconds();
    first.start();
    second.start();
    compute_for(kComputes);
    first.wait();
    second.wait();
  } else {
    CallRequest first(comm, message(GSEL_COLLECTIVE_RECV, 0)), second(comm, message(GSEL_COLLECTIVE_RECV, 1));
    first.start();
    second.start();
    first.wait();
    second.wait();
    both = os::now_seconds();
  }
  comm.collective(make_collective(GSEL_COLLECTIVE_BROADCAST, &sent, &sent, 1, GSEL_F64, 0, 0));
  return std::max(both - sent, 0.0) / 2;
}

// Takes the mean: some receivers wait for the scheduler of the sender's CPU, others do not.
Curve time_messages(Communicator& comm, double seconds, std::vector<float>& memory) {
  Curve curve;
  const double each = seconds / static_cast<double>(std::size(kMessageBytes));
  const auto n = std::max(static_cast<int32_t>(each / (1.5 * kComputes)), 4);
  for (uint64_t bytes : kMessageBytes) {
    double sum = 0;
    for (int32_t i = 0; i < n; ++i) sum += time_pair(comm, memory, bytes / sizeof(float)) / n;
    comm.collective(make_collective(GSEL_COLLECTIVE_BROADCAST, &sum, &sum, 1, GSEL_F64, 0, 1));
    curve.points.emplace_back(static_cast<double>(bytes),
                              curve.points.empty() ? sum : std::max(sum, curve.points.back().second));
  }
  return curve;
}

// From a message to the wake-up of its sleeping receiver.
double time_wake(Communicator& comm, double seconds) {
  std::vector<double> took;
  const auto n = std::max<int32_t>(static_cast<int32_t>(seconds / kComputes * 4), 5);
  for (int32_t i = 0; i < n; ++i) {
    double sent = 0;
    if (comm.rank() == 0) {
      compute_for(kComputes / 4);
      sent = os::now_seconds();
      comm.collective(make_collective(GSEL_COLLECTIVE_SEND, &sent, nullptr, 1, GSEL_F64, 0, 1));
    } else {
      comm.collective(make_collective(GSEL_COLLECTIVE_RECV, nullptr, &sent, 1, GSEL_F64, 0, 0));
      took.push_back(os::now_seconds() - sent);
    }
  }
  double median = took.empty() ? 0 : median_of(std::move(took));
  comm.collective(make_collective(GSEL_COLLECTIVE_BROADCAST, &median, &median, 1, GSEL_F64, 0, 1));
  return std::max(median, 0.0);
}

}  // namespace

void time_links(Communicator& comm, double seconds, Measured& measured) {
  const int32_t n = comm.world_size();
  std::vector<float> a(kLinkBytes[std::size(kLinkBytes) - 1] / sizeof(float) + 64), b(a.size());
  measured.copy_byte_s = time_copies(a, b);
  std::vector<int32_t> sizes;
  for (int32_t k = 2; k < n; k *= 2) sizes.push_back(k);
  if (n > 1) sizes.push_back(n);
  for (int32_t k : sizes) {
    std::optional<Communicator> group = comm.split_inside(comm.rank() < k ? 0 : 1, comm.rank(), "measured links");
    if (comm.rank() < k && k == 2) {
      measured.wake_s = time_wake(*group, seconds / 20);
      measured.links[{2, GSEL_COLLECTIVE_SEND}] = time_messages(*group, seconds / 4, a);
    }
    if (comm.rank() < k)
      for (gsel_collective_kind kind : kLinkKinds)
        measured.links[{k, kind}] =
            time_link(*group, kind, seconds * 0.7 / static_cast<double>(sizes.size() * std::size(kLinkKinds)), a, b);
    comm.collective(make_collective(GSEL_COLLECTIVE_BARRIER, nullptr, nullptr, 0, GSEL_U8));
  }
}

}  // namespace gsel::plan
