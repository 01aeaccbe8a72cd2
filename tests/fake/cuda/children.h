// fake/cuda/children.h: what the tests of the doubles share: a body in a process of its own, since a double is loaded
// once and may end it, and what that process wrote to stderr.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "support/check.h"

namespace {

using Settings = std::map<std::string, std::string>;

struct Ended {
  int status;
  std::string text;
};

Ended in_child(const Settings& settings, const std::function<void()>& body) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    alarm(60);
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    body();
    _exit(0);
  }
  close(ends[1]);
  Ended ended{0, ""};
  char some[512];
  for (ssize_t n; (n = read(ends[0], some, sizeof some)) > 0;) ended.text.append(some, static_cast<size_t>(n));
  close(ends[0]);
  waitpid(pid, &ended.status, 0);
  return ended;
}

// The body writes what it has to say; the parent looks for it.
[[maybe_unused]] void expect(const Settings& settings, const char* part, const std::function<void()>& body) {
  const Ended ended = in_child(settings, body);
  if (ended.status != 0 || ended.text.find(part) == std::string::npos)
    fail_msg("status %#x, expected \"%s\" in: %s", static_cast<unsigned>(ended.status), part, ended.text.c_str());
}

// The same where the double ends the process.
[[maybe_unused]] void expect_end(const Settings& settings, const char* part, const std::function<void()>& body) {
  const Ended ended = in_child(settings, body);
  if (ended.status == 0 || ended.text.find(part) == std::string::npos)
    fail_msg("status %#x, expected an end with \"%s\" in: %s", static_cast<unsigned>(ended.status), part,
             ended.text.c_str());
}

}  // namespace
