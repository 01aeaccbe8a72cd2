// select/request/spec.h: the request as data. Its grammar:
//
//   spec    = choice { "|" choice }         the first possible choice
//   choice  = clause { "&" clause }         all clauses apply; at most one names devices
//   clause  = "all" | "auto" | "none" | accelerator | "count:" N | list | [ "!" ] filter
//   list    = entry { "," entry }            an entry without a space has the space of the entry before it
//   entry   = [ space ":" ] value            in index, cuda, visible: N; in pci: N or a bus address; in uuid: a unique
//                                            prefix; in mig: a unique prefix, or device "." instance, or instance
//   filter  = "name:" glob { "," glob } | "host:" glob { "," glob } | "arch:" (capability | glob) { "," ... }
//           | "numa:" N { "," N } | "arch>=" capability | ("free>=" | "memory>=") bytes | "integrated" | "busy"
//           | accelerator | list
//
// Blanks may surround any word. A bare number is a count to one framework and an index to another; here it is refused.
// Does not know which devices exist.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/words/tokens.h"

namespace gsel {

struct Clause {
  enum class Kind {
    all,
    automatic,
    none,
    accelerator,  // name
    count,        // number
    index,        // tokens
    pci,
    cuda,
    visible,
    uuid,
    mig,
    name,
    host,
    arch,
    numa,
    least_arch,    // number: 1000 * major + minor
    least_free,    // number: bytes
    least_memory,  // number: bytes
    integrated,
    busy,
  };
  Kind kind = Kind::automatic;
  bool excluded = false;  // follows "!"
  std::string name;       // of an accelerator
  uint64_t number = 0;
  std::vector<Kind> spaces;   // of a list: the space of each token
  std::vector<Token> tokens;  // the words after the colon or sign; of other clauses the whole clause
  Token whole;                // the clause as given

  // Names single devices, in order.
  bool is_list() const { return kind >= Kind::index && kind <= Kind::mig; }
  // Says which devices, and how many, to take of those that pass the filters; a choice has at most one such clause.
  bool is_picker() const { return !excluded && (kind <= Kind::none || kind == Kind::count || is_list()); }
};

struct Choice {
  std::vector<Clause> clauses;
  Token whole;

  // The clause that selects devices; nullptr: all that pass the filters.
  const Clause* picker() const;
  // The accelerator that the choice names, or empty.
  std::string accelerator() const;
};

struct Spec {
  Input input;  // as given, or "auto"
  std::vector<Choice> choices;
};

// GSEL_ERR_SYNTAX, GSEL_ERR_TYPE, GSEL_ERR_OUT_OF_RANGE, GSEL_ERR_DUPLICATE, GSEL_ERR_CONFLICT, each with its token.
Spec parse_spec(const std::optional<std::string>& text);

}  // namespace gsel
