// base/foreign.cc: see foreign.h.
#include "base/foreign.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace gsel {
namespace {

bool is_ours(gsel_status status) {
#define GSEL_CASE(constant, number, text) \
  case number:                            \
    return true;
  switch (status) { GSEL_ERROR_LIST(GSEL_CASE) default : return false; }
#undef GSEL_CASE
}

}  // namespace

std::string reason_of(gsel_status status, std::string_view text) {
  if (is_ours(status)) return text.empty() ? status_name(status) : one_line(text);
  if (text.empty()) return fmt::format("it returned {}, which is a code of its own", status);
  return fmt::format("{} (it returned {})", one_line(text), status);
}

// ---- functions that plugins call, so that none of them throws -------------------------------------------------------

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
