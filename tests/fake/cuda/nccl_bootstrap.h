// fake/cuda/nccl_bootstrap.h: what the double does over TCP, as NCCL does to join: each rank listens at the address of
// an interface, and ranks of other processes connect to it. Nothing is sent. IPv4 alone.
#pragma once

#include <cstdint>
#include <string>

namespace fake_nccl {

// The interface that NCCL_SOCKET_IFNAME admits: a list of the beginnings of names; "=" before it: of names, "^": of
// those that are left out. Without it one that is not docker's, libvirt's or the loopback's, else the loopback's.
std::string bootstrap_interface();

struct Listening {
  int fd = -1;
  uint32_t address = 0;  // in the order of the network
  uint16_t port = 0;
};
// At that interface; fd -1: there is none.
Listening bootstrap_listen();
bool bootstrap_reaches(uint32_t address, uint16_t port);

// What tells hosts apart for NCCL: NCCL_HOSTID, else the host's name and the kernel's boot id.
uint64_t bootstrap_host();

}  // namespace fake_nccl
