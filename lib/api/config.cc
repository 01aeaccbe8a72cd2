// api/config.cc: gsel/config.h.
#include <gsel/config.h>

#include "api/handles.h"
#include "base/guard.h"
#include "base/text.h"

extern "C" {

gsel_status gsel_config_load(gsel_str path, gsel_config** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_config{gsel::given(path) ? gsel::load_config(gsel::text(path)) : gsel::environment_config()};
  });
}

gsel_status gsel_config_parse(gsel_str text, gsel_str name, gsel_config** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_config{gsel::parse_config(gsel::view(text), gsel::given(name) ? gsel::text(name) : "config")};
  });
}

gsel_status gsel_config_set(gsel_config* config, gsel_str key, gsel_str value, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::Config& impl = gsel::required(config, "config").impl;
    if (!gsel::given(key)) gsel::fail(GSEL_ERR_ARG, "key is not given; expected a dotted name such as train.batch");
    std::optional<std::string> text;
    if (gsel::given(value)) text = gsel::text(value);
    impl = gsel::with_setting(impl, gsel::view(key), text);
  });
}

gsel_str gsel_config_get(const gsel_config* config, gsel_str key) {
  return gsel::query(gsel_str{nullptr, 0}, [&] {
    const std::string* value = config ? config->impl.get(gsel::view(key)) : nullptr;
    return value ? gsel::borrow(*value) : gsel_str{nullptr, 0};
  });
}

void gsel_config_free(gsel_config* config) {
  delete config;
}

}  // extern "C"
