// spec.cc: see spec.h.
#include "spec.h"

#include <algorithm>

namespace gsel::cli {

std::vector<std::string> OptionSpec::spellings() const {
  std::vector<std::string> out;
  for (size_t from = 0; from < names.size();) {
    const size_t comma = std::min(names.find(',', from), names.size());
    out.push_back(names.substr(from, comma - from));
    from = comma + 1;
  }
  return out;
}

bool OptionSpec::takes_path() const {
  return value.find("FILE") != value.npos || value.find("FOLDER") != value.npos;
}

std::vector<const OptionSpec*> CommandSpec::all_options() const {
  std::vector<const OptionSpec*> all;
  for (const OptionSpec& option : options)
    if (!option.is_positional()) all.push_back(&option);
  for (const OptionSpec& option : common) all.push_back(&option);
  return all;
}

std::string CommandSpec::usage() const {
  std::string out = text.name == std::string("gsel") ? "gsel" : std::string("gsel ") + text.name;
  if (text.usage) return out + " " + text.usage;
  out += " [OPTIONS]";
  for (const OptionSpec& option : options)
    if (option.is_positional()) out += option.required ? " " + option.value : " [" + option.value + "]";
  return out;
}

}  // namespace gsel::cli
