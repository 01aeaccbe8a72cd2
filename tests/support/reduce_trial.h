// support/reduce_trial.h: gsel_device_v1.reduce of any device, against gsel_allreduce in host memory.
#pragma once

#include <gsel/device.h>

// Every type and operation that the collectives take, n of 1 to GSEL_REDUCE_SOURCES, at aligned and other addresses, in
// place and not, bit for bit.
void check_reduce_bits(const gsel_device_v1& device, void* ctx);

// What reduce does not take, and how it says so.
void check_reduce_refusals(const gsel_device_v1& device, void* ctx);
