// device/graph.h: work of the compute stream that the device records once and launches many times; see gsel/device.h.
#pragma once

#include "device/device.h"

namespace gsel {

class Graph {
 public:
  // Whether the device's table has graphs; its driver may still have none.
  static bool exist_on(const DeviceContext& device) { return device.compute() && device.table().capture_begin; }

  // From begin() to the constructor or drop(), work of the compute stream is recorded and does not run.
  static void begin(const DeviceContext& device) {
    device.enqueue(&gsel_device_v1::capture_begin);
    device.set_capturing(true);
  }
  // Throws what has invalidated the recording.
  static void check(const DeviceContext& device) { device.enqueue(&gsel_device_v1::capture_check); }
  static void drop(const DeviceContext& device) noexcept;
  explicit Graph(std::shared_ptr<DeviceContext> device);
  ~Graph() {
    if (device_->may_free(graph_)) device_->table().graph_free(device_->ctx(), graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() const { device_->enqueue(&gsel_device_v1::graph_launch, graph_); }

 private:
  const std::shared_ptr<DeviceContext> device_;
  gsel_graph* graph_ = nullptr;
};

}  // namespace gsel
