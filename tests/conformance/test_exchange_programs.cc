// conformance/test_exchange_programs.cc: ranks that compile each its own program, and hear of the others' what they
// need to know, come to the programs and to the verdicts of one who looks at all of them.
#include <numeric>

#include "api/handles.h"
#include "program/text/text.h"
#include "support/described.h"
#include "support/pipeline_damage.h"
#include "support/random_program.h"
#include "support/ranks.h"
#include "support/small_transformer.h"
#include "support/transfers.h"
#include "support/verdict.h"
#include "train/compile/exchange_programs.h"

namespace {

using namespace gsel;
using namespace gsel::test;

// What ranks are given, and what they come to.
struct Trial {
  std::vector<Program> own;  // by rank, as compiled
  std::vector<ReceivedPrograms> received;
  std::vector<std::string> verdicts;  // empty: accepted
  std::vector<Program> results;
  std::vector<gsel_status> codes;
};

void one_rank(rank_run* run) {
  auto* trial = static_cast<Trial*>(run->user);
  const auto rank = static_cast<size_t>(run->rank);
  gsel_comm* comm = nullptr;
  gsel_error* err = nullptr;
  rank_ok(run, rank_join(run, &comm, &err), err);
  trial->received[rank] = exchange_programs(comm->impl, trial->own[rank]);
  try {
    std::vector<Program> programs = verified(trial->received[rank], trial->own[rank], false);
    trial->results[rank] = *std::ranges::find(programs, run->rank, &Program::rank);
  } catch (const Error& e) {
    trial->verdicts[rank] = e.what();
    trial->codes[rank] = e.code();
  }
  gsel_comm_free(comm);
}

Trial together(std::vector<Program> own) {
  const size_t n = own.size();
  Trial trial{std::move(own), std::vector<ReceivedPrograms>(n), std::vector<std::string>(n), std::vector<Program>(n),
              std::vector<gsel_status>(n)};
  rank_run* runs = ranks_prepare(static_cast<int32_t>(n), &trial);
  ranks_run_threads(runs, static_cast<int32_t>(n), one_rank);
  ranks_verdict(runs, static_cast<int32_t>(n));
  return trial;
}

bool all_accept(const Trial& trial) {
  return std::ranges::all_of(trial.verdicts, &std::string::empty);
}

// By one who has all programs.
bool accepted(std::vector<Program>& programs) {
  try {
    place_post_validations(programs);
    set_transfers(programs);
    verify(programs);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Program> compiled(const Model& model, const std::string& text, const Mesh& mesh) {
  const Config config = parse_config(text, "trial.toml");
  const Compiler compiler(model, config, mesh);
  std::vector<Program> programs;
  for (int32_t rank = 0; rank < mesh.world_size(); ++rank) programs.push_back(compiler.compile(rank).program);
  return programs;
}

// Every rank has the program that one who looks at all would give it. How many it received of.
size_t expect_as_from_all(const std::vector<Program>& own) {
  const Trial trial = together(own);
  std::vector<Program> all = own;
  assert_true(accepted(all));
  for (size_t rank = 0; rank < own.size(); ++rank) {
    if (!trial.verdicts[rank].empty()) fail_msg("rank %zu: %s", rank, trial.verdicts[rank].c_str());
    if (!equal(trial.results[rank], all[rank]))
      fail_msg("rank %zu has\n%s\ninstead of\n%s", rank, to_text(trial.results[rank]).c_str(),
               to_text(all[rank]).c_str());
    assert_int_equal(trial.received[rank].programs.size(), trial.received[0].programs.size());
  }
  return trial.received[0].programs.size();
}

// ---- random jobs ----------------------------------------------------------------------------------------------

const char* const kSchedules[] = {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v"};
const char* const kData[] = {"plugin = \"ddp\"\nbucket_bytes = 100\n", "plugin = \"zero\"\nstage = 1\n",
                             "plugin = \"zero\"\nstage = 2\n", "plugin = \"zero\"\nstage = 3\npersist_elems = 50\n"};

struct RandomJob {
  std::unique_ptr<Model> model;
  std::string text;
  Mesh mesh;
};

RandomJob random_job(uint32_t seed) {
  made::Random random(seed);
  RandomJob job;
  job.model = made::random_model(random);
  job.mesh.size[GSEL_AXIS_DATA] = static_cast<int32_t>(random.between(1, 4));
  job.mesh.size[GSEL_AXIS_PIPELINE] = static_cast<int32_t>(random.between(1, 3));
  const bool pipelined = job.mesh.size[GSEL_AXIS_PIPELINE] > 1;
  const int64_t microbatches = random.between(1, 6);
  if (pipelined)
    job.text = fmt::format("[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"{}\"\npost_validate = \"{}\"\n",
                           kSchedules[random.below(std::size(kSchedules))], seed % 2 ? "on" : "off");
  job.text += fmt::format("[strategy.data]\n{}", kData[random.below(std::size(kData))]);
  if (random.chance(40)) {  // replicas of different sizes
    std::vector<int32_t> weights(job.mesh.size[GSEL_AXIS_DATA]);
    std::iota(weights.begin(), weights.end(), 1);
    job.text += fmt::format("weights = [{}]\n", fmt::join(weights, ", "));
  }
  job.text += fmt::format("[train]\nbatch = {}\nmicrobatches = {}\nprecision = \"fp16\"\nclip_norm = 1.0\n",
                          12 * job.mesh.size[GSEL_AXIS_DATA] * microbatches + random.between(0, 3), microbatches);
  return job;
}

// None where the model has too few layers, or the schedule cannot divide the micro-batches.
std::vector<Program> compiled(const RandomJob& job) {
  try {
    return compiled(*job.model, job.text, job.mesh);
  } catch (const Error& e) {
    if (e.code() != GSEL_ERR_CONFIG) fail_msg("%s\n%s", e.what(), job.text.c_str());
    return {};
  }
}

void a_rank_hears_of_its_pipeline_alone_and_has_the_program_that_all_would_give_it(void**) {
  int n = 0, replicated = 0;
  for (uint32_t seed = 0; seed < 80; ++seed) {
    const RandomJob job = random_job(seed);
    const std::vector<Program> own = compiled(job);
    if (own.empty()) continue;
    ++n;
    replicated += job.mesh.size[GSEL_AXIS_DATA] > 1;
    assert_int_equal(expect_as_from_all(own), job.mesh.size[GSEL_AXIS_PIPELINE]);
  }
  assert_true(n > 40 && replicated > 25);
}

void damaged_programs_get_the_verdict_of_one_who_sees_all(void**) {
  std::vector<std::vector<Program>> jobs;
  for (uint32_t seed = 0; seed < 40; ++seed)
    if (std::vector<Program> own = compiled(random_job(seed));
        !own.empty() && own.front().mesh.size[GSEL_AXIS_PIPELINE] > 1)
      jobs.push_back(std::move(own));
  int refused = 0;
  for (const auto& [name, damage] : all_damages()) {
    Draw draw(11);
    for (const std::vector<Program>& good : jobs) {
      std::vector<Program> programs = good;
      if (!damage(programs, draw)) continue;
      const Trial trial = together(programs);
      const bool expected = accepted(programs);
      refused += !expected;
      if (all_accept(trial) != expected)
        fail_msg("%s: all programs are %s, and not so for those who see some", name.c_str(),
                 expected ? "accepted" : "refused");
    }
  }
  assert_true(refused > 100);
}

// ---- other shapes ---------------------------------------------------------------------------------------------

// One rank fills inputs for all: no rank's program is like another's.
void where_ranks_differ_in_more_than_samples_each_hears_of_all(void**) {
  const RandomJob job = random_job(3);
  Mesh mesh;
  mesh.size[GSEL_AXIS_DATA] = 4;
  const std::string text = "[strategy.data]\nplugin = \"dp\"\n[train]\nbatch = 8\n";
  assert_int_equal(expect_as_from_all(compiled(*job.model, text, mesh)), 4);
}

// Ranks that share layers have parts of different sizes.
void ranks_that_share_layers_hear_of_each_other(void**) {
  const Model& model = described(tm_describe);
  for (const char* weights : {"", "weights = [1, 3]\n"}) {
    Mesh mesh;
    mesh.size[GSEL_AXIS_DATA] = mesh.size[GSEL_AXIS_PIPELINE] = mesh.size[GSEL_AXIS_TENSOR] = 2;
    const std::string text = fmt::format(
        "[strategy.tensor]\nplugin = \"tp\"\n{}[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"1f1b\"\n"
        "[strategy.data]\nplugin = \"zero\"\nstage = 1\n[train]\nbatch = 8\nmicrobatches = 2\n",
        weights);
    const std::vector<Program> own = compiled(model, text, mesh);
    assert_int_equal(expect_as_from_all(own), 2);
    std::vector<Program> other = own;  // a part that overlaps another rank's
    other[1].params = other[0].params;
    const Trial trial = together(other);
    assert_false(all_accept(trial));
    assert_false(accepted(other));
    other = own;                               // other samples at the same micro-batch
    for (Program* p : {&other[1], &other[5]})  // the pipeline of one tensor coordinate
      std::swap(p->microbatches[0], p->microbatches[1]);
    assert_false(all_accept(together(other)));
    for (const std::string& verdict : together(other).verdicts)
      if (!verdict.empty()) assert_non_null(std::strstr(verdict.c_str(), "which is on the same tensor axis"));
    assert_false(accepted(other));
  }
}

// Each replica is right by itself, and none sees the last samples.
void samples_that_no_replica_sees_are_missed(void**) {
  const RandomJob job = random_job(5);
  Mesh mesh;
  mesh.size[GSEL_AXIS_DATA] = 3;
  std::vector<Program> own =
      compiled(*job.model, "[strategy.data]\nplugin = \"ddp\"\n[train]\nbatch = 12\nmicrobatches = 2\n", mesh);
  assert_int_equal(expect_as_from_all(own), 1);
  --own[1].microbatches.back().count;
  const Trial trial = together(own);
  for (const std::string& verdict : trial.verdicts) assert_non_null(std::strstr(verdict.c_str(), "no rank runs"));
}

// What a pass notes for people is no part of it.
void notes_make_no_difference(void**) {
  const RandomJob job = random_job(5);
  Mesh mesh;
  mesh.size[GSEL_AXIS_DATA] = 2;
  std::vector<Program> own = compiled(*job.model, "[strategy.data]\nplugin = \"ddp\"\n[train]\nbatch = 12\n", mesh);
  own[1].notes.push_back("this is rank 1");
  assert_int_equal(together(own).received[0].programs.size(), 1);
}

// What is wrong with another rank's program is no parse error of the caller's.
void a_program_that_cannot_be_read_is_refused_as_a_program(void**) {
  std::vector<Program> own;
  for (uint32_t seed = 0; own.empty() || own.front().mesh.size[GSEL_AXIS_PIPELINE] < 2; ++seed)
    own = compiled(random_job(seed));
  own.back().microbatches.front().whole = 1 << 20;
  const Trial trial = together(own);
  assert_non_null(std::strstr(trial.verdicts.front().c_str(), "is a shard of"));
  assert_int_equal(trial.codes.front(), GSEL_ERR_PROGRAM);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_hears_of_its_pipeline_alone_and_has_the_program_that_all_would_give_it),
      cmocka_unit_test(damaged_programs_get_the_verdict_of_one_who_sees_all),
      cmocka_unit_test(where_ranks_differ_in_more_than_samples_each_hears_of_all),
      cmocka_unit_test(ranks_that_share_layers_hear_of_each_other),
      cmocka_unit_test(samples_that_no_replica_sees_are_missed),
      cmocka_unit_test(notes_make_no_difference),
      cmocka_unit_test(a_program_that_cannot_be_read_is_refused_as_a_program),
  };
  return cmocka_run_group_tests_name("exchange of programs", tests, nullptr, nullptr);
}
