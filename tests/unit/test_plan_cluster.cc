// Accelerators by the names that people and drivers use, clusters from text, and what is refused.
#include "base/error.h"
#include "plan/plan.h"
#include "plan/transformer.h"
#include "support/check.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

void names_find_their_accelerator(void**) {
  const char* const names[][2] = {
      {"H100", "H100-SXM"},
      {"NVIDIA H100 80GB HBM3", "H100-SXM"},
      {"NVIDIA H100 PCIe", "H100-PCIe"},
      {"NVIDIA H100 NVL", "H100-NVL"},
      {"A100-SXM", "A100-SXM-80GB"},
      {"NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"},
      {"NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"},
      {"T4 16GB (4x g4dn.12xlarge)", "T4"},
      {"TITAN RTX 24GB", "TITAN-RTX"},
      {"NVIDIA GeForce RTX 4090", "RTX-4090"},
      {"rtx4090", "RTX-4090"},
      {"GB200", "GB200"},
      {"NVIDIA B200", "B200"},
      {"L4", "L4"},
      {"NVIDIA L40S", "L40S"},
      {"AMD Instinct MI300X", "MI300X"},
      {"Tesla V100-SXM2-32GB", "V100-SXM2-32GB"},
      {"Tesla V100-SXM3-32GB", "V100-SXM2-32GB"},
      {"Tesla V100-PCIE-16GB", "V100-PCIe"},
      {"Tesla V100-PCIE-32GB", "V100-PCIe"},
      {"Tesla V100S-PCIE-32GB", "V100S-PCIe"},
      {"Tesla T4", "T4"},
      {"NVIDIA TITAN RTX", "TITAN-RTX"},
      {"GeForce RTX 2080 Ti", "RTX-2080-Ti"},
      {"NVIDIA A10", "A10"},
      {"NVIDIA A30", "A30"},
      {"NVIDIA A40", "A40"},
      {"NVIDIA RTX A6000", "RTX-A6000"},
      {"NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"},
      {"NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"},
      {"NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"},
      {"A100-40GB", "A100-SXM-40GB"},
      {"NVIDIA H200", "H200"},
      {"NVIDIA H200 NVL", "H200-NVL"},
      {"NVIDIA GH200 480GB", "GH200"},
      {"NVIDIA GH200 144G HBM3e", "GH200"},
      {"NVIDIA GB200", "GB200"},
      {"NVIDIA B300 SXM6 AC", "B300"},
      {"AMD Instinct MI250X / MI250", "MI250X"},
      {"AMD INSTINCT MI250X (MCM) OAM AC MBA", "MI250X"},
      {"AMD Instinct MI325X", "MI325X"},
      {"HL-225", "Gaudi2"},
      {"HL-325L", "Gaudi3"},
      {"Intel(R) Data Center GPU Max 1550", "Max-1550"},
      {"Apple M2 Ultra", "M2-Ultra"},
  };
  for (const auto& [name, expected] : names) assert_string_equal(accelerator(name).name, expected);
  for (const char* name : {"", "H1000", "A1", "GTX 480", "XB200Y"}) assert_null(find_accelerator(name));
}

// Another board of a like name has other figures.
void a_name_with_an_unknown_word_is_refused_with_the_nearest_ones(void**) {
  const char* const names[][2] = {
      {"A10OO", "A100-SXM-80GB"},
      {"H100banana", "H100-SXM"},
      {"H100 banana", "H100-SXM"},
      {"A10G", "A10"},
      {"A100-40", "A100-SXM-40GB"},
      {"L40SX", "L40S"},
      {"A6000", "RTX-A6000"},
      {"4090", "RTX-4090"},
      {"NVIDIA GeForce RTX 4090 Laptop GPU", "RTX-4090"},
      {"NVIDIA GeForce RTX 4090 D", "RTX-4090"},
      {"NVIDIA GeForce RTX 3060 Ti", "RTX-3060"},
      {"NVIDIA GeForce RTX 4080 SUPER", "RTX-4080"},
      {"NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100-SXM-40GB"},
      {"H200 PCIe", "H200"},
  };
  for (const auto& [name, nearest] : names) {
    try {
      accelerator(name);
      fail_msg("%s was taken for %s", name, accelerator(name).name);
    } catch (const Error& error) {
      const std::string expected = std::string("is not known; the nearest names are ") + nearest + ", ";
      if (!strstr(error.what(), expected.c_str()))
        fail_msg("expected \"%s\" in \"%s\"", expected.c_str(), error.what());
    }
  }
  // What the name of the board says of the memory of its processor is not the accelerator's.
  assert_true(cluster_of("NVIDIA GH200 480GB", {}).kinds[0].memory_bytes == accelerator("GH200").memory_bytes);
}

void every_row_is_found_by_its_own_name(void**) {
  for (const Accelerator& row : accelerators()) {
    assert_string_equal(accelerator(row.name).name, row.name);
    assert_true(row.memory_bytes > 1e9 && row.flop_16 > 1e13 && row.matmul_share > 0.2 && row.matmul_share <= 1);
    assert_true(row.pcie_bytes_per_second > 0 && row.per_node > 0);
  }
}

void clusters_are_read(void**) {
  const Cluster one = cluster_of("8xH100", {.nodes = 4});
  assert_int_equal(one.size(), 32);
  assert_int_equal(one.nodes(), 4);
  assert_true(one.uniform());
  assert_string_equal(one.inside.name.c_str(), "NVLink");
  assert_true(one.network.bytes_per_second == 8 * 50e9);
  const Cluster mixed = cluster_of("1xA40+2xRTX-3090", {});
  assert_int_equal(mixed.size(), 3);
  assert_false(mixed.uniform());
  assert_string_equal(mixed.kind(0).name.c_str(), "A40");
  assert_string_equal(mixed.kind(2).name.c_str(), "RTX-3090");
  assert_string_equal(mixed.inside.name.c_str(), "PCIe");
  assert_true(cluster_of("H100 96GB", {}).kinds[0].memory_bytes > cluster_of("H100", {}).kinds[0].memory_bytes);
  assert_true(cluster_of("2xTITAN-RTX", {.link = "NV2"}).inside.bytes_per_second == 50e9);
  assert_true(cluster_of("2xTITAN-RTX", {.link = "p2p-off"}).inside.bytes_per_second == 3e9);
  assert_true(cluster_of("8xA100", {.network = "4x100Gb/s"}).network.bytes_per_second == 50e9);
}

struct Refused {
  const char *cluster, *link, *network;
  int32_t nodes;
  const char* says;
};

void what_is_no_cluster_is_refused(void**) {
  const Refused all[] = {
      {"8xH1000", "", "", 1, "accelerator \"H1000\" is not known; the nearest names are "},
      {"0xH100", "", "", 1, "names 0 devices; from 1 to 1000000 are needed"},
      {"8x", "", "", 1, "names no device; COUNTxNAME is needed, such as 8xH100"},
      {"", "", "", 1, "names no device"},
      {"8xH100+", "", "", 1, "names no device"},
      {"99999999999xH100", "", "", 1, "devices; from 1 to 1000000 are needed"},
      {"8xH100", "NV0", "", 1, "link \"NV0\" is not understood; accepted are NV1 to NV18"},
      {"8xH100", "NV999", "", 1, "link \"NV999\" is not understood; accepted are NV1 to NV18"},
      {"8xH100", "NV1.5", "", 1, "link \"NV1.5\" is not understood; accepted are NV1 to NV18"},
      {"8xA100-0GB", "", "", 1, "cluster: \"A100-0GB\" has no memory; a positive amount is needed, such as A100"},
      {"8xH100", "-5GB/s", "", 1, "link \"-5GB/s\" is not understood"},
      {"8xH100", "", "8x-400Gb/s", 1, "network \"8x-400Gb/s\" is not understood; a positive rate"},
      {"8xH100", "", "fast", 1, "network \"fast\" is not understood"},
      {"8xH100", "", "", 0, "0 nodes were asked for"},
      {"8xH100", "", "", 1000000, "devices in all are accepted"},
  };
  for (const Refused& one : all) {
    try {
      cluster_of(one.cluster, {.nodes = one.nodes, .link = one.link, .network = one.network});
      fail_msg("%s %s %s was accepted", one.cluster, one.link, one.network);
    } catch (const Error& error) {
      if (!strstr(error.what(), one.says)) fail_msg("expected \"%s\" in \"%s\"", one.says, error.what());
      assert_int_equal(error.code(), GSEL_ERR_ARG);
    }
  }
}

void an_inventory_is_a_cluster(void**) {
  const Inventory inventory = parse_inventory(
      R"({"gsel_inventory":1,"hosts":[{"name":"box","devices":[
          {"vendor":"nvidia","name":"NVIDIA GeForce RTX 3090"},{"vendor":"nvidia","name":"NVIDIA GeForce RTX 3090"}],
          "links":[{"a":0,"b":1,"class":"NV4"}]}]})",
      "box.json");
  const Cluster cluster = cluster_of(inventory, {});
  assert_int_equal(cluster.size(), 2);
  assert_string_equal(cluster.inside.name.c_str(), "NVLink");
  assert_true((cluster.indices == std::vector<int32_t>{0, 1}));
  const Inventory none = parse_inventory(R"({"gsel_inventory":1,"hosts":[{"name":"box","devices":[]}]})", "box.json");
  try {
    cluster_of(none, {});
    fail_msg("a machine without accelerators was accepted");
  } catch (const Error& error) {
    assert_string_equal(error.what(), "box has no accelerator; name one with --cluster, such as --cluster 8xH100");
  }
}

// A host whose devices 0 and 2 have a slower link than 0 and 1 have.
void links_that_are_unlike_are_priced_as_the_slowest_pair(void**) {
  const auto box = [](const char* rate) {
    return parse_inventory(fmt::format(R"({{"gsel_inventory":1,"hosts":[{{"name":"box","devices":[
          {{"vendor":"nvidia","name":"NVIDIA H100 80GB HBM3"}},{{"vendor":"nvidia","name":"NVIDIA H100 80GB HBM3"}},
          {{"vendor":"nvidia","name":"NVIDIA H100 80GB HBM3"}}],
          "links":[{{"a":0,"b":1,"class":"NV4","bytes_per_second":8e10}},
                   {{"a":0,"b":2,"class":"SYS","bytes_per_second":{}}}]}}]}})",
                                       rate),
                           "box.json");
  };
  Request r{};
  r.workload = workload_of(
      read_transformer(R"({"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
                           "num_attention_heads":4,"vocab_size":100,"max_position_embeddings":64})",
                       "small.json"),
      0);
  r.recipe = *find_recipe("gsel-bf16");
  const auto links = [&](const Cluster& cluster) {
    r.cluster = cluster;
    return decision(r, {}).at(3).answer;
  };
  assert_string_equal(links(cluster_of(box("1e10"), {})).c_str(),
                      "slow: PCIe at 10 GB/s; links in nodes are unlike, and all are priced as the slowest pair, "
                      "devices 0 and 2 of box");
  assert_string_equal(links(cluster_of(box("8e10"), {})).c_str(), "fast: NVLink at 80 GB/s");
  assert_string_equal(links(cluster_of(box("1e10"), {.link = "NV4"})).c_str(), "fast: NVLink at 82 GB/s");
}

const char* const kBoard = R"({"vendor":"nvidia","name":"NVIDIA H100 80GB HBM3"},)";

// Hosts with so many devices.
Inventory hosts(const std::vector<int32_t>& counts) {
  std::string text = R"({"gsel_inventory":1,"hosts":[)";
  for (size_t i = 0; i < counts.size(); ++i) {
    text += fmt::format("{}{{\"name\":\"h{}\",\"devices\":[", i == 0 ? "" : ",", i);
    for (int32_t n = 0; n < counts[i]; ++n) text += kBoard;
    if (counts[i] > 0) text.pop_back();
    text += "]}";
  }
  return parse_inventory(text + "]}", "hosts.json");
}

void hosts_of_an_inventory_are_its_nodes(void**) {
  const Cluster two = cluster_of(hosts({4, 4}), {});
  assert_int_equal(two.nodes(), 2);
  assert_int_equal(two.per_node, 4);
  // A host without devices is no node.
  const Cluster one = cluster_of(hosts({0, 8}), {});
  assert_int_equal(one.nodes(), 1);
  assert_int_equal(one.per_node, 8);
  assert_string_equal(one.notes.at(0).c_str(), "1 host of the inventory has no accelerator and is left out");
  const struct {
    std::vector<int32_t> counts;
    int32_t nodes;
    const char* says;
  } refused[] = {
      {{3, 8},
       1,
       "hosts of the inventory have unlike numbers of devices: h0 has 3, h1 has 8; a plan needs as many on "
       "each: leave devices out of the inventory so that each host has 3, or hosts that have fewer than 8"},
      {{8, 8, 4}, 1, "unlike numbers of devices: h0 has 8, h1 has 8, h2 has 4; "},
      {{1, 2, 2, 2, 2, 2, 2, 2, 2, 2}, 1, "h7 has 2 and 2 more; "},
      {{4, 4}, 3, "3 nodes were asked for of an inventory of 2 hosts, which are the nodes; leave out one of them"},
  };
  for (const auto& row : refused) {
    try {
      cluster_of(hosts(row.counts), {.nodes = row.nodes});
      fail_msg("accepted: %s", row.says);
    } catch (const Error& error) {
      if (!strstr(error.what(), row.says)) fail_msg("expected \"%s\" in \"%s\"", row.says, error.what());
      assert_int_equal(error.code(), GSEL_ERR_ARG);
    }
  }
}

void memory_that_others_use_is_not_planned_for(void**) {
  const auto inventory = [](const char* first, const char* second) {
    const auto board = [](const char* free) {
      return fmt::format(R"({{"vendor":"nvidia","name":"NVIDIA H100 80GB HBM3","memory_bytes":85899345920{}}})", free);
    };
    return parse_inventory(fmt::format(R"({{"gsel_inventory":1,"hosts":[{{"name":"a","devices":[{},{}]}}]}})",
                                       board(first), board(second)),
                           "used.json");
  };
  const char *used = R"(,"free_bytes":10837418240)", *more = R"(,"free_bytes":10937418240)",
             *idle = R"(,"free_bytes":84899345920)";
  const Cluster both = cluster_of(inventory(used, more), {});
  assert_true(both.uniform() && both.kinds[0].memory_bytes == 10 * kGiB);
  assert_string_equal(both.notes.at(0).c_str(),
                      "2 devices have memory in use: device 0 of a has 10.1 of 80.0 GiB free; the plan uses what is "
                      "free in the inventory, in whole GiB");
  const Cluster one = cluster_of(inventory(idle, used), {});
  assert_true(one.kind(0).memory_bytes == 80 * kGiB && one.kind(1).memory_bytes == 10 * kGiB);
  assert_true(cluster_of(inventory(idle, idle), {}).notes.empty());
  assert_true(cluster_of(inventory(used, used), {.memory_bytes = 5 * kGiB}).kinds[0].memory_bytes == 5 * kGiB);
}

Inventory box_of(const std::string& name, const std::string& more, int32_t devices = 2) {
  std::string list;
  for (int32_t i = 0; i < devices; ++i)
    list +=
        fmt::format(R"({}{{"vendor":"other","name":"{}","memory_bytes":68719476736{}}})", i > 0 ? "," : "", name, more);
  return parse_inventory(fmt::format(R"({{"gsel_inventory":1,"hosts":[{{"name":"box","devices":[{}]}}]}})", list),
                         "own.json");
}

void a_device_has_the_speed_that_its_inventory_tells(void**) {
  const Cluster own = cluster_of(
      box_of("Foo-1", R"(,"speed":{"bf16_flop_per_second":4e14,"tf32_flop_per_second":2e14,"f32_flop_per_second":5e13,
             "fp8_flop_per_second":8e14,"memory_bytes_per_second":2.4e12,"link_bytes_per_second":2e11,
             "host_bytes_per_second":5e10,"network_bytes_per_second":2.5e10})"),
      {.nodes = 4});
  const DeviceKind& kind = own.kinds.at(0);
  assert_true(own.uniform() && own.size() == 8 && own.nodes() == 4);
  assert_string_equal(kind.name.c_str(), "Foo-1");
  assert_true(kind.memory_bytes == 64 * kGiB && kind.memory_bytes_per_second == 2.4e12);
  assert_true(kind.flop_16 == 4e14 && kind.flop_tf32 == 2e14 && kind.flop_32 == 5e13 && kind.flop_8 == 8e14);
  assert_true(kind.host_bytes_per_second == 5e10 && own.inside.bytes_per_second == 2e11);
  assert_true(own.network.bytes_per_second == 2 * 2.5e10 && !own.has_slow_links());
  assert_false(constants_for(kind.device_class, Runtime::compiled).calibrated());
  // With the least that must be told.
  const char* least = R"(,"speed":{"bf16_flop_per_second":4e14,"memory_bytes_per_second":2.4e12})";
  const Cluster plain = cluster_of(box_of("Foo-1", least), {.nodes = 2});
  assert_true(plain.inside.bytes_per_second == 24e9 && plain.network.bytes_per_second == 2 * 12.5e9);
  assert_true(plain.kinds[0].flop_8 == 0 && plain.kinds[0].flop(4, false) == 4e14 / 8 && plain.has_slow_links());
  // A board of the catalogue with other clocks keeps what is not told, and its class.
  const Cluster board = cluster_of(box_of("H100", least), {});
  assert_true(board.kinds[0].flop_16 == 4e14 && board.kinds[0].flop_8 == accelerator("H100").flop_8);
  assert_string_equal(board.kinds[0].device_class.c_str(), "h100");
}

void devices_of_one_name_and_unlike_speeds_are_two_kinds(void**) {
  const char* text = R"({"gsel_inventory":1,"hosts":[{"name":"box","devices":[
      {"vendor":"other","name":"Foo","memory_bytes":68719476736,
       "speed":{"bf16_flop_per_second":4e14,"memory_bytes_per_second":2e12}},
      {"vendor":"other","name":"Foo","memory_bytes":68719476736,
       "speed":{"bf16_flop_per_second":2e14,"memory_bytes_per_second":2e12}}]}]})";
  const Cluster cluster = cluster_of(parse_inventory(text, "own.json"), {});
  assert_int_equal(cluster.kinds.size(), 2);
  assert_true(cluster.kind(0).flop_16 == 2 * cluster.kind(1).flop_16);
}

void a_device_that_nothing_tells_of_is_refused(void**) {
  try {
    cluster_of(box_of("Foo-1", ""), {});
    fail_msg("accepted");
  } catch (const Error& error) {
    for (const char* part : {"device 0 of box is a \"Foo-1\", of which no speed is known; the nearest names are ",
                             "; tell its \"speed\" in the inventory, or name a known one with --cluster"})
      if (!strstr(error.what(), part)) fail_msg("expected \"%s\" in \"%s\"", part, error.what());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(names_find_their_accelerator),
      cmocka_unit_test(a_name_with_an_unknown_word_is_refused_with_the_nearest_ones),
      cmocka_unit_test(every_row_is_found_by_its_own_name),
      cmocka_unit_test(clusters_are_read),
      cmocka_unit_test(what_is_no_cluster_is_refused),
      cmocka_unit_test(an_inventory_is_a_cluster),
      cmocka_unit_test(links_that_are_unlike_are_priced_as_the_slowest_pair),
      cmocka_unit_test(hosts_of_an_inventory_are_its_nodes),
      cmocka_unit_test(memory_that_others_use_is_not_planned_for),
      cmocka_unit_test(a_device_has_the_speed_that_its_inventory_tells),
      cmocka_unit_test(devices_of_one_name_and_unlike_speeds_are_two_kinds),
      cmocka_unit_test(a_device_that_nothing_tells_of_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
