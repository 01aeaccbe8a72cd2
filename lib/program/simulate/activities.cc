// program/simulate/activities.cc: see activities.h.
#include "program/simulate/activities.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "program/optimistic.h"
#include "program/stages.h"
#include "program/traffic.h"

namespace gsel {
namespace {

using Kind = Activity::Kind;

class Lowering {
 public:
  Lowering(const Job& job, const Durations& durations) : job_(job), durations_(durations) {}

  Activities run() {
    for (size_t i = 0; i < job_.programs.size(); ++i) place_of_[job_.programs[i]->rank] = static_cast<int32_t>(i);
    for (const Program* program : job_.programs) {
      program_ = program;
      known_.clear();
      group_of_axis_.fill(-1);
      activities_ = &out_.of_rank.emplace_back();
      activities_->reserve(program->step.size());
      for (size_t i = 0; i < program->step.size(); ++i) {
        position_ = static_cast<int32_t>(i);
        lower(program->step[i]);
      }
    }
    return std::move(out_);
  }

 private:
  // Cached durations of an instruction: equal for the same layer or bucket and number of samples.
  struct Known {
    double seconds = 0;
    struct Along {
      gsel_axis axis;
      ExchangeTime time;
    };
    std::vector<Along> along;
  };

  void lower(const gsel_instr& instr) {
    const InstrRow& row = instr_row(instr.kind);
    switch (row.task) {
      case InstrTask::message:
        return message(instr);
      case InstrTask::wait:
        return wait(instr);
      case InstrTask::release:
      case InstrTask::post_validate:
        return;
      case InstrTask::params:
      case InstrTask::gradients:
        return bucket_call(instr);
      case InstrTask::forward:
      case InstrTask::backward:
        return layer_call(instr);
      case InstrTask::sum_stepped:
        if (row.peers == InstrPeers::tied) return tied(instr);
        break;
      case InstrTask::loss:
        if (instr.axis == GSEL_AXIS_PIPELINE) return losses();
        break;
      default:
        break;
    }
    const Known& known = known_of(instr);
    compute(known.seconds, row.task == InstrTask::step);
    for (const Known::Along& a : known.along)
      if (!(is_optimistic(instr) && a.axis == GSEL_AXIS_PIPELINE)) exchange(a.axis, a.time);
  }

  // ---- durations ---------------------------------------------------------------------------------------------------

  static uint64_t key_of(const Program& program, const gsel_instr& instr) {
    const int64_t samples =
        instr.microbatch < 0 ? 0 : program.microbatches[static_cast<size_t>(instr.microbatch)].count;
    const int32_t what = instr.layer >= 0 ? instr.layer : instr.bucket >= 0 ? instr.bucket : instr.value;
    return (static_cast<uint64_t>(samples) & 0xffffff) << 40 | static_cast<uint64_t>(what + 1) << 16 |
           static_cast<uint64_t>(instr.kind) << 8 | static_cast<uint64_t>(instr.axis + 1);
  }

  const Known& known_of(const gsel_instr& instr) {
    const auto [found, is_new] = known_.try_emplace(key_of(*program_, instr));
    Known& known = found->second;
    if (!is_new) return known;
    const bool empty = instr.layer >= 0 && program_->microbatches[static_cast<size_t>(instr.microbatch)].count == 0;
    if (!empty) known.seconds = durations_.compute(*program_, instr);
    for (const auto& [by, count] : traffic_of(*program_, instr))
      known.along.push_back({by.first, durations_.exchange(*program_, instr, by.first, count.calls, count.bytes_sent)});
    return known;
  }

  // ---- activities --------------------------------------------------------------------------------------------------

  Activity& add(Kind kind) {
    Activity& activity = activities_->emplace_back();
    activity.kind = kind;
    activity.position = position_;
    return activity;
  }

  void compute(double seconds, bool is_step = false) {
    Activity& activity = add(Kind::compute);
    activity.seconds = seconds;
    activity.is_step = is_step;
  }

  void exchange(gsel_axis axis, ExchangeTime time) { exchange_in(group_of(axis), axis, time); }
  void exchange_in(int32_t group, gsel_axis axis, ExchangeTime time) {
    Activity& activity = add(Kind::exchange);
    activity.axis = axis;
    activity.with = group;
    activity.time = time;
  }

  // A layer with n exchanges computes n + 1 times, with an exchange between each two.
  void layer_call(const gsel_instr& instr) {
    const Known& known = known_of(instr);
    const ProgramLayer& layer = program_->layers[static_cast<size_t>(instr.layer)];
    if (layer.redistributes) {
      compute(known.seconds);
      for (const Known::Along& a : known.along) exchange(a.axis, a.time);
      return;
    }
    const auto& phases = task_of(instr.kind) == InstrTask::forward ? layer.forward_phases : layer.backward_phases;
    std::vector<gsel_axis> axes;
    if (!known.along.empty())
      for (const ProgramPhase& phase : phases)
        if (program_->mesh.size[phase.axis] > 1) axes.push_back(phase.axis);
    const double each = known.seconds / static_cast<double>(axes.size() + 1);
    compute(each);
    for (gsel_axis axis : axes) {
      const auto a = std::ranges::find(known.along, axis, &Known::Along::axis);
      const auto n = static_cast<double>(std::ranges::count(axes, axis));
      exchange(axis, {a->time.wire / n, a->time.work / n});
      compute(each);
    }
  }

  void bucket_call(const gsel_instr& instr) {
    const Known& known = known_of(instr);
    compute(known.seconds);
    if (known.along.empty()) return;
    Activity& activity = add(Kind::post);
    activity.axis = instr.axis;
    activity.bucket = instr.bucket;
    activity.with = group_of(instr.axis);
    activity.time = known.along.front().time;
  }

  void wait(const gsel_instr& instr) {
    Activity& activity = add(Kind::wait);
    activity.axis = program_->buckets[static_cast<size_t>(instr.bucket)].axis;
    activity.bucket = instr.bucket;
  }

  void message(const gsel_instr& instr) {
    const int64_t samples = program_->microbatches[static_cast<size_t>(instr.microbatch)].count;
    if (samples == 0 || !place_of_.contains(instr.peer)) return;
    const int64_t bytes = program_->values[static_cast<size_t>(instr.value)].bytes(samples);
    const bool sends = instr_row(instr.kind).is_send();
    Activity& activity = add(sends ? Kind::send : Kind::receive);
    activity.axis = GSEL_AXIS_PIPELINE;
    activity.with = channel_of(sends ? program_->rank : instr.peer, sends ? instr.peer : program_->rank,
                               std::max(program_->transfers, 1), false);
    if (sends) activity.time = durations_.message(*program_, instr.peer, bytes);
  }

  // From the pipeline rank that has the loss to each other pipeline rank.
  void losses() {
    const auto loss = std::ranges::find_if(program_->layers, &ProgramLayer::is_loss);
    if (loss == program_->layers.end()) return;
    const std::vector<int32_t> along = program_->mesh.group(program_->rank, GSEL_AXIS_PIPELINE);
    const int32_t from = along[static_cast<size_t>(
        pipeline_rank_of_layer(*program_, static_cast<int32_t>(loss - program_->layers.begin())))];
    for (int32_t rank : along) {
      if (rank == from || !place_of_.contains(rank) || !place_of_.contains(from)) continue;
      if (program_->rank != from && program_->rank != rank) continue;
      Activity& activity = add(program_->rank == from ? Kind::send : Kind::receive);
      activity.axis = GSEL_AXIS_PIPELINE;
      activity.with = channel_of(from, rank, kUnboundedChannel, true);
      activity.time = durations_.message(*program_, rank, 2 * int64_t{sizeof(double)});
    }
  }

  void tied(const gsel_instr& instr) {
    const Known& known = known_of(instr);
    for (const Known::Along& a : known.along)
      exchange_in(group_with(tied_ranks(*program_, instr.bucket)), a.axis, a.time);
  }

  // ---- participants ------------------------------------------------------------------------------------------------

  int32_t group_of(gsel_axis axis) {
    int32_t& group = group_of_axis_[static_cast<size_t>(axis)];
    if (group < 0) group = group_with(program_->mesh.group(program_->rank, axis));
    return group;
  }

  // Only ranks that are in the job.
  int32_t group_with(std::vector<int32_t> ranks) {
    std::erase_if(ranks, [&](int32_t rank) { return !place_of_.contains(rank); });
    const auto [found, is_new] = groups_.try_emplace(ranks, static_cast<int32_t>(out_.group_size.size()));
    if (is_new) out_.group_size.push_back(static_cast<int32_t>(ranks.size()));
    return found->second;
  }

  int32_t channel_of(int32_t from, int32_t to, int32_t ahead, bool of_losses) {
    const auto [found, is_new] =
        channels_.try_emplace({from, to, of_losses}, static_cast<int32_t>(out_.channels.size()));
    if (is_new) out_.channels.push_back({place_of_.at(from), place_of_.at(to), ahead});
    return found->second;
  }

  const Job& job_;
  const Durations& durations_;
  Activities out_;
  std::unordered_map<int32_t, int32_t> place_of_;  // by rank
  std::map<std::vector<int32_t>, int32_t> groups_;
  std::map<std::tuple<int32_t, int32_t, bool>, int32_t> channels_;

  // Of the current rank.
  const Program* program_ = nullptr;
  std::vector<Activity>* activities_ = nullptr;
  std::unordered_map<uint64_t, Known> known_;
  std::array<int32_t, kAxes> group_of_axis_{};
  int32_t position_ = 0;
};

}  // namespace

Activities activities_of(const Job& job, const Durations& durations) {
  return Lowering(job, durations).run();
}

}  // namespace gsel
