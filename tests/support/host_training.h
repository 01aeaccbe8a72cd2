/* support/host_training.h: what training on the host comes to, for programs that see whether something has changed it.
 */
#ifndef GSEL_TESTS_HOST_TRAINING_H
#define GSEL_TESTS_HOST_TRAINING_H

#include "support/check.h"

GSEL_EXTERN_C_BEGIN

/* The exact model trained for a few steps by one rank on the host: a number of the bits of parameters, losses and
 * weights. 0: it failed, and `failure` says why. */
uint64_t host_training(char* failure, size_t size);

GSEL_EXTERN_C_END

#endif
