// plan/constants.h: the constants of the time model: the share of published peaks that a class of devices reaches, and
// how a training program uses it. They are fitted to published measurements; docs/plan.md and bench/results/plan.md
// name these. Does not know models or layouts. The model itself is in time.cc.
#pragma once

#include <cstdint>
#include <string_view>

#include "plan/cluster.h"

namespace gsel::plan {

// How a program runs a step, as far as it matters to the step's time.
enum class Runtime : uint8_t {
  plain,         // no overlap of kernels and collectives: Megatron-LM and DeepSpeed of 2021
  sharded,       // FSDP: layers are gathered ahead, kernels as in eager PyTorch
  compiled,      // FSDP with a compiler that fuses element-wise kernels
  overlapped,    // fused kernels; collectives of all axes overlap products: Megatron Core
  by_parameter,  // ZeRO-3 that gathers each parameter separately, without overlap: DeepSpeed of 2021
};
constexpr size_t kRuntimes = 5;
const char* name_of(Runtime runtime);

// Features of the measured steps to which the constants were fitted.
struct Covered {
  bool pipeline = false, nodes = false, recompute = false, offload = false;
};

struct Constants {
  const char* device_class = "";  // class of the fitted measurements; "": none
  int32_t rows = 0;               // number of measurements; 0: uncalibrated
  double spread = 0.3;            // mean relative error on rows that the fit left out
  Covered covered{};

  // Shares of a peak, and factors on the least possible memory traffic.
  double products = 0.85;         // large matrix products, of matmul_share of the peak
  double eight_bit = 0.97;        // the same for 8-bit products, of their own peak
  double product_traffic = 1.7;   // memory traffic of a product, over that of reading and writing each matrix once
  double product_s = 5e-6;        // to start a product
  double flash = 0.35;            // fused attention, of matmul_share of the peak
  double score_passes = 7.5;      // reads and writes of each score when attention is not fused, forward
  double element_passes = 1.5;    // traffic of element-wise operations, over that of their operands and results
  double logit_passes = 15;       // reads and writes of each logit in 4 bytes, forward and backward
  double optimizer_passes = 1.2;  // traffic of the optimizer, over that of its operands and results
  double selective_share = 0;     // part of a layer's products that selective recomputation also repeats

  // Host time to launch a layer's forward; if it is longer than the kernels, they wait for it.
  double host_layer_s = 0.9e-3, host_tensor_s = 40e-6, host_rank_s = 45e-6, host_backward = 1.4;

  // Collectives: shares of a link's bandwidth, and seconds or multiples of its latency.
  double inside = 0.75, network = 0.75, message = 0.55;
  double call_s = 30e-6, inside_hops = 1.5, network_hops = 1.9, ring_hops = 0.45, message_s = 40e-6;
  double tensor_hidden = 0;  // part of the tensor axis's collectives that overlaps products
  double message_exposed = 1;
  bool messages_divided =
      true;  // tensor ranks send a shard each, then gather; false: full copies, except with sequence parallelism
  double data_exposed = 0.9;     // least exposed part of the data axis's collectives
  double data_hidden_by = 0.1;   // part of the concurrent computation that can hide them
  double gather_exposed = 0.65;  // the same two for ZeRO-3's gathered parameters
  double gather_hidden_by = 0.8;
  double gather_calls = 1;            // per layer
  double gather_network = 1;          // rate of gathers across nodes, relative to other collectives
  bool stages_keep_gathered = false;  // under ZeRO-3 with a pipeline: parameters stay gathered for the whole step
  bool chunks_overlap = false;        // gradients of all chunks but the last are reduced while the pipeline drains

  double step_s = 3.6e-3;  // outside the layers

  // Calibration to the user's machine: factors on all device times and on all link times.
  double compute_scale = 1, link_scale = 1;

  bool calibrated() const { return rows > 0; }
};

// The fit for a class of devices: its constants, and how each Runtime changes them.
struct ClassConstants {
  Constants base;
  double compiled_elements = 0.45;    // traffic of fused element-wise kernels, relative to unfused ones
  double overlapped_flash = 1.7;      // the vendor's fused attention, relative to the public one
  double tensor_hidden = 0.4;         // part of the tensor axis's collectives that overlaps products
  double by_parameter_calls = 12;     // gathers per layer
  double by_parameter_network = 0.4;  // their share of the network's rate
  double host_share = 0.4;            // host time to launch a layer, relative to programs of 2021
};

// A class without measurements has the constants of the nearest one, with rows = 0.
ClassConstants class_constants(std::string_view device_class);
Constants constants_of(const ClassConstants& fitted, Runtime runtime);
// A plan with several kinds of devices uses the constants of the first. Adjusts the peaks of the other kinds by the
// share that they reach, relative to the first kind.
void align_kinds(Cluster& cluster);
inline Constants constants_for(std::string_view device_class, Runtime runtime) {
  return constants_of(class_constants(device_class), runtime);
}

}  // namespace gsel::plan
