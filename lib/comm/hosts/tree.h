// comm/hosts/tree.h: the tree of hosts, which determines their connections. Host 0 is the root; each other host has one
// host above it, and each host has up to `fanout` below it, so no host has more than fanout + 1 neighbours. With at
// most fanout + 1 hosts all others are directly below the first. Does not know what is sent over the connections.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gsel::hosts {

constexpr uint16_t kDefaultFanout = 64;

struct Tree {
  size_t hosts, fanout;

  size_t above(size_t host) const { return (host - 1) / fanout; }
  size_t first_below(size_t host) const { return std::min(host * fanout + 1, hosts); }
  size_t end_below(size_t host) const { return std::min(host * fanout + fanout + 1, hosts); }
  bool has_below(size_t host) const { return first_below(host) < hosts; }
  // Levels below this host.
  size_t levels_below(size_t host) const {
    size_t levels = 0;
    for (size_t h = host * fanout + 1; h < hosts; h = h * fanout + 1) ++levels;
    return levels;
  }
  // The host directly below `upper` on the way to `lower`, which is somewhere below it.
  size_t step(size_t upper, size_t lower) const {
    while (above(lower) != upper) lower = above(lower);
    return lower;
  }
};

// GSEL_HOST_FANOUT of the first rank, or the default.
uint16_t host_fanout();

}  // namespace gsel::hosts
