// program/forward_to.cc: see forward_to.h. All ranks write messages in the order of the layers that cause them, so that
// the messages of each pair of ranks are in order and there is no deadlock.
#include "program/forward_to.h"

#include <algorithm>

#include "program/stages.h"

namespace gsel {
namespace {

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

  Program take() { return std::move(out_); }

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

  // Of those that are asked for, each pipeline rank asks for what its layers read.
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

  // From the pipeline rank that has it to the others that read it, in their order.
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
  std::vector<int32_t> last_;  // by bucket: the last layer here that reads of it
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
