// train/execute/graphs.h: segments of a training step that run as graphs of the device ([train] graph). A segment has
// no instruction at which the host must know a number or fill an input. Its first run is plain, since kernels and
// scratch memory are made then. The next one is recorded: instructions and callbacks run as usual, and nothing happens
// on the device before the graph is launched. From then on the graph is launched in their place, and the host's side of
// the run is set to its state after the segment. If the device has update_scale, the end of the step is part of the
// graph: the device computes what the optimizer needs of the loss and the norm, and the host reads them afterwards.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/graph.h"
#include "train/execute/state.h"
#include "train/state/storage.h"

namespace gsel::execute {

// Whether the instruction is at the end of a step, where a plain step has numbers on the host.
bool is_of_tail(const gsel_instr& instr);

class StepGraphs {
 public:
  // GSEL_ERR_UNSUPPORTED: train.graph is "on" and this program or device has none.
  StepGraphs(const Fixed& fixed, const HeldMemory& memory, const Program& program, int32_t world_size);
  // Once the communicators are there. GSEL_ERR_UNSUPPORTED: their calls cannot be part of a graph.
  void refuse_calls(const Fixed& fixed, AxisComms& comms) const;

  // Between two instructions. True: a graph was launched, so that the run is at another position.
  bool pass(State& s);
  // Before the first instruction: numbers of the step for the device.
  void begin_run(State& s);
  // Returns true if this call has done the instruction: at the end of a step, the device's part while it is recorded,
  // and the host's part after a launch.
  bool takes(State& s, const gsel_instr& instr);
  // Whether graphs have the loss and the norm of a step.
  bool have_numbers() const { return is_wanted_ && n_ranks_ == 1; }
  bool is_after_launch() const { return launched_ != nullptr; }
  // Value of gsel_call.device_rng_key.
  const uint64_t* device_rng_key(int32_t layer) const {
    return is_wanted_ ? reinterpret_cast<const uint64_t*>(on_device_.at(0)) + layer : nullptr;
  }
  // Launches of the run.
  int32_t launches() const { return launches_; }
  // Why there are no graphs; empty: there are, or none are wanted.
  const std::string& reason() const { return reason_; }

  bool is_recording() const { return recorded_ != nullptr; }
  // After a callback: why the recording is invalid; empty if it is valid.
  std::string why_broken() const;
  // Ends a recording that cannot go on, puts the run back to where it began, and makes no graphs from now on. The error
  // if train.graph is "on".
  std::optional<Error> give_up(State& s, const std::string& why);
  // Ends a recording with its run.
  void abandon() noexcept;

 private:
  // The host's side of a run at a position.
  struct Mark {
    size_t position = 0, numbers = 0, intervals = 0;
    std::vector<int64_t> fetched;
    std::vector<PendingCheck> pending_checks;
    std::vector<bool> weight_begun, used;
    ParamStorage::Windows windows;
    size_t n_async = 0;
    std::array<int64_t, kAxes> last_async{};
  };
  static Mark mark_of(const State& s);
  static void go_to(State& s, const Mark& mark);

  struct Segment {
    size_t begin = 0, end = 0;
    size_t tail = 0;  // the first of the instructions at which a plain step has numbers on the host; or `end`
    bool was_run = false;
    std::unique_ptr<Graph> graph;
    // Values recorded in the graph; it is recorded again if one changes.
    const void* memory = nullptr;
    double loss_scale = 1;
    Mark after;
    std::vector<std::vector<std::pair<size_t, size_t>>> squares;  // of each NORM and OVERFLOW, see Squares
    CallCounts::ByInstr calls{};                                  // that a launch makes
  };
  // How a segment runs. Ranks take the least that one of them can do.
  enum class Way : int32_t { plain, recorded, launched };
  Way way_of(const State& s, Segment& segment) const;
  Way agreed(State& s, Way way) const;
  void find_segments(const Program& program, bool with_tail);
  void make_memory(const Model& model, const Program& program, const HeldMemory& memory);
  void record_scale(State& s);
  void record_step(State& s, const gsel_instr& instr);
  void record(State& s, Segment& segment);
  void finish(State& s);
  void launch(State& s, Segment& segment);
  void go_after(State& s, const Segment& segment);
  void refuse_thread() const;
  void turn_off(const std::string& why);

  const std::shared_ptr<DeviceContext> device_;
  const int32_t n_ranks_;
  bool is_wanted_, is_required_;
  std::string reason_;
  std::vector<Segment> segments_;
  std::vector<int32_t> at_;  // by position: the segment that begins there, or -1
  Segment* recorded_ = nullptr;
  bool is_open_ = false;               // the device records
  const Segment* launched_ = nullptr;  // launched, and the host's part of it is not finished
  size_t n_checks_ = 0;                // checks of launched_ whose host part is done
  std::thread::id thread_;
  Mark before_;
  int32_t launches_ = 0;
  // Keys of layers, [n]; factors of the optimizer; on the device also the two numbers of update_scale.
  Memory on_host_, on_device_;
  uint64_t copied_bytes_ = 0;
  size_t factors_at_ = 0;
  const char* next_factors_ = nullptr;  // while a step is recorded
  Memory lists_;                        // of update_scale
};

}  // namespace gsel::execute
