// select/compat/torchrun.cc: how many processes torchrun starts. It chooses no devices: local rank r uses visible
// device r, and the process itself finds out whether there is one.
// Source: pytorch torch/distributed/run.py (determine_local_world_size, config_from_args) and
// torch/distributed/elastic/agent/server/local_elastic_agent.py.
#include <limits>

#include "base/text.h"
#include "select/compat/compat.h"
#include "select/compat/python_literal.h"

namespace gsel {
namespace {

constexpr const char* kOption = "--nproc-per-node";
// The variable with argparse's default for the option.
constexpr const char* kOptionVariable = "PET_NPROC_PER_NODE";

class Torchrun {
 public:
  Torchrun(const Case& asked, Trace& trace) : asked_(asked), trace_(trace) {
    const std::string* variable = find_variable(asked.environment, kOptionVariable);
    if (asked.request.devices)
      input_.value = *asked.request.devices;
    else if (variable)
      input_ = {kOptionVariable, *variable};
    visible_ = torch_devices(asked.inventory, asked.host, asked.environment, trace);
  }

  Reading read() {
    Reading reading;
    const int64_t processes = local_world_size();
    reading.processes = static_cast<int32_t>(processes);
    const std::optional<Unit> cpu = cpu_of(asked_.inventory, asked_.host);
    if (!counts_cpus_ && torch_backend(asked_.inventory, asked_.host))
      reading.units = units_of_ranks(visible_.units, processes, "torchrun", trace_);
    else if (cpu)
      reading.units.push_back(*cpu);
    reading.hidden_by = why_left(asked_.inventory, visible_, "no local rank takes it");
    reading.sets_environment = true;
    reading.environment = environment(processes);
    return reading;
  }

 private:
  int64_t local_world_size() {
    const std::string& text = input_.value;
    const std::optional<int64_t> number = python_int(text);
    const int64_t count = number ? *number : count_of(text);
    if (count < 1)
      raise_python(GSEL_ERR_OUT_OF_RANGE, "AssertionError",
                   fmt::format("the local world size is {}, at least 1 is needed", count), input_, whole());
    if (count > std::numeric_limits<int32_t>::max())
      raise_python(GSEL_ERR_OUT_OF_RANGE, "OSError", fmt::format("no machine starts {} processes", count), input_,
                   whole());
    note(count, number ? "an integer is taken as it is, with no look at the devices" : "a word is counted out");
    return count;
  }

  int64_t count_of(const std::string& word) {
    const TorchBackend* backend = torch_backend(asked_.inventory, asked_.host);
    const int64_t devices = static_cast<int64_t>(visible_.units.size());
    const bool xpu = backend && backend->mask == std::string_view("ZE_AFFINITY_MASK");
    if (word == "gpu") {
      if (devices == 0 || xpu)
        raise_python(GSEL_ERR_NO_DEVICES, "ValueError", "Cuda is not available.", input_, whole());
      return devices;
    }
    if (word == "xpu") {
      if (devices == 0 || !xpu)
        raise_python(GSEL_ERR_NO_DEVICES, "ValueError", "Xpu is not available.", input_, whole());
      return devices;
    }
    if (word == "auto" && devices > 0) return devices;
    if (word == "auto" || word == "cpu") return cpu_count();
    raise_python(GSEL_ERR_SYNTAX, "ValueError", fmt::format("Unsupported nproc_per_node value: {}", printable(word)),
                 input_, whole());
  }

  int64_t cpu_count() {
    counts_cpus_ = true;
    const std::optional<Unit> cpu = cpu_of(asked_.inventory, asked_.host);
    const int32_t cores = cpu ? asked_.inventory.devices[static_cast<size_t>(cpu->device)].compute_units : 0;
    if (cores < 1)
      refuse(GSEL_ERR_UNSUPPORTED, input_, whole(), "the inventory does not tell how many processors this host has");
    return cores;
  }

  EnvLines environment(int64_t processes) {
    const std::string n = std::to_string(processes);
    EnvLines lines = {{"WORLD_SIZE", n},
                      {"LOCAL_WORLD_SIZE", n},
                      {"GROUP_RANK", "0"},
                      {"GROUP_WORLD_SIZE", "1"},
                      {"ROLE_WORLD_SIZE", n},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", "29500"},
                      {"TORCHELASTIC_RESTART_COUNT", "0"},
                      {"TORCHELASTIC_MAX_RESTARTS", "0"},
                      {"TORCHELASTIC_RUN_ID", "none"}};
    if (processes > 1 && !find_variable(asked_.environment, "OMP_NUM_THREADS"))
      lines.emplace_back("OMP_NUM_THREADS", "1");
    return lines;
  }

  void note(int64_t count, const char* rule) {
    trace_.add("torchrun", input_, whole(), with_noun(count, "process"), rule);
    trace_.add("torchrun", input_, whole(), "no change of visibility",
               "torchrun leaves the variables that hide devices as they are; each process takes device LOCAL_RANK");
  }

  Token whole() const { return {input_.value, 1, false}; }

  const Case& asked_;
  Trace& trace_;
  Input input_{"devices", "1"};
  Visible visible_;
  bool counts_cpus_ = false;
};

}  // namespace

Reading read_torchrun(const Case& asked, Trace& trace) {
  return Torchrun(asked, trace).read();
}

}  // namespace gsel
