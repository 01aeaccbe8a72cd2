// api/train.cc: gsel/train.h.
#include <optional>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "plan/automatic.h"

namespace {

gsel_trainer& checked(gsel_trainer* trainer) {
  return gsel::required(trainer, "trainer");
}

void write_report(const gsel_trainer& trainer, gsel_step_report value, gsel_step_report* report) {
  value.save = trainer.background_save->state();
  gsel::write_struct(report, value, "gsel_step_report");
}

}  // namespace

std::unique_ptr<gsel_trainer> gsel::make_trainer(gsel_comm* comm, gsel_model* model,
                                                 const gsel_trainer_options* options) {
  gsel_trainer_options given{};
  if (options) given = read_struct(options, "gsel_trainer_options");
  gsel_optimizer_options optimizer{};
  if (given.optimizer) optimizer = read_struct(given.optimizer, "gsel_optimizer_options");
  required(model, "model");
  Config config = given.config ? given.config->impl : default_config();
  const DataSource data{given.data, given.data_user_data};
  std::optional<Communicator> own;
  if (!comm) own.emplace(Communicator::alone(config));
  Communicator* ranks = comm ? &comm->impl : nullptr;
  if (config.plan == "auto") config = plan::planned(ranks ? *ranks : *own, model->impl, config, data);
  auto made = std::make_unique<gsel_trainer>(ranks, std::move(own), model->impl, config, data,
                                             given.optimizer ? &optimizer : nullptr);
  made->data.take(given.data_user_data, given.data_free_user_data);
  made->optimizer.take(optimizer.user_data, optimizer.free_user_data);
  return made;
}

extern "C" {

void gsel_trainer_options_init(gsel_trainer_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}
void gsel_step_report_init(gsel_step_report* report, size_t struct_size) {
  gsel::init_struct(report, struct_size);
}
void gsel_work_init(gsel_work* work, size_t struct_size) {
  gsel::init_struct(work, struct_size);
}

void gsel_optimizer_options_init(gsel_optimizer_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}
void gsel_memory_part_init(gsel_memory_part* part, size_t struct_size) {
  gsel::init_struct(part, struct_size);
}

gsel_status gsel_trainer_create(gsel_comm* comm, gsel_model* model, const gsel_trainer_options* options,
                                gsel_trainer** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = gsel::make_trainer(comm, model, options).release();
  });
}

gsel_status gsel_trainer_step(gsel_trainer* trainer, gsel_step_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (report) gsel::stated_size(report, "gsel_step_report");
    checked(trainer).impl().step();
    if (report) write_report(*trainer, trainer->impl().report(), report);
  });
}

gsel_status gsel_trainer_next_work(gsel_trainer* trainer, gsel_work* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::stated_size(out, "gsel_work");
    gsel::write_struct(out, checked(trainer).impl().next_work(), "gsel_work");
  });
}

gsel_status gsel_trainer_complete(gsel_trainer* trainer, uint64_t ticket, gsel_status status, gsel_str message,
                                  gsel_error** err) {
  return gsel::guard(err, [&] { checked(trainer).impl().complete(ticket, status, gsel::view(message)); });
}

// Records that the report was read, which changes no state that a caller can set.
gsel_status gsel_trainer_report(const gsel_trainer* trainer, gsel_step_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel_trainer& of = gsel::required(trainer, "trainer");
    write_report(of, of.impl().report(), report);
    of.impl().report_was_read();
  });
}

gsel_status gsel_trainer_evaluate(gsel_trainer* trainer, int64_t first_sample, gsel_data_fn data, void* user_data,
                                  gsel_step_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (report) gsel::stated_size(report, "gsel_step_report");
    const gsel_step_report evaluation = checked(trainer).impl().evaluate(first_sample, {data, user_data});
    if (report) write_report(*trainer, evaluation, report);
  });
}

gsel_status gsel_trainer_begin_evaluation(gsel_trainer* trainer, int64_t first_sample, gsel_error** err) {
  return gsel::guard(err, [&] { checked(trainer).impl().begin_evaluation(first_sample); });
}

int32_t gsel_trainer_holds_params(const gsel_trainer* trainer) {
  return trainer && trainer->impl().holds_params();
}

gsel_status gsel_trainer_infer(gsel_trainer* trainer, int32_t value, int64_t n_samples, gsel_data_fn data,
                               void* user_data, void* dst, size_t dst_bytes, gsel_error** err) {
  return gsel::guard(err, [&] { checked(trainer).impl().infer(value, n_samples, {data, user_data}, dst, dst_bytes); });
}

gsel_status gsel_trainer_read_param(gsel_trainer* trainer, int32_t param, void* dst, size_t dst_bytes,
                                    gsel_error** err) {
  return gsel::guard(err, [&] { checked(trainer).impl().read_param(param, dst, dst_bytes); });
}

gsel_status gsel_trainer_read_gradient(gsel_trainer* trainer, int32_t param, void* dst, size_t dst_bytes,
                                       gsel_error** err) {
  return gsel::guard(err, [&] { checked(trainer).impl().read_gradient(param, dst, dst_bytes); });
}

gsel_status gsel_trainer_set_learning_rate(gsel_trainer* trainer, double learning_rate, gsel_error** err) {
  return gsel::guard(err, [&] { checked(trainer).impl().set_learning_rate(learning_rate); });
}

const gsel_program* gsel_trainer_program(const gsel_trainer* trainer) {
  return trainer ? trainer->program.get() : nullptr;
}

gsel_status gsel_trainer_counts(const gsel_trainer* trainer, gsel_instr_kind kind, gsel_axis axis, gsel_comm_count* out,
                                gsel_error** err) {
  return gsel::guard(err, [&] {
    const auto& impl = gsel::required(trainer, "trainer").impl();
    gsel::write_struct(out, impl.counts(kind, axis), "gsel_comm_count");
  });
}

int32_t gsel_trainer_memory_count(const gsel_trainer* trainer) {
  return trainer ? static_cast<int32_t>(gsel::kMemoryParts) : 0;
}

gsel_status gsel_trainer_memory(const gsel_trainer* trainer, int32_t i, gsel_memory_part* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::stated_size(out, "gsel_memory_part");
    gsel::write_struct(out, gsel::required(trainer, "trainer").impl().memory_part(i), "gsel_memory_part");
  });
}

gsel_status gsel_trainer_step_json(gsel_trainer* trainer, gsel_str* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = {nullptr, 0};
    gsel_trainer& t = checked(trainer);
    t.step_json = t.impl().step_json();
    *out = gsel::borrow(t.step_json);
  });
}

int32_t gsel_trainer_param_used(const gsel_trainer* trainer, int32_t param) {
  int32_t used = GSEL_ERR_ARG;
  gsel::guard(nullptr, [&] { used = gsel::required(trainer, "trainer").impl().param_used(param); });
  return used;
}

void gsel_trainer_free(gsel_trainer* trainer) {
  delete trainer;
}

}  // extern "C"
