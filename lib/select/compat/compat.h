// select/compat/compat.h: how other systems read the same variables and options, bug for bug. There is one file and one
// row of systems() per system. An error of a system is thrown with the nearest selection code, and its text begins with
// the name of the system's exception. resolve, not this file, adds what strict reading would have said.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "select/request/request.h"
#include "select/rules/rules.h"

namespace gsel {

// What a system is asked, on one host.
struct Case {
  const Inventory& inventory;
  const Environment& environment;
  const Request& request;
  int32_t host = 0;  // in Inventory::hosts; the system runs there
};

// What it answers.
struct Reading {
  std::vector<Unit> units;  // in the order in which the program numbers them; may be empty where the system allows it
  std::string hidden_by;    // why the other devices are not among them
  int32_t processes = -1;   // how many processes the system starts, -1: it starts none
  bool sets_environment = false;  // `environment` replaces what gsel would emit for a child
  EnvLines environment;
  std::map<int32_t, EnvLines> environment_of_host;  // what a host's processes have besides, by place of the host
  std::vector<Device> unlisted;  // devices that the system believes in and the inventory lacks: unit.device counts on
                                 // from the inventory's last; Device::host counts on from its last host
  std::vector<std::string> unlisted_hosts;
};

struct System {
  const char* name;     // as --compat takes it: "lightning"
  const char* summary;  // one line for people
  // True: request.devices is read by the system itself, in its own grammar. False: the system only decides what is
  // visible and in which order, and request.devices, when given, is a gsel spec over that.
  bool reads_devices;
  bool reads_hosts;  // request.include, exclude and hostfile mean something to it
  Reading (*read)(const Case& asked, Trace& trace);
};

// What a driver shows, as the whole of a reading; `warning` where it shows nothing.
Reading reading_of(Visible visible, const char* warning, Trace& trace);

const std::vector<System>& systems();
// nullptr when there is none of that name.
const System* system_named(std::string_view name);

// What a CUDA, HIP or Level Zero program sees at this moment, as its driver reads the variables; the frameworks stand
// on these. None of them throws for what the driver takes in silence.
Visible cuda_driver(const Group& group, const Environment& environment, Trace& trace);
Visible hip_runtime(const Group& group, const Environment& environment, Trace& trace);
Visible ze_driver(const Group& group, const Environment& environment, Trace& trace);

Reading read_cuda(const Case& asked, Trace& trace);
Reading read_torch(const Case& asked, Trace& trace);
Reading read_hip(const Case& asked, Trace& trace);
Reading read_ze(const Case& asked, Trace& trace);
Reading read_habana(const Case& asked, Trace& trace);
Reading read_ascend(const Case& asked, Trace& trace);
Reading read_tensorflow(const Case& asked, Trace& trace);
Reading read_lightning(const Case& asked, Trace& trace);
Reading read_torchrun(const Case& asked, Trace& trace);
Reading read_accelerate(const Case& asked, Trace& trace);
Reading read_deepspeed(const Case& asked, Trace& trace);

}  // namespace gsel
