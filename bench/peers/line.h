// line.h: how long a cache line takes from one core to another and back. On a virtual machine that changes while it
// runs: the cores may be two threads of one processor at one time and two processors at another, which moves every
// small time by a factor of three. Samples are compared where it was alike.
#pragma once

namespace bench {

constexpr double kNear = 200;  // ns: below, two cores share a first-level cache or nearly so

// Nanoseconds, median of a few short runs between the first two cores; 0 where there is only one.
double line_round_trip();

}  // namespace bench
