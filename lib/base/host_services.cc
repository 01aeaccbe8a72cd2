// base/host_services.cc: see host_services.h. Foreign code calls these functions, so none of them throws.
#include "base/host_services.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace gsel {
namespace {

void log_from_plugin(int32_t level, const char* component, const char* line) noexcept {
  try {
    log(std::clamp(level, GSEL_LOG_ERROR, GSEL_LOG_DEBUG), component ? component : "plugin", "{}", line ? line : "");
  } catch (...) {
    // A line that cannot be formatted is lost.
  }
}

gsel_error* error_from_plugin(gsel_status code, const char* message) noexcept {
  try {
    const gsel_status failure = code == GSEL_OK ? GSEL_ERR_PLUGIN : code;
    return to_handle(Error(failure, message ? one_line(message) : status_text(failure)));
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

const gsel_host_v1& host_services() {
  static const gsel_host_v1 table = {sizeof(gsel_host_v1), GSEL_PLUGIN_ABI_MINOR, log_from_plugin, error_from_plugin};
  return table;
}

}  // namespace gsel
