// train/trainer.cc: creates and runs a trainer. Answers queries between steps: values, parameters, reports, memory.
#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/options.h"
#include "base/random.h"
#include "base/text.h"
#include "base/types.h"
#include "model/views.h"
#include "train/check/model_check.h"
#include "train/compile/exchange_programs.h"
#include "train/compile/pass.h"
#include "train/compile_rank.h"
#include "train/joint_calls.h"
#include "train/report/step_record.h"
#include "train/report/traffic_notes.h"
#include "train/state/budget.h"

namespace gsel {
namespace {

// No strategy could reduce the gradients of such parameters, and no optimizer step them.
void refuse_own_params(const Model& model) {
  for (const Layer& layer : model.layers())
    if (layer.owns_params())
      fail(GSEL_ERR_UNSUPPORTED,
           "layer \"{}\" keeps parameters of its own, which a trainer would not step; declare them with "
           "gsel_model_add_param, or run the model with gsel_pipeline_create",
           layer.name);
}

// No two states of trainers have one number.
uint64_t next_version() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Folders and devices may differ between ranks.
bool must_agree(const std::string& key) {
  const bool shared = key.starts_with("train.") || key.starts_with("mesh.") || key == "comm.timeout_s";
  return shared && key != "train.timeline" && key != "train.offload_folder" && key != "train.device";
}

}  // namespace

Trainer::Trainer(Communicator& comm, std::shared_ptr<Model> model, Config config, DataSource data,
                 const gsel_optimizer_options* optimizer)
    : comm_(comm), model_(std::move(model)), config_(std::move(config)), data_(data), version_(next_version()) {
  Compiled own;
  on_all_ranks(comm_, "trainer", [&] {
    refuse_model(optimizer);
    own = compile_own(config_, optimizer);
  });
  check_agreement(comm_, particulars(optimizer, own.files_key));
  const std::vector<Program> programs = verified_together(own.program);
  refuse_budget(own, programs, optimizer);
  on_all_ranks(comm_, "trainer", [&] {
    make_executor(std::move(own), programs, optimizer);
    if (config_.train.redundancy > 0) refuse_state_of_layout();
  });
  if (keeps_copies()) {
    const StateDict dict = state_dict();
    executor_->foresee(MemoryPart::copies, Mirror::forecast(comm_, dict));
  }
  executor_->run_setup();
}

Trainer::~Trainer() {
  if (executor_ && executor_->under_way() && !in_child())
    executor_->end_all("the trainer was freed in the middle of a step");
}

// ---- what needs no other rank -------------------------------------------------------------------------------------

void Trainer::refuse_model(const gsel_optimizer_options* optimizer) const {
  model_->finish();
  refuse_own_params(*model_);
  refuse_device();
  check_kernels(optimizer);
}

// train.device must be the communicator's, with or without its index.
void Trainer::refuse_device() const {
  const std::string& wanted = config_.train.device;
  const DeviceWish wish = device_wish(wanted);
  const std::string has = comm_.accelerator() ? comm_.accelerator()->name : "cpu";
  const std::string_view kind = std::string_view(has).substr(0, has.find(':'));
  if (wanted == "auto" || wish.device == has || wish.device == kind || (wish.or_host && has == "cpu")) return;
  const Place place = config_.place_of("train.device");
  throw Error(
      GSEL_ERR_CONFIG,
      fmt::format("{}train.device = \"{}\", and the communicator of rank {} has {}; join with that device, make "
                  "the trainer without a communicator, or leave train.device out",
                  place_prefix(place), wanted, comm_.rank(), has))
      .at(place);
}

Compiled Trainer::compile_own(const Config& config, const gsel_optimizer_options* options) const {
  const Mesh mesh{resolve_mesh(config, comm_.world_size())};
  const Optimizer optimizer(config, *model_, options);
  return compile_rank(Compiler(*model_, config, mesh), comm_.rank(), optimizer);
}

void Trainer::make_executor(Compiled own, const std::vector<Program>& programs, const gsel_optimizer_options* options) {
  log_notes(own, programs);
  local_ = std::move(own.model);
  program_ = own_of(programs);
  optimizer_.emplace(config_, *local_, options);  // for the parameters of this rank
  executor_ = std::make_unique<Executor>(*local_, program_, config_, *optimizer_, comm_);
  executor_->params().initialise(static_cast<uint64_t>(config_.train.seed));
}

const Program& Trainer::own_of(const std::vector<Program>& programs) const {
  return *std::ranges::find(programs, comm_.rank(), &Program::rank);
}

void Trainer::log_notes(const Compiled& own, const std::vector<Program>& programs) const {
  if (comm_.rank() != 0) return;
  for (const auto& notes : {own.program.notes, traffic_notes(programs.front())})
    for (const std::string& note : notes) log(GSEL_LOG_INFO, "strategy", "{}", note);
  log_default_decay();
  if (!log_wanted(GSEL_LOG_WARN)) return;
  const Compiler compiler(*model_, config_, programs.front().mesh);
  for (const std::string& line : idle_settings(compiler, *model_, programs.front()))
    log(GSEL_LOG_WARN, "config", "{}", line);
}

// Logs a default that affects training.
void Trainer::log_default_decay() const {
  if (config_.places.contains("train.weight_decay") || config_.settings.contains("train.weight_decay")) return;
  if (config_.train.weight_decay == 0) return;
  const auto decays = [](const Param& p) { return p.trainable() && !(p.flags & GSEL_PARAM_NO_DECAY); };
  const auto n = std::ranges::count_if(model_->params(), decays);
  if (n == 0) return;
  log(GSEL_LOG_INFO, "config",
      "train.weight_decay is not set and is {} by default: it applies to {} of {} parameters, which are not flagged "
      "GSEL_PARAM_NO_DECAY; train.weight_decay = 0 turns it off",
      config_.train.weight_decay, n, model_->params().size());
}

// train.check. Every rank checks, since the kernels of one rank may differ.
void Trainer::check_kernels(const gsel_optimizer_options* optimizer) const {
  if (config_.train.check != "kernels") return;
  gsel_model_check_options options{};
  options.data = data_.fill;
  options.data_user_data = data_.user_data;
  options.seed = static_cast<uint64_t>(config_.train.seed);
  if (optimizer) check_optimizer_options(*optimizer);
  options.optimizer = optimizer;
  const auto device = execute::DeviceWatch::watched(std::make_shared<execute::DeviceWatch>(comm_));
  const check::Findings findings = check::check_model(device, *model_, options);
  for (const std::string& note : findings.notes()) log(GSEL_LOG_INFO, "check", "{}", note);
  for (const check::Breach& breach : findings.breaches()) log(GSEL_LOG_ERROR, "check", "{}", breach.text);
  log(GSEL_LOG_INFO, "check", "{}", findings.summary());
  if (!findings.breaches().empty()) fail(GSEL_ERR_MODEL, "{}", findings.breaches().front().text);
}

Particulars Trainer::particulars(const gsel_optimizer_options* optimizer, uint64_t files_key) const {
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
  if (files_key)
    all.emplace_back("what the strategies read from files, such as a schedule_file,",
                     fmt::format("{:016x}", files_key));
  return all;
}

// ---- collectives --------------------------------------------------------------------------------------------------

std::vector<Program> Trainer::verified_together(const Program& own) const {
  const ReceivedPrograms received = exchange_programs(comm_, own);
  std::vector<Program> programs;
  on_all_ranks(comm_, "trainer", [&] { programs = verified(received, own, comm_.accelerator() != nullptr); });
  return programs;
}

// By rank. Where free memory is the bound, ranks on one device have one need.
std::vector<RankNeed> Trainer::needs_of_all(const MemoryPartBytes& mine) const {
  const Accelerator* accelerator = config_.train.takes_free_memory ? comm_.accelerator() : nullptr;
  std::vector<uint64_t> sent(mine.begin(), mine.end());
  sent.push_back(accelerator && !accelerator->uuid.empty() ? derive_key(0, accelerator->uuid) : 0);
  const std::vector<uint64_t> all = gather_numbers(comm_, sent);
  const auto of = [&](int32_t rank) { return &all[static_cast<size_t>(rank) * sent.size()]; };
  std::vector<RankNeed> needs;
  for (int32_t rank = 0; rank < comm_.world_size(); ++rank) {
    RankNeed& need = needs.emplace_back(rank);
    for (int32_t other = 0; other < comm_.world_size(); ++other) {
      const bool is_here = of(rank)[mine.size()] != 0 && of(rank)[mine.size()] == of(other)[mine.size()];
      if (other != rank && !is_here) continue;
      for (size_t i = 0; i < mine.size(); ++i) need.parts[i] += of(other)[i];
      if (other != rank) need.sharing.push_back(other);
    }
  }
  return needs;
}

// Empty if a rank cannot compile the configuration. Throws the communicator's errors.
std::optional<RankNeed> Trainer::need_of(const Config& config, const gsel_optimizer_options* options) const {
  Compiled own;
  if (!succeeds_on_all_ranks(comm_, [&] { own = compile_own(config, options); })) return {};
  const ReceivedPrograms received = exchange_programs(comm_, own.program);
  MemoryPartBytes mine{};
  const bool can = succeeds_on_all_ranks(comm_, [&] {
    const std::vector<Program> programs = verified(received, own.program, comm_.accelerator() != nullptr);
    mine = forecast_memory(*own.model, own_of(programs), Optimizer(config, *own.model, options),
                           offload_buffers(*comm_.device_context(), config));
  });
  return can ? std::optional(std::ranges::max(needs_of_all(mine), {}, &RankNeed::total)) : std::nullopt;
}

// Before anything large is allocated.
void Trainer::refuse_budget(const Compiled& own, const std::vector<Program>& programs,
                            const gsel_optimizer_options* options) const {
  const bool takes_free = config_.train.takes_free_memory && comm_.accelerator();
  if (config_.train.memory_bytes == 0 && !takes_free) return;
  MemoryPartBytes mine{};
  uint64_t free = 0;
  on_all_ranks(comm_, "trainer", [&] {
    mine = forecast_memory(*own.model, own_of(programs), Optimizer(config_, *own.model, options),
                           offload_buffers(*comm_.device_context(), config_));
    if (takes_free) free = comm_.device_context()->describe().free_bytes;
    if (free == 0) free = UINT64_MAX;  // unknown
  });
  Budget budget{static_cast<uint64_t>(config_.train.memory_bytes)};
  RankNeed need;
  if (!takes_free) {
    need = std::ranges::max(needs_of_all(mine), {}, &RankNeed::total);
  } else {
    const std::vector<uint64_t> room = gather_numbers(comm_, {free});
    const auto missing = [&](const RankNeed& n) {
      const uint64_t has = room[static_cast<size_t>(n.rank)];
      return n.total() > has ? n.total() - has : 0;
    };
    need = std::ranges::max(needs_of_all(mine), {}, missing);
    budget = {room[static_cast<size_t>(need.rank)], true};
  }
  check_budget(
      config_, budget, programs.front(), need, [&] { return memory_advice(programs.front().mesh); },
      [&](const Config& config) { return need_of(config, options); });
}

// Empty on all ranks if one rank gets no advice, so that all try the same configurations.
std::vector<Suggestion> Trainer::memory_advice(const Mesh& mesh) const {
  std::vector<Suggestion> advice;
  const bool can = succeeds_on_all_ranks(comm_, [&] {
    advice = Compiler(*model_, config_, mesh).advise(GSEL_AXIS_DATA, GSEL_ADVICE_MEMORY, comm_.rank());
  });
  return can ? advice : std::vector<Suggestion>{};
}

// ---- push mode ----------------------------------------------------------------------------------------------------

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
  begin_step();
  push(*executor_, *model_, data_);
  end_step();
}

gsel_step_report Trainer::evaluate(int64_t first_sample, DataSource data) {
  refuse_in_child();
  refuse_under_way("evaluate");
  if (!data.fill) data = data_;
  refuse_push(data);
  refuse_sample(first_sample);
  executor_->refuse_lost_state();
  version_ = next_version();
  begin_joint_call(comm_, *executor_, JointCall::evaluate, first_sample);
  executor_->begin_evaluation(first_sample);
  push(*executor_, *model_, data);
  return *executor_->last_evaluation();
}

// ---- pull mode ----------------------------------------------------------------------------------------------------

gsel_work Trainer::next_work() {
  refuse_in_child();
  if (!executor_->under_way()) {  // a step begins
    pulls_evaluation_ = false;
    pulled_evaluation_.reset();
    begin_step();
  }
  const gsel_work work = executor_->next();
  if (work.kind != GSEL_WORK_DONE) return work;
  if (std::exchange(pulls_evaluation_, false))
    pulled_evaluation_ = *executor_->last_evaluation();
  else
    end_step();
  return work;
}

void Trainer::complete(uint64_t ticket, gsel_status status, std::string_view message) {
  refuse_in_child();
  executor_->complete(ticket, status, message);
}

void Trainer::begin_evaluation(int64_t first_sample) {
  refuse_in_child();
  refuse_under_way("evaluate");
  refuse_sample(first_sample);
  executor_->refuse_lost_state();
  version_ = next_version();
  begin_joint_call(comm_, *executor_, JointCall::evaluate, first_sample);
  executor_->begin_evaluation(first_sample);
  pulls_evaluation_ = true;
}

// ---- refused calls ------------------------------------------------------------------------------------------------

// Threads do not survive a fork: work queued on a stream would never run in the child.
void Trainer::refuse_in_child() const {
  if (in_child()) fail(GSEL_ERR_FORKED, "the trainer belongs to the parent process; join and create one after fork");
}

void Trainer::refuse_sample(int64_t first_sample) {
  if (first_sample < 0) fail(GSEL_ERR_ARG, "first_sample is {}; samples count from 0", first_sample);
}

void Trainer::refuse_under_way(const char* what) const {
  if (executor_->under_way()) fail(GSEL_ERR_STATE, "a step is under way; {} between steps", what);
}

// ---- questions between steps ---------------------------------------------------------------------------------------

const gsel_step_report& Trainer::report() const {
  if (pulled_evaluation_) return *pulled_evaluation_;
  if (!executor_->last_step()) fail(GSEL_ERR_STATE, "no step is finished yet");
  return executor_->last_step()->report;
}

std::string Trainer::step_json() const {
  if (!executor_->last_step()) fail(GSEL_ERR_STATE, "no step is finished yet");
  return to_json(program_, *executor_->last_step(), !config_.train.timeline.empty());
}

gsel_comm_count Trainer::counts(gsel_instr_kind kind, gsel_axis axis) const {
  refuse_in_child();
  return executor_->counts(kind, axis);
}

gsel_memory_part Trainer::memory_part(int32_t i) const {
  refuse_in_child();
  check_index(i, kMemoryParts, "i");
  const auto part = static_cast<MemoryPart>(i);
  return gsel_memory_part{sizeof(gsel_memory_part), is_offloaded(part) ? 1 : 0, memory_part_name(part),
                          executor_->forecast()[i], executor_->ledger().peak()[i]};
}

const Param& Trainer::checked_param(int32_t param) const {
  if (param < 0 || static_cast<size_t>(param) >= model_->params().size())
    fail(GSEL_ERR_ARG, "parameter {} was asked for; parameters 0 to {} exist", param,
         static_cast<int64_t>(model_->params().size()) - 1);
  return model_->params()[param];
}

bool Trainer::param_used(int32_t param) const {
  checked_param(param);
  return executor_->param_used(param);
}

bool Trainer::holds_params() const {
  return WholeParams::kept_everywhere(program_);
}

void Trainer::infer(int32_t value, int64_t n_samples, DataSource data, void* dst, size_t dst_bytes) {
  refuse_in_child();
  refuse_under_way("infer");
  if (value < 0 || static_cast<size_t>(value) >= model_->values().size())
    fail(GSEL_ERR_ARG, "value {} was asked for; values 0 to {} exist", value,
         static_cast<int64_t>(model_->values().size()) - 1);
  if (n_samples < 1) fail(GSEL_ERR_ARG, "{} were asked for; at least 1 is possible", with_noun(n_samples, "sample"));
  if (!data.fill || !dst) fail(GSEL_ERR_ARG, "{} is NULL", data.fill ? "dst" : "data");
  const Value& wanted = model_->values()[value];
  if (const uint64_t bytes = value_bytes(wanted, n_samples); bytes != dst_bytes)
    fail(GSEL_ERR_ARG, "dst has {} bytes; value \"{}\" of {} has {} bytes", dst_bytes, wanted.name,
         with_noun(n_samples, "sample"), bytes);
  if (executor_->broken()) fail(GSEL_ERR_STATE, "an earlier step failed; free the trainer");
  executor_->refuse_lost_state();
  if (!holds_params()) begin_joint_call(comm_, *executor_, JointCall::infer, value);
  executor_->settle_last_step();
  if (!inference_ || !inference_->fits(value, n_samples)) {
    inference_.reset();
    inference_.emplace(*executor_, *local_, *model_, program_, value, n_samples);
  }
  inference_->run(data, derive_key(static_cast<uint64_t>(executor_->numbers().seed), "inference"), dst);
}

const Param& Trainer::checked_read(int32_t param, const void* dst, size_t dst_bytes) const {
  const Param& p = checked_param(param);
  const uint64_t bytes = static_cast<uint64_t>(p.n_elems) * sizeof(float);
  if (!dst || bytes != dst_bytes)
    fail(GSEL_ERR_ARG, "dst has {} bytes; parameter \"{}\" has {} bytes", dst ? dst_bytes : 0, p.name, bytes);
  return p;
}

void Trainer::read_param(int32_t param, void* dst, size_t dst_bytes) {
  refuse_in_child();
  checked_read(param, dst, dst_bytes);
  refuse_under_way("read parameters");
  executor_->refuse_lost_state();
  if (!holds_params()) begin_joint_call(comm_, *executor_, JointCall::read_param, param);
  executor_->settle_last_step();
  WholeParams(*executor_, *local_, program_).read(param, static_cast<float*>(dst));
}

void Trainer::read_gradient(int32_t param, void* dst, size_t dst_bytes) {
  refuse_in_child();
  const Param& p = checked_read(param, dst, dst_bytes);
  if (!p.trainable()) fail(GSEL_ERR_ARG, "parameter \"{}\" is frozen and has no gradient", p.name);
  if (optimizer_->poisons_gradients())
    fail(GSEL_ERR_UNSUPPORTED,
         "the optimizer of the embedder may have overwritten gradients; it is given them in its call");
  refuse_under_way("read gradients");
  executor_->refuse_lost_state();
  if (!executor_->last_step()) fail(GSEL_ERR_STATE, "no step is finished yet; gradients are those of the last step");
  begin_joint_call(comm_, *executor_, JointCall::read_gradient, param);
  executor_->settle_last_step();
  const gsel_step_report& step = executor_->last_step()->report;
  const auto factor = static_cast<float>(1 / (step.weight * step.loss_scale));
  const std::span<float> gradient(static_cast<float*>(dst), static_cast<size_t>(p.n_elems));
  WholeParams(*executor_, *local_, program_).read_gradient(param, gradient.data());
  for (float& g : gradient) g *= factor;
}

void Trainer::set_learning_rate(double rate) {
  refuse_in_child();
  if (!(rate >= 0) || !std::isfinite(rate))
    fail(GSEL_ERR_ARG, "learning_rate is {}; expected a finite number of at least 0", rate);
  refuse_under_way("set the learning rate");
  executor_->refuse_lost_state();
  begin_joint_call(comm_, *executor_, JointCall::set_learning_rate, std::bit_cast<int64_t>(rate));
  executor_->settle_last_step();  // a repeated step uses its old rate
  optimizer_->set_learning_rate(rate);
  if (mirror_) mirror_->set_learning_rate(executor_->numbers().step, rate);
}

// ---- checkpoints ----------------------------------------------------------------------------------------------------

bool Trainer::is_low_rank() const {
  return std::ranges::any_of(program_.buckets,
                             [](const ProgramBucket& b) { return b.compression == GSEL_COMPRESS_LOW_RANK; });
}

void Trainer::refuse_formless_state() const {
  if (is_low_rank() && program_.mesh.size[GSEL_AXIS_DATA] != comm_.world_size())
    fail(GSEL_ERR_UNSUPPORTED,
         "gradients are compressed in low rank, and mesh.data is {} of {} ranks; checkpoints have what compression has "
         "left over where all ranks are on the data axis; use another compression, or none",
         program_.mesh.size[GSEL_AXIS_DATA], comm_.world_size());
}

void Trainer::refuse_state_of_layout() const {
  if (optimizer_->has_8bit_states())
    fail(
        GSEL_ERR_UNSUPPORTED,
        "train.optimizer = \"{}\" keeps states in 8 bits, in blocks that ranks divide; only checkpoints have them; use "
        "adamw",
        config_.train.optimizer);
  if (is_low_rank())
    fail(GSEL_ERR_UNSUPPORTED,
         "gradients are compressed in low rank, and what that has left over is each rank's own; only checkpoints have "
         "it; use another compression, or none");
}

StateDict Trainer::begin_state(JointCall call) {
  refuse_in_child();
  refuse_under_way(call == JointCall::save ? "save" : call == JointCall::load ? "load" : "read the state");
  if (executor_->broken()) fail(GSEL_ERR_STATE, "an earlier step failed; free the trainer");
  if (call != JointCall::load) executor_->refuse_lost_state();
  if (call == JointCall::save || call == JointCall::load)
    refuse_formless_state();
  else
    refuse_state_of_layout();
  if (call == JointCall::load) version_ = next_version();
  begin_joint_call(comm_, *executor_, call);
  executor_->settle_last_step();
  return state_dict();
}

// ---- a change of ranks --------------------------------------------------------------------------------------------

void Trainer::begin_step() {
  executor_->refuse_lost_state();
  version_ = next_version();
  begin_joint_call(comm_, *executor_, JointCall::step);
  if (keeps_copies() && !have_copies_of_now()) keep_copies();
}

// Whether all ranks have them. Writes between steps are each rank's own calls: all ranks take the largest revision, and
// make their copies together.
bool Trainer::have_copies_of_now() {
  const int64_t mine = executor_->numbers().revision;
  const bool is_there = mirror_ && mirror_->revision() == mine;
  const std::vector<uint64_t> all = gather_numbers(comm_, {static_cast<uint64_t>(mine), static_cast<uint64_t>(is_there),
                                                           static_cast<uint64_t>(mirror_.has_value())});
  bool have = true, have_mirrors = true;
  auto largest = static_cast<uint64_t>(mine);
  for (size_t i = 0; i < all.size(); i += 3) {
    have = have && all[i + 1] != 0 && all[i] == all[0];
    have_mirrors = have_mirrors && all[i + 2] != 0;
    largest = std::max(largest, all[i]);
  }
  executor_->set_revision(static_cast<int64_t>(largest));
  if (!have_mirrors) drop_copies();
  return have;
}

void Trainer::drop_copies() {
  if (mirror_) executor_->ledger().give_back(MemoryPart::copies, mirror_->bytes());
  mirror_.reset();
}

void Trainer::keep_copies() {
  try {
    executor_->settle_last_step();
    if (!mirror_) {
      mirror_.emplace(comm_, state_dict());
      executor_->ledger().take(MemoryPart::copies, mirror_->bytes());
    }
    mirror_->keep(numbers());
  } catch (...) {
    const Error error = current_error();
    if (error.code() == GSEL_ERR_PEER || error.code() == GSEL_ERR_TIMEOUT) comm_.break_with(error);
    if (mirror_) mirror_->abort(error.message());
    executor_->end_all(error.message(), error.rank());
    throw;
  }
}

void Trainer::end_step() {
  if (!old_copies_.empty() && ++ended_with_old_copies_ > 1) old_copies_.clear();
  if (mirror_ && executor_->numbers().step % config_.train.redundancy_every == 0) keep_copies();
  if (!config_.train.timeline.empty()) write_timeline(config_.train.timeline, program_, *executor_->last_step());
}

std::unique_ptr<Trainer> Trainer::remade(Communicator& comm, const Config* config) const {
  refuse_in_child();
  auto made = std::make_unique<Trainer>(comm, model_, config ? *config : config_, data_, optimizer_->users());
  made->user_states_ = user_states_;
  made->given_states_ = given_states_;
  made->save_history_ = std::make_shared<SaveHistory>(*save_history_, INT64_MAX);
  return made;
}

// A rank that has ended a step knows that every rank has begun it, and with it made its copy; two steps, since a rank
// may end one before others have all of their copies.
void Trainer::take_copies_of(Trainer& old) {
  old_copies_ = std::move(old.old_copies_);
  if (old.mirror_) old_copies_.push_back(std::move(*old.mirror_));
  for (Mirror& copies : old_copies_) copies.close();
  ended_with_old_copies_ = 0;
}

StateOffers Trainer::offers(std::optional<StateDict>& dict) {
  refuse_state_of_layout();
  StateOffers offers;
  if (executor_->has_whole_state()) {
    dict.emplace(state_dict());
    offers.mine.push_back(held_state(*dict, numbers()));
  }
  if (mirror_)
    for (HeldState& held : mirror_->held()) offers.mine.push_back(std::move(held));
  for (const Mirror& copies : old_copies_)
    for (HeldState& held : copies.held()) offers.mine.push_back(std::move(held));
  return offers;
}

bool Trainer::is_cut_off() const noexcept {
  try {
    comm_.throw_async_error();
    return executor_->broken();
  } catch (...) {
    return true;
  }
}

StateDict Trainer::begin_params(JointCall call) {
  refuse_in_child();
  refuse_under_way(call == JointCall::load_weights ? "load weights" : "export weights");
  if (executor_->broken()) fail(GSEL_ERR_STATE, "an earlier step failed; free the trainer");
  executor_->refuse_lost_state();
  begin_joint_call(comm_, *executor_, call);
  executor_->settle_last_step();
  if (call == JointCall::load_weights) mark_written();
  return {executor_->params(), *executor_->device(), *local_, program_, *optimizer_};
}

void Trainer::add_state(UserState state) {
  refuse_in_child();
  std::vector<UserState> states = user_states_;
  add_user_state(states, state);
  take_given(given_states_, state);
  user_states_ = std::move(states);
}

TrainingNumbers Trainer::numbers() const {
  TrainingNumbers numbers = executor_->numbers();
  numbers.learning_rate = optimizer_->set_rate();
  return numbers;
}

void Trainer::go_on_from(const TrainingNumbers& numbers) {
  TrainingNumbers next = numbers;
  next.revision = executor_->numbers().revision + 1;  // no copy that was made before is of this state
  take_over(next);
  save_history_ = std::make_shared<SaveHistory>(*save_history_, -1);
}

void Trainer::take_over(const TrainingNumbers& numbers) {
  executor_->go_on_from(numbers);
  optimizer_->restore_rate(numbers.learning_rate);
  save_history_ = std::make_shared<SaveHistory>(*save_history_, numbers.step);
  drop_copies();
  old_copies_.clear();
}

}  // namespace gsel
