// comm/hosts/refusals.h: what rank 0 says of ranks that do not fit, or do not come. Does not know how they are heard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/hosts/meeting.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {

std::string seat_of(const Greeting& greeting);  // "node2 (pid 4711)"

// Of another byte order or protocol than this rank 0.
[[noreturn]] void fail_kind(const Greeting& greeting);
// Who knows the secret and says something else than the others ends the job: GSEL_ERR_VERSION, GSEL_ERR_MISMATCH.
// other: who has come with its rank before; same_host: who has come first of its host; nullptr: nobody.
void check_greeting(const Greeting& greeting, int32_t world_size, const Greeting* other, const Greeting* same_host);
// To a rank of another job than that of rank 0, which goes on without it.
Error other_job(const Greeting& greeting, const Greeting& root, const std::string& place);
// late: who has not come, or, where have_come, has not taken the table. here: by rank, nullptr for those who have not
// come. stranger: who came and was not let in; may be empty.
[[noreturn]] void fail_late(const Meeting& meeting, const std::vector<int32_t>& late, bool have_come,
                            const std::vector<const Greeting*>& here, const std::string& stranger);

}  // namespace gsel::hosts
