// bench/plan/fit.cc: fits the constants of the planner's time model to published measurements and prints how far its
// forecasts are off, by source. Rows that are left out of a fit are those whose number modulo 4 is 3, so that a fit can
// be checked on a quarter that it has not seen.
//
//     bench_plan_fit FILE.tsv...                         errors of the constants in lib/plan/constants.cc
//     bench_plan_fit --class a100 --free products,flash FILE.tsv...   what a fit changes; --all: of every row
//
// The fit is least squares of the logarithm of forecast over measured, each weighed down when it is far off (soft L1),
// with each constant drawn to its default in lib/plan/constants.h: a factor of e^0.3 counts as much as an error of 4 %.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "plan/rows.h"
#include "plan/time.h"
#include "support/gpt_shape.h"

namespace {

using namespace gsel::plan;

struct Named {
  const char* name;
  double Constants::*base = nullptr;
  double ClassConstants::*own = nullptr;
};

constexpr Named kNamed[] = {
    {"products", &Constants::products},
    {"eight_bit", &Constants::eight_bit},
    {"product_traffic", &Constants::product_traffic},
    {"product_s", &Constants::product_s},
    {"flash", &Constants::flash},
    {"score_passes", &Constants::score_passes},
    {"element_passes", &Constants::element_passes},
    {"logit_passes", &Constants::logit_passes},
    {"optimizer_passes", &Constants::optimizer_passes},
    {"host_layer_s", &Constants::host_layer_s},
    {"host_tensor_s", &Constants::host_tensor_s},
    {"host_rank_s", &Constants::host_rank_s},
    {"host_backward", &Constants::host_backward},
    {"inside", &Constants::inside},
    {"network", &Constants::network},
    {"message", &Constants::message},
    {"call_s", &Constants::call_s},
    {"inside_hops", &Constants::inside_hops},
    {"network_hops", &Constants::network_hops},
    {"ring_hops", &Constants::ring_hops},
    {"message_s", &Constants::message_s},
    {"gather_exposed", &Constants::gather_exposed},
    {"step_s", &Constants::step_s},
    {"compiled_elements", nullptr, &ClassConstants::compiled_elements},
    {"overlapped_flash", nullptr, &ClassConstants::overlapped_flash},
    {"tensor_hidden", nullptr, &ClassConstants::tensor_hidden},
    {"by_parameter_calls", nullptr, &ClassConstants::by_parameter_calls},
    {"by_parameter_network", nullptr, &ClassConstants::by_parameter_network},
    {"host_share", nullptr, &ClassConstants::host_share},
};

double& value_of(ClassConstants& fitted, const Named& named) {
  return named.base ? fitted.base.*named.base : fitted.*named.own;
}

struct Sample {
  RowCase run;
  std::string source;
  std::string row;
  double seconds = 0, weight = 1;
  bool held_out = false;
};

double ratio_of(const Sample& sample, const ClassConstants& fitted) {
  return step_of(sample.run, constants_of(fitted, sample.run)) / sample.seconds;
}

// Solves a x = b, symmetric and positive, in place.
void solve(std::vector<std::vector<double>>& a, std::vector<double>& b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j < n; ++j) {
      const double f = a[j][i] / a[i][i];
      for (size_t k = i; k < n; ++k) a[j][k] -= f * a[i][k];
      b[j] -= f * b[i];
    }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
}

class Fit {
 public:
  Fit(std::vector<Sample>& samples, ClassConstants from, std::vector<Named> free)
      : samples_(samples), from_(from), free_(std::move(free)) {
    ClassConstants usual;
    for (const Named& named : free_) offset_.push_back(std::log(value_of(from_, named) / value_of(usual, named)));
  }

  ClassConstants run() {
    std::vector<double> at(free_.size());
    double damping = 1e-2, best = cost(at);
    for (int round = 0; round < 60; ++round) {
      const auto here = residuals(at);
      std::vector<std::vector<double>> jacobian;
      for (size_t j = 0; j < at.size(); ++j) {
        auto moved = at;
        moved[j] += 1e-4;
        auto there = residuals(moved);
        for (size_t i = 0; i < there.size(); ++i) there[i] = (there[i] - here[i]) / 1e-4;
        jacobian.push_back(std::move(there));
      }
      bool better = false;
      for (int tries = 0; tries < 8 && !better; ++tries) {
        std::vector<std::vector<double>> a(at.size(), std::vector<double>(at.size()));
        std::vector<double> b(at.size());
        for (size_t j = 0; j < at.size(); ++j) {
          for (size_t k = 0; k < at.size(); ++k)
            for (size_t i = 0; i < here.size(); ++i) a[j][k] += jacobian[j][i] * jacobian[k][i] * robust(here[i]);
          for (size_t i = 0; i < here.size(); ++i) b[j] -= jacobian[j][i] * here[i] * robust(here[i]);
          a[j][j] += kPrior + damping * (1 + a[j][j]);
          b[j] -= kPrior * (at[j] + offset_[j]);
        }
        solve(a, b);
        auto next = at;
        for (size_t j = 0; j < at.size(); ++j) next[j] += std::clamp(b[j], -0.3, 0.3);
        const double now = cost(next);
        if (now < best * (1 - 1e-7))
          better = true, best = now, at = next, damping *= 0.4;
        else
          damping *= 4;
      }
      if (!better) break;
    }
    return with(at);
  }

 private:
  static constexpr double kSoft = 0.1, kPrior = 0.02;

  static double robust(double residual) { return 1 / std::sqrt(1 + residual * residual / (kSoft * kSoft)); }
  ClassConstants with(const std::vector<double>& at) const {
    ClassConstants out = from_;
    for (size_t j = 0; j < at.size(); ++j) value_of(out, free_[j]) *= std::exp(at[j]);
    return out;
  }
  std::vector<double> residuals(const std::vector<double>& at) const {
    const ClassConstants fitted = with(at);
    std::vector<double> out;
    for (const Sample& sample : samples_)
      if (!sample.held_out) out.push_back(sample.weight * std::log(ratio_of(sample, fitted)));
    return out;
  }
  double cost(const std::vector<double>& at) const {
    double sum = 0;
    for (const double r : residuals(at)) sum += 2 * kSoft * kSoft * (std::sqrt(1 + r * r / (kSoft * kSoft)) - 1);
    for (size_t j = 0; j < at.size(); ++j) sum += kPrior * (at[j] + offset_[j]) * (at[j] + offset_[j]);
    return sum;
  }

  std::vector<Sample>& samples_;
  ClassConstants from_;
  std::vector<Named> free_;
  std::vector<double> offset_;  // logarithm of where the fit starts over the default
};

struct Options {
  std::string device_class;
  std::vector<Named> free;
  bool all = false, each = false, json = false, speed = false;
  int leave = 3;
  std::map<std::string, double> weights;  // of sources that contain a text
  std::vector<std::string> files;
};

// Layouts priced in a second, on one core: of a model of 10^12 parameters on 10,240 devices.
void print_speed() {
  Transformer shape = gpt("GPT-1T", 128, 25600, 160, 51200, 2048);
  const Workload workload = workload_of(shape, 2048);
  ClusterOptions options;
  options.nodes = 1280;
  const Cluster cluster = cluster_of("8xA100", options);
  const Recipe& recipe = *find_recipe("megatron-bf16");
  const Constants constants = constants_for("a100", Runtime::overlapped);
  int64_t n = 0;
  double sum = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int32_t p = 1; p <= 128; p *= 2) {
    const Split stages = split(workload, p);
    for (int32_t t = 1; t <= 8; t *= 2)
      for (int32_t zero = 0; zero < 4; ++zero)
        for (int32_t v = 1; v <= 8; ++v)
          for (int64_t b = 1; b <= 16; b *= 2)
            for (int again = 0; again < 3; ++again)
              for (int sequence = 0; sequence < 2; ++sequence)
                for (int offload = 0; offload < 3; ++offload) {
                  Layout l{.tensor = t, .data = 10240 / t / p, .pipeline = p, .zero_stage = zero, .chunks = v};
                  l.schedule = v > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
                  l.recompute = static_cast<Recompute>(again), l.offload = static_cast<Offload>(offload);
                  l.sequence_parallel = sequence != 0, l.microbatch = b, l.microbatches = 64;
                  sum += forecast_time(workload, stages, cluster, l, {}, recipe, constants).step();
                  ++n;
                }
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  std::printf("%lld layouts in %.3f s: %.2f million in a second (mean step %.3f s)\n", static_cast<long long>(n),
              passed.count(), static_cast<double>(n) / passed.count() / 1e6, sum / static_cast<double>(n));
}

void report(const std::vector<Sample>& samples, const ClassConstants* fitted, bool each) {
  struct Sum {
    int n[2] = {0, 0};
    double error[2] = {0, 0}, bias[2] = {0, 0}, worst = 0;
  };
  std::vector<std::string> order;
  std::map<std::string, Sum> sums;
  for (const Sample& sample : samples) {
    const double error =
        (fitted ? ratio_of(sample, *fitted) : step_of(sample.run, sample.run.constants) / sample.seconds) - 1;
    if (!sums.contains(sample.source)) order.push_back(sample.source);
    Sum& sum = sums[sample.source];
    ++sum.n[sample.held_out];
    sum.error[sample.held_out] += std::abs(error), sum.bias[sample.held_out] += error;
    sum.worst = std::max(sum.worst, std::abs(error));
    if (each) {
      Layout l;
      step_of(sample.run, sample.run.constants, &l);
      std::printf("%-40.40s %5s %c t%d p%d d%d c%d v%d z%d b%lld m%lld %-12s %9.4g s %+6.1f %%\n",
                  sample.source.c_str(), sample.row.c_str(), sample.held_out ? 'h' : ' ', l.tensor, l.pipeline, l.data,
                  l.context, l.chunks, l.zero_stage, static_cast<long long>(l.microbatch),
                  static_cast<long long>(l.microbatches), name_of(sample.run.runtime), sample.seconds, 100 * error);
    }
  }
  std::printf("%-70s %5s %7s %7s %5s %7s %7s %7s\n", "source", "fit", "MAPE", "bias", "held", "MAPE", "bias", "worst");
  for (const std::string& source : order) {
    const Sum& s = sums[source];
    std::printf("%-70.70s", source.c_str());
    for (const int h : {0, 1}) {
      if (s.n[h] > 0)
        std::printf(" %5d %6.1f%% %+6.1f%%", s.n[h], 100 * s.error[h] / s.n[h], 100 * s.bias[h] / s.n[h]);
      else
        std::printf(" %5d %7s %7s", 0, "", "");
    }
    std::printf(" %6.1f%%\n", 100 * s.worst);
  }
}

std::vector<std::string> split_text(const std::string& text, char at) {
  std::vector<std::string> out;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(at, begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

Options options_of(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--all")
      o.all = true;
    else if (arg == "--json")
      o.json = true;
    else if (arg == "--speed")
      o.speed = true;
    else if (arg == "--each")
      o.each = true;
    else if (arg == "--leave" && more)
      o.leave = std::atoi(argv[++i]);
    else if (arg == "--class" && more)
      o.device_class = argv[++i];
    else if (arg == "--weight" && more) {
      for (const auto& one : split_text(argv[++i], ','))
        o.weights[one.substr(0, one.find('='))] = std::strtod(one.c_str() + one.find('=') + 1, nullptr);
    } else if (arg == "--free" && more) {
      for (const auto& one : split_text(argv[++i], ',')) {
        const Named* found = nullptr;
        for (const Named& named : kNamed)
          if (one == named.name) found = &named;
        if (!found) gsel::fail(GSEL_ERR_ARG, "--free {}: no constant has this name", one);
        o.free.push_back(*found);
      }
    } else if (arg.starts_with("--"))
      gsel::fail(GSEL_ERR_ARG,
                 "{} is no option; accepted are --class, --free, --weight, --leave, --all, --each, --json and --speed",
                 arg);
    else
      o.files.push_back(arg);
  }
  if (o.files.empty() && !o.speed) gsel::fail(GSEL_ERR_ARG, "no file of rows was given");
  return o;
}

bool alike(const std::string& a, const std::string& b) {
  return class_constants(a).base.device_class == std::string(class_constants(b).base.device_class);
}

int run(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  if (options.speed) print_speed();
  std::vector<Sample> samples;
  for (const std::string& file : options.files) {
    const std::string text = gsel::read_file("rows", file, size_t{64} << 20);
    if (options.json) std::fputs(rows_json(text, file).c_str(), stdout);
    for (const PublishedRow& row : read_rows(text, file)) {
      RowCase found = case_of(row);
      const Metric metric = metric_of(row, found);
      if (metric.quantity != Quantity::step || !found.why.empty()) continue;
      if (!options.device_class.empty() && !alike(found.cluster.kinds[0].device_class, options.device_class)) continue;
      Sample sample{std::move(found), row.text("source"), row.text("row")};
      const double value = row.number("value", 0, 0);
      sample.seconds = metric.inverse ? metric.scale / value : value / metric.scale;
      for (const auto& [word, weight] : options.weights)
        if (sample.source.find(word) != std::string::npos) sample.weight = weight;
      sample.held_out =
          !options.all && !options.free.empty() && (samples.size() & 3) == static_cast<size_t>(options.leave);
      samples.push_back(std::move(sample));
    }
  }
  if (options.json || samples.empty()) return 0;
  if (options.free.empty()) {
    report(samples, nullptr, options.each);
    return 0;
  }
  ClassConstants fitted = Fit(samples, class_constants(options.device_class), options.free).run();
  for (const Named& named : options.free) std::printf("  .%s = %.4g,\n", named.name, value_of(fitted, named));
  report(samples, &fitted, options.each);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const gsel::Error& error) {
    std::fprintf(stderr, "bench_plan_fit: %s\n", error.what());
    return 2;
  }
}
