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

double priced(const Json& one, const Json& model) {
  return one["host_steps"].get<double>() * model["host_latency_s"].get<double>() +
         one["host_bytes"].get<double>() / model["host_bytes_per_second"].get<double>() +
         one["network_steps"].get<double>() * model["latency_s"].get<double>() +
         one["network_bytes"].get<double>() / model["bytes_per_second"].get<double>() *
             model["congestion"].get<double>() +
         one["messages"].get<double>() * 5e-6;
}

// Nothing is started: the calls are those of more ranks than a host can have.
void bench_simulates_many_hosts(void**) {
  const Json told = bench("allreduce barrier --simulate hosts=1024x8,rate=10GB/s -b 4K -e 64K -f 16");
  assert_true(told["measured"] == false && told["worlds"].size() == 1 && !told.contains("rows"));
  const Json& world = told["worlds"][0];
  assert_true(world["ranks"] == 8192 && world["hosts"] == 1024 && world["ranks_of_host"] == 8);
  assert_true(world["model"]["network"] == "tcp-100" && world["model"]["bytes_per_second"] == 1e10);
  assert_true(world["model"]["congestion"] == 1.5);
  assert_true(world["control"]["most_sockets"] == 130 && world["rendezvous"]["table_bytes"] == 120);
  assert_int_equal(world["rows"].size(), 3);
  for (const Json& row : world["rows"]) {
    double least = 1e9;
    bool ways = true;  // stand before other algorithms
    for (const Json& one : row["algorithms"]) {
      assert_true(std::abs(priced(one, world["model"]) - one["seconds"].get<double>()) < 1e-12);
      least = std::min(least, one["seconds"].get<double>());
      if (one["name"] == row["least"]) assert_true(one["seconds"] == least);
      if (one["name"] == row["takes"]) assert_true(one["of_gsel"] == true);
      assert_true(ways || one["of_gsel"] == false);
      ways = one["of_gsel"];
    }
  }
  assert_true(world["rows"][0]["bytes"] == 4096 && world["rows"][0]["takes"] == "host-slices");
  assert_true(world["rows"][1]["exact"] == "host-slices" && world["rows"][2]["exact"].is_null());
  assert_true(world["rows"][2]["takes"] == "assembly");
  const Json slices = world["rows"][0]["algorithms"][5], rings = world["rows"][0]["algorithms"][6];
  assert_true(slices["name"] == "host-slices" && slices["messages"] == 256 + 2 * (1023 + 128));
  assert_true(rings["name"] == "rings" && rings["network_steps"] == 2046 && rings["network_bytes"] == 8184);
  const Json one_host = bench("allreduce --simulate hosts=1x8 -b 4K -e 4K")["worlds"][0];
  assert_true(one_host["rows"][0]["takes"].is_null() && one_host["rendezvous"]["gloo_s"] == 0);
  check_gsel("bench --simulate hosts=1x8 allreduce -b 4K -e 4K", 0);
  const Json ten = bench("allreduce --simulate hosts=2x4 -b 256 -e 1M -f 64")["worlds"][0]["rows"];
  const char* const taken[] = {"assembly", "direct", "chain"};
  for (size_t i = 0; i < 3; ++i) assert_true(ten[i]["takes"] == taken[i] && ten[i]["exact"] != "two-level");

  const Json usual = bench("--simulate");
  assert_int_equal(usual["worlds"].size(), 3);
  for (size_t i = 0; i < 3; ++i) {
    assert_int_equal(usual["worlds"][i]["ranks"].get<int>(), i == 0 ? 10 : i == 1 ? 1000 : 10000);
    assert_int_equal(usual["worlds"][i]["rows"].size(), 8 * 6 + 1);
  }
  assert_true(bench("--simulate allreduce") == bench("allreduce --simulate"));
  assert_true(bench("--simulate hosts=2x4,network=ndr barrier") == bench("barrier --simulate hosts=2x4 --network ndr"));
  const Json mixed =
      bench("barrier --simulate hosts=64x1,latency=2us --network 8x400Gb/s,congestion=1,host_rate=20GB/s");
  const Json& model = mixed["worlds"][0]["model"];
  assert_true(model["latency_s"] == 2e-6 && model["bytes_per_second"] == 4e11 && model["congestion"] == 1);
  assert_true(model["host_bytes_per_second"] == 2e10 && model["network"] == "8x400Gb/s");
  check_gsel("bench --simulate hosts=2x2 allreduce -b 1K -e 1K", 0);
  assert_true(strncmp(out, "a model, nothing is measured: ", 30) == 0);
  check_part(
      out, "\n4 ranks on 2 hosts of 2\nnetwork tcp-100: 20 us a step, 8 GB/s of a host, congestion 1; inside a host: ");
}

void bench_refuses_what_it_cannot_simulate(void**) {
  const struct {
    const char *arguments, *input, *token;
    int column;
    const char* words;
  } rows[] = {
      {"--simulate hosts=1024", "--simulate hosts=1024", "1024", 7, "a number of hosts and of ranks on each is needed"},
      {"--simulate hosts=0x8", "--simulate hosts=0x8", "0", 7, "from 1 to 1000000 hosts are allowed"},
      {"--simulate hosts=2x2000", "--simulate hosts=2x2000", "2x2000", 7, "at most 1024 ranks on a host"},
      {"--simulate 1024x8", "--simulate 1024x8", "1024x8", 1, "KEY=VALUE is needed, with one of the keys hosts,"},
      {"--simulate network=ndr", "--simulate network=ndr", "network=ndr", 1, "hosts=HOSTSxRANKS is needed"},
      {"--simulate hosts=2x2,hosts=2x2", "--simulate hosts=2x2,hosts=2x2", "hosts", 11, "is given before"},
      {"--simulate hosts=2x2,speed=1", "--simulate hosts=2x2,speed=1", "speed", 11, "no such key; there are hosts,"},
      {"--simulate hosts=2x2,latency=2", "--simulate hosts=2x2,latency=2", "2", 19, "a time up to 10 s is needed"},
      {"--simulate hosts=2x2,rate=-1GB/s", "--simulate hosts=2x2,rate=-1GB/s", "-1GB/s", 16, "a rate is needed"},
      {"--simulate hosts=2x2,congestion=0", "--simulate hosts=2x2,congestion=0", "0", 22, "a factor from 1 to 1000"},
      {"--simulate hosts=2x2,", "--simulate hosts=2x2,", "", 11, "KEY=VALUE is needed"},
      {"--simulate hosts=2x2 --network ndrr", "--network ndrr", "ndrr", 1, "no such network; there are veth, tcp-25,"},
      {"--simulate --network rate=1GB/s,hosts=2x2", "--network rate=1GB/s,hosts=2x2", "hosts", 12, "no such key"},
      {"--simulate --network ndr,hdr", "--network ndr,hdr", "hdr", 5, "KEY=VALUE is needed"},
      {"--simulate hosts=2x2,network=ndr --network hdr", "--network hdr", "network", 1, "is given before"},
  };
  for (const auto& row : rows) {
    check_gsel((std::string("bench ") + row.arguments + " --json").c_str(), 2);
    const Json told = Json::parse(out);
    const std::string message = told["message"];
    const std::string begin =
        std::string(row.input) + ": \"" + row.token + "\" at column " + std::to_string(row.column);
    if (message.find(begin + ": ") != 0) fail_msg("expected %s: ..., got %s", begin.c_str(), message.c_str());
    check_part(message.c_str(), row.words);
    assert_true(told["token"] == row.token && told["column"] == row.column);
  }
  const struct {
    const char *arguments, *words;
  } others[] = {{"bench --simulate sendrecv", "sendrecv is not modelled; --simulate takes all, allreduce,"},
                {"bench dance --simulate", "dance is not modelled"},
                {"bench --simulate -n 4", "--simulate measures nothing, and -n is of a measurement"},
                {"bench --simulate --threads", "--simulate measures nothing, and --threads is of a measurement"},
                {"bench --simulate -b 8 -e 4", "-b 8 is more than -e 4"},
                {"bench --network ndr", "--network is of a model; add --simulate"}};
  for (const auto& row : others) {
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
      cmocka_unit_test(bench_checks_every_operation),
      cmocka_unit_test(bench_knows_every_type_and_operation),
      cmocka_unit_test(bench_works_in_memory_of_all_ranks),
      cmocka_unit_test(bench_counts_bandwidth_as_nccl_tests_do),
      cmocka_unit_test(bench_refuses_what_it_cannot_do),
      cmocka_unit_test(bench_simulates_many_hosts),
      cmocka_unit_test(bench_refuses_what_it_cannot_simulate),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
