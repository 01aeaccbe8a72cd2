// plan/layout.cc: names of the enums in layout.h, as in gsel.toml.
#include "plan/layout.h"

namespace gsel::plan {

const char* name_of(Recompute recompute) {
  static constexpr const char* kNames[] = {"none", "selective", "all"};
  return kNames[static_cast<size_t>(recompute)];
}

const char* name_of(Offload offload) {
  static constexpr const char* kNames[] = {"none", "state", "all"};
  return kNames[static_cast<size_t>(offload)];
}

const char* name_of(ScheduleKind schedule) {
  static constexpr const char* kNames[] = {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"};
  return kNames[static_cast<size_t>(schedule)];
}

}  // namespace gsel::plan
