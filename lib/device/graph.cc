// device/graph.cc: see graph.h.
#include "device/graph.h"

namespace gsel {

Graph::Graph(std::shared_ptr<DeviceContext> device) : device_(std::move(device)) {
  device_->set_capturing(false);
  device_->run(&gsel_device_v1::capture_end, device_->compute(), &graph_);
}

void Graph::drop(const DeviceContext& device) noexcept {
  gsel_graph* graph = nullptr;
  device.set_capturing(false);
  device.table().capture_end(device.ctx(), device.compute(), &graph, nullptr);
  device.table().graph_free(device.ctx(), graph);
}

}  // namespace gsel
