// select/spec.h: the request as data: which kind of device, and which of them. Refuses to know: what there is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/tokens.h"

namespace gsel {

struct Spec {
  enum class Kind { automatic, all, cpu, count, index, uuid };
  Kind kind = Kind::automatic;
  Input input;                // as given, or "auto"
  int64_t count = 0;          // of count:N
  std::vector<Token> tokens;  // of count:, index: and uuid:
};

// devices = count:N | index:a,b | uuid:PREFIX,... | all | cpu | auto. GSEL_ERR_SYNTAX, GSEL_ERR_TYPE,
// GSEL_ERR_OUT_OF_RANGE, GSEL_ERR_DUPLICATE.
Spec parse_spec(const std::optional<std::string>& text);

}  // namespace gsel
