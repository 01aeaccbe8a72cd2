/* support/port.h: a port for ranks to meet at. */
#ifndef GSEL_TESTS_PORT_H
#define GSEL_TESTS_PORT_H

#include "support/check.h"

GSEL_EXTERN_C_BEGIN

/* One that nobody listens at. Drawn at random, and never one that the kernel gives to connections on their way out
 * (from 32768 on): tests that run beside this one make many of them. */
uint16_t free_port(void);

GSEL_EXTERN_C_END

#endif
