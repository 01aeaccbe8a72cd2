// api/pipeline.cc: gsel/pipeline.h.
#include "train/pipeline.h"

#include "api/handles.h"
#include "base/foreign.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"

struct gsel_pipeline {
  template <class... Args>
  explicit gsel_pipeline(Args&&... args) : impl(std::forward<Args>(args)...), program{impl.program()} {}

  gsel::UserData data;  // outlives the callbacks that use it
  gsel::Pipeline impl;
  gsel_program program;  // borrowed by gsel_pipeline_program
};

namespace {

gsel::PipelineSettings settings_of(const gsel_pipeline_options& given) {
  gsel::PipelineSettings settings;
  if (const std::string schedule = gsel::text(given.schedule); !schedule.empty()) settings.schedule = schedule;
  settings.chunks = given.chunks;
  settings.microbatches = given.microbatches;
  settings.microbatch_samples = given.microbatch_samples;
  if (given.tensor_ranks) settings.tensor_ranks = given.tensor_ranks;
  if (given.n_first_layers < 0 || (given.n_first_layers > 0 && !given.first_layers))
    gsel::fail(GSEL_ERR_ARG, "gsel_pipeline_options has n_first_layers = {} and no list of them", given.n_first_layers);
  settings.first_layers.assign(given.first_layers, given.first_layers + given.n_first_layers);
  settings.timeline = gsel::text(given.timeline);
  settings.data = {given.data, given.data_user_data};
  return settings;
}

}  // namespace

extern "C" {

void gsel_pipeline_options_init(gsel_pipeline_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}
void gsel_pipeline_report_init(gsel_pipeline_report* report, size_t struct_size) {
  gsel::init_struct(report, struct_size);
}
void gsel_pipeline_stage_init(gsel_pipeline_stage* stage, size_t struct_size) {
  gsel::init_struct(stage, struct_size);
}

gsel_status gsel_pipeline_create(gsel_comm* comm, gsel_model* model, const gsel_pipeline_options* options,
                                 gsel_pipeline** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    const gsel_pipeline_options given = gsel::read_struct(options, "gsel_pipeline_options");
    *out =
        new gsel_pipeline(gsel::required(comm, "comm").impl, gsel::required(model, "model").impl, settings_of(given));
    (*out)->data.take(given.data_user_data, given.data_free_user_data);
  });
}

gsel_status gsel_pipeline_run(gsel_pipeline* pipeline, int32_t what, gsel_pipeline_report* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (out) gsel::stated_size(out, "gsel_pipeline_report");
    const gsel_pipeline_report report = gsel::required(pipeline, "pipeline").impl.run(what);
    if (out) gsel::write_struct(out, report, "gsel_pipeline_report");
  });
}

int32_t gsel_pipeline_stage_count(const gsel_pipeline* pipeline) {
  return pipeline ? pipeline->impl.stage_count() : 0;
}

gsel_status gsel_pipeline_stage_get(const gsel_pipeline* pipeline, int32_t i, gsel_pipeline_stage* out,
                                    gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::stated_size(out, "gsel_pipeline_stage");
    const gsel::Pipeline& impl = gsel::required(pipeline, "pipeline").impl;
    gsel::check_index(i, static_cast<size_t>(impl.stage_count()), "i");
    gsel::write_struct(out, impl.stage(i), "gsel_pipeline_stage");
  });
}

const gsel_program* gsel_pipeline_program(const gsel_pipeline* pipeline) {
  return pipeline ? &pipeline->program : nullptr;
}

void gsel_pipeline_free(gsel_pipeline* pipeline) {
  delete pipeline;
}

}  // extern "C"
