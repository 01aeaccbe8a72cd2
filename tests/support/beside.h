/* support/beside.h: runs tests that mostly wait at the same time, each in a process of its own. Not for tests that
 * share state, except state made before they start. */
#ifndef GSEL_TESTS_BESIDE_H
#define GSEL_TESTS_BESIDE_H

#include <stddef.h>

#include "support/check.h"

GSEL_EXTERN_C_BEGIN

/* Returns the number of tests that failed, as cmocka_run_group_tests does. Each test's output is shown in one piece. */
int run_tests_beside(const struct CMUnitTest* tests, size_t n);

GSEL_EXTERN_C_END

#endif
