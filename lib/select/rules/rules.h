// select/rules/rules.h: the variables with which a vendor's software hides and orders devices, read strictly: an entry
// that the vendor would silently drop is an error with its column. There is one file and one row of rules() per vendor.
// compat/ has the vendors' real behaviour. Does not know requests.
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

// Names of variables that several files use.
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
constexpr const char* kGgmlMask = "GGML_VK_VISIBLE_DEVICES";
constexpr const char* kAscendMask = "ASCEND_RT_VISIBLE_DEVICES";

// The value of a variable, nullptr when it is unset.
const std::string* find_variable(const Environment& environment, std::string_view name);

// What a child process sees: part of a group, in order.
struct Emission {
  EnvLines lines;
  std::vector<std::string> warnings;  // what the vendor's variables cannot express
};

struct Rules {
  const char* accelerator;  // name in a request: "cuda"
  const char* vendor;       // vendor of the devices: "nvidia"
  const char* label;        // for messages: "NVIDIA"
  // What the environment leaves of the group. Throws for input at which the vendor would guess, drop or void.
  Visible (*visible)(const Group& group, const Environment& environment, Trace& trace);
  // Variables with which a child sees only these units of the group; an empty list hides the whole group.
  Emission (*emit)(const Group& group, const std::vector<Unit>& units);
  // A process picks entry LOCAL_RANK of the list itself, so each rank gets the whole list.
  bool rank_picks = false;
};

// In the order of preference of `auto`.
const std::vector<Rules>& rules();

// The rules of a vendor, or of an accelerator by name; nullptr when there are none.
const Rules* rules_for(std::string_view vendor);
const Rules* rules_named(std::string_view accelerator);

Group group_of(const Inventory& inventory, int32_t host, std::string_view vendor);

// The devices of a group as CUDA numbers them without a mask.
struct CudaOrder {
  std::vector<int32_t> order;  // in Inventory::devices; empty: unknown
  bool by_bus = false;         // as CUDA_DEVICE_ORDER=PCI_BUS_ID asks
  std::string why_not;
};
CudaOrder cuda_order_strict(const Group& group, const Environment& environment);

// ---- what comes before a vendor's masks (before_masks.cc) ----

// The devices of a group that this user may open; adds a trace step of layer "cgroup" for each other device.
Group accessible_part(const Group& group, Trace& trace);
// The driver's order without masks: by Device::ordinal if all have it, else bus order.
std::vector<int32_t> driver_order(const Group& group);
// Position of a group's device in an order of some of the devices, or -1.
class Places {
 public:
  Places(const Group& group, const std::vector<int32_t>& order);
  int32_t of(int32_t device) const { return places_[static_cast<size_t>(device - first_)]; }

 private:
  int32_t first_;  // of the group's host
  std::vector<int32_t> places_;
};
// CUDA's order without masks. *guessed: the order is FASTEST_FIRST of different devices, whose rule is not published;
// units times clock, then bus order, is used instead. A value that the driver does not know is FASTEST_FIRST.
std::vector<int32_t> cuda_order(const Group& group, const Environment& environment, bool* guessed);
// NVIDIA_VISIBLE_DEVICES took effect when the container was created: adds this to the trace, and warns when a mask
// repeats its indexes.
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

// Warns of each variable that nothing reads and whose name is similar to that of a device variable, such as
// CUDA_VISIBLE_DEVICE, and suggests the right name.
void warn_of_misspelt(const Environment& environment, Trace& trace);

}  // namespace gsel
