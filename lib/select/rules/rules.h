// select/rules/rules.h: the variables by which a vendor's software hides and orders devices, read strictly: an entry
// that the vendor would silently drop is an error with its column. There is one file and one row of rules() per vendor.
// compat/ has what the vendors really do. Does not know requests.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "select/inventory/unit.h"
#include "select/words/tokens.h"

namespace gsel {

using Environment = std::map<std::string, std::string, std::less<>>;
using EnvLines = std::vector<std::pair<std::string, std::string>>;

// Names of variables that several readers of masks share.
constexpr const char* kCudaMask = "CUDA_VISIBLE_DEVICES";
constexpr const char* kCudaOrder = "CUDA_DEVICE_ORDER";
constexpr const char* kHipMask = "HIP_VISIBLE_DEVICES";
constexpr const char* kRocrMask = "ROCR_VISIBLE_DEVICES";
constexpr const char* kZeMask = "ZE_AFFINITY_MASK";
constexpr const char* kZeHierarchy = "ZE_FLAT_DEVICE_HIERARCHY";
constexpr const char* kZeOrder = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";
constexpr const char* kOneapiSelector = "ONEAPI_DEVICE_SELECTOR";
constexpr const char* kHabanaModules = "HABANA_VISIBLE_MODULES";
constexpr const char* kHabanaDevices = "HABANA_VISIBLE_DEVICES";
constexpr const char* kAscendMask = "ASCEND_RT_VISIBLE_DEVICES";

// The value of a variable, nullptr when it is unset.
const std::string* find_variable(const Environment& environment, std::string_view name);

// What a child process is to see: part of a group, in order.
struct Emission {
  EnvLines lines;
  std::vector<std::string> warnings;  // where the vendor's variables cannot say what was selected
};

struct Rules {
  const char* accelerator;  // how a request names it: "cuda"
  const char* vendor;       // whose devices: "nvidia"
  const char* label;        // for messages: "NVIDIA"
  // What the environment leaves of the group. Throws where the vendor would guess, drop or void.
  Visible (*visible)(const Group& group, const Environment& environment, Trace& trace);
  // Variables that make a child see these units of the group alone; none of it when the list is empty.
  Emission (*emit)(const Group& group, const std::vector<Unit>& units);
  // A process picks entry LOCAL_RANK of the list by itself, so that each rank is given the whole list.
  bool rank_picks = false;
};

// In the order in which `auto` prefers them.
const std::vector<Rules>& rules();

// The rules for a vendor, or by the name of an accelerator; nullptr when there are none.
const Rules* rules_for(std::string_view vendor);
const Rules* rules_named(std::string_view accelerator);

Group group_of(const Inventory& inventory, int32_t host, std::string_view vendor);

// The devices of a group as CUDA numbers them when nothing is masked.
struct CudaOrder {
  std::vector<int32_t> order;  // in Inventory::devices; empty: it cannot be known
  bool by_bus = false;         // as CUDA_DEVICE_ORDER=PCI_BUS_ID asks
  std::string why_not;
};
CudaOrder cuda_order_strict(const Group& group, const Environment& environment);

// ---- what stands before a vendor's masks (before_masks.cc) ----

// The devices of a group that this user may open; a step of layer "cgroup" for each of the others.
Group accessible_part(const Group& group, Trace& trace);
// As the driver enumerates without masks: by Device::ordinal where all tell it, else in bus order.
std::vector<int32_t> driver_order(const Group& group);
// Where a device of a group stands in an order of some of them, -1 when it does not.
class Places {
 public:
  Places(const Group& group, const std::vector<int32_t>& order);
  int32_t of(int32_t device) const { return places_[static_cast<size_t>(device - first_)]; }

 private:
  int32_t first_;  // of the group's host
  std::vector<int32_t> places_;
};
// As CUDA numbers without masks. *guessed: the order is FASTEST_FIRST of unlike devices, whose rule is not published:
// units times clock, then bus order, stands in for it. A value that the driver does not know is FASTEST_FIRST.
std::vector<int32_t> cuda_order(const Group& group, const Environment& environment, bool* guessed);
// NVIDIA_VISIBLE_DEVICES acted when the container was created: says so, and warns where a mask repeats its indexes.
void note_container(const Environment& environment, Trace& trace);

Visible visible_cuda(const Group& group, const Environment& environment, Trace& trace);
Emission emit_cuda(const Group& group, const std::vector<Unit>& units);
Visible visible_hip(const Group& group, const Environment& environment, Trace& trace);
Emission emit_hip(const Group& group, const std::vector<Unit>& units);
Visible visible_ze(const Group& group, const Environment& environment, Trace& trace);
Emission emit_ze(const Group& group, const std::vector<Unit>& units);
Visible visible_habana(const Group& group, const Environment& environment, Trace& trace);
Emission emit_habana(const Group& group, const std::vector<Unit>& units);
Visible visible_ascend(const Group& group, const Environment& environment, Trace& trace);
Emission emit_ascend(const Group& group, const std::vector<Unit>& units);
Visible visible_apple(const Group& group, const Environment& environment, Trace& trace);
Emission emit_apple(const Group& group, const std::vector<Unit>& units);

// Warns of each variable that nothing reads and whose name nearly equals that of one about devices, such as
// CUDA_VISIBLE_DEVICE, with the name that was meant (lint.cc).
void warn_of_misspelt(const Environment& environment, Trace& trace);

}  // namespace gsel
