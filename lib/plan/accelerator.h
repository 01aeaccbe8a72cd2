// plan/accelerator.h: published figures of accelerators, for planning without the machine. Does not know the machine it
// runs on: select/ has what drivers report.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gsel::plan {

struct Accelerator {
  const char* name = "";          // as users write it: "H100-SXM"
  const char* device_class = "";  // devices of a class share fitted constants: "h100"
  double memory_bytes = 0;        // nominal; a driver reports less
  double memory_bytes_per_second = 0;
  double flop_16 = 0, flop_tf32 = 0, flop_32 = 0, flop_8 = 0;  // per second, dense; 0: no such units
  double matmul_share = 0;                                     // share of flop_16 of the best published matrix product
  double link_bytes_per_second = 0;      // to neighbours in the node, in one direction; 0: over PCIe
  double one_link_bytes_per_second = 0;  // of a single link: NV# of nvidia-smi topo -m
  double pcie_bytes_per_second = 0;      // of its slot, in one direction
  double network_bytes_per_second = 0;   // its usual share of a node's network, in one direction
  int32_t per_node = 1;                  // usual
  const char* source = "";
  const char* link_name = "NVLink";  // of the links to its neighbours
};

std::span<const Accelerator> accelerators();

// Finds an accelerator by a name that users or drivers write: "H100", "NVIDIA H100 80GB HBM3", "a100-sxm-40gb". nullptr
// when the name has a word that is neither in the model nor neutral: "A10G" is no A10, "RTX 4090 Laptop GPU" no
// RTX-4090.
const Accelerator* find_accelerator(std::string_view name);
// Names most similar to `name`, for messages: "A10, A100-SXM-80GB and A30".
std::string nearest_accelerators(std::string_view name);
// The same, but throws GSEL_ERR_ARG with the nearest names.
const Accelerator& accelerator(std::string_view name);

}  // namespace gsel::plan
