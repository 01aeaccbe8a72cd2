/* support/port.h: a port for ranks to meet at. */
#ifndef GSEL_TESTS_PORT_H
#define GSEL_TESTS_PORT_H

#include "support/check.h"

GSEL_EXTERN_C_BEGIN

/* A port without a listener. Drawn at random below 32768, since the kernel gives higher ones to outgoing connections,
 * of which other tests make many. */
uint16_t free_port(void);

GSEL_EXTERN_C_END

#endif
