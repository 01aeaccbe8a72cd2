// train/execute/executor_make.cc: what an executor takes before the first step, and the setup program.
#include "base/current_error.h"
#include "program/shards.h"
#include "program/stages.h"
#include "program/verify/post_validation.h"
#include "train/execute/executor.h"

namespace gsel {
namespace {

bool is_backward(gsel_instr_kind kind) {
  return kind == GSEL_BACKWARD || kind == GSEL_BACKWARD_INPUT || kind == GSEL_BACKWARD_WEIGHT;
}

std::vector<BucketLayout> all_layouts(const Program& program, const ParamStorage& params) {
  std::vector<BucketLayout> layouts;
  for (size_t b = 0; b < program.buckets.size(); ++b) layouts.push_back(params.layout(static_cast<int32_t>(b)));
  return layouts;
}

}  // namespace

Executor::RunPlan::RunPlan(const Model& model, const Program& p, const ParamStorage& params)
    : program(p), plan(model, p, all_layouts(p, params)), messages(p) {
  for (size_t i = 0; i < p.step.size(); ++i) {
    if (is_backward(p.step[i].kind)) last_backward = static_cast<int32_t>(i);
    if (p.step[i].kind == GSEL_INSTR_LOSS_ALLREDUCE) last_loss_reduce = static_cast<int32_t>(i);
  }
  last_optimistic = gsel::last_optimistic(p);
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
      redistributor_(backend_, model, program.mesh.sharing_size()),
      loss_scale_(config),
      non_finite_(non_finite_of(config)),
      run_plan_(&training_),
      empty_(program.microbatches.size()),
      losses_(program.microbatches.size()),
      weight_begun_(model.params().size()),
      used_(model.params().size()) {
  refuse_precision();
  last_beside_.fill(-1);
  if (comm.world_size() > 1) comm_stream_ = std::make_unique<Stream>(backend_);
  for (size_t b = 0; b < program.buckets.size(); ++b) add_bucket(static_cast<int32_t>(b));
  if (has_optimistic_steps(program))
    step_copy_.emplace(backend_, all_layouts(program, params_), config.train.offload_folder, ledger_);
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

// Parameters that all ranks of the tensor axis have whole begin alike there: what an initialiser of the embedder says
// on the first of them.
void Executor::follow_first_place() {
  Communicator& axis = axis_comm(sharing_axis());
  const Memory room(backend_, sizeof(float) * ParamStorage::kChunkElems);
  auto* none = static_cast<gsel_stream*>(nullptr);
  params_.initialise_alike(static_cast<uint64_t>(config_.train.seed), axis.rank() == 0, [&](std::span<float> chunk) {
    backend_->run(&gsel_backend_v1::copy, room.data(), static_cast<const void*>(chunk.data()),
                  uint64_t{chunk.size_bytes()}, int32_t{GSEL_COPY_TO_DEVICE}, none);
    axis.collective(make_collective(GSEL_COLLECTIVE_BROADCAST, room.data(), room.data(), chunk.size(), GSEL_F32, 0, 0));
    backend_->run(&gsel_backend_v1::copy, static_cast<void*>(chunk.data()), static_cast<const void*>(room.data()),
                  uint64_t{chunk.size_bytes()}, int32_t{GSEL_COPY_TO_HOST}, none);
  });
}

void Executor::meet_tensor_axis() {
  if (axis_size(sharing_axis()) == 1) return;
  redistributor_.connect(axis_comm(sharing_axis()));
  follow_first_place();
}

void Executor::run_setup() {
  comms_.connect();
  try {
    meet_tensor_axis();
    follow_first_holders();
    forget_counts();
    for (const gsel_instr& instr : program().setup) run_instr(instr);
    keep_counts();
  } catch (...) {  // perhaps here alone, as an initialiser does
    break_off(current_error());
  }
}

}  // namespace gsel
