// train/execute/state.cc: see state.h.
#include "train/execute/state.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/foreign.h"
#include "base/log.h"
#include "base/os.h"
#include "base/random.h"
#include "program/optimistic.h"
#include "program/redistribution.h"
#include "program/shards.h"
#include "program/stages.h"
#include "train/execute/graphs.h"
#include "train/execute/instructions.h"
#include "train/execute/step_numbers.h"

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
    if (task_of(instr.kind) == InstrTask::backward) n += model.layers()[instr.layer].params.size();
    if (task_of(instr.kind) == InstrTask::check) n += gradients;
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

std::vector<BucketLayout> bucket_layouts(const Program& program, const ParamStorage& params) {
  std::vector<BucketLayout> layouts;
  for (size_t b = 0; b < program.buckets.size(); ++b) layouts.push_back(params.layout(static_cast<int32_t>(b)));
  return layouts;
}

}  // namespace

// ---- runs ----------------------------------------------------------------------------------------------------------

Run::Run(const Model& model, const Program& p, const ParamStorage& params, const CountedMemory& m)
    : program(p),
      plan(model, p, bucket_layouts(p, params)),
      message_plan(p),
      memory(&m),
      microbatch_number(microbatch_numbers(p)),
      empty(p.microbatches.size()),
      losses(p.microbatches.size()),
      fetched(p.microbatches.size(), -1),
      weight_begun(model.params().size()),
      used(model.params().size()) {
  for (size_t i = 0; i < p.step.size(); ++i) {
    if (task_of(p.step[i].kind) == InstrTask::backward) last_backward = static_cast<int32_t>(i);
    if (task_of(p.step[i].kind) == InstrTask::loss) last_loss_allreduce = static_cast<int32_t>(i);
  }
  last_optimistic = gsel::last_optimistic(p);
}

uint64_t Run::rng_key(const State& s) const {
  return derive_key(static_cast<uint64_t>(s.seed), static_cast<uint64_t>(s.step));
}

void Run::start_over() {
  position = phase = 0;
  loss_sum = weight = 0;
  clip = 1;
  overflowed = false;
  origin = {};
  bad_weight_microbatch = bad_weight_rank = -1;
  for (size_t m = 0; m < empty.size(); ++m) empty[m] = program.microbatches[m].count == 0;
  std::ranges::fill(losses, std::array<double, 2>{});
  std::ranges::fill(fetched, -1);
  pending_checks.clear();
  weight_begun.assign(weight_begun.size(), false);
  used.assign(used.size(), false);
  record.exposed_s = {};
  record.intervals.clear();
}

// Instructions with equal operands share an entry.
void Run::resolve_redistributions(const Model& model, const Redistributor& redistributor) {
  std::map<std::tuple<Redistribution, int32_t, int32_t, int64_t>, int32_t> known;
  redistribution_of.assign(program.step.size() + 1, -1);
  for (size_t i = 0; i < program.step.size(); ++i) {
    const gsel_instr& instr = program.step[i];
    if (instr.layer < 0 || !model.layers()[instr.layer].redistributes) continue;
    const int64_t samples = program.microbatches[instr.microbatch].count;
    if (samples == 0) continue;
    const Layer& layer = model.layers()[instr.layer];
    int32_t from = layer.inputs.front(), to = layer.outputs.front();
    if (instr_row(instr.kind).input_half) std::swap(from, to);
    const Redistribution redistribution = gsel::redistribution_of(program, program.layers[instr.layer], instr.kind);
    const auto [it, is_new] = known.try_emplace({redistribution, from, to, samples}, std::ssize(redistributions));
    if (is_new) redistributions.push_back(redistributor.resolve(redistribution, from, to, samples));
    redistribution_of[i] = it->second;
  }
}

// ---- a training step --------------------------------------------------------------------------------------------

void TrainingStep::end(State& s) {
  if (!s.validation.is_open) end_update(s, overflowed, s.step, origin);
  report_non_finite(s, record.report);
  ++s.step;
  std::swap(s.last_step, record);
  s.has_step = true;
}

// With optimistic steps the norm is that of the previous step.
void TrainingStep::log_progress(const State& s) const {
  const gsel_step_report& report = s.last_step.report;
  const std::string norm = report.gradient_norm > 0 ? fmt::format(", gradient norm {:.6g}", report.gradient_norm) : "";
  log(GSEL_LOG_INFO, "train", "step {}: loss {:.6g}{}, learning rate {:.6g}, {:.4g} s, {:.6g} samples/s{}", report.step,
      report.loss, norm, report.learning_rate, report.seconds,
      static_cast<double>(s.config.train.batch) / std::max(report.seconds, 1e-9), report.skipped ? ", skipped" : "");
}

void TrainingStep::conclude(State& s) {
  const int64_t every = s.config.train.progress_steps;
  if (every > 0 && s.step % every == 0 && s.rank == 0) log_progress(s);
}

// ---- an evaluation ----------------------------------------------------------------------------------------------

void Evaluation::end(State& s) {
  if (has_weight()) s.last_evaluation = record.report;
}

void Evaluation::conclude(State& s) {
  if (last_loss_allreduce >= 0 && !has_weight()) refuse_weight(s);
}

// ---- an inference -----------------------------------------------------------------------------------------------

// Keeps the first failure.
bool InferenceRun::keep_failure(const State& s, gsel_status status, std::string_view message) {
  failure.emplace(GSEL_ERR_CALLBACK,
                  fmt::format("{} failed in an inference: {}", s.work_name(), reason_of(status, message)));
  return true;
}

void* InferenceRun::result(int32_t value) const {
  const uint64_t offset = plan.left(value);
  return offset == ArenaOperands::kNone ? nullptr : memory->at(offset);
}

// ---- the members of the state, by writer ---------------------------------------------------------------------------

Fixed::Fixed(const Model& m, const Program& program, const Config& c, const Optimizer& o, const Communicator& world)
    : model(m),
      config(c),
      optimizer(o),
      mesh(program.mesh),
      rank(program.rank),
      non_finite(non_finite_of(c)),
      watch(std::make_shared<DeviceWatch>(world)),
      device(DeviceWatch::watched(watch)),
      forecast(forecast_memory(m, program, o, offload_buffers(*device, c))) {
  refuse_precision(m, c);
}

void Fixed::add(void* dst, const void* src, gsel_dtype dtype, uint64_t elems) const {
  device->enqueue(&gsel_device_v1::add, dst, src, dtype, elems);
}

HeldMemory::HeldMemory(const Fixed& fixed, const Program& program)
    : ledger(static_cast<uint64_t>(fixed.config.train.memory_bytes)),
      params(fixed.device, fixed.model, program, fixed.config, fixed.optimizer,
             offload_buffer_bytes(program, fixed.optimizer, layouts_of(program, fixed.optimizer),
                                  offload_buffers(*fixed.device, fixed.config)),
             ledger),
      numbers(fixed.device, most_numbers(fixed.model, program, params)) {}

Runs::Runs(const Model& model, const Program& program, const HeldMemory& memory)
    : training(model, program, memory.params, memory.arena) {}

Communication::Communication(const Fixed& fixed, const Program& program, Communicator& comm)
    : comms(comm, program),
      redistributor(fixed.device, fixed.model, fixed.mesh.sharing_size()),
      compute_done(fixed.device),
      backward_done(fixed.device, GSEL_EVENT_TIMING),
      began_event(fixed.device, GSEL_EVENT_TIMING),
      counts(comms, fixed.mesh) {
  last_async.fill(-1);
  if (fixed.device->compute())
    messages = std::make_unique<StreamMessages>(comm, fixed.device);
  else
    messages = std::make_unique<PostedMessages>(comm);
  for (const std::vector<gsel_instr>* instrs : {&program.setup, &program.step})
    for (const gsel_instr& instr : *instrs) {
      const InstrTask task = task_of(instr.kind);
      if (task != InstrTask::params && task != InstrTask::gradients) continue;
      if (fixed.axis_size(instr.axis) > 1 && !streams[instr.axis])
        streams[instr.axis] = std::make_unique<Stream>(fixed.device);
    }
}

void Communication::wait_for_streams(const DeviceContext& device) const {
  for (const std::unique_ptr<Stream>& stream : streams)
    if (stream) device.wait(stream->get());
}

// ---- the whole state --------------------------------------------------------------------------------------------

// Memory is freed once no work uses it.
State::~State() {
  if (device->has_streams() && os::fork_generation() == comms.world().fork_generation())
    watch->settle(*device, all_streams, is_silent ? DeviceWatch::kShortly : watch->patience_s());
  watch->detach();
}

State::State(const Model& m, const Program& program, const Config& c, const Optimizer& o, Communicator& comm)
    : Fixed(m, program, c, o, comm),
      HeldMemory(*this, program),
      Runs(m, program, *this),
      Communication(*this, program, comm),
      Progress(c),
      lent(*this),
      graphs(std::make_unique<StepGraphs>(*this, *this, program, comm.world_size())),
      step_numbers(std::make_unique<StepNumbers>(*this, *this, program, graphs->have_numbers())) {
  arena = CountedMemory(device, ledger, MemoryPart::windows, training.plan.bytes());
  staging = CountedMemory(device, ledger, MemoryPart::staging, staging_bytes(program, o));
  for (size_t b = 0; b < program.buckets.size(); ++b)
    buckets.push_back(make_bucket(*this, ledger, program, static_cast<int32_t>(b)));
  if (has_optimistic_steps(program))
    step_copy.emplace(device, bucket_layouts(program, params), c.train.offload_folder, ledger);
  all_streams = params.offload_streams();
  for (const std::unique_ptr<Stream>& stream : streams)
    if (stream) all_streams.push_back(stream->get());
  if (gsel_stream* stream = messages->stream()) all_streams.push_back(stream);
  if (device->compute()) all_streams.push_back(device->compute());
}

std::string State::work_name() const {
  const gsel_instr& instr = program().step[run->position];
  return lent.work_kind == GSEL_INPUT ? fmt::format("input \"{}\"", model.values()[instr.value].name)
                                      : fmt::format("layer \"{}\"", layer_of(instr).name);
}

std::string State::where_in_step() const {
  return fmt::format("on rank {}, {} {}", comms.world().rank(), run->name(), step);
}

}  // namespace gsel::execute
