// comm/hosts/meeting.h: how the ranks of several hosts find each other. Rank 0 listens at a known place, or posts its
// address there, learns the host of every rank, and sends the table to all. Only ranks that know the job's secret are
// accepted. Returns on every rank after all have come, or fails on every rank that has come, within the deadline. Does
// not know how the ranks share memory.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "comm/device/accelerator.h"
#include "comm/hosts/address_store.h"
#include "comm/hosts/place.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"
#include "comm/hosts/wire.h"
#include "comm/interface/control.h"
#include "comm/launch/join_options.h"

namespace gsel::hosts {

struct Meeting {
  int32_t rank, world_size;
  MeetingPlace place;
  std::optional<Secret> secret;  // nullopt: rank 0 makes one and posts it where only the ranks can read it
  std::string job;               // for address stores (address_store.h)
  double seconds;                // timeout
  int64_t deadline_ns;
  uint16_t port = 0;          // on rank 0: where it listens for the first ranks of the other hosts
  uint16_t fanout = 0;        // on rank 0: of the tree of hosts (tree.h)
  int64_t silence_ns = 0;     // on rank 0: see HostTable
  std::string job_name = {};  // identifies the job, for users; empty: unknown
  int32_t order = 0;          // of reductions, and
  bool accelerator = false;   // whether there is one: the same on every rank
};

// Says who this rank is; without a nonce.
Greeting own_greeting(const Meeting& meeting);

struct Met {
  HostTable table;
  Secret secret;
};

Met meet(const Meeting& meeting);

// The two sides. address_store: where rank 0 posts its address; nullptr: it listens at the place.
Met meet_as_root(const Meeting& meeting, std::unique_ptr<AddressStore> address_store);  // rank 0, root.cc
Met meet_as_joiner(const Meeting& meeting, AddressStore* address_store);                // joiner.cc

// Over shared memory only, if all ranks are on one host; see gsel_comm_options.rendezvous.
std::unique_ptr<Control> join(const JoinOptions& join, const OpenTransports::Open& open_between_hosts);

}  // namespace gsel::hosts
