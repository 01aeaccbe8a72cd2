// train/ranks/axis_comms.cc: see axis_comms.h.
#include "train/ranks/axis_comms.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/types.h"
#include "comm/device/device_backend.h"
#include "program/optimistic.h"
#include "program/stages.h"

namespace gsel {

AxisComms::AxisComms(Communicator& world, const Program& program) : world_(world), program_(program) {
  const std::vector<int32_t> tie_of = tie_of_params(program);
  for (const ProgramBucket& bucket : program.buckets) tie_of_bucket_.push_back(tie_of[bucket.params.front()]);
}

void AxisComms::connect() {
  if (connected_) return;
  for (gsel_axis axis = 0; axis < kAxes; ++axis) split_axis(axis);
  warn_of_hosts();
  const int32_t pipeline_rank = program_.mesh.coordinate(program_.rank, GSEL_AXIS_PIPELINE);
  for (const std::vector<int32_t>& tie : ties(program_)) {
    Own& own = ties_.emplace_back();
    tie_is_axis_.push_back(tie.size() == static_cast<size_t>(size(GSEL_AXIS_PIPELINE)));
    if (tie_is_axis_.back()) continue;
    const int32_t colour = std::ranges::count(tie, pipeline_rank) ? 0 : -1;
    if (auto made = axis(GSEL_AXIS_PIPELINE).split_inside(colour, pipeline_rank, "tie")) own.emplace(std::move(*made));
  }
  if (size(GSEL_AXIS_PIPELINE) > 1)
    losses_.emplace(*axis(GSEL_AXIS_PIPELINE).split_inside(0, pipeline_rank, "loss", true));
  if (losses_ && has_optimistic_steps(program_))
    validation_.emplace(*axis(GSEL_AXIS_PIPELINE).split_inside(0, pipeline_rank, "validation", true));
  connected_ = true;
}

// The colour is the group's first rank.
void AxisComms::split_axis(gsel_axis axis) {
  if (size(axis) == 1 || size(axis) == world_.world_size()) return;
  const std::vector<int32_t> group = program_.mesh.group(program_.rank, axis);
  axes_[axis].emplace(
      *world_.split_inside(group.front(), program_.mesh.coordinate(program_.rank, axis), axis_name(axis)));
}

// The ranks of a sharing axis communicate in every layer. Rank 0 checks its own group for all.
void AxisComms::warn_of_hosts() {
  for (const gsel_axis shared : {GSEL_AXIS_TENSOR, GSEL_AXIS_CONTEXT}) {
    if (world_.rank() != 0 || size(shared) == 1 || !axis(shared).is_over_hosts()) continue;
    log(GSEL_LOG_WARN, "mesh",
        "the {} axis crosses hosts: ranks {} share each layer and are on several; start ranks host by host (mpirun "
        "--map-by slot, srun --distribution=block), or set mesh.{} to what divides the ranks of a host; gsel mesh "
        "--hosts shows all groups",
        axis_name(shared), fmt::join(program_.mesh.group(program_.rank, shared), ", "), axis_name(shared));
  }
}

Communicator& AxisComms::axis(gsel_axis axis) {
  if (size(axis) == world_.world_size()) return world_;
  if (!axes_[axis])
    fail(GSEL_ERR_INTERNAL, "the {} axis of {} has no communicator", axis_name(axis), with_noun(size(axis), "rank"));
  return *axes_[axis];
}

Communicator& AxisComms::tie(int32_t bucket) {
  const int32_t tie = tie_of_bucket_[bucket];
  if (tie < 0 || static_cast<size_t>(tie) >= ties_.size() || (!ties_[tie] && !tie_is_axis_[tie]))
    fail(GSEL_ERR_INTERNAL, "bucket {} is held by one stage of the pipeline and to be summed over several", bucket);
  return ties_[tie] ? *ties_[tie] : axis(GSEL_AXIS_PIPELINE);
}

Communicator& AxisComms::losses() {
  if (!losses_) fail(GSEL_ERR_INTERNAL, "a pipeline of one rank has nobody to send its loss to");
  return *losses_;
}

Communicator& AxisComms::validation() {
  if (!validation_) fail(GSEL_ERR_INTERNAL, "a number is optimistic over a pipeline that has nobody to send it to");
  return *validation_;
}

template <class Visit>
void AxisComms::visit_own(Visit&& visit) {
  for (Own& own : axes_)
    if (own) visit(*own);
  for (Own& own : ties_)
    if (own) visit(*own);
  for (Own* own : {&losses_, &validation_})
    if (*own) visit(**own);
}

// Aborts the world first, so that a rank that sees the failure in a group finds the reason in the world.
void AxisComms::abort(std::string_view reason, int32_t about) noexcept {
  world_.abort(reason, about);
  visit_own([&](Communicator& own) { own.abort(reason, about); });
}

void AxisComms::throw_async_errors() {
  world_.throw_async_error();
  visit_own([](Communicator& own) { own.throw_async_error(); });
}

template <class Visit>
void AxisComms::visit_devices(Visit&& visit) {
  if (DeviceBackend* device = world_.device()) visit(*device);
  visit_own([&](Communicator& own) {
    if (DeviceBackend* device = own.device()) visit(*device);
  });
}

void AxisComms::end_broken_work() noexcept {
  visit_devices([](DeviceBackend& device) {
    try {
      device.throw_async_error();
    } catch (...) {  // the reason is known
    }
  });
}

bool AxisComms::are_in_call() {
  bool found = false;
  visit_devices([&](DeviceBackend& device) { found = found || device.is_in_call(); });
  return found;
}

void AxisComms::mark_end_at(double* word) {
  visit_devices([&](DeviceBackend& device) { device.mark_end_at(word); });
}

void AxisComms::forget_word(double* word) noexcept {
  visit_devices([&](DeviceBackend& device) { device.forget_word(word); });
}

std::string AxisComms::why_not_captured() {
  std::string why;
  visit_devices([&](DeviceBackend& device) {
    if (why.empty()) why = device.why_not_captured();
  });
  return why;
}

void AxisComms::observe_waits(WaitObserver* observer) noexcept {
  visit_devices([&](DeviceBackend& device) { device.observe_waits(observer); });
}

std::optional<Error> AxisComms::error_of_world() noexcept {
  try {
    world_.collective_on_host(make_collective(GSEL_COLLECTIVE_BARRIER, nullptr, nullptr, 0, GSEL_U8));
  } catch (...) {
    return current_error();
  }
  return {};
}

}  // namespace gsel
