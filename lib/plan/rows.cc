// plan/rows.cc: forecasts for a table of measurements, each in its own unit, and their errors: as they are, after one
// factor per class of devices from the other rows, and by source. Sums are in the order of the rows.
#include "plan/rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace gsel::plan {
namespace {

// ---- errors of forecasts, by source --------------------------------------------------------------------------------

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

// The rank of each value, from 1; equal values share the mean rank.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i + 1;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (size_t j = i; j < end; ++j) out[order[j]] = (static_cast<double>(i + end) + 1) / 2;
    i = end;
  }
  return out;
}

std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b) {
  const size_t n = a.size();
  if (n < 3) return std::nullopt;
  const auto ra = ranks(a), rb = ranks(b);
  const double mean = (static_cast<double>(n) + 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < n; ++i) {
    ab += (ra[i] - mean) * (rb[i] - mean);
    aa += (ra[i] - mean) * (ra[i] - mean);
    bb += (rb[i] - mean) * (rb[i] - mean);
  }
  if (!(aa > 0 && bb > 0)) return std::nullopt;
  return ab / std::sqrt(aa * bb);
}

// Key of runs with the same work and devices, among which the fastest forecast is compared with the fastest run.
std::string work_of(const Forecast& f) {
  std::string key;
  for (const char* column : {"source", "model", "layers", "hidden", "seq", "gbs", "gpus", "gpu", "precision", "metric"})
    key += f.row->text(column) + "\t";
  return key;
}

Regret regret_of(const std::vector<Forecast>& all, const std::vector<size_t>& members) {
  std::map<std::string, std::vector<size_t>> groups;
  for (const size_t i : members) groups[work_of(all[i])].push_back(i);
  Regret out;
  for (const auto& [key, rows] : groups) {
    if (rows.size() < 2) continue;
    size_t chosen = rows[0], best = rows[0];
    const auto forecast_s = [&](size_t i) { return all[i].ratio * all[i].seconds(); };
    for (const size_t i : rows) {
      if (forecast_s(i) < forecast_s(chosen)) chosen = i;
      if (all[i].seconds() < all[best].seconds()) best = i;
    }
    const double regret = all[chosen].seconds() / all[best].seconds() - 1;
    out.sum += regret, out.most = std::max(out.most, regret), ++out.groups;
  }
  return out;
}

SourceErrors errors_of(const std::string& source, const std::vector<Forecast>& all,
                       const std::vector<std::optional<double>>& fitted) {
  SourceErrors out;
  out.source = source;
  int64_t n_fitted = 0;
  double sum = 0, sum_fitted = 0;
  std::vector<double> measured, forecast;
  std::vector<size_t> times;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].has_error() || all[i].row->text("source") != source) continue;
    const double error = std::abs(all[i].error());
    if (all[i].metric.quantity == Quantity::fits) {
      ++out.n_fits, out.n_fits_wrong += error > 0 ? 1 : 0;
      continue;
    }
    ++out.n, sum += error, out.worst = std::max(out.worst, error);
    if (fitted[i]) ++n_fitted, sum_fitted += std::abs(*fitted[i]);
    if (!(all[i].ratio > 0)) continue;
    times.push_back(i);
    measured.push_back(all[i].seconds());
    forecast.push_back(all[i].ratio * all[i].seconds());
  }
  if (out.n > 0) out.mape = sum / static_cast<double>(out.n);
  if (n_fitted > 0) out.fitted_mape = sum_fitted / static_cast<double>(n_fitted);
  out.spearman = spearman(measured, forecast);
  out.regret = regret_of(all, times);
  return out;
}

Json source_json(const SourceErrors& e) {
  Json out{{"source", e.source}, {"rows", e.n}};
  if (e.n > 0) out.set("mape", e.mape), out.set("worst", e.worst);
  if (e.fitted_mape) out.set("fitted_mape", *e.fitted_mape);
  if (e.spearman) out.set("spearman", *e.spearman);
  if (e.regret.groups > 0) {
    out.set("regret", e.regret.sum / static_cast<double>(e.regret.groups));
    out.set("worst_regret", e.regret.most);
    out.set("groups", e.regret.groups);
  }
  if (e.n_fits > 0) out.set("fits", {{"rows", e.n_fits}, {"right", e.n_fits - e.n_fits_wrong}});
  return out;
}

std::string source_line(const SourceErrors& e) {
  const auto percent = [](const std::optional<double>& share) {
    return share ? fmt::format("{:.1f} %", *share * 100) : std::string("-");
  };
  const std::optional<double> regret =
      e.regret.groups > 0 ? std::optional(e.regret.sum / static_cast<double>(e.regret.groups)) : std::nullopt;
  const std::string fits =
      e.n_fits > 0 ? fmt::format("{} of {}", e.n_fits - e.n_fits_wrong, e.n_fits) : std::string("-");
  return fmt::format("{:>5}  {:>7}  {:>7}  {:>7}  {:>8}  {:>7}  {:>12}  {}\n", e.n, e.n > 0 ? percent(e.mape) : "-",
                     e.n > 0 ? percent(e.worst) : "-", percent(e.fitted_mape),
                     e.spearman ? fmt::format("{:.3f}", *e.spearman) : "-", percent(regret), fits,
                     e.source.empty() ? "(no source)" : e.source);
}

// ---- forecasts -----------------------------------------------------------------------------------------------------

constexpr size_t kRowsForScalar = 3;
constexpr size_t kReasonsShown = 10;

// The name of a row's class of devices; with several kinds, of all classes.
std::string class_of(const Forecast& f) {
  std::string name = f.device();
  for (size_t i = 1; i < f.run.cluster.kinds.size(); ++i) name += "+" + f.run.cluster.kinds[i].device_class;
  return name;
}

Forecast forecast_row(const PublishedRow& row) {
  Forecast out{&row, case_of(row), {}, row.number("value", 0, 0)};
  out.metric = metric_of(row, out.run);
  if (out.metric.quantity == Quantity::unknown) {
    out.run.why = fmt::format(
        "row {}: column metric: \"{}\" is not known; accepted are iteration_s, step_time_s, train_N_steps_s, "
        "tokens_per_s, "
        "samples_per_s, tflops, mfu and hfu, alone or with _per_gpu, fits, and bytes of model_state, params_grads_opt, "
        "activation, static, peak or after_initialize with their unit",
        row.has("row") ? row.text("row") : fmt::format("on line {}", row.line), row.text("metric"));
    return out;
  }
  if (out.metric.quantity == Quantity::step) {
    if (!out.run.why.empty()) return out;
    const double seconds = step_of(out.run, out.run.constants);
    out.forecast = out.metric.inverse ? out.metric.scale / seconds : out.metric.scale * seconds;
    if (out.value > 0) out.ratio = seconds / out.seconds();
  } else {
    out.forecast = out.metric.scale * memory_of(row, out.run);
    if (!out.run.why.empty()) return out;
  }
  out.known = true;
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// The factor from the other rows of a class: median of measured over forecast time.
std::optional<double> scalar_of_others(const std::vector<Forecast>& all, const std::vector<size_t>& members,
                                       size_t self) {
  if (members.size() < kRowsForScalar) return std::nullopt;
  std::vector<double> ratios;
  for (const size_t other : members)
    if (other != self) ratios.push_back(1 / all[other].ratio);
  return median(std::move(ratios));
}

std::vector<Forecast> forecasts(const std::vector<PublishedRow>& rows) {
  std::vector<Forecast> all;
  all.reserve(rows.size());
  for (const PublishedRow& row : rows) all.push_back(forecast_row(row));
  return all;
}

// Why rows have no forecast; names the first ones only.
std::string without_forecast(const std::vector<Forecast>& all) {
  std::string text;
  size_t n = 0;
  for (const Forecast& f : all) {
    if (f.known) continue;
    if (n++ < kReasonsShown) text += f.run.why + "\n";
  }
  if (n == 0) return {};
  if (n > kReasonsShown) text += fmt::format("{} more; --json has the reason of each row\n", n - kReasonsShown);
  return fmt::format("\n{} without a forecast:\n", with_noun(n, "row")) + text;
}

// Rows with a time, by class of devices.
std::map<std::string, std::vector<size_t>> by_class(const std::vector<Forecast>& all) {
  std::map<std::string, std::vector<size_t>> out;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].ratio > 0) out[class_of(all[i])].push_back(i);
  return out;
}

}  // namespace

std::vector<Calibration> calibrations(std::string_view text, const std::string& file) {
  const std::vector<PublishedRow> rows = read_rows(text, file);
  const std::vector<Forecast> all = forecasts(rows);
  std::vector<Calibration> out;
  for (const auto& [device_class, members] : by_class(all)) {
    std::vector<double> ratios;
    for (const size_t i : members) ratios.push_back(1 / all[i].ratio);
    Calibration one{device_class, static_cast<int64_t>(members.size()), median(std::move(ratios))};
    for (const size_t i : members) {
      const Layout& l = all[i].run.layouts.front();
      one.covered.pipeline |= l.pipeline > 1;
      one.covered.nodes |= l.ranks() > all[i].run.cluster.per_node;
      one.covered.recompute |= l.recompute != Recompute::none;
      one.covered.offload |= l.offload != Offload::none;
      one.error_before += std::abs(all[i].ratio - 1) / static_cast<double>(one.rows);
      one.error_after += std::abs(all[i].ratio * one.scale - 1) / static_cast<double>(one.rows);
    }
    out.push_back(std::move(one));
  }
  return out;
}

std::string rows_json(std::string_view text, const std::string& file, std::string* summary) {
  const std::vector<PublishedRow> rows = read_rows(text, file);
  const std::vector<Forecast> all = forecasts(rows);
  const auto classes = by_class(all);

  Json list = Json::array();
  std::vector<std::optional<double>> fitted(all.size());
  std::vector<std::string> sources;
  for (size_t i = 0; i < all.size(); ++i) {
    const Forecast& f = all[i];
    Json object = Json::object();
    double number = 0;
    const std::string& id = f.row->text("row");
    if (id.empty())
      object.set("row", f.row->line);
    else if (id.find_first_not_of("0123456789") == id.npos && id.size() < 16)
      number = f.row->number("row", 0, 0), object.set("row", static_cast<int64_t>(number));
    else
      object.set("row", id);
    object.set("metric", f.row->text("metric"));
    object.set("value", f.value);
    if (f.known) {
      object.set("forecast", f.forecast);
      if (f.has_error()) object.set("error", f.error());
      if (f.ratio > 0) {
        if (const auto scalar = scalar_of_others(all, classes.at(class_of(f)), i)) {
          fitted[i] = f.metric.inverse ? f.forecast / *scalar / f.value - 1 : f.forecast * *scalar / f.value - 1;
          object.set("fitted_error", *fitted[i]);
        }
        object.set("calibrated", f.run.constants.calibrated());
      }
    } else {
      object.set("why", f.run.why);
    }
    list.push(std::move(object));
    const std::string& source = f.row->text("source");
    if (std::find(sources.begin(), sources.end(), source) == sources.end()) sources.push_back(source);
  }
  Json by_source = Json::array();
  std::string lines = fmt::format("{:>5}  {:>7}  {:>7}  {:>7}  {:>8}  {:>7}  {:>12}  source\n", "rows", "MAPE", "worst",
                                  "fitted", "Spearman", "regret", "fits right");
  for (const std::string& source : sources) {
    const SourceErrors errors = errors_of(source, all, fitted);
    by_source.push(source_json(errors));
    lines += source_line(errors);
  }
  if (summary) *summary = lines + without_forecast(all);
  Json out{{"rows", std::move(list)}, {"sources", std::move(by_source)}};
  return out.on_lines(2);
}

}  // namespace gsel::plan
