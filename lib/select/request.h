// select/request.h: a request for devices as data.
#pragma once

#include <optional>
#include <string>

namespace gsel {

struct Request {
  std::optional<std::string> devices;      // absent: auto
  std::optional<std::string> accelerator;  // absent: auto
  std::optional<std::string> order;        // absent: as the environment orders, else bus order
  std::optional<std::string> include;      // hosts and slots, NAME[:SLOT[,SLOT]] joined by @
  std::optional<std::string> exclude;
  std::optional<std::string> hostfile;  // its text
  std::string hostfile_name;            // for messages
  std::optional<std::string> compat;    // a system of compat/, absent: strict
  bool free_only = false;               // nothing that a process uses or a reservation holds
  bool per_rank = false;                // each unit goes to a process of its own
};

}  // namespace gsel
