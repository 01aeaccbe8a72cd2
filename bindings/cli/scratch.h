// scratch.h: a private folder for files between processes, which the destructor removes.
#pragma once

#include <string>

namespace gsel::cli {

class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace gsel::cli
