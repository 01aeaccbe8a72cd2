/* See reference.h. */
#include "support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REFERENCE_INTEGERS(X)                                                                                \
  X(GSEL_I8, int8_t)                                                                                         \
  X(GSEL_U8, uint8_t)                                                                                        \
  X(GSEL_I16, int16_t) X(GSEL_U16, uint16_t) X(GSEL_I32, int32_t) X(GSEL_U32, uint32_t) X(GSEL_I64, int64_t) \
      X(GSEL_U64, uint64_t)
#define REFERENCE_FLOATS(X) X(GSEL_F32, float) X(GSEL_F64, double)

const reference_format* reference_small(gsel_dtype dtype) {
  static const reference_format formats[] = {
      {GSEL_F16, 10, 15, 0x8000, 0x7bff, 0x7c00, 0x7e00},
      {GSEL_BF16, 7, 127, 0x8000, 0x7f7f, 0x7f80, 0x7fc0},
      {GSEL_F8E4M3, 3, 7, 0x80, 0x7e, 0x7f, 0x7f},
      {GSEL_F8E5M2, 2, 15, 0x80, 0x7b, 0x7c, 0x7e},
  };
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; ++i)
    if (formats[i].dtype == dtype) return &formats[i];
  return NULL;
}

float reference_widen(const reference_format* f, uint32_t bits) {
  const uint32_t magnitude = bits & (f->sign - 1), exponent = magnitude >> f->fraction;
  const int one = 1 << f->fraction, part = (int)(magnitude & (uint32_t)(one - 1));
  double x =
      exponent ? ldexp(one + part, (int)exponent - f->bias - f->fraction) : ldexp(part, 1 - f->bias - f->fraction);
  if (magnitude > f->largest) x = magnitude == f->above && f->above != f->nan ? (double)INFINITY : (double)NAN;
  return (float)(bits & f->sign ? -x : x);
}

uint32_t reference_narrow(const reference_format* f, float x) {
  if (isnan(x)) return f->nan;
  const uint32_t sign = signbit(x) ? f->sign : 0;
  uint32_t bits = f->above;
  if (!isinf(x)) {
    int exponent = 1 - f->bias;
    if (x != 0 && ilogb(x) > exponent) exponent = ilogb(x);
    const double steps = nearbyint(ldexp(fabs((double)x), f->fraction - exponent));
    bits =
        ((uint32_t)(exponent + f->bias - 1) << f->fraction) + (uint32_t)steps; /* a carry is a step of the exponent */
    if (bits > f->largest) bits = f->above;
  }
  return bits == f->nan ? bits : bits | sign;
}

uint32_t reference_bits(const reference_format* f, const void* x, size_t i) {
  return f->sign == 0x80 ? ((const uint8_t*)x)[i] : ((const uint16_t*)x)[i];
}

void reference_put(const reference_format* f, void* x, size_t i, float value) {
  const uint32_t bits = reference_narrow(f, value);
  if (f->sign == 0x80) ((uint8_t*)x)[i] = (uint8_t)bits;
  if (f->sign != 0x80) ((uint16_t*)x)[i] = (uint16_t)bits;
}

/* A number that depends on rank and element and repeats after a prime. */
static int reference_number(int32_t rank, size_t i) {
  return (int)((i * 31 + (size_t)rank * 17) % 97) - 40;
}

void reference_fill(gsel_dtype dtype, int32_t rank, void* x, size_t first, size_t count) {
#define FILL_INTEGER(tag, type)                                                                 \
  case tag:                                                                                     \
    for (size_t i = 0; i < count; ++i) ((type*)x)[i] = (type)reference_number(rank, first + i); \
    break;
#define FILL_FLOAT(tag, type)                                                                                      \
  case tag:                                                                                                        \
    for (size_t i = 0; i < count; ++i) ((type*)x)[i] = (type)reference_number(rank, first + i) / (type)(rank + 3); \
    break;
  const reference_format* small = reference_small(dtype);
  for (size_t i = 0; small && i < count; ++i)
    reference_put(small, x, i, (float)reference_number(rank, first + i) / (float)(rank + 3));
  switch (dtype) { REFERENCE_INTEGERS(FILL_INTEGER) REFERENCE_FLOATS(FILL_FLOAT) }
#undef FILL_INTEGER
#undef FILL_FLOAT
}

/* One element over n inputs. */
#define REFERENCE_ELEMENT(type, wide, first, next, is_nan)               \
  type x = (first);                                                      \
  for (int32_t q = 1; q < n; ++q) {                                      \
    const type y = (next);                                               \
    if (op == GSEL_PROD) x = (type)((wide)x * (wide)y);                  \
    if (op == GSEL_SUM || op == GSEL_AVG) x = (type)((wide)x + (wide)y); \
    if (op == GSEL_MIN && (is_nan(y) || y < x)) x = y;                   \
    if (op == GSEL_MAX && (is_nan(y) || x < y)) x = y;                   \
    REFERENCE_BITWISE_##wide                                             \
  }                                                                      \
  if (op == GSEL_AVG) x = (type)(x / (type)n);
#define REFERENCE_BITWISE_uint64_t                    \
  if (op == GSEL_BAND) x = (uint64_t)x & (uint64_t)y; \
  if (op == GSEL_BOR) x = (uint64_t)x | (uint64_t)y;  \
  if (op == GSEL_BXOR) x = (uint64_t)x ^ (uint64_t)y;
#define REFERENCE_BITWISE_float
#define REFERENCE_BITWISE_double
#define REFERENCE_NEVER(x) 0

void reference_fold(gsel_dtype dtype, gsel_op op, int32_t n, const void* const* in, void* out, size_t count) {
#define FOLD_INTEGER(tag, type)                                                                            \
  case tag:                                                                                                \
    for (size_t i = 0; i < count; ++i) {                                                                   \
      REFERENCE_ELEMENT(type, uint64_t, ((const type*)in[0])[i], ((const type*)in[q])[i], REFERENCE_NEVER) \
      ((type*)out)[i] = x;                                                                                 \
    }                                                                                                      \
    break;
#define FOLD_FLOAT(tag, type)                                                                \
  case tag:                                                                                  \
    for (size_t i = 0; i < count; ++i) {                                                     \
      REFERENCE_ELEMENT(type, type, ((const type*)in[0])[i], ((const type*)in[q])[i], isnan) \
      ((type*)out)[i] = isnan(x) ? (type)fabs((double)NAN) : x;                              \
    }                                                                                        \
    break;
  const reference_format* small = reference_small(dtype);
  for (size_t i = 0; small && i < count; ++i) {
    REFERENCE_ELEMENT(float, float, reference_widen(small, reference_bits(small, in[0], i)),
                      reference_widen(small, reference_bits(small, in[q], i)), isnan)
    reference_put(small, out, i, x);
  }
  switch (dtype) { REFERENCE_INTEGERS(FOLD_INTEGER) REFERENCE_FLOATS(FOLD_FLOAT) }
#undef FOLD_INTEGER
#undef FOLD_FLOAT
}

void reference_reduce(gsel_dtype dtype, gsel_op op, int32_t n, void* result, size_t count) {
  const void* inputs[64];
  const size_t bytes = count * gsel_dtype_bytes(dtype);
  char* all = (char*)malloc(bytes * (size_t)n + 1);
  for (int32_t r = 0; r < n; ++r) {
    inputs[r] = all + (size_t)r * bytes;
    reference_fill(dtype, r, all + (size_t)r * bytes, 0, count);
  }
  reference_fold(dtype, op, n, inputs, result, count);
  free(all);
}
