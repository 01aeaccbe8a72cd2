// program/forward_programs.cc: see forward_programs.h.
#include "program/forward_programs.h"

#include <algorithm>

#include "program/stages.h"

namespace gsel {
namespace {

// ---- an evaluation ----------------------------------------------------------------------------------------------

// From ALLGATHER (or BROADCAST by an owner) to RELEASE or the end of the step, as positions.
struct Window {
  size_t opened = 0;
  std::vector<size_t> waits;  // of the opening collective
  int64_t last_forward = -1;
  int64_t closed = -1;  // its RELEASE
};

// Finds the windows that forwards read, and the last forward that reads each; then writes the new step.
class Cutter {
 public:
  explicit Cutter(const Program& program) : program_(program), buckets_(program.buckets.size()) {}

  Program cut() {
    std::vector<int32_t> bucket_of(program_.params.size(), -1);
    for (size_t b = 0; b < program_.buckets.size(); ++b)
      for (int32_t p : program_.buckets[b].params) bucket_of[p] = static_cast<int32_t>(b);
    for (at_ = 0; at_ < program_.step.size(); ++at_) visit(program_.step[at_], bucket_of);
    for (size_t b = 0; b < buckets_.size(); ++b)
      for (const Window& window : buckets_[b].windows) place(static_cast<int32_t>(b), window);
    return write();
  }

 private:
  struct Bucket {
    std::vector<Window> windows;  // the last one may be open
    bool is_open = false;
    bool arriving = false;  // the opening collective has not been waited for
  };

  void visit(const gsel_instr& instr, const std::vector<int32_t>& bucket_of) {
    const InstrRow& row = instr_row(instr.kind);
    if (row.task == InstrTask::forward && !row.recomputes)
      for (int32_t p : program_.layers[instr.layer].params)
        if (bucket_of[p] >= 0 && buckets_[bucket_of[p]].is_open)
          buckets_[bucket_of[p]].windows.back().last_forward = static_cast<int64_t>(at_);
    if (instr.bucket < 0) return;
    Bucket& bucket = buckets_[instr.bucket];
    switch (row.task) {
      case InstrTask::params:
        // ZeRO stages 1 and 2 gather what the optimizer has changed; a forward-only program changes nothing.
        if (!row.peer && !program_.buckets[instr.bucket].shards_param()) return;
        bucket.windows.emplace_back().opened = at_;
        bucket.is_open = bucket.arriving = true;
        return;
      case InstrTask::wait:
        if (bucket.arriving) bucket.windows.back().waits.push_back(at_);
        bucket.arriving = false;
        return;
      case InstrTask::release:
        if (bucket.is_open) bucket.windows.back().closed = static_cast<int64_t>(at_);
        bucket.is_open = false;
        return;
      default:
        return;
    }
  }

  // A broadcast is kept on all ranks, whether or not a forward of this rank reads its result.
  void place(int32_t b, const Window& window) {
    const bool shards = program_.buckets[b].shards_param();
    if (shards && window.last_forward < 0) return;
    kept_.push_back({window.opened, program_.step[window.opened]});
    for (size_t at : window.waits) kept_.push_back({at, program_.step[at]});
    if (!shards && window.closed < 0) return;
    gsel_instr release = make_instr(GSEL_INSTR_RELEASE);
    release.bucket = b;
    const size_t after = window.waits.empty() ? window.opened : window.waits.back();
    kept_.push_back({std::max(after, static_cast<size_t>(std::max<int64_t>(window.last_forward, 0))), release});
  }

  Program write() {
    for (at_ = 0; at_ < program_.step.size(); ++at_)
      if (const gsel_instr& instr = program_.step[at_]; instr.bucket < 0 && !trains(instr))
        kept_.push_back({at_, instr});
    // At the same position, the original instruction comes before releases.
    std::ranges::stable_sort(
        kept_, {}, [](const Kept& k) { return std::pair(k.position, task_of(k.instr.kind) == InstrTask::release); });
    Program out = program_;
    out.setup.clear();
    out.step.clear();
    out.lines.clear();
    out.launch_times.clear();
    for (const Kept& k : kept_) {
      out.step.push_back(k.instr);
      if (!program_.launch_times.empty()) out.launch_times.push_back(program_.launch_times[k.position]);
      const size_t line = program_.setup.size() + k.position;
      if (line < program_.lines.size()) out.lines.push_back(program_.lines[line]);
    }
    return out;
  }

  struct Kept {
    size_t position;
    gsel_instr instr;
  };
  const Program& program_;
  size_t at_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<Kept> kept_;
};

}  // namespace

Program forward_only(const Program& program) {
  return Cutter(program).cut();
}

// ---- an inference -----------------------------------------------------------------------------------------------

namespace {

// All ranks write messages in the order of the layers that cause them, so the messages of each pair of ranks are in the
// same order and cannot deadlock.
class Writer {
 public:
  Writer(const Program& training, int32_t value, int64_t n_samples)
      : from_(training),
        layers_(layers_up_to(training, value)),
        last_(training.buckets.size(), -1),
        open_(last_.size()) {
    out_ = training;
    out_.setup.clear();
    out_.step.clear();
    out_.notes.clear();
    out_.lines.clear();
    out_.microbatches = {{0, n_samples}};
    find_last_readers();
    write_inputs(value);
    for (int32_t l : layers_) {
      if (is_here(from_, l)) run(l);
      for (int32_t v : from_.layers[l].outputs) send_to_readers(v, pipeline_rank_of_layer(from_, l));
    }
  }

  // Calls are in one order already, since all ranks go through the same layers.
  Program take() {
    out_.launch_times.clear();
    if (!from_.launch_times.empty())
      for (size_t i = 0; i < out_.step.size(); ++i) out_.launch_times.push_back(static_cast<int64_t>(i));
    return std::move(out_);
  }

 private:
  gsel_instr& emit(gsel_instr_kind kind) { return out_.step.emplace_back(make_instr(kind)); }
  int32_t own_rank() const { return from_.mesh.coordinate(from_.rank, GSEL_AXIS_PIPELINE); }

  int32_t bucket_of(int32_t p) const {
    for (size_t b = 0; b < from_.buckets.size(); ++b)
      if (std::ranges::count(from_.buckets[b].params, p)) return static_cast<int32_t>(b);
    return -1;  // frozen
  }

  bool is_kept_whole(int32_t b) const {
    const ProgramBucket& bucket = from_.buckets[b];
    return !bucket.shards_param() && (bucket.owner < 0 || from_.mesh.size[bucket.axis] == 1);
  }

  void find_last_readers() {
    for (int32_t l : layers_)
      if (is_here(from_, l))
        for (int32_t b : buckets_to_open(l)) last_[b] = l;
  }

  std::vector<int32_t> buckets_to_open(int32_t l) const {
    std::vector<int32_t> buckets;
    for (int32_t p : from_.layers[l].params)
      if (const int32_t b = bucket_of(p); b >= 0 && !is_kept_whole(b) && !std::ranges::count(buckets, b))
        buckets.push_back(b);
    return buckets;
  }

  // Each pipeline rank gets the inputs that its layers read, or that are the wanted value.
  void write_inputs(int32_t value) {
    for (size_t v = 0; v < from_.values.size(); ++v) {
      const auto id = static_cast<int32_t>(v);
      const bool is_wanted = id == value && own_rank() == pipeline_rank_of_value(from_, value);
      const bool is_read = std::ranges::any_of(
          layers_, [&](int32_t l) { return is_here(from_, l) && std::ranges::count(from_.layers[l].inputs, id); });
      if (!from_.values[v].is_input || !(is_wanted || is_read)) continue;
      gsel_instr& input = emit(GSEL_INPUT);
      input.value = id;
      input.microbatch = 0;
    }
  }

  void run(int32_t l) {
    for (int32_t b : buckets_to_open(l)) {
      if (open_[b]) continue;
      open_[b] = true;
      const ProgramBucket& bucket = from_.buckets[b];
      gsel_instr& gather = emit(bucket.owner >= 0 ? GSEL_INSTR_BROADCAST : GSEL_INSTR_ALLGATHER);
      gather.bucket = b;
      gather.axis = bucket.axis;
      if (bucket.owner >= 0) gather.peer = bucket.owner;
      emit(GSEL_INSTR_WAIT).bucket = b;
    }
    gsel_instr& forward = emit(GSEL_FORWARD);
    forward.layer = l;
    forward.microbatch = 0;
    for (int32_t b : buckets_to_open(l))
      if (last_[b] == l) emit(GSEL_INSTR_RELEASE).bucket = b;
  }

  // Sends a value from the pipeline rank that has it to the others that read it, by rank.
  void send_to_readers(int32_t v, int32_t from) {
    const std::vector<int32_t> ranks = from_.mesh.group(from_.rank, GSEL_AXIS_PIPELINE);
    for (size_t to = 0; to < ranks.size(); ++to) {
      const auto reader = static_cast<int32_t>(to);
      const bool reads = std::ranges::any_of(layers_, [&](int32_t l) {
        return pipeline_rank_of_layer(from_, l) == reader && std::ranges::count(from_.layers[l].inputs, v);
      });
      if (reader == from || !reads || (own_rank() != from && own_rank() != reader)) continue;
      gsel_instr& message = emit(own_rank() == from ? GSEL_INSTR_SEND : GSEL_INSTR_RECV);
      message.value = v;
      message.microbatch = 0;
      message.peer = own_rank() == from ? ranks[to] : ranks[from];
    }
  }

  const Program& from_;
  const std::vector<int32_t> layers_;
  Program out_;
  std::vector<int32_t> last_;  // by bucket: the last layer here that reads its parameters
  std::vector<bool> open_;
};

}  // namespace

std::vector<int32_t> layers_up_to(const Program& program, int32_t value) {
  std::vector<bool> wanted(program.values.size());
  wanted[value] = true;
  std::vector<int32_t> layers;
  for (auto l = static_cast<int32_t>(program.layers.size()) - 1; l >= 0; --l) {
    const ProgramLayer& layer = program.layers[l];
    if (std::ranges::none_of(layer.outputs, [&](int32_t v) { return wanted[v]; })) continue;
    for (int32_t v : layer.inputs) wanted[v] = true;
    layers.push_back(l);
  }
  std::ranges::reverse(layers);
  return layers;
}

int32_t pipeline_rank_of_value(const Program& program, int32_t value) {
  for (size_t l = 0; l < program.layers.size(); ++l)
    if (std::ranges::count(program.layers[l].outputs, value))
      return pipeline_rank_of_layer(program, static_cast<int32_t>(l));
  return 0;
}

Program forward_to(const Program& training, int32_t value, int64_t n_samples) {
  return Writer(training, value, n_samples).take();
}

}  // namespace gsel
