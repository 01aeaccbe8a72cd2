// program/simulate/activities.h: a job's programs as what takes time in them: computing, exchanges among ranks,
// messages and waits, with their durations. What the executor does at an instruction is said here once, for
// simulations. Does not know when anything happens.
#pragma once

#include <limits>
#include <vector>

#include "program/job.h"
#include "program/simulate/durations.h"

namespace gsel {

struct Activity {
  enum class Kind : uint8_t {
    compute,   // on the rank's processor
    exchange,  // a collective on the calling thread
    post,      // starts one on the communication stream
    wait,      // for that of a bucket
    send,      // starts a message
    receive,   // waits for one
  };
  Kind kind = Kind::compute;
  gsel_axis axis = -1;
  int32_t position = 0;  // of the instruction in the step
  int32_t bucket = -1;
  int32_t with = -1;     // group of an exchange, lane of a message
  bool is_step = false;  // the optimizer's
  double seconds = 0;    // of computing
  ExchangeTime time{};   // of an exchange or message
};

// Messages of an ordered pair of ranks, by their places in the job.
constexpr int32_t kUnboundedLane = std::numeric_limits<int32_t>::max();
struct ActivityLane {
  int32_t from = 0, to = 0;
  int32_t ahead = 1;  // under way at most
};

struct Activities {
  std::vector<std::vector<Activity>> of_rank;  // by place in the job's programs
  std::vector<int32_t> group_size;             // ranks of the job that take part
  std::vector<ActivityLane> lanes;
};

Activities activities_of(const Job& job, const Durations& durations);

}  // namespace gsel
