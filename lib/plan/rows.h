// plan/rows.h: published measurements as a table with one line per run, and the planner's forecast for each. An empty
// column gets the usual value, or the one with the best forecast; bench/results/plan.md has the rules. Does not search
// layouts beyond that, and does not know the printed plan.
#pragma once

#include <cctype>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cluster.h"
#include "plan/constants.h"
#include "plan/layout.h"
#include "plan/recipe.h"
#include "plan/transformer.h"
#include "plan/workload.h"

namespace gsel::plan {

constexpr int64_t kMostRowRanks = 1'000'000;

// One line of the table: fields by column name.
struct PublishedRow {
  std::string file;
  int32_t line = 0;
  std::map<std::string, std::string, std::less<>> fields;
  std::map<std::string, int32_t, std::less<>> columns;  // first character of each, from 1

  const std::string& text(std::string_view column) const;  // empty if missing
  bool has(std::string_view column) const { return !text(column).empty(); }
  // The number in a column; `absent` if empty. GSEL_ERR_PARSE with file, line and column for other text or a number
  // below `least`.
  double number(std::string_view column, double least, double absent) const;
  int64_t whole(std::string_view column, int64_t least, int64_t absent, int64_t most = 1'000'000'000) const;
  // "4+1": the sum over several kinds of devices; 0 if empty.
  int64_t sum(std::string_view column, int64_t most) const;
  [[noreturn]] void refuse(std::string_view column, const std::string& why) const;
};

// Tab-separated text whose first line names the columns. GSEL_ERR_PARSE with file, line and column.
std::vector<PublishedRow> read_rows(std::string_view text, const std::string& file);

enum class Quantity : uint8_t { unknown, step, memory, fits };

// A metric's quantity, and the conversion from seconds per step or bytes per rank.
struct Metric {
  Quantity quantity = Quantity::unknown;
  double scale = 1;  // value = scale * quantity, or scale / quantity
  bool inverse = false;
};

// A run as the planner sees it: the known facts, and the layouts from which the forecast chooses.
struct RowCase {
  Transformer shape;
  Workload workload;
  Cluster cluster;
  Recipe recipe{};
  Runtime runtime = Runtime::plain;
  double selective_share = 0;  // as in Constants
  bool hides_tensor = false;   // collectives of the tensor axis overlap products, whatever the runtime
  Constants constants;
  Shares shares;
  std::vector<Layout> layouts;
  int64_t gpus = 1;
  bool one_process = false;  // torch.nn.DataParallel: one process drives all devices
  double busy = 1;           // share of the time in which steps run
  std::string why;           // why there is no forecast, with the missing column; empty: there is one
};

RowCase case_of(const PublishedRow& row);
// The constants of a class, adjusted for the run.
Constants constants_of(const ClassConstants& fitted, const RowCase& run);

// Seconds per step of the fastest layout that fits, or, if none fits, of the fastest of all.
double step_of(const RowCase& run, const Constants& constants, Layout* chosen = nullptr);

// What the metric of a line measures; unknown if the planner does not support it.
Metric metric_of(const PublishedRow& row, const RowCase& run);
// Bytes, or 1 and 0 for `fits`; sets run.why when the line lacks something.
double memory_of(const PublishedRow& row, RowCase& run);

// The calibration from measurements of one class of devices: a single factor.
struct Calibration {
  std::string device_class;
  int64_t rows = 0;
  double scale = 1;                          // median of measured / forecast: for compute_scale and link_scale
  double error_before = 0, error_after = 0;  // mean relative errors of the same rows
  Covered covered{};
};
std::vector<Calibration> calibrations(std::string_view text, const std::string& file);

// JSON: rows, each with row, metric, value, forecast, error and fitted_error; sources with MAPE, Spearman's rank
// correlation and regret. summary: receives a line of text for each source.
std::string rows_json(std::string_view text, const std::string& file, std::string* summary = nullptr);

// ---- text helpers of rows_*.cc ----

inline bool mentions(const std::string& text, std::string_view word) {
  return text.find(word) != text.npos;
}

inline std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// ---- devices and links, as tables write them: rows_case.cc ----------------------------------------------------------

// Bytes per second of a node from "8x400 Gb/s", "1600 Gbps" (text in lower case); the slowest if there are several.
// "400 Gb/s per GPU" is multiplied by the number of devices.
std::optional<double> network_rate(const std::string& text, double devices);
// Throws GSEL_ERR_ARG with the nearest known names.
DeviceKind device_of(std::string_view text);
// "[[A, B], [A, A]]" in a note: names of devices, or indexes into the names of column gpu.
std::vector<std::vector<std::string>> list_of_lists(std::string_view note);

}  // namespace gsel::plan
