/* exclude.h: the layers that strategy.tensor.exclude names: nothing of them is split, each rank has all of their
 * parameters. Knows names alone, and nothing of placements. */
#ifndef EXCLUDE_H
#define EXCLUDE_H

#include "common/placements.h"

/* Flags of all layers, 1 for those that are excluded; free() them. NULL behind an error, which p->status and *err have:
 * a name that no layer has, a layer that nothing would divide, a parameter that other layers divide. */
unsigned char* exclude_read(struct placements* p, gsel_error** err);

#endif
