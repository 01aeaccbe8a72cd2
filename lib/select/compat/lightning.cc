// select/compat/lightning.cc: devices= and accelerator= of Lightning's Trainer. Numbers are positions among the visible
// devices; "2" is a count like 2, while "2," and [2] are indexes. find_usable(n) stands for
// devices=find_usable_cuda_devices(n). Fabric raises a ValueError where the Trainer refuses 0, "0" and [].
// Source: Lightning-AI/pytorch-lightning, src/lightning/pytorch/trainer/connectors/accelerator_connector.py,
// src/lightning/fabric/utilities/device_parser.py and src/lightning/fabric/accelerators/{cpu,cuda,mps,xla}.py.
#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "base/text.h"
#include "select/compat/compat.h"
#include "select/compat/python_literal.h"
#include "select/words/tokens.h"

namespace gsel {
namespace {

// ---- values of devices=, for each accelerator in its own way --------------------------------------------------------
// Source: Lightning-AI/pytorch-lightning, src/lightning/fabric/utilities/device_parser.py (_parse_gpu_ids),
// src/lightning/fabric/accelerators/cpu.py (_parse_cpu_cores), cuda.py (find_usable_cuda_devices) and xla.py
// (_parse_tpu_devices); lightning-habana, accelerator.py (_parse_hpus).

// A number that devices= yields, and where it was written.
struct LightningIndex {
  int64_t value = 0;
  Token token;
  const char* rule = "";
};

// A Python literal, the bare word auto, or find_usable(n), whose n is the first item. GSEL_ERR_SYNTAX.
PythonValue parse_lightning_devices(const Input& input);

// Indexes for the CUDA and MPS accelerators. `elastic`: torchelastic started this process.
std::vector<LightningIndex> lightning_gpus(const Input& input, const PythonValue& devices, int64_t there, bool elastic,
                                           Trace& trace);
// Indexes for the TPU accelerator.
std::vector<LightningIndex> lightning_tpus(const Input& input, const PythonValue& devices, int64_t there);
// Indexes for the HPU accelerator.
std::vector<LightningIndex> lightning_hpus(const Input& input, const PythonValue& devices);
// Number of processes for the CPU accelerator.
int64_t lightning_processes(const Input& input, const PythonValue& devices);

// find_usable_cuda_devices: returns visible devices, where `usable` says on which a tensor can be allocated.
std::vector<int64_t> lightning_usable(const Input& input, const PythonValue& call, const std::vector<bool>& usable);

using Kind = PythonValue::Kind;
using Indexes = std::vector<LightningIndex>;

constexpr const char* kMisconfiguration = "MisconfigurationException";
// Most indexes listed for a count that Lightning does not check; no machine has more devices.
constexpr int64_t kMaxCount = 1024;

[[noreturn]] void raise_type(const Input& input, const PythonValue& value, const std::string& passed) {
  raise_python(
      GSEL_ERR_TYPE, "TypeError",
      fmt::format("Device IDs (GPU/TPU) must be an int, a string, a sequence of ints, but you passed {}.", passed),
      input, value.token);
}

// _check_data_type
void check_type(const Input& input, const PythonValue& devices) {
  if (devices.is_sequence()) {
    for (const PythonValue& item : devices.items)
      if (item.kind != Kind::integer) raise_type(input, item, fmt::format("a sequence of {}", item.type_name()));
  } else if (devices.kind != Kind::integer && devices.kind != Kind::text) {
    raise_type(input, devices, devices.repr());
  }
}

// The fields of "1, 3" that are not empty, as int() reads them.
Indexes fields_of(const Input& input, const PythonValue& devices, const char* rule) {
  Indexes out;
  const std::string& text = devices.text;
  // A field of the token inside the quotes, if it has no escapes; else the whole literal is the token.
  const bool plain = text.size() + 2 == devices.token.text.size();
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    const std::string_view field = std::string_view(text).substr(from, comma - from);
    const std::string_view word = python_strip(field);
    Token token = devices.token;
    if (plain) {
      const size_t blanks = word.empty() ? 0 : static_cast<size_t>(word.data() - field.data());
      token = {std::string(word), devices.token.column + 1 + static_cast<int32_t>(from + blanks), blanks > 0};
    }
    from = comma + 1;
    if (field.empty()) continue;
    const std::optional<int64_t> number = python_int(field);
    if (!number) raise_bad_int(input, token, word);
    out.push_back({*number, token, rule});
  }
  return out;
}

Indexes items_of(const PythonValue& devices) {
  Indexes out;
  for (const PythonValue& item : devices.items)
    out.push_back({item.integer, item.token, "an index among the visible devices"});
  return out;
}

Indexes first_of(int64_t count, const Token& token) {
  Indexes out;
  for (int64_t i = 0; i < count; ++i) out.push_back({i, token, "a count takes the first of the visible devices"});
  return out;
}

std::string list_text(const Indexes& indexes) {
  PythonValue list;
  list.kind = Kind::list;
  for (const LightningIndex& index : indexes) {
    PythonValue item;
    item.kind = Kind::integer;
    item.text = std::to_string(index.value);
    list.items.push_back(std::move(item));
  }
  return list.repr();
}

[[noreturn]] void raise_out_of_range(const Input& input, const Token& token, const std::string& asked, int64_t there) {
  raise_python(GSEL_ERR_OUT_OF_RANGE, kMisconfiguration,
               fmt::format("You requested gpu: {} But your machine only has: {}", asked, python_range(there)), input,
               token);
}

// _check_unique and _sanitize_gpu_ids
void check_indexes(const Input& input, const Indexes& indexes, int64_t there) {
  std::set<int64_t> seen;
  for (const LightningIndex& index : indexes)
    if (!seen.insert(index.value).second)
      raise_python(GSEL_ERR_DUPLICATE, kMisconfiguration, "Device ID's (GPU) must be unique.", input, index.token);
  for (const LightningIndex& index : indexes)
    if (index.value < 0 || index.value >= there) raise_out_of_range(input, index.token, list_text(indexes), there);
}

// An int, or a text with one: -1 means all, another n means range(n).
Indexes counted(const Input& input, const PythonValue& devices, int64_t count, int64_t there, bool elastic) {
  if (count == -1) return first_of(there, devices.token);
  const bool unchecked = elastic && there == 1;
  if (count > there && !unchecked) raise_out_of_range(input, devices.token, python_range(count), there);
  if (count > kMaxCount)
    refuse(
        GSEL_ERR_UNSUPPORTED, input, devices.token,
        fmt::format("Lightning does not check {} devices under torchelastic; gsel lists at most {}", count, kMaxCount));
  return first_of(count, devices.token);
}

int64_t int_of(const Input& input, const PythonValue& devices) {
  const std::optional<int64_t> number = python_int(devices.text);
  if (!number) raise_bad_int(input, devices.token, python_strip(devices.text));
  return *number;
}

// For "find_usable(" or "find_usable_cuda_devices(" at `from`: the position after it; else 0.
size_t call_begins(const std::string& text, size_t from) {
  for (const std::string_view name : {"find_usable(", "find_usable_cuda_devices("})
    if (std::string_view(text).substr(from).starts_with(name)) return from + name.size();
  return 0;
}

PythonValue parse_lightning_devices(const Input& input) {
  const std::string_view whole = python_strip(input.value);
  const size_t from = whole.empty() ? 0 : static_cast<size_t>(whole.data() - input.value.data());
  const Token token{std::string(whole), static_cast<int32_t>(from) + 1, false};
  if (whole == "auto") {
    PythonValue value;
    value.kind = Kind::text;
    value.text = "auto";
    value.token = token;
    return value;
  }
  const size_t argument = call_begins(input.value, from);
  if (argument == 0) return parse_python(input);
  const size_t close = from + whole.size() - 1;
  if (input.value[close] != ')') refuse(GSEL_ERR_SYNTAX, input, token, "find_usable(n) is needed");
  PythonValue call;
  call.kind = Kind::call;
  call.token = token;
  const bool none = python_strip(std::string_view(input.value).substr(argument, close - argument)).empty();
  if (!none) call.items.push_back(parse_python(input, argument, close));
  return call;
}

Indexes lightning_gpus(const Input& input, const PythonValue& devices, int64_t there, bool elastic, Trace& trace) {
  check_type(input, devices);
  if (devices.kind == Kind::text && (python_strip(devices.text) == "0" || python_strip(devices.text) == "[]"))
    raise_python(GSEL_ERR_NO_DEVICES, "TypeError",
                 fmt::format("'NoneType' object is not iterable: the parser takes {} as no GPU", devices.repr()), input,
                 devices.token);
  Indexes out;
  if (devices.is_sequence())
    out = items_of(devices);
  else if (devices.kind == Kind::text && devices.text.find(',') != std::string::npos)
    out = fields_of(input, devices, "a text with a comma holds indexes among the visible devices");
  else
    out =
        counted(input, devices, devices.kind == Kind::text ? int_of(input, devices) : devices.integer, there, elastic);
  if (out.empty())
    raise_python(GSEL_ERR_NO_DEVICES, kMisconfiguration, "GPUs requested but none are available.", input,
                 devices.token);
  if (elastic && out.size() != 1 && there == 1) {
    trace.warn("torchelastic shows each process one device by default, so Lightning does not check this list");
    return out;
  }
  check_indexes(input, out, there);
  return out;
}

Indexes lightning_tpus(const Input& input, const PythonValue& devices, int64_t there) {
  check_type(input, devices);
  bool count = devices.kind == Kind::integer;
  int64_t number = devices.integer;
  Indexes out = items_of(devices);
  if (devices.kind == Kind::text) {
    const std::optional<int64_t> whole = python_int(devices.text);
    count = whole.has_value();
    number = whole.value_or(0);
    if (!count) out = fields_of(input, devices, "an index of a TPU core");
  }
  if (count && (number == 1 || number == there)) return first_of(number, devices.token);
  if (!count && out.size() == 1 && out[0].value >= 0 && out[0].value < there) return out;
  raise_python(
      GSEL_ERR_OUT_OF_RANGE, "ValueError",
      fmt::format("`devices` can only be 'auto', 1, {} or [<0-{}>] for TPUs. Got {}", there, there - 1, devices.repr()),
      input, devices.token);
}

Indexes lightning_hpus(const Input& input, const PythonValue& devices) {
  if (devices.kind != Kind::integer && devices.kind != Kind::boolean && devices.kind != Kind::text)
    raise_python(GSEL_ERR_TYPE, kMisconfiguration, "`devices` for `HPUAccelerator` must be int, string or None.", input,
                 devices.token);
  const int64_t count = devices.kind == Kind::text ? int_of(input, devices) : devices.integer;
  if (count < 1 || count > kMaxCount)
    raise_python(GSEL_ERR_OUT_OF_RANGE, kMisconfiguration, fmt::format("there are no {} HPUs", count), input,
                 devices.token);
  return first_of(count, devices.token);
}

int64_t lightning_processes(const Input& input, const PythonValue& devices) {
  int64_t count = devices.kind == Kind::integer || devices.kind == Kind::boolean ? devices.integer : 0;
  const std::string_view word = python_strip(devices.text);
  if (devices.kind == Kind::text && is_number(word)) count = number_of(word);
  if (count <= 0)
    raise_python(GSEL_ERR_TYPE, "TypeError", "`devices` selected with `CPUAccelerator` should be an int > 0.", input,
                 devices.token);
  return count;
}

std::vector<int64_t> lightning_usable(const Input& input, const PythonValue& call, const std::vector<bool>& usable) {
  if (call.items.size() == 1 && call.items[0].kind != Kind::integer && call.items[0].kind != Kind::boolean)
    raise_python(GSEL_ERR_TYPE, "TypeError",
                 fmt::format("num_devices must be an int, not {}", call.items[0].type_name()), input,
                 call.items[0].token);
  const int64_t wanted = call.items.empty() ? -1 : call.items[0].integer;
  const int64_t there = static_cast<int64_t>(usable.size());
  const Token& token = call.items.empty() ? call.token : call.items[0].token;
  if (wanted == 0) return {};
  if (there == 0)
    raise_python(
        GSEL_ERR_NO_DEVICES, "ValueError",
        fmt::format("You requested to find {} devices but there are no visible CUDA devices on this machine.", wanted),
        input, token);
  if (wanted > there)
    raise_python(GSEL_ERR_OUT_OF_RANGE, "ValueError",
                 fmt::format("You requested to find {} devices but this machine only has {} GPUs.", wanted, there),
                 input, token);
  std::vector<int64_t> found, busy;
  for (int64_t i = 0; i < there && static_cast<int64_t>(found.size()) != wanted; ++i)
    (usable[static_cast<size_t>(i)] ? found : busy).push_back(i);
  if (wanted != -1 && static_cast<int64_t>(found.size()) != wanted) {
    Indexes list;
    for (int64_t index : busy) list.push_back({index, {}, ""});
    raise_python(GSEL_ERR_BUSY, "RuntimeError",
                 fmt::format("You requested to find {} devices but only {} are currently available. The devices {} are "
                             "occupied by other processes and can't be used at the moment.",
                             wanted, found.size(), list_text(list)),
                 input, token);
  }
  return found;
}

// ---- devices --------------------------------------------------------------------------------------------------------

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
