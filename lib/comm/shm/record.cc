// comm/shm/record.cc: what a rank makes of its own flight recorder: its trace, and a file when a call fails. A call
// that failed has a negative time at its end.
#include "base/log.h"
#include "comm/shm/link.h"
#include "comm/shm/trace.h"

namespace gsel::shm {

std::string Link::trace(gsel_status code, const std::string& error) const {
  TraceReader reader{rank_, code, error, {}};
  reader.alive = [this](int32_t q) -> std::optional<bool> {
    const Member& other = member(q);
    return !other.life || !os::life_ended(other.life.get());
  };
  return trace_of(*arena_, reader);
}

// A call that failed is marked as such by a negative time.
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
  if (number_ > 0) {
    CallEntry& entry = arena_->call(rank_, number_);
    if (entry.left.load(std::memory_order_relaxed) == 0) entry.left.store(-os::ticks(), std::memory_order_relaxed);
  }
  const bool broken = arena_->header().broken.load(std::memory_order_acquire) != 0;
  if (family_->trace_folder.empty() || (broken && trace_saved_)) return;
  trace_saved_ = broken;
  try {
    save_trace(family_->trace_folder, rank_, trace(error.code(), error.message()));
  } catch (...) {
    log(GSEL_LOG_WARN, "comm", "no memory to write what rank {} recorded", rank_);
  }
}

}  // namespace gsel::shm
