// plan/accelerator.h: figures of accelerators as their makers publish them, for machines that are not at hand. Does not
// know the machine that it runs on: select/ has what drivers report.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gsel::plan {

struct Accelerator {
  const char* name = "";          // as people write it: "H100-SXM"
  const char* device_class = "";  // measurements of one class share their constants: "h100"
  double memory_bytes = 0;        // nominal; a driver reports less
  double memory_bytes_per_second = 0;
  double flop_16 = 0, flop_tf32 = 0, flop_32 = 0, flop_8 = 0;  // per second, dense; 0: it has no such units
  double matmul_share = 0;                                     // of flop_16 that the best known matrix product reaches
  double link_bytes_per_second = 0;      // to its neighbours in the node, in one direction; 0: over PCIe
  double one_link_bytes_per_second = 0;  // of one of these links: NV# of nvidia-smi topo -m
  double pcie_bytes_per_second = 0;      // of its slot, in one direction
  double network_bytes_per_second = 0;   // its usual share of the network of a node, in one direction
  int32_t per_node = 1;                  // usual
  const char* source = "";
  const char* link_name = "NVLink";  // of what joins it to its neighbours
};

std::span<const Accelerator> accelerators();

// By name as people and drivers write it: "H100", "NVIDIA H100 80GB HBM3", "a100-sxm-40gb". nullptr where the name has
// a word that is neither of the model nor known beside it: "A10G" is no A10, "RTX 4090 Laptop GPU" no RTX-4090.
const Accelerator* find_accelerator(std::string_view name);
// "A10, A100-SXM-80GB and A30".
std::string nearest_accelerators(std::string_view name);
// GSEL_ERR_ARG names the nearest ones.
const Accelerator& accelerator(std::string_view name);

}  // namespace gsel::plan
