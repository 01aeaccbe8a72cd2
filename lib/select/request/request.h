// select/request/request.h: a request for devices, before and after parsing. Does not know which devices exist.
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
  std::optional<std::string> hostfile;  // the text of the file
  std::string hostfile_name;            // for messages
  std::optional<std::string> compat;    // a system of compat/, absent: strict
  bool free_only = false;               // excludes units in use or reserved
  bool per_rank = false;                // each unit goes to a separate process
};

struct Question {
  Spec spec;
  std::string accelerator = "auto";  // "auto", "cpu", or a row of rules()
  Order order = Order::visible;
  bool order_given = false;
  bool free_only = false;  // excludes units in use or reserved
  bool per_rank = false;   // each unit goes to a separate process

  // Whether a choice can select a device of these rules.
  bool concerns(const Rules& row) const;
};

// Reads accelerator, devices and order. Throws GSEL_ERR_SYNTAX, GSEL_ERR_CONFLICT and the errors of parse_spec.
Question read_question(const Request& request);

}  // namespace gsel
