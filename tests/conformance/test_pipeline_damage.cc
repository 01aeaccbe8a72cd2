// Programs that strategies make of pipelines, damaged: whatever the schedule, the mesh and the data strategy, the
// verifier refuses each way of damage.
#include "program/text/text.h"
#include "program/verify/verify.h"
#include "support/check.h"
#include "support/pipeline_damage.h"
#include "support/random_program.h"

namespace {

using namespace gsel;
using namespace gsel::test;

const char* const kSchedules[] = {"naive", "gpipe",          "1f1b",  "interleaved-1f1b",
                                  "zb-h1", "interleaved-zb", "zb-h2", "zb-v"};
const char* const kData[] = {"[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 100\nfirst_bucket_bytes = 1\n",
                             "[strategy.data]\nplugin = \"zero\"\nstage = 1\nbucket_bytes = 100\n",
                             "[strategy.data]\nplugin = \"zero\"\nstage = 2\n",
                             "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 50\n"};

// None where the model has too few layers, or the schedule cannot divide the micro-batches.
std::vector<Program> compiled(uint32_t seed) {
  made::Random random(seed);
  const auto model = made::random_model(random);
  const Mesh mesh{{1, static_cast<int32_t>(random.between(1, 2)), static_cast<int32_t>(random.between(2, 4)), 1}};
  const int64_t microbatches = random.between(1, 6);
  const std::string text = fmt::format(
      "[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"{}\"\npost_validate = \"{}\"\n{}[train]\nbatch = {}\n"
      "microbatches = {}\nprecision = \"fp16\"\nclip_norm = 1.0\n",
      kSchedules[random.below(std::size(kSchedules))], seed % 2 ? "on" : "off", kData[random.below(std::size(kData))],
      2 * mesh.size[GSEL_AXIS_DATA] * microbatches, microbatches);
  const Config config = parse_config(text, "trial.toml");
  try {
    return made::programs(*model, config, mesh);
  } catch (const Error& e) {
    if (e.code() != GSEL_ERR_CONFIG) fail_msg("seed %u: %s\n%s", seed, e.what(), text.c_str());
    return {};
  }
}

bool accepted(const std::vector<Program>& programs) {
  try {
    verify(programs);
    return true;
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_PROGRAM);
    return false;
  }
}

void damaged_programs_of_any_schedule_are_refused(void**) {
  std::vector<std::vector<Program>> all;
  for (uint32_t seed = 0; seed < 120; ++seed)
    if (std::vector<Program> programs = compiled(seed); !programs.empty()) {
      assert_true(accepted(programs));
      all.push_back(std::move(programs));
    }
  assert_true(all.size() > 40);
  for (const auto& [name, damage] : all_damages()) {
    Draw draw(7);
    int applied = 0;
    for (const std::vector<Program>& good : all) {
      std::vector<Program> programs = good;
      if (!damage(programs, draw)) continue;
      ++applied;
      if (!accepted(programs)) continue;
      std::string text;
      for (const Program& p : programs) text += to_text(p);
      fail_msg("%s: accepted\n%s", name.c_str(), text.c_str());
    }
    if (applied == 0) print_message("  %s: fits none of these programs\n", name.c_str());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(damaged_programs_of_any_schedule_are_refused)};
  return cmocka_run_group_tests_name("pipeline damage", tests, nullptr, nullptr);
}
