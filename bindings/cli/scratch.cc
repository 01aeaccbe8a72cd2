// scratch.cc: see scratch.h.
#include "scratch.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "client.h"

namespace gsel::cli {

Scratch::Scratch() {
  // mkdtemp replaces the six letters.
  path_ = (std::filesystem::temp_directory_path() / "gsel-XXXXXX").string();
  if (!mkdtemp(path_.data())) refuse(GSEL_ERR_IO, path_ + " cannot be made: " + std::strerror(errno));
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace gsel::cli
