// train/executor_make.cc: what an executor takes before the first step, and the setup program.
#include "program/shards.h"
#include "train/executor.h"

namespace gsel {
namespace {

bool is_backward(gsel_instr_kind kind) {
  return kind == GSEL_INSTR_BACKWARD || kind == GSEL_INSTR_BACKWARD_INPUT || kind == GSEL_INSTR_BACKWARD_WEIGHT;
}

std::vector<BucketLayout> all_layouts(const Program& program, const ParamStorage& params) {
  std::vector<BucketLayout> layouts;
  for (size_t b = 0; b < program.buckets.size(); ++b) layouts.push_back(params.layout(static_cast<int32_t>(b)));
  return layouts;
}

}  // namespace

Executor::Course::Course(const Model& model, const Program& p, const ParamStorage& params)
    : program(p), plan(model, p, all_layouts(p, params)) {
  for (size_t i = 0; i < p.step.size(); ++i)
    if (is_backward(p.step[i].kind)) last_backward = static_cast<int32_t>(i);
}

Executor::Executor(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
                   Communicator& comm)
    : model_(model),
      config_(config),
      optimizer_(optimizer),
      comm_(comm),
      backend_(comm.backend()),
      ledger_(static_cast<uint64_t>(config.train.memory_bytes)),
      params_(backend_, model, program, config, optimizer, ledger_),
      training_(model, program, params_),
      arena_(backend_, ledger_, Part::windows, training_.plan.bytes()),
      staging_(backend_, ledger_, Part::staging, staging_bytes(program, optimizer)),
      compute_done_(backend_),
      backward_done_(backend_),
      began_event_(backend_),
      lender_(backend_, config.train.lending == "moved"),
      loss_scale_(config),
      course_(&training_),
      empty_(program.microbatches.size()),
      losses_(program.microbatches.size()),
      weight_begun_(model.params().size()),
      used_(model.params().size()) {
  refuse_unknown(program);
  if (comm.world_size() > 1) comm_stream_ = std::make_unique<Stream>(backend_);
  for (size_t b = 0; b < program.buckets.size(); ++b) add_bucket(static_cast<int32_t>(b));
  forecast_ = forecast_memory(model, program, optimizer);
  forget_counts();
}

Executor::~Executor() = default;

void Executor::add_bucket(int32_t b) {
  const ProgramBucket& bucket = program().buckets[b];
  BucketState& state = buckets_.emplace_back(backend_);
  if (bucket.compression != GSEL_COMPRESS_NONE)
    state.compressor = make_compressor(backend_, ledger_, program(), b, static_cast<uint64_t>(config_.train.seed));
  if (!bucket.shards_state() || !(bucket.flags & GSEL_BUCKET_WHOLE_PARAMS)) return;
  const std::vector<int64_t> bounds = shard_bounds(program(), b);
  for (size_t i = 0; i + 1 < bounds.size(); ++i)
    state.shard_counts.push_back(static_cast<uint64_t>(bounds[i + 1] - bounds[i]));
}

void Executor::refuse_unknown(const Program& program) const {
  for (const gsel_instr& instr : program.step)
    if (instr.kind == GSEL_INSTR_SEND || instr.kind == GSEL_INSTR_RECV)
      fail(GSEL_ERR_UNSUPPORTED, "the program has \"{}\"; this libgsel {} runs programs without send and recv",
           to_text(program, instr), gsel_version_text());
  if (config_.train.precision != "fp16") return;
  const Layer& loss = model_.layers()[model_.loss_layer()];
  if (loss.needs_backward_weight)
    fail(GSEL_ERR_UNSUPPORTED,
         "loss layer \"{}\" trains parameters and train.precision is \"fp16\": their gradients would miss the loss "
         "scale; move them into a layer before it",
         loss.name);
}

void Executor::run_setup() {
  forget_counts();
  for (const gsel_instr& instr : program().setup) run_instr(instr);
  keep_counts();
}

}  // namespace gsel
