// clash.cc: a program in C++ that links libgsel.a and has functions of names that libgsel has inside. Each side calls
// its own.
#include <gsel/gsel.h>

#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace gsel {
struct Candidate {
  std::string text;
};
// As lib/plugin/registry.h declares it; libgsel calls its own in gsel_plugin_list_create.
std::vector<Candidate> find_plugins(int32_t kind) {
  throw std::runtime_error("find_plugins(" + std::to_string(kind) + ") of the program");
}
}  // namespace gsel

int main() {
  gsel_plugin_list* list;
  gsel_error* err;
  const gsel_status status = gsel_plugin_list_create(&list, &err);
  std::cout << "libgsel " << gsel_status_name(status);
  gsel_plugin_list_free(list);
  try {
    gsel::find_plugins(1);
  } catch (const std::exception& e) {
    std::cout << ", " << e.what() << '\n';
  }
}
