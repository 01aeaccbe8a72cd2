// base/foreign.cc: see foreign.h.
#include "base/foreign.h"

#include "base/error.h"
#include "base/text.h"

namespace gsel {
namespace {

bool is_ours(gsel_status status) {
#define GSEL_CASE(constant, number, text) \
  case number:                            \
    return true;
  switch (status) { GSEL_ERROR_LIST(GSEL_CASE) default : return false; }
#undef GSEL_CASE
}

}  // namespace

std::string reason_of(gsel_status status, std::string_view said) {
  if (is_ours(status)) return said.empty() ? status_name(status) : one_line(said);
  if (said.empty()) return fmt::format("it returned {}, which is a code of its own", status);
  return fmt::format("{} (it returned {})", one_line(said), status);
}

}  // namespace gsel
