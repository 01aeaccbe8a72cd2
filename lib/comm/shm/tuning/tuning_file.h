// comm/shm/tuning/tuning_file.h: the text of a tuning file as checked data; docs/tuning.md describes it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "comm/shm/tuning/tuning.h"

namespace gsel::shm {

struct Timing {
  uint64_t bytes;
  double seconds;
};

struct TunedWorld {
  int32_t ranks = 0;
  Tuning tuning;
  std::array<std::vector<Timing>, GSEL_COLLECTIVE_KINDS> timings;  // by rising bytes
};

// Sorted by ranks. GSEL_ERR_PARSE or GSEL_ERR_CONFIG with file, line and key, also for a file of another version or of
// a processor other than `cpu`.
std::vector<TunedWorld> parse_tuning(std::string_view text, const std::string& file, const std::string& cpu);

// Interpolates linearly in the logarithms between the two sizes around `bytes`; proportional beyond the last. 0: no
// timings.
double interpolated_seconds(const std::vector<Timing>& timings, uint64_t bytes);

// The processor's model according to the kernel.
std::string cpu_model();

}  // namespace gsel::shm
