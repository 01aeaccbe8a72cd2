// select/question.h: a request for devices after parsing. Does not know which devices there are.
#pragma once

#include <string>

#include "select/order.h"
#include "select/request.h"
#include "select/rules/rules.h"
#include "select/spec.h"

namespace gsel {

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
