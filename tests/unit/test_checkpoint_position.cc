// Where training goes on after a load: with the next sample, also in batches of another size; with the random numbers
// of the seed that was saved; and with everything that an optimizer, a loss scale and a schedule remember, so that a
// run that was stopped and one that was not have the same bits after each step.
#include <fmt/format.h>
#include <gsel/checkpoint.h>

#include <numeric>
#include <string>

#include "support/check.h"
#include "support/one_trainer.h"
#include "support/scratch.h"

namespace {

constexpr int kBefore = 3, kAfter = 4;

char folder[256];

void load(OneTrainer& trainer, const std::string& path) {
  gsel_error* err = nullptr;
  check_ok(gsel_trainer_load(trainer.handle(), gsel_str_from(path.c_str()), nullptr, &err), err);
}

void goes_on(const char* name, const std::string& train) {
  const std::string path = std::string(folder) + "/" + name;
  OneTrainer whole = OneTrainer::with(train), before = OneTrainer::with(train), after = OneTrainer::with(train);
  for (int i = 0; i < kBefore; ++i) whole.step(), before.step();
  before.save(path);
  load(after, path);
  for (int i = 0; i < kAfter; ++i) {
    whole.step(), after.step();
    assert_true(whole.params() == after.params());
  }
  const gsel_training_numbers of_whole = whole.numbers(), of_after = after.numbers();
  assert_memory_equal(&of_whole, &of_after, sizeof of_whole);
  if (of_whole.updates < of_whole.step)
    printf("%s: %d steps overflowed\n", name, static_cast<int>(of_whole.step - of_whole.updates));
}

void what_an_optimizer_remembers_is_kept(void**) {
  for (const char* optimizer : {"adamw", "adam", "lion", "sgd", "sign_sgd"})
    for (const char* precision : {"f32", "bf16", "fp16"})
      goes_on((std::string(optimizer) + "-" + precision).c_str(),
              fmt::format("optimizer = \"{}\"\nlearning_rate = 0.01\nbatch = 4\nmicrobatch = 2\nprecision = \"{}\"\n{}",
                          optimizer, precision, std::string(optimizer) == "sgd" ? "momentum = 0.75\n" : ""));
}

// Parameters are saved from their master copies: what was trained in one precision goes on in another from the same
// values, with the loss scale that the other one begins with, unless both have one.
void another_precision_has_the_same_state(void**) {
  const auto with = [](const std::string& precision) {
    return "optimizer = \"adamw\"\nlearning_rate = 0.01\nbatch = 4\nprecision = \"" + precision + "\"\n";
  };
  for (const char* from : {"f32", "bf16", "fp16"})
    for (const char* to : {"f32", "bf16", "fp16"}) {
      const std::string path = std::string(folder) + "/" + from + "-to-" + to;
      OneTrainer before = OneTrainer::with(with(from)), after = OneTrainer::with(with(to));
      for (int i = 0; i < kBefore; ++i) before.step();
      before.save(path);
      load(after, path);
      assert_true(after.numbers().step == kBefore);
      assert_true(after.numbers().loss_scale == (std::string(to) == "fp16" ? 65536 : 1));
      after.save(path + "/again");
      gsel_error* err = nullptr;
      gsel_checkpoint* opened[2] = {nullptr, nullptr};
      gsel_checkpoint_differences* differences = nullptr;
      check_ok(gsel_checkpoint_open(gsel_str_from(path.c_str()), &opened[0], &err), err);
      check_ok(gsel_checkpoint_open(gsel_str_from((path + "/again").c_str()), &opened[1], &err), err);
      check_ok(gsel_checkpoint_diff(opened[0], opened[1], nullptr, &differences, &err), err);
      for (int32_t i = 0; i < gsel_checkpoint_difference_count(differences); ++i) {
        gsel_checkpoint_difference difference = GSEL_CHECKPOINT_DIFFERENCE_INIT;
        check_ok(gsel_checkpoint_difference_get(differences, i, &difference, &err), err);
        assert_int_equal(difference.kind, GSEL_CHECKPOINT_DIFFERS_NUMBER);
        assert_string_not_equal(from, to);
      }
      gsel_checkpoint_differences_free(differences);
      for (gsel_checkpoint* one : opened) gsel_checkpoint_free(one);
      after.step();
    }
}

void what_comes_of_the_number_of_steps_is_kept(void**) {
  goes_on("schedule",
          "learning_rate = 0.25\nschedule = \"cosine\"\nwarmup_steps = 2\ntotal_steps = 6\nclip_norm = 0.5\n");
  goes_on("scale",
          "precision = \"fp16\"\nloss_scale_initial = 1e30\nloss_scale_window = 2\nloss_scale_hysteresis = 2\n");
}

void the_next_sample_comes_next(void**) {
  const std::string path = std::string(folder) + "/batches";
  OneTrainer before = OneTrainer::with("batch = 6\nseed = 7\n"), after = OneTrainer::with("batch = 4\nseed = 1\n");
  for (int i = 0; i < kBefore; ++i) before.step();
  before.save(path);
  load(after, path);
  gsel_training_numbers numbers = after.numbers();
  assert_true(numbers.step == kBefore && numbers.first_sample == 18 && numbers.seed == 7);
  for (int i = 0; i < kAfter; ++i) after.step();
  std::vector<int64_t> all = before.samples(), expected(18 + 4 * kAfter);
  all.insert(all.end(), after.samples().begin(), after.samples().end());
  std::iota(expected.begin(), expected.end(), 0);
  assert_true(all == expected);
  // And once more, with what is between both.
  after.save(path);
  load(before, path);
  numbers = before.numbers();
  assert_true(numbers.first_sample == 18 + 4 * kAfter && numbers.seed == 7);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_an_optimizer_remembers_is_kept),
      cmocka_unit_test(another_precision_has_the_same_state),
      cmocka_unit_test(what_comes_of_the_number_of_steps_is_kept),
      cmocka_unit_test(the_next_sample_comes_next),
  };
  if (make_scratch(folder, sizeof folder, "position") != 1) return 1;
  const int failed = cmocka_run_group_tests_name("where training goes on", tests, nullptr, nullptr);
  remove_scratch(folder);
  return failed;
}
