// The programs that strategies compile, without running them: the verifier accepts those of all strategies on any
// number of ranks, and refuses each that was damaged; traffic is forecast as the closed forms say; gathers stay in
// their window.
#include <algorithm>
#include <fstream>
#include <functional>
#include <set>

#include "program/text/text.h"
#include "program/traffic.h"
#include "support/closed_forms.h"
#include "support/described.h"
#include "support/verdict.h"
#include "train/compile/pass.h"

namespace {

using namespace gsel;

const Model& exact() {
  return test::described(exact_describe);
}

std::vector<Program> compile(const std::string& config_text, int32_t n) {
  const Config config = parse_config(config_text, "trial.toml");
  const Compiler compiler(exact(), config, Mesh{{1, n, 1, 1}});
  std::vector<Program> programs;
  for (int32_t r = 0; r < n; ++r) programs.push_back(compiler.compile(r).program);
  return programs;
}

std::string train_text(const std::string& strategy, int batch, int microbatch, const std::string& more) {
  return fmt::format("{}[train]\nbatch = {}\nmicrobatch = {}\n{}", strategy, batch, microbatch, more);
}

void every_strategy_is_accepted_by_the_verifier(void**) {
  const std::string extras[] = {"", "clip_norm = 1.0\n", "precision = \"fp16\"\nclip_norm = 1.0\n",
                                "recompute = \"all\"\n"};
  for (const strategy_row& row : kStrategies)
    for (int32_t n = 1; n <= 5; ++n)
      for (int batch : {2, 9, 23})
        for (int microbatch : {1, 2, 100})
          for (const std::string& more : extras) {
            const std::vector<Program> programs = compile(train_text(row.section, batch, microbatch, more), n);
            const std::string why = test::refusal(programs);
            if (!why.empty())
              fail_msg("%s on %d ranks, batch %d in %d, %s: %s\n%s", row.name, int(n), batch, microbatch, more.c_str(),
                       why.c_str(), to_text(programs[0]).c_str());
          }
}

// ---- damage ----

using Damage = std::function<bool(std::vector<gsel_instr>&)>;

size_t position_of(const std::vector<gsel_instr>& step, gsel_instr_kind kind, size_t from = 0) {
  while (from < step.size() && step[from].kind != kind) ++from;
  return from;
}

Damage drop(gsel_instr_kind kind) {
  return [kind](std::vector<gsel_instr>& step) {
    const size_t at = position_of(step, kind);
    if (at == step.size()) return false;
    step.erase(step.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  };
}

Damage twice(gsel_instr_kind kind) {
  return [kind](std::vector<gsel_instr>& step) {
    const size_t at = position_of(step, kind);
    if (at == step.size()) return false;
    step.insert(step.begin() + static_cast<std::ptrdiff_t>(at), step[at]);
    return true;
  };
}

// The first instruction of a kind is swapped with the next of another.
Damage behind(gsel_instr_kind kind, gsel_instr_kind other) {
  return [kind, other](std::vector<gsel_instr>& step) {
    const size_t at = position_of(step, kind), to = position_of(step, other, at);
    if (to == step.size()) return false;
    std::rotate(step.begin() + static_cast<std::ptrdiff_t>(at), step.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                step.begin() + static_cast<std::ptrdiff_t>(to) + 1);
    return true;
  };
}

struct DamageRow {
  const char* name;
  std::string strategy;
  Damage damage;
};

void damaged_programs_are_refused(void**) {
  const std::string dp = DP("bucket_bytes = 100\n"), ddp = DDP("first_bucket_bytes = 100\n"),
                    zero1 = ZERO("1", "bucket_bytes = 100\n"), zero2 = ZERO("2", "bucket_bytes = 100\n"),
                    zero3 = ZERO("3", ALL_SHARDED "prefetch_elems = 20\n"),
                    resident = ZERO("3", "persist_elems = 13\n");
  const DamageRow rows[] = {
      {"ddp: a dropped allreduce", ddp, drop(GSEL_INSTR_ALLREDUCE)},
      {"ddp: a double allreduce", ddp, twice(GSEL_INSTR_ALLREDUCE)},
      {"ddp: a dropped wait", ddp, drop(GSEL_INSTR_WAIT)},
      {"ddp: a dropped step", ddp, drop(GSEL_INSTR_STEP)},
      {"dp: a dropped broadcast", dp, drop(GSEL_INSTR_BROADCAST)},
      {"dp: a dropped scatter", dp, drop(GSEL_INSTR_SCATTER)},
      {"dp: a dropped gather of values", dp, drop(GSEL_INSTR_GATHER)},
      {"dp: a dropped reduction", dp, drop(GSEL_INSTR_REDUCE)},
      {"dp: an early reduction", dp, behind(GSEL_BACKWARD, GSEL_INSTR_REDUCE)},
      {"zero 1: a dropped reduction", zero1, drop(GSEL_INSTR_REDUCE_SCATTER)},
      {"zero 1: a dropped gather", zero1, drop(GSEL_INSTR_ALLGATHER)},
      {"zero 1: a gather before the step", zero1, behind(GSEL_INSTR_STEP, GSEL_INSTR_ALLGATHER)},
      {"zero 2: a dropped reduction", zero2, drop(GSEL_INSTR_REDUCE_SCATTER)},
      {"zero 2: a double reduction", zero2, twice(GSEL_INSTR_REDUCE_SCATTER)},
      {"zero 2: a dropped gather", zero2, drop(GSEL_INSTR_ALLGATHER)},
      {"zero 3: a dropped gather", zero3, drop(GSEL_INSTR_ALLGATHER)},
      {"zero 3: a late gather", zero3, behind(GSEL_INSTR_ALLGATHER, GSEL_FORWARD)},
      {"zero 3: a late wait", zero3, behind(GSEL_INSTR_WAIT, GSEL_FORWARD)},
      {"zero 3: a dropped release", zero3, drop(GSEL_INSTR_RELEASE)},
      {"zero 3: a double release", zero3, twice(GSEL_INSTR_RELEASE)},
      {"zero 3: a dropped reduction", zero3, drop(GSEL_INSTR_REDUCE_SCATTER)},
      {"resident: a dropped reduction", resident, drop(GSEL_INSTR_REDUCE_SCATTER)},
  };
  for (const DamageRow& row : rows)
    for (const bool everywhere : {true, false}) {
      std::vector<Program> programs = compile(train_text(row.strategy, 9, 2, ""), 3);
      assert_true(test::refusal(programs).empty());
      for (Program& program : programs)
        if (everywhere || program.rank == 0)
          if (!row.damage(program.step) && program.rank == 0) fail_msg("%s: nothing to damage", row.name);
      if (test::refusal(programs).empty())
        fail_msg("%s, on %s: it was accepted\n%s", row.name, everywhere ? "all ranks" : "rank 0",
                 to_text(programs[0]).c_str());
    }
}

// ---- traffic ----

void traffic_is_that_of_the_closed_forms(void**) {
  for (int i = 0; i < N_CLOSED_FORMS; ++i)
    for (int32_t n : {2, 3, 5, 7}) {
      const uint64_t share = shard_of(23, uint64_t(n)), m = shard_of(share, 2);
      const closed_form form = expected_traffic(i, uint64_t(n), 23, m, 2);
      char config[512];
      std::snprintf(config, sizeof config, form.section, 23, 2);
      std::map<gsel_instr_kind, gsel_comm_count> sums;
      uint64_t in_setup = 0;
      for (const Program& program : compile(config, n)) {
        for (const auto& [key, count] : step_traffic(program)) {
          assert_int_equal(key.first, GSEL_AXIS_DATA);
          sums[key.second].bytes_sent += count.bytes_sent;
          sums[key.second].calls += count.calls;
        }
        for (const auto& [key, count] : setup_traffic(program)) in_setup += count.bytes_sent;
      }
      for (gsel_instr_kind kind : kSending) {
        uint64_t calls = 0;
        const uint64_t bytes = step_bytes(&form, kind, &calls);
        if (sums[kind].bytes_sent != bytes || sums[kind].calls != calls * uint64_t(n))
          fail_msg("form %d on %d ranks, %s: %llu bytes in %llu calls are forecast, %llu in %llu expected", i, int(n),
                   find_instr_row(kind)->word, (unsigned long long)sums[kind].bytes_sent,
                   (unsigned long long)sums[kind].calls, (unsigned long long)bytes,
                   (unsigned long long)(calls * uint64_t(n)));
      }
      assert_int_equal(in_setup, form.setup_broadcast);
    }
}

// ---- shape of programs ----

int64_t elems_of(const Program& program, int32_t bucket) {
  int64_t n = 0;
  for (int32_t p : program.buckets[bucket].params) n += program.params[p].n_elems;
  return n;
}

bool reads_bucket(const Program& program, const gsel_instr& instr, int32_t bucket) {
  const bool backward = instr.kind == GSEL_BACKWARD || instr.kind == GSEL_BACKWARD_INPUT;
  if (!backward && instr.kind != GSEL_FORWARD && instr.kind != GSEL_INSTR_RECOMPUTE) return false;
  const ProgramLayer& layer = program.layers[instr.layer];
  const std::vector<int32_t>& params = program.buckets[bucket].params;
  for (size_t i = 0; i < layer.params.size(); ++i)
    if (std::ranges::count(params, layer.params[i]) && !(backward && layer.backward_unread_params >> i & 1))
      return true;
  return false;
}

// Elements gathered and not yet used: at most the window, but for a bucket that is used at once.
void gathers_stay_in_their_window_and_fill_it(void**) {
  for (int64_t window : {0, 12, 20, 36, 80, 1000}) {
    int64_t most = 0;
    const std::string strategy = fmt::format(ZERO("3", ALL_SHARDED "prefetch_elems = {}\n"), window);
    for (const Program& program : compile(train_text(strategy, 9, 2, "recompute = \"all\"\n"), 2)) {
      std::set<int32_t> ahead;
      for (size_t i = 0; i < program.step.size(); ++i) {
        const gsel_instr& instr = program.step[i];
        if (instr.kind == GSEL_INSTR_ALLGATHER) ahead.insert(instr.bucket);
        std::erase_if(ahead, [&](int32_t b) { return instr.layer >= 0 && reads_bucket(program, instr, b); });
        if (instr.layer < 0) continue;
        int64_t elems = 0;
        for (int32_t b : ahead) elems += elems_of(program, b);
        most = std::max(most, elems);
      }
    }
    assert_true(most <= window);
    if (window >= FC1) assert_true(most > 0);
    if (window == 1000) assert_true(most >= FC1 + FC2);
  }
}

// What a micro-batch's backward has produced is on its way before the next backward callback but one begins.
void reductions_begin_right_behind_the_last_gradient(void**) {
  for (const char* strategy : {DDP("bucket_bytes = 1\nfirst_bucket_bytes = 1\n"), ZERO("1", "bucket_bytes = 1\n"),
                               ZERO("2", "bucket_bytes = 1\n"), ZERO("3", ALL_SHARDED)}) {
    const Program program = compile(train_text(strategy, 9, 2, ""), 2)[0];
    size_t n = 0, inside = 0;
    for (size_t i = 0; i < program.step.size(); ++i) {
      const gsel_instr_kind kind = program.step[i].kind;
      if (kind != GSEL_INSTR_ALLREDUCE && kind != GSEL_INSTR_REDUCE_SCATTER) continue;
      size_t before = i;
      while (before > 0 && program.step[before].layer < 0) --before;
      const std::vector<int32_t>& params = program.layers[program.step[before].layer].params;
      for (int32_t p : program.buckets[program.step[i].bucket].params) assert_true(std::ranges::count(params, p) > 0);
      ++n;
      inside += program.step[before].layer != L_EMBED;
    }
    assert_true(n > 0 && inside > 0);
  }
}

void a_recomputed_run_stands_before_its_last_backward(void**) {
  const Program program = compile(train_text("", 2, 100, "recompute = \"all\"\n"), 1)[0];
  std::vector<std::pair<gsel_instr_kind, int32_t>> backward;
  for (const gsel_instr& instr : program.step)
    if (instr.layer >= 0 && instr.kind != GSEL_FORWARD) backward.emplace_back(instr.kind, instr.layer);
  const std::vector<std::pair<gsel_instr_kind, int32_t>> expected = {
      {GSEL_BACKWARD_INPUT, L_LOSS},  {GSEL_INSTR_RECOMPUTE, L_HEAD},  {GSEL_BACKWARD, L_HEAD},
      {GSEL_BACKWARD_INPUT, L_ADD},   {GSEL_INSTR_RECOMPUTE, L_EMBED}, {GSEL_INSTR_RECOMPUTE, L_FC1},
      {GSEL_INSTR_RECOMPUTE, L_CLIP}, {GSEL_INSTR_RECOMPUTE, L_FC2},   {GSEL_BACKWARD_INPUT, L_FC2},
      {GSEL_BACKWARD_WEIGHT, L_FC2},  {GSEL_BACKWARD_INPUT, L_CLIP},   {GSEL_BACKWARD, L_FC1},
      {GSEL_BACKWARD_WEIGHT, L_EMBED}};
  assert_true(backward == expected);
}

void compression_and_offload_are_passed_on(void**) {
  const auto bucket = [](const char* strategy) { return compile(train_text(strategy, 2, 1, ""), 2)[1].buckets.back(); };
  assert_int_equal(bucket(DDP("compress = \"bf16\"\n")).compression, GSEL_COMPRESS_BF16);
  assert_int_equal(bucket(DDP("compress = \"bf16\"\n")).compression_start, 0);
  const ProgramBucket thin = bucket(DDP("compress = \"low_rank\"\ncompress_rank = 2\n"));
  assert_int_equal(thin.compression, GSEL_COMPRESS_LOW_RANK);
  assert_int_equal(thin.compression_rank, 2);
  assert_int_equal(thin.compression_start, 10);
  assert_int_equal(bucket(DDP("compress = \"low_rank\"\ncompress_start = 3\n")).compression_start, 3);
  assert_int_equal(bucket(ZERO("2", "offload = \"state\"\n")).flags,
                   GSEL_BUCKET_SHARD_STATE | GSEL_BUCKET_SHARD_GRADIENT | GSEL_BUCKET_OFFLOAD_STATE);
  assert_int_equal(bucket(ZERO("3", ALL_SHARDED "offload = \"all\"\n")).flags,
                   GSEL_BUCKET_SHARD_STATE | GSEL_BUCKET_SHARD_GRADIENT | GSEL_BUCKET_SHARD_PARAM |
                       GSEL_BUCKET_OFFLOAD_STATE | GSEL_BUCKET_OFFLOAD_PARAM);
}

// The files that docs/strategies.md shows.
void documented_programs_are_those_that_are_compiled(void**) {
  const std::pair<const char*, const char*> files[] = {{"dp", DP("bucket_bytes = 100\n")},
                                                       {"ddp", DDP("first_bucket_bytes = 100\nbucket_bytes = 100\n")},
                                                       {"zero1", ZERO("1", "bucket_bytes = 100\n")},
                                                       {"zero2", ZERO("2", "bucket_bytes = 100\n")},
                                                       {"zero3", ZERO("3", ALL_SHARDED "prefetch_elems = 20\n")}};
  for (const auto& [name, strategy] : files)
    for (const Program& program : compile(train_text(strategy, 5, 4, ""), 2)) {
      const std::string path = fmt::format("{}/programs/{}.{}", std::getenv("GSEL_TEST_DATA"), name, program.rank);
      const std::string text = to_text(program);
      std::ifstream file(path);
      const std::string shown((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      if (shown == text) continue;
      if (std::getenv("GSEL_TEST_UPDATE"))
        std::ofstream(path) << text;
      else
        fail_msg("%s differs from what is compiled, which follows; GSEL_TEST_UPDATE=1 writes it anew\n%s", path.c_str(),
                 text.c_str());
    }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_strategy_is_accepted_by_the_verifier),
      cmocka_unit_test(damaged_programs_are_refused),
      cmocka_unit_test(traffic_is_that_of_the_closed_forms),
      cmocka_unit_test(gathers_stay_in_their_window_and_fill_it),
      cmocka_unit_test(reductions_begin_right_behind_the_last_gradient),
      cmocka_unit_test(a_recomputed_run_stands_before_its_last_backward),
      cmocka_unit_test(compression_and_offload_are_passed_on),
      cmocka_unit_test(documented_programs_are_those_that_are_compiled),
  };
  return cmocka_run_group_tests_name("strategies_programs", tests, nullptr, nullptr);
}
