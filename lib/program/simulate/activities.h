// program/simulate/activities.h: lowers a job's programs to activities with durations: computing, exchanges among
// ranks, messages and waits. Models the executor's handling of each instruction for all simulations. Does not know when
// anything happens.
#pragma once

#include <limits>
#include <vector>

#include "program/job.h"
#include "program/simulate/durations.h"

namespace gsel {

struct Activity {
  enum class Kind : uint8_t {
    compute,   // on the rank's processor
    exchange,  // a blocking collective
    post,      // queues a collective on the communication stream
    wait,      // for the bucket's collective
    send,      // starts a message
    receive,   // waits for one
  };
  Kind kind = Kind::compute;
  gsel_axis axis = -1;
  int32_t position = 0;  // of the instruction in the step
  int32_t bucket = -1;
  int32_t with = -1;     // group of an exchange, channel of a message
  bool is_step = false;  // the optimizer's
  double seconds = 0;    // of computing
  ExchangeTime time{};   // of an exchange or message
};

// Messages of an ordered pair of ranks, by their places in the job's programs.
constexpr int32_t kUnboundedChannel = std::numeric_limits<int32_t>::max();
struct ActivityChannel {
  int32_t from = 0, to = 0;
  int32_t ahead = 1;  // most messages under way
};

struct Activities {
  std::vector<std::vector<Activity>> of_rank;  // by place in the job's programs
  std::vector<int32_t> group_size;             // participating ranks of the job
  std::vector<ActivityChannel> channels;
};

Activities activities_of(const Job& job, const Durations& durations);

}  // namespace gsel
