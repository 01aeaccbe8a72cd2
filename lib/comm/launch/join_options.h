// comm/launch/join_options.h: how a rank joins: the fields of gsel_comm_options with all defaults filled in, from the
// environment where they are left open (environment.cc). Texts are borrowed.
#pragma once

#include <gsel/comm.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

struct Accelerator;

struct JoinOptions {
  int32_t rank = 0;
  int32_t world_size = 1;
  gsel_unique_id id{};
  double timeout_s = 0;
  double join_timeout_s = 0;
  gsel_str device{};  // identity of the device that this rank computes on; empty: unknown
  int32_t order = GSEL_ORDER_RANKS;
  uint32_t flags = 0;  // GSEL_COMM_*
  gsel_str trace{};    // folder to write recordings to at a failure; empty: none
  bool accelerator = false;
  std::string rendezvous;              // where the ranks of several hosts meet; empty: all are on this one
  const char* rendezvous_source = "";  // where that is said
  bool is_launchers_place = false;     // it is what the launcher says
  std::string launch;                  // what the ranks of this launch share, on all hosts; may be empty
  std::string job;                     // what tells their job from others, as users read it; may be empty
  bool id_is_given = false;            // by the caller
  // Opens what moves memory of the host between hosts, once it is known that there are several.
  std::function<std::shared_ptr<const Accelerator>()> find_between_hosts{};
  // Of the ranks that join, where they are some of the ranks that a user knows: their numbers there. Empty: their own.
  std::vector<int32_t> shown_ranks{};
  int32_t threads_a_rank = 1;  // that share its cores while it waits in a call
  int32_t known_ranks = 0;     // of those that a user knows, how many there are; 0: those that join
  gsel_str name{};             // of the communicator, as rank 0 gives it; empty: not given
};

constexpr size_t kMostNameBytes = 31;  // of a communicator's name that the caller gives

// Fills what the options leave open from the environment and from defaults; see gsel_comm_init.
JoinOptions complete_join(const gsel_comm_options& options);
// The device that is this rank's, as far as options and launcher say.
struct OwnDevice {
  std::string_view uuid;    // empty: none is named
  int32_t local_rank = -1;  // among the ranks of this host; -1: not known
};
OwnDevice own_device(const gsel_comm_options& options);
// The token of the job that `gsel run` started, when those who join are its ranks; else empty.
std::string job_of_launcher(const JoinOptions& join);

}  // namespace gsel
