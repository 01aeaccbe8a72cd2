// support/one_trainer.cc: see one_trainer.h.
#include "support/one_trainer.h"

#include "support/check.h"

OneTrainer::OneTrainer(const char* optimizer)
    : OneTrainer(std::string("optimizer = \"") + optimizer +
                     "\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = 3\nseed = 5\n",
                 0) {}

OneTrainer::OneTrainer(const std::string& train, int) {
  exact_.fail_at_step = exact_.overflow_at_step = -1;
  gsel_error* err = nullptr;
  const std::string text = "[train]\n" + train;
  check_ok(gsel_config_parse(gsel_str_from(text.c_str()), GSEL_STR("test"), &config_, &err), err);
  check_ok(gsel_model_create(&model_, &err), err);
  check_ok(exact_describe(model_, &exact_, &err), err);
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.config = config_;
  options.data = data;
  options.data_user_data = this;
  check_ok(gsel_trainer_create(nullptr, model_, &options, &trainer_, &err), err);
}

OneTrainer::~OneTrainer() {
  gsel_trainer_free(trainer_);
  gsel_model_free(model_);
  gsel_config_free(config_);
}

gsel_status OneTrainer::data(const gsel_data_request* request, void* self) {
  std::vector<int64_t>& all = static_cast<OneTrainer*>(self)->samples_;
  if (request->value == 0) all.insert(all.end(), request->sample_ids, request->sample_ids + request->n_samples);
  return exact_data(request, nullptr);
}

gsel_training_numbers OneTrainer::numbers() {
  gsel_error* err = nullptr;
  gsel_state* state = nullptr;
  gsel_training_numbers numbers = GSEL_TRAINING_NUMBERS_INIT;
  check_ok(gsel_state_open(trainer_, &state, &err), err);
  check_ok(gsel_state_numbers(state, &numbers, &err), err);
  gsel_state_free(state);
  return numbers;
}

void OneTrainer::step() {
  gsel_error* err = nullptr;
  check_ok(gsel_trainer_step(trainer_, nullptr, &err), err);
}

std::vector<float> OneTrainer::params() {
  gsel_error* err = nullptr;
  std::vector<float> all(EXACT_ELEMS);
  float* to = all.data();
  for (int p = 0; p < N_PARAMS; to += kExactElems[p++])
    check_ok(gsel_trainer_read_param(trainer_, p, to, sizeof(float) * static_cast<size_t>(kExactElems[p]), &err), err);
  return all;
}

int64_t OneTrainer::save(const std::string& folder, int32_t keep) {
  gsel_error* err = nullptr;
  gsel_checkpoint_options options = GSEL_CHECKPOINT_OPTIONS_INIT;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  options.keep = keep;
  check_ok(gsel_trainer_save(trainer_, gsel_str_from(folder.c_str()), &options, &report, &err), err);
  return report.step;
}

std::vector<float> params_after(int64_t n) {
  OneTrainer trainer;
  for (int64_t i = 0; i < n; ++i) trainer.step();
  return trainer.params();
}
