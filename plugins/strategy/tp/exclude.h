/* exclude.h: the layers that strategy.tensor.exclude names: they are not divided, and each rank has their whole
 * parameters. Knows names only, not placements. */
#ifndef EXCLUDE_H
#define EXCLUDE_H

#include "common/placements.h"

/* Flags of all layers, 1 for excluded ones; to be freed. NULL after an error, in p->status and *err: an unknown name, a
 * layer that is not divided anyway, or a parameter that is also used by divided layers. */
unsigned char* exclude_read(struct placements* p, gsel_error** err);

#endif
