// bench_report.cc: see bench_report.h.
#include "bench_report.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client.h"

namespace gsel::cli {
namespace {

struct OpName {
  gsel_op op;
  const char* name;
};
constexpr OpName kOps[] = {{GSEL_SUM, "sum"}, {GSEL_PROD, "prod"}, {GSEL_MIN, "min"}, {GSEL_MAX, "max"},
                           {GSEL_AVG, "avg"}, {GSEL_BAND, "band"}, {GSEL_BOR, "bor"}, {GSEL_BXOR, "bxor"}};

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

std::string efficiency_text(double efficiency) {
  return efficiency > 0 ? formatted("%.0f%%", 100 * efficiency) : "-";
}

}  // namespace

const char* bench_op_name(gsel_op op) {
  for (const OpName& known : kOps)
    if (known.op == op) return known.name;
  return "unknown";
}

gsel_op bench_op(const std::string& name) {
  for (const OpName& known : kOps)
    if (name == known.name) return known.op;
  return 0;
}

gsel_dtype bench_dtype(const std::string& name) {
  for (gsel_dtype dtype = 1; gsel_dtype_bytes(dtype) > 0; ++dtype)
    if (name == gsel_dtype_name(dtype)) return dtype;
  return 0;
}

BenchListener BenchTable::listener() {
  return {[this](double memory_bandwidth) { begin(memory_bandwidth); },
          [this](const BenchKind& kind, uint64_t bytes) { progress(kind, bytes); },
          [this](const BenchRow& done) { row(done); }};
}

void BenchTable::begin(double memory_bandwidth) const {
  if (memory_bandwidth > 0)
    print(formatted("# memory: %.2f GB/s, read and written, all ranks copying at once\n", memory_bandwidth * 1e-9));
  print(formatted("%-15s %5s %12s %12s %7s %5s %4s %12s %12s %11s %11s %7s %7s\n", "operation", "place", "bytes",
                  "count", "type", "op", "root", "time us", "p99 us", "algbw GB/s", "busbw GB/s", "memory", "wrong"));
}

void BenchTable::row(const BenchRow& row) {
  ++done_;
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
  const char* op = row.kind->reduces ? bench_op_name(plan_.op) : "-";
  const std::string root = row.kind->rooted ? std::to_string(plan_.root) : "-";
  const std::string wrong = plan_.check ? std::to_string(row.wrong) : "-";
  print(formatted("%-15s %5s %12llu %12llu %7s %5s %4s %12.2f %12.2f %11.3f %11.3f %7s %7s\n", row.kind->name,
                  row.in_place ? "in" : "out", static_cast<unsigned long long>(row.bytes),
                  static_cast<unsigned long long>(row.count), gsel_dtype_name(plan_.dtype), op, root.c_str(),
                  row.seconds * 1e6, row.p99_seconds * 1e6, row.algorithm_bandwidth * 1e-9, row.bus_bandwidth * 1e-9,
                  efficiency_text(row.efficiency).c_str(), wrong.c_str()));
}

// Shows progress on a terminal only.
void BenchTable::progress(const BenchKind& kind, uint64_t bytes) {
  if (!isatty(2) || Clock::now() - started_ < std::chrono::seconds(1)) return;
  shown_ = true;
  std::fprintf(stderr, "\r\033[K%s done, now %s of %llu bytes", with_noun(done_, "row").c_str(), kind.name,
               static_cast<unsigned long long>(bytes));
}

nlohmann::ordered_json bench_json(const BenchPlan& plan, const BenchResult& result, int32_t ranks, bool threads) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const BenchRow& row : result.rows) {
    Json json{{"operation", row.kind->name}, {"in_place", row.in_place}, {"bytes", row.bytes}, {"count", row.count}};
    json["type"] = gsel_dtype_name(plan.dtype);
    json["op"] = row.kind->reduces ? Json(bench_op_name(plan.op)) : Json();
    json["root"] = row.kind->rooted ? Json(plan.root) : Json();
    json["iterations"] = row.iterations;
    json["seconds"] = row.seconds;
    json["p99_seconds"] = row.p99_seconds;
    json["algbw"] = row.algorithm_bandwidth;
    json["busbw"] = row.bus_bandwidth;
    json["efficiency"] = row.efficiency > 0 ? Json(row.efficiency) : Json();
    json["wrong"] = plan.check ? Json(row.wrong) : Json();
    rows.push_back(std::move(json));
  }
  Json json{{"gsel", gsel_version_text()}, {"ranks", ranks}, {"threads", threads}, {"registered", plan.registered}};
  json["memory_bandwidth"] = result.memory_bandwidth > 0 ? Json(result.memory_bandwidth) : Json();
  json["rows"] = std::move(rows);
  return json;
}

}  // namespace gsel::cli
