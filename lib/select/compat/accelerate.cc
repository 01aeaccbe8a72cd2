// select/compat/accelerate.cc: --gpu_ids of `accelerate launch`: a text that accelerate copies, unread, into the
// variable of the machine's vendor, whose driver interprets it. The number of processes follows from --num_processes
// and the number of machines, which accelerate does not compare with the ids.
// Source: huggingface accelerate src/accelerate/utils/launch.py and src/accelerate/commands/launch.py.
#include "select/compat/compat.h"

namespace gsel {
namespace {

// In the order in which accelerate checks for them.
struct Target {
  const char* vendor;
  const char* variable;
  Reading (*read)(const Case& asked, Trace& trace);
};

Reading read_torch_devices(const Case& asked, Trace& trace) {
  const Visible visible = torch_devices(asked.inventory, asked.host, asked.environment, trace);
  Reading reading;
  reading.units = visible.units;
  reading.hidden_by = visible.hidden_by;
  return reading;
}

constexpr Target kTargets[] = {
    {"ascend", "ASCEND_RT_VISIBLE_DEVICES", read_ascend},
    {"habana", "HABANA_VISIBLE_MODULES", read_habana},
    {"intel", "ZE_AFFINITY_MASK", read_torch_devices},
    {"", "CUDA_VISIBLE_DEVICES", read_torch_devices},
};

// A PyTorch built for CUDA or ROCm finds no Intel device next to those of NVIDIA or AMD.
const Target& target_of(const Inventory& inventory, int32_t host) {
  const TorchBackend* backend = torch_backend(inventory, host);
  const bool cuda = backend && backend->mask == std::string_view("CUDA_VISIBLE_DEVICES");
  for (const Target& target : kTargets)
    if (*target.vendor == '\0' || (!cuda && group_of(inventory, host, target.vendor).size() > 0)) return target;
  return kTargets[0];
}

// Reads the mask, which is a copy of --gpu_ids; errors of the driver are about --gpu_ids.
Reading read_copy(const Target& target, const Case& asked, const Input& ids, Trace& trace) {
  try {
    return target.read(asked, trace);
  } catch (const Error& error) {
    Place place = error.place();
    if (place.file == target.variable) place.file = ids.name;
    throw Error(error.code(), error.message()).at(place);
  }
}

}  // namespace

Reading read_accelerate(const Case& asked, Trace& trace) {
  const Target& target = target_of(asked.inventory, asked.host);
  const Input ids{"devices", asked.request.devices.value_or("all")};
  const Token whole{ids.value, 1, false};
  Environment environment = asked.environment;
  EnvLines lines;
  if (ids.value == "all") {
    trace.add("accelerate", ids, whole, fmt::format("{} as it is", target.variable), "all leaves the variable alone");
  } else {
    const std::string* before = find_variable(asked.environment, target.variable);
    if (before && *before != ids.value)
      trace.warn(fmt::format("accelerate overwrites {}, which was set before, with {}",
                             Input{target.variable, *before}.shown(), printable(ids.value)));
    environment[target.variable] = ids.value;
    lines.emplace_back(target.variable, ids.value);
    trace.add("accelerate", ids, whole, Input{target.variable, ids.value}.shown(),
              "--gpu_ids is copied unread into the variable that fits the machine");
    if (ids.value.find(',') == std::string::npos)
      trace.warn(
          "accelerate refuses a single id when its config file says multi-GPU on one machine: ValueError: Less "
          "than two GPU ids were configured; on the command line alone it goes unchecked");
  }
  Request request;  // the driver does not know accelerate's options
  const Case copied{asked.inventory, environment, request, asked.host};
  Reading reading = lines.empty() ? target.read(copied, trace) : read_copy(target, copied, ids, trace);
  reading.sets_environment = true;
  reading.environment = std::move(lines);
  return reading;
}

}  // namespace gsel
