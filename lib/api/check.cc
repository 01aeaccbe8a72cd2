// api/check.cc: gsel/check.h.
#include <algorithm>
#include <limits>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "train/check/model_check.h"

struct gsel_model_check_report {
  explicit gsel_model_check_report(gsel::check::Findings f) : findings(std::move(f)), summary(findings.summary()) {}
  gsel::check::Findings findings;
  std::string summary;
};

namespace {

gsel_breach as_struct(const gsel::check::Breach& breach) {
  gsel_breach out{};
  out.kind = breach.kind;
  out.layer = breach.layer;
  out.callback = breach.callback;
  out.buffer = breach.buffer;
  out.index = breach.index;
  out.n_dims = static_cast<int32_t>(breach.coordinates.size());
  out.element = breach.element;
  std::ranges::copy(breach.coordinates, out.coordinates);
  out.found = breach.found;
  out.expected = breach.expected;
  out.text = gsel::borrow(breach.text);
  return out;
}

void check_bound(const char* name, int64_t number, int64_t most) {
  if (number < 0 || number > most)
    gsel::fail(GSEL_ERR_ARG, "gsel_model_check_options.{} is {}; expected 0 to {}", name, number, most);
}

// optimizer: receives the struct to which the options point.
gsel_model_check_options read_check_options(const gsel_model_check_options* options,
                                            gsel_optimizer_options& optimizer) {
  gsel_model_check_options given{};
  if (options) given = gsel::read_struct(options, "gsel_model_check_options");
  if (given.optimizer) {
    optimizer = gsel::read_struct(given.optimizer, "gsel_optimizer_options");
    gsel::check_optimizer_options(optimizer);
    given.optimizer = &optimizer;
  }
  constexpr int64_t kMostSamples = 4096, kMostRanks = 64, kMost = int64_t{1} << 31;
  check_bound("n_samples", given.n_samples, kMostSamples);
  check_bound("first_sample", given.first_sample, std::numeric_limits<int64_t>::max() - kMostSamples);
  check_bound("index_limit", given.index_limit, kMost);
  check_bound("tensor_ranks", given.tensor_ranks, kMostRanks);
  check_bound("differences", given.differences, kMost);
  constexpr uint32_t kSkippable = (1u << GSEL_BREACH_KINDS) - (1u << GSEL_BREACH_BATCH);
  if (given.skip & ~kSkippable)
    gsel::fail(
        GSEL_ERR_ARG,
        "gsel_model_check_options.skip is {:#x}; expected bits 1 << GSEL_BREACH_BATCH to 1 << GSEL_BREACH_PIECES",
        given.skip);
  return given;
}

}  // namespace

extern "C" {

void gsel_breach_init(gsel_breach* breach, size_t struct_size) {
  gsel::init_struct(breach, struct_size);
}
void gsel_model_check_options_init(gsel_model_check_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}

gsel_status gsel_model_check(gsel_model* model, const gsel_model_check_options* options, gsel_model_check_report** out,
                             gsel_error** err) {
  return gsel::guard(err, [&] {
    if (out) *out = nullptr;
    gsel::Model& checked = *gsel::required(model, "model").impl;
    gsel_optimizer_options optimizer{};
    const gsel_model_check_options given = read_check_options(options, optimizer);
    checked.finish(gsel::Model::Loss::optional);
    auto report = std::make_unique<gsel_model_check_report>(
        gsel::check::check_model(gsel::DeviceContext::open_host(), checked, given));
    const auto& breaches = report->findings.breaches();
    const std::string first = breaches.empty() ? "" : breaches.front().text;
    if (out) *out = report.release();
    if (!first.empty()) gsel::fail(GSEL_ERR_MODEL, "{}", first);
  });
}

gsel_str gsel_model_check_summary(const gsel_model_check_report* report) {
  return report ? gsel::borrow(report->summary) : gsel_str{"", 0};
}

int32_t gsel_model_check_note_count(const gsel_model_check_report* report) {
  return report ? static_cast<int32_t>(report->findings.notes().size()) : 0;
}

gsel_str gsel_model_check_note(const gsel_model_check_report* report, int32_t i) {
  if (i < 0 || i >= gsel_model_check_note_count(report)) return {"", 0};
  return gsel::borrow(report->findings.notes()[static_cast<size_t>(i)]);
}

int32_t gsel_model_check_breach_count(const gsel_model_check_report* report) {
  return report ? static_cast<int32_t>(report->findings.breaches().size()) : 0;
}

gsel_status gsel_model_check_breach(const gsel_model_check_report* report, int32_t i, gsel_breach* out,
                                    gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::stated_size(out, "gsel_breach");
    const auto& breaches = gsel::required(report, "report").findings.breaches();
    gsel::check_index(i, breaches.size(), "i");
    gsel::write_struct(out, as_struct(breaches[static_cast<size_t>(i)]), "gsel_breach");
  });
}

void gsel_model_check_free(gsel_model_check_report* report) {
  delete report;
}

}  // extern "C"
