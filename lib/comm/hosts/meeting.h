// comm/hosts/meeting.h: how the ranks of several hosts find each other. Rank 0 listens at a place that all know, and
// hears of every rank on which host it is; then all are told. Only who knows the job's secret is heard. Returns on
// every rank once all have come, or fails on every rank that has come, within the deadline. Does not know how the ranks
// then share memory.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/hosts/place.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"

namespace gsel::hosts {

struct Meeting {
  int32_t rank, world_size;
  MeetingPlace place;
  Secret secret;
  double seconds;  // until when all are to have come,
  int64_t deadline_ns;
  uint16_t port = 0;  // of rank 0: where it listens for the first ranks of the other hosts
};

HostTable meet(const Meeting& meeting);

}  // namespace gsel::hosts
