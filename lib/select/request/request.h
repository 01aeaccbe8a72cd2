// select/request/request.h: a request for devices: as it is given, and after parsing. Does not know which devices there
// are.
#pragma once

#include <optional>
#include <string>

#include "select/request/order.h"
#include "select/request/spec.h"
#include "select/rules/rules.h"

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

struct Question {
  Spec spec;
  std::string accelerator = "auto";  // "auto", "cpu", or a row of rules()
  Order order = Order::visible;
  bool order_given = false;
  bool free_only = false;  // nothing that a process uses or a reservation holds
  bool per_rank = false;   // each unit goes to a process of its own

  // Whether a choice could take a device of these rules.
  bool concerns(const Rules& row) const;
};

// Reads accelerator, devices and order. GSEL_ERR_SYNTAX, GSEL_ERR_CONFLICT and what parse_spec throws.
Question read_question(const Request& request);

}  // namespace gsel
