// comm/join_options.h: how a rank joins: the fields of gsel_comm_options with all defaults filled in. Texts are
// borrowed.
#pragma once

#include <gsel/comm.h>

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
  gsel_str trace{};    // folder to write recordings to at a failure; empty: none
  bool accelerator = false;
  gsel_str rendezvous{};               // where the ranks of several hosts meet; not given: all are on this one
  const char* rendezvous_source = "";  // where that is said
  bool id_is_given = false;            // by the caller
  gsel_str name{};                     // of the communicator, as rank 0 gives it; empty: not given
};

}  // namespace gsel
