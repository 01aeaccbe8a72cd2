// base/log.cc: see log.h. There is one sink per process; it is called with one line at a time.
#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "base/foreign.h"
#include "base/text.h"

namespace gsel {
namespace {

void to_stderr(gsel_log_level level, gsel_str component, gsel_str line, void*) {
  static const char* const names[] = {"", "error", "warning", "info", "debug"};
  std::fprintf(stderr, "gsel %s [%.*s] %.*s\n", names[level], static_cast<int>(component.len), component.data,
               static_cast<int>(line.len), line.data);
}

std::string variable_of_environment() {
  const char* value = std::getenv("GSEL_LOG");
  return value ? value : "";
}

gsel_log_level level_of(std::string_view text) {
  if (text == "error") return GSEL_LOG_ERROR;
  if (text == "warn") return GSEL_LOG_WARN;
  if (text == "info") return GSEL_LOG_INFO;
  return text == "debug" ? GSEL_LOG_DEBUG : 0;
}

struct Sink {
  const std::string variable = variable_of_environment();
  std::mutex mutex;
  std::atomic<gsel_log_level> level{level_of(variable)};
  std::atomic<bool> chosen{level != 0};  // by the host or by the variable
  gsel_log_fn fn = to_stderr;
  UserData user_data;
  std::set<std::string> told;  // warnings about variables that were given
};

Sink& sink() {
  static Sink* instance = new Sink;  // never destroyed: other threads may still log at exit
  return *instance;
}

}  // namespace

void set_log_sink(gsel_log_fn fn, gsel_log_level level, void* user_data, gsel_free_fn free_user_data) {
  Sink& s = sink();
  UserData kept;  // after the swap the previous one; freed without the lock, since freeing may log
  kept.take(user_data, free_user_data);
  std::lock_guard lock(s.mutex);
  s.fn = fn;
  std::swap(s.user_data, kept);
  s.chosen.store(true, std::memory_order_relaxed);
  s.level.store(fn ? level : 0, std::memory_order_relaxed);
}

bool log_wanted(gsel_log_level level) {
  return level <= sink().level.load(std::memory_order_relaxed);
}

void log_line(gsel_log_level level, const char* component, const std::string& line) {
  Sink& s = sink();
  std::lock_guard lock(s.mutex);
  if (s.fn) s.fn(level, {component, std::strlen(component)}, borrow(line), s.user_data.get());
}

void warn_about_variable(const char* name, std::string_view value, std::string_view text) {
  Sink& s = sink();
  const std::string line = fmt::format("{}={}: {}", name, one_line(value), text);
  {
    std::lock_guard lock(s.mutex);
    if (!s.told.insert(line).second) return;
    if (!s.chosen.load(std::memory_order_relaxed))
      return to_stderr(GSEL_LOG_WARN, {"environment", 11}, borrow(line), nullptr);
  }
  log(GSEL_LOG_WARN, "environment", "{}", line);
}

void check_log_variable() {
  const Sink& s = sink();
  if (!s.variable.empty() && !s.chosen.load(std::memory_order_relaxed))
    warn_about_variable("GSEL_LOG", s.variable,
                        "is no level, so nothing is logged; expected error, warn, info or debug");
}

}  // namespace gsel
