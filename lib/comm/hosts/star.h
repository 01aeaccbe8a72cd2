// comm/hosts/star.h: blocks of bytes between the first ranks of the hosts: each gives one, and all get all. They go
// over the first host. Does not know what is in them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/hosts/lines.h"
#include "comm/hosts/roster.h"

namespace gsel::hosts {

using Block = std::vector<char>;

class Star {
 public:
  // The lines of this host, by the host at the other end; their streams for calls are the star's. wake_fd: can be read
  // once the communicator is broken.
  Star(const Roster& roster, std::vector<std::optional<Line>>& lines, int wake_fd)
      : roster_(roster), lines_(lines), wake_fd_(wake_fd) {}

  // By host; what another host is to give, and how it is called in errors. nullopt: the communicator is broken.
  // GSEL_ERR_PEER, GSEL_ERR_TIMEOUT about the first rank of the host that is gone or late.
  std::optional<std::vector<Block>> swap(Block own, int64_t deadline_ns, const char* asked);

 private:
  bool is_broken_soon() const;
  bool send(size_t host, const Block& block, int64_t deadline_ns);
  std::optional<Block> receive(size_t host, int64_t deadline_ns, const char* asked);

  const Roster& roster_;
  std::vector<std::optional<Line>>& lines_;
  const int wake_fd_;
  uint64_t number_ = 0;  // of swaps
  Block message_;
};

}  // namespace gsel::hosts
