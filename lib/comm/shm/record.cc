// comm/shm/record.cc: what a rank makes of its own flight recorder: its trace, and a file when a call fails. A call
// that failed has a negative time at its end.
#include "base/log.h"
#include "comm/shm/link.h"
#include "comm/shm/trace.h"

namespace gsel::shm {

std::string Link::trace(gsel_status code, const std::string& error) const {
  std::shared_ptr<Arena> arena;
  {
    std::lock_guard lock(arena_mutex_);
    arena = arena_;
  }
  TraceReader reader{rank_, code, error, {}};
  reader.alive = [&](int32_t q) -> std::optional<bool> { return !family_->ended(arena->rank(q).family_rank); };
  return trace_of(*arena, reader);
}

// What broke the communicator is told once; it ends every call under way, a mismatch the one collective.
void Link::note_failure(const Error& error) noexcept {
  switch (error.code()) {
    case GSEL_ERR_PEER:
    case GSEL_ERR_TIMEOUT:
    case GSEL_ERR_ABORTED:
    case GSEL_ERR_MISMATCH:
    case GSEL_ERR_CALLBACK:
      break;
    default:
      return;
  }
  const bool broken = arena_->header().broken.load(std::memory_order_acquire) != 0;
  const uint64_t newest = broken ? entered_ : number_;
  for (uint64_t back = 0; back < (broken ? kRingCalls : 1) && back < newest; ++back) {
    CallEntry& entry = arena_->call(rank_, newest - back);
    if (entry.left.load(std::memory_order_relaxed) == 0) entry.left.store(-os::ticks(), std::memory_order_relaxed);
  }
  if (family_->trace_folder.empty() || (broken && traced_ == arena_)) return;
  if (broken) traced_ = arena_;
  try {
    save_trace(family_->trace_folder, rank_, trace(error.code(), error.message()));
  } catch (...) {
    log(GSEL_LOG_WARN, "comm", "no memory to write what rank {} recorded", rank_);
  }
}

}  // namespace gsel::shm
