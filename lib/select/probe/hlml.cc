// select/probe/hlml.cc: the uuids of Gaudi devices, which are in no file. HLML is opened at run time, and only if there
// are such devices. Source: Habana Management Library API reference.
#include "select/probe/library.h"
#include "select/probe/probes.h"

namespace gsel {
namespace {

constexpr unsigned kTextBytes = 64;

struct Hlml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_at)(const char*, void**) = nullptr;
  int (*uuid)(void*, char*, unsigned) = nullptr;
};

bool open_hlml(const FileTree& files, Hlml& hlml) {
  const Library library(files, "GSEL_HLML_LIBRARY", {"libhlml.so"});
  return library.find(hlml.init, "hlml_init") && library.find(hlml.shutdown, "hlml_shutdown") &&
         library.find(hlml.device_at, "hlml_device_get_handle_by_pci_bus_id") &&
         library.find(hlml.uuid, "hlml_device_get_uuid");
}

}  // namespace

void ask_hlml(const FileTree& files, Found& found) {
  Hlml hlml;
  if (found.devices.empty() || !open_hlml(files, hlml) || hlml.init() != 0) return;
  for (Device& device : found.devices) {
    const std::string address = device.pci.substr(device.pci.size() - 12);  // HLML writes four digits of the domain
    void* handle = nullptr;
    char uuid[kTextBytes + 1] = "";
    if (hlml.device_at(address.c_str(), &handle) == 0 && hlml.uuid(handle, uuid, kTextBytes) == 0) device.uuid = uuid;
  }
  hlml.shutdown();
}

}  // namespace gsel
