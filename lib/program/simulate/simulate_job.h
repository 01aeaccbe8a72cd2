// program/simulate/simulate_job.h: computes when every instruction of a job's programs begins and ends, by the rules of
// the executor: a rank computes one thing at a time; collectives that overlap run on its communication stream, one
// behind the other, until their WAIT; a collective begins when all of its group have come to it; messages begin when
// they are sent and asked for, and a bounded number is under way. Does not know memory and callbacks.
#pragma once

#include <array>
#include <vector>

#include "program/job.h"
#include "program/simulate/durations.h"

namespace gsel {

// Which ranks share processors.
struct Hosts {
  std::vector<int32_t> of_program;  // host of each program of the job; empty: each rank has a processor of its own
  std::vector<double> throughput;   // of each host, see program/simulate/processors.h
};

struct InstrTimes {
  double begin = 0, end = 0;
};

struct RankTimes {
  int32_t rank = 0;
  double begin = 0, end = 0;              // of the last step that was simulated
  double busy_s = 0;                      // computing
  double optimizer_s = 0;                 // of it, in STEP
  std::array<double, kAxes> exposed_s{};  // waited while bytes moved, by axis
  std::array<double, kAxes> idle_s{};     // waited for others to come
  std::vector<InstrTimes>
      instrs;  // by position, on the calling thread; seconds from the step's begin on the first rank
  struct Asynchronous {
    int32_t position = 0;
    InstrTimes times;
  };
  std::vector<Asynchronous> asynchronous;  // on the communication stream
};

struct JobTimes {
  std::vector<RankTimes> ranks;  // of the job's programs
  double makespan = 0;           // of a step, from the first begin to the last end
  double period = 0;             // from one step's last end to the next one's; of one step its makespan
  // Mean over ranks, as shares of the period.
  double busy() const;
  double exposed() const;
  double bubble() const { return 1 - busy() - exposed(); }
};

// steps: run one behind the other; a rank that has ended one begins the next. Reported is the last one.
// GSEL_ERR_PROGRAM where ranks wait for each other without end; a job that verify accepts does not.
JobTimes simulate(const Job& job, const Durations& durations, const Hosts& hosts = {}, int32_t steps = 1);

}  // namespace gsel
