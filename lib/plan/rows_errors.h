// plan/rows_errors.h: forecast errors of published rows, by source. Does not know how the forecasts were made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/rows.h"

namespace gsel::plan {

struct Forecast {
  const PublishedRow* row;
  RowCase run;
  Metric metric;
  double value = 0, forecast = 0;
  double ratio = 0;  // forecast over measured seconds; 0: not a time
  bool known = false;
  double error() const {
    if (metric.quantity == Quantity::fits) return forecast == value ? 0 : 1;
    return forecast / value - 1;
  }
  bool has_error() const { return known && (value > 0 || metric.quantity == Quantity::fits); }
  double seconds() const { return metric.inverse ? metric.scale / value : value / metric.scale; }
  const std::string& device() const {
    static const std::string kNone;
    return run.cluster.kinds.empty() ? kNone : run.cluster.kinds[0].device_class;
  }
};

struct Regret {
  double sum = 0, most = 0;
  int64_t groups = 0;
};

// The forecast errors of one source's rows.
struct SourceErrors {
  std::string source;
  int64_t n = 0;  // without `fits` rows, which have no numeric error
  int64_t n_fits = 0, n_fits_wrong = 0;
  double mape = 0, worst = 0;
  std::optional<double> fitted_mape, spearman;
  Regret regret;
};

// fitted: errors of the rows after scaling by a factor from the other rows.
SourceErrors errors_of(const std::string& source, const std::vector<Forecast>& all,
                       const std::vector<std::optional<double>>& fitted);
Json source_json(const SourceErrors& errors);
std::string source_line(const SourceErrors& errors);

}  // namespace gsel::plan
