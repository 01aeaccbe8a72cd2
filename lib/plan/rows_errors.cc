// plan/rows_errors.cc: see rows_errors.h. Sums are in the order of the rows.
#include "plan/rows_errors.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace gsel::plan {
namespace {

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

}  // namespace

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

}  // namespace gsel::plan
