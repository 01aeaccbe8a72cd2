// train/trainer.cc: making a trainer, and driving it. What is asked of it between steps stands in
// trainer_questions.cc.
#include "train/trainer.h"

#include <vector>

#include "base/axis.h"
#include "base/current_error.h"
#include "base/dtype.h"
#include "base/log.h"
#include "program/verify/verify.h"
#include "train/check/model_check.h"
#include "train/compile/idle_settings.h"
#include "train/memory/budget.h"
#include "train/report/traffic_notes.h"

namespace gsel {
namespace {

// Shards then end between parameters.
void keep_params_whole(std::vector<Program>& programs) {
  for (Program& program : programs)
    for (ProgramBucket& bucket : program.buckets)
      if (bucket.shards_state()) bucket.flags |= GSEL_BUCKET_WHOLE_PARAMS;
}

// No strategy would reduce their gradients, and no optimizer step them.
void refuse_own_params(const Model& model) {
  for (const Layer& layer : model.layers())
    if (layer.owns_params())
      fail(GSEL_ERR_UNSUPPORTED,
           "layer \"{}\" keeps parameters of its own, which a trainer would not step; declare them with "
           "gsel_model_add_param, or run the model with gsel_pipeline_create",
           layer.name);
}

// Muon and its like look at a matrix as one.
void refuse_split_params(const Model& local, int32_t ranks) {
  for (const Param& p : local.params())
    if (p.trainable() && !p.part.is_whole())
      fail(GSEL_ERR_UNSUPPORTED,
           "the optimizer works on whole parameters (GSEL_NEEDS_WHOLE_PARAM), and parameter \"{}\" is split over {} "
           "ranks of the tensor axis; an optimizer of elements or of norms, or mesh.tensor = 1, would do",
           p.name, ranks);
}

// A folder may be another on each rank.
bool must_agree(const std::string& key) {
  const bool shared = key.starts_with("train.") || key.starts_with("mesh.");
  return shared && key != "train.timeline" && key != "train.offload_folder";
}

}  // namespace

Trainer::Trainer(std::shared_ptr<Model> model, Communicator& comm, Config config, DataSource data,
                 const gsel_optimizer_options* optimizer)
    : model_(std::move(model)), comm_(comm), config_(std::move(config)), data_(data) {
  std::optional<Error> failure;
  try {
    prepare(optimizer);
  } catch (...) {
    failure = current_error();
  }
  // A rank that fails alone must not leave the others waiting; the communicator stays usable.
  check_all_succeeded(comm_, failure, "trainer");
  check_agreement(comm_, particulars(optimizer));
  executor_->run_setup();
}

Trainer::~Trainer() {
  if (executor_ && executor_->under_way() && !in_child())
    executor_->end_all("the trainer was freed in the middle of a step");
}

// What needs no other rank. Nothing large is taken before it is known to fit.
void Trainer::prepare(const gsel_optimizer_options* optimizer) {
  model_->finish();
  refuse_own_params(*model_);
  check_kernels();
  optimizer_.emplace(config_, *model_, optimizer);
  CompiledRanks ranks = compile_all();
  std::vector<Program>& programs = ranks.programs;
  if (optimizer_->needs_whole_params()) {
    refuse_split_params(*ranks.models[comm_.rank()], programs.front().mesh.sharing_size());
    keep_params_whole(programs);
  }
  verify(programs);
  if (programs.front().mesh.size[GSEL_AXIS_PIPELINE] > 1) programs_key_ = agreement_key(programs);
  check_budget(*model_, config_, programs.front().mesh, *optimizer_, ranks);
  program_ = std::move(programs[comm_.rank()]);
  local_ = std::move(ranks.models[comm_.rank()]);
  optimizer_.emplace(config_, *local_, optimizer);  // it is told of parameters as they are here
  executor_ = std::make_unique<Executor>(*local_, program_, config_, *optimizer_, comm_);
  executor_->params().initialise(static_cast<uint64_t>(config_.train.seed));
}

// train.check. Every rank does, since a fault may be in what one of them has loaded.
void Trainer::check_kernels() const {
  if (config_.train.check != "kernels") return;
  gsel_model_check_options options{};
  options.data = data_.fill;
  options.data_user_data = data_.user_data;
  options.seed = static_cast<uint64_t>(config_.train.seed);
  const check::Findings findings = check::check_model(*model_, options);
  for (const std::string& note : findings.notes()) log(GSEL_LOG_INFO, "check", "{}", note);
  for (const check::Breach& breach : findings.breaches()) log(GSEL_LOG_ERROR, "check", "{}", breach.text);
  log(GSEL_LOG_INFO, "check", "{}", findings.summary());
  if (!findings.breaches().empty()) fail(GSEL_ERR_MODEL, "{}", findings.breaches().front().text);
}

Particulars Trainer::particulars(const gsel_optimizer_options* optimizer) const {
  Particulars all = particulars_of(*model_);
  for (auto& particular : particulars_of(optimizer)) all.push_back(std::move(particular));
  for (const auto& [key, value] : config_.texts)
    if (must_agree(key)) all.emplace_back("setting " + key, value);
  for (gsel_axis axis = 0; axis < kAxes; ++axis) {
    if (!config_.strategy[axis]) continue;
    const std::string section = fmt::format("setting strategy.{}.", axis_name(axis));
    all.emplace_back(section + "plugin", config_.strategy[axis]->plugin);
    for (const auto& [name, value] : config_.strategy[axis]->options) all.emplace_back(section + name, value.text);
    const std::string* weights = config_.get(fmt::format("strategy.{}.weights", axis_name(axis)));
    all.emplace_back(section + "weights", weights ? *weights : "all alike");
  }
  if (programs_key_)
    all.emplace_back("what the strategies made of the files they read, such as a schedule_file,",
                     fmt::format("{:016x}", programs_key_));
  return all;
}

CompiledRanks Trainer::compile_all() const {
  const Mesh mesh{resolve_mesh(config_, comm_.world_size())};
  CompiledRanks ranks = Compiler(*model_, config_, mesh).compile_all();
  if (comm_.rank() == 0)
    for (const auto& notes : {ranks.programs.front().notes, traffic_notes(ranks.programs.front())})
      for (const std::string& note : notes) log(GSEL_LOG_INFO, "strategy", "{}", note);
  if (comm_.rank() == 0 && log_wanted(GSEL_LOG_WARN))
    for (const std::string& line : idle_settings(*model_, config_, ranks)) log(GSEL_LOG_WARN, "config", "{}", line);
  return ranks;
}

// ---- push -------------------------------------------------------------------------------------------------------

void Trainer::refuse_push(const DataSource& data) const {
  if (!data.fill) fail(GSEL_ERR_STATE, "gsel_trainer_options.data is NULL; give it to push steps, or pull them");
  if (const Layer* layer = find_pull_only(*model_))
    fail(GSEL_ERR_STATE, "layer \"{}\" has no callbacks; pull the step with gsel_trainer_next_work", layer->name);
}

void Trainer::step() {
  refuse_in_child();
  if (executor_->under_way()) fail(GSEL_ERR_STATE, "a step is under way in pull mode; finish it first");
  refuse_push(data_);
  pulled_evaluation_.reset();
  push(*executor_, *model_, data_);
}

gsel_step_report Trainer::evaluate(int64_t first_sample, DataSource data) {
  refuse_in_child();
  refuse_under_way("evaluate");
  if (!data.fill) data = data_;
  refuse_push(data);
  executor_->begin_evaluation(first_sample);
  push(*executor_, *model_, data);
  return *executor_->last_evaluation();
}

// ---- pull -------------------------------------------------------------------------------------------------------

gsel_work Trainer::next_work() {
  refuse_in_child();
  if (!executor_->under_way()) {  // a step begins
    pulls_evaluation_ = false;
    pulled_evaluation_.reset();
  }
  const gsel_work work = executor_->next();
  if (work.kind == GSEL_WORK_DONE && std::exchange(pulls_evaluation_, false))
    pulled_evaluation_ = *executor_->last_evaluation();
  return work;
}

void Trainer::complete(uint64_t ticket, gsel_status status, std::string_view message) {
  refuse_in_child();
  executor_->complete(ticket, status, message);
}

void Trainer::begin_evaluation(int64_t first_sample) {
  refuse_in_child();
  refuse_under_way("evaluate");
  executor_->begin_evaluation(first_sample);
  pulls_evaluation_ = true;
}

// ---- what is refused --------------------------------------------------------------------------------------------

// Threads do not cross a fork: what was queued on a stream would never run in the child.
void Trainer::refuse_in_child() const {
  if (in_child()) fail(GSEL_ERR_FORKED, "the trainer belongs to the parent process; join and create one after fork");
}

void Trainer::refuse_under_way(const char* what) const {
  if (executor_->under_way()) fail(GSEL_ERR_STATE, "a step is under way; {} between steps", what);
}

}  // namespace gsel
