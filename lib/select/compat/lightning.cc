// select/compat/lightning.cc: devices= and accelerator= of Lightning's Trainer. Numbers are positions among the visible
// devices; "2" is a count like 2, while "2," and [2] are indexes. find_usable(n) stands for
// devices=find_usable_cuda_devices(n). Fabric raises a ValueError where the Trainer refuses 0, "0" and [].
// Source: Lightning-AI/pytorch-lightning, src/lightning/pytorch/trainer/connectors/accelerator_connector.py,
// src/lightning/fabric/utilities/device_parser.py and src/lightning/fabric/accelerators/{cpu,cuda,mps,xla}.py.
#include <limits>

#include "base/text.h"
#include "select/compat/lightning_devices.h"
#include "select/compat/torch_devices.h"

namespace gsel {
namespace {

enum class Parsing { gpu_ids, processes, tpu, hpu };

struct Accelerator {
  const char* name;
  const char* class_name;
  Parsing parsing;
  bool all_by_default;  // devices="auto": all devices, else one
};

constexpr Accelerator kTpu = {"tpu", "XLAAccelerator", Parsing::tpu, true};
constexpr Accelerator kHpu = {"hpu", "HPUAccelerator", Parsing::hpu, true};
constexpr Accelerator kMps = {"mps", "MPSAccelerator", Parsing::gpu_ids, false};
constexpr Accelerator kCuda = {"cuda", "CUDAAccelerator", Parsing::gpu_ids, true};
constexpr Accelerator kCpu = {"cpu", "CPUAccelerator", Parsing::processes, false};
// In the order in which "auto" tries them.
constexpr const Accelerator* kAccelerators[] = {&kTpu, &kHpu, &kMps, &kCuda, &kCpu};

class Lightning {
 public:
  Lightning(const Case& asked, Trace& trace)
      : asked_(asked),
        trace_(trace),
        devices_{"devices", asked.request.devices.value_or("auto")},
        flag_{"accelerator", asked.request.accelerator.value_or("auto")} {}

  Reading read() {
    PythonValue devices = parse_lightning_devices(devices_);
    cuda_ = cuda_devices();
    if (devices.kind == PythonValue::Kind::call) devices = found_usable(devices);
    const Accelerator& accelerator = chosen_accelerator();
    const Visible visible = devices_of(accelerator);
    if (is_nothing(devices) && !found_) refuse_nothing(devices, accelerator);
    require(accelerator, visible);
    if (found_ && devices.items.empty()) return nothing_found(visible);

    const int64_t there = static_cast<int64_t>(visible.units.size());
    if (devices.kind == PythonValue::Kind::text && devices.text == "auto") {
      devices.kind = PythonValue::Kind::integer;
      devices.integer = accelerator.all_by_default ? there : 1;
    }
    switch (accelerator.parsing) {
      case Parsing::processes:
        return on_cpu(lightning_processes(devices_, devices), visible);
      case Parsing::tpu:
        return on(accelerator, visible, lightning_tpus(devices_, devices, there));
      case Parsing::hpu:
        return on(accelerator, visible, lightning_hpus(devices_, devices));
      case Parsing::gpu_ids:
        break;
    }
    const bool elastic = find_variable(asked_.environment, "TORCHELASTIC_RUN_ID") != nullptr;
    return on(accelerator, visible, lightning_gpus(devices_, devices, there, elastic, trace_));
  }

 private:
  // The devices that a PyTorch for CUDA sees, or, without an NVIDIA device, one for ROCm.
  Visible cuda_devices() {
    const TorchBackend* backend = torch_backend(asked_.inventory, asked_.host);
    if (!backend || backend->mask != std::string_view("CUDA_VISIBLE_DEVICES")) return {};
    return torch_devices(asked_.inventory, asked_.host, asked_.environment, trace_);
  }

  Visible devices_of(const Accelerator& accelerator) const {
    if (&accelerator == &kCuda) return cuda_;
    Visible visible;
    if (&accelerator == &kCpu) {
      if (const std::optional<Unit> cpu = cpu_of(asked_.inventory, asked_.host)) visible.units.push_back(*cpu);
      return visible;
    }
    const char* vendor = &accelerator == &kMps ? "apple" : &accelerator == &kHpu ? "habana" : "tpu";
    visible.units = units_of(group_of(asked_.inventory, asked_.host, vendor));
    if (&accelerator == &kMps && visible.units.size() > 1) visible.units.resize(1);
    return visible;
  }

  bool available(const Accelerator& accelerator) const {
    return &accelerator == &kCpu || !devices_of(accelerator).units.empty();
  }

  const Accelerator& chosen_accelerator() {
    if (flag_.value == "gpu") {
      if (available(kMps)) return kMps;
      if (available(kCuda)) return kCuda;
      raise_python(GSEL_ERR_NO_DEVICES, "RuntimeError", "No supported gpu backend found!", flag_, {"gpu", 1, false});
    }
    for (const Accelerator* accelerator : kAccelerators)
      if (flag_.value == accelerator->name || (flag_.value == "auto" && available(*accelerator))) return *accelerator;
    raise_python(GSEL_ERR_SYNTAX, "ValueError",
                 fmt::format("You selected an invalid accelerator name: `accelerator='{}'`. Available names are: auto, "
                             "gpu, cpu, cuda, hpu, mps, tpu.",
                             printable(flag_.value)),
                 flag_, {flag_.value, 1, false});
  }

  // devices in ([], 0, "0")
  static bool is_nothing(const PythonValue& devices) {
    using Kind = PythonValue::Kind;
    return (devices.kind == Kind::list && devices.items.empty()) ||
           (devices.kind == Kind::integer && devices.integer == 0) ||
           (devices.kind == Kind::text && devices.text == "0");
  }

  [[noreturn]] void refuse_nothing(const PythonValue& devices, const Accelerator& accelerator) const {
    raise_python(GSEL_ERR_NO_DEVICES, "MisconfigurationException",
                 fmt::format("`Trainer(devices={})` value is not a valid input using {} accelerator.", devices.repr(),
                             accelerator.name),
                 devices_, devices.token);
  }

  void require(const Accelerator& accelerator, const Visible& visible) {
    if (&accelerator == &kCpu) {
      if (flag_.value == "auto")
        trace_.warn("no accelerator is available, so accelerator=\"auto\" goes to the CPU without an error");
      return;
    }
    if (!visible.units.empty()) return;
    std::string names;
    for (const Accelerator* other : kAccelerators)
      if (available(*other)) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", other->name);
    raise_python(GSEL_ERR_NO_DEVICES, "MisconfigurationException",
                 fmt::format("`{}` can not run on your system since the accelerator is not available. The following "
                             "accelerator(s) is available and can be passed into `accelerator` argument of "
                             "`Trainer`: [{}].",
                             accelerator.class_name, names),
                 flag_, {flag_.value, 1, false});
  }

  // The result of find_usable_cuda_devices, as a list for devices=.
  PythonValue found_usable(const PythonValue& call) {
    std::vector<bool> usable;
    for (const Unit& unit : cuda_.units) {
      const Device& device = asked_.inventory.devices[static_cast<size_t>(unit.device)];
      usable.push_back(device.compute_mode == ComputeMode::standard ||
                       (device.compute_mode == ComputeMode::exclusive_process && device.process_count <= 0));
    }
    PythonValue list;
    list.kind = PythonValue::Kind::list;
    list.token = call.token;
    for (int64_t index : lightning_usable(devices_, call, usable)) {
      PythonValue item;
      item.kind = PythonValue::Kind::integer;
      item.integer = index;
      item.text = std::to_string(index);
      item.token = call.token;
      list.items.push_back(std::move(item));
    }
    found_ = true;
    none_wanted_ = call.items.size() == 1 && call.items[0].integer == 0;
    trace_.add(
        "Lightning", devices_, call.token, list.repr(),
        none_wanted_ ? "no device is looked for" : "the first visible devices on which a tensor can be allocated");
    if (!none_wanted_)
      trace_.warn(
          "find_usable_cuda_devices holds nothing: another process may take these devices before they are used; "
          "it leaves a CUDA context on every device it tried; in default compute mode it cannot see who computes "
          "on a device and answers from 0");
    return list;
  }

  Reading nothing_found(const Visible& visible) {
    trace_.warn(fmt::format("find_usable_cuda_devices({}) returns an empty list, which the Trainer refuses",
                            none_wanted_ ? 0 : -1));
    Reading reading;
    reading.hidden_by =
        why_left(asked_.inventory, visible,
                 none_wanted_ ? "find_usable_cuda_devices(0) looks for none" : "no tensor can be allocated on it");
    return reading;
  }

  Reading on_cpu(int64_t processes, const Visible& visible) {
    if (processes > std::numeric_limits<int32_t>::max())
      raise_python(GSEL_ERR_OUT_OF_RANGE, "OSError", fmt::format("no machine starts {} processes", processes), devices_,
                   {devices_.value, 1, false});
    Reading reading;
    reading.units = visible.units;
    reading.processes = static_cast<int32_t>(processes);
    reading.hidden_by = "not the CPU";
    trace_.add("Lightning", devices_, {devices_.value, 1, false},
               fmt::format("{} on the CPU", with_noun(processes, "process")),
               "devices= of the CPU accelerator counts processes");
    return reading;
  }

  Reading on(const Accelerator& accelerator, const Visible& visible, const std::vector<LightningIndex>& indexes) {
    Reading reading;
    reading.processes = static_cast<int32_t>(indexes.size());
    reading.hidden_by =
        why_left(asked_.inventory, visible, fmt::format("not taken by devices={}", printable(devices_.value)));
    for (const LightningIndex& index : indexes) {
      const bool there = index.value >= 0 && index.value < static_cast<int64_t>(visible.units.size());
      if (there) reading.units.push_back(visible.units[static_cast<size_t>(index.value)]);
      if (!there)
        trace_.warn(
            fmt::format("RANK_OVERFLOW: {}:{} does not exist and goes unchecked: the process that takes it "
                        "fails with \"invalid device ordinal\"",
                        accelerator.name, index.value));
      trace_.add("Lightning", devices_, index.token,
                 there ? unit_text(asked_.inventory, reading.units.back()) : std::string("no device"), index.rule);
    }
    return reading;
  }

  const Case& asked_;
  Trace& trace_;
  Input devices_;
  Input flag_;
  Visible cuda_;
  bool found_ = false;        // devices come from find_usable
  bool none_wanted_ = false;  // find_usable(0)
};

}  // namespace

Reading read_lightning(const Case& asked, Trace& trace) {
  return Lightning(asked, trace).read();
}

}  // namespace gsel
