/* support/check.h: what every cmocka program shares. A check fails with expected, got and the error's whole chain. */
#ifndef GSEL_TESTS_CHECK_H
#define GSEL_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
#include <cmocka.h>
#ifdef __cplusplus
}
#endif

#include <gsel/gsel.h>

/* check_ok(gsel_call(..., &err), err) fails with the error's text unless the call succeeded. */
#define check_ok(call, err) check_ok_at((call), &(err), #call, __FILE__, __LINE__)
/* check_fails(gsel_call(..., &err), err, GSEL_ERR_ARG, "part of the message") frees err. */
#define check_fails(call, err, code, part) check_fails_at((call), &(err), (code), (part), #call, __FILE__, __LINE__)

static inline void check_ok_at(gsel_status status, gsel_error *const *err, const char *call, const char *file, int line) {
  if (status == GSEL_OK) return;
  char text[1024];
  gsel_error_format(*err, text, sizeof text);
  print_error("%s\n  expected success, got %s: %s\n", call, gsel_status_name(status), text);
  _fail(file, line);
}

static inline void check_fails_at(gsel_status status, gsel_error **err, gsel_status code, const char *part,
                                  const char *call, const char *file, int line) {
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

#endif
