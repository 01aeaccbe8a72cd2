// base/config_keys_host.cc: rows of [select], [comm] and [mesh].
#include "base/config_rows.h"

namespace gsel {
namespace {

constexpr std::string_view accelerators[] = {"auto", "cuda", "hip", "ze", "habana", "ascend", "mps", "cpu"};
constexpr std::string_view orders[] = {"visible", "pci", "fastest", "most_free", "near"};

template <gsel_axis axis>
void store_size(Config& config, const Scalar& value) {
  config.mesh[axis] = value.type == ConfigValue::Type::text ? 0 : value.integer;
}

constexpr ConfigKey kHostKeys[] = {
    {"select.accelerator", KeyType::word, "auto", kAny, accelerators,
     "kind of device; auto takes the accelerators there are, else the CPU",
     [](Config& c, const Scalar& v) { c.select.accelerator = v.text; }},
    {"select.devices",
     KeyType::text,
     "",
     kAny,
     {},
     "which devices, as gsel_resolve reads it, such as count:2; empty means auto",
     [](Config& c, const Scalar& v) { c.select.devices = v.text; }},
    {"select.order", KeyType::word, "visible", kAny, orders,
     "order in which devices are counted; visible is as the environment orders them, else by bus",
     [](Config& c, const Scalar& v) { c.select.order = v.text; }},
    {"comm.timeout_s",
     KeyType::number,
     "60.0",
     above(0),
     {},
     "bound on each communication call, seconds",
     [](Config& c, const Scalar& v) { c.comm.timeout_s = v.number; }},
    {"comm.trace",
     KeyType::text,
     "",
     kAny,
     {},
     "folder to which each rank that meets a failure writes the last calls of all ranks; empty means none",
     [](Config& c, const Scalar& v) { c.comm.trace = v.text; }},
    {"comm.transport",
     KeyType::text,
     "auto",
     kAny,
     {},
     "how memory of an accelerator, or memory of the host between hosts, travels: a transport plugin such as nccl or "
     "gloo, mpi for that of the MPI whose launcher started the ranks, host for copies through host memory, or auto for "
     "the first that all ranks can use",
     [](Config& c, const Scalar& v) { c.comm.transport = v.text; }},
    {"mesh.tensor",
     KeyType::size,
     "1",
     at_least(1),
     {},
     "ranks that share one layer's computation",
     store_size<GSEL_AXIS_TENSOR>},
    {"mesh.context",
     KeyType::size,
     "1",
     at_least(1),
     {},
     "ranks that share the positions of each sample; 1 where mesh.tensor is not",
     store_size<GSEL_AXIS_CONTEXT>},
    {"mesh.data",
     KeyType::size,
     "auto",
     at_least(1),
     {},
     "ranks that work on different samples; 1 instead of auto when another size is auto",
     store_size<GSEL_AXIS_DATA>},
    {"mesh.pipeline",
     KeyType::size,
     "1",
     at_least(1),
     {},
     "ranks that hold different layers",
     store_size<GSEL_AXIS_PIPELINE>},
};

}  // namespace

std::span<const ConfigKey> host_keys() {
  return kHostKeys;
}

}  // namespace gsel
