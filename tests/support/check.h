/* support/check.h: what every cmocka program shares. A check fails with expected, got and the error's whole chain. */
#ifndef GSEL_TESTS_CHECK_H
#define GSEL_TESTS_CHECK_H

#include <gsel/gsel.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

GSEL_EXTERN_C_BEGIN
#include <cmocka.h>
GSEL_EXTERN_C_END

/* check_ok(gsel_call(..., &err), err) fails with the error's text unless the call succeeded. */
#define check_ok(call, err) check_ok_at((call), &(err), #call, __FILE__, __LINE__)
/* check_fails(gsel_call(..., &err), err, GSEL_ERR_ARG, "part of the message") frees err. */
#define check_fails(call, err, code, part) check_fails_at((call), &(err), (code), (part), #call, __FILE__, __LINE__)

GSEL_EXTERN_C_BEGIN
void check_ok_at(gsel_status status, gsel_error* const* err, const char* call, const char* file, int line);
void check_fails_at(gsel_status status, gsel_error** err, gsel_status code, const char* part, const char* call,
                    const char* file, int line);
GSEL_EXTERN_C_END

#endif
