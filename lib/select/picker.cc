// select/picker.cc: see picker.h.
#include "select/picker.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace gsel {
namespace {

using Kind = Clause::Kind;

// Whether an entry identifies one device, as opposed to an index on each host.
bool is_identity(Kind space, const Token& token) {
  if (space == Kind::uuid) return true;
  if (space == Kind::pci) return token.text.find(':') != token.text.npos;
  return space == Kind::mig && lower_case(token.text).starts_with("mig-");
}

const char* rule_of(Kind space, const Token& token) {
  switch (space) {
    case Kind::pci:
      return is_identity(space, token) ? "a bus address" : "an index in bus order";
    case Kind::cuda:
      return "an index as CUDA counts without a mask";
    case Kind::visible:
      return "an index among what the environment leaves visible";
    case Kind::uuid:
      return "the one device whose uuid begins so";
    case Kind::mig:
      return "an instance of MIG";
    default:
      return "an index in bus order";
  }
}

}  // namespace

Picker::Picker(const Inventory& inventory, const Environment& environment, const std::vector<Unit>& visible,
               const std::vector<int32_t>& hosts, const Input& input, Trace& trace)
    : inventory_(inventory),
      environment_(environment),
      visible_(visible),
      hosts_(hosts),
      input_(input),
      trace_(trace) {}

std::vector<Unit> Picker::pick(const Clause& clause, bool usable) {
  std::vector<Unit> out;
  std::vector<bool> seen(inventory_.devices.size());
  std::set<Unit> parts;
  const auto take = [&](int32_t host, size_t entry) {
    const Token& token = clause.tokens[entry];
    const Unit named = pick_on(host, clause.spaces[entry], token);
    const Unit unit = usable ? settle(inventory_, named, input_, token) : named;
    const bool whole = unit.partition < 0 && unit.tile < 0;
    if (whole ? seen[static_cast<size_t>(unit.device)] : !parts.insert(unit).second)
      refuse(GSEL_ERR_DUPLICATE, input_, token, fmt::format("{} is already in the list", unit_text(inventory_, unit)));
    seen[static_cast<size_t>(unit.device)] = true;
    trace_.add("request", input_, token, unit_text(inventory_, unit), rule_of(clause.spaces[entry], token));
    out.push_back(unit);
  };
  const auto identity = [&](size_t entry) { return is_identity(clause.spaces[entry], clause.tokens[entry]); };
  bool any_identity = false;
  for (size_t entry = 0; entry < clause.tokens.size(); ++entry) any_identity = any_identity || identity(entry);
  if (!any_identity || hosts_.size() == 1) {
    for (int32_t host : hosts_)
      for (size_t entry = 0; entry < clause.tokens.size(); ++entry) take(identity(entry) ? -1 : host, entry);
    return out;
  }
  for (size_t entry = 0; entry < clause.tokens.size(); ++entry) {
    if (!identity(entry))
      refuse(GSEL_ERR_AMBIGUOUS, input_, clause.tokens[entry],
             "an index names a device on each host; name a host as well by host:");
    take(-1, entry);
  }
  return out;
}

Unit Picker::pick_on(int32_t host, Kind space, const Token& token) {
  switch (space) {
    case Kind::uuid:
      return by_uuid(token);
    case Kind::pci:
      return host < 0 ? by_address(token) : by_index(host, token);
    case Kind::cuda:
      return by_cuda(host, token);
    case Kind::visible:
      return by_visible(host, token);
    case Kind::mig:
      return by_instance(host, token);
    default:
      return by_index(host, token);
  }
}

std::string Picker::on_host(int32_t host) const {
  return inventory_.hosts.size() > 1 ? fmt::format("host {}", inventory_.hosts[static_cast<size_t>(host)].name)
                                     : "this machine";
}

void Picker::refuse_range(int32_t host, const Token& token, const std::string& what, size_t count,
                          const char* form) const {
  if (count == 0) refuse(GSEL_ERR_OUT_OF_RANGE, input_, token, fmt::format("{} has no {}", on_host(host), what));
  refuse(GSEL_ERR_OUT_OF_RANGE, input_, token,
         fmt::format("{0} has {1}, {2}:0 to {2}:{3}", on_host(host), with_noun(count, what), form, count - 1));
}

// Indexes count all accelerators of the host in bus order, whatever is visible or requested.
Unit Picker::by_index(int32_t host, const Token& token) const {
  const Host& of = inventory_.hosts[static_cast<size_t>(host)];
  const int64_t index = number_of(token.text);
  const bool cpu = of.count > 0 && inventory_.devices[static_cast<size_t>(of.first + of.count - 1)].is_cpu();
  const int32_t count = of.count - cpu;
  if (index >= count) refuse_range(host, token, "accelerator", static_cast<size_t>(count), "index");
  return {of.first + static_cast<int32_t>(index), -1, -1};
}

Unit Picker::by_address(const Token& token) {
  std::string address = normalise_pci(token.text);
  if (address.empty()) address = normalise_pci("0000:" + token.text);
  if (address.empty())
    refuse(GSEL_ERR_SYNTAX, input_, token, "a bus address such as 0000:3b:00.0 or an index is needed");
  if (!addresses_) {
    addresses_.emplace();
    for (size_t i = 0; i < inventory_.devices.size(); ++i)
      addresses_->emplace_back(inventory_.devices[i].pci, static_cast<int32_t>(i));
    std::sort(addresses_->begin(), addresses_->end());
  }
  const auto first =
      std::lower_bound(addresses_->begin(), addresses_->end(), std::pair<std::string_view, int32_t>(address, 0));
  const auto last = std::find_if(first, addresses_->end(), [&](const auto& entry) { return entry.first != address; });
  if (first == last) refuse(GSEL_ERR_UNKNOWN_DEVICE, input_, token, "no device of this machine has such an address");
  if (last - first > 1)
    refuse(GSEL_ERR_AMBIGUOUS, input_, token,
           fmt::format("{} have a device of such an address; give a uuid", with_noun(last - first, "host")));
  return {first->second, -1, -1};
}

Unit Picker::by_cuda(int32_t host, const Token& token) {
  if (cuda_.host != host) {
    const Group group = group_of(inventory_, host, "nvidia");
    cuda_ = {host, group.size(), cuda_order_strict(group, environment_)};
  }
  const int64_t index = number_of(token.text);
  if (index >= static_cast<int64_t>(cuda_.count)) refuse_range(host, token, "NVIDIA device", cuda_.count, "cuda");
  if (cuda_.order.order.empty()) refuse(GSEL_ERR_AMBIGUOUS, input_, token, cuda_.order.why_not);
  return {cuda_.order.order[static_cast<size_t>(index)], -1, -1};
}

Unit Picker::by_visible(int32_t host, const Token& token) {
  if (!visible_on_) {
    visible_on_.emplace(inventory_.hosts.size());
    for (const Unit& unit : visible_)
      (*visible_on_)[static_cast<size_t>(inventory_.devices[static_cast<size_t>(unit.device)].host)].push_back(unit);
  }
  const std::vector<Unit>& units = (*visible_on_)[static_cast<size_t>(host)];
  const int64_t index = number_of(token.text);
  if (index >= static_cast<int64_t>(units.size()))
    refuse_range(host, token, "visible accelerator", units.size(), "visible");
  return units[static_cast<size_t>(index)];
}

Unit Picker::by_uuid(const Token& token) {
  if (!identities_) identities_.emplace(inventory_);
  return identities_->find(input_, token);
}

// MIG-<uuid> on any host; DEVICE.INSTANCE and a bare INSTANCE count in bus order on `host`.
Unit Picker::by_instance(int32_t host, const Token& token) {
  if (host < 0) return by_uuid(token);
  const size_t dot = token.text.find('.');
  const Token index{token.text.substr(dot == token.text.npos ? 0 : dot + 1), token.column, false};
  if (!is_number(index.text) || (dot != token.text.npos && !is_number(token.text.substr(0, dot))))
    refuse(GSEL_ERR_SYNTAX, input_, token, "an instance is MIG- and a uuid, or DEVICE.INSTANCE such as 0.1");
  const int32_t device =
      dot == token.text.npos ? -1 : by_index(host, {token.text.substr(0, dot), token.column, false}).device;
  int64_t left = number_of(index.text);
  size_t count = 0;
  const Host& of = inventory_.hosts[static_cast<size_t>(host)];
  for (int32_t i = of.first; i < of.first + of.count; ++i) {
    if (device >= 0 && i != device) continue;
    const auto partitions = static_cast<int64_t>(inventory_.devices[static_cast<size_t>(i)].partitions.size());
    if (left < partitions) return {i, static_cast<int32_t>(left), -1};
    left -= partitions;
    count += static_cast<size_t>(partitions);
  }
  refuse_range(host, token, device < 0 ? "instance of MIG" : "instance of MIG on that device", count, "mig");
}

}  // namespace gsel
