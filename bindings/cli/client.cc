// client.cc: see client.h.
#include "client.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

namespace gsel::cli {

void check(gsel_status status, gsel_error** error) {
  if (status == GSEL_OK) return;
  Failure failure{status, gsel_status_text(status), text(gsel_error_token(*error)), gsel_error_column(*error)};
  if (*error) {
    std::vector<char> buffer(gsel_error_format(*error, nullptr, 0));
    gsel_error_format(*error, buffer.data(), buffer.size());
    failure.message = buffer.data();
  }
  gsel_error_free(*error);
  *error = nullptr;
  throw failure;
}

void refuse(gsel_status code, const std::string& message) {
  throw Failure{code, message, {}, 0};
}

Handle<gsel_inventory> read_inventory(const std::string& file) {
  if (file.empty()) return nullptr;
  gsel_inventory* inventory = nullptr;
  gsel_error* error = nullptr;
  check(gsel_inventory_load(borrow(file), &inventory, &error), &error);
  return Handle<gsel_inventory>(inventory);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(GSEL_ERR_IO, path + ": cannot be opened: " + std::strerror(errno));
  std::string content{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) refuse(GSEL_ERR_IO, path + ": cannot be read");
  return content;
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    refuse(GSEL_ERR_IO, std::string("standard output cannot be written: ") + std::strerror(errno));
}

}  // namespace gsel::cli
