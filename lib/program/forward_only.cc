// program/forward_only.cc: see forward_only.h. A first pass follows what each instruction does to buckets, to find the
// windows that a forward reads and the last forward that reads each. Then the list is written.
#include "program/forward_only.h"

#include <algorithm>

namespace gsel {
namespace {

// From ALLGATHER (or BROADCAST by an owner) to RELEASE or the end, in positions of the step.
struct Window {
  size_t opened = 0;
  std::vector<size_t> waits;  // that end the opening
  int64_t last_forward = -1;
  int64_t closed = -1;  // its RELEASE
};

bool is_kept_always(const gsel_instr& instr) {
  switch (instr.kind) {
    case GSEL_INPUT:
    case GSEL_FORWARD:
    case GSEL_INSTR_LOSS_ALLREDUCE:
      return true;
    case GSEL_INSTR_SEND:
    case GSEL_INSTR_RECV:
    case GSEL_INSTR_SCATTER:
    case GSEL_INSTR_GATHER:
      return !(instr.flags & GSEL_INSTR_GRADIENT);
    default:
      return false;
  }
}

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
    bool arriving = false;  // a wait would end the opening of the last window
  };

  void visit(const gsel_instr& instr, const std::vector<int32_t>& bucket_of) {
    if (instr.kind == GSEL_FORWARD)
      for (int32_t p : program_.layers[instr.layer].params)
        if (bucket_of[p] >= 0 && buckets_[bucket_of[p]].is_open)
          buckets_[bucket_of[p]].windows.back().last_forward = static_cast<int64_t>(at_);
    if (instr.bucket < 0) return;
    Bucket& bucket = buckets_[instr.bucket];
    switch (instr.kind) {
      case GSEL_INSTR_BROADCAST:
      case GSEL_INSTR_ALLGATHER:
        // Stages 1 and 2 gather what the optimizer has changed, which is not done here.
        if (instr.kind == GSEL_INSTR_ALLGATHER && !program_.buckets[instr.bucket].shards_param()) return;
        bucket.windows.emplace_back().opened = at_;
        bucket.is_open = bucket.arriving = true;
        return;
      case GSEL_INSTR_WAIT:
        if (bucket.arriving) bucket.windows.back().waits.push_back(at_);
        bucket.arriving = false;
        return;
      case GSEL_INSTR_RELEASE:
        if (bucket.is_open) bucket.windows.back().closed = static_cast<int64_t>(at_);
        bucket.is_open = false;
        return;
      default:
        return;
    }
  }

  // A broadcast is kept on every rank alike, whether or not a forward of this one reads what it brings.
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
      if (is_kept_always(program_.step[at_])) kept_.push_back({at_, program_.step[at_]});
    // At one position the instruction that stands there comes first; releases behind it.
    std::ranges::stable_sort(kept_, {},
                             [](const Kept& k) { return std::pair(k.position, k.instr.kind == GSEL_INSTR_RELEASE); });
    Program out = program_;
    out.setup.clear();
    out.step.clear();
    out.lines.clear();
    for (const Kept& k : kept_) {
      out.step.push_back(k.instr);
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

}  // namespace gsel
