// comm/hosts/meeting.cc: see meeting.h.
#include "comm/hosts/meeting.h"

#include "base/error.h"
#include "comm/hosts/sides.h"

namespace gsel::hosts {

HostTable meet(const Meeting& meeting) {
  return meeting.rank == 0 ? meet_as_root(meeting) : meet_as_guest(meeting);
}

std::string ranks_text(const std::vector<int32_t>& ranks) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i > 2)
      runs.push_back(fmt::format("{} to {}", ranks[i], ranks[end - 1]));
    else
      for (size_t k = i; k < end; ++k) runs.push_back(std::to_string(ranks[k]));
    i = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < runs.size(); ++i) text += (i == 0 ? "" : i + 1 == runs.size() ? " and " : ", ") + runs[i];
  return text;
}

}  // namespace gsel::hosts
