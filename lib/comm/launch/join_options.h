// comm/launch/join_options.h: how a rank joins: the fields of gsel_comm_options, with open fields filled in from the
// environment and defaults (environment.cc). Texts are borrowed.
#pragma once

#include <gsel/comm.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

struct JoinOptions {
  int32_t rank = 0;
  int32_t world_size = 1;
  gsel_unique_id id{};
  double timeout_s = 0;
  double join_timeout_s = 0;
  gsel_str device{};  // identity of the device that this rank computes on; empty: unknown
  int32_t order = GSEL_ORDER_RANKS;
  uint32_t flags = 0;  // GSEL_COMM_*
  gsel_str trace{};    // folder for recordings after a failure; empty: none
  bool accelerator = false;
  std::string rendezvous;              // where the ranks of several hosts meet; empty: all are on this host
  const char* rendezvous_source = "";  // the option or variable that `rendezvous` is from
  bool is_launchers_place = false;     // `rendezvous` is from the launcher
  bool meets_by_id = false;            // at the address in `id`, of which `rendezvous` is a text
  std::string launch;                  // text that the ranks of this launch share, on all hosts; may be empty
  std::string job;                     // text that identifies the job, for users; may be empty
  bool id_is_given = false;            // by the caller
  // Numbers in texts, if the ranks that join are some of a larger communicator's. Empty: their own.
  std::vector<int32_t> shown_ranks{};
  int32_t threads_per_rank = 1;  // threads that share a rank's cores while it waits in a call
  int32_t known_ranks = 0;       // world size of the larger communicator; 0: that of this one
  gsel_str name{};               // of the communicator, given by rank 0; empty: not given
};

constexpr size_t kMostNameBytes = 31;  // of a communicator's name that the caller gives

// Fills open options from the environment and defaults; see gsel_comm_init.
JoinOptions complete_join(const gsel_comm_options& options);
// This rank's device according to options and launcher.
struct OwnDevice {
  std::string_view uuid;    // empty: not given
  int32_t local_rank = -1;  // among the ranks of this host; -1: unknown
};
OwnDevice own_device(const gsel_comm_options& options);
// The token of the job that `gsel run` started, if the ranks that join are its ranks; else empty.
std::string job_of_launcher(const JoinOptions& join);

}  // namespace gsel
