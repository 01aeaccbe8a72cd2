// select/words/table.h: tables as text, with a heading and aligned columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gsel {

class Table {
 public:
  explicit Table(std::vector<std::string> heading) { add(std::move(heading)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "79.3 GiB"; "-" for 0, which means unknown.
std::string bytes_text(uint64_t bytes);

}  // namespace gsel
