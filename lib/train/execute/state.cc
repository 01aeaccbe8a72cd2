// train/execute/state.cc: see state.h.
#include "train/execute/state.h"

#include "program/optimistic.h"
#include "program/shards.h"
#include "program/stages.h"

namespace gsel::execute {
namespace {

void refuse_precision(const Model& model, const Config& config) {
  if (config.train.precision != "fp16" || model.loss_layer() < 0) return;
  const Layer& loss = model.layers()[model.loss_layer()];
  if (loss.needs_backward_weight)
    fail(GSEL_ERR_UNSUPPORTED,
         "loss layer \"{}\" trains parameters and train.precision is \"fp16\": their gradients would miss the loss "
         "scale; move them into a layer before it",
         loss.name);
}

// Losses, a gradient of each backward, and all gradients in each NORM and OVERFLOW.
size_t most_numbers(const Model& model, const Program& program, const ParamStorage& params) {
  size_t gradients = 0;
  for (size_t b = 0; b < program.buckets.size(); ++b) gradients += params.layout(static_cast<int32_t>(b)).runs.size();
  size_t n = 2 * program.microbatches.size();
  for (const gsel_instr& instr : program.step) {
    if (work_of(instr.kind) == InstrWork::backward) n += model.layers()[instr.layer].params.size();
    if (work_of(instr.kind) == InstrWork::check) n += gradients;
  }
  return n;
}

BucketState make_bucket(const Fixed& fixed, Ledger& ledger, const Program& program, int32_t b) {
  const ProgramBucket& bucket = program.buckets[b];
  BucketState state;
  state.counts = counts_for_tie(program, b);
  if (bucket.compression != GSEL_COMPRESS_NONE)
    state.compressor =
        make_compressor(fixed.device, ledger, program, b, static_cast<uint64_t>(fixed.config.train.seed));
  if (!bucket.shards_state() || !(bucket.flags & GSEL_BUCKET_WHOLE_PARAMS)) return state;
  const std::vector<int64_t> bounds = shard_bounds(program, b);
  for (size_t i = 0; i + 1 < bounds.size(); ++i)
    state.shard_counts.push_back(static_cast<uint64_t>(bounds[i + 1] - bounds[i]));
  return state;
}

}  // namespace

// ---- parts ------------------------------------------------------------------------------------------------------

Fixed::Fixed(const Model& m, const Program& program, const Config& c, const Optimizer& o,
             std::shared_ptr<DeviceContext> d)
    : model(m),
      config(c),
      optimizer(o),
      mesh(program.mesh),
      rank(program.rank),
      non_finite(non_finite_of(c)),
      forecast(forecast_memory(m, program, o)),
      device(std::move(d)) {
  refuse_precision(m, c);
}

void Fixed::add(void* dst, const void* src, gsel_dtype dtype, uint64_t elems) const {
  device->enqueue(&gsel_device_v1::add, dst, src, dtype, elems);
}

HeldMemory::HeldMemory(const Fixed& fixed, const Program& program)
    : ledger(static_cast<uint64_t>(fixed.config.train.memory_bytes)),
      params(fixed.device, fixed.model, program, fixed.config, fixed.optimizer, ledger),
      numbers(fixed.device, most_numbers(fixed.model, program, params)) {}

Runs::Runs(const Model& model, const Program& program, const HeldMemory& memory)
    : training(model, program, memory.params, memory.arena) {}

Communication::Communication(const Fixed& fixed, const Program& program, Communicator& comm)
    : comms(comm, program),
      redistributor(fixed.device, fixed.model, fixed.mesh.sharing_size()),
      compute_done(fixed.device),
      backward_done(fixed.device),
      began_event(fixed.device),
      counts(comms, fixed.mesh) {
  last_async.fill(-1);
  if (fixed.device->compute())
    messages = std::make_unique<StreamMessages>(comm, fixed.device);
  else
    messages = std::make_unique<PostedMessages>(comm);
  if (comm.world_size() > 1) comm_stream = std::make_unique<Stream>(fixed.device);
}

// ---- the whole state --------------------------------------------------------------------------------------------

State::State(const Model& m, const Program& program, const Config& c, const Optimizer& o, Communicator& comm)
    : Fixed(m, program, c, o, comm.device_context()),
      HeldMemory(*this, program),
      Runs(m, program, *this),
      Communication(*this, program, comm),
      Progress(c),
      lent(*this) {
  arena = CountedMemory(device, ledger, MemoryPart::windows, training.plan.bytes());
  staging = CountedMemory(device, ledger, MemoryPart::staging, staging_bytes(program, o));
  for (size_t b = 0; b < program.buckets.size(); ++b)
    buckets.push_back(make_bucket(*this, ledger, program, static_cast<int32_t>(b)));
  if (has_optimistic_steps(program))
    step_copy.emplace(device, bucket_layouts(program, params), c.train.offload_folder, ledger);
}

std::string State::piece_at_work() const {
  const gsel_instr& instr = program().step[run->position];
  return lent.work_kind == GSEL_INPUT ? fmt::format("input \"{}\"", model.values()[instr.value].name)
                                      : fmt::format("layer \"{}\"", layer_of(instr).name);
}

std::string State::where_in_step() const {
  return fmt::format("on rank {}, {} {}", comms.world().rank(), run->name(), step);
}

}  // namespace gsel::execute
