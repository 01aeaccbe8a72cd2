// select/picker.h: turns the entries of a list clause (index:, pci:, cuda:, visible:, uuid:, mig:) into units. Each
// kind of list has its own numbering, so that a number of one is never taken for a number of another. Does not know how
// the units are used.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "select/inventory/identity.h"
#include "select/request/spec.h"
#include "select/rules/rules.h"

namespace gsel {

class Picker {
 public:
  // visible: the units that `visible:` counts, on all hosts; hosts: where index-like entries apply, each entry on every
  // host
  Picker(const Inventory& inventory, const Environment& environment, const std::vector<Unit>& visible,
         const std::vector<int32_t>& hosts, const Input& input, Trace& trace);

  // The units of a list clause in its order; entries that are indexes go host by host. With `usable` a divided device
  // is replaced by its only instance. GSEL_ERR_OUT_OF_RANGE, GSEL_ERR_UNKNOWN_DEVICE, GSEL_ERR_AMBIGUOUS,
  // GSEL_ERR_SYNTAX, GSEL_ERR_DUPLICATE, each with its token.
  std::vector<Unit> pick(const Clause& clause, bool usable);

 private:
  Unit pick_on(int32_t host, Clause::Kind space, const Token& token);
  Unit by_index(int32_t host, const Token& token) const;
  Unit by_address(const Token& token);
  Unit by_cuda(int32_t host, const Token& token);
  Unit by_visible(int32_t host, const Token& token);
  Unit by_uuid(const Token& token);
  Unit by_instance(int32_t host, const Token& token);
  std::string on_host(int32_t host) const;
  [[noreturn]] void refuse_range(int32_t host, const Token& token, const std::string& what, size_t count,
                                 const char* form) const;

  const Inventory& inventory_;
  const Environment& environment_;
  const std::vector<Unit>& visible_;
  const std::vector<int32_t>& hosts_;
  const Input& input_;
  Trace& trace_;
  // Created on first use, so that simple entries need no walk over all devices.
  std::optional<Identities> identities_;
  std::optional<std::vector<std::pair<std::string_view, int32_t>>> addresses_;  // sorted
  std::optional<std::vector<std::vector<Unit>>> visible_on_;                    // by host
  // For the host whose entries are being read.
  struct {
    int32_t host = -1;
    size_t count = 0;
    CudaOrder order;
  } cuda_;
};

}  // namespace gsel
