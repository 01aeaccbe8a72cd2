// plan/rows.cc: forecasts for a table of measurements, each in its own unit, and their errors: as they are, after one
// factor per class of devices from the other rows, and by source. Sums are in the order of the rows.
#include "plan/rows.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "plan/rows_errors.h"

namespace gsel::plan {
namespace {

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
