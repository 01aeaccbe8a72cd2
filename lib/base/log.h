// base/log.h: log lines to the sink the host set; silent by default. Refuses to know what is logged.
#pragma once

#include <fmt/format.h>
#include <gsel/log.h>

#include <string>
#include <string_view>
#include <utility>

namespace gsel {

void set_log_sink(gsel_log_fn sink, gsel_log_level level, void* user_data);
bool log_wanted(gsel_log_level level);
void log_line(gsel_log_level level, const char* component, const std::string& line);

// log(GSEL_LOG_INFO, "comm", "rank {} joined", rank): formats only when somebody listens.
template <class... Args>
void log(gsel_log_level level, const char* component, fmt::format_string<Args...> text, Args&&... args) {
  if (log_wanted(level)) log_line(level, component, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace gsel
