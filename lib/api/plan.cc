// api/plan.cc: gsel/plan.h.
#include "plan/plan.h"

#include <gsel/plan.h>

#include <algorithm>
#include <optional>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "plan/config_layout.h"
#include "plan/options.h"
#include "plan/rows.h"

// A plan, or a report with only text and JSON.
struct gsel_plan {
  std::optional<gsel::plan::Plan> impl;
  std::vector<std::string> names;  // of candidates
  std::string made_text, made_json;
  gsel::LazyText text, json;
  std::string lent;
};

namespace {

using gsel::plan::Candidate;
using gsel::plan::Request;

Request request_of(const gsel_plan_options* options) {
  const gsel_plan_options given = gsel::read_struct(options, "gsel_plan_options");
  return gsel::plan::request_of(given, given.described ? given.described->impl : nullptr,
                                given.inventory ? given.inventory->impl : nullptr);
}

const Candidate& candidate_at(const gsel_plan& plan, int32_t i) {
  static const std::vector<Candidate> none;
  const auto& all = plan.impl ? plan.impl->candidates() : none;
  gsel::check_index(i, all.size(), "the candidate");
  return all[static_cast<size_t>(i)];
}

gsel_plan_candidate described(const gsel_plan& plan, int32_t i) {
  const Candidate& c = candidate_at(plan, i);
  const gsel::plan::Layout& l = c.layout;
  const gsel::plan::Rates r = gsel::plan::rates_of(plan.impl->request(), c);
  gsel_plan_candidate out = GSEL_PLAN_CANDIDATE_INIT;
  if (l.sequence_parallel) out.flags |= GSEL_PLAN_SEQUENCE_PARALLEL;
  if (l.recompute != gsel::plan::Recompute::none) out.flags |= GSEL_PLAN_RECOMPUTE;
  if (l.offload != gsel::plan::Offload::none) out.flags |= GSEL_PLAN_OFFLOAD_STATE;
  if (l.offload == gsel::plan::Offload::all) out.flags |= GSEL_PLAN_OFFLOAD_PARAMS;
  out.tensor = l.tensor, out.context = l.context, out.data = l.data, out.pipeline = l.pipeline;
  out.zero_stage = l.zero_stage, out.chunks = l.chunks;
  out.microbatch = l.microbatch, out.microbatches = l.microbatches;
  out.step_s = r.step_s, out.samples_per_s = r.samples_per_s, out.tokens_per_s = r.tokens_per_s;
  out.mfu = r.mfu, out.hfu = r.hfu, out.bubble = r.bubble, out.exposed = r.exposed;
  out.memory_bytes = c.memory.total(), out.host_bytes = c.memory.host_bytes;
  out.name = gsel::borrow(plan.names[static_cast<size_t>(i)]);
  return out;
}

}  // namespace

extern "C" {

void gsel_plan_options_init(gsel_plan_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}

void gsel_plan_candidate_init(gsel_plan_candidate* candidate, size_t struct_size) {
  gsel::init_struct(candidate, struct_size);
}

gsel_status gsel_plan_create(const gsel_plan_options* options, gsel_plan** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    const gsel_plan_options o = gsel::read_struct(options, "gsel_plan_options");
    auto plan = std::make_unique<gsel_plan>();
    std::function<bool(int64_t)> progress;
    if (o.progress) progress = [&](int64_t n) { return o.progress(n, o.user_data) == 0; };
    plan->impl.emplace(request_of(&o), progress);
    for (const Candidate& c : plan->impl->candidates()) plan->names.push_back(gsel::plan::name_of(c.layout));
    *out = plan.release();
  });
}

int32_t gsel_plan_candidate_count(const gsel_plan* plan) {
  return plan && plan->impl ? static_cast<int32_t>(plan->impl->candidates().size()) : 0;
}

gsel_status gsel_plan_candidate_get(const gsel_plan* plan, int32_t i, gsel_plan_candidate* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(plan, "plan");
    gsel::write_struct(out, described(*plan, i), "gsel_plan_candidate");
  });
}

gsel_str gsel_plan_text(const gsel_plan* plan) {
  return gsel::query(gsel_str{nullptr, 0}, [&] {
    gsel::required(plan, "plan");
    return plan->text.get([&] { return plan->impl ? plan->impl->text() : plan->made_text; });
  });
}

gsel_str gsel_plan_json(const gsel_plan* plan) {
  return gsel::query(gsel_str{nullptr, 0}, [&] {
    gsel::required(plan, "plan");
    return plan->json.get([&] { return plan->impl ? plan->impl->json() : plan->made_json; });
  });
}

gsel_status gsel_plan_toml(gsel_plan* plan, int32_t i, gsel_str* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const Candidate& c = candidate_at(gsel::required(plan, "plan"), i);
    if (const std::string why = gsel::plan::why_not_run(plan->impl->request(), c.layout); !why.empty())
      gsel::fail(GSEL_ERR_ARG, "{}", why);
    plan->impl->verify(c);
    plan->lent = gsel::plan::toml_of(plan->impl->request(), c);
    gsel::required(out, "out") = gsel::borrow(plan->lent);
  });
}

gsel_status gsel_plan_simulation(gsel_plan* plan, int32_t i, gsel_str* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    candidate_at(gsel::required(plan, "plan"), i);
    plan->lent = plan->impl->simulation_json(static_cast<size_t>(i));
    gsel::required(out, "out") = gsel::borrow(plan->lent);
  });
}

gsel_status gsel_plan_picture(gsel_plan* plan, gsel_str* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    candidate_at(gsel::required(plan, "plan"), 0);
    plan->lent = gsel::plan::breakdown_svg(*plan->impl);
    gsel::required(out, "out") = gsel::borrow(plan->lent);
  });
}

gsel_status gsel_plan_estimate(const gsel_plan_options* options, gsel_plan** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    const Request request = request_of(options);
    gsel::plan::check_fixed_of_estimate(request.fixed);
    auto plan = std::make_unique<gsel_plan>();
    plan->made_text = gsel::plan::estimate_text(request);
    plan->made_json = gsel::plan::estimate_json(request);
    *out = plan.release();
  });
}

gsel_status gsel_plan_compare(const gsel_plan_options* options, const gsel_config* const* configs, int32_t n,
                              gsel_plan** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    if (n < 1) gsel::fail(GSEL_ERR_ARG, "{} configurations were given; one at least is needed", n);
    gsel::required(configs, "configs");
    const Request request = request_of(options);
    std::vector<const gsel::Config*> list;
    for (int32_t i = 0; i < n; ++i) list.push_back(&gsel::required(configs[i], "configs[i]").impl);
    const std::vector<gsel::plan::Compared> all = gsel::plan::compare(request, list);
    auto plan = std::make_unique<gsel_plan>();
    plan->made_text = gsel::plan::compared_text(all.front().request, all);
    plan->made_json = gsel::plan::compared_json(all.front().request, all);
    *out = plan.release();
  });
}

gsel_status gsel_plan_rows(gsel_str rows, gsel_str name, gsel_plan** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    auto plan = std::make_unique<gsel_plan>();
    plan->made_json = gsel::plan::rows_json(gsel::view(rows), gsel::one_line(gsel::view(name)), &plan->made_text);
    *out = plan.release();
  });
}

void gsel_plan_free(gsel_plan* plan) {
  delete plan;
}

}  // extern "C"
