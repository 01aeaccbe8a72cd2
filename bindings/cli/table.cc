// table.cc: see table.h.
#include "table.h"

#include <algorithm>
#include <cstdio>

namespace gsel::cli {

std::string table(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(i + 1 < row.size() ? widths[i] + 2 - row[i].size() : 0, ' ');
    line.erase(line.find_last_not_of(' ') + 1);  // when the last columns are empty
    out += line + "\n";
  }
  return out;
}

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string duration(double us) {
  if (us < 1e3) return formatted("%.1f us", us);
  if (us < 1e6) return formatted("%.1f ms", us * 1e-3);
  return formatted("%.1f s", us * 1e-6);
}

std::string megabytes(double bytes) {
  if (bytes < 1e3) return formatted("%.0f B", bytes);
  if (bytes < 1e6) return formatted("%.2f kB", bytes * 1e-3);
  return formatted("%.2f MB", bytes * 1e-6);
}

}  // namespace gsel::cli
