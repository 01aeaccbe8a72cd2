// program/simulate/simulate_job.h: computes when every instruction of a job's programs begins and ends, by the rules of
// the executor: a rank computes one thing at a time; overlapping collectives run in order on its communication stream,
// as those of one axis do, until their WAIT; a collective begins when all ranks of its group have arrived; a message
// begins when it is sent and its receive is posted, and the number under way is bounded. Does not know memory and
// callbacks.
#pragma once

#include <array>
#include <vector>

#include "program/job.h"
#include "program/simulate/durations.h"

namespace gsel {

// Which ranks share a processor.
struct Hosts {
  std::vector<int32_t> of_program;  // host of each program of the job; empty: no sharing
  std::vector<double> throughput;   // of every host, see program/simulate/agenda.h
};

struct InstrTimes {
  double begin = 0, end = 0;
};

struct RankTimes {
  int32_t rank = 0;
  double begin = 0, end = 0;              // of the last simulated step
  double busy_s = 0;                      // computing
  double optimizer_s = 0;                 // included in busy_s, in STEP
  std::array<double, kAxes> exposed_s{};  // waited during transfers, by axis
  std::array<double, kAxes> idle_s{};     // waited for other ranks, by axis
  std::vector<InstrTimes> instrs;         // by position, on the calling thread; since the step began on the first rank
  struct Asynchronous {
    int32_t position = 0;
    InstrTimes times;
  };
  std::vector<Asynchronous> asynchronous;  // on the communication stream
};

struct JobTimes {
  std::vector<RankTimes> ranks;  // of the job's programs
  double makespan = 0;           // from the first begin to the last end of a step
  double period = 0;             // between the ends of successive steps; makespan if there is one step
  // Means over ranks, as fractions of the period.
  double busy() const;
  double exposed() const;
  double bubble() const { return 1 - busy() - exposed(); }
};

// Simulates consecutive steps, without a barrier between steps, and reports the last one. GSEL_ERR_PROGRAM on a
// deadlock, which a verified job cannot have.
JobTimes simulate(const Job& job, const Durations& durations, const Hosts& hosts = {}, int32_t steps = 1);

}  // namespace gsel
