// plan/rows.h: published measurements as a table with one line for each run, and what the planner forecasts for each. A
// column that a line leaves empty gets what a practitioner takes, or what the forecast finds best;
// bench/results/plan.md has the rules. Does not search layouts beyond that, and does not know the printed plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cluster.h"
#include "plan/constants.h"
#include "plan/layout.h"
#include "plan/memory.h"
#include "plan/recipe.h"
#include "plan/time.h"
#include "plan/transformer.h"
#include "plan/workload.h"

namespace gsel::plan {

constexpr int64_t kMostRowRanks = 1'000'000;

// One line of the table: texts by the name of their column.
struct PublishedRow {
  std::string file;
  int32_t line = 0;
  std::map<std::string, std::string, std::less<>> fields;
  std::map<std::string, int32_t, std::less<>> columns;  // where each begins, from 1

  const std::string& text(std::string_view column) const;  // empty where there is none
  bool has(std::string_view column) const { return !text(column).empty(); }
  // GSEL_ERR_PARSE with file, line and column where it is no number from `least` on; `absent` where it is empty.
  double number(std::string_view column, double least, double absent) const;
  int64_t whole(std::string_view column, int64_t least, int64_t absent, int64_t most = 1'000'000'000) const;
  // "4+1": what several kinds of device have together; 0 where it is empty.
  int64_t sum(std::string_view column, int64_t most) const;
  [[noreturn]] void refuse(std::string_view column, const std::string& why) const;
};

// Tab-separated text whose first line names the columns. GSEL_ERR_PARSE with file, line and column.
std::vector<PublishedRow> read_rows(std::string_view text, const std::string& file);

enum class Quantity : uint8_t { unknown, step, memory, fits };

// What a metric is and how it follows from seconds of a step or bytes of a rank.
struct Metric {
  Quantity quantity = Quantity::unknown;
  double scale = 1;  // value = scale * quantity, or scale / quantity
  bool inverse = false;
};

// A run as the planner sees it: what is known of it, and the layouts among which the forecast chooses.
struct RowCase {
  Transformer shape;
  Workload workload;
  Cluster cluster;
  Recipe recipe{};
  Runtime runtime = Runtime::plain;
  double selective_share = 0;  // as in Constants
  bool hides_tensor = false;   // collectives of the tensor axis run beside products, whatever else does
  Constants constants;
  Shares shares;
  std::vector<Layout> layouts;
  int64_t gpus = 1;
  bool one_process = false;  // torch.nn.DataParallel: one process drives all devices
  double busy = 1;           // share of the time that steps take
  std::string why;           // it cannot be forecast; with the column that lacks
};

RowCase case_of(const PublishedRow& row);
// The constants of a class, as the run needs them.
Constants constants_of(const ClassConstants& fitted, const RowCase& run);

// Seconds of a step of the fastest of the layouts that fit; of all where none does.
double step_of(const RowCase& run, const Constants& constants, Layout* chosen = nullptr);

// What a line's metric measures; unknown where the planner has no word for it.
Metric metric_of(const PublishedRow& row, const RowCase& run);
// Bytes, or 1 and 0 for `fits`; says in run.why what a line lacks.
double memory_of(const PublishedRow& row, RowCase& run);

// What the measurements of a class of devices say of its constants: one scalar.
struct Calibration {
  std::string device_class;
  int64_t rows = 0;
  double scale = 1;                          // measured over forecast, in the middle: for compute_scale and link_scale
  double error_before = 0, error_after = 0;  // mean relative errors of the same rows
  Covered covered{};
};
std::vector<Calibration> calibrations(std::string_view text, const std::string& file);

// JSON: rows, each with row, metric, value, forecast, error and fitted_error; sources with MAPE, Spearman's rank
// correlation and regret. summary: gets a line of text for each source.
std::string rows_json(std::string_view text, const std::string& file, std::string* summary = nullptr);

}  // namespace gsel::plan
