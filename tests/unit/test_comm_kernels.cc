// unit/test_comm_kernels.cc: redistributions of narrow floating point types over all their values, and the reduction
// loops of every instruction set this processor has, against the serial reference, bit for bit.
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "device/formulas/floats.h"
#include "device/host/reduce/kernels.h"
#include "support/check.h"
#include "support/reference.h"

namespace {

void same(const char* what, gsel_dtype dtype, uint32_t given, uint32_t got, uint32_t expected) {
  if (got == expected) return;
  print_error("%s %s of 0x%x: got 0x%x, expected 0x%x\n", gsel_dtype_name(dtype), what, given, got, expected);
  fail();
}

void narrows(const reference_format& f, uint32_t (*narrow)(float), float x, uint32_t expected) {
  same("narrow", f.dtype, std::bit_cast<uint32_t>(x), narrow(x), expected);
  same("reference", f.dtype, std::bit_cast<uint32_t>(x), reference_narrow(&f, x), expected);
}

// Every value there and back; then the whole line of f32: what lies between two neighbours goes to the nearer one, and
// from the middle to the even one.
template <class T>
void check_format(gsel_dtype dtype) {
  const reference_format& f = *reference_small(dtype);
  const auto narrow = +[](float x) -> uint32_t { return T::narrow(x).bits; };
  for (uint32_t bits = 0; bits < 2 * f.sign; ++bits) {
    const float x = T{static_cast<decltype(T::bits)>(bits)}.widen(), expected = reference_widen(&f, bits);
    if (std::isnan(expected)) {
      assert_true(std::isnan(x));
      narrows(f, narrow, x, f.nan);
    } else {
      same("widen", dtype, bits, std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(expected));
      narrows(f, narrow, x, bits);
    }
  }
  for (uint32_t low = 0; low <= f.largest; ++low) {
    const double from = reference_widen(&f, low);
    // Behind the largest comes what would be the next number if the format went on.
    const double to = low < f.largest ? reference_widen(&f, low + 1) : 2 * from - reference_widen(&f, low - 1);
    const auto middle = static_cast<float>((from + to) / 2);
    if (std::isinf(middle)) continue;
    const uint32_t high = low + 1 > f.largest ? f.above : low + 1;
    for (const uint32_t sign : {uint32_t{0}, f.sign}) {
      const float direction = sign ? -1 : 1;
      const auto with_sign = [&](uint32_t bits) { return bits == f.nan ? bits : bits | sign; };
      narrows(f, narrow, direction * std::nextafter(middle, 0.0f), with_sign(low));
      narrows(f, narrow, direction * middle, with_sign(low % 2 == 0 ? low : high));
      narrows(f, narrow, direction * std::nextafter(middle, INFINITY), with_sign(high));
    }
  }
  narrows(f, narrow, INFINITY, f.above);
  narrows(f, narrow, -INFINITY, f.above == f.nan ? f.nan : f.above | f.sign);
  for (const uint32_t nan : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu})
    narrows(f, narrow, std::bit_cast<float>(nan), f.nan);
}

void test_conversions_agree_with_the_definition_over_all_values(void**) {
  check_format<gsel::F16>(GSEL_F16);
  check_format<gsel::BF16>(GSEL_BF16);
  check_format<gsel::F8E4M3>(GSEL_F8E4M3);
  check_format<gsel::F8E5M2>(GSEL_F8E5M2);
}

// OCP OFP8 revision 1.0, tables 1 and 2; IEEE 754 binary16.
void test_conversions_give_the_published_numbers(void**) {
  assert_true(gsel::F8E4M3{0x7e}.widen() == 448 && gsel::F8E4M3{0x08}.widen() == 0x1p-6f);
  assert_true(gsel::F8E4M3{0x01}.widen() == 0x1p-9f && std::isnan(gsel::F8E4M3{0xff}.widen()));
  assert_true(gsel::F8E5M2{0x7b}.widen() == 57344 && gsel::F8E5M2{0x04}.widen() == 0x1p-14f);
  assert_true(gsel::F8E5M2{0x01}.widen() == 0x1p-16f && gsel::F8E5M2{0xfc}.widen() == -INFINITY);
  assert_true(gsel::F16{0x7bff}.widen() == 65504 && gsel::F16{0x0001}.widen() == 0x1p-24f);
  assert_int_equal(gsel::F8E4M3::narrow(464).bits, 0x7e);  // half way to 480, which would be odd
  assert_int_equal(gsel::F8E4M3::narrow(465).bits, 0x7f);
  assert_int_equal(gsel::F8E5M2::narrow(61440).bits, 0x7c);
  assert_int_equal(gsel::F8E5M2::narrow(61439).bits, 0x7b);
}

uint64_t next_random(uint64_t& state) {  // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Any bits at all; in floating point types a third of them close to one, so that sums round rather than vanish.
void fill(std::vector<char>& bytes, gsel_dtype dtype, uint64_t& state) {
  for (char& c : bytes) c = static_cast<char>(next_random(state));
  const size_t element = gsel_dtype_bytes(dtype);
  if (dtype < GSEL_F16 || element == 1) return;
  const char top = dtype == GSEL_F16 ? 0x3c : 0x3f;
  for (size_t i = element - 1; i < bytes.size(); i += 3 * element)
    bytes[i] = static_cast<char>(top | static_cast<char>(next_random(state) & 0x80));
}

struct Case {
  gsel::host::Isa isa;
  gsel_dtype dtype;
  gsel_op op;
  int n;
  size_t count;
};

// `shift` elements off a cache line, and with `in_place` >= 0 into that input.
void check_case(const Case& c, size_t shift, int in_place, uint64_t& state) {
  const size_t element = gsel_dtype_bytes(c.dtype), bytes = c.count * element, before = shift * element;
  std::vector<std::vector<char>> inputs(static_cast<size_t>(c.n), std::vector<char>(before + bytes));
  std::vector<char> out(before + bytes + 64, 0x55), expected(before + bytes);
  std::vector<const void*> in;
  for (auto& input : inputs) {
    fill(input, c.dtype, state);
    in.push_back(input.data() + before);
  }
  reference_fold(c.dtype, c.op, c.n, in.data(), expected.data() + before, c.count);
  char* to = in_place < 0 ? out.data() + before : inputs[static_cast<size_t>(in_place)].data() + before;
  gsel::host::reduce_with(c.isa, {.dtype = c.dtype, .op = c.op}, to, in.data(), c.n, c.count);
  for (size_t i = 0; i < bytes; ++i)
    if (to[i] != expected[before + i]) {
      print_error("set %d, %s, op %d, %d inputs, %zu elements, shift %zu, in place %d: element %zu differs\n",
                  static_cast<int>(c.isa), gsel_dtype_name(c.dtype), c.op, c.n, c.count, shift, in_place, i / element);
      fail();
    }
  for (size_t i = before + bytes; in_place < 0 && i < out.size(); ++i) assert_int_equal(out[i], 0x55);
}

void test_every_instruction_set_gives_the_bits_of_the_reference(void**) {
  uint64_t state = 1;
  for (const gsel::host::Isa isa : gsel::host::kIsas) {
    if (!gsel::host::has_isa(isa)) {
      print_message("instruction set %d is not there and was not tried\n", static_cast<int>(isa));
      continue;
    }
    for (gsel_dtype dtype = GSEL_I8; dtype <= GSEL_F8E5M2; ++dtype)
      for (gsel_op op = GSEL_SUM; op <= (dtype <= GSEL_U64 ? GSEL_BXOR : GSEL_AVG); ++op)
        for (const int n : {2, 3, 5})
          for (const size_t count : {1, 7, 8, 9, 31, 65, 1023, 1025, 4099}) {
            check_case({isa, dtype, op, n, count}, 0, -1, state);
            check_case({isa, dtype, op, n, count}, 1, -1, state);
            check_case({isa, dtype, op, n, count}, 3, static_cast<int>(count) % n, state);
          }
  }
}

void test_a_nan_wins_and_is_always_the_same_one(void**) {
  const uint32_t odd = 0xff812345, one = 0x3f800000;  // a signalling NaN with sign and payload
  for (gsel_op op = GSEL_SUM; op <= GSEL_AVG; ++op)
    for (const bool first : {false, true}) {
      const uint32_t a = first ? odd : one, b = first ? one : odd;
      const void* in[] = {&a, &b};
      uint32_t out = 0;
      gsel::host::reduce({.dtype = GSEL_F32, .op = op}, &out, in, 2, 1);
      assert_int_equal(out, 0x7fc00000);
    }
  const float inf = INFINITY, less = -INFINITY;
  const void* in[] = {&inf, &less};
  uint32_t out = 0;
  gsel::host::reduce({.dtype = GSEL_F32, .op = GSEL_SUM}, &out, in, 2, 1);
  assert_int_equal(out, 0x7fc00000);
}

void test_of_two_zeros_the_first_stays(void**) {
  for (const gsel_op op : {GSEL_MIN, GSEL_MAX})
    for (const uint16_t first : {0x0000, 0x8000}) {
      const uint16_t a = first, b = first ^ 0x8000;
      const void* in[] = {&a, &b};
      for (const gsel_dtype dtype : {GSEL_F16, GSEL_BF16}) {
        uint16_t out = 1;
        gsel::host::reduce({.dtype = dtype, .op = op}, &out, in, 2, 1);
        assert_int_equal(out, first);
      }
    }
}

// 1 + 2^-8 + 2^-8 in bf16: rounding after each step would give 1.
void test_narrow_types_are_rounded_once(void**) {
  const uint16_t one = 0x3f80, little = 0x3b80;  // 2^-8 is half a step of 1
  const void* in[] = {&one, &little, &little};
  uint16_t out = 0;
  gsel::host::reduce({.dtype = GSEL_BF16, .op = GSEL_SUM}, &out, in, 3, 1);
  assert_int_equal(out, 0x3f81);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_conversions_agree_with_the_definition_over_all_values),
      cmocka_unit_test(test_conversions_give_the_published_numbers),
      cmocka_unit_test(test_every_instruction_set_gives_the_bits_of_the_reference),
      cmocka_unit_test(test_a_nan_wins_and_is_always_the_same_one),
      cmocka_unit_test(test_of_two_zeros_the_first_stays),
      cmocka_unit_test(test_narrow_types_are_rounded_once),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
