// bench_rank.h: one rank of `gsel bench`: makes the calls, times them, checks the results. Does not know how ranks are
// started or how rows are shown.
#pragma once

#include <gsel/comm.h>

#include <functional>
#include <string>
#include <vector>

#include "bench_call.h"

namespace gsel::cli {

struct BenchPlan {
  std::vector<const BenchKind*> kinds;
  uint64_t least = 8, most = uint64_t{64} << 20;  // bytes
  double factor = 2;
  gsel_dtype dtype = GSEL_F32;
  gsel_op op = GSEL_SUM;
  int32_t root = 0;
  bool in_place = false, out_of_place = true, registered = false, check = true;
  int64_t iterations = 0;  // 0: as many as fit in seconds_per_row
  double seconds_per_row = 0.25;
  int64_t warmup = 5;
};
std::vector<uint64_t> sizes_of(const BenchPlan& plan, const BenchKind& kind);

struct BenchRow {
  const BenchKind* kind = nullptr;
  bool in_place = false;
  uint64_t bytes = 0, count = 0, wrong = 0;
  int64_t iterations = 0;
  double seconds = 0, p99_seconds = 0;                // of the slowest rank: median, 99th percentile
  double algorithm_bandwidth = 0, bus_bandwidth = 0;  // bytes per second
  double efficiency = 0;                              // byte floor over (time * memory bandwidth); 0: too small
};

struct BenchResult {
  double memory_bandwidth = 0;  // bytes per second, read and written, while all ranks copy
  std::vector<BenchRow> rows;
};

// `tell` is called with each finished row, `next` before each row. The plan is the same on every rank.
struct BenchListener {
  std::function<void(double memory_bandwidth)> begin = [](double) {};
  std::function<void(const BenchKind& kind, uint64_t bytes)> next = [](const BenchKind&, uint64_t) {};
  std::function<void(const BenchRow& row)> row = [](const BenchRow&) {};
};
BenchResult run_bench(gsel_comm* comm, const BenchPlan& plan, const BenchListener& listener);

}  // namespace gsel::cli
