/* support/reference.h: what a collective must give, computed by one thread the plain way: inputs folded from rank 0 up,
 * element by element, so that results can be compared bit for bit. Integers, f32 and f64 are folded in the type itself,
 * narrower floating point types in f32 with one rounding at the end. Refuses to be fast: redistributions go through
 * real numbers, by the definition of a binary floating point format, and share no code with the library. */
#ifndef GSEL_TESTS_REFERENCE_H
#define GSEL_TESTS_REFERENCE_H

#include <gsel/gsel.h>

GSEL_EXTERN_C_BEGIN

/* A format narrower than f32. What rounds to more than `largest` is `above`.
 * IEEE 754 binary16; bfloat16; OCP 8-bit Floating Point Specification (OFP8) revision 1.0, table 1. */
typedef struct reference_format {
  gsel_dtype dtype;
  int fraction, bias;
  uint32_t sign, largest, above, nan;
} reference_format;

/* NULL: not one of the narrow formats. */
const reference_format* reference_small(gsel_dtype dtype);
float reference_widen(const reference_format* f, uint32_t bits);
uint32_t reference_narrow(const reference_format* f, float x);
uint32_t reference_bits(const reference_format* f, const void* x, size_t i);
void reference_put(const reference_format* f, void* x, size_t i, float value);

/* x[count] = what `rank` contributes, starting with element `first`. */
void reference_fill(gsel_dtype dtype, int32_t rank, void* x, size_t first, size_t count);
void reference_fold(gsel_dtype dtype, gsel_op op, int32_t n, const void* const* in, void* out, size_t count);

/* result[count] = op over the contributions of n ranks. */
void reference_reduce(gsel_dtype dtype, gsel_op op, int32_t n, void* result, size_t count);

GSEL_EXTERN_C_END

#endif
