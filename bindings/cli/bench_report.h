// bench_report.h: prints rows of `gsel bench`, as a table while they arrive, or as JSON.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>

#include "bench_rank.h"

namespace gsel::cli {

class BenchTable {
 public:
  explicit BenchTable(const BenchPlan& plan) : plan_(plan) {}
  BenchListener listener();

 private:
  using Clock = std::chrono::steady_clock;
  void begin(double memory_bandwidth) const;
  void progress(const BenchKind& kind, uint64_t bytes);
  void row(const BenchRow& row);
  const BenchPlan& plan_;
  Clock::time_point started_ = Clock::now();
  size_t done_ = 0;
  bool shown_ = false;  // a progress line is visible
};

nlohmann::ordered_json bench_json(const BenchPlan& plan, const BenchResult& result, int32_t ranks, bool threads);
const char* bench_op_name(gsel_op op);
gsel_op bench_op(const std::string& name);        // 0: unknown
gsel_dtype bench_dtype(const std::string& name);  // 0: unknown

}  // namespace gsel::cli
