// The search: every layout that it ranks obeys the request, fits, and is no slower than its successor; the same result
// again; a cluster of 10,240 devices; unequal devices; what is decided already; what does not fit.
#include <set>

#include "base/error.h"
#include "plan/candidate_durations.h"
#include "plan/config_layout.h"
#include "plan/describe.h"
#include "plan/plan.h"
#include "support/check.h"
#include "support/gpt_shape.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

Request request(const char* cluster, int32_t nodes, int64_t batch, const char* fixed = "",
                const char* recipe = "gsel-bf16") {
  Transformer shape = gpt("GPT 7B", 32, 4096, 32, 51200, 4096);
  Request r{workload_of(shape, 4096), cluster_of(cluster, {.nodes = nodes}),
            *find_recipe(recipe),     batch,
            parse_fixed(fixed),       {}};
  r.constants = constants_for(r.cluster.kinds.front().device_class, Runtime::sharded);
  return r;
}

void check_candidates(const Plan& plan) {
  const Request& r = plan.request();
  double before = 0;
  for (const Candidate& c : plan.candidates()) {
    const Layout& l = c.layout;
    assert_true(l.ranks() <= r.cluster.size());
    assert_true(l.batch() >= r.batch && l.batch() < r.batch + l.microbatches * l.data);
    assert_true(l.tensor == 1 || l.context == 1);
    assert_true(r.workload.heads % l.tensor == 0 || c.shares.tensor_weights.size() == static_cast<size_t>(l.tensor));
    assert_true(c.short_bytes() <= 0);
    assert_true(c.step_s() >= before);
    before = c.step_s();
    double parts = 0;
    for (const double part : c.time.parts) {
      assert_true(part >= 0);
      parts += part;
    }
    assert_true(parts == c.step_s());
  }
}

void candidates_obey_and_are_in_order(void**) {
  for (const char* cluster : {"8xH100", "8xA100-40GB", "4xRTX4090", "16xV100-SXM2-32GB", "8xMI300X"})
    for (const int32_t nodes : {1, 2, 3}) {
      const Plan plan(request(cluster, nodes, 384), {});
      assert_true(!plan.candidates().empty());
      check_candidates(plan);
      assert_true(plan.result().dropped.tried > 0);
    }
}

void the_same_request_has_the_same_text(void**) {
  const Plan one(request("8xH100", 2, 256), {}), other(request("8xH100", 2, 256), {});
  assert_string_equal(one.text().c_str(), other.text().c_str());
  assert_string_equal(one.json().c_str(), other.json().c_str());
}

void ten_thousand_devices_are_searched(void**) {
  Transformer shape = gpt("GPT-1T", 128, 25600, 160, 51200, 2048);
  Request r{
      workload_of(shape, 2048), cluster_of("8xH100", {.nodes = 1280}), *find_recipe("megatron-bf16"), 10240, {}, {}};
  r.constants = constants_for("h100", Runtime::overlapped);
  const Plan plan(std::move(r), {});
  assert_true(plan.candidates().size() == 32);
  check_candidates(plan);
}

void what_is_fixed_stays(void**) {
  const Plan plan(
      request("8xH100", 2, 256, "tensor=4, pipeline=2, zero=1, microbatch=2, recompute=all, sequence_parallel=true"),
      {});
  assert_true(!plan.candidates().empty());
  for (const Candidate& c : plan.candidates()) {
    const Layout& l = c.layout;
    assert_true(l.tensor == 4 && l.pipeline == 2 && l.data == 2 && l.zero_stage == 1 && l.microbatch == 2);
    assert_true(l.recompute == Recompute::full && l.sequence_parallel);
  }
}

void what_cannot_be_fixed_is_refused(void**) {
  const char* const all[][2] = {
      {"tensr=2", "\"tensr\" cannot be fixed; did you mean tensor?; accepted: tensor, "},
      {"tensor", "\"tensor\" has no value; KEY=VALUE is needed, such as tensor=2"},
      {"tensor=x", "tensor=x is not accepted; accepted: a whole number from 1 to 1000000"},
      {"zero=4", "zero=4 is not accepted; accepted: a whole number from 0 to 3"},
      {"recompute=some", "recompute=some is not accepted; accepted: none, selective, all"},
      {"sequence_parallel=1", "sequence_parallel=1 is not accepted; accepted: true, false"},
  };
  for (const auto& [text, says] : all) {
    try {
      parse_fixed(text);
      fail_msg("%s was accepted", text);
    } catch (const Error& error) {
      if (!strstr(error.what(), says)) fail_msg("expected \"%s\" in \"%s\"", says, error.what());
    }
  }
}

void unequal_devices_get_unequal_parts(void**) {
  const Plan plan(request("2xA40+2xRTX3090", 1, 64), {});
  assert_true(!plan.candidates().empty());
  check_candidates(plan);
  bool stages = false;
  for (const Candidate& c : plan.candidates()) {
    if (!c.shares.stage_layers.empty()) {
      stages = true;
      assert_true(c.shares.stage_layers.front() > c.shares.stage_layers.back());  // the A40s are faster
    }
  }
  assert_true(stages);
}

// Five cards are planned as five, and as fewer; replicas have unlike numbers of samples.
void five_devices_are_all_of_use(void**) {
  const Plan plan(request("5xA100-80GB", 1, 48), {});
  check_candidates(plan);
  std::set<int32_t> worlds;
  for (const Candidate& c : plan.candidates()) worlds.insert(c.layout.ranks());
  for (const int32_t world : {4, 5}) assert_true(worlds.contains(world));
  assert_true(std::ranges::any_of(plan.candidates(), [](const Candidate& c) { return c.layout.data == 5; }));
}

// Replicas of unequal devices get whole samples, one or more each, and in a pipeline as many in each micro-batch: a run
// takes what the plan has priced, and no finalist is refused.
void replicas_of_unequal_devices_have_whole_samples(void**) {
  const Transformer shape = gpt("small", 8, 1024, 16, 32000, 1024);
  struct Row {
    const char *cluster, *fixed;
    int64_t batch;
    std::vector<double> weights;  // of the first candidate; empty: those of a micro-batch, whatever its size
  };
  const Row rows[] = {{"2xA100-80GB+1xRTX3090", "data=3", 6, {3, 2, 1}},
                      {"2xA100-80GB+1xRTX3090", "data=3", 48, {22, 22, 4}},
                      {"1xA100-80GB+1xRTX3090+1xA100-80GB+1xRTX3090", "data=2, pipeline=2", 24, {}},
                      {"3xA100-80GB+1xRTX3090", "data=2, pipeline=2", 24, {}}};
  for (const Row& row : rows) {
    Request r{workload_of(shape, 1024),  cluster_of(row.cluster, {}),
              *find_recipe("gsel-bf16"), row.batch,
              parse_fixed(row.fixed),    {}};
    r.constants = constants_for("a100", Runtime::compiled);
    r.model = describe(shape, {1024, GSEL_BF16});
    const Plan plan(std::move(r), {});
    assert_true(!plan.candidates().empty());
    if (plan.result().dropped.programs > 0) fail_msg("%s", plan.result().dropped.refusal.c_str());
    if (!row.weights.empty()) assert_true(plan.candidates().front().shares.data_weights == row.weights);
    for (const Candidate& c : plan.candidates()) {
      if (c.shares.data_weights.empty()) continue;
      double samples = 0;
      for (const double weight : c.shares.data_weights) {
        assert_true(weight >= 1 && weight == static_cast<double>(static_cast<int64_t>(weight)));
        samples += weight;
      }
      if (c.layout.pipeline > 1) samples *= static_cast<double>(c.layout.microbatches);
      assert_true(samples == static_cast<double>(row.batch));
    }
  }
}

// A file without weights has equal parts, and its step waits for the slow device; weights are whole samples.
void a_file_on_unequal_devices_has_the_parts_that_it_says(void**) {
  const Request r = request("2xA100-80GB+1xRTX3090", 1, 48);
  const auto parts = [&](const std::string& weights, const char* mesh) {
    const std::string text = fmt::format("[mesh]\n{}\n[train]\nbatch = 48\nmicrobatches = 2\n{}", mesh, weights);
    const Config config = parse_config(text, "plan.toml");
    bool others = false;
    const Layout l = layout_of(config, r.workload, 3, &others);
    const Shares shares = shares_of(config, r.workload, r.cluster, l);
    const SearchInput in{r.workload, r.cluster, r.recipe, r.constants, 48, {}, 1, {}};
    return evaluate(in, l, shares);
  };
  const std::string by_speed = "[strategy.data]\nplugin = \"ddp\"\nweights = [5.46, 5.46, 1]\n";
  const Candidate even = parts("", "data = 3"), weighted = parts(by_speed, "data = 3");
  assert_true((even.shares.data_weights == std::vector<double>{16, 16, 16}));
  assert_true((weighted.shares.data_weights == std::vector<double>{22, 22, 4}));
  assert_true(even.step_s() > 2 * weighted.step_s());
  assert_true((parts("", "pipeline = 3").shares.stage_layers == std::vector<int64_t>{11, 11, 10}));
  assert_true((parts("", "tensor = 3").shares.tensor_weights == std::vector<double>{11, 11, 10}));
}

// 32 heads of three devices: 11, 11 and 10.
void heads_that_do_not_divide_go_by_whole_ones(void**) {
  const Plan plan(request("3xA100-80GB", 1, 48, "tensor=3"), {});
  check_candidates(plan);
  const std::vector<double> weights{11, 11, 10};
  assert_true(plan.candidates().front().shares.tensor_weights == weights);
}

// Of three devices two are to be used: not the small one, though it is named first.
void the_order_of_unequal_devices_is_searched(void**) {
  const Plan plan(request("1xRTX3090+2xA100-80GB", 1, 48, "devices=2"), {});
  check_candidates(plan);
  const std::vector<int32_t> order{1, 2, 0};
  assert_true(plan.request().order == order);
  assert_non_null(strstr(plan.text().c_str(), "devices by rank: A100-SXM-80GB, A100-SXM-80GB; idle: RTX-3090"));
}

// Why devices stay idle: the step over more of them, their memory, or what is fixed.
void what_stays_idle_has_a_reason(void**) {
  const auto says = [](const Request& r, const char* reason) {
    const std::string text = Plan(r, {}).text();
    if (!strstr(text.c_str(), reason)) fail_msg("expected \"%s\" in %s", reason, text.c_str());
  };
  says(request("2xH200+1xT4", 1, 48), "the fastest over more than 2 of the 3 devices is forecast to take ");
  Request small = request("2xA100-80GB+1xT4", 1, 48, "offload=none, pipeline=1, tensor=1");
  for (DeviceKind& kind : small.cluster.kinds)
    if (kind.name == "T4") kind.memory_bytes = 1e9;
  says(small, "nothing over more than 2 of the 3 devices fits their memory");
  says(request("3xA100-80GB", 1, 48, "tensor=2, data=1, pipeline=1, context=1"),
       "nothing over more than 2 of the 3 devices divides the model and the batch as asked");
}

// The file for a run has the devices in the order that was found, and not the one that stays idle.
void the_file_names_the_devices_of_an_inventory(void**) {
  Request r = request("1xRTX3090+2xA100-80GB", 1, 48, "devices=2");
  assert_null(strstr(toml_of(r, Plan(r, {}).candidates().front()).c_str(), "[select]"));
  r.cluster.indices = {0, 1, 2};
  const Plan plan(r, {});
  const std::string toml = toml_of(plan.request(), plan.candidates().front());
  assert_non_null(strstr(toml.c_str(), "# Devices by rank: A100-SXM-80GB, A100-SXM-80GB; idle: RTX-3090.\n"));
  const Config config = parse_config(toml, "plan.toml");
  assert_string_equal(config.select.devices.c_str(), "index:1,2");
  const Cluster back = devices_of(config, r.cluster);  // what is compared has them, too
  assert_true((back.indices == std::vector<int32_t>{1, 2}) && back.devices[0] == back.devices[1] && back.size() == 2);
  assert_string_equal(back.kind(0).name.c_str(), "A100-SXM-80GB");
  try {
    devices_of(parse_config("[select]\ndevices = \"index:3\"\n", "plan.toml"), r.cluster);
    fail_msg("a device that is not there was taken");
  } catch (const Error& error) {
    assert_non_null(strstr(error.what(), "select.devices lists device 3, which 1xRTX3090+2xA100-80GB does not have"));
  }
  r.fixed = parse_fixed("devices=3");
  r.cluster = cluster_of("3xA100-80GB", {});
  r.cluster.indices = {0, 1, 2};
  const Plan all(r, {});
  assert_null(strstr(toml_of(all.request(), all.candidates().front()).c_str(), "[select]"));
}

// What is fixed and excludes every layout is named, with the numbers that do not agree.
void what_excludes_every_layout_is_named(void**) {
  static const char* const cases[][2] = {
      {"tensor=4,pipeline=4", "tensor=4, pipeline=4 needs 16 ranks, and there are 8"},
      {"tensor=3,devices=8", "tensor=3 is 3 ranks, which does not divide 8 devices; fix devices=6 too"},
      {"tensor=2,context=2", "tensor and context divide the same layers; fix one of them"},
      {"chunks=2,pipeline=1", "chunks=2 is of a pipeline; fix pipeline=2 or more"},
      {"sequence_parallel=true,tensor=1", "sequence_parallel=true is of the tensor axis; fix tensor=2 or more"},
      {"microbatch=7", "microbatch=7 does not divide a batch of 64"},
  };
  for (const auto& [fixed, expected] : cases) {
    const Plan plan(request("8xH100", 1, 64, fixed), {});
    assert_true(plan.candidates().empty());
    if (!strstr(plan.text().c_str(), expected)) fail_msg("%s: no \"%s\" in %s", fixed, expected, plan.text().c_str());
  }
}

// A batch that no layout divides is named, with what is accepted.
void a_batch_that_no_layout_divides_is_named(void**) {
  static const struct {
    int32_t nodes;
    int64_t batch;
    const char *fixed, *expected;
  } cases[] = {
      {100, 3, "",
       "a batch of 3 does not divide by 4 replicas, the fewest of any layout of 800 devices; accepted: 4 and "},
      {1, 3, "data=8",
       "a batch of 3 does not divide by 8 replicas, the fewest of any layout of 8 devices; accepted: 8 and "},
      {1, 13, "data=4,pipeline=2", "accepted: multiples of 4, such as 12 and 16"},
      {1, 64, "data=8,microbatch=16", "microbatch=16 does not divide the 8 samples of each of data=8 replicas"},
  };
  for (const auto& one : cases) {
    const Plan plan(request("8xH100", one.nodes, one.batch, one.fixed), {});
    assert_true(plan.candidates().empty());
    if (!strstr(plan.text().c_str(), one.expected)) fail_msg("no \"%s\" in %s", one.expected, plan.text().c_str());
  }
}

// One device more is less than a node more.
void the_smallest_change_is_one_device_at_a_time(void**) {
  Request large = request("1xH100", 1, 8);
  large.workload = workload_of(gpt("GPT 70B", 80, 8192, 64, 51200, 4096), 4096);
  const Plan plan(large, {});
  assert_true(plan.candidates().empty());
  const std::string change = smallest_change(plan.request(), plan.result());
  if (!strstr(change.c_str(), " devices of them fit")) fail_msg("%s", change.c_str());
  for (const char* fewer : {"8 devices", "nodes"}) assert_null(strstr(change.c_str(), fewer));
}

void what_does_not_fit_names_a_change(void**) {
  const Plan plan(request("1xRTX3090", 1, 8, "offload=none"), {});
  assert_true(plan.candidates().empty());
  const std::string text = plan.text();
  assert_non_null(strstr(text.c_str(), "GiB short on stage 0"));
  assert_non_null(strstr(text.c_str(), "fit"));
  assert_true(plan.result().least.has_value());
  // The memory that it names is enough, and a hundredth less is not.
  const Candidate& least = *plan.result().least;
  const double bytes = least.memory.total() * plan.request().cluster.kinds[0].memory_bytes / least.capacity;
  assert_non_null(strstr(text.c_str(), fmt::format("; devices of {} GiB hold it, such as ", gib(bytes)).c_str()));
  for (const double share : {0.99, 1.001}) {
    Request r = request("1xRTX3090", 1, 8, "offload=none");
    r.cluster.kinds[0].memory_bytes = share * bytes;
    const Plan again(r, {});
    if (again.candidates().empty() != (share < 1))
      fail_msg("%g of %s: %s", share, gib(bytes).c_str(), again.text().c_str());
  }
}

void a_search_can_be_ended(void**) {
  Request r = request("8xH100", 1280, 10240 * 64);
  try {
    const Plan plan(std::move(r), [](int64_t) { return false; });
    fail_msg("the search went on");
  } catch (const Error& error) {
    assert_int_equal(error.code(), GSEL_ERR_ABORTED);
  }
}

// What a plan writes is read back as the same layout.
void toml_is_read_back(void**) {
  std::set<std::string> seen;
  for (const char* fixed :
       {"", "tensor=2", "pipeline=4", "zero=3", "zero=1, offload=state", "tensor=2, pipeline=2, recompute=all",
        "pipeline=2, schedule=zb-h1", "pipeline=2, schedule=interleaved-1f1b"}) {
    const Plan plan(request("8xH100", 2, 256, fixed), {});
    assert_true(!plan.candidates().empty());
    for (const Candidate& c : plan.candidates()) {
      const std::string toml = toml_of(plan.request(), c);
      const Config config = parse_config(toml, "plan.toml");
      bool others = true;
      assert_true(layout_of(config, plan.request().workload, c.layout.ranks(), &others) == c.layout && !others);
      seen.insert(toml);
    }
  }
  assert_true(seen.size() > 50);
  const Plan five(request("5xA100-80GB", 1, 48, "data=5"), {});  // replicas have 10 and 9 samples
  assert_true(!five.candidates().empty());
  for (const Candidate& c : five.candidates()) {
    bool others = true;
    assert_true(layout_of(parse_config(toml_of(five.request(), c), "plan.toml"), five.request().workload, 5, &others) ==
                c.layout);
  }
}

// Matrices of a large model are wider than what strategy "zero" gathers ahead by itself.
void zero_3_gathers_a_block_ahead(void**) {
  const Transformer shape = gpt("wide", 8, 4096, 32, 32000, 1024);
  Request r{workload_of(shape, 1024),
            cluster_of("8xH100", {}),
            *find_recipe("gsel-bf16"),
            64,
            parse_fixed("data=8, zero=3, offload=none, microbatch=4, recompute=none"),
            {}};
  r.constants = constants_for("h100", Runtime::compiled);
  r.model = describe(shape, {1024, GSEL_BF16});
  const Plan plan(std::move(r), {});
  assert_true(!plan.candidates().empty());
  const Candidate& c = plan.candidates().front();
  const std::string toml = toml_of(plan.request(), c), line = "prefetch_elems = 201379840\n";
  const size_t at = toml.find(line);
  if (at == toml.npos) fail_msg("expected \"%s\" in %s", line.c_str(), toml.c_str());
  const auto step = [&](const std::string& text) { return price(plan.input(), c, text, *plan.request().model).step_s; };
  Candidate interleaved = c;
  interleaved.layout.chunks = 2;
  assert_null(strstr(toml_of(plan.request(), interleaved).c_str(), "prefetch_elems"));
  const double ahead = step(toml), behind = step(std::string(toml).erase(at, line.size()));
  if (!(ahead < 0.95 * behind)) fail_msg("%.4f s with a block ahead, %.4f s without", ahead, behind);
}

// What the search takes for the memory of a layout, beside what the trainer says of the programs that it compiles to.
void closed_forms_are_near_the_programs(void**) {
  const Transformer shape = gpt("small", 8, 1024, 16, 32000, 1024);
  struct Row {
    const char* fixed;
    double least, most;  // program over closed form
  };
  const Row rows[] = {{"data=8, zero=0", 0.98, 1.02},
                      {"data=8, zero=1", 0.98, 1.02},
                      {"data=8, zero=2, offload=none", 0.95, 1.1},
                      {"data=8, zero=3, offload=none", 0.8, 1.05},
                      {"data=8, zero=0, recompute=all", 0.8, 1.05},
                      {"tensor=8, sequence_parallel=false, zero=0", 0.98, 1.02},
                      {"tensor=8, sequence_parallel=true, zero=0", 0.98, 1.03},
                      {"pipeline=4, schedule=1f1b, zero=0", 0.85, 1.2},
                      {"context=8, zero=0", 0.98, 1.02}};
  for (const Row& row : rows) {
    Request r{workload_of(shape, 1024),
              cluster_of("8xH100", {}),
              *find_recipe("gsel-bf16"),
              64,
              parse_fixed(std::string(row.fixed) + ", microbatch=4"),
              {}};
    if (!r.fixed.recompute) r.fixed.recompute = Recompute::none;
    r.constants = constants_for("h100", Runtime::compiled);
    r.model = describe(shape, {1024, GSEL_BF16});
    const Plan plan(std::move(r), {});
    assert_true(!plan.candidates().empty());
    const Candidate& c = plan.candidates().front();
    assert_true(c.programs.has_value());
    const double closed = c.memory.total() - c.memory[EstimatedPart::context] - c.memory[EstimatedPart::slack];
    const double ratio = static_cast<double>(c.programs->memory_bytes) / closed;
    if (ratio < row.least || ratio > row.most)
      fail_msg("%s: %s: programs need %.3f of the closed form, %.2f to %.2f were expected", row.fixed,
               name_of(c.layout).c_str(), ratio, row.least, row.most);
  }
}

void every_estimate_has_its_strategy(void**) {
  const auto rows = estimate(request("8xH100", 1, 8));
  assert_true(rows.size() >= 12);
  assert_string_equal(rows[0].strategy.c_str(), "one device");
  double ddp = 0, zero3 = 0;
  for (const EstimateRow& row : rows) {
    if (row.strategy == "DDP") ddp = row.memory.total();
    if (row.strategy == "ZeRO-3") zero3 = row.memory.total();
  }
  assert_true(ddp == rows[0].memory.total());
  assert_true(zero3 > 0 && zero3 < ddp / 2);
}

// Stages of a pipeline need unlike memory; every rank is in one line, whose parts are those of the closed form.
void an_estimate_names_the_ranks_that_differ(void**) {
  const Request r = request("4xH100", 2, 8);
  size_t unlike = 0;
  for (const EstimateRow& row : estimate(r)) {
    int32_t next = 0;
    double most = 0;
    for (const EstimateRow::Ranks& ranks : row.ranks) {
      assert_int_equal(ranks.first, next);
      next += ranks.count;
      most = std::max(most, ranks.memory.total());
    }
    assert_int_equal(next, row.layout.ranks());
    assert_true(most == row.memory.total());
    unlike += row.ranks.size() > 1;
    if (!row.strategy.starts_with("PP 4 (1f1b)")) continue;
    assert_int_equal(row.ranks.size(), 4);
    assert_int_equal(row.ranks[1].first, 2);
    assert_true(row.ranks[1].memory[EstimatedPart::activations] > row.ranks[2].memory[EstimatedPart::activations]);
  }
  assert_int_equal(unlike, 2);
  const std::string text = estimate_text(r);
  assert_non_null(strstr(text.c_str(), "\n  ranks 2-3 "));
  assert_non_null(strstr(estimate_json(r).c_str(), "\"first_rank\": 6"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(candidates_obey_and_are_in_order),
      cmocka_unit_test(the_same_request_has_the_same_text),
      cmocka_unit_test(ten_thousand_devices_are_searched),
      cmocka_unit_test(what_is_fixed_stays),
      cmocka_unit_test(what_cannot_be_fixed_is_refused),
      cmocka_unit_test(unequal_devices_get_unequal_parts),
      cmocka_unit_test(five_devices_are_all_of_use),
      cmocka_unit_test(replicas_of_unequal_devices_have_whole_samples),
      cmocka_unit_test(a_file_on_unequal_devices_has_the_parts_that_it_says),
      cmocka_unit_test(heads_that_do_not_divide_go_by_whole_ones),
      cmocka_unit_test(the_order_of_unequal_devices_is_searched),
      cmocka_unit_test(what_stays_idle_has_a_reason),
      cmocka_unit_test(the_file_names_the_devices_of_an_inventory),
      cmocka_unit_test(what_excludes_every_layout_is_named),
      cmocka_unit_test(a_batch_that_no_layout_divides_is_named),
      cmocka_unit_test(the_smallest_change_is_one_device_at_a_time),
      cmocka_unit_test(what_does_not_fit_names_a_change),
      cmocka_unit_test(a_search_can_be_ended),
      cmocka_unit_test(zero_3_gathers_a_block_ahead),
      cmocka_unit_test(closed_forms_are_near_the_programs),
      cmocka_unit_test(toml_is_read_back),
      cmocka_unit_test(every_estimate_has_its_strategy),
      cmocka_unit_test(an_estimate_names_the_ranks_that_differ),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
