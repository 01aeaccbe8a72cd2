// train/trainer.cc: see trainer.h.
#include "train/trainer.h"

#include <vector>

#include "base/current_error.h"
#include "base/dtype.h"
#include "base/foreign.h"
#include "base/random.h"
#include "program/verify.h"

namespace gsel {
Trainer::Trainer(std::shared_ptr<Model> model, Communicator& comm, Config config, gsel_data_fn data,
                 void* data_user_data)
    : model_(std::move(model)), comm_(comm), config_(std::move(config)), data_(data), data_user_data_(data_user_data) {
  std::optional<Error> failure;
  try {
    prepare();
  } catch (...) {
    failure = current_error();
  }
  // A rank that fails alone must not leave the others waiting; the communicator stays usable.
  check_all_succeeded(comm_, failure);
  check_agreement(comm_, particulars());
  executor_->run_setup();
}

// What needs no other rank.
void Trainer::prepare() {
  model_->finish();
  program_ = compile_and_verify();
  executor_ = std::make_unique<Executor>(*model_, program_, config_, comm_);
  executor_->params().initialise(*model_, static_cast<uint64_t>(config_.train.seed));
}

Particulars Trainer::particulars() const {
  Particulars all = particulars_of(*model_);
  for (const auto& [key, value] : config_.texts)
    if (key.starts_with("train.") || key.starts_with("mesh.")) all.emplace_back("setting " + key, value);
  for (gsel_axis axis = 0; axis < GSEL_AXES; ++axis) {
    if (!config_.strategy[axis]) continue;
    const std::string section = fmt::format("setting strategy.{}.", axis_name(axis));
    all.emplace_back(section + "plugin", config_.strategy[axis]->plugin);
    for (const auto& [name, value] : config_.strategy[axis]->options) all.emplace_back(section + name, value.text);
  }
  return all;
}

Program Trainer::compile_and_verify() const {
  const Mesh mesh{resolve_mesh(config_, comm_.world_size())};
  for (gsel_axis axis : {GSEL_AXIS_TENSOR, GSEL_AXIS_PIPELINE})
    if (mesh.size[axis] > 1) {
      const Place place = config_.place_of(fmt::format("mesh.{}", axis_name(axis)));
      throw Error(
          GSEL_ERR_UNSUPPORTED,
          fmt::format("{}mesh.{} = {}: this libgsel {} runs the data axis alone; mesh.{} = 1 would do",
                      place_prefix(place), axis_name(axis), mesh.size[axis], gsel_version_text(), axis_name(axis)))
          .at(place);
    }
  const Compiler compiler(*model_, config_, mesh);
  std::vector<Program> programs;
  for (int32_t rank = 0; rank < comm_.world_size(); ++rank) programs.push_back(compiler.compile(rank));
  std::vector<const Program*> pointers;
  for (const Program& p : programs) pointers.push_back(&p);
  verify(pointers);
  return std::move(programs[comm_.rank()]);
}

gsel_status Trainer::run_callback(const gsel_work& work) const {
  std::string thrown;
  const gsel_status status = call_foreign([&] { return call_embedder(work); }, GSEL_ERR_CALLBACK, thrown);
  if (!thrown.empty()) executor_->write_message(thrown);
  return status;
}

gsel_status Trainer::call_embedder(const gsel_work& work) const {
  if (work.kind == GSEL_WORK_INPUT) return data_(work.input, data_user_data_);
  const Layer& layer = model_->layers()[work.call->layer];
  switch (work.kind) {
    case GSEL_WORK_FORWARD:
      return layer.forward(work.call, layer.user_data);
    case GSEL_WORK_BACKWARD_INPUT:
      return layer.backward_input(work.call, layer.user_data);
    case GSEL_WORK_BACKWARD_WEIGHT:
      return layer.backward_weight(work.call, layer.user_data);
    default:
      return layer.backward(work.call, layer.user_data);
  }
}

// Threads do not cross a fork: what was queued on a stream would never run in the child.
void Trainer::refuse_in_child() const {
  if (os::fork_generation() != fork_generation_)
    fail(GSEL_ERR_FORKED, "the trainer belongs to the parent process; join and create one after fork");
}

gsel_work Trainer::next_work() {
  refuse_in_child();
  return executor_->next();
}

void Trainer::complete(uint64_t ticket, gsel_status status, std::string_view message) {
  refuse_in_child();
  executor_->complete(ticket, status, message);
}

void Trainer::step() {
  refuse_in_child();
  if (executor_->in_step()) fail(GSEL_ERR_STATE, "a step is under way in pull mode; finish it first");
  if (!data_) fail(GSEL_ERR_STATE, "gsel_trainer_options.data is NULL; give it to push steps, or pull them");
  for (const Layer& layer : model_->layers())
    if (layer.pull_only())
      fail(GSEL_ERR_STATE, "layer \"{}\" has no callbacks; pull the step with gsel_trainer_next_work", layer.name);
  for (;;) {
    const gsel_work work = executor_->next();
    if (work.kind == GSEL_WORK_DONE) return;
    const gsel_status status = run_callback(work);
    executor_->complete(work.ticket, status, executor_->callback_message());
  }
}

void Trainer::infer(int32_t value, int64_t n_samples, gsel_data_fn data, void* user_data, void* dst, size_t dst_bytes) {
  refuse_in_child();
  if (executor_->in_step()) fail(GSEL_ERR_STATE, "a step is under way; infer between steps");
  if (value < 0 || static_cast<size_t>(value) >= model_->values().size())
    fail(GSEL_ERR_ARG, "value {} was asked for; values 0 to {} exist", value,
         static_cast<int64_t>(model_->values().size()) - 1);
  if (n_samples < 1) fail(GSEL_ERR_ARG, "{} samples were asked for; at least 1 is possible", n_samples);
  if (!data || !dst) fail(GSEL_ERR_ARG, "{} is NULL", data ? "dst" : "data");
  const Value& wanted = model_->values()[value];
  if (const uint64_t bytes = value_bytes(wanted, n_samples); bytes != dst_bytes)
    fail(GSEL_ERR_ARG, "dst has {} bytes; value \"{}\" of {} samples has {} bytes", dst_bytes, wanted.name, n_samples,
         bytes);
  if (!inference_ || !inference_->fits(value, n_samples))
    inference_.emplace(comm_.backend(), *model_, executor_->params(), value, n_samples);
  inference_->run(data, user_data, derive_key(static_cast<uint64_t>(config_.train.seed), "inference"), dst);
}

void Trainer::read_param(int32_t param, void* dst, size_t dst_bytes) {
  if (param < 0 || static_cast<size_t>(param) >= model_->params().size())
    fail(GSEL_ERR_ARG, "parameter {} was asked for; parameters 0 to {} exist", param,
         static_cast<int64_t>(model_->params().size()) - 1);
  const Param& p = model_->params()[param];
  const uint64_t bytes = static_cast<uint64_t>(p.n_elems) * sizeof(float);
  if (!dst || bytes != dst_bytes)
    fail(GSEL_ERR_ARG, "dst has {} bytes; parameter \"{}\" has {} bytes", dst ? dst_bytes : 0, p.name, bytes);
  comm_.backend()->run(&gsel_backend_v1::copy, dst, static_cast<const void*>(executor_->params().param(param)), bytes,
                       int32_t{GSEL_COPY_TO_HOST}, static_cast<gsel_stream*>(nullptr));
}

}  // namespace gsel
