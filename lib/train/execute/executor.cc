// train/execute/executor.cc: the engine: runs a program's instructions in order, hands work to the embedder and takes
// it back, and ends a run that failed.
#include "train/execute/executor.h"

#include <algorithm>

#include "base/error.h"
#include "base/foreign.h"
#include "base/os.h"
#include "base/text.h"
#include "program/forward_programs.h"
#include "program/redistribution.h"
#include "program/stages.h"
#include "train/execute/graphs.h"
#include "train/execute/instructions.h"
#include "train/execute/step_numbers.h"
#include "train/ranks/agree.h"

namespace gsel {

using execute::Run;
using execute::State;

namespace {

const char* callback_word(int32_t kind) {
  static const char* const words[] = {"", "input", "forward", "backward_input", "backward_weight", "backward"};
  return words[kind];
}

}  // namespace

Executor::Executor(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
                   Communicator& comm)
    : s_(model, program, config, optimizer, comm) {}

void Executor::refuse_broken() const {
  if (s_.broken) fail(GSEL_ERR_STATE, "an earlier step failed; free the trainer");
  refuse_lost_state();
}

void Executor::refuse_lost_state() const {
  if (!s_.lost_state.empty()) fail(GSEL_ERR_STATE, "{}; load a whole checkpoint, or free the trainer", s_.lost_state);
}

// ---- running a program ------------------------------------------------------------------------------------------

gsel_work Executor::next() {
  refuse_broken();
  if (s_.lent.handed_out)
    fail(GSEL_ERR_STATE, "work {} is handed out and not complete; call gsel_trainer_complete first", s_.lent.ticket);
  for (bool has_run = false; !has_run;) {
    try {
      run_to_work();
      has_run = true;
    } catch (...) {
      handle(current_error());
    }
  }
  if (!s_.lent.handed_out) s_.run->conclude(s_);
  gsel_work work{};
  work.kind = s_.lent.handed_out ? s_.lent.work_kind : GSEL_WORK_DONE;
  work.ticket = s_.lent.handed_out ? s_.lent.ticket : 0;
  if (s_.lent.handed_out && work.kind == GSEL_INPUT) work.input = &s_.lent.request;
  if (s_.lent.handed_out && work.kind != GSEL_INPUT) work.call = &s_.lent.call;
  s_.lent.work_began = os::now_seconds();
  return work;
}

// To the next work or to the end of the run.
void Executor::run_to_work() {
  if (!s_.under_way) begin(s_.training, first_sample());
  for (;;) {
    if (s_.run->phase == 0 && s_.graphs->pass(s_)) continue;
    if (s_.run->position == s_.program().step.size()) break;
    const gsel_instr& instr = s_.program().step[s_.run->position];
    if (s_.run->phase == 0) s_.run->instr_began = os::now_seconds();
    if (s_.run->phase == 0) execute::launch_receives(s_);
    const execute::Outcome outcome = execute::run_instr(s_, instr);
    if (outcome == execute::Outcome::handed_out) return;
    if (outcome == execute::Outcome::done) end_instr();
  }
  end();
}

void Executor::refuse_other_work(uint64_t ticket) const {
  if (s_.lent.handed_out && ticket == s_.lent.ticket) return;
  fail(GSEL_ERR_STATE, "work {} is said to be complete; {}", ticket,
       s_.lent.handed_out ? fmt::format("work {} is handed out", s_.lent.ticket) : "none is handed out");
}

void Executor::complete(uint64_t ticket, gsel_status status, std::string_view message) {
  refuse_other_work(ticket);
  s_.run->record.report.compute_s += os::now_seconds() - s_.lent.work_began;
  s_.lent.handed_out = false;
  const gsel_instr& instr = s_.program().step[s_.run->position];
  const bool is_input = s_.lent.work_kind == GSEL_INPUT;
  const bool no_samples = is_input && status == GSEL_NO_SAMPLES && s_.run->may_lack_samples();
  if (status != GSEL_OK && !no_samples && !s_.run->keep_failure(s_, status, message))
    return handle(callback_error(status, message));
  try {
    if (const std::string why = s_.graphs->is_recording() ? s_.graphs->why_broken() : ""; !why.empty())
      throw Error(GSEL_ERR_CALLBACK,
                  fmt::format("{} of {}: {}", callback_word(s_.lent.work_kind), s_.work_name(), why));
    is_input ? execute::take_back_input(s_, instr, no_samples) : execute::take_back_layer(s_, instr);
    if (s_.run->phase == 0) end_instr();
  } catch (...) {
    handle(current_error());
  }
}

// Redistributions are communication, so timelines show them apart from callbacks.
void Executor::end_instr() {
  Run& run = *s_.run;
  run.record.intervals.push_back({run.position, run.instr_began - run.began, os::now_seconds() - run.began,
                                  run.redistribution() && communicates(run.redistribution()->redistribution)});
  if (!s_.graphs->is_recording()) s_.watch->pass(*s_.device, run.position);
  ++run.position;
}

// ---- runs -------------------------------------------------------------------------------------------------------

void Executor::begin(Run& run, int64_t first_sample) {
  s_.run = &run;
  s_.under_way = true;
  run.first_sample = first_sample;
  gsel_step_report& report = run.record.report;
  report = {};
  report.struct_size = sizeof report;
  report.step = s_.step;
  execute::report_non_finite(s_, report);
  report.loss_scale = s_.loss_scale.value();
  report.learning_rate = s_.optimizer.learning_rate(s_.updates);
  run.offload_in_before = s_.offload_bytes_in();
  run.offload_out_before = s_.offload_bytes_out();
  s_.counts.begin();
  s_.watch->begin_run(fmt::format("{} {}", run.name(), s_.step), run.program.step.size());
  s_.graphs->begin_run(s_);
  s_.step_numbers->begin(s_);
  run.began = os::now_seconds();
  run.record.began_ns = os::now_ns();
  s_.began_event.record_compute();
  if (&run == &s_.training) s_.params.begin_step();
  execute::begin_first_instr(s_);
}

void Executor::end() {
  execute::settle_messages(s_);
  s_.step_numbers->fetch(s_);
  execute::settle_device(s_);
  s_.step_numbers->settle(s_);
  s_.watch->end_run();
  s_.under_way = false;
  Run& run = *s_.run;
  gsel_step_report& report = run.record.report;
  report.loss_sum = run.loss_sum;
  report.weight = run.weight;
  report.loss = run.has_weight() ? run.loss_sum / run.weight : 0;
  execute::report_validated(run, s_.validation, report);
  report.peak_bytes = s_.ledger.peak_total();
  report.offload_bytes_in = s_.offload_bytes_in() - run.offload_in_before;
  report.offload_bytes_out = s_.offload_bytes_out() - run.offload_out_before;
  execute::record_counts(s_);
  report.seconds = os::now_seconds() - run.began;
  run.record.forecast = s_.forecast;
  run.record.peak = s_.ledger.peak();
  run.record.on_device = s_.device->compute();
  run.record.graph_launches = s_.graphs->launches();
  run.record.no_graphs = s_.graphs->reason();
  run.end(s_);
}

void Executor::begin_evaluation(int64_t first_sample) {
  refuse_broken();
  settle_last_step();
  if (!evaluation_fits_) make_evaluation_together();
  begin_together(*s_.evaluation, first_sample);
}

// All ranks begin this run now; one that cannot has the others told.
void Executor::begin_together(Run& run, int64_t first_sample) {
  try {
    begin(run, first_sample);
  } catch (...) {
    break_off(current_error());
  }
}

// A rank without memory must not leave the others waiting in the run.
void Executor::make_evaluation_together() {
  try {
    on_all_ranks(s_.comms.world(), "evaluation", [&] { make_evaluation(); });
    evaluation_fits_ = true;
  } catch (...) {
    const Error error = current_error();
    if (s_.comms.error_of_world()) break_off(error);
    if (s_.arena.bytes() < s_.training.plan.bytes()) end_all(error.message());
    throw Error(error);
  }
}

void Executor::make_evaluation() {
  if (!s_.evaluation) {
    s_.forward_program = std::make_unique<Program>(forward_only(s_.training.program));
    auto made = std::make_unique<execute::Evaluation>(s_.model, *s_.forward_program, s_.params, s_.arena);
    made->resolve_redistributions(s_.model, s_.redistributor);
    s_.evaluation = std::move(made);
  }
  if (s_.evaluation->plan.bytes() > s_.arena.bytes()) enlarge_arena(s_.evaluation->plan.bytes());
}

// Between steps the arena is unused, so it can be replaced. Without memory for a larger one it is as before, or, where
// another program has taken its memory, empty.
void Executor::enlarge_arena(uint64_t bytes) {
  const uint64_t had = s_.arena.bytes();
  s_.arena = {};
  try {
    s_.arena = CountedMemory(s_.device, s_.ledger, MemoryPart::windows, bytes);
  } catch (...) {
    const Error error = current_error();
    try {
      s_.arena = CountedMemory(s_.device, s_.ledger, MemoryPart::windows, had);
    } catch (const std::exception&) {  // no step can follow
    }
    throw Error(error);
  }
}

std::unique_ptr<execute::InferenceRun> Executor::make_inference(const Program& program) const {
  auto run = std::make_unique<execute::InferenceRun>(s_.model, program, s_.params, s_.arena);
  run->resolve_redistributions(s_.model, s_.redistributor);
  return run;
}

void Executor::begin_inference(execute::InferenceRun& run, const CountedMemory& memory, uint64_t rng_key) {
  refuse_broken();
  run.memory = &memory;
  run.key = rng_key;
  run.failure.reset();
  begin_together(run, 0);
}

std::optional<Error> Executor::end_inference(execute::InferenceRun& run) {
  s_.run = &s_.training;
  return std::exchange(run.failure, std::nullopt);
}

// Modulo 2^64, since a checkpoint may say many steps.
static uint64_t samples_of(int64_t steps, const Config& config) {
  return static_cast<uint64_t>(steps) * static_cast<uint64_t>(config.train.batch);
}

int64_t Executor::first_sample() const {
  return static_cast<int64_t>(s_.sample_of_step_0 + samples_of(s_.step, s_.config));
}

TrainingNumbers Executor::numbers() const {
  TrainingNumbers numbers;
  numbers.step = s_.step;
  numbers.updates = s_.updates;
  numbers.first_sample = first_sample();
  numbers.seed = s_.seed;
  numbers.revision = s_.revision;
  s_.loss_scale.keep(numbers);
  return numbers;
}

void Executor::go_on_from(const TrainingNumbers& numbers) {
  s_.lost_state.clear();
  s_.step = numbers.step;
  s_.updates = numbers.updates;
  s_.sample_of_step_0 = static_cast<uint64_t>(numbers.first_sample) - samples_of(numbers.step, s_.config);
  s_.seed = numbers.seed;
  s_.revision = numbers.revision;
  s_.loss_scale.restore(numbers);
}

bool Executor::has_whole_state() const {
  if (s_.is_silent || s_.validation.is_open || s_.is_mixture || !s_.lost_state.empty()) return false;
  if (s_.run != &s_.training || (!s_.under_way && !s_.broke_in_step)) return true;
  const std::vector<gsel_instr>& step = s_.program().step;
  const auto end = step.begin() + static_cast<int64_t>(std::min(s_.run->position + 1, step.size()));
  return std::none_of(step.begin(), end,
                      [](const gsel_instr& instr) { return task_of(instr.kind) == InstrTask::step; }) ||
         (!s_.under_way && s_.step_numbers->has_updated_nothing());
}

std::vector<LowRankState> Executor::low_rank_state() const {
  std::vector<LowRankState> all;
  for (const execute::BucketState& bucket : s_.buckets)
    if (bucket.compressor)
      for (const LowRankState& kept : bucket.compressor->kept()) all.push_back(kept);
  return all;
}

void Executor::settle_last_step() {
  if (!s_.validation.is_open || s_.under_way || s_.broken) return;
  s_.run = &s_.training;
  try {
    s_.counts.begin();
    execute::settle_validation(s_);
    execute::record_counts(s_);
  } catch (...) {
    break_off(current_error());
  }
  execute::report_validated(*s_.run, s_.validation, s_.last_step.report);
  execute::report_non_finite(s_, s_.last_step.report);
}

void Executor::wait_for_device(bool over_ranks) {
  if (!s_.device->has_streams()) return;
  if (!over_ranks) return s_.device->wait();
  s_.watch->begin_run("a read", 0);
  try {
    s_.device->wait();
  } catch (...) {
    s_.watch->end_run();
    throw;
  }
  s_.watch->end_run();
}

double Executor::largest_of_replica(double mine) {
  for (gsel_axis axis : {s_.sharing_axis(), gsel_axis{GSEL_AXIS_PIPELINE}})
    execute::allreduce_numbers(s_, 0, axis, {&mine, 1}, GSEL_MAX);
  return mine;
}

// ---- failures ---------------------------------------------------------------------------------------------------

// Without it other ranks would wait for this one until their timeout. Sends them the reason immediately and ends this
// rank's own calls.
void Executor::end_all(std::string_view reason, int32_t about) noexcept {
  s_.broken = true;
  s_.broke_in_step = s_.under_way && s_.run == &s_.training;
  s_.under_way = s_.lent.handed_out = false;
  s_.graphs->abandon();
  s_.watch->end_run();
  s_.watch->mark_end();
  s_.comms.abort(reason, about);
  s_.comms.end_broken_work();
  s_.messages->drop();
  s_.validation.squares.under_way.reset();
  s_.validation.overflow.under_way.reset();
  s_.is_silent = !s_.watch->settle(*s_.device, s_.all_streams, s_.watch->patience_s());
}

// No step can follow a failed one, since ranks may differ in what they have applied. A rank that was aborted reports
// the first reason. That a peer has ended or is late is broadcast as such, even if this rank is the first to notice it.
void Executor::break_off(const Error& error) {
  if (error.code() == GSEL_ERR_PEER || error.code() == GSEL_ERR_TIMEOUT) s_.comms.world().break_with(error);
  end_all(error.message(), error.rank());
  if (error.code() == GSEL_ERR_ABORTED)
    if (const std::optional<Error> first = s_.comms.error_of_world()) throw_with_silence(*first);
  throw_with_silence(error);
}

// Adds that the device has not answered.
void Executor::throw_with_silence(const Error& error) const {
  if (!s_.is_silent) throw Error(error);
  throw Error(error.code(),
              fmt::format("{}; after that {} of rank {} did not answer within {}, so that its memory stays allocated "
                          "until it does, or the process ends",
                          error.message(), s_.watch->device_name(), s_.rank, seconds_text(s_.watch->patience_s())))
      .about_rank(error.rank());
}

void Executor::handle(const Error& error) {
  const gsel_status code = error.code();
  const bool is_of_another_rank = code == GSEL_ERR_ABORTED || code == GSEL_ERR_PEER || code == GSEL_ERR_TIMEOUT;
  if (is_of_another_rank || !s_.graphs->is_recording()) break_off(error);
  std::optional<Error> refusal;
  try {
    refusal = s_.graphs->give_up(s_, error.message());
  } catch (...) {
    refusal = current_error();
  }
  if (refusal) break_off(*refusal);
}

void Executor::write_message(std::string_view text) {
  std::array<char, 512>& message = s_.lent.message;
  message[text.copy(message.data(), message.size() - 1)] = '\0';
}

Error Executor::callback_error(gsel_status status, std::string_view message) const {
  const std::string phase = s_.run->phase ? fmt::format(" phase {}", s_.run->phase) : "";
  const std::string text =
      fmt::format("{} failed in {}{} {}, micro-batch {}: {}", s_.work_name(), callback_word(s_.lent.work_kind), phase,
                  s_.where_in_step(), s_.run->microbatch_number[s_.program().step[s_.run->position].microbatch],
                  reason_of(status, message));
  const std::string why = s_.graphs->is_recording()   ? s_.graphs->why_broken()
                          : status == GSEL_ERR_DEVICE ? s_.device->failure()
                                                      : "";
  return Error(GSEL_ERR_CALLBACK, why.empty() ? text : fmt::format("{}; {}", text, why)).about_rank(s_.rank);
}

// ---- push mode --------------------------------------------------------------------------------------------------

namespace {

gsel_status call_embedder(const Model& model, const gsel_work& work, const DataSource& data) {
  if (work.kind == GSEL_INPUT) return data.fill(work.input, data.user_data);
  const Layer& layer = model.layers()[work.call->layer];
  switch (work.kind) {
    case GSEL_FORWARD:
      return layer.forward(work.call, layer.user_data);
    case GSEL_BACKWARD_INPUT:
      return layer.backward_input(work.call, layer.user_data);
    case GSEL_BACKWARD_WEIGHT:
      return layer.backward_weight(work.call, layer.user_data);
    default:
      return layer.backward(work.call, layer.user_data);
  }
}

}  // namespace

void push(Executor& executor, const Model& model, const DataSource& data) {
  for (;;) {
    const gsel_work work = executor.next();
    if (work.kind == GSEL_WORK_DONE) return;
    std::string thrown;
    const gsel_status status =
        call_foreign([&] { return call_embedder(model, work, data); }, GSEL_ERR_CALLBACK, thrown);
    if (!thrown.empty()) executor.write_message(thrown);
    executor.complete(work.ticket, status, executor.callback_message());
  }
}

const Layer* find_pull_only(const Model& model) {
  const auto found = std::ranges::find_if(model.layers(), &Layer::pull_only);
  return found == model.layers().end() ? nullptr : &*found;
}

// ---- what runs before the first step: initial values are made equal on all ranks -----------------------------------

namespace {

// Gives pipeline ranks that hold the same parameters the values of the first.
void broadcast_from_first_holder(State& s) {
  for (size_t i = 0; i < s.buckets.size(); ++i) {
    const auto b = static_cast<int32_t>(i);
    if (bucket_holders(s.program(), b).size() == 1) continue;
    s.params.rewrite_params(b, [&](void* data, uint64_t bytes) {
      s.comms.tie(b).collective(make_collective(GSEL_COLLECTIVE_BROADCAST, data, data, bytes, GSEL_U8, 0, 0),
                                s.device->compute());
    });
  }
}

// Gives ranks of the sharing axis that keep whole parameters the same values: those of the embedder's initialiser on
// the first rank.
void broadcast_from_first_coordinate(State& s) {
  Communicator& axis = s.axis_comm(s.sharing_axis());
  s.params.initialise_alike(static_cast<uint64_t>(s.config.train.seed), axis.rank() == 0, [&](std::span<float> chunk) {
    axis.collective_on_host(
        make_collective(GSEL_COLLECTIVE_BROADCAST, chunk.data(), chunk.data(), chunk.size(), GSEL_F32, 0, 0));
  });
}

void meet_sharing_axis(State& s) {
  if (s.axis_size(s.sharing_axis()) == 1) return;
  s.redistributor.connect(s.axis_comm(s.sharing_axis()));
  broadcast_from_first_coordinate(s);
}

}  // namespace

void Executor::run_setup() {
  s_.comms.connect();
  s_.watch->attach(s_.comms);
  s_.graphs->refuse_calls(s_, s_.comms);
  s_.watch->begin_run("the setup", s_.program().setup.size());
  try {
    meet_sharing_axis(s_);
    s_.training.resolve_redistributions(s_.model, s_.redistributor);
    broadcast_from_first_holder(s_);
    s_.step_numbers->agree(s_, s_.comms.world());
    s_.counts.begin();
    for (const gsel_instr& instr : s_.program().setup) execute::run_instr(s_, instr);
    execute::record_counts(s_);
    s_.watch->end_run();
  } catch (...) {  // the failure may be on this rank only
    break_off(current_error());
  }
}

}  // namespace gsel
