// plugins/transport/common/interface.h: checks that the network interface named in GSEL_INTERFACE exists. Does not know
// what a transport does with it.
#pragma once

#include <net/if.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace gsel_between {

inline std::string interfaces() {
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> all(if_nameindex(), if_freenameindex);
  std::string names;
  for (const auto* one = all.get(); one && one->if_name; ++one)
    names += (names.empty() ? "" : ", ") + std::string(one->if_name);
  return names.empty() ? "none" : names;
}

// Empty: it exists, or none is named.
inline std::string why_no_interface() {
  const char* named = secure_getenv("GSEL_INTERFACE");
  if (!named || !*named || if_nametoindex(named) != 0) return {};
  return std::string("GSEL_INTERFACE=") + named + " is no interface of this host, which has " + interfaces();
}

}  // namespace gsel_between
