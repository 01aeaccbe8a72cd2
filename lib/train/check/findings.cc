// train/check/findings.cc: see findings.h.
#include "train/check/findings.h"

#include <fmt/format.h>

#include <algorithm>

namespace gsel::check {
namespace {

const char* list_name(int32_t role) {
  static const char* const names[] = {"",      "params",     "inputs", "outputs", "d_outputs", "d_inputs", "d_params",
                                      "saved", "reductions", "dst",    "values",  "gradient",  "states"};
  return names[role];
}

std::string buffer_name(const Buffer& buffer) {
  if (buffer.role == GSEL_BUFFER_SAVED) return "saved";
  if (buffer.role == GSEL_BUFFER_VALUES || buffer.role == GSEL_BUFFER_GRADIENT) return list_name(buffer.role);
  if (buffer.role == GSEL_BUFFER_DATA) return fmt::format("dst of input \"{}\"", buffer.name);
  std::string name = fmt::format("{}[{}]", list_name(buffer.role), buffer.index);
  return buffer.name.empty() ? name : fmt::format("{} \"{}\"", name, buffer.name);
}

bool is_inside(const Buffer& buffer, int64_t element) {
  return element >= 0 && element < buffer.elems();
}

std::string element_name(const Buffer& buffer, int64_t element) {
  std::string name = fmt::format("{} {}", buffer.role == GSEL_BUFFER_SAVED ? "byte" : "element", element);
  if (!is_inside(buffer, element) || buffer.view.n_dims < 2) return name;
  name += ' ';
  for (int64_t c : coordinates_of(buffer.view, element)) name += fmt::format("[{}]", c);
  return name;
}

}  // namespace

const char* callback_name(int32_t callback) {
  switch (callback) {
    case GSEL_FORWARD:
      return "forward";
    case GSEL_BACKWARD_INPUT:
      return "backward_input";
    case GSEL_BACKWARD_WEIGHT:
      return "backward_weight";
    default:
      return "backward";
  }
}

Site::Site(const Layer& l, int32_t c) : Site(fmt::format("layer \"{}\" {}", l.name, callback_name(c)), l.origin, c) {}

void Findings::breach(gsel_breach_kind kind, const Site& site, const Buffer& buffer, int64_t element,
                      const std::string& what, double found, double expected) {
  auto is_known = [&](const Breach& b) {
    return b.kind == kind && b.layer == site.layer && b.callback == site.callback && b.buffer == buffer.role &&
           b.index == buffer.index && b.text.starts_with(site.subject);
  };
  if (std::ranges::any_of(breaches_, is_known)) return;
  Breach breach{kind, site.layer, site.callback, buffer.role, buffer.index, element, {}, found, expected, {}};
  if (is_inside(buffer, element)) breach.coordinates = coordinates_of(buffer.view, element);
  breach.text = fmt::format("{}: {} {}: {}", site.subject, buffer_name(buffer), element_name(buffer, element), what);
  breaches_.push_back(std::move(breach));
}

void Findings::note(const Site& site, const Buffer& buffer, const std::string& what) {
  note(fmt::format("{}: {}: {}", site.subject, buffer_name(buffer), what));
}

std::string Findings::summary() const {
  const size_t n = breaches_.size();
  return fmt::format("kernels: {} layer{} checked, {}", layers_, layers_ == 1 ? "" : "s",
                     n == 0 ? std::string("no breach") : fmt::format("{} breach{}", n, n == 1 ? "" : "es"));
}

}  // namespace gsel::check
