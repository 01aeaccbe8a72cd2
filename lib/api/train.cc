// api/train.cc: gsel/train.h.
#include "api/comm_handle.h"
#include "api/config_handle.h"
#include "api/init_struct.h"
#include "api/model_handle.h"
#include "api/program_handle.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "train/trainer.h"

struct gsel_trainer {
  template <class... Args>
  explicit gsel_trainer(Args&&... args) : impl(std::forward<Args>(args)...), program{impl.program()} {}

  gsel::Trainer impl;
  gsel_program program;  // lent by gsel_trainer_program
};

namespace {

gsel_trainer& checked(gsel_trainer* trainer) {
  return gsel::required(trainer, "trainer");
}

void write_report(const gsel::Executor& executor, gsel_step_report* report) {
  if (!executor.report()) gsel::fail(GSEL_ERR_STATE, "no step is finished yet");
  gsel::write_struct(report, *executor.report(), "gsel_step_report");
}

}  // namespace

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

gsel_status gsel_trainer_create(gsel_model* model, gsel_comm* comm, const gsel_trainer_options* options,
                                gsel_trainer** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel_trainer_options given{};
    if (options) given = gsel::read_struct(options, "gsel_trainer_options");
    *out =
        new gsel_trainer(gsel::required(model, "model").impl, gsel::required(comm, "comm").impl,
                         given.config ? given.config->impl : gsel::default_config(), given.data, given.data_user_data);
  });
}

gsel_status gsel_trainer_step(gsel_trainer* trainer, gsel_step_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (report) gsel::stated_size(report, "gsel_step_report");
    checked(trainer).impl.step();
    if (report) write_report(trainer->impl.executor(), report);
  });
}

gsel_status gsel_trainer_next_work(gsel_trainer* trainer, gsel_work* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::stated_size(out, "gsel_work");
    gsel::write_struct(out, checked(trainer).impl.next_work(), "gsel_work");
  });
}

gsel_status gsel_trainer_complete(gsel_trainer* trainer, uint64_t ticket, gsel_status status, gsel_str message,
                                  gsel_error** err) {
  return gsel::guard(err, [&] { checked(trainer).impl.complete(ticket, status, gsel::view(message)); });
}

gsel_status gsel_trainer_report(const gsel_trainer* trainer, gsel_step_report* report, gsel_error** err) {
  return gsel::guard(err, [&] { write_report(gsel::required(trainer, "trainer").impl.executor(), report); });
}

gsel_status gsel_trainer_infer(gsel_trainer* trainer, int32_t value, int64_t n_samples, gsel_data_fn data,
                               void* user_data, void* dst, size_t dst_bytes, gsel_error** err) {
  return gsel::guard(err, [&] { checked(trainer).impl.infer(value, n_samples, data, user_data, dst, dst_bytes); });
}

gsel_status gsel_trainer_read_param(gsel_trainer* trainer, int32_t param, void* dst, size_t dst_bytes,
                                    gsel_error** err) {
  return gsel::guard(err, [&] { checked(trainer).impl.read_param(param, dst, dst_bytes); });
}

const gsel_program* gsel_trainer_program(const gsel_trainer* trainer) {
  return trainer ? &trainer->program : nullptr;
}

gsel_comm_count gsel_trainer_counts(const gsel_trainer* trainer, gsel_instr_kind kind, gsel_axis axis) {
  return trainer ? trainer->impl.executor().counts(kind, axis) : gsel_comm_count{0, 0};
}

void gsel_trainer_free(gsel_trainer* trainer) {
  delete trainer;
}

}  // extern "C"
