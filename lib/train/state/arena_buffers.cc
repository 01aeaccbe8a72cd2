// train/state/arena_buffers.cc: see arena_buffers.h.
#include "train/state/arena_buffers.h"

#include <algorithm>

#include "base/align.h"

namespace gsel {
namespace {

uint64_t& shard_of(ArenaPlan::Peak& peak, ArenaBuffers::Kind kind) {
  using enum ArenaBuffers::Kind;
  switch (kind) {
    case value:
      return peak.values;
    case gradient:
    case scratch:
      return peak.gradients;
    case saved:
      return peak.saved;
    case param_window:
      return peak.gathered;
    case gradient_window:
      return peak.whole_gradients;
    default:
      return peak.beside;
  }
}

}  // namespace

uint64_t ArenaBuffers::touch_from(int32_t first, Name name, uint64_t bytes) {
  if (bytes == 0) return kNone;
  const auto [it, is_new] = living_.emplace(name.number(), buffers_.size());
  if (is_new) {
    buffers_.push_back({round_up(bytes, kTensorAlign), first, at_, 0});
    kinds_.push_back(name.kind);
  }
  keep_until(it->second, at_);
  return it->second;
}

uint64_t ArenaBuffers::touch_here(Name name, uint64_t bytes) {
  const uint64_t buffer = touch(name, bytes);
  forget(name);
  return buffer;
}

void ArenaBuffers::keep_until(uint64_t buffer, int32_t position) {
  if (buffer != kNone) buffers_[buffer].last = std::max(buffers_[buffer].last, position);
}

void ArenaBuffers::close(Name name) {
  if (const auto it = living_.find(name.number()); it != living_.end()) keep_until(it->second, at_);
  forget(name);
}

uint64_t ArenaBuffers::place() {
  for (const auto& [name, buffer] : living_)
    if (kinds_[buffer] == Kind::param_window || kinds_[buffer] == Kind::gradient_window) keep_until(buffer, at_);
  return fit(buffers_, static_cast<size_t>(at_) + 1);
}

ArenaPlan::Peak ArenaBuffers::peak() const {
  const size_t length = static_cast<size_t>(at_) + 1;
  std::vector<std::vector<size_t>> begins(length), ends(length);
  for (size_t b = 0; b < buffers_.size(); ++b) {
    begins[buffers_[b].first].push_back(b);
    ends[buffers_[b].last].push_back(b);
  }
  ArenaPlan::Peak now, most;
  for (size_t i = 0; i < length; ++i) {
    for (size_t b : begins[i]) shard_of(now, kinds_[b]) += buffers_[b].bytes;
    now.position = i;
    if (now.total() > most.total()) most = now;
    for (size_t b : ends[i]) shard_of(now, kinds_[b]) -= buffers_[b].bytes;
  }
  return most;
}

}  // namespace gsel
