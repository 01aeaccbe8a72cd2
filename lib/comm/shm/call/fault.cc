// comm/shm/call/fault.cc: see fault.h.
#include "comm/shm/call/fault.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"

namespace gsel::shm {
namespace {

constexpr const char* kVariable = "GSEL_FAULT";
constexpr std::string_view kFaults[] = {"kill", "stop", "delay", "corrupt"};
constexpr std::string_view kSteps[] = {"enter",  "header",      "staged", "reduced", "copied",
                                       "direct", "single_copy", "sent",   "taken",   "leave"};
constexpr uint64_t kCorruption = 0x5bd1e9955bd1e995;
constexpr uint64_t kMostMilliseconds = 3'600'000;
constexpr size_t kMostFaults = 64;

// Splits a text at separators; keeps empty words.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  for (size_t end = 0; end != text.npos; text.remove_prefix(end + 1)) {
    end = text.find(separator);
    words.push_back(text.substr(0, end));
    if (end == text.npos) break;
  }
  return words;
}

template <size_t N>
std::string listed(const std::string_view (&names)[N]) {
  std::string text;
  for (size_t i = 0; i < N; ++i) text.append(i == 0 ? "" : i + 1 < N ? ", " : " or ").append(names[i]);
  return text;
}

void wait_milliseconds(uint32_t milliseconds) noexcept {
  const int64_t end = os::now_ns() + int64_t{milliseconds} * 1'000'000;
  for (int64_t left = end - os::now_ns(); left > 0; left = end - os::now_ns())
    poll(nullptr, 0, static_cast<int>((left + 999'999) / 1'000'000));
}

}  // namespace

// Parses the variable. An error quotes the whole text and the wrong token.
struct FaultText {
  std::string_view whole;
  int32_t world_size;

  [[noreturn]] void refuse(std::string_view token, const std::string& what) const {
    throw Error(GSEL_ERR_CONFIG, fmt::format("{} is {} in the environment: {} {}", kVariable, in_quotes(whole, 200),
                                             in_quotes(token), what))
        .at(Place{.file = "", .token = std::string(token.empty() ? kVariable : token)});
  }

  template <size_t N>
  uint32_t one_of(const std::string_view (&names)[N], std::string_view token, const char* kind) const {
    const auto* found = std::find(std::begin(names), std::end(names), token);
    if (found == std::end(names)) refuse(token, fmt::format("is no {}; use {}", kind, listed(names)));
    return static_cast<uint32_t>(found - names);
  }

  uint64_t number(std::string_view token, std::string_view digits, uint64_t least, uint64_t most) const {
    uint64_t value = 0;
    const auto parsed = std::from_chars(digits.begin(), digits.end(), value);
    if (parsed.ec != std::errc() || parsed.ptr != digits.end() || value < least || value > most)
      refuse(token, fmt::format("needs a whole number of {} to {}", least, most));
    return value;
  }

  Faults::One one(std::string_view text) const {
    const std::vector<std::string_view> words = split(text, ':');
    const size_t at = words.front().find('@');
    if (at == std::string_view::npos)
      refuse(words.front(), "is no fault; write fault@step, such as kill@staged:rank=1:call=3");
    Faults::One one{};
    one.fault = static_cast<Fault>(one_of(kFaults, words.front().substr(0, at), "fault"));
    one.step = static_cast<Step>(one_of(kSteps, words.front().substr(at + 1), "step"));
    one.rank = -1;
    for (size_t i = 1; i < words.size(); ++i) set(one, words[i]);
    if (one.fault == Fault::corrupt && one.step != Step::header)
      refuse(words.front(), "corrupts what has no fingerprint; use corrupt@header");
    if (one.fault == Fault::delay && one.milliseconds == 0)
      refuse(text, "does not say how long; add ms=, such as ms=5");
    return one;
  }

  void set(Faults::One& one, std::string_view word) const {
    const std::string_view key = word.substr(0, word.find('='));
    const std::string_view value = key.size() < word.size() ? word.substr(key.size() + 1) : std::string_view();
    if (key == "rank")
      one.rank = static_cast<int32_t>(number(word, value, 0, static_cast<uint64_t>(world_size) - 1));
    else if (key == "call")
      one.call = number(word, value, 1, INT64_MAX);
    else if (key == "ms")
      one.milliseconds = static_cast<uint32_t>(number(word, value, 1, kMostMilliseconds));
    else
      refuse(word, "is not known; use rank=, call= or ms=");
  }
};

Faults Faults::of_environment(int32_t rank, int32_t world_size) {
  Faults faults;
  const char* variable = secure_getenv(kVariable);  // ignored in setuid programs
  if (!variable || !*variable) return faults;
  const FaultText text{variable, world_size};
  const std::vector<std::string_view> all = split(text.whole, ',');
  if (all.size() > kMostFaults)
    text.refuse(all.back(), fmt::format("is one too many; at most {} are kept", kMostFaults));
  for (const std::string_view part : all) {
    const One one = text.one(part);
    if (one.rank < 0 || one.rank == rank) faults.all_.push_back(one);
  }
  return faults;
}

// Atomic, since a message may run on another thread during a collective.
bool Faults::due(One& one, Step step, uint64_t call) noexcept {
  return one.step == step && (one.call == 0 || one.call == call) &&
         std::atomic_ref(one.struck).exchange(1, std::memory_order_relaxed) == 0;
}

void Faults::strike(Step step, uint64_t call) noexcept {
  for (One& one : all_) {
    if (one.fault == Fault::corrupt || !due(one, step, call)) continue;
    wait_milliseconds(one.milliseconds);
    if (one.fault == Fault::kill) raise(SIGKILL);
    if (one.fault == Fault::stop) raise(SIGSTOP);
  }
}

uint64_t Faults::corruption(uint64_t call) noexcept {
  for (One& one : all_)
    if (one.fault == Fault::corrupt && due(one, Step::header, call)) return kCorruption;
  return 0;
}

}  // namespace gsel::shm
