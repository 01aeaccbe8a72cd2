// plan/rates.h: rates of a device and of the links of a group of ranks, with the fitted constants (constants.h). Square
// roots are exact, so every machine computes the same bytes.
#pragma once

#include <algorithm>
#include <cmath>

#include "plan/cluster.h"
#include "plan/constants.h"
#include "plan/layout.h"
#include "plan/recipe.h"

namespace gsel::plan {

// The time of two overlapping activities: a smooth maximum.
inline double beside(double a, double b) {
  return std::sqrt(a * a + b * b);
}
inline double mostly_longer(double a, double b) {
  return std::sqrt(beside(a * a, b * b));
}

struct Speeds {
  double products, attention, memory, head;  // operations and bytes per second
  Speeds(const DeviceKind& kind, const Recipe& recipe, const Constants& k) {
    const double peak = kind.flop(recipe.element_bytes, recipe.tf32) * kind.matmul_share / k.compute_scale;
    const bool eight = recipe.eight_bit && kind.flop_8 > 0;
    head = peak * k.products;
    products = eight ? kind.flop_8 * kind.matmul_share / k.compute_scale * k.products * k.eight_bit : head;
    attention = peak * k.flash;
    memory = kind.memory_bytes_per_second / k.compute_scale;
  }
};

// A group of ranks at distance `stride`: how many are in a node, and the share of the links that each has.
struct Ring {
  double ranks, nodes, bytes_per_second, latency_s;
  Ring(double n, double stride, const Cluster& cluster, const Constants& k, double reached) : ranks(n) {
    const double per_node = cluster.per_node;
    const double near = std::clamp(std::floor(per_node / stride), 1.0, n);
    nodes = n > 1 ? std::ceil(n / near) : 1;
    bytes_per_second = cluster.inside.bytes_per_second * k.inside;
    // All rings that leave a node share its adapters.
    if (nodes > 1)
      bytes_per_second =
          std::min(bytes_per_second, cluster.network.bytes_per_second * k.network * reached * near / per_node);
    bytes_per_second /= k.link_scale;
    latency_s = (k.call_s + (nodes > 1 ? k.network_hops * cluster.network.latency_s : 0)) * k.link_scale;
  }
};

// An all-reduce of the tensor axis.
struct TensorCollective {
  double call_s = 0, byte_s = 0;
  TensorCollective(const Layout& layout, const Cluster& cluster, const Constants& k) {
    if (layout.tensor < 2) return;
    const double n = layout.tensor, inside = std::min<double>(n, cluster.per_node);
    call_s = k.call_s + k.inside_hops * cluster.inside.latency_s * (inside - 1);
    if (n <= inside) {
      byte_s = 2 * (n - 1) / n / (cluster.inside.bytes_per_second * k.inside);
    } else {
      // A group that occupies whole nodes has all their adapters.
      const double nodes = n / inside;
      double hops = 1;
      for (double reach = 2; reach < nodes; reach *= 2) hops += 1;
      call_s += k.network_hops * cluster.network.latency_s * hops;
      byte_s = 2 * (n - 1) / n / (cluster.network.bytes_per_second * k.network * inside / cluster.per_node);
    }
    call_s *= k.link_scale;
    byte_s *= k.link_scale;
  }
};

}  // namespace gsel::plan
