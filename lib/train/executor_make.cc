// train/executor_make.cc: what an executor takes before the first step, and the setup program.
#include "program/shards.h"
#include "program/stages.h"
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
    : program(p), plan(model, p, all_layouts(p, params)), messages(p) {
  for (size_t i = 0; i < p.step.size(); ++i) {
    if (is_backward(p.step[i].kind)) last_backward = static_cast<int32_t>(i);
    if (p.step[i].kind == GSEL_INSTR_LOSS_REDUCE) last_loss_reduce = static_cast<int32_t>(i);
  }
}

Executor::Executor(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
                   Communicator& comm)
    : model_(model),
      config_(config),
      optimizer_(optimizer),
      comms_(comm, program),
      backend_(comm.backend()),
      ledger_(static_cast<uint64_t>(config.train.memory_bytes)),
      params_(backend_, model, program, config, optimizer, ledger_),
      training_(model, program, params_),
      arena_(backend_, ledger_, Part::windows, training_.plan.bytes()),
      staging_(backend_, ledger_, Part::staging, staging_bytes(program, optimizer)),
      compute_done_(backend_),
      backward_done_(backend_),
      began_event_(backend_),
      messages_(comm),
      lender_(backend_, config.train.lending == "moved"),
      loss_scale_(config),
      course_(&training_),
      empty_(program.microbatches.size()),
      losses_(program.microbatches.size()),
      weight_begun_(model.params().size()),
      used_(model.params().size()) {
  refuse_precision();
  if (comm.world_size() > 1) comm_stream_ = std::make_unique<Stream>(backend_);
  for (size_t b = 0; b < program.buckets.size(); ++b) add_bucket(static_cast<int32_t>(b));
  forecast_ = forecast_memory(model, program, optimizer);
}

Executor::~Executor() = default;

void Executor::add_bucket(int32_t b) {
  const ProgramBucket& bucket = program().buckets[b];
  BucketState& state = buckets_.emplace_back(backend_);
  state.counts = counts_for_tie(program(), b);
  if (bucket.compression != GSEL_COMPRESS_NONE)
    state.compressor = make_compressor(backend_, ledger_, program(), b, static_cast<uint64_t>(config_.train.seed));
  if (!bucket.shards_state() || !(bucket.flags & GSEL_BUCKET_WHOLE_PARAMS)) return;
  const std::vector<int64_t> bounds = shard_bounds(program(), b);
  for (size_t i = 0; i + 1 < bounds.size(); ++i)
    state.shard_counts.push_back(static_cast<uint64_t>(bounds[i + 1] - bounds[i]));
}

void Executor::refuse_precision() const {
  if (config_.train.precision != "fp16" || model_.loss_layer() < 0) return;
  const Layer& loss = model_.layers()[model_.loss_layer()];
  if (loss.needs_backward_weight)
    fail(GSEL_ERR_UNSUPPORTED,
         "loss layer \"{}\" trains parameters and train.precision is \"fp16\": their gradients would miss the loss "
         "scale; move them into a layer before it",
         loss.name);
}

// Places of a pipeline that hold the same parameters begin with the same values.
void Executor::follow_first_holders() {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const auto b = static_cast<int32_t>(i);
    if (bucket_holders(program(), b).size() == 1) continue;
    params_.rewrite_params(b, [&](void* data, uint64_t bytes) {
      comms_.tie(b).collective(make_collective(GSEL_COLLECTIVE_BROADCAST, data, data, bytes, GSEL_U8, 0, 0));
    });
  }
}

void Executor::run_setup() {
  comms_.connect();
  follow_first_holders();
  forget_counts();
  for (const gsel_instr& instr : program().setup) run_instr(instr);
  keep_counts();
}

}  // namespace gsel
