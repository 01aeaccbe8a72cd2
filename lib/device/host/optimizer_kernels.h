// device/host/optimizer_kernels.h: optimizer steps over host memory. Does not know streams and errors: the caller has
// checked the arguments. Elements are independent, except within blocks of 8-bit state, so a step gives the same bits
// for any division of its range and any instruction set.
#pragma once

#include <gsel/device.h>

#include "device/host/isa/isa.h"

namespace gsel::host {

// All kinds except ADAMW_8BIT.
void elementwise_step(Isa isa, const gsel_optimizer_step& step);

// ADAMW_8BIT. A moment has one byte per element, and one scale, the largest magnitude, per block of kStateBlock. A step
// decodes a block, updates it as AdamW in f32, and encodes it again; the parameter is updated before the encoding.
void byte_state_step(Isa isa, const gsel_optimizer_step& step);

constexpr uint64_t kStateBlock = 256;

// Value of a code for scale 1; code 0 is 0. Dynamic quantisation (Dettmers et al., ICLR 2022): the highest set bit of a
// magnitude c selects the decade, the bits below it divide the decade evenly, and the value is the middle of its part:
//   signed    bit 7 is the sign, c the other bits; decade i = 0..6, parts 2^i = highest bit; code 128 is 1
//   unsigned  c is the code; decade i = 0..6, parts 2^(i+1) = highest bit; code 1 is 1
//   value     10^(i-6) * (0.1 + 0.9 * (c - parts + 0.5) / parts)
// A number gets the code of the nearest value. A positive second moment (unsigned) never becomes zero, since an update
// divides by its root.
float signed_value(uint8_t code);
float unsigned_value(uint8_t code);

}  // namespace gsel::host
