/* See check.h. */
#include "support/check.h"

void check_ok_at(gsel_status status, gsel_error* const* err, const char* call, const char* file, int line) {
  if (status == GSEL_OK) return;
  char text[1024];
  gsel_error_format(*err, text, sizeof text);
  print_error("%s\n  expected success, got %s: %s\n", call, gsel_status_name(status), text);
  _fail(file, line);
}

void check_fails_at(gsel_status status, gsel_error** err, gsel_status code, const char* part, const char* call,
                    const char* file, int line) {
  char text[2048] = "";
  gsel_error_format(*err, text, sizeof text);
  const int as_expected = status == code && *err && gsel_error_code(*err) == code && strstr(text, part);
  gsel_error_free(*err);
  *err = NULL;
  if (as_expected) return;
  print_error("%s\n  expected %s with \"%s\"\n  got %s with \"%s\"\n", call, gsel_status_name(code), part,
              gsel_status_name(status), text);
  _fail(file, line);
}
