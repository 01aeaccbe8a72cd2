// train/pipeline.cc: see pipeline.h.
#include "train/pipeline.h"

#include <algorithm>

#include "program/program.h"
#include "train/compile/exchange_programs.h"
#include "train/joint_calls.h"
#include "train/report/step_record.h"

namespace gsel {

// ---- the configuration that strategies read ------------------------------------------------------------------------

namespace {

constexpr const char* kOrigin = "gsel_pipeline_options";  // takes the place of the file name in messages

ConfigValue option(const char* field, ConfigValue::Type type, std::string text) {
  return {type, std::move(text), {kOrigin, 0, 0, field}};
}

StrategySection own_section(const char* plugin) {
  return {plugin, {kOrigin, 0, 0, plugin}, {}};
}

// Names of the layers that begin stages 1, 2, ...
std::string cuts(const PipelineSettings& settings, const Model& model) {
  const auto n = static_cast<int32_t>(model.layers().size());
  std::string names;
  for (size_t i = 0; i < settings.first_layers.size(); ++i) {
    const int32_t l = settings.first_layers[i], before = i ? settings.first_layers[i - 1] : 0;
    if (l <= before || l >= n)
      fail(GSEL_ERR_ARG,
           "{}.first_layers[{}] is layer {}; stage {} begins after layer {}, and the model's last layer is {}", kOrigin,
           i, l, i + 1, before, n - 1);
    names += (i ? "," : "") + model.layers()[l].name;
  }
  return names;
}

}  // namespace

bool PipelineSettings::reads_file() const {
  return schedule.find('/') != std::string::npos || schedule.ends_with(".csv") || schedule.ends_with(".txt");
}

Config to_config(const PipelineSettings& settings, const Model& model, int32_t ranks) {
  Config config = default_config();
  config.mesh = {settings.tensor_ranks, 1, ranks / settings.tensor_ranks};
  config.train.microbatch = settings.microbatch_samples;
  config.train.batch = settings.microbatch_samples * settings.microbatches;
  using Type = ConfigValue::Type;
  StrategySection section = own_section(OwnStrategies::pipeline);
  const char* key = settings.reads_file() ? "schedule_file" : "schedule";
  section.options[key] = option("schedule", Type::text, settings.schedule);
  if (settings.chunks) section.options["chunks"] = option("chunks", Type::integer, std::to_string(settings.chunks));
  if (!settings.first_layers.empty())
    section.options["cuts"] = option("first_layers", Type::text, cuts(settings, model));
  config.strategy[GSEL_AXIS_PIPELINE] = std::move(section);
  if (settings.tensor_ranks > 1) config.strategy[GSEL_AXIS_TENSOR] = own_section(OwnStrategies::tensor);
  return config;
}

// ---- the pipeline --------------------------------------------------------------------------------------------------

namespace {

constexpr int32_t kMostPerRun = 1 << 16;

// The report's field for an instruction's time; callbacks are timed separately.
double gsel_pipeline_report::*share_of(const InstrRow& row) {
  if (row.is_send()) return &gsel_pipeline_report::comm_s;
  return row.is_receive() || row.task == InstrTask::loss ? &gsel_pipeline_report::idle_s : nullptr;
}

double gsel_pipeline_stage::*share_in_stage(const InstrRow& row) {
  if (row.input_half) return &gsel_pipeline_stage::backward_input_s;
  if (row.weight_half) return &gsel_pipeline_stage::backward_weight_s;
  return row.callback && !row.recomputes ? &gsel_pipeline_stage::forward_s : nullptr;
}

// The stages of the program's rank.
std::vector<int32_t> stages_here(const Program& program) {
  const int32_t rank = program.mesh.coordinate(program.rank, GSEL_AXIS_PIPELINE);
  std::vector<int32_t> stages;
  for (size_t s = 0; s < program.rank_of_stage.size(); ++s)
    if (program.rank_of_stage[s] == rank) stages.push_back(static_cast<int32_t>(s));
  return stages;
}

}  // namespace

Pipeline::Pipeline(Communicator& comm, std::shared_ptr<Model> model, PipelineSettings settings)
    : comm_(comm), model_(std::move(model)), settings_(std::move(settings)) {
  Compiled own;
  on_all_ranks(comm_, "pipeline", [&] { own = compile_own(); });
  check_agreement(comm_, particulars(own.files_key));
  const ReceivedPrograms received = exchange_programs(comm_, own.program);
  on_all_ranks(comm_, "pipeline",
               [&] { make_executor(own.model, verified(received, own.program, comm_.accelerator() != nullptr)); });
  executor_->run_setup();
}

// What needs no other rank.
Compiled Pipeline::compile_own() {
  check_settings();
  model_->finish(Model::Loss::optional);
  check_model();
  config_ = to_config(settings_, *model_, comm_.world_size());
  optimizer_.emplace(config_, *model_, nullptr);
  return Compiler(*model_, config_, Mesh{resolve_mesh(config_, comm_.world_size())}).compile(comm_.rank());
}

void Pipeline::make_executor(std::shared_ptr<const Model> local, std::vector<Program> programs) {
  local_ = std::move(local);
  program_ = std::move(*std::ranges::find(programs, comm_.rank(), &Program::rank));
  executor_ = std::make_unique<Executor>(*local_, program_, config_, *optimizer_, comm_);
  executor_->params().initialise(static_cast<uint64_t>(config_.train.seed));
}

void Pipeline::check_settings() const {
  if (settings_.microbatches < 1 || settings_.microbatches > kMostPerRun)
    fail(GSEL_ERR_ARG, "gsel_pipeline_options.microbatches is {}; expected 1 to {}", settings_.microbatches,
         kMostPerRun);
  if (settings_.microbatch_samples < 1 || settings_.microbatch_samples > INT64_MAX / kMostPerRun)
    fail(GSEL_ERR_ARG, "gsel_pipeline_options.microbatch_samples is {}; expected 1 or more samples",
         settings_.microbatch_samples);
  if (settings_.chunks < 0)
    fail(GSEL_ERR_ARG, "gsel_pipeline_options.chunks is {}; expected 1 or more, or 0 for what the schedule needs",
         settings_.chunks);
  if (settings_.tensor_ranks < 1 || comm_.world_size() % settings_.tensor_ranks != 0)
    fail(GSEL_ERR_ARG,
         "gsel_pipeline_options.tensor_ranks is {}, and the communicator has {} rank{}; expected a number that divides "
         "them, or 0 for 1",
         settings_.tensor_ranks, comm_.world_size(), comm_.world_size() == 1 ? "" : "s");
}

void Pipeline::check_model() const {
  const auto trained = std::ranges::find_if(model_->params(), &Param::trainable);
  if (trained != model_->params().end())
    fail(GSEL_ERR_UNSUPPORTED,
         "the model declares parameter \"{}\", which is trained, and a pipeline without a trainer steps nothing: flag "
         "it "
         "GSEL_PARAM_FROZEN, leave it to its layer with GSEL_LAYER_OWN_PARAMS, or train the model with "
         "gsel_trainer_create",
         trained->name);
  if (const Layer* layer = find_pull_only(*model_))
    fail(GSEL_ERR_MODEL, "layer \"{}\" has no callbacks; a pipeline calls them", layer->name);
  for (const Layer& layer : model_->layers()) check_backward_is_called(layer);
  if (settings_.data.fill) return;
  for (const Value& v : model_->values())
    if (v.is_input())
      fail(GSEL_ERR_ARG, "gsel_pipeline_options.data is NULL and value \"{}\" is an input, which it would fill",
           v.name);
}

// A backward that nothing calls belongs to undeclared parameters: a run would train nothing. With declared parameters,
// which are frozen, a fused backward is allowed, as a trainer may use it.
void Pipeline::check_backward_is_called(const Layer& layer) const {
  if (model_->loss_layer() < 0 || layer.is_loss() || !layer.params.empty() || layer.needs_backward_weight) return;
  const bool fused_alone = layer.backward && !layer.backward_input && !layer.needs_backward_input;
  if (!layer.backward_weight && !(fused_alone && model_->params().empty())) return;
  fail(GSEL_ERR_MODEL,
       "layer \"{}\" gives {} that it would be called for; flag the layer GSEL_LAYER_OWN_PARAMS where it keeps "
       "parameters of its own, else leave that callback out",
       layer.name, layer.backward_weight ? "backward_weight and has no parameters" : "backward and has nothing");
}

// A schedule's file may have another path on each rank; its contents must be equal.
Particulars Pipeline::particulars(uint64_t files_key) const {
  Particulars all = particulars_of(*model_);
  all.emplace_back("gsel_pipeline_options.schedule", settings_.reads_file() ? "a file" : settings_.schedule);
  all.emplace_back("gsel_pipeline_options.chunks", std::to_string(settings_.chunks));
  all.emplace_back("gsel_pipeline_options.microbatches", std::to_string(settings_.microbatches));
  all.emplace_back("gsel_pipeline_options.microbatch_samples", std::to_string(settings_.microbatch_samples));
  all.emplace_back("gsel_pipeline_options.tensor_ranks", std::to_string(settings_.tensor_ranks));
  all.emplace_back("gsel_pipeline_options.first_layers", fmt::format("{}", fmt::join(settings_.first_layers, ", ")));
  if (files_key) all.emplace_back("the schedule's file", fmt::format("{:016x}", files_key));
  return all;
}

// ---- a run ------------------------------------------------------------------------------------------------------

void Pipeline::refuse_run(int32_t what) const {
  if (os::fork_generation() != fork_generation_)
    fail(GSEL_ERR_FORKED, "the pipeline belongs to the parent process; join and create one after fork");
  if (what != GSEL_FORWARD && what != GSEL_FORWARD_BACKWARD)
    fail(GSEL_ERR_ARG, "what is {}; GSEL_FORWARD and GSEL_FORWARD_BACKWARD exist", what);
  if (executor_->broken()) fail(GSEL_ERR_STATE, "an earlier run failed; free the pipeline and its communicator");
  if (what == GSEL_FORWARD_BACKWARD && model_->loss_layer() < 0)
    fail(GSEL_ERR_STATE,
         "the model has no loss layer, where a backward would begin; flag one with GSEL_LAYER_LOSS, or run "
         "GSEL_FORWARD");
  if (what == GSEL_FORWARD_BACKWARD && std::ranges::none_of(model_->layers(), &Layer::needs_backward))
    fail(GSEL_ERR_STATE,
         "no layer has parameters to learn; flag those that keep their own GSEL_LAYER_OWN_PARAMS, or run "
         "GSEL_FORWARD");
}

gsel_pipeline_report Pipeline::run(int32_t what) {
  refuse_run(what);
  has_run_ = false;
  begin_joint_call(comm_, *executor_, JointCall::run_pipeline, what);
  if (what == GSEL_FORWARD) executor_->begin_evaluation(forward_runs_ * config_.train.batch);
  push(*executor_, *model_, settings_.data);
  forward_runs_ += what == GSEL_FORWARD;
  has_run_ = true;
  if (!settings_.timeline.empty()) write_timeline(settings_.timeline, executor_->last_program(), executor_->last_run());
  return report();
}

// Whether the instruction redistributes a value on the tensor axis.
bool Pipeline::is_between_ranks(const gsel_instr& instr) const {
  return instr.layer >= 0 && program_.layers[instr.layer].redistributes;
}

gsel_pipeline_report Pipeline::report() const {
  const StepRecord& record = executor_->last_run();
  const std::vector<gsel_instr>& step = executor_->last_program().step;
  gsel_pipeline_report report{};
  report.struct_size = sizeof report;
  report.rank = comm_.rank();
  report.elapsed_s = record.report.seconds;
  report.busy_s = record.report.compute_s;
  for (const Interval& interval : record.intervals) {
    const gsel_instr& instr = step[interval.position];
    const auto share = is_between_ranks(instr) ? &gsel_pipeline_report::comm_s : share_of(instr_row(instr.kind));
    if (share && !interval.asynchronous) report.*share += interval.end - interval.begin;
  }
  // Reductions inside a callback have no interval of their own.
  report.comm_s += std::max(0.0, record.report.exposed_comm_s - report.idle_s - report.comm_s);
  report.overhead_s = std::max(0.0, report.elapsed_s - report.busy_s - report.idle_s - report.comm_s);
  for (const AxisCount& count : record.counts) {
    if (!instr_row(count.kind).is_send()) continue;
    report.messages_sent += count.count.calls;
    report.bytes_sent += count.count.bytes_sent;
  }
  report.peak_bytes = record.report.peak_bytes;
  report.loss_sum = record.report.loss_sum;
  report.loss_weight = record.report.weight;
  return report;
}

int32_t Pipeline::stage_count() const {
  return static_cast<int32_t>(stages_here(program_).size());
}

gsel_pipeline_stage Pipeline::stage(int32_t i) const {
  gsel_pipeline_stage stage = GSEL_PIPELINE_STAGE_INIT;
  stage.stage = stages_here(program_).at(static_cast<size_t>(i));
  for (size_t l = 0; l < program_.layers.size(); ++l)
    if (program_.layers[l].stage == stage.stage && !program_.layers[l].redistributes && stage.n_layers++ == 0)
      stage.first_layer = local_->layers()[l].origin;
  if (!has_run_) return stage;
  const std::vector<gsel_instr>& step = executor_->last_program().step;
  for (const Interval& interval : executor_->last_run().intervals) {
    const gsel_instr& instr = step[interval.position];
    if (auto share = share_in_stage(instr_row(instr.kind)); share && program_.layers[instr.layer].stage == stage.stage)
      stage.*share += interval.end - interval.begin;
  }
  return stage;
}

}  // namespace gsel
