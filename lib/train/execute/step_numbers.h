// train/execute/step_numbers.h: the loss, the norm and the overflow flags of a training step stay on the device. Ranks
// reduce them as memory of the device, kernels of the optimizer read the scale of the update there, and the host reads
// all of it once, when the device has ended the step. A rank adds its numbers in the order of step.cc, so the bits are
// those of a step on the host. Sums over ranks are the transport's, which gives all ranks the same bits, as it does for
// gradients. If ranks clipped by different numbers, their parameters would diverge.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "train/execute/state.h"

namespace gsel::execute {

class StepNumbers {
 public:
  // graphs_have_them: steps are recorded as graphs, which compute their own (graph_numbers.cc).
  StepNumbers(const Fixed& fixed, const HeldMemory& memory, const Program& program, bool graphs_have_them);

  // A collective before the first step: numbers stay on the device on all ranks or on none.
  void agree(const Fixed& fixed, Communicator& comm);
  // Before the first instruction: the step's factors of the optimizer for the device.
  void begin(State& s);
  // Returns true if this call has done the instruction.
  bool takes(State& s, const gsel_instr& instr);
  // After the last instruction: the device copies the numbers to memory of the host.
  void fetch(State& s);
  // Once the device has ended the step: the host's part of LOSS_ALLREDUCE, NORM and OVERFLOW.
  void settle(State& s);
  // After a failed step, once the device is idle: whether the step updated nothing, because its kernels never got a
  // scale.
  bool has_updated_nothing() const { return is_on_ && std::isnan(*read(n_numbers())); }

 private:
  // Buckets whose squares are divided over one axis, or over none (-1): their squares are consecutive numbers.
  struct Group {
    gsel_axis axis = -1;
    size_t first = 0;  // from the check's first number on
    const int32_t* ends = nullptr;
    int32_t n_ends = 0;
  };
  bool is_of(const State& s) const { return is_on_ && s.run == &s.training; }
  void make_memory(const HeldMemory& memory);
  std::vector<Group> groups_of(const State& s, size_t first);
  void sum_losses(State& s);
  void pass_losses_on(State& s);
  void forget_losses() const;
  void sum_over(State& s, gsel_instr_kind poster, gsel_axis axis, double* number) const;
  void add(double* to, const double* number) const;
  void loss(State& s, const gsel_instr& instr);
  void check(State& s, const gsel_instr& instr);
  void step(State& s, const gsel_instr& instr);
  void enqueue_scale(State& s);
  double* number(size_t i) const { return reinterpret_cast<double*>(on_device_.at(numbers_at_)) + i; }
  const double* read(size_t i) const { return reinterpret_cast<const double*>(on_host_.at(numbers_at_)) + i; }
  size_t n_numbers() const { return 2 + checks_.size(); }

  const std::shared_ptr<DeviceContext> device_;
  const Program& program_;
  const double* const end_word_;
  bool is_on_ = false;
  std::vector<gsel_instr> checks_;          // NORM and OVERFLOW, in order
  std::vector<std::vector<Group>> groups_;  // by check; made in the first step
  // On both: factors of the optimizer, then the sums of losses and weights and a number for each check. On the device
  // also one for each axis, the two of update_scale and two that are sent; on the host a copy of the two, two NaN, and
  // the lists that kernels read.
  Memory on_device_, on_host_;
  uint64_t numbers_at_ = 0;
  const double** weight_ = nullptr;
  int32_t* next_end_ = nullptr;
  const int32_t* ends_of_checks_ = nullptr;
  // Of the run.
  size_t n_checks_ = 0;
  bool has_losses_ = false, is_fetched_ = false;
  bool owes_losses_ = false;            // the losses of the pipeline are to be passed on
  const char* next_factors_ = nullptr;  // nullptr: before the first STEP
};

}  // namespace gsel::execute
