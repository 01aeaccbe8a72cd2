// comm/group.cc: see group.h.
#include "comm/group.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/current_error.h"
#include "comm/communicator.h"

namespace gsel {
namespace {

struct Noted {
  Communicator* communicator;
  std::vector<gsel_collective> calls;
};

struct Group {
  int depth = 0;
  std::vector<Noted> noted;  // in the order the communicators were first named
};
thread_local Group group;

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
void run_all(const std::vector<Noted>& all) {
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

void begin_group() {
  ++group.depth;
}

void end_group() {
  if (group.depth == 0) fail(GSEL_ERR_STATE, "gsel_group_end without gsel_group_begin on this thread");
  if (--group.depth > 0) return;
  const std::vector<Noted> all = std::exchange(group.noted, {});
  if (!all.empty()) run_all(all);
}

void call_or_note(Communicator& communicator, gsel_collective& call) {
  communicator.check(call);
  if (group.depth == 0) return communicator.run_checked(call);
  auto found = std::ranges::find(group.noted, &communicator, &Noted::communicator);
  if (found == group.noted.end()) found = group.noted.insert(found, {&communicator, {}});
  found->calls.push_back(call);
}

}  // namespace gsel
