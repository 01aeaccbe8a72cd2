// select/identity.h: finds devices and their parts by uuid: any unique prefix, in any case. Does not know what is
// visible.
#pragma once

#include <string>

#include "select/prefix_index.h"
#include "select/tokens.h"
#include "select/unit.h"

namespace gsel {

class Identities {
 public:
  explicit Identities(const Inventory& inventory);

  // The one device or partition that the token names: GPU-<hex>, MIG-<hex>, MIG-GPU-<hex>/<gi>/<ci>, or another
  // vendor's uuid. GSEL_ERR_SYNTAX, GSEL_ERR_UNKNOWN_DEVICE, GSEL_ERR_AMBIGUOUS.
  Unit find(const Input& input, const Token& token) const;

 private:
  Unit only(const std::string& prefix, const Input& input, const Token& token) const;
  Unit find_instance(const std::string& text, const Input& input, const Token& token) const;

  const Inventory& inventory_;
  PrefixIndex<Unit> uuids_;
};

// A divided device can only be used through its instances: the instance when it has one, else GSEL_ERR_AMBIGUOUS or
// GSEL_ERR_NO_DEVICES. Other units are returned as they are.
Unit settle(const Inventory& inventory, const Unit& unit, const Input& input, const Token& token);

}  // namespace gsel
