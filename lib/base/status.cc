// base/status.cc: see status.h.
#include "base/status.h"

namespace gsel {

const char* status_text(gsel_status status) {
#define GSEL_CASE(constant, number, text) \
  case number:                            \
    return text;
  switch (status) { GSEL_ERROR_LIST(GSEL_CASE) default : return "unknown code"; }
#undef GSEL_CASE
}

const char* status_name(gsel_status status) {
#define GSEL_CASE(constant, number, text) \
  case number:                            \
    return #constant;
  switch (status) { GSEL_ERROR_LIST(GSEL_CASE) default : return "unknown"; }
#undef GSEL_CASE
}

}  // namespace gsel
