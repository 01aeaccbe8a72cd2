// comm/group.cc: see group.h.
#include "comm/group.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "base/current_error.h"
#include "comm/communicator.h"

namespace gsel {
namespace {

struct Part {
  Communicator* communicator;
  std::vector<gsel_collective> calls;
};

// Checked, by communicator, in the order these are first named.
std::vector<Part> parts_of(std::span<GroupCall> calls) {
  std::vector<Part> parts;
  for (size_t i = 0; i < calls.size(); ++i) {
    auto& [communicator, call] = calls[i];
    try {
      communicator->check(call);
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("call {} of a group of {}: {}", i, calls.size(), e.message()));
    }
    auto found = std::ranges::find(parts, communicator, &Part::communicator);
    if (found == parts.end()) found = parts.insert(found, {communicator, {}});
    found->calls.push_back(call);
  }
  return parts;
}

template <class Body>
void keep_first(std::optional<Error>& failure, Body&& body) {
  try {
    body();
  } catch (...) {
    if (!failure) failure = current_error();
  }
}

// The first on this thread, the others on theirs. Where one cannot be started, those that are not under way yet are
// aborted: the ones that are would wait for them.
void run_all(const std::vector<Part>& all) {
  std::optional<Error> failure;
  std::deque<Works> works;
  size_t next = 1;
  keep_first(failure, [&] {
    for (; next < all.size(); ++next) works.emplace_back(*all[next].communicator, all[next].calls);
  });
  const std::optional<Error> not_started = failure;
  if (not_started) {
    for (size_t i = next; i < all.size(); ++i) all[i].communicator->abort(not_started->what());
    all.front().communicator->abort(not_started->what());
  } else {
    keep_first(failure, [&] { all.front().communicator->group(all.front().calls); });
  }
  for (Works& work : works) keep_first(failure, [&] { work.wait(-1); });
  if (failure) throw Error(*failure);
}

}  // namespace

void run_group(std::span<GroupCall> calls) {
  const std::vector<Part> parts = parts_of(calls);
  if (!parts.empty()) run_all(parts);
}

}  // namespace gsel
