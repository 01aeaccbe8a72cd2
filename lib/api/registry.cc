// api/registry.cc: gsel/registry.h.
#include "plugin/registry.h"

#include <gsel/registry.h>

#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"

struct gsel_plugin_list {
  std::vector<gsel::Candidate> impl;
};

extern "C" {

void gsel_plugin_info_init(gsel_plugin_info* info, size_t struct_size) {
  gsel::init_struct(info, struct_size);
}

gsel_status gsel_plugin_register(const struct gsel_plugin_v1* plugin, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::register_plugin(gsel::required(plugin, "plugin")); });
}

gsel_status gsel_plugin_list_create(gsel_plugin_list** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_plugin_list{gsel::list_plugins()};
  });
}

int32_t gsel_plugin_list_count(const gsel_plugin_list* list) {
  return list ? static_cast<int32_t>(list->impl.size()) : 0;
}

gsel_status gsel_plugin_list_get(const gsel_plugin_list* list, int32_t i, gsel_plugin_info* info, gsel_error** err) {
  return gsel::guard(err, [&] {
    const auto& candidates = gsel::required(list, "list").impl;
    if (i < 0 || static_cast<size_t>(i) >= candidates.size())
      gsel::fail(GSEL_ERR_ARG, "candidate {} of {}; expected 0 to {}", i, candidates.size(),
                 static_cast<int64_t>(candidates.size()) - 1);
    const gsel::Candidate& c = candidates[static_cast<size_t>(i)];
    gsel_plugin_info full{};
    full.struct_size = sizeof full;
    full.path = gsel::borrow(c.path);
    full.kind = gsel::borrow(c.kind);
    full.name = gsel::borrow(c.name);
    full.version = gsel::borrow(c.version);
    full.refusal = gsel::borrow(c.refusal);
    full.note = gsel::borrow(c.note);
    gsel::write_struct(info, full, "gsel_plugin_info");
  });
}

void gsel_plugin_list_free(gsel_plugin_list* list) {
  delete list;
}

}  // extern "C"
