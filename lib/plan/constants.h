// plan/constants.h: the constants of the time model: what share of published peaks a class of devices reaches, and how
// a training program uses them. They are fitted to published measurements; docs/plan.md and bench/results/plan.md name
// those. Does not know models and layouts. The model itself is in time.cc.
#pragma once

#include <cstdint>
#include <string_view>

#include "plan/cluster.h"

namespace gsel::plan {

// How a program runs a step, as far as its time shows it.
enum class Runtime : uint8_t {
  plain,         // kernels and collectives one after the other: Megatron-LM and DeepSpeed of 2021
  sharded,       // FSDP: layers are gathered ahead, kernels are those of eager PyTorch
  compiled,      // the same, and a compiler fuses element-wise kernels
  overlapped,    // fused kernels; collectives of all axes run beside products: Megatron Core
  by_parameter,  // ZeRO-3 that gathers parameter by parameter and hides nothing: DeepSpeed of 2021
};
constexpr size_t kRuntimes = 5;
const char* name_of(Runtime runtime);

// What steps had that the constants were fitted to.
struct Covered {
  bool pipeline = false, nodes = false, recompute = false, offload = false;
};

struct Constants {
  const char* device_class = "";  // whose measurements they were fitted to; "": none
  int32_t rows = 0;               // how many; 0: uncalibrated
  double spread = 0.3;            // mean relative error on rows that were left out of the fit
  Covered covered{};

  // Shares of a peak, and multiples of the least traffic.
  double products = 0.85;         // of matmul_share of the peak, for large matrices
  double eight_bit = 0.97;        // the same for 8-bit products, of their own peak
  double product_traffic = 1.7;   // memory traffic of a product, of reading and writing each matrix once
  double product_s = 5e-6;        // to start a product
  double flash = 0.35;            // fused attention, of matmul_share of the peak
  double score_passes = 7.5;      // reads and writes of each score when attention is not fused, forward
  double element_passes = 1.5;    // traffic of element-wise operations, of what they must read and write
  double logit_passes = 15;       // reads and writes of each logit in 4 bytes, forward and backward
  double optimizer_passes = 1.2;  // traffic of the optimizer, of what it must read and write
  double selective_share = 0;     // of a layer's products that selective recomputation repeats as well

  // Time of the host to launch a layer's forward; the kernels wait for it where it is longer than they are.
  double host_layer_s = 0.9e-3, host_tensor_s = 40e-6, host_rank_s = 45e-6, host_backward = 1.4;

  // Collectives. A share of a link, and seconds or multiples of its latency.
  double inside = 0.75, network = 0.75, message = 0.55;
  double call_s = 30e-6, inside_hops = 1.5, network_hops = 1.9, ring_hops = 0.45, message_s = 40e-6;
  double tensor_hidden = 0;  // share of the tensor axis's collectives that runs beside products
  double message_exposed = 1;
  bool messages_divided =
      true;  // tensor ranks send a part each, and gather; otherwise a copy each, but for sequence parallelism
  double data_exposed = 0.9;     // least share of the data axis's collectives that is seen
  double data_hidden_by = 0.1;   // share of the computation beside it that can hide the rest
  double gather_exposed = 0.65;  // the same two for parameters gathered under ZeRO-3
  double gather_hidden_by = 0.8;
  double gather_calls = 1;  // for each layer
  double gather_network =
      1;  // share of the network's rate that gathers across nodes reach, of that of other collectives
  bool stages_keep_gathered = false;  // under ZeRO-3 with a pipeline: for the whole step
  bool chunks_overlap = false;        // gradients of all chunks but the last are reduced during the pipeline's end

  double step_s = 3.6e-3;  // outside of layers

  // Of this machine, by calibration: all times on devices, and all on links.
  double compute_scale = 1, link_scale = 1;

  bool calibrated() const { return rows > 0; }
};

// What was fitted for a class of devices: its constants, and what the ways to run a step change of them.
struct ClassConstants {
  Constants base;
  double compiled_elements = 0.45;    // traffic of fused element-wise kernels, of that of single ones
  double overlapped_flash = 1.7;      // the vendor's fused attention, of the public one
  double tensor_hidden = 0.4;         // of the tensor axis's collectives, where products run beside them
  double by_parameter_calls = 12;     // gathers of a layer, parameter by parameter
  double by_parameter_network = 0.4;  // and what they reach of the network
  double host_share = 0.4;            // time to launch a layer, of that of programs of 2021
};

// Classes without measurements have those of the nearest one, with rows = 0.
ClassConstants class_constants(std::string_view device_class);
Constants constants_of(const ClassConstants& fitted, Runtime runtime);
// Plans with several kinds of device have the constants of the first. What each other kind reaches of its peak beside
// the first is told with its peak.
void align_kinds(Cluster& cluster);
inline Constants constants_for(std::string_view device_class, Runtime runtime) {
  return constants_of(class_constants(device_class), runtime);
}

}  // namespace gsel::plan
