// select/choose.h: a spec applied to what is visible: the first of its choices that can be had. Refuses to know:
// how visibility came about.
#pragma once

#include <string>
#include <vector>

#include "select/candidates.h"
#include "select/order.h"
#include "select/request.h"
#include "select/rules/rules.h"
#include "select/spec.h"

namespace gsel {

// A request for devices, read.
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

// What stands round a choice.
struct Scene {
  const Environment& environment;
  const std::vector<Unit>& accelerators;  // of the kinds asked for, before masks
  const std::vector<int32_t>& hosts;      // those that host filters leave, in their order
};

// Narrows the candidates to the selection. On return each kept unit has a reason.
void choose(Candidates& candidates, const Question& question, const Scene& scene, Trace& trace);

}  // namespace gsel
