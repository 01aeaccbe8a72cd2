// bench_rank.cc: see bench_rank.h. Calls are made back to back, with one clock read between two, so a time includes no
// pause. A slow rank delays the others, so the slowest rank's figures are used.
#include "bench_rank.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "bench_data.h"
#include "client.h"

namespace gsel::cli {
namespace {

constexpr int64_t kLeastIterations = 5, kMostIterations = 5000;
constexpr uint64_t kLeastBytesToJudge = 64 << 10;  // smaller buffers stay in the nearest caches
constexpr uint64_t kAlign = 4096;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Private memory of a rank, or registered memory.
class Buffer {
 public:
  Buffer(gsel_comm* comm, uint64_t bytes, bool registered) : comm_(registered ? comm : nullptr) {
    const uint64_t rounded = (std::max<uint64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
    gsel_error* error = nullptr;
    if (registered)
      check(gsel_mem_alloc(comm, rounded, &data_, &error), &error);
    else if (!(data_ = std::aligned_alloc(kAlign, rounded)))
      refuse(GSEL_ERR_NOMEM, "no memory for a buffer of " + std::to_string(rounded) + " bytes");
    std::memset(data_, 0, rounded);  // touches the pages on this rank
  }
  ~Buffer() {
    if (comm_)
      gsel_mem_free(comm_, data_, nullptr);
    else
      std::free(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  gsel_comm* comm_;
  void* data_ = nullptr;
};

class Bench {
 public:
  Bench(gsel_comm* comm, const BenchPlan& plan, const BenchListener& listener)
      : comm_(comm),
        plan_(plan),
        listener_(listener),
        send_(comm, plan.most, plan.registered),
        recv_(comm, plan.most, plan.registered) {}

  BenchResult run() {
    BenchResult result;
    if (plan_.most >= kLeastBytesToJudge) bandwidth_ = result.memory_bandwidth = measure_memory();
    listener_.begin(bandwidth_);
    for (const BenchKind* kind : plan_.kinds) {
      const BenchData data(plan_.dtype, kind->reduces, plan_.op, size());
      for (uint64_t bytes : sizes_of(plan_, *kind)) {
        listener_.next(*kind, bytes);
        const BenchCall call(*kind, bytes, plan_.dtype, plan_.op, plan_.root, rank(), size());
        for (bool in_place : {false, true}) {
          if (in_place ? !plan_.in_place || !kind->in_place : !plan_.out_of_place && kind->in_place) continue;
          result.rows.push_back(measure(call, data, in_place));
          listener_.row(result.rows.back());
        }
      }
    }
    return result;
  }

 private:
  int32_t rank() const { return gsel_comm_rank(comm_); }
  int32_t size() const { return gsel_comm_world_size(comm_); }

  void make(const gsel_collective& call) const {
    gsel_error* error = nullptr;
    check(gsel_comm_run(comm_, &call, &error), &error);
  }
  template <class T>
  T of_all(T value, gsel_dtype dtype, gsel_op op) const {
    gsel_error* error = nullptr;
    check(gsel_allreduce(comm_, &value, &value, 1, dtype, op, &error), &error);
    return value;
  }
  double slowest(double seconds) const { return of_all(seconds, GSEL_F64, GSEL_MAX); }
  void barrier() const {
    gsel_error* error = nullptr;
    check(gsel_barrier(comm_, &error), &error);
  }

  // All ranks copy at the same time; the median of several rounds.
  double measure_memory() const {
    const auto memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    const auto bytes = static_cast<uint64_t>(std::min(64.0 * (1 << 20), memory / 16 / size()));
    const Buffer from(comm_, bytes, false), to(comm_, bytes, false);
    std::vector<double> rounds;
    for (int i = 0; i < 5; ++i) {
      barrier();
      const double begin = now();
      std::memcpy(to.data(), from.data(), bytes);
      rounds.push_back(slowest(now() - begin));
    }
    std::sort(rounds.begin(), rounds.end());
    return 2.0 * static_cast<double>(bytes) * size() / rounds[rounds.size() / 2];
  }

  struct Buffers {
    char *send, *recv;
  };
  Buffers buffers(const BenchCall& call, bool in_place) const {
    if (!in_place) return {send_.data(), recv_.data()};
    const uint64_t offset = call.in_place_offset() * gsel_dtype_bytes(plan_.dtype);
    if (call.send_is_larger()) return {send_.data(), send_.data() + offset};
    return {recv_.data() + offset, recv_.data()};
  }

  uint64_t wrong_elements(const BenchCall& call, const BenchData& data, const Buffers& at) const {
    const size_t element = gsel_dtype_bytes(plan_.dtype);
    std::memset(at.recv, 0xa5, call.received() * element);
    data.fill(at.send, rank(), 0, call.sent());
    make(call.on(at.send, at.recv));
    uint64_t wrong = 0;
    for (const Segment& part : call.segments())
      wrong += data.wrong(at.recv + part.at * element, part.from, part.begin, part.count);
    return of_all(wrong, GSEL_U64, GSEL_SUM);
  }

  // A root's buffer for an in-place scatter, and the other ranks' buffers of a broadcast, are not refilled: timing does
  // not depend on their contents.
  BenchRow measure(const BenchCall& call, const BenchData& data, bool in_place) const {
    const Buffers at = buffers(call, in_place);
    const gsel_collective made = call.on(at.send, at.recv);
    BenchRow row{&call.kind(), in_place, call.bytes(), call.count()};
    if (plan_.check) row.wrong = wrong_elements(call, data, at);
    time(made, row);
    const auto bytes = static_cast<double>(row.bytes);
    row.algorithm_bandwidth = bytes / row.seconds;
    row.bus_bandwidth = row.algorithm_bandwidth * call.bus_factor();
    if (bandwidth_ > 0 && row.bytes >= kLeastBytesToJudge)
      row.efficiency = call.byte_floor(in_place) / (row.seconds * bandwidth_);
    return row;
  }

  void time(const gsel_collective& made, BenchRow& row) const {
    double begin = now(), last = 0;
    for (int64_t i = 0; i < std::max<int64_t>(plan_.warmup, 1); ++i) {
      begin = now();
      make(made);
      last = now() - begin;
    }
    row.iterations = plan_.iterations;
    if (row.iterations == 0)
      row.iterations =
          static_cast<int64_t>(std::clamp(plan_.seconds_per_row / std::max(slowest(last), 1e-9),
                                          static_cast<double>(kLeastIterations), static_cast<double>(kMostIterations)));
    std::vector<double> times(static_cast<size_t>(row.iterations));
    barrier();
    begin = now();
    for (double& seconds : times) {
      make(made);
      const double end = now();
      seconds = end - begin;
      begin = end;
    }
    std::sort(times.begin(), times.end());
    row.seconds = slowest(times[times.size() / 2]);
    row.p99_seconds = slowest(times[(times.size() * 99 + 99) / 100 - 1]);
  }

  gsel_comm* comm_;
  const BenchPlan& plan_;
  const BenchListener& listener_;
  Buffer send_, recv_;
  double bandwidth_ = 0;
};

}  // namespace

std::vector<uint64_t> sizes_of(const BenchPlan& plan, const BenchKind& kind) {
  if (kind.kind == GSEL_COLLECTIVE_BARRIER) return {0};
  std::vector<uint64_t> sizes;
  for (double size = static_cast<double>(plan.least); size <= static_cast<double>(plan.most); size *= plan.factor) {
    const auto bytes = static_cast<uint64_t>(size);
    if (sizes.empty() || bytes > sizes.back()) sizes.push_back(bytes);
  }
  return sizes;
}

BenchResult run_bench(gsel_comm* comm, const BenchPlan& plan, const BenchListener& listener) {
  return Bench(comm, plan, listener).run();
}

}  // namespace gsel::cli
