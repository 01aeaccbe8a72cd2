// unit/test_cli_bench.cc: gsel bench, as its users meet it.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "support/command.h"
#include "support/share.h"

namespace {

using Json = nlohmann::json;

Json bench(const std::string& arguments) {
  const std::string line = "bench " + arguments + " --json";
  check_gsel(line.c_str(), 0);
  Json json = Json::parse(out, nullptr, false);
  if (json.is_discarded()) fail_msg("no JSON: %s", out);
  return json;
}

constexpr const char* kQuick = " -b 4 -e 64K -f 40 --iterations 2 --warmup 1 --in-place --out-of-place";

void check_rows(const Json& told, size_t operations) {
  std::set<std::string> seen;
  for (const Json& row : told["rows"]) {
    if (row["wrong"] != 0) fail_msg("wrong elements: %s", row.dump().c_str());
    assert_true(row["seconds"].get<double>() > 0 && row["p99_seconds"] >= row["seconds"]);
    assert_int_equal(row["iterations"].get<int>(), 2);
    seen.insert(row["operation"]);
  }
  assert_int_equal(seen.size(), operations);
}

void bench_checks_every_operation(void**) {
  const std::string all = std::string("all -n 3 --root 1") + kQuick;
  check_rows(bench(all), 15);
  check_rows(bench(all + " --threads"), 15);
  check_rows(bench("all -n 1 --threads" + std::string(" -e 4K -f 8 --iterations 2 --warmup 1")), 14);
}

void bench_knows_every_type_and_operation(void**) {
  static const char* const rows[] = {"-t i8 --op prod",    "-t u8 --op avg",    "-t i16 --op bxor", "-t u16 --op band",
                                     "-t i64 --op bor",    "-t f16 --op max",   "-t bf16 --op avg", "-t f64 --op min",
                                     "-t f8e4m3 --op sum", "-t f8e5m2 --op sum"};
  for (const char* row : rows) {
    if (!in_share()) continue;
    check_rows(bench(std::string("allreduce reduce_scatterv allgather -n 3 --threads ") + row + kQuick), 3);
  }
}

void bench_works_in_memory_of_all_ranks(void**) {
  check_rows(bench(std::string("allreduce allgather -n 2 --registered") + kQuick), 2);
}

void bench_counts_bandwidth_as_nccl_tests_do(void**) {
  const Json told = bench("allreduce allgather broadcast -n 3 -b 96K -e 96K --iterations 2 --threads");
  const double factors[] = {4.0 / 3, 2.0 / 3, 1};
  assert_int_equal(told["rows"].size(), 3);
  assert_true(told["memory_bandwidth"].get<double>() > 0 && told["ranks"] == 3 && told["threads"] == true);
  for (size_t i = 0; i < 3; ++i) {
    const Json& row = told["rows"][i];
    assert_int_equal(row["bytes"].get<int>(), 98304);
    assert_true(std::abs(row["algbw"].get<double>() * row["seconds"].get<double>() - 98304) < 1e-3);
    assert_true(std::abs(row["busbw"].get<double>() / row["algbw"].get<double>() - factors[i]) < 1e-9);
    assert_true(row["efficiency"].get<double>() > 0);
  }
  check_gsel("bench -n 2 -e 8 --iterations 2", 0);
  check_part(out, "algbw GB/s");
  check_part(out, "allreduce");
  assert_null(strstr(out, "memory:"));  // too small for memory to matter
}

void bench_refuses_what_it_cannot_do(void**) {
  const struct {
    const char *arguments, *words;
  } rows[] = {{"bench dance", "dance is no operation"},
              {"bench -n 0", "-n 0: 1 to 256 are allowed"},
              {"bench -b 8 -e 4", "-b 8 is more than -e 4"},
              {"bench -e 3X", "-e 3X: a whole number is needed"},
              {"bench -t f31", "-t f31 is no type"},
              {"bench --op mean", "--op mean is no operation"},
              {"bench -n 2 --root 2", "--root 2: 0 to 1 are allowed"},
              {"bench -f 1", "-f 1"},
              {"bench --check 2", "--check 2: 0 to 1 are allowed"},
              {"bench -n 2 -t f32 --op band -e 8", "band"}};
  for (const auto& row : rows) {
    check_gsel(row.arguments, 2);
    check_part(err, row.words);
  }
}

int set_up(void**) {
  for (const char* name : {"GSEL_CONFIG", "GSEL_TRACE", "GSEL_LOG"}) unsetenv(name);
  setenv("GSEL_TUNING", "", 1);
  return command_set_up("cli-bench");
}

int tear_down(void**) {
  return command_tear_down();
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bench_checks_every_operation),       cmocka_unit_test(bench_knows_every_type_and_operation),
      cmocka_unit_test(bench_works_in_memory_of_all_ranks), cmocka_unit_test(bench_counts_bandwidth_as_nccl_tests_do),
      cmocka_unit_test(bench_refuses_what_it_cannot_do),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
