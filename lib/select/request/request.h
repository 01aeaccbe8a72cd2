// select/request/request.h: a request for devices, before and after parsing. Does not know which devices exist.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/inventory/unit.h"
#include "select/request/spec.h"
#include "select/rules/rules.h"

namespace gsel {

// The orders that a request can ask for, each with its tie-break, so that the same machine always gives the same
// answer.
enum class Order {
  visible,    // as the environment orders, else bus order
  pci,        // bus order
  fastest,    // most compute units x clock first, then bus order
  most_free,  // most free memory first, then bus order
  near,       // linked closely; see nearest_of
};

// GSEL_ERR_SYNTAX for another word.
Order parse_order(const std::optional<std::string>& text);

// Sorts units of one host. `near` begins with the first unit in bus order; each next unit has the least total distance
// to those before it, then bus order; with more than 1,024 units it is bus order.
std::vector<Unit> ordered(const Inventory& inventory, std::vector<Unit> units, Order order);

// The `count` units of one host with the least total distance between them, in bus order; ties go to the first in bus
// order. Exact for up to 16 units; for more, grown greedily from each of the first 64; for more than 1,024, the first
// units in bus order.
std::vector<Unit> nearest_of(const Inventory& inventory, std::vector<Unit> units, size_t count);

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
