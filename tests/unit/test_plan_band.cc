// The error band of each candidate: the error of the measurements of its class, and half of what they do not cover.
#include <cmath>

#include "base/error.h"
#include "plan/plan.h"
#include "support/check.h"
#include "support/gpt_shape.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

Request request(const char* cluster, int32_t nodes, const char* fixed) {
  Request r;
  r.workload = workload_of(gpt("GPT 2B", 24, 2304, 24, 51200, 2048), 2048);
  r.cluster = cluster_of(cluster, {.nodes = nodes});
  r.recipe = *find_recipe("gsel-bf16");
  r.constants = constants_for(r.cluster.kinds.front().device_class, Runtime::compiled);
  r.batch = 64;
  r.fixed = parse_fixed(fixed);
  return r;
}

// Of the first candidate; parts: those that are not covered, with commas between.
void expect_band(Request r, double spread, const char* parts) {
  const Plan plan(std::move(r), {});
  const Candidate& c = plan.candidates().at(0);
  const ErrorBand band = band_of(plan.request(), c);
  const std::string named = fmt::format("{}", fmt::join(band.parts, ","));
  if (named != parts || band.spread != spread)
    fail_msg("%g, %s; %g, %s expected", band.spread, named.c_str(), spread, parts);
  assert_true(band.parts.empty() ? band.all() == spread : band.all() > spread && band.all() <= spread + 0.5);
  assert_true(plan.json().find(fmt::format("\"error_band\": {}", band.all())) != std::string::npos);
  assert_true(plan.text().find(fmt::format("  {:.0f} %  ", band.all() * 100)) != std::string::npos);
  assert_true((plan.text().find("Band of the first choice") == std::string::npos) == band.parts.empty());
}

void what_measurements_do_not_cover_widens_the_band(void**) {
  expect_band(request("8xH100", 1, "tensor=1, data=8, recompute=all, offload=none"), 0.07, "");
  expect_band(request("8xH100", 2, "pipeline=2, recompute=all, offload=none"), 0.07, "");
  expect_band(request("8xH100", 1, "zero=1, offload=state"), 0.07, "offload");
  expect_band(request("8xB200", 1, "recompute=all, offload=none"), 0.06, "recomputation");
  expect_band(request("8xV100-SXM2-32GB", 1, "pipeline=2, recompute=none, offload=none"), 0.15, "bubble");
  expect_band(request("4xRTX4090", 2, "pipeline=2, data=4, recompute=all, offload=none, zero=1"), 0.3,
              "bubble,communication between nodes,recomputation");
  expect_band(request("2xH100+2xV100-SXM2-32GB", 1, "pipeline=4, recompute=none, offload=none"), 0.15, "bubble");
}

// A part that is half of a step adds a quarter.
void the_band_grows_by_half_of_the_share(void**) {
  Request r = request("8xV100-SXM2-32GB", 1, "");
  Candidate c;
  c.layout.pipeline = 8;
  c.time[TimePart::products] = 3, c.time[TimePart::bubble] = 3;
  assert_true(std::abs(band_of(r, c).all() - (0.15 + 0.25)) < 1e-12);
  r.constants.covered.pipeline = true;
  assert_true(band_of(r, c).all() == 0.15);
}

// Own rows cover what they have.
void own_measurements_cover_what_they_have(void**) {
  const char kColumns[] =
      "gpu\tgpus\tgpus_per_"
      "node\tlayers\thidden\theads\tvocab\tseq\tgbs\tmbs\ttp\tpp\tdp\trecompute\tprecision\tmetric\t"
      "value\n";
  for (const bool pipeline : {false, true}) {
    Request r = request("4xRTX4090", 1, "pipeline=2, data=2, recompute=none, offload=none");
    const std::string row =
        fmt::format("RTX4090\t4\t4\t24\t1024\t16\t51200\t1024\t64\t2\t1\t{}\t{}\tnone\tbf16\titeration_s\t2.5\n",
                    pipeline ? 2 : 1, pipeline ? 2 : 4);
    calibrate(r, kColumns + row, "own.tsv");
    const double spread = r.constants.spread;
    assert_true(spread == 0.3);  // one row says nothing of others
    expect_band(std::move(r), spread, pipeline ? "" : "bubble");
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_measurements_do_not_cover_widens_the_band),
      cmocka_unit_test(the_band_grows_by_half_of_the_share),
      cmocka_unit_test(own_measurements_cover_what_they_have),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
