// comm/hosts/refusals.h: errors of rank 0 about ranks that do not match or do not come. Does not know how greetings
// arrive.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/hosts/meeting.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {

std::string seat_of(const Greeting& greeting);  // "node2 (pid 4711)"

// The rank's byte order or protocol differs from rank 0's.
[[noreturn]] void fail_kind(const Greeting& greeting);
// Throws GSEL_ERR_VERSION or GSEL_ERR_MISMATCH if a rank that knows the secret disagrees with rank 0. other: an
// earlier greeting with the same rank; same_host: the first greeting of the same host; nullptr: none.
void check_greeting(const Greeting& greeting, const Greeting& root, const Greeting* other, const Greeting* same_host);
// For a rank of another job, which rank 0 sends away.
Error other_job(const Greeting& greeting, const Greeting& root, const std::string& place);
// For a second process with rank 0, which the first one sends away.
Error second_rank_0(const Greeting& greeting, const Greeting& root);
// The rank whose join timeout has passed, unless it is rank 0's.
struct Waiter {
  const Greeting& greeting;
  double seconds;
};
// late: ranks that have not come, or, if have_come, have not taken the table. here: by rank; nullptr: has not come.
// refused: connections that were refused; may be empty. waiter: nullptr: rank 0.
[[noreturn]] void fail_late(const Meeting& meeting, const std::vector<int32_t>& late, bool have_come,
                            const std::vector<const Greeting*>& here, const std::string& refused, const Waiter* waiter);

// Connections that rank 0 has refused. Nobody without the token may decide how a meeting ends, so they are only quoted.
class Refused {
 public:
  // true: for the first time.
  bool add_other_token(const std::string& address);
  bool add_rank_0(const std::string& seat);
  void add_other_job(std::string text) { other_job_ = std::move(text); }
  std::string text() const;

 private:
  static constexpr size_t kMostAddresses = 4;
  std::vector<std::string> addresses_;  // that showed another token
  bool has_more_ = false;
  std::string other_job_, rank_0_;  // rank_0_: seat of another process with rank 0
};

}  // namespace gsel::hosts
