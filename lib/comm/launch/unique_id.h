// comm/launch/unique_id.h: ids that carry the address at which rank 0 listens (gsel_unique_id_listen). Does not know
// who listens.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gsel {

struct AddressInId {
  uint16_t port = 0;
  int32_t pid = 0;                     // process that listens
  std::vector<std::string> addresses;  // numeric, of its host; one or more
};

// The other bytes are random. Addresses for which there is no room are left out.
gsel_unique_id id_with(const AddressInId& address);
// nullopt: another id, which is random or the caller's.
std::optional<AddressInId> address_of(const gsel_unique_id& id);

}  // namespace gsel
