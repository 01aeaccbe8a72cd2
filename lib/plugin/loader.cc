// plugin/loader.cc: see loader.h. Uses RTLD_NOW and RTLD_LOCAL, so that a module with a missing symbol is refused here
// instead of crashing later, and modules do not see each other.
#include "plugin/loader.h"

#include <dlfcn.h>
#include <link.h>

#include "base/error.h"
#include "base/foreign.h"
#include "base/text.h"

namespace gsel {
namespace {

constexpr const char* kSymbol = "gsel_plugin_v1";

// A module being checked; unloaded unless kept.
class Opened {
 public:
  explicit Opened(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_) return;
    const char* text = dlerror();
    std::string reason = one_line(text ? text : "no reason given");
    if (reason.starts_with(path + ": ")) reason.erase(0, path.size() + 2);
    fail(GSEL_ERR_PLUGIN, "cannot be opened: {}; expected a shared object for this machine with all it needs", reason);
  }
  ~Opened() {
    if (handle_) dlclose(handle_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  void keep() { handle_ = nullptr; }

  // The exported table, and the size of its symbol in the file. dlsym also searches the libraries that a module depends
  // on; a symbol from there belongs to another module.
  const gsel_plugin_v1& plugin(uint64_t& bytes) const {
    void* symbol = dlsym(handle_, kSymbol);
    if (!symbol) fail(GSEL_ERR_PLUGIN, "exports no {}; is it a gsel plugin?", kSymbol);
    Dl_info info{};
    link_map *own = nullptr, *where = nullptr;
    const ElfW(Sym)* entry = nullptr;
    if (dlinfo(handle_, RTLD_DI_LINKMAP, &own) != 0 ||
        !dladdr1(symbol, &info, reinterpret_cast<void**>(&where), RTLD_DL_LINKMAP) || own != where)
      fail(GSEL_ERR_PLUGIN, "exports no {} of its own, it is that of {}; define it in the plugin's file", kSymbol,
           info.dli_fname ? info.dli_fname : "another file");
    dladdr1(symbol, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&entry)), RTLD_DL_SYMENT);
    bytes = entry && info.dli_saddr == symbol ? entry->st_size : 0;
    return *static_cast<const gsel_plugin_v1*>(symbol);
  }

 private:
  void* handle_;
};

}  // namespace

void probe(const gsel_plugin_v1& plugin) {
  if (!plugin.probe) return;
  char reason[512] = "";
  int32_t score = 0;
  try {
    score = plugin.probe(&host_services(), reason, sizeof reason);
  } catch (const std::exception& e) {
    fail(GSEL_ERR_PLUGIN, "its probe threw an exception ({}); plugins must not throw", one_line(e.what()));
  } catch (...) {
    fail(GSEL_ERR_PLUGIN, "its probe threw an exception; plugins must not throw");
  }
  reason[sizeof reason - 1] = '\0';
  if (score <= 0)
    fail(GSEL_ERR_PLUGIN, "cannot run here: {}", reason[0] ? one_line(reason) : "its probe gave no reason");
}

Module load_module(const std::string& path, const Wanted& wanted) {
  Module module;
  try {
    Opened opened(path);
    uint64_t bytes = 0;
    const gsel_plugin_v1& exported = opened.plugin(bytes);
    take_tables(exported, bytes, module);
    if (!wanted.is(module)) {
      module.tables = nullptr;
      return module;
    }
    opened.keep();
    probe(module.tables->plugin);
  } catch (const Error& e) {
    module.tables = nullptr;
    module.refusal = fmt::format("plugin {}: {}", path, e.message());
  }
  return module;
}

}  // namespace gsel
