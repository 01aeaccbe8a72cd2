// base/log.h: passes log lines to the sink that the embedder set; silent by default. Does not know what is logged.
//
// An environment variable of gsel with a wrong value is reported once for each value, even without a log: the user who
// set it would otherwise believe that it works. All such variables go through warn_about_variable, except variables
// that make a call impossible: these are an error of the call.
#pragma once

#include <fmt/format.h>
#include <gsel/log.h>

#include <string>
#include <string_view>
#include <utility>

namespace gsel {

void set_log_sink(gsel_log_fn sink, gsel_log_level level, void* user_data, gsel_free_fn free_user_data);
bool log_wanted(gsel_log_level level);
void log_line(gsel_log_level level, const char* component, const std::string& line);

// Logs to the sink if the host set one or GSEL_LOG names a level, else to standard error. `text` says what is wrong and
// what to set.
void warn_about_variable(const char* name, std::string_view value, std::string_view text);
// Warns when the level comes from GSEL_LOG and GSEL_LOG is no level.
void check_log_variable();

// log(GSEL_LOG_INFO, "comm", "rank {} joined", rank) formats the text only when the level is logged.
template <class... Args>
void log(gsel_log_level level, const char* component, fmt::format_string<Args...> text, Args&&... args) {
  if (log_wanted(level)) log_line(level, component, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace gsel
