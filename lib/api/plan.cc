// api/plan.cc: gsel/plan.h.
#include "plan/plan.h"

#include <gsel/plan.h>

#include <algorithm>
#include <optional>

#include "api/handles.h"
#include "api/init_struct.h"
#include "api/select_handle.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "plan/breakdown_svg.h"
#include "plan/config_layout.h"
#include "plan/describe.h"
#include "plan/finalist.h"
#include "plan/rows.h"
#include "plan/units.h"

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

constexpr size_t kShown = 10;
constexpr int32_t kMostRanksCompiled = 1024;  // most ranks of a compared config whose programs are compiled
constexpr int64_t kMostDescribed = 512;       // most layers of a model whose programs are compiled

// Reads the model, and makes a described model for the strategies if only its shape is known.
void read_model(const gsel_plan_options& o, Request& request) {
  const std::string name = gsel::given(o.model_name) ? gsel::one_line(gsel::view(o.model_name)) : "the model";
  if (gsel::given(o.model)) {
    std::optional<gsel::plan::Transformer> shape;
    request.workload = gsel::plan::read_workload(gsel::view(o.model), name, o.sequence, &shape);
    if (!shape || shape->layers > kMostDescribed) return;
    const gsel_dtype dtype = request.recipe.element_bytes > 2 ? GSEL_F32 : GSEL_BF16;
    request.model = gsel::plan::describe(*shape, {request.workload.sequence, dtype});
    return;
  }
  if (!o.described)
    gsel::fail(GSEL_ERR_ARG,
               "gsel_plan_options names no model; set model to a config.json, or described to a gsel_model");
  request.workload = gsel::plan::workload_of(*o.described->impl, name);
  request.model = o.described->impl;
}

gsel::plan::Cluster cluster_of(const gsel_plan_options& o) {
  const gsel::plan::ClusterOptions options{o.nodes == 0 ? 1 : o.nodes, gsel::text(o.link), gsel::text(o.network),
                                           o.memory_bytes};
  if (gsel::given(o.cluster)) return gsel::plan::cluster_of(gsel::view(o.cluster), options);
  if (o.inventory) return gsel::plan::cluster_of(*o.inventory->impl, options);
  return gsel::plan::cluster_of(gsel::detect_inventory(), options);
}

gsel::plan::Recipe recipe_of(const gsel_plan_options& o) {
  const std::string name = gsel::given(o.precision) ? gsel::text(o.precision) : "gsel-bf16";
  if (const gsel::plan::Recipe* found = gsel::plan::find_recipe(name)) return *found;
  gsel::fail(GSEL_ERR_ARG, "precision {} is not known; accepted: {}", gsel::in_quotes(name),
             gsel::plan::recipe_names());
}

Request request_of(const gsel_plan_options& o) {
  Request request;
  request.recipe = recipe_of(o);
  read_model(o, request);
  request.cluster = cluster_of(o);
  gsel::plan::align_kinds(request.cluster);
  request.fixed = gsel::plan::parse_fixed(gsel::view(o.fixed));
  if (request.recipe.fused_attention && request.fixed.recompute == gsel::plan::Recompute::selective)
    throw gsel::Error(
        GSEL_ERR_ARG,
        fmt::format("recompute=selective is not accepted with {}, whose kernels do not keep the scores of attention: "
                    "there is nothing to compute again; accepted: none, all",
                    request.recipe.name))
        .at({"", 0, 0, "recompute"});
  request.batch = o.batch == 0 ? request.cluster.size() : o.batch;
  request.constants =
      gsel::plan::constants_for(request.cluster.kinds.front().device_class, gsel::plan::runtime_of(request.recipe));
  if (gsel::given(o.measured)) gsel::plan::calibrate(request, gsel::view(o.measured), "measured");
  request.shown = o.n_shown > 0 ? static_cast<size_t>(o.n_shown) : kShown;
  return request;
}

// An estimate accepts only fixed values that the strategies of its rows do not determine.
void check_fixed_of_estimate(const gsel::plan::Fixed& fixed) {
  const struct {
    bool set;
    const char* name;
  } all[] = {{fixed.tensor.has_value(), "tensor"},
             {fixed.context.has_value(), "context"},
             {fixed.data.has_value(), "data"},
             {fixed.pipeline.has_value(), "pipeline"},
             {fixed.zero_stage.has_value(), "zero"},
             {fixed.chunks.has_value(), "chunks"},
             {fixed.offload.has_value(), "offload"},
             {fixed.schedule.has_value(), "schedule"},
             {fixed.sequence_parallel.has_value(), "sequence_parallel"}};
  for (const auto& key : all)
    if (key.set)
      throw gsel::Error(GSEL_ERR_ARG, fmt::format("{} is fixed, and an estimate has rows of strategies that decide it; "
                                                  "accepted: devices, microbatch, recompute",
                                                  key.name))
          .at({"", 0, 0, key.name});
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
    plan->impl.emplace(request_of(o), progress);
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
    const Request request = request_of(gsel::read_struct(options, "gsel_plan_options"));
    check_fixed_of_estimate(request.fixed);
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
    const Request asked = request_of(gsel::read_struct(options, "gsel_plan_options"));
    std::vector<gsel::plan::Compared> all;
    for (int32_t i = 0; i < n; ++i) {
      const gsel::Config& config = gsel::required(configs[i], "configs[i]").impl;
      Request request = asked;
      request.cluster = gsel::plan::devices_of(config, asked.cluster);
      bool others = false;
      const gsel::plan::Layout layout =
          gsel::plan::layout_of(config, request.workload, request.cluster.size(), &others);
      if (others)
        request.workload.notes.push_back(
            fmt::format("strategy.tensor.exclude of {} names layers that the forecast divides; it knows {}",
                        config.file.empty() ? fmt::format("config {}", i + 1) : config.file,
                        gsel::plan::layers_of(request.workload, ~uint64_t{0})));
      const gsel::plan::Shares shares = gsel::plan::shares_of(config, request.workload, request.cluster, layout);
      request.batch = config.train.batch;
      if (config.train.recompute != "none" && config.train.recompute != "all")
        request.workload.notes.push_back(
            fmt::format("train.recompute of {} names layers; the forecast computes all of them again",
                        config.file.empty() ? fmt::format("config {}", i + 1) : config.file));
      if (const std::string note = gsel::plan::uneven_note(config, layout); !note.empty())
        request.workload.notes.push_back(note);
      // Refuses what a run would refuse, such as an option that a strategy does not have.
      if (request.model && layout.ranks() <= kMostRanksCompiled)
        gsel::plan::CompiledJob(*request.model, config, layout.ranks(), nullptr, 1);
      const gsel::plan::SearchInput input{
          request.workload, request.cluster, request.recipe, request.constants, request.batch, {}, 1, {}};
      all.push_back({config.file.empty() ? fmt::format("config {}", i + 1) : config.file,
                     gsel::plan::evaluate(input, layout, shares), request});
    }
    auto plan = std::make_unique<gsel_plan>();
    // Notes that apply to several files appear once.
    std::vector<std::string>& notes = all.front().request.workload.notes;
    for (const gsel::plan::Compared& one : all)
      for (const std::string& note : one.request.workload.notes)
        if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
    if (const std::string note = gsel::plan::unlike_batches(all); !note.empty()) notes.push_back(note);
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
