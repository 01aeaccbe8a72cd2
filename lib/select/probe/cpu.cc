// select/probe/cpu.cc: the CPU as one device: cores, memory, NUMA node. hwloc reads only processors and memory: its
// components for CUDA, OpenCL, GL and PCI would start those runtimes, so they are disabled for our topology.
#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "select/probe/probes.h"

namespace gsel {
namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) < 0) fail(GSEL_ERR_IO, "hwloc cannot start: {}", errno_text(errno));
  Topology topology(raw);
  for (const char* part : {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero", "ve", "pci"})
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, part);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(raw) < 0) fail(GSEL_ERR_IO, "hwloc cannot read this machine: {}", errno_text(errno));
  return topology;
}

std::string model_of(hwloc_topology_t topology) {
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* model = hwloc_obj_get_info_by_name(package ? package : hwloc_get_root_obj(topology), "CPUModel");
  std::string name = model ? model : "";
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name.empty() ? "CPU" : name;
}

// A line of /proc/meminfo in bytes, such as MemAvailable (what a new program could use without swapping); 0 when the
// kernel does not have it.
uint64_t meminfo_bytes(const char* name) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/meminfo", "re"), std::fclose);
  const std::string form = fmt::format("{}: %llu kB", name);
  char line[256];
  unsigned long long kib = 0;
  while (file && std::fgets(line, sizeof line, file.get()))
    if (std::sscanf(line, form.c_str(), &kib) == 1) return kib * 1024;
  return 0;
}

}  // namespace

Device probe_cpu() {
  const Topology topology = load_topology();
  hwloc_topology_t raw = topology.get();
  Device cpu;
  cpu.vendor = "cpu";
  cpu.name = model_of(raw);
  const int cores = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE);
  cpu.compute_units = cores > 0 ? cores : hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_PU);
  // hwloc adds up the memory present at boot; memory plugged in later is in meminfo only.
  cpu.memory_bytes = std::max<uint64_t>(meminfo_bytes("MemTotal"), hwloc_get_root_obj(raw)->total_memory);
  cpu.free_bytes = std::min<uint64_t>(meminfo_bytes("MemAvailable"), cpu.memory_bytes);
  if (hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_NUMANODE) == 1)
    cpu.numa = static_cast<int32_t>(hwloc_get_obj_by_type(raw, HWLOC_OBJ_NUMANODE, 0)->os_index);
  return cpu;
}

}  // namespace gsel
