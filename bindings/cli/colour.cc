// colour.cc: see colour.h.
#include "colour.h"

#include <unistd.h>

#include <cstdlib>

#include "client.h"

namespace gsel::cli {
namespace {

enum class When { automatic, always, never } g_when = When::automatic;

bool is_coloured(int descriptor) {
  if (g_when != When::automatic) return g_when == When::always;
  const char *no_colour = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  if (no_colour && *no_colour) return false;
  if (!terminal || !*terminal || terminal == std::string("dumb")) return false;
  return (descriptor != 1 || prints_to_standard_output()) && isatty(descriptor);
}

}  // namespace

void set_colours(const std::string& when) {
  g_when = when == "always" ? When::always : when == "never" ? When::never : When::automatic;
}

std::string coloured(Colour colour, const std::string& text, int descriptor) {
  static const char* const codes[] = {"\033[32m", "\033[31m", "\033[33m", "\033[2m"};
  return is_coloured(descriptor) ? codes[static_cast<int>(colour)] + text + "\033[0m" : text;
}

std::string error_prefix() {
  return coloured(Colour::bad, "gsel:", 2) + " ";
}

std::string warning_prefix() {
  return coloured(Colour::warning, "gsel: warning:", 2) + " ";
}

}  // namespace gsel::cli
